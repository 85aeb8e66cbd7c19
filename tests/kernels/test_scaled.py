"""The l2 penalty as a scale of the weights: every weight shrinks at every row, against a slow float64 twin."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hogwild.data.rows.container import readonly
from hogwild.kernels.steps import area
from tests import reference
from tests.kernels.harness import (
    CONSTANT,
    FALLING,
    awkward_rows,
    make_job,
    run_epoch,
    sequence,
    twin_of,
)

OPTIMAL = (20.0, 50.0, 1.0)
L2 = 0.02


class Shrinking(reference.Sgd):
    """``w <- exp(-step l2) w - step g x`` for all weights, by the formula."""

    def apply(self, row, g, step):
        self.w *= np.exp(-self.l2 * (area(self.schedule, self.visited + 1) - area(self.schedule, self.visited)))
        self.visited += 1
        for u, x in zip(*self.X[row]):
            self.w[u] -= step * g * x * self.scales[row]
        self.b = self.b - self.share * step * g


def scaled_job(rows, **options):
    job = make_job(rows, l2=L2, **options)
    job.problem = dataclasses.replace(job.problem, scaled=True)
    return job


def twin_for(job, rows, step):
    twin = twin_of(job, rows, np.float64)
    twin.__class__, twin.visited, twin.schedule = Shrinking, 0, step
    return twin


def write_out(job, step, epoch):
    """What who runs the epoch does at its end."""
    n = len(job.local["targets"])
    job.problem.parameters(job.flat).coef[:] *= np.exp(-L2 * (area(step, (epoch + 1) * n) - area(step, epoch * n)))


@pytest.mark.parametrize("step", [CONSTANT, OPTIMAL], ids=["constant", "optimal"])
@pytest.mark.parametrize(("loss", "classes"), [("hinge", 2), ("log", 3)])
def test_against_the_twin(loss, classes, step):
    rows = awkward_rows(loss, classes, weights=classes == 3)
    job = scaled_job(rows, loss=loss, normalize="l2")
    twin, before = twin_for(job, rows, step), job.export()
    for epoch in range(3):
        run_epoch(job, epoch, step)
        write_out(job, step, epoch)
        twin.epoch(sequence(job, epoch), step, epoch * len(rows))
    coef, intercept = job.problem.solution(job.export())
    # a falling step stays for 16 rows, and so does the kernel's decay
    tolerance = {"rtol": 0.02 if step[2] else 1e-4, "atol": 2e-3 if step[2] else 1e-5}
    np.testing.assert_allclose(coef, twin.w.T, **tolerance)
    np.testing.assert_allclose(intercept, np.atleast_1d(twin.b), **tolerance)
    unseen = np.setdiff1d(np.arange(rows.width), rows.indices)  # features of no row shrink all the same
    assert len(unseen)
    old = job.problem.solution(before)[0][..., unseen]
    np.testing.assert_allclose(
        coef[..., unseen], old * np.exp(-L2 * (area(step, 3 * len(rows)) - area(step, 0))), rtol=1e-4
    )


def test_rows_without_a_gradient_write_nothing():
    """All margins are beyond the hinge: the stored weights stay what they are."""
    rows = awkward_rows("hinge", 2)
    job = scaled_job(rows, loss="hinge")
    flat = job.export()
    parts = job.problem.parameters(flat)
    parts.coef[:] = 0
    parts.intercept[0] = 5.0
    job.local["targets"] = readonly(np.ones(len(rows), np.float32))
    job.restore(flat)
    run_epoch(job, 0, CONSTANT)
    np.testing.assert_array_equal(job.export(), flat)


def test_the_area_is_the_integral():
    for step in (CONSTANT, FALLING, OPTIMAL):
        scale, offset, power = step
        t = np.linspace(3, 400, 200_001)
        steps = scale * (offset + t) ** -power
        exact = np.sum((steps[1:] + steps[:-1]) / 2 * np.diff(t))
        assert area(step, 400) - area(step, 3) == pytest.approx(exact, rel=1e-6)
