"""The loop with one margin a class against its slow twin, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import CONSTANT, FALLING, PENALTIES, against_twin, awkward_rows, make_job, run_epoch


@pytest.mark.parametrize(
    ("loss", "penalty", "adagrad", "classes"),
    [
        ("log", "elastic", False, 5),
        ("hinge", "none", False, 3),
        ("softmax", "l2", True, 3),
        ("softmax", "l2", False, 3),
    ],
)
def test_every_kind(loss, penalty, adagrad, classes):
    rows = awkward_rows(loss, classes, weights=classes == 5)
    options = {"loss": loss, "adagrad": adagrad, "schedule": "constant"} | PENALTIES[penalty]
    job = against_twin(rows, FALLING, **options)
    assert job.problem.classes == classes
    against_twin(rows, CONSTANT, normalize="l2", intercept=False, **options)


def test_softmax_of_two_classes():
    job = against_twin(awkward_rows("softmax", 2), loss="softmax", adagrad=True, **PENALTIES["l2"])
    assert (job.problem.classes, job.problem.stride) == (2, 4)


def test_many_classes_and_padding():
    """Eleven classes lie sixteen apart; what lies between stays zero."""
    rows = awkward_rows("log", 2, n=90)
    rows.targets.flags.writeable = True
    rows.targets[:] = np.arange(90) % 11
    job = against_twin(rows, FALLING, loss="log", **PENALTIES["elastic"])
    assert (job.problem.classes, job.problem.stride) == (11, 16)
    coef = job.problem.parameters(job.flat).coef.reshape(-1, 16)
    assert np.all(coef[:, 11:] == 0)


def test_softmax_survives_large_margins():
    rows = awkward_rows("softmax", 3)
    job = make_job(rows, loss="softmax", adagrad=True, **PENALTIES["l2"])
    job.flat[: 37 * job.problem.stride] *= 1e20
    run_epoch(job)
    assert np.all(np.isfinite(job.flat))
