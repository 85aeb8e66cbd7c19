"""fma rounds once, compiled or not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numba import njit

from hogwild.kernels.fma import fma
from hogwild.kernels.options import JIT


@njit(**JIT)
def each(a, b, c, out):
    for i in range(len(out)):
        out[i] = fma(a[i], b[i], c[i])


def test_rounded_once():
    a, b, c = np.random.default_rng(0).normal(size=(3, 500)).astype(np.float32)
    c = np.where(
        np.arange(500) % 2, -a * b, c
    )  # the product's own rounding error: exact only if nothing is rounded twice
    exact = [Fraction(float(x) * float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c)]
    expected = np.array([float(x) for x in exact], dtype=np.float32)
    found = np.empty(500, np.float32)
    each(a, b, c, found)
    np.testing.assert_array_equal(found, expected)
    assert np.any(found != a * b + c)
    assert [fma(x, y, z) for x, y, z in zip(a, b, c)] == list(expected)
