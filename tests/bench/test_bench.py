"""What the sections measure, on tiny data: rows are flat, figures finite, counts exact. Nothing here asserts speed."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.bench import estimators, solvers
from hogwild.bench.plan import BenchPlan, doubling
from hogwild.bench.rounds import Timing, interleaved, ratio, together
from hogwild.bench.suite import SECTIONS, chosen, conditions, section
from hogwild.data.cache import Cache
from hogwild.errors import InputError, TrainingError, UsageError
from hogwild.json_rows import to_json
from hogwild.machine import physical_cores
from hogwild.methods import DISCIPLINES

NAMES = {
    "rcv1": "synthetic:rcv1?rows=600&features=300&nnz=8",
    "uniform": "synthetic:uniform?rows=400&features=200&nnz=5",
    "ctr": "synthetic:ctr?rows=400&features=4096&nnz=5",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def plan(cache: Cache) -> BenchPlan:
    return BenchPlan((1, 2), repeats=2, quick=True, names=NAMES, cache=cache)


def rows_of(name: str, plan: BenchPlan) -> list[dict[str, Any]]:
    """A section's rows, checked for what every row promises."""
    rows = list(section(name, plan))
    assert rows
    for row in rows:
        assert row["section"] == name
        assert not any(isinstance(value, (dict, list, tuple, np.ndarray)) for value in row.values())
        assert json.loads(to_json(row)).keys() == row.keys()
        if row["status"] == "ok":
            for field in ("seconds", "seconds_q25", "seconds_q75", "nonzeros_per_second", "speedup"):
                assert field not in row or (math.isfinite(row[field]) and row[field] > 0), (field, row)
            if "seconds" in row:
                assert row["seconds_q25"] <= row["seconds"] <= row["seconds_q75"]
    return rows


def test_streaming(plan: BenchPlan) -> None:
    assert [row["workers"] for row in rows_of("streaming", plan)] == [1, 2]


def test_kernel(plan: BenchPlan) -> None:
    rows = rows_of("kernel", plan)
    assert len(rows) == 4 + 5
    assert {row["order"] for row in rows} == {"file", "shuffled"}
    assert all(row["status"] == "ok" for row in rows)


