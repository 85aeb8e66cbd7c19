"""The harness: its clock, its fairness, its memory; and one test that every method of the table must pass."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild import machine
from hogwild.compare.run import harness
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.ledger import ROWS
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import ComparedData, Pools, run_cell
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import HogwildWarning, UsageError
from tests.compare.rows import plan_of, rows_in

BASE = TrainConfig(host="threads", l2=1e-4)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return open_data("synthetic:rcv1?rows=5000&features=500&nnz=20&seed=3")


@pytest.fixture(scope="module")
def small() -> Rows:
    return open_data("synthetic:rcv1?rows=600&features=60&nnz=8&seed=4")


def test_a_diverged_cell_keeps_its_rows(rows: Rows) -> None:
    base = dataclasses.replace(BASE, loss="squared-error", l2=0.0)
    task = ComparedData(rows, None, base, "rows", 60.0)
    with Pools("threads") as pools:
        for name in ("serial", "sklearn-sgd"):
            found = run_cell(Cell("tuning", name, 1, 1e6, 0), task, 5, pools)
            assert found[-1]["status"] == "diverged"
            assert found[0]["status"] == "ok"


# ---- the whole


def test_a_comparison_from_end_to_end(small: Rows, tmp_path: Path) -> None:
    plan = plan_of(methods=("serial", "locked", "sklearn-sgd", "liblinear"), seeds=2)
    comparison = Comparison(*small.split(0.25, 0), plan, BASE, data="small", command="hogwild compare small")
    comparison.run(tmp_path)
    about, *found = rows_in(tmp_path)
    assert (about["phase"], about["data"], about["command"]) == ("optimum", "small", "hogwild compare small")
    assert about["began"]
    assert about["caches"]
    assert about["start_objective"] == pytest.approx(np.log(2))
    assert about["delta"] <= about["rho"] <= min(1, about["omega"] * about["delta"])
    assert {row["phase"] for row in found} == {"tuning", "reported"}
    tuned = [row for row in found if row["phase"] == "reported"]
    assert about["objective"] <= min(row["objective"] for row in tuned) + 1e-9
    assert {(row["method"], row["seed"]) for row in tuned} == {(name, seed) for name in plan.methods for seed in (0, 1)}
    assert all(row["test_accuracy"] > 0.5 for row in tuned if row["epoch"])
    assert comparison.progress.done == comparison.progress.total - 1  # of the cell at hand, the last
    assert comparison.progress.label.startswith("reported ")  # what was done last


def test_what_is_finished_is_not_run_again(small: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    original = harness.run_cell

    def stopping(cell: Cell, *about: Any) -> list[dict]:
        if len(ran) == 5:
            raise KeyboardInterrupt
        ran.append(cell.name)
        return original(cell, *about)

    monkeypatch.setattr(harness, "run_cell", stopping)
    with pytest.raises(KeyboardInterrupt):
        Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert [row["cell"] for row in rows_in(tmp_path) if row["epoch"] == 0][1:] == ran
    first = (tmp_path / ROWS).read_bytes()
    monkeypatch.setattr(harness, "run_cell", lambda cell, *about: (ran.append(cell.name), original(cell, *about))[1])
    Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert (tmp_path / ROWS).read_bytes().startswith(first)
    assert len(set(ran)) == len(ran) == len({row["cell"] for row in rows_in(tmp_path)}) - 1
    before = len(ran)
    Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert len(ran) == before
    with pytest.raises(UsageError, match="another comparison"):
        Comparison(small, None, plan_of(epochs=3), BASE).run(tmp_path)


def test_a_grid_is_probed_for_where_none_is_given(small: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(grid=(), epochs=1)
    monkeypatch.setattr(harness, "best_step", lambda trials, *about: min(trials))
    monkeypatch.setattr(harness, "EXTENSIONS", 2)  # the smallest is always best: else this would go on
    Comparison(small, None, plan, BASE).run(tmp_path)
    found = rows_in(tmp_path)
    grid = found[0]["step_grid"]
    assert [step / grid[2] for step in grid] == [0.25, 0.5, 1, 2, 4]
    trials = {}
    for row in found:
        if row["phase"] == "tuning" and row["epoch"] == 0:
            trials.setdefault((row["method"], row["workers"]), []).append(row["cell_step"] / grid[2])
    assert set(trials) == {("serial", 1), ("hogwild", 1), ("hogwild", 2)}
    assert all(steps == [0.25, 0.5, 1, 2, 4, 1 / 8, 1 / 16] for steps in trials.values())
    assert {row["cell_step"] / grid[2] for row in found if row["phase"] == "reported"} == {1 / 16}
    before = (tmp_path / ROWS).read_bytes()
    again = Comparison(small, None, plan, BASE)
    again.run(tmp_path)
    assert again.plan.grid == tuple(grid)
    assert (tmp_path / ROWS).read_bytes() == before


def test_too_many_workers_are_shouted_about_and_locks_refused(small: Rows, tmp_path: Path) -> None:
    crew = 2 * machine.physical_cores()
    plan = plan_of(methods=("serial", "hogwild", "locked"), workers=(crew,), grid=(1.0,), epochs=1)
    with pytest.warns(HogwildWarning, match=f"{crew} workers on .* cores"):
        Comparison(small.to_scipy(), None, plan, BASE).run(tmp_path)  # data are given as to train
    found = {row["method"]: row for row in rows_in(tmp_path)[1:]}
    assert found["locked"]["status"].startswith(f"refused: {crew} workers on")
    assert found["locked"]["objective"] is None
    assert found["hogwild"]["status"] == "ok"


@pytest.mark.parametrize(
    ("options", "why"),
    [({"schedule": "optimal"}, "sets its own step"), ({"loss": "perceptron"}, "lowest where it starts")],
)
def test_what_cannot_be_compared(small: Rows, options: dict, why: str) -> None:
    with pytest.raises(UsageError, match=f"{why}.*choose another"):
        Comparison(small, None, plan_of(), TrainConfig(**options))


def test_cells_share_one_evaluator(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """What judges is made once, of the same data."""
    from hogwild.problems.linear import case as linear

    made: list[int] = []
    usual = linear.Evaluator
    counted = staticmethod(lambda *args, **more: made.append(1) or usual(*args, **more))
    monkeypatch.setattr(linear.LinearCase, "evaluator", counted)
    task = ComparedData(*rows.split(0.2), BASE, "rows", 60.0)
    with Pools("threads") as pools:
        for _ in range(2):
            run_cell(Cell("reported", "serial", 1, 1.0, 7), task, 1, pools)
    assert len(made) == 1
