"""The comparison's clock: what it counts, what it leaves out, and who has taken too long.

What must not be counted takes a known time at least, and is held against the whole: on a busy machine all of it takes
longer, and the difference stays.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from hogwild.compare.run.methods import METHODS, Method
from hogwild.compare.run.outside import OUTSIDE, Program
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import SHORTEST, Runner
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data

BASE = TrainConfig(host="threads", l2=1e-4)
SERIAL = Cell("reported", "serial", 1, 1.0, 7)
SLEEPY = Cell("reported", "sleepy", 1, 1.0, 0)


@pytest.fixture(scope="module")
def small() -> Rows:
    return open_data("synthetic:rcv1?rows=600&features=60&nnz=8&seed=4")


def evaluations(rows: Rows, cell: Cell, epochs: int, timeout: float = 60.0) -> list[dict[str, Any]]:
    with Runner(rows, None, BASE, "small", timeout) as runner:
        return runner.run(cell, epochs)


class Sleepy(Program):
    """Another program whose epochs take a known time, and which is slow to say what it found."""

    name = "sleepy"
    setup, asleep, saying = 0.2, 0.04, 0.15

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        time.sleep(self.setup)
        self.coef, self.reached = np.zeros(rows.width), 0

    refusal = staticmethod(lambda config, rows: None)
    epochs = staticmethod(lambda most: [1, 2, most])

    def advance(self, epoch: int) -> None:
        time.sleep(self.asleep * (epoch - self.reached))
        self.reached = epoch

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(self.saying)
        return self.coef, np.zeros(1)


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> type[Sleepy]:
    kind = type("Own", (Sleepy,), {})
    monkeypatch.setitem(OUTSIDE, "sleepy", kind)
    monkeypatch.setitem(METHODS, "sleepy", Method("sleepy", "outside", parallel=False))
    return kind


def test_the_clock_counts_epochs_and_nothing_else(small: Rows, sleepy: type[Sleepy]) -> None:
    rows = evaluations(small, SLEEPY, 5)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 5]
    for before, row in enumerate(rows):  # five epochs of 40 ms, four evaluations of 150 ms, 200 ms of set-up
        uncounted = 0.2 + sleepy.saying * before
        assert sleepy.asleep * row["epoch"] <= row["train_seconds"] <= row["wall_seconds"] - uncounted
    assert 0.2 <= rows[0]["setup_seconds"] <= rows[-1]["wall_seconds"] - 3 * sleepy.saying - 5 * sleepy.asleep


def test_a_solver_that_starts_anew_is_charged_for_its_last_run_only(small: Rows, sleepy: type[Sleepy]) -> None:
    """And what is no training is taken off, but for a rest: a target reached after no time would be in no ratio."""
    sleepy.restarts, sleepy.advance = True, lambda self, k: time.sleep(self.asleep * k)
    rows = evaluations(small, SLEEPY, 5)
    for before, row in enumerate(rows):
        others = sum(earlier["epoch"] for earlier in rows[:before])
        uncounted = sleepy.saying * before + sleepy.asleep * others
        assert sleepy.asleep * row["epoch"] <= row["train_seconds"] <= row["wall_seconds"] - uncounted
    sleepy.idle = lambda self: 10.0
    assert {row["train_seconds"] for row in evaluations(small, SLEEPY, 5)[1:]} == {SHORTEST}


def test_the_peak_of_memory_is_that_of_the_cell(small: Rows, sleepy: type[Sleepy]) -> None:
    sleepy.setup = sleepy.saying = 0.0
    sleepy.advance = lambda self, epoch: np.ones(25_000_000)
    most = evaluations(small, SLEEPY, 2)[-1]["peak_memory_mb"]  # with 200 MB that are gone at once
    sleepy.advance = lambda self, epoch: None
    assert 50 < evaluations(small, SLEEPY, 2)[-1]["peak_memory_mb"] < most - 150
    assert "peak_memory_mb" in evaluations(small, SERIAL, 1)[-1]
    rows = [{"objective": 1.0, "status": "ok", "train_seconds": 0.0}]
    with Runner(small, None, BASE, "small", 60.0) as runner:
        alone, helped = (runner.follow(iter(rows), pids)[-1].pop("peak_memory_mb") for pids in ((), (os.getpid(),)))
    assert helped > alone + 20  # by what a worker has to itself
    sleepy.peak = 7.0  # of a process of its own
    assert evaluations(small, SLEEPY, 2)[-1]["peak_memory_mb"] == 7.0


def test_the_time_from_the_call_has_what_is_done_once(small: Rows, sleepy: type[Sleepy]) -> None:
    with Runner(small, None, BASE, "small", 60.0, reading=5.0) as runner:
        first = runner.run(SERIAL, 1)[-1]
        runner.compiling["serial", 1] += 1000.0
        again = runner.run(SERIAL, 1)[-1]
        theirs = [runner.run(SLEEPY, 1)]
        sleepy.text, sleepy.idle = lambda rows: "a file", lambda self: 3.0
        theirs += [runner.run(SLEEPY, 1)]
    assert first["once_seconds"] == 5.0 + runner.pools["threads", 1][1]  # its set-up has compiled
    assert again["once_seconds"] > 900  # as long as the first took
    assert [row[0]["once_seconds"] for row in theirs] == [5.0, 0.0]  # who reads its own text is not charged for ours
    assert theirs[1][0]["setup_seconds"] > 3.2


def test_a_cell_that_takes_too_long_is_stopped_and_says_so(small: Rows, sleepy: type[Sleepy]) -> None:
    rows = evaluations(small, SLEEPY, 50, 0.1)
    assert rows[-1]["status"] == "timed out after 0.1 s"
    late = [row["train_seconds"] > 0.1 for row in rows]
    assert late == [False] * (len(rows) - 1) + [True]
    assert len(rows) <= 4  # fewer on a machine that oversleeps
    many = small.select(np.tile(np.arange(len(small)), 5000))
    rows = evaluations(many, Cell("reported", "hogwild", 2, 1.0, 0), 5, 0.01)
    assert rows[-1]["status"] == "timed out after 0.01 s"
    assert rows[-1]["updates"] < len(many)  # within its first epoch
    assert rows[0]["status"] == "ok"


def test_a_run_that_is_stopped_between_two_epochs_has_timed_out_too(
    small: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hogwild.problems.linear.case import LinearCase

    evaluate = LinearCase.evaluate

    def slow(self: LinearCase, *about: Any) -> dict:  # so that the alarm rings while nobody trains
        time.sleep(0.25)
        return evaluate(self, *about)

    monkeypatch.setattr(LinearCase, "evaluate", slow)
    rows = evaluations(small, SERIAL, 200, 1e-7)
    assert rows[-1]["status"].startswith("timed out after")
    assert rows[-1]["epoch"] < 200


def test_who_is_late_with_the_last_epoch_has_timed_out_whoever_it_is(small: Rows) -> None:
    for cell in (Cell("reported", "sklearn-sgd", 1, 1.0, 0), SERIAL):
        assert evaluations(small, cell, 1, 1e-6)[-1]["status"] == "timed out after 1e-06 s"


def test_what_another_program_raises_is_the_end_of_its_cell_only(small: Rows, sleepy: type[Sleepy]) -> None:
    def fail(self: Sleepy, epoch: int) -> None:
        if epoch > 1:
            raise ValueError("no\nway")

    sleepy.advance, sleepy.saying = fail, 0.0
    assert [row["status"] for row in evaluations(small, SLEEPY, 5)] == ["ok", "failed: no way"]

    def hang(self: Sleepy, epoch: int) -> None:
        raise TimeoutError

    sleepy.advance = hang
    assert evaluations(small, SLEEPY, 5)[-1]["status"] == "timed out after 60 s"
    sleepy.__init__ = lambda self, rows, config: 1 // 0
    [row] = evaluations(small, SLEEPY, 5)
    assert row["status"].startswith("failed: ")
    assert row["objective"] is None
