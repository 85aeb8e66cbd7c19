"""Spin locks exclude, and an abort flag ends every wait."""

from __future__ import annotations

import threading
import time

import numba
import numpy as np
import pytest
from numba import njit

from hogwild.kernels.atomics import load, store
from hogwild.kernels.control import ABORT, TURN, cells
from hogwild.kernels.locks import acquire, release, wait_for
from hogwild.kernels.options import JIT

THREADS, TIMES = 4, 50_000
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="threads contend only when compiled")


@njit(**JIT)
def add_under_lock(locks, index, sums, times, control):
    """Two plain sums that agree whenever the lock is free; returns how often they did not."""
    torn = 0
    for _ in range(times):
        if not acquire(locks, index, control, ABORT):
            return -1
        torn += sums[0] != sums[1]
        sums[0] += 1
        sums[1] += 1
        release(locks, index)
    return torn


@njit(**JIT)
def take_turns(control, worker, workers, times, log):
    for k in range(times):
        position = k * workers + worker
        if not wait_for(control, TURN, position, control, ABORT):
            return
        log[position] = worker
        store(control, TURN, load(control, TURN) + 1)


@needs_jit
def test_mutual_exclusion():
    locks, sums, control = np.zeros(2, np.int32), np.zeros(2, np.int64), np.zeros(cells(1), np.int64)
    torn = []
    threads = [
        threading.Thread(target=lambda: torn.append(add_under_lock(locks, 1, sums, TIMES, control)))
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == [0] * THREADS
    assert sums.tolist() == [THREADS * TIMES] * 2
    assert locks.tolist() == [0, 0]


@needs_jit
def test_turns_come_in_order_with_more_workers_than_cores():
    times = 400
    control, log = np.zeros(cells(1), np.int64), np.full(THREADS * times, -1, np.int64)
    threads = [
        threading.Thread(target=take_turns, args=(control, worker, THREADS, times, log)) for worker in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.tolist() == list(range(THREADS)) * times


def test_abort_ends_a_wait_in_progress():
    locks, control = np.ones(1, np.int32), np.zeros(cells(1), np.int64)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(acquire(locks, 0, control, ABORT))),
        threading.Thread(target=lambda: answers.append(wait_for(control, TURN, 9, control, ABORT))),
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in threads)
    control[ABORT] = 1
    for thread in threads:
        thread.join(timeout=120)
    assert answers == [False, False]
    assert locks.tolist() == [1]  # still the other's
