"""Vectors of 4, 8 and 16 lanes against their plain Python meaning, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hogwild.kernels import lanes as vectors
from hogwild.kernels.lanes import LANES
from hogwild.kernels.options import JIT


def compile_for(size):
    """A kernel with every operation in it, and its plain Python meaning."""
    lanes = LANES[size]

    def run(x, array, first, out):
        total = vectors.nothing(lanes)
        for k in range(3):  # variables that change in a loop
            total = vectors.fma(x[k], vectors.load(lanes, array, first + k), total)
        vectors.store(total, out, 0)
        vectors.store(vectors.times(x[0], total), out, size)
        vectors.store(vectors.over(total, x[1]), out, 2 * size + 1)  # at any address
        vectors.store(vectors.plus(total, vectors.load(lanes, array, first)), out, 3 * size + 2)
        vectors.store(vectors.root(vectors.times(total, total)), out, 4 * size + 4)
        vectors.store(vectors.nearer_zero(total, vectors.filled(lanes, x[2])), out, 5 * size + 4)

    return njit(**JIT)(run), run


@pytest.mark.parametrize("size", LANES)
def test_every_operation(size):
    compiled, plain = compile_for(size)
    rng = np.random.default_rng(size)
    x, array = np.abs(rng.normal(size=3)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    found, expected = np.full(6 * size + 4, 7, np.float32), np.full(6 * size + 4, 7, np.float32)
    compiled(x, array, 5, found)
    plain(x, array, 5, expected)
    np.testing.assert_array_equal(found, expected)
    sums = sum(np.float64(x[k]) * np.float64(array[5 + k : 5 + k + size]) for k in range(3))
    np.testing.assert_allclose(found[:size], sums, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[size : 2 * size], x[0] * found[:size])
    np.testing.assert_array_equal(found[2 * size + 1 : 3 * size + 1], found[:size] / x[1])
    np.testing.assert_array_equal(found[3 * size + 2 : 4 * size + 2], found[:size] + array[5 : 5 + size])
    np.testing.assert_array_equal(found[4 * size + 4 : 5 * size + 4], np.sqrt(found[:size] * found[:size]))
    nearer = np.sign(found[:size]) * np.maximum(np.abs(found[:size]) - x[2], np.float32(0))
    np.testing.assert_array_equal(found[5 * size + 4 : 6 * size + 4], nearer)
    gaps = [2 * size, 3 * size + 1, 4 * size + 2, 4 * size + 3]
    assert (found[gaps] == 7).all()  # what lies beside is left alone
