"""Products are rounded once, and inverse roots are near and have the same bits in Python.

The rows of vectors that they make up are held against NumPy in ``test_completion.py``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT
from hogwild.kernels.vectors import LINE, fma, inverse_root, load, store


@njit(**JIT)
def each_fma(a, b, c, out):
    for i in range(len(out)):
        out[i] = fma(a[i], b[i], c[i])


@njit(**JIT)
def each_inverse_root(a, out):
    store(inverse_root(load(LINE, a, 0)), out, 0)
    for i in range(16, len(out)):
        out[i] = inverse_root(a[i])


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


def test_inverse_roots_are_near_and_the_same_bits_in_python():
    a = np.exp(np.random.default_rng(0).uniform(-60, 80, 500)).astype(np.float32)
    computed = np.empty(500, np.float32)
    each_inverse_root(a, computed)
    np.testing.assert_array_equal(computed, getattr(inverse_root, "py_func", inverse_root)(a))
    np.testing.assert_allclose(computed * np.sqrt(a.astype(float)), 1.0, rtol=0, atol=7e-4)
