"""Losses: against their twins and scikit-learn's, derivatives numerically, and at the ends of the number line."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
from numba import njit

from hogwild.kernels import loss_kernel, losses
from hogwild.kernels.losses import COUNTS, LABELS, LOSSES
from hogwild.kernels.options import JIT, inlined
from hogwild.problems.linear import objective
from tests import reference

SCALAR = [name for name in LOSSES if name != "softmax"]
PARAM = 0.3  # binary fractions do not hit the kinks at y +- 0.3 by rounding
TARGETS = {LABELS: (-1.0, 1.0), COUNTS: (0.0, 1.0, 7.0)}
EXTREMES = [sign * size for size in (1e30, 3.4e38, 1e4, 700.0, 0.0) for sign in (1, -1)]
POINTS = np.concatenate(
    (np.arange(-6, 6.01, 0.125), [-1 - 1e-9, -1 + 1e-9, 1 - 1e-9, 1 + 1e-9], np.linspace(55, 65, 21))
)
BENDS = {  # where bend is the second derivative, of (z, r) = (yp, |p - y|)
    "log": lambda z, r: z >= 0,
    "hinge": lambda z, r: z > 1.5,
    "modified-huber": lambda z, r: z > -1,
    "perceptron": lambda z, r: z > 0.5,
    "huber": lambda z, r: r < PARAM,
    "epsilon-insensitive": lambda z, r: r < PARAM - 0.5,
    "quantile": lambda z, r: r > math.inf,
    "poisson": lambda z, r: z > 14,  # there exp(p) > y
    "tweedie": lambda z, r: z > 14,
    "gamma": lambda z, r: z < 0,
}


@njit(**JIT)
def compiled(code, p, y, param, out):
    for i in range(len(p)):
        out[0, i] = loss_kernel.loss(code, p[i], y, param)
        out[1, i] = loss_kernel.dloss(code, p[i], y, param)
        out[2, i] = loss_kernel.curvature(code, p[i], y, param)
        out[3, i] = loss_kernel.bend(code, p[i], y, out[1, i], param)


def param_of(name):
    low, high = LOSSES[name].range
    return min(max(PARAM, low), high)


def functions(name, p, y):
    """Loss, derivative, curvature and bend at predictions ``p``, float64, in kernels."""
    p = np.atleast_1d(p)
    out = np.empty((4, len(p)))
    compiled(LOSSES[name].code, p, p.dtype.type(y), param_of(name), out)
    return out


every_case = pytest.mark.parametrize(
    ("name", "y"),
    [
        (name, y)
        for name in SCALAR
        for y in TARGETS.get(LOSSES[name].targets, (-2.5, 0.0, 1.0))
        if y > 0 or name != "gamma"
    ],
)


@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_to_the_twin(name, y, dtype):
    p = np.concatenate((POINTS, EXTREMES)).astype(dtype)
    y = dtype(y)
    found = functions(name, p, y)
    close = {"rtol": 1e-12, "atol": 1e-12 if name == "tweedie" else 1e-15}  # its terms cancel
    np.testing.assert_allclose(found[0], reference.loss(name, p, y, param_of(name)), **close)
    np.testing.assert_allclose(found[1], reference.dloss(name, p, y, param_of(name)), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(objective.loss_values(name, p, np.full(len(p), y), param_of(name)), found[0], rtol=1e-12)
    code = LOSSES[name].code
    plain = [
        (losses.loss(code, x, y, param_of(name)), losses.dloss(code, x, y, param_of(name))) for x in p
    ]  # as Python calls them
    np.testing.assert_allclose(np.transpose(plain), found[:2], rtol=1e-14, atol=1e-300)


@every_case
def test_derivatives_numerically(name, y):
    h, row = 1e-5, LOSSES[name]
    kinks = [y, y - PARAM, y + PARAM, -1.0, 0.0, 1.0]
    p = np.array([p for p in np.arange(-4, 4.01, 0.0625) if min(abs(p - kink) for kink in kinks) > h])
    (above, slope_above, _, _), (below, slope_below, _, _) = functions(name, p + h, y), functions(name, p - h, y)
    _, slope, curvature, bend = functions(name, p, y)
    np.testing.assert_allclose(slope, (above - below) / (2 * h), rtol=1e-5, atol=1e-6)
    second = (slope_above - slope_below) / (2 * h)
    if row.smooth:  # the straight lines of the Huber losses have the curvature of a parabola
        curved = second != 0 if "huber" in name else np.full(len(p), True)
        np.testing.assert_allclose(curvature[curved], second[curved], rtol=1e-4, atol=1e-6)
    ahead = BENDS.get(name, lambda z, r: r >= 0)(y * p, abs(p - y))
    np.testing.assert_allclose(bend[ahead], second[ahead], rtol=1e-4, atol=1e-6)


@every_case
def test_a_loss_says_whether_it_has_a_kink(name, y):
    kinks = np.array([-1.0, 0.0, 1.0, y, y - PARAM, y + PARAM])
    jumps = functions(name, kinks + 1e-9, y)[1] - functions(name, kinks - 1e-9, y)[1]
    assert LOSSES[name].smooth == (jumps.max() < 0.5)


@every_case
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes(name, y, dtype):
    """Nothing overflows, but NaN stays NaN; curvatures are bounded, and a diverged row ends no worker."""
    found = functions(name, np.array([*POINTS, *EXTREMES], dtype), y)
    assert np.isfinite(found).all()
    with np.errstate(over="ignore"):
        assert np.isfinite(found[1:, :-8].astype(np.float32)).all()
    most = 7.0 * math.exp(losses.CAP) * 1.01 if LOSSES[name].targets == COUNTS else 2.0
    assert found[2:].min() >= 0
    assert found[2:].max() <= most
    assert np.isnan(functions(name, np.array([math.nan], dtype), y)[:2]).all()
    diverged = functions(name, np.array([math.nan, math.inf, -math.inf], dtype), y)
    assert not np.isnan(diverged[1, 1:]).any()
    assert not (diverged[3] < 0).any()


@every_case
def test_bend_looks_ahead(name, y):
    """Where a row is not fitted it is not zero though the loss be straight, and it falls with the way to the bend."""
    p = np.arange(-40, 40.01, 0.5)
    p = p[(y * p if LOSSES[name].targets == LABELS else -abs(p - y)) < -0.75]
    p = p[p > y] if name == "quantile" else p  # its two slopes differ
    found = functions(name, p[np.argsort(abs(p - y))], y)[3]
    if LOSSES[name].targets == COUNTS:  # a small prediction bends as much as once it is fitted, or more
        assert functions(name, -30.0, y)[3] >= y ** (2.0 - param_of(name)) * (1 - 1e-9)
    else:
        assert found.min() > 0
        assert name == "log" or np.all(np.diff(found) <= 1e-12)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="flags are those of the compiler")
@pytest.mark.parametrize("kind", ["loss", "helper"])
def test_what_a_fast_kernel_has_called_first_stays_strict_in_others(kind, monkeypatch):
    """Numba compiles a function once for all callers: with their flags, unless it has its own."""

    monkeypatch.setitem(JIT, "cache", False)  # or they would be those of an earlier run

    def marked(p):  # with fast math no number is NaN, and terms may be taken in another order
        return -1.0 if p != p else (p + 1e20) - 1e20

    if kind == "loss":
        loss_kernel._compile(marked, marked)
        called = marked
    else:
        called = inlined(marked)

    def run(p, out):
        for i in range(len(p)):
            out[i] = called(p[i])

    p, fast, strict = np.array([math.nan, 3.0]), np.empty(2), np.empty(2)
    njit(**JIT | {"fastmath": True})(run)(p, fast)
    njit(**JIT)(run)(p, strict)
    assert strict.tolist() == [-1.0, 0.0]


def test_every_loss_has_a_code_and_a_twin():
    assert len({(row.code, row.targets == COUNTS and row.param) for row in LOSSES.values()}) == len(LOSSES)
    assert set(reference.TWINS) == set(SCALAR)
    assert np.isnan(functions("softmax", 0.5, 1.0)[:2]).all()  # no scalar function
