"""The serial loop with one margin against its slow twin, to the last bit, and what the separable penalty adds up to."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.kernels.losses import LOSSES
from tests.kernels.harness import CONSTANT, FALLING, PENALTIES, against_twin, awkward_rows, bits, make_job, run_epoch

SCALAR = [name for name in LOSSES if name != "softmax"]


def every_combination():
    """Each loss without a penalty, one with all: each pair is a kernel to compile, and penalties see a slope only."""
    return [(loss, penalty) for loss in SCALAR for penalty in PENALTIES if loss == "log" or penalty == "none"]


@pytest.mark.parametrize(("loss", "penalty"), every_combination())
def test_every_loss_and_penalty(loss, penalty):
    against_twin(awkward_rows(loss), FALLING, loss=loss, **PENALTIES[penalty])
    against_twin(awkward_rows(loss, weights=True, seed=3), CONSTANT, loss=loss, normalize="l2", **PENALTIES[penalty])


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "l2"},
        {"normalize": "max"},
        {"intercept": False},
        {"l2": 0.0},
        {"l1": 3.0, "l2": 40.0},  # steps that a gradient step on the penalty would overshoot with
        {"seed": 2**63 - 1},
        {"order": Order(83, 1, False)},
        {"order": Order(83, 2, True)},  # one chunk, the last block short
    ],
    ids=str,
)
@pytest.mark.parametrize("weights", [False, True])
def test_options(options, weights):
    against_twin(awkward_rows(weights=weights), FALLING, loss="log", **{"l1": 0.01, "l2": 0.02} | options)


@pytest.mark.parametrize("n", [1, 2, 16, 17, 63, 64, 65, 129])
def test_number_of_rows(n):
    rows = awkward_rows("epsilon-insensitive", n=200).block(200 - n, 200)
    against_twin(rows, FALLING, loss="epsilon-insensitive")


@pytest.mark.parametrize(("loss", "penalty"), [("log", "l2"), ("log", "elastic")])
@pytest.mark.parametrize("intercept", [False, True])
def test_adagrad(loss, penalty, intercept):
    rows = awkward_rows(loss, weights=True)
    against_twin(rows, adagrad=True, loss=loss, intercept=intercept, **PENALTIES[penalty])


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


# --- the separable form of the penalty (Recht et al. 2011, section 2.3) ---


def test_terms_of_an_epoch_sum_to_the_penalty():
    rows, l1, l2 = awkward_rows(), 0.3, 0.7
    job = make_job(rows, l1=l1, l2=l2)
    w = np.random.default_rng(0).normal(size=rows.width)
    w[rows.degrees() == 0] = 0
    rates = job.local["rates"].astype(np.float64)
    u = rows.indices[: rows.nnz]
    terms = rates[u] * (l2 / 2 * w[u] ** 2 + l1 * np.abs(w[u]))
    assert terms.sum() / len(rows) == pytest.approx(l2 / 2 * w @ w + l1 * np.abs(w).sum(), rel=1e-6)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.5), (0.5, 0.0), (0.5, 0.5)])
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


def test_l1_stops_at_zero():
    rows = awkward_rows()
    job = make_job(rows, loss="log", l1=50.0)
    run_epoch(job)
    coef = job.problem.parameters(job.flat).coef
    assert np.all(coef[rows.degrees() > 0] == 0)
    assert np.all(coef[rows.degrees() == 0] != 0)
