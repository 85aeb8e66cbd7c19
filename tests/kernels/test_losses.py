"""Losses: against their twins and scikit-learn's, derivatives numerically, and at the ends of the number line."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hogwild import methods
from hogwild.kernels import losses
from hogwild.kernels.losses import LOSSES, bend, dloss, loss
from hogwild.methods import COUNT_LOSSES, LABEL_LOSSES
from hogwild.problems.linear import objective
from hogwild.problems.linear.objective_kernel import POISSON_CAP
from tests import numpy_objective, reference

SCALAR = [name for name in LOSSES if name != "softmax"]
PARAM = 0.3  # binary fractions do not hit the kinks at y +- 0.3 by rounding


def targets(name):
    return (-1.0, 1.0) if name in LABEL_LOSSES else (0.0, 1.0, 7.0) if name in COUNT_LOSSES else (-2.5, 0.0, 1.0)


def points(name):
    """Predictions around every kink, on it, and on both sides."""
    return np.concatenate((np.arange(-6, 6.01, 0.125), [-1 - 1e-9, -1 + 1e-9, 1 - 1e-9, 1 + 1e-9, 20.0, -20.0]))


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_to_the_twin(name, dtype):
    code = LOSSES[name]
    for y in targets(name):
        for p in points(name).astype(dtype):
            assert loss(code, p, dtype(y), PARAM) == pytest.approx(
                reference.loss(name, p, y, PARAM), rel=1e-12, abs=1e-15
            )
            assert dloss(code, p, dtype(y), PARAM) == pytest.approx(
                reference.dloss(name, p, y, PARAM), rel=1e-12, abs=1e-15
            )


@pytest.mark.parametrize("name", SCALAR)
def test_derivative_numerically(name):
    code, h = LOSSES[name], 1e-6
    for y in targets(name):
        kinks = {y, y - PARAM, y + PARAM, -1.0, 0.0, 1.0}
        for p in np.arange(-4, 4.01, 0.0625):
            if min(abs(p - kink) for kink in kinks) > h:
                slope = (loss(code, p + h, y, PARAM) - loss(code, p - h, y, PARAM)) / (2 * h)
                assert dloss(code, p, y, PARAM) == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", SCALAR)
def test_convex_and_dloss_a_subgradient(name):
    code = LOSSES[name]
    for y in targets(name):
        at = np.unique(np.concatenate((points(name), np.linspace(55, 65, 21))))
        slopes = np.array([dloss(code, p, y, PARAM) for p in at])
        values = np.array([loss(code, p, y, PARAM) for p in at])
        assert np.all(np.diff(slopes) >= 0)
        for p, value, slope in zip(at, values, slopes):
            below = value + slope * (at - p)
            assert np.all(values >= below - 1e-9 * (1 + np.abs(values) + np.abs(below)))


@pytest.mark.parametrize("name", SCALAR)
def test_extremes(name):
    code = LOSSES[name]
    for y in targets(name):
        for p in (1e30, -1e30, 3.4e38, -3.4e38, 1e4, -1e4, 0.0, -0.0):
            for value in (np.float32(p), np.float64(p)):
                assert math.isfinite(loss(code, value, y, PARAM))
                slope = dloss(code, value, y, PARAM)
                assert math.isfinite(slope)
                assert abs(p) > 1e30 or math.isfinite(np.float32(slope))
                assert loss(code, value, y, PARAM) == pytest.approx(reference.loss(name, value, y, PARAM), rel=1e-12)
        assert math.isnan(loss(code, math.nan, y, PARAM))
        assert math.isnan(dloss(code, math.nan, y, PARAM))
        for p in (math.inf, -math.inf):
            assert not math.isnan(dloss(code, p, y, PARAM))


def test_no_underflow_or_overflow_in_log():
    code = LOSSES["log"]
    assert loss(code, 40.0, 1.0, 0.0) == pytest.approx(math.exp(-40), rel=1e-12)  # log(1 + x) would be 0
    assert loss(code, -1000.0, 1.0, 0.0) == 1000.0
    assert dloss(code, 50.0, 1.0, 0.0) == pytest.approx(-math.exp(-50), rel=1e-12)


def test_ties():
    assert dloss(LOSSES["hinge"], 1.0, 1.0, 0.0) == 0.0
    assert dloss(LOSSES["hinge"], 1.0 - 1e-15, 1.0, 0.0) == -1.0
    assert dloss(LOSSES["perceptron"], 0.0, 1.0, 0.0) == -1.0  # or zero weights would never move
    assert dloss(LOSSES["perceptron"], 0.0, -1.0, 0.0) == 1.0


def sklearn_twins():
    from sklearn._loss import loss as smooth
    from sklearn.linear_model import _sgd_fast as sgd

    return {
        "hinge": sgd.Hinge(1.0),
        "perceptron": sgd.Hinge(0.0),
        "squared-hinge": sgd.SquaredHinge(1.0),
        "modified-huber": sgd.ModifiedHuber(),
        "epsilon-insensitive": sgd.EpsilonInsensitive(PARAM),
        "squared-epsilon-insensitive": sgd.SquaredEpsilonInsensitive(PARAM),
        "log": smooth.HalfBinomialLoss(),
        "squared-error": smooth.HalfSquaredError(),
        "huber": smooth.HuberLoss(delta=PARAM),
        "poisson": smooth.HalfPoissonLoss(),
    }


@pytest.mark.parametrize("name", SCALAR)
def test_equal_to_scikit_learn(name):
    try:
        twin = sklearn_twins()[name]
    except (ImportError, AttributeError, TypeError):
        pytest.skip("this scikit-learn keeps its losses elsewhere")
    code = LOSSES[name]
    for y in targets(name):
        for p in np.arange(-3.03, 3, 0.25):
            if hasattr(twin, "py_dloss"):
                expected = twin.py_loss(p, y), twin.py_dloss(p, y)
            else:
                label = np.array([(y + 1) / 2 if name == "log" else y])
                expected = twin.loss(label, np.array([p]))[0], twin.gradient(label, np.array([p]))[0]
            assert loss(code, p, y, PARAM) == pytest.approx(expected[0], rel=1e-12, abs=1e-15)
            assert dloss(code, p, y, PARAM) == pytest.approx(expected[1], rel=1e-12, abs=1e-15)


def test_softmax_and_unknown_codes_are_no_scalar_loss():
    for code in (LOSSES["softmax"], 99):
        assert math.isnan(loss(code, 0.5, 1.0, 0.0))
        assert math.isnan(dloss(code, 0.5, 1.0, 0.0))


# --- bend: the curvature on the way to where a row is fitted ---

# name: the most it can be, and where the loss is smooth and bend its second derivative, of (z, r) = (yp, |p - y|)
BENDS = {
    "log": (0.25, lambda z, r: z >= 0),
    "hinge": (1.0, lambda z, r: z > 1.5),
    "squared-hinge": (2.0, lambda z, r: z != 1),
    "modified-huber": (2.0, lambda z, r: z > -1 and z != 1),
    "perceptron": (1.0, lambda z, r: z > 0.5),
    "squared-error": (1.0, lambda z, r: True),
    "huber": (1.0, lambda z, r: r < PARAM),
    "epsilon-insensitive": (1.0, lambda z, r: r < PARAM - 0.5),
    "squared-epsilon-insensitive": (2.0, lambda z, r: abs(r - PARAM) > 1e-9),
    "poisson": (math.exp(losses.POISSON_CAP) * 1.01, lambda z, r: False),  # where exp(p) > y: see below
    "softmax": (1.0, lambda z, r: False),  # no scalar function: problems/linear/multiclass_kernel.py has its own
}


def bend_at(name, p, y):
    return bend(LOSSES[name], p, y, dloss(LOSSES[name], p, y, PARAM), PARAM)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bend_is_bounded_and_not_negative(name, dtype):
    most, _ = BENDS[name]
    far = [value * sign for value in (1e30, 3.4e38, 1e4, 100.0, 60.0, 0.0) for sign in (1, -1)]
    for y in targets(name):
        for p in (*points(name), *far):
            slope = 0.5 if name == "softmax" else dloss(LOSSES[name], dtype(p), dtype(y), PARAM)
            found = bend(LOSSES[name], dtype(p), dtype(y), slope, PARAM)
            assert 0 <= found <= most
            assert math.isfinite(np.float32(found))


@pytest.mark.parametrize("name", SCALAR)
def test_bend_is_the_second_derivative(name):
    code, h, seen = LOSSES[name], 1e-5, 0
    _, smooth = BENDS[name]
    for y in targets(name):
        for p in np.arange(-4, 4.01, 0.0625):
            z, r = y * p, abs(p - y)
            here = p > math.log(max(y, 1e-30)) if name == "poisson" else smooth(z, r)
            if here:
                second = (dloss(code, p + h, y, PARAM) - dloss(code, p - h, y, PARAM)) / (2 * h)
                assert bend_at(name, p, y) == pytest.approx(second, rel=1e-4, abs=1e-6)
                seen += 1
    assert seen > 5 or name == "epsilon-insensitive"  # whose tube is narrower than what is near its edges


@pytest.mark.parametrize("name", SCALAR)
def test_bend_looks_ahead(name):
    """Where a row is not fitted it is not zero though the loss be straight, and it falls with the way to the bend."""
    for y in targets(name):
        wrong = [p for p in np.arange(-40, 40.01, 0.5) if (y * p if name in LABEL_LOSSES else -abs(p - y)) < -0.75]
        found = [bend_at(name, p, y) for p in sorted(wrong, key=lambda p: abs(p - y))]
        assert name == "poisson" or min(found) > 0
        if name not in ("poisson", "log"):
            assert np.all(np.diff(found) <= 1e-12)


def test_bend_of_poisson_is_not_below_the_count():
    """A row with a large count and a small prediction will bend as much as exp(p) = y does."""
    for y in targets("poisson"):
        assert bend_at("poisson", -30.0, y) == pytest.approx(y)


@pytest.mark.parametrize("name", SCALAR)
def test_bend_of_a_diverged_row_ends_no_worker(name):
    for y in targets(name):
        for p in (math.nan, math.inf, -math.inf):
            slope = dloss(LOSSES[name], p, y, PARAM)
            assert not bend(LOSSES[name], p, y, slope, PARAM) < 0


def test_registry_agrees_with_the_evaluator():
    """The same names stand in three places that may not import each other."""
    assert set(LOSSES) == set(methods.LOSSES)
    assert len(set(LOSSES.values())) == len(LOSSES) == len(methods.LOSSES)
    assert set(objective.CODES) == set(numpy_objective.VALUES) | {"softmax"} == set(LOSSES)
    assert set(BENDS) == set(LOSSES)
    assert POISSON_CAP == losses.POISSON_CAP


@pytest.mark.parametrize("name", SCALAR)
def test_evaluator_is_equal_too(name):
    for y in targets(name):
        p = np.concatenate((points(name), [1e30, -1e30]))
        found = objective.loss_values(name, p, np.full(len(p), y), PARAM)
        expected = [loss(LOSSES[name], value, y, PARAM) for value in p]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
        oracle = numpy_objective.loss_values(name, p, np.full(len(p), y), PARAM)
        np.testing.assert_allclose(found, oracle, rtol=1e-12, atol=1e-15)
        assert math.isnan(objective.loss_values(name, np.array([math.nan]), np.array([y]), PARAM)[0])