def test_wide(plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.bench.kernels.wide.WIDTHS", (4096,))
    monkeypatch.setattr("hogwild.bench.kernels.wide.KINDS", {"l2": {}, "no penalty": {"l2": 0.0}})
    rows = rows_of("wide", plan)
    cells = [(row["features"], row["kind"], row["discipline"], row["numbering"]) for row in rows]
    kinds = [(width, kind, "serial") for width in (300, 4096) for kind in ("l2", "no penalty")]
    wanted = [(*kind, way) for kind in kinds for way in ("own", "by popularity")]
    for kind in ("l2", "no penalty"):
        both = [(4096, kind, name, way) for name in ("hogwild", "tiered") for way in ("own", "by popularity")]
        wanted += [*both, (4096, kind, "single runs", "by popularity")]
    assert cells == wanted
    assert [row["of_single_runs"] for row in rows if row["discipline"] == "single runs"] == [1.0, 1.0]
    for own, ranked in zip(rows[:8:2], rows[1:8:2], strict=True):
        assert own["objective"] == ranked["objective"]


def test_estimators(plan: BenchPlan) -> None:
    rows = rows_of("estimators", dataclasses.replace(plan, rows=NAMES["uniform"], repeats=1))
    data = ["rcv1", "20 classes", *estimators.TOYS, NAMES["uniform"]]
    assert [(row["data"], row["solver"]) for row in rows] == [
        (name, solver) for name in data for solver in ("HogwildClassifier", "SGDClassifier")
    ]
    for row in rows:
        assert row["held_out"] > 0
        assert 0 < row["accuracy"] <= 1
    assert [row["n_jobs"] for row in rows[:4]] == [2, None, 2, 2]
    digits = [row for row in rows if row["data"] == "digits"]
    assert min(row["accuracy"] for row in digits) > 0.85
    assert digits[1]["ours_faster"] == digits[1]["seconds"] / digits[0]["seconds"]


def test_data_without_classes_cost_no_other_row(
    plan: BenchPlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "real.svm").write_text("".join(f"{k / 8} 1:{k}\n" for k in range(100)))
    monkeypatch.setattr(estimators, "_of_data", lambda plan, name, *data: iter([{"data": name}]))
    found = []
    rows = (row["data"] for row in section("estimators", dataclasses.replace(plan, rows=str(tmp_path / "real.svm"))))
    with pytest.raises(InputError, match=r"real\.svm: its targets are no classes: expected whole numbers"):
        found.extend(rows)
    assert found == ["rcv1", "20 classes", *estimators.TOYS]


def test_scaling_has_every_cell(plan: BenchPlan) -> None:
    rows = rows_of("scaling", plan)
    parallel = list(DISCIPLINES[1:])
    for family, counts in {"rcv1": plan.workers, "uniform": (2,), "ctr": (2,)}.items():
        cells = [row for row in rows if row["family"] == family]
        assert [row["discipline"] for row in cells] == ["serial", *parallel * len(counts)]
        assert [row["workers"] for row in cells] == [1, *(count for count in counts for _ in parallel)]
        assert cells[0]["speedup"] == cells[0]["objective_ratio"] == 1
    for row in rows:
        if row["status"] == "ok":
            assert math.isfinite(row["objective"])
            assert row["epochs"] == 3
            assert row["objective_ratio"] == pytest.approx(1, abs=0.5)
    skipped = {row["discipline"] for row in rows if row["status"] == "skipped: --quick"}
    assert skipped == set(parallel) - {"hogwild"}


def test_disciplines_that_wait_are_refused_beyond_the_cores(cache: Cache) -> None:
    crowd = physical_cores() + 1
    plan = BenchPlan((crowd,), 1, names=dict.fromkeys(NAMES, NAMES["rcv1"]), cache=cache)
    rows = {row["discipline"]: row["status"] for row in rows_of("scaling", plan)}
    assert rows["hogwild"] == "ok"
    assert rows["locked"].startswith("refused: ")
    refused = [row for row in rows_of("adds", plan) if row["status"] != "ok"]
    assert {row["add"] for row in refused} == {"locked"}
    assert all(row["seconds"] is None for row in refused)


def test_adds_that_lose_nothing(plan: BenchPlan) -> None:
    rows = rows_of("adds", plan)
    assert {(row["cells"], row["workers"], row["add"]) for row in rows} == {
        (cells, workers, add)
        for cells in (1, 8, 100_000)
        for workers in (1, 2)
        for add in ("plain", "atomic", "locked")
    }
    for row in rows:
        if row["status"] == "ok":
            assert 0 <= row["lost_share"] < 1
            assert row["nanoseconds"] > 0
            if row["add"] != "plain" or row["workers"] == 1:
                assert row["lost_share"] == 0


def test_merge(plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hogwild.bench.kernels.merge.COORDINATES", (64, 256))
    rows = rows_of("merge", plan)
    assert {row["coordinates"] for row in rows} == {64, 256}
    assert all(row["nanoseconds"] > 0 for row in rows)


def test_parsing(plan: BenchPlan) -> None:
    rows = rows_of("parsing", plan)
    assert all(row["megabytes_per_second"] > 0 for row in rows)
    assert {row["reader"] for row in rows} == {"hogwild"}


@pytest.mark.slow
def test_parsing_against(cache: Cache) -> None:
    rows = rows_of("parsing", BenchPlan((1,), 2, against=True, names=NAMES, cache=cache))
    assert [row["reader"] for row in rows] == ["hogwild", "scikit-learn"]


@pytest.mark.slow
def test_startup_and_memory(plan: BenchPlan) -> None:
    rows = rows_of("startup", plan)
    assert [(row["host"], row["part"]) for row in rows] == [
        (host, part) for host in ("processes", "threads") for part in ("imports", "first", "again")
    ]
    [row] = rows_of("memory", plan)
    assert 10 < row["peak_megabytes"] < 10_000


def test_a_child_that_fails_is_one_line(plan: BenchPlan) -> None:
    from hogwild.bench.startup import _in_a_fresh_interpreter

    with pytest.raises(TrainingError, match="start-up could not be timed: .*no such synthetic set"):
        _in_a_fresh_interpreter(["synthetic:none", None, "threads", 1, 0.5])


def test_against(plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = solvers.Outside("absent", "no-such-package", "no_such_module", solvers.Ours, "file")
    ours = [solver for solver in solvers.SOLVERS if solver.module in ("hogwild", "sklearn")]
    monkeypatch.setattr("hogwild.bench.against.SOLVERS", (*ours, absent))
    monkeypatch.setattr("hogwild.bench.against.PATIENCE", 6000.0)  # however busy the machine
    rows = rows_of("against", plan)
    epochs = [row for row in rows if row["what"] == "epoch"]
    assert {(row["solver"], row["order"]) for row in epochs} == {
        (name, order) for name in ("hogwild", "scikit-learn SGD") for order in ("shuffled", "file")
    }
    for loss in ("log", "hinge"):
        found = {row["solver"]: row for row in rows if (row["what"], row["loss"]) == ("time to loss", loss)}
        assert found["absent"]["status"] == "not installed (pip install no-such-package)"
        for name in ("hogwild", "scikit-learn SGD"):
            if found[name]["status"] == "ok":
                assert found[name]["held_out"] <= found[name]["held_out_target"]
                assert found[name]["effort"] >= 1
        assert found["hogwild"]["status"] == "ok"


@pytest.mark.parametrize("solver", solvers.SOLVERS, ids=lambda solver: solver.module)
@pytest.mark.parametrize("loss", ["log", "hinge"])
def test_every_solver_learns(solver: solvers.Outside, loss: str, plan: BenchPlan) -> None:
    """Its weights point the right way and lie where ours do: most margins have the sign of their label."""
    if solver.version is None:
        pytest.skip(f"{solver.package} is not installed")
    rows = plan.open("rcv1")
    found = solvers.Fits(solver, rows, loss, 1e-4)(8, 0.5)
    assert found.seconds > 0
    X, y = rows.to_scipy()
    assert np.mean(np.sign(X @ found.coef + found.intercept) == y) > 0.8


def test_fresh_rows_of_the_same_model(plan: BenchPlan) -> None:
    train, fresh = plan.open("rcv1"), plan.open("rcv1", rows=50, skip=600)
    assert (len(fresh), fresh.width) == (50, train.width)


# ---- how it is timed


def test_rounds_take_turns_and_the_first_is_not_counted() -> None:
    turns: list[str] = []

    def side(name: str, seconds: Iterator[float]) -> Any:
        def run() -> float:
            turns.append(name)
            return next(seconds)

        return run

    found = interleaved({"a": side("a", iter([9.0, 1.0, 3.0, 2.0])), "b": side("b", iter([9.0, 4.0, 4.0, 4.0]))}, 3)
    assert turns == ["a", "b"] * 4
    assert found["a"] == Timing(2.0, 1.5, 2.5, 3)
    assert found["b"].seconds == 4.0
    assert found["b"].per_second(8) == 2.0


def test_a_side_that_fails_keeps_its_place() -> None:
    def fails() -> float:
        raise TrainingError("diverged")

    found = interleaved({"bad": fails, "good": lambda: 1.0}, 2)
    assert found["bad"] == Timing(None, status="failed: diverged")
    assert found["bad"].fields()["status"] == "failed: diverged"
    assert found["good"].rounds == 2


def test_together_waits_for_all_and_raises_what_they_raise() -> None:
    done: list[int] = []
    assert together([lambda: done.append(1), lambda: done.append(2)]) >= 0
    assert sorted(done) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        together([lambda: 1 / 0])


def test_ratio_of_what_is_missing() -> None:
    assert ratio(4.0, 2.0) == 2.0
    assert ratio(None, 2.0) is None
    assert ratio(1.0, None) is None


def test_numbers_of_workers() -> None:
    assert [doubling(cores) for cores in (1, 2, 6, 16)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8, 16)]


def test_sections() -> None:
    assert chosen([], False) == [name for name in SECTIONS if name not in ("against", "wide")]
    assert chosen(["adds", "streaming"], True) == ["streaming", "adds"]
    assert chosen([], True) == [name for name in SECTIONS if name != "wide"]
    with pytest.raises(UsageError, match="speed: no such section; there are streaming, "):
        chosen(["speed"], False)
    assert conditions()["cores"] >= 1
