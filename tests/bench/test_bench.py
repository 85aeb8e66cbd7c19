"""What a benchmark measures, on tiny data: rows are flat, figures finite, cells complete. No speed is asserted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hogwild.bench import against, scaling
from hogwild.bench.rounds import BenchPlan, Timing, interleaved
from hogwild.bench.suite import measure
from hogwild.compare.reference.outside import Outside
from hogwild.errors import TrainingError
from hogwild.machine import physical_cores
from hogwild.methods import DISCIPLINES
from hogwild.rows_file import to_json

ROWS = "synthetic:rcv1?rows=600&features=300&nnz=8"
RATINGS = "synthetic:ratings?users=400&items=150&ratings=12000"


def rows_of(plan: BenchPlan, problem: str, name: str) -> list[dict[str, Any]]:
    """The rows of a benchmark, checked for what every row promises."""
    rows = list(measure(plan, [(problem, name)]))
    assert rows
    for row in rows:
        assert row["data"] == name
        assert not any(isinstance(value, (dict, list, tuple, np.ndarray)) for value in row.values())
        assert json.loads(to_json(row)).keys() == row.keys()
        if row["status"] == "ok":
            for field in ("seconds", "seconds_q25", "seconds_q75", "nonzeros_per_second", "speedup"):
                assert row.get(field) is None or (math.isfinite(row[field]) and row[field] > 0), (field, row)
            assert row["seconds_q25"] <= row["seconds"] <= row["seconds_q75"]
    return rows


def test_every_discipline() -> None:
    rows = rows_of(BenchPlan((1, 3), repeats=2), "linear", ROWS)
    assert {row["section"] for row in rows} == {"scaling"}
    parallel = DISCIPLINES[1:]
    waits = [name for name in ("aig", "locked", "round-robin") if physical_cores() < 3]
    alone = [(name, 1) for name in DISCIPLINES]
    assert {(row["method"], row["workers"]) for row in rows} == {*alone, *((name, 3) for name in parallel)}
    assert [row["method"] for row in rows if row["status"] != "ok"] == waits
    assert next(row for row in rows if row["method"] == "serial")["speedup"] == 1
    for row in rows:
        if row["status"] == "ok":
            assert row["epochs"] == 3
            assert row["objective_ratio"] == pytest.approx(1, abs=0.5)
            assert row["held_out"] > 0


def test_ratings() -> None:
    rows = {row["method"]: row for row in rows_of(BenchPlan((1,), repeats=3, against=True), "completion", RATINGS)}
    assert {*DISCIPLINES, "blocks"} - {"tiered"} <= rows.keys()
    train = 10_800
    for row in rows.values():
        assert (row["ratings"], row["epochs"], row["status"]) == (train, 4, "ok")
        assert row["held_out"] < 1.2
    if "cornac" in rows:  # which has the same start, step and epochs
        assert abs(rows["cornac"]["held_out"] - rows["serial"]["held_out"]) < 0.02


def test_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Outside("absent", "no-such-package", against.Ours, lambda config, rows: None, "file")
    ours = [program for program in against.PROGRAMS if program.package in ("hogwild", "scikit-learn")]
    monkeypatch.setattr(against, "PROGRAMS", (*ours, absent))
    monkeypatch.setattr(against, "PATIENCE", 6000.0)  # however busy the machine
    rows = rows_of(BenchPlan((1,), repeats=2, quick=True, against=True), "linear", ROWS)
    assert any(row["method"] == "sklearn-sgd" for row in rows if row["section"] == "scaling")
    for loss in ("log", "hinge"):
        found = {row["method"]: row for row in rows if (row["section"], row.get("loss")) == ("against", loss)}
        assert found["absent"]["status"] == "not installed (pip install no-such-package)"
        assert found["hogwild"]["status"] == "ok"
        for name in ("hogwild", "sklearn-sgd", "liblinear"):
            if found[name]["status"] == "ok":
                assert found[name]["held_out"] <= found[name]["held_out_target"]
                assert found[name]["effort"] >= 1


def test_a_section_that_fails_costs_no_other_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "real.svm").write_text("".join(f"{k / 8} 1:{k}\n" for k in range(100)))
    monkeypatch.setattr(scaling, "measure", lambda *_: iter([{"status": "failed: diverged"}]))
    rows = rows_of(BenchPlan((1,), repeats=1, against=True), "linear", str(tmp_path / "real.svm"))
    assert [row["section"] for row in rows] == ["scaling", "against"]
    assert rows[1]["status"].startswith("failed: other programs are measured on two classes")


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
    assert found["b"].per_second(8) == 2.0


def test_a_side_that_fails_keeps_its_place() -> None:
    def fails() -> float:
        raise TrainingError("diverged")

    found = interleaved({"bad": fails, "good": lambda: 1.0}, 2)
    assert found["bad"].fields()["status"] == "failed: diverged"
    assert found["bad"].seconds is None
    assert found["good"].rounds == 2
