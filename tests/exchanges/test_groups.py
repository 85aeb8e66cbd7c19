"""Several workers race on a replica and a copy of it is traded: machines do, and groups of the simulator's workers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.kernels.atomics import fetch_add
from hogwild.kernels.control import ABORT, cells
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.options import JIT
from hogwild.problems.completion.problem import CompletionProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.tiers import plan_tiers
from tests.exchanges.test_conformance import CASES, spelled, trained
from tests.runs import toy

NO_LOCKS = np.empty(0, np.int32)
TRADING = [name for name, case in CASES.items() if case.numbers]
pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")
named = pytest.mark.parametrize("name", CASES)
trading = pytest.mark.parametrize("name", TRADING)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return toy()


def grouped(name: str, period: int | None = None, group: int = 2) -> str:
    text = name if period is None else spelled(name, period)
    return f"{text}{',' if ':' in text else ':'}group={group}"


# ---- what brings the replica and its copy together


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


@pytest.mark.parametrize("locks", [0, 1, 7])
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


def test_locks_that_protect_parameters(rows: Rows) -> None:
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
    ratings = CompletionProblem.of((8, 6), found.items, found.values, "aig", 5)
    parts = ratings.parameters(ratings.guards())
    assert parts.users.tolist() == np.repeat(np.arange(8), ratings.stride).tolist()
    assert parts.items.tolist() == np.repeat(8 + np.arange(6), ratings.stride).tolist()
    assert (parts.user_bias.tolist(), parts.item_bias.tolist()) == ([*range(8)], [*range(8, 14)])


# ---- what a group computes


@named
@pytest.mark.parametrize("discipline", ["locked", "tiered"])
def test_one_replica_is_its_group_without_an_exchange(rows: Rows, name: str, discipline: str) -> None:
    """To the bit, in the simulator, where both go through the same rows in the same order."""
    quiet: dict[str, Any] = {"workers": 3, "host": "simulator", "discipline": discipline}
    assert trained(rows, exchange=grouped(name, 90, 3), **quiet) == trained(rows, **quiet)


@pytest.fixture(scope="module")
def learned() -> dict[str, Any]:
    """Rows, and the objective of one worker after eight epochs, as in the conformance test."""
    data = toy(8000)
    options = {"epochs": 8, "l2": 1e-3}
    return {"rows": data, "options": options} | {
        name: hogwild.train(data, workers=1, step=CASES[name].step, **options).finish().history[-1]["objective"]
        for name in TRADING
    }


@trading
@pytest.mark.parametrize("discipline", ["hogwild", "tiered"])
def test_two_virtual_groups_learn_what_one_worker_does(learned: dict, name: str, discipline: str) -> None:
    quiet: dict[str, Any] = {"workers": 4, "host": "simulator", "delay": "round-robin:quantum=10"}
    quiet |= learned["options"] | {"exchange": grouped(name, 100), "discipline": discipline}
    assert trained(learned["rows"], step=CASES[name].step, **quiet)[1][-1] <= 1.03 * learned[name]


# ---- rows, and who takes part


def test_rows_and_messages_are_those_of_replicas() -> None:
    data = toy(4 * 640)
    for exchange, count, messages in (("averaging:group=2", 2, 4), ("averaging:group=4", 1, 0), ("averaging", 4, 24)):
        row = [*hogwild.train(data, workers=4, host="simulator", step=0.1, epochs=1, exchange=exchange)][-1]
        assert row["replicas"] == count
        assert (row["workers"], row["messages"], row["updates"]) == (4, messages, len(data))


def test_a_period_counts_the_rows_of_the_whole_group() -> None:
    """In the simulator all workers take as long; the first looks every half period of its own rows."""
    data = toy(4 * 640)
    row = [*hogwild.train(data, workers=4, host="simulator", step=0.01, epochs=1, exchange=grouped("gossip", 128))][-1]
    trades = len(data) / 2 / 128
    assert 2 * (0.5 * trades + 1) <= row["messages"] <= 2 * (trades + 1)


def test_tiers_are_planned_for_those_who_share_them(rows: Rows) -> None:
    problem = LinearProblem.of(TrainConfig(), rows, "tiered")
    arrays, price = problem.row_arrays(rows, None), (1e-7, 1e-9)
    all_four, two = plan_tiers(problem, rows, arrays, 4, price), plan_tiers(problem, rows, arrays, 4, price, 2)
    for one, other in zip(all_four, two):
        np.testing.assert_array_equal(one, other)  # the plan depends on a worker's rows; who shares is the kernel's
    single = plan_tiers(problem, rows, arrays, 4, price, 1)
    assert single.intervals.min() > two.intervals.max()  # nobody else to merge with


# ---- deaths, stops, checkpoints


@pytest.mark.parametrize("discipline", ["tiered", "locked"])
@pytest.mark.parametrize(
    "exchange",
    [
        "one-shot-averaging:group=2",
        "averaging:period=100,threshold=1e-3,group=2",
        "gossip:home=0,group=2",
    ],
)
def test_replicas_that_last_are_resumed_to_the_bit(rows: Rows, exchange: str, discipline: str, tmp_path: Path) -> None:
    quiet: dict[str, Any] = {
        "host": "simulator",
        "workers": 4,
        "exchange": exchange,
        "discipline": discipline,
        "step": 0.05,
    }
    whole = hogwild.train(rows, epochs=3, **quiet).finish()
    hogwild.train(rows, epochs=1, checkpoint=tmp_path, **quiet).finish()
    with pytest.raises(UsageError, match=r"cannot resume with 2 workers.*4 of before have 2 replicas.*workers=4"):
        hogwild.train(rows, epochs=3, checkpoint=tmp_path, resume=True, **(quiet | {"workers": 2}))
    again = hogwild.train(rows, epochs=3, checkpoint=tmp_path, resume=True, **quiet).finish()
    assert again.coef_.tobytes() == whole.coef_.tobytes()


# ---- names and refusals


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 5}, "take a multiple of 2 workers, got workers=5"),
        ({"discipline": "round-robin"}, "discipline='round-robin' lets nobody race"),
        ({"exchange": "averaging:group=0"}, "group=0: expected a whole number from 1 to 1024"),
        ({"exchange": "averaging:period=9,share=0.5,group=2"}, "share makes a replica wait"),
        ({"exchange": "server:bound=2,group=2"}, "bound makes a replica wait"),
        ({"host": "threads"}, r"group needs host='simulator' \(hogwild simulate\); got host='threads'"),
        ({"machines": 2}, "group needs host='simulator'|their workers are processes or threads"),
    ],
)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        TrainConfig(**{"exchange": "averaging:group=2", "workers": 4, "host": "simulator"} | options)


def test_a_group_is_what_races_on_an_array() -> None:
    for options, group, count in (
        ({}, 6, 1),
        ({"exchange": "averaging"}, 1, 6),
        ({"exchange": "gossip:group=3", "host": "simulator"}, 3, 2),
        ({"machines": 2}, 6, 2),
    ):
        config = TrainConfig(workers=6, **options)
        assert (config.group, config.replicas) == (group, count)
