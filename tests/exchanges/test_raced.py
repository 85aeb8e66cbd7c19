"""A machine's workers race on a replica, and a copy of it is traded: what brings the two together."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import njit

from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.kernels.atomics import fetch_add
from hogwild.kernels.options import JIT


def twin(mine: np.ndarray, ours: np.ndarray, anchor: np.ndarray, l1: bool) -> np.ndarray:
    """The slow twin: what all three arrays hold afterwards."""
    new = np.empty_like(mine)
    for i, (now, own, was) in enumerate(zip(mine, ours, anchor)):
        if own == was:
            new[i] = now
        elif not np.isfinite(was) or now == was:
            new[i] = own
        else:
            new[i] = np.float32(own + np.float32(now - was))
            if l1 and own * was >= 0 and now * was >= 0 and new[i] * was < 0:
                new[i] = 0
    return new


@pytest.mark.parametrize("l1", [False, True])
def test_the_copy_and_the_replica_get_what_the_other_has_gained(l1: bool) -> None:
    rng = np.random.default_rng(0)
    anchor = rng.normal(0, 1, 1000).astype(np.float32)
    mine, ours = anchor.copy(), anchor.copy()
    mine[rng.random(1000) < 0.5] += np.float32(0.7)
    moved = rng.random(1000) < 0.5
    ours[moved] = (ours[moved] * rng.normal(0, 1, moved.sum())).astype(np.float32)
    anchor[:3], mine[:3], ours[:3] = np.nan, np.nan, (1, np.nan, 2)  # what is not finite is replaced
    mine[3], ours[4] = np.inf, np.inf
    expected = twin(mine, ours, anchor, l1)
    bring_together(mine, ours, anchor, l1)
    for found in (mine, ours, anchor):
        np.testing.assert_array_equal(found, expected)


@njit(**JIT)
def add_atomic(array, times):
    for _ in range(times):
        for k in range(len(array)):
            fetch_add(array, k, np.float32(1))


def test_nothing_is_lost_while_workers_add() -> None:
    """Whole numbers, so that every order of the additions gives the same sum."""
    times, trades = 1000, 300
    mine, ours, anchor = np.zeros((3, 200), np.float32)
    add_atomic(mine, 0)  # compiled
    workers = [threading.Thread(target=add_atomic, args=(mine, times)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(trades):
        ours += 1  # what a trade brings
        bring_together(mine, ours, anchor, False)
    for worker in workers:
        worker.join()
    bring_together(mine, ours, anchor, False)
    assert (mine == 2 * times + trades).all()
    assert mine.tobytes() == ours.tobytes() == anchor.tobytes()
