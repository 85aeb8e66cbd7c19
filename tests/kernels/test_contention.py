"""Four workers on a handful of hot coordinates: who loses updates and who does not, and that every wait can be ended.

Every row asks every coordinate for exactly the same step, whatever the margin (the targets are far away), so that the
sum of all updates is a whole number that float32 holds exactly: a lost update cannot hide.
"""

from __future__ import annotations

import os
import threading
import time

import numba
import numpy as np
import pytest

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.kernels.control import ABORT, TURN
from tests.kernels.harness import job_and_rows, make_job, run_epoch, work_alone

WORKERS, N, HOT = 4, 200_000, 8
ONE, TINY = (1.0, 1.0, 0.0), (2.0**-25, 1.0, 0.0)
LOSING_NONE = ("atomic", "aig", "locked", "round-robin")
PARALLEL = ("hogwild", "tiered", *LOSING_NONE)

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="several workers only when compiled")


def hot_job(discipline, n=N, targets=None, order=None, workers=WORKERS, value=2, **options):
    """``n`` rows of ``value`` in all of ``HOT`` features; at step 1 each adds that to every weight, 1 to the intercept.

    Rows of ones have kernels of their own, other values those of most other tests, which need not be compiled again.
    """
    targets = np.full(n, 1e20) if targets is None else targets  # so far that tiered adds whole deltas
    same = np.zeros(n, np.int64), np.full(n, HOT)  # begin and end of every row
    rows = Rows(same, np.arange(HOT), np.full(HOT, value), targets, HOT)
    options = {"loss": "epsilon-insensitive"} | options
    return make_job(rows, discipline, workers, order or Order.of(n), start=False, **options)


@pytest.mark.parametrize(("discipline", "value"), [*((name, 2) for name in LOSING_NONE), ("atomic", 1)])
def test_no_update_is_lost(discipline, value):
    job = hot_job(discipline, n=N if discipline != "round-robin" else 300, value=value)
    assert job.problem.unit == (value == 1)
    n = job.order.n_rows
    for epoch in range(3):
        run_epoch(job, epoch, ONE)
        parameters = job.problem.parameters(job.flat)
        assert parameters.coef.tolist() == [value * n * (epoch + 1)] * HOT
        assert parameters.intercept[0] == n * (epoch + 1)
        assert job.done() == (n, n * HOT)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores that race")
def test_hogwild_loses_some():
    """Or the tests beside this one would see nothing. Its intercept loses none."""
    lost = 0
    for _ in range(300):
        job = hot_job("hogwild")
        run_epoch(job, 0, ONE)
        parameters = job.problem.parameters(job.flat)
        assert parameters.intercept[0] == N
        assert np.all(parameters.coef <= 2 * N)
        assert job.done() == (N, N * HOT)
        lost += int(np.sum(2 * N - parameters.coef))
        if lost:
            return
    pytest.fail("hogwild lost no update in 300 epochs of contention")


def test_atomic_adagrad_loses_no_square():
    n = N
    job = hot_job("atomic", n, np.arange(n) % 2, loss="log", adagrad=True, l2=1e-9, schedule="constant")
    run_epoch(job, 0, (0.0, 1.0, 0.0))  # no step: the slope stays at a half
    parameters = job.problem.parameters(job.flat)
    assert parameters.coef_squares.tolist() == [n] * HOT  # (value / 2)^2 a row
    assert parameters.intercept_squares[0] == n / 4


def test_no_update_is_lost_with_several_classes():
    """While no margin comes near 1 the hinge has slope 1: a third of the rows add a tiny step, the others take it."""
    n = 150_000
    job = hot_job("atomic", n, np.arange(n) % 3, loss="hinge")
    for epoch in range(3):
        run_epoch(job, epoch, TINY)
        coef, intercept = job.problem.solution(job.flat)
        assert (coef / TINY[0]).tolist() == [[-2 * n / 3 * (epoch + 1)] * HOT] * 3
        assert (intercept / TINY[0]).tolist() == [-n / 3 * (epoch + 1)] * 3


@pytest.mark.parametrize("discipline", PARALLEL)
def test_every_row_once_though_stopped_and_resumed(discipline):
    """The intercept loses nothing in any discipline, so it counts the rows."""
    n = 2000 if discipline != "round-robin" else 500
    job = hot_job(discipline, n=n, order=Order(n, 1, True))
    start, done = 0, 0

    def stop_soon():
        while job.done()[0] < min(n // 4, n - done) and not job.control[ABORT]:
            time.sleep(1e-4)
        job.stop()

    while start < job.order.n_chunks:
        run_epoch(job, 0, ONE, start, meanwhile=stop_soon)
        done += job.done()[0]
        start = job.problem.position(job.control, job.order)
        assert job.problem.parameters(job.flat).intercept[0] == done == min(start * job.order.chunk, n)
    assert done == n


@pytest.mark.parametrize("combination", ["plain", "multi-class"])
@pytest.mark.parametrize(("discipline", "lock"), [("locked", 0), ("aig", 0), ("round-robin", None)])
def test_an_abort_ends_the_wait_for_a_dead_worker(discipline, lock, combination):
    """One that died holding a lock, or whose turn it is: nothing is written; the next epoch has all locks free."""
    job, rows = job_and_rows(combination, discipline, workers=2)
    job.compile()
    job.begin_epoch(0, 0)
    if lock is None:
        job.control[TURN] = 1
    else:
        job.state["locks"][lock] = 1
    before = job.problem.parameters(job.flat).coef.tolist()
    worker = threading.Thread(target=work_alone, args=(job,))
    worker.start()
    time.sleep(0.1)
    assert worker.is_alive()
    job.control[ABORT] = 1
    worker.join(timeout=120)
    assert not worker.is_alive()
    if discipline != "aig":  # whose first rows may lack the locked feature
        assert job.problem.parameters(job.flat).coef.tolist() == before
    assert job.done()[0] < len(rows)
    run_epoch(job, 0, ONE)
    assert job.done()[0] == len(rows)
