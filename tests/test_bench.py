"""What a benchmark measures, on tiny data: rows are flat, figures finite, cells complete. No speed is asserted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from hogwild.bench import Timing, interleaved, measure
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.source import open_data
from hogwild.errors import TrainingError
from hogwild.machine import physical_cores
from hogwild.methods import DISCIPLINES
from hogwild.rows_file import to_json
from tests.kernels.completion_harness import RANK


def measured(data: Any, counts: tuple[int, ...], repeats: int, **options: Any) -> list[dict[str, Any]]:
    """The rows of a benchmark, checked for what every row promises."""
    rows = list(measure(data, counts, repeats, host="threads", **options))
    for row in rows:
        assert json.loads(to_json(row)).keys() == row.keys()
        assert not any(isinstance(value, dict | list | tuple) for value in row.values())
        if row["status"] == "ok":
            rate = row.get("nonzeros_per_second") or row["ratings_per_second"]
            assert all(math.isfinite(value) and value > 0 for value in (row["seconds"], row["speedup"], rate))
            assert (row["epochs"], row["rounds"]) == (repeats + 1, repeats)
            assert row["objective_ratio"] == pytest.approx(1, abs=0.5)
    return rows


def test_every_discipline() -> None:
    """With the kernels of ``tests/kernels/test_contention.py``, which need not be compiled again; so for ratings."""
    data = open_data("synthetic:rcv1?rows=600&features=300&nnz=8&task=regress")
    rows = measured(data, (1, 3), 2, problem="linear", loss="epsilon-insensitive", l2=0.0)
    waits = ("aig", "locked", "round-robin") if physical_cores() < 3 else ()
    several = [name for name in DISCIPLINES[1:] if name not in waits]
    cells = [*((name, 1) for name in DISCIPLINES), *((name, 3) for name in several)]
    assert [(row["method"], row["workers"]) for row in rows] == cells
    assert {row["status"] for row in rows} == {"ok"}
    assert rows[0]["speedup"] == 1


def test_ratings() -> None:
    ratings = open_ratings("synthetic:ratings?users=400&items=150&ratings=12000")
    rows = {
        row["method"]: row for row in measured(ratings, (1,), 1, problem="completion", rank=RANK, penalty="per-rating")
    }
    assert rows.keys() >= {"serial", "hogwild", "locked", "blocks"}
    assert {(row["rank"], row["status"]) for row in rows.values()} == {(RANK, "ok")}


def test_rounds_take_turns_and_the_first_is_not_counted() -> None:
    turns: list[str] = []

    def side(name: str, seconds: Iterator[float]) -> Any:
        return lambda: (turns.append(name), next(seconds))[1]

    found = interleaved({"a": side("a", iter([9.0, 1.0, 3.0, 2.0])), "b": side("b", iter([9.0, 4.0, 4.0, 4.0]))}, 3)
    assert turns == ["a", "b"] * 4
    assert found["a"] == Timing((1.0, 3.0, 2.0))
    assert (found["a"].seconds, found["a"].spread) == (2.0, 0.5)
    assert found["b"].per_second(8) == 2.0


def test_a_side_that_fails_keeps_its_place() -> None:
    def fails() -> float:
        raise TrainingError("diverged")

    found = interleaved({"bad": fails, "good": lambda: 1.0}, 2)
    assert found["bad"] == Timing(status="failed: diverged")
    assert (found["bad"].seconds, found["bad"].spread) == (None, None)
    assert found["good"].times == (1.0, 1.0)
