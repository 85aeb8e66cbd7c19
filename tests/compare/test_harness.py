"""The harness: its clock, its fairness, its memory; and one test that every method of the table must pass."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hogwild import machine
from hogwild.compare.run import plan
from hogwild.compare.run.harness import Comparison
from hogwild.compare.run.ledger import ROWS
from hogwild.compare.run.plan import Cell
from hogwild.compare.run.runner import Runner
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
    task = Runner(rows, None, base, "rows", 60.0)
    with task:
        for name in ("serial", "sklearn-sgd"):
            found = task.run(Cell("tuning", name, 1, 1e6, 0), 5)
            assert found[-1]["status"] == "diverged"
            assert found[0]["status"] == "ok"


def test_the_judge_counts_features_as_the_user_does(small: Rows) -> None:
    cell = Cell("reported", "serial", 1, 0.5, 0)
    ends = []
    for renumber in ("never", "always"):
        with Runner(small, None, dataclasses.replace(BASE, renumber=renumber), "rows", 60.0) as task:
            ends.append(task.run(cell, 2)[-1])
    plain, ranked = ends
    assert ranked["status"] == plain["status"] == "ok"
    assert ranked["objective"] == pytest.approx(plain["objective"], rel=1e-5)


# ---- the whole


def test_a_comparison_from_end_to_end(small: Rows, tmp_path: Path) -> None:
    four = plan_of(methods=("serial", "locked", "sklearn-sgd", "liblinear"), seeds=2)
    comparison = Comparison(*small.split(0.25, 0), four, BASE, data="small", command="hogwild compare small")
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
    assert {(row["method"], row["seed"]) for row in tuned} == {(name, seed) for name in four.methods for seed in (0, 1)}
    assert all(row["test_accuracy"] > 0.5 for row in tuned if row["epoch"])
    assert comparison.progress.done == comparison.progress.total - 1  # of the cell at hand, the last
    assert comparison.progress.label.startswith("reported ")  # what was done last


def test_what_is_finished_is_not_run_again(small: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    usual, most = Runner.run, [5]

    def counted(self: Runner, cell: Cell, epochs: int) -> list[dict]:
        if len(ran) == most[0]:
            raise KeyboardInterrupt
        ran.append(cell.name)
        return usual(self, cell, epochs)

    monkeypatch.setattr(Runner, "run", counted)
    with pytest.raises(KeyboardInterrupt):
        Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert [row["cell"] for row in rows_in(tmp_path) if row["epoch"] == 0][1:] == ran
    first, most[0] = (tmp_path / ROWS).read_bytes(), 999
    Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert (tmp_path / ROWS).read_bytes().startswith(first)
    assert len(set(ran)) == len(ran) == len({row["cell"] for row in rows_in(tmp_path)}) - 1
    before = len(ran)
    Comparison(small, None, plan_of(), BASE).run(tmp_path)
    assert len(ran) == before
    with pytest.raises(UsageError, match="another comparison"):
        Comparison(small, None, plan_of(epochs=3), BASE).run(tmp_path)


def test_other_rows_to_test_on_are_another_comparison(small: Rows) -> None:
    tested = [None, *(small.split(0.2, seed)[1] for seed in (0, 1))]
    assert len({Comparison(small, part, plan_of(), BASE).identity for part in tested}) == 3


def test_a_grid_is_probed_for_where_none_is_given(small: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_of_probe = plan_of(grid=(), epochs=1, methods=("serial",))
    monkeypatch.setattr(plan, "best_step", lambda trials, *about: min(trials))
    monkeypatch.setattr(plan, "EXTENSIONS", 2)  # the smallest is always best: else this would go on
    Comparison(small, None, plan_of_probe, BASE).run(tmp_path)
    head, *rest = rows_in(tmp_path)
    grid = head["step_grid"]
    assert [step / grid[2] for step in grid] == [0.25, 0.5, 1, 2, 4]
    trials = [row["cell_step"] / grid[2] for row in rest if (row["phase"], row["epoch"]) == ("tuning", 0)]
    assert trials == [0.25, 0.5, 1, 2, 4, 1 / 8, 1 / 16]
    assert {row["cell_step"] / grid[2] for row in rest if row["phase"] == "reported"} == {1 / 16}
    before = (tmp_path / ROWS).read_bytes()
    Comparison(small, None, plan_of_probe, BASE).run(tmp_path)  # of the same grid
    assert (tmp_path / ROWS).read_bytes() == before


def test_too_many_workers_are_shouted_about_and_locks_refused(small: Rows, tmp_path: Path) -> None:
    crew = 2 * machine.physical_cores()
    crowded = plan_of(methods=("serial", "hogwild", "locked"), workers=(crew,), grid=(1.0,), epochs=1)
    with pytest.warns(HogwildWarning, match=f"{crew} workers on .* cores"):
        Comparison(small.to_scipy(), None, crowded, BASE).run(tmp_path)  # data are given as to train
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
