"""`scripts/bench_defaults.py`: default fits to a held-out loss, beside other programs'."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import hogwild
from hogwild.bench import solvers
from hogwild.bench.plan import L2, BenchPlan
from hogwild.data.cache import Cache
from scripts.bench_defaults import PARTS, DefaultFit, measure, rows_to

NAMES = {
    "rcv1": "synthetic:rcv1?rows=600&features=300&nnz=8",
    "ctr": "synthetic:ctr?rows=400&features=4096&nnz=5",
}


@pytest.fixture
def plan(tmp_path: Path) -> BenchPlan:
    return BenchPlan((1,), repeats=2, names=NAMES, cache=Cache(tmp_path))


def test_default_fits(plan: BenchPlan) -> None:
    fits = list(measure(plan))
    pairs = {("rcv1", "hogwild"), ("rcv1", "scikit-learn SGD")}
    if solvers.SOLVERS[-1].version is not None:
        pairs |= {("ctr", "hogwild"), ("ctr", "Vowpal Wabbit")}
    assert {(row["family"], row["solver"]) for row in fits} == pairs
    for row in fits:
        assert bool(row["effort"]) == (row["status"] == "ok")
        if row["status"] == "ok":
            assert row["seconds_with_search"] - row["seconds"] == pytest.approx(row["search_seconds"], abs=1e-12)
            assert (row["search_seconds"] > 0) == (row["solver"] == "hogwild")
    assert {row["effort"] for row in fits if row["solver"] == "Vowpal Wabbit"} <= {1.0}


def test_rows_to_a_loss_are_interpolated() -> None:
    points = [(100, 0.5), (200, 0.3), (300, 0.4), (400, 0.2)]
    assert rows_to(0.4, iter(points)) == pytest.approx(150)
    assert rows_to(0.25, iter(points)) == pytest.approx(375)
    assert rows_to(0.1, iter(points)) is None
    half = (math.log(2.0) + 0.5) / 2
    assert rows_to(half, iter(points)) == pytest.approx(50)


def test_a_default_fit_is_the_run_of_the_trainer(plan: BenchPlan) -> None:
    """It has the step and the loss after each epoch that ``hogwild.train`` has."""
    rows = plan.open("rcv1")
    held_out = plan.open("rcv1", rows=60, skip=len(rows))
    fit, run = DefaultFit(rows, held_out, 3), hogwild.train(rows, held_out, workers=1, l2=L2, seed=3, epochs=2)
    losses = dict(zip(range(PARTS * 2), fit.points()))
    history = list(run)
    assert fit.step == run.config.step
    ends = [loss for done, loss in losses.values() if done % len(rows) == 0]
    assert ends[:1] == [history[1]["test_loss"]]
