"""A machine's workers race on a replica, and a copy of it is traded: what brings the two together."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import njit

import hogwild
from hogwild.config import TrainConfig
from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.kernels.atomics import fetch_add
from hogwild.kernels.control import ABORT, cells
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.options import JIT
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.linear.problem import LinearProblem
from tests.runs import toy

NO_LOCKS = np.empty(0, np.int32)


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
@pytest.mark.parametrize("locked", [False, True])
def test_the_copy_and_the_replica_get_what_the_other_has_gained(l1: bool, locked: bool) -> None:
    rng = np.random.default_rng(0)
    anchor = rng.normal(0, 1, 1000).astype(np.float32)
    mine, ours = anchor.copy(), anchor.copy()
    mine[rng.random(1000) < 0.5] += np.float32(0.7)
    moved = rng.random(1000) < 0.5
    ours[moved] = (ours[moved] * rng.normal(0, 1, moved.sum())).astype(np.float32)
    anchor[:3], mine[:3], ours[:3] = np.nan, np.nan, (1, np.nan, 2)  # what is not finite is replaced
    mine[3], ours[4] = np.inf, np.inf
    expected = twin(mine, ours, anchor, l1)
    guards = rng.integers(-1, 5, 1000).astype(np.int32) if locked else NO_LOCKS
    locks, control = np.zeros(5, np.int32), np.zeros(cells(1), np.int64)
    bring_together(mine, ours, anchor, guards, locks, control, l1)
    for found in (mine, ours, anchor):
        np.testing.assert_array_equal(found, expected)
    assert not locks.any()


@njit(**JIT)
def add_atomic(array, times):
    for _ in range(times):
        for k in range(len(array)):
            fetch_add(array, k, np.float32(1))


@njit(**JIT)
def add_locked(array, locks, control, times):
    for _ in range(times):
        for k in range(len(array)):
            acquire(locks, k % len(locks), control, ABORT)
            array[k] += np.float32(1)
            release(locks, k % len(locks))


@pytest.mark.parametrize("locks", [0, 7])
def test_nothing_is_lost_while_workers_write(locks: int) -> None:
    """Whole numbers, so that every order of the additions gives the same sum."""
    size, times, trades = 200, 1000, 300
    mine, ours, anchor = np.zeros((3, size), np.float32)
    held, control = np.zeros(locks, np.int32), np.zeros(cells(1), np.int64)
    guards = (np.arange(size) % locks).astype(np.int32) if locks else NO_LOCKS
    add_atomic(mine, 0)
    add_locked(mine, np.zeros(1, np.int32), control, 0)  # both are compiled

    def work() -> None:
        if locks:
            add_locked(mine, held, control, times)
        else:
            add_atomic(mine, times)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(trades):
        ours += 1  # what a trade brings
        bring_together(mine, ours, anchor, guards, held, control, False)
    for worker in workers:
        worker.join()
    bring_together(mine, ours, anchor, guards, held, control, False)
    assert (mine == 2 * times + trades).all()
    assert mine.tobytes() == ours.tobytes() == anchor.tobytes()


def test_a_lock_that_nobody_frees_ends_with_the_run() -> None:
    mine, ours, anchor = np.zeros((3, 4), np.float32)
    ours += 1
    control = np.zeros(cells(1), np.int64)
    control[ABORT] = 1
    bring_together(mine, ours, anchor, np.zeros(4, np.int32), np.ones(1, np.int32), control, False)
    assert not mine.any()


def test_locks_that_protect_parameters() -> None:
    config = TrainConfig(adagrad=True)
    for classes, stride in ((2, 1), (3, 4)):
        data = toy(200, 64, classes=classes)
        problem = LinearProblem.of(config, data, "aig")
        views = problem.parameters(problem.guards())
        for part in (views.coef, views.coef_squares):
            assert part.tolist() == np.repeat(np.arange(problem.width), stride).tolist()
        assert (views.intercept == -1).all()
        assert (views.intercept_squares == -1).all()
        assert LinearProblem.of(config, data, "locked").guards().tolist() == [0] * problem.size
        assert not len(LinearProblem.of(config, data, "hogwild").guards())
    found = hogwild.open_ratings("synthetic:ratings?users=8&items=6&ratings=20")
    ratings = CompletionProblem.of((8, 6), found.values, "aig", rank=5)
    parts = ratings.parameters(ratings.guards())
    assert parts.users.tolist() == np.repeat(np.arange(8), ratings.stride).tolist()
    assert parts.items.tolist() == np.repeat(8 + np.arange(6), ratings.stride).tolist()
    assert (parts.user_bias.tolist(), parts.item_bias.tolist()) == ([*range(8)], [*range(8, 14)])
