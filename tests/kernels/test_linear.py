"""The serial loop against its slow twin, to the last bit, and what the separable penalty adds up to."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.kernel import L2
from tests.kernels.harness import CONSTANT, FALLING, PENALTIES, against_twin, awkward_rows, bits, make_job, run_epoch


@pytest.mark.parametrize(  # each pair is a kernel to compile; losses are tested by themselves
    ("loss", "penalty"), [("epsilon-insensitive", "none"), *(("log", penalty) for penalty in PENALTIES)]
)
def test_every_loss_and_penalty(loss, penalty):
    against_twin(awkward_rows(loss), FALLING, loss=loss, **PENALTIES[penalty])
    against_twin(awkward_rows(loss, weights=True, seed=3), CONSTANT, loss=loss, normalize="l2", **PENALTIES[penalty])


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "l2"},
        {"intercept": False},
        {"l2": 0.0},
        {"l1": 3.0, "l2": 40.0},  # steps that a gradient step on the penalty would overshoot with
        {"seed": 2**63 - 1},
        {"order": Order(83, 1, False)},
        {"order": Order(83, 2, True)},  # one chunk, the last block short
    ],
    ids=str,
)
def test_options(options):
    against_twin(awkward_rows(weights=True), FALLING, loss="log", **{"l1": 0.01, "l2": 0.02} | options)


@pytest.mark.parametrize(("penalty", "intercept"), [("l2", False), ("elastic", True)])
def test_adagrad(penalty, intercept):
    against_twin(awkward_rows(weights=True), adagrad=True, loss="log", intercept=intercept, **PENALTIES[penalty])


def test_weights_prefetched_or_not():
    rows = awkward_rows()
    results = []
    for cache_bytes in (0, 2 << 20):
        job = make_job(rows, cache_bytes=cache_bytes, **PENALTIES["elastic"])
        assert job.problem.far == (cache_bytes == 0)
        run_epoch(job, 0, FALLING)
        results.append(bits(job))
    assert results[0] == results[1]


@pytest.mark.parametrize("adagrad", [False, True])
def test_float32_is_close_to_float64(adagrad):
    """The twin that agrees to the last bit is still the formula."""
    against_twin(
        awkward_rows(), FALLING, dtype=np.float64, rtol=2e-5, loss="log", adagrad=adagrad, l2=0.02, schedule="constant"
    )


def test_rows_and_features_without_entries():
    rows = awkward_rows()
    job = make_job(rows, loss="log", **PENALTIES["elastic"])
    before = job.problem.parameters(job.flat).coef.copy()
    run_epoch(job)
    unseen = rows.degrees() == 0
    assert unseen.sum() >= 2
    moved = job.problem.parameters(job.flat).coef != before
    assert not np.any(moved[unseen])
    assert np.all(moved[~unseen])

    empty = Rows(np.zeros(6, np.int64), [], [], [0, 1, 1, 1, 1], 0)  # no features at all: the intercept is trained
    job = make_job(empty, start=False, loss="log", **PENALTIES["elastic"])
    run_epoch(job)
    assert job.problem.parameters(job.flat).intercept[0] > 0


def test_a_diverging_run_shows():
    """NaN and infinity spread instead of being clipped away, so that whoever evaluates sees them."""
    rows = awkward_rows("squared-error")
    job = make_job(rows, loss="squared-error", l1=0.01)
    for epoch in range(3):
        run_epoch(job, epoch, (1e20, 1.0, 0.0))
    assert not np.all(np.isfinite(job.flat))


# --- one margin a class ---


@pytest.mark.parametrize(
    ("loss", "penalty", "adagrad", "classes"),
    [
        ("hinge", "none", False, 3),
        ("softmax", "l2", True, 3),
        ("softmax", "l2", False, 3),
        ("softmax", "l2", True, 2),
    ],
)
def test_several_classes(loss, penalty, adagrad, classes):
    rows = awkward_rows(loss, classes)
    options = {"loss": loss, "adagrad": adagrad, "schedule": "constant"} | PENALTIES[penalty]
    job = against_twin(rows, FALLING, **options)
    assert job.problem.classes == classes
    against_twin(rows, CONSTANT, normalize="l2", intercept=False, **options)


def test_many_classes_and_padding():
    """Eleven classes lie sixteen apart; what lies between stays zero."""
    rows = awkward_rows("log", 2, n=90, weights=True).replace(targets=np.float32(np.arange(90) % 11))
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


# --- the separable form of the penalty (Recht et al. 2011, section 2.3) ---


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.5), (0.5, 0.5)])
def test_an_epoch_without_loss_descends_the_penalty(l1, l2):
    """Every weight moves by N steps of the whole penalty's gradient, however rare its feature, up to second order."""
    rows, step = awkward_rows(), 1e-5
    job = make_job(rows, loss="log", l1=l1, l2=l2)
    job.local["weights"] = np.zeros(len(rows), np.float32)
    job.local["weights"].flags.writeable = False
    before = job.problem.parameters(job.flat).coef.astype(np.float64)
    run_epoch(job, 0, (step, 1.0, 0.0))
    after = job.problem.parameters(job.flat).coef.astype(np.float64)
    d = rows.degrees()
    gradient = np.where(d > 0, l2 * before + l1 * np.sign(before), 0)
    far = np.abs(before) > 0.01  # from zero, which weights stop at
    np.testing.assert_allclose((before - after)[far], (len(rows) * step * gradient)[far], rtol=0.01, atol=1e-6)
    if l1 == 0:
        exact = before / (1 + step * l2 * len(rows) / np.maximum(d, 1)) ** d
        np.testing.assert_allclose(after, exact, rtol=1e-5)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_what_is_compiled_ahead_is_what_runs(monkeypatch):
    """A model too wide for a table of l2 factors; a kernel compiled later would count as training."""
    monkeypatch.setattr("hogwild.problems.linear.problem.TABLE_WIDTH", 30)
    job = make_job(awkward_rows(), loss="log", l2=0.02)
    before, problem = job.export(), job.problem
    job.compile()
    assert (job.export() == before).all()
    assert problem.penalty(False) == L2
    assert problem._kernel(L2).signatures
