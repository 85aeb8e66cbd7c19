"""Variants of averaging: what each is equal to, what it sends, what a checkpoint keeps of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.data.rows.container import Rows
from hogwild.exchanges.averaging import Averaging
from tests.exchanges.room import Room
from tests.runs import toy

pytestmark = pytest.mark.filterwarnings("ignore:.* workers share")


@pytest.fixture(scope="module")
def rows() -> Rows:
    return toy(1024)


def run_of(rows: Rows, numbers: str, workers: int = 4, host: str = "simulator", **options: Any) -> hogwild.Run:
    quiet: dict[str, Any] = {"step": 0.3, "epochs": 2, "l2": 1e-4, "host": host, "workers": workers}
    return hogwild.train(rows, exchange=f"averaging:{numbers}", **quiet | options)


def trained(rows: Rows, numbers: str, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """A run's weights, and its last row."""
    run = run_of(rows, numbers, **options)
    coef = run.finish().coef_
    return coef, run.history[-1]


# ---- means


# ---- rounds


@pytest.mark.parametrize("mean", ["moved", "rows"])
def test_every_schedule_gives_the_same_mean(mean: str) -> None:
    """One round, and what is left; momentum too, whose velocity lies in slices or whole."""
    rows = toy(512)
    for outer in ("", ",outer=0.7,momentum=0.5"):
        found = [
            trained(rows, f"mean={mean},period=100,by={by}{outer}", epochs=1)[0]
            for by in ("direct", "tree", "butterfly", "ring")
        ]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=2e-4, atol=2e-5)


def test_an_outer_step_has_nesterovs_momentum() -> None:
    """Three tasks of two replicas, against a float64 twin."""
    room, rng = Room("averaging:mean=rows,outer=0.7,momentum=0.9", 2, 40), np.random.default_rng(0)
    twin, velocity = np.zeros((2, 40))
    for _ in range(3):
        room.begin()
        moves = rng.standard_normal((2, 40))
        for w, move in zip(room.w, moves):
            w += move.astype(np.float32)
        room.meet(1, 3)
        mean = (moves[0] + 3 * moves[1]) / 4
        velocity = 0.9 * velocity + mean
        twin = twin + 0.7 * (mean + 0.9 * velocity)
        np.testing.assert_allclose(room.flat, twin, rtol=1e-5, atol=1e-6)


def test_the_velocity_of_a_replica_that_rests_after_a_round_counts() -> None:
    """A round leaves each replica the velocity of its own slice; the meeting is of two of the three."""
    room, rng = Room("averaging:mean=rows,period=1,outer=0.7,momentum=0.9", 3, 96), np.random.default_rng(0)
    moves = rng.standard_normal((5, 96))
    for w, move in zip(room.w, moves):
        w += move.astype(np.float32)
    room.trade()
    velocity = moves[:3].mean(axis=0)
    twin = 0.7 * 1.9 * velocity
    for w, move in zip(room.w, moves[3:]):
        w += move.astype(np.float32)
    room.meet(2, 2, 1)
    mean = moves[3:].mean(axis=0)
    twin += 0.7 * (mean + 0.9 * (0.9 * velocity + mean))
    np.testing.assert_allclose(room.flat, twin, rtol=1e-5, atol=1e-5)


def test_a_threshold_decides_when_rounds_take_place(rows: Rows) -> None:
    """None: as one-shot averaging; at once: as periodic averaging; else in between."""
    options = {"workers": 4, "epochs": 1}
    periodic, often = trained(rows, "mean=rows,period=50", **options)
    least, always = trained(rows, "mean=rows,period=50,threshold=1e-30", **options)
    np.testing.assert_array_equal(least, periodic)
    assert always["messages"] == often["messages"] - 2 * 4 * 3  # but for the meeting
    never, silent = trained(rows, "mean=rows,period=50,threshold=inf", workers=4)
    once = hogwild.train(rows, exchange="one-shot-averaging", step=0.3, epochs=2, l2=1e-4, workers=4, host="simulator")
    np.testing.assert_array_equal(never, once.finish().coef_)
    assert silent["messages"] == 0
    _, some = trained(rows, "mean=rows,period=50,threshold=10", **options)
    assert 0 < some["messages"] < always["messages"]


def test_of_a_share_only_those_that_are_drawn_send_changes(rows: Rows) -> None:
    exchange = Averaging(period=10, share=0.5)
    drawn = [exchange._drawn(clock, 6) for clock in range(1, 9)]
    assert [len(each) for each in drawn] == [6] + 7 * [3]
    assert len({tuple(each) for each in drawn}) > 3
    _, some = trained(rows, "period=50,share=0.5")
    _, row = trained(rows, "period=50")
    assert some["updates"] == row["updates"]
    assert some["waited_seconds"] > row["waited_seconds"]


@pytest.mark.parametrize("numbers", ["period=50,momentum=0.5", "period=50,threshold=0.05", "period=50,by=ring"])
def test_resumed_to_the_bit(rows: Rows, numbers: str, tmp_path: Path) -> None:
    whole, _ = trained(rows, numbers, epochs=3)
    run_of(rows, numbers, epochs=1, checkpoint=tmp_path).finish()
    coef, _ = trained(rows, numbers, epochs=3, checkpoint=tmp_path, resume=True)
    assert coef.tobytes() == whole.tobytes()
