"""Products rounded once, and rows of vectors, against NumPy, to the last bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.options import JIT
from hogwild.kernels.vectors import LANE, fma

ROWS = 6
STEP = np.float32(0.3)
SHRINK = [np.float32(x) for x in (0.9, 0.8)]


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


# ---- rows


class Twin:
    """What every operation on rows of ``count`` vectors means."""

    def __init__(self, count):
        self.count = count

    def row(self, array, u):
        return array[u * LANE * self.count : (u + 1) * LANE * self.count]

    def moved(self, a, step, b, shrink):
        return fma(step, b, a) * shrink

    def dot(self, p, u, q, i):
        a, b = self.row(p, u).reshape(-1, LANE), self.row(q, i).reshape(-1, LANE)
        sums = [a[k] * b[k] for k in range(min(self.count, 4))]
        for k in range(4, self.count):
            sums[k % 4] = fma(a[k], b[k], sums[k % 4])
        while len(sums) > 1:
            sums = [sums[k] + sums[k + 1] if k + 1 < len(sums) else sums[k] for k in range(0, len(sums), 2)]
        return vectors.total(sums[0])

    def moves(self, p, q):
        a, b = self.row(p, 3), self.row(q, 5)
        a[:], b[:] = self.moved(a, -STEP, b, SHRINK[0]), self.moved(b, -STEP, a, SHRINK[1])
        a, b, c = self.row(p, 0), self.row(q, 4), self.row(q, 1)
        new = (
            self.moved(fma(STEP, c, a), -STEP, b, SHRINK[0]),
            self.moved(b, -STEP, a, SHRINK[0]),
            self.moved(c, STEP, a, SHRINK[0]),
        )
        a[:], b[:], c[:] = new


def compiled(count):
    """The same in kernels."""
    lanes, a, (b, c) = (0,) * count, STEP, SHRINK

    @njit(**JIT)
    def dot(p, u, q, i):
        return vectors.dot(lanes, p, u, q, i)

    @njit(**JIT)
    def moves(p, q):
        vectors.move_both(lanes, p, 3, q, 5, a, b, c)
        vectors.move_three(lanes, p, 0, q, 4, 1, a, b)

    return dot, moves


def matrices(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=ROWS * LANE * count).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_rows_against_the_twin(count):
    dot, moves = compiled(count)
    p, q = matrices(count)
    for u in range(ROWS):
        for i in range(ROWS):
            product = dot(p, u, q, i)
            assert product == Twin(count).dot(p, u, q, i)
            size = LANE * count
            exact = p[u * size : (u + 1) * size].astype(float) @ q[i * size : (i + 1) * size]
            assert product == pytest.approx(exact, abs=1e-5 * size)
    (p1, q1), (p2, q2) = matrices(count, 1), matrices(count, 1)
    moves(p1, q1)
    Twin(count).moves(p2, q2)
    assert p1.tobytes() == p2.tobytes()
    assert q1.tobytes() == q2.tobytes()
