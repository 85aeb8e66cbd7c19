"""Products are rounded once; the rows of vectors that they make up are held against NumPy in ``test_completion.py``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT
from hogwild.kernels.vectors import fma


@njit(**JIT)
def each_fma(a, b, c, out):
    for i in range(len(out)):
        out[i] = fma(a[i], b[i], c[i])


def test_fma_of_numbers_is_rounded_once():
    a, b, c = np.random.default_rng(0).normal(size=(3, 500)).astype(np.float32)
    c[::2] = (-a * b)[::2]  # the product's own rounding error: exact only if nothing is rounded twice
    exact = [Fraction(float(x) * float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c)]
    expected = np.array([float(x) for x in exact], dtype=np.float32)
    computed = np.empty(500, np.float32)
    each_fma(a, b, c, computed)
    np.testing.assert_array_equal(computed, expected)
    assert np.any(computed != a * b + c)
    assert [fma(x, y, z) for x, y, z in zip(a, b, c)] == list(expected)
