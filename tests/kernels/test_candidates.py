"""Candidates side by side: every lane is a model of its own, to the last bit, and equals its slow twin."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import readonly
from hogwild.problems.linear.lanes.candidates import Candidate, Candidates
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.schedule import make_schedule
from tests import reference
from tests.kernels.harness import awkward_rows, make_job, run_epoch

# Lanes tabulate no l2 factors
pytestmark = pytest.mark.usefixtures("untabulated")
LANES = [Candidate(make_schedule("epoch", 0.4 / (k + 1)), 0.0, 0.1**k) for k in range(5)]


@pytest.fixture
def untabulated(monkeypatch):
    monkeypatch.setattr("hogwild.problems.linear.problem.TABLE_WIDTH", 0)


def candidates(rows, lanes, order=None, fold_of=None, seed=3, **options):
    problem = LinearProblem.of(TrainConfig(**{"l2": 1.0} | options), rows, "serial")
    arrays = problem.row_arrays(rows, None)
    return Candidates(problem, rows, arrays, lanes, order or Order(len(rows), 1, True), seed, fold_of)


@np.errstate(all="ignore")
def trained(found, epochs):
    found.train(epochs)
    return found


def alone(rows, lane, epochs, seed=3, order=None, **options):
    """Weights and intercept of the ordinary trainer's serial kernel."""
    job = make_job(rows, start=False, seed=seed, order=order, l1=lane.l1, **options | {"l2": lane.l2})
    for epoch in range(epochs):
        run_epoch(job, epoch, lane.schedule.plan(epoch))
    return job.problem.solution(job.flat)


@pytest.mark.parametrize(
    ("lanes", "options"),
    [
        (LANES * 4, {"loss": "log"}),  # a second vector
        (
            [Candidate(make_schedule("inverse", 0.2 / (k + 1), power=0.5), 0.01 * (k + 1), 0.1**k) for k in range(3)],
            {"loss": "hinge"},
        ),
        (
            [Candidate(make_schedule("epoch", 0.2 / (k + 1)), 0.01, 0.1**k) for k in range(3)],
            {"loss": "log", "adagrad": True},
        ),
        # a full vector, whose last lane passes the hinge's kink before the others do
        ([Candidate(make_schedule("epoch", 0.05 * 4**k), 0.0, 0.0) for k in range(4)], {"loss": "hinge", "l2": 0.0}),
    ],
    ids=["many", "falling", "adagrad", "unpenalised"],
)
def test_each_lane_equals_the_serial_kernel(lanes, options):
    """Which equals its slow twin."""
    rows = awkward_rows(options["loss"], weights=True)
    found = trained(candidates(rows, lanes, l1=lanes[0].l1, **options), 3)
    for k in range(0, len(lanes), 3):
        for mine, own in zip(found.model([k]), alone(rows, lanes[k], 3, **options), strict=True):
            np.testing.assert_array_equal(mine, own)
            assert np.any(mine)


def test_a_lane_that_diverges_disturbs_no_other():
    rows = awkward_rows("squared-error")
    wild = Candidate(make_schedule("epoch", 1e18), 0.0, 0.0)
    calm = LANES[1]
    found = trained(candidates(rows, [wild, calm, wild], loss="squared-error"), 3)
    assert not np.isfinite(found.model([0])[0]).all()
    for mine, own in zip(found.model([1]), alone(rows, calm, 3, loss="squared-error"), strict=True):
        np.testing.assert_array_equal(mine, own)


def test_a_lane_that_leaves_out_a_fold_is_a_fit_on_the_others():
    """In the order in which it meets them, with a penalty that weighs against each as in a fit on all rows."""
    rows = awkward_rows("log", n=91)
    fold_of = np.arange(len(rows)) % 3
    lanes = [Candidate(make_schedule("epoch", 0.3), 0.0, 0.05, fold) for fold in (-1, 0, 1, 2)]
    order = Order(len(rows), 1, True)
    found = trained(candidates(rows, lanes, order, fold_of, loss="log"), 1)
    met = np.array([row for chunk in reference.chunks(len(rows), 1, True, 3, 0) for row in chunk])
    for k, lane in enumerate(lanes):
        own = rows.select(met[fold_of[met] != lane.fold])
        job = make_job(own, start=False, order=Order(len(own), 1, False), loss="log", l2=lane.l2)
        job.problem = dataclasses.replace(job.problem, intercept=found.problem.intercept)
        job.local["rates"] = readonly(found.problem.rates(rows))
        run_epoch(job, 0, lane.schedule.plan(0))
        coef, intercept = job.problem.solution(job.flat)
        np.testing.assert_array_equal(found.model([k])[0], coef)
        np.testing.assert_array_equal(found.model([k])[1], intercept)


def test_lanes_of_several_classes_are_binary_models():
    rows = awkward_rows("log", 3)
    lanes = [Candidate(make_schedule("epoch", 0.3), 0.0, 0.05, label=label) for label in range(3)]
    found = trained(candidates(rows, lanes, loss="log"), 2)
    for label in range(3):
        binary = rows.replace(targets=np.float32(rows.targets == found.problem.labels[label]))
        for mine, own in zip(found.model([label]), alone(binary, lanes[label], 2, loss="log"), strict=True):
            np.testing.assert_array_equal(mine, own)
