"""When a target was reached, and which step wins."""

from __future__ import annotations

import math

import pytest

from hogwild.compare.report.results import best_step, crossing


def run_of(*objectives: float | None, status: str = "ok") -> list[dict]:
    rows = [
        {"epoch": k, "train_seconds": 0.5 + 2.0 * k, "objective": value, "status": "ok"}
        for k, value in enumerate(objectives)
    ]
    rows[-1]["status"] = status
    return rows


def test_between_two_evaluations_the_logarithm_falls_in_a_straight_line() -> None:
    rows = run_of(1.0, 0.1, 0.01)  # f* = 0
    assert crossing(rows, 0.1, 0.0, "epoch") == pytest.approx(1.0)
    assert crossing(rows, 0.01, 0.0, "epoch") == pytest.approx(2.0)
    assert crossing(rows, math.sqrt(0.1), 0.0, "epoch") == pytest.approx(0.5)
    assert crossing(rows, math.sqrt(0.1), 0.0, "train_seconds") == pytest.approx(1.5)
    assert crossing(rows, 2.0, 0.0, "epoch") == 0.0  # there from the start
    assert crossing(rows, 0.001, 0.0, "epoch") is None


def test_the_first_time_counts_and_the_optimum_itself_can_be_reached() -> None:
    assert crossing(run_of(1.0, 0.1, 0.9, 0.1), 0.2, 0.0, "epoch") < 1.0
    at = crossing(run_of(1.0, 0.0), 0.5, 0.0, "epoch")
    assert at is not None
    assert 0.0 < at < 1.0
    assert crossing(run_of(1.0, None, 0.1), 0.2, 0.0, "epoch") is None  # nothing is known after a NaN


def test_the_hardest_target_decides() -> None:
    eps = (1e-1, 1e-2)
    sooner, harder = run_of(1.0, 0.05, 0.04, 0.03), run_of(1.0, 0.5, 0.05, 0.005)
    assert best_step({1.0: sooner, 2.0: harder}, 0.0, 1.0, eps) == 2.0
    assert best_step({1.0: sooner, 2.0: run_of(1.0, 0.5, 0.2, 0.05)}, 0.0, 1.0, eps) == 1.0  # neither: the next one
    assert best_step({1.0: run_of(1.0, 0.9, 0.8), 2.0: run_of(1.0, 0.9, 0.7)}, 0.0, 1.0, eps) == 2.0  # the lowest
    diverged = run_of(1.0, 0.6, None, status="diverged")
    assert best_step({1.0: run_of(1.0, 0.95, 0.9), 2.0: diverged}, 0.0, 1.0, eps) == 1.0
    assert best_step({2.0: diverged, 4.0: diverged}, 0.0, 1.0, eps) == 2.0  # all alike: the smallest
