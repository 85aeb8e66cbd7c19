"""Rows as vector registers against their plain Python meaning, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.options import JIT

ROWS = 6
STEP, SHRINK = np.float32(0.3), [np.float32(x) for x in (0.9, 0.8, 0.7)]


def plain_for(count):
    """What every operation means, for rows of so many lanes."""
    lanes = (0,) * count

    def dot(p, u, q, i):
        return vectors.dot(lanes, p, u, q, i)

    def move(flag, p, q):
        vectors.move(lanes, flag, p, 1, q, 2, STEP, SHRINK[0])

    def move_both(flag, p, q):
        vectors.move_both(lanes, flag, p, 3, q, 5, STEP, *SHRINK[:2])

    def move_three(flag, p, q):
        vectors.move_three(lanes, flag, p, 0, q, 4, 1, STEP, *SHRINK)

    def copy_and_merge(flag, p, q):
        vectors.copy_row(lanes, p, 2, q, 0)
        vectors.merge_row(lanes, p, 3, q, p, 5)

    return dot, (move, move_both, move_three, copy_and_merge)


def compile_for(count):
    """The same, each in a kernel of its own."""
    lanes, a, (b, c, d) = (0,) * count, STEP, SHRINK

    @njit(**JIT)
    def dot(p, u, q, i):
        return vectors.dot(lanes, p, u, q, i)

    @njit(**JIT)
    def move(flag, p, q):
        vectors.move(lanes, flag, p, 1, q, 2, a, b)

    @njit(**JIT)
    def move_both(flag, p, q):
        vectors.move_both(lanes, flag, p, 3, q, 5, a, b, c)

    @njit(**JIT)
    def move_three(flag, p, q):
        vectors.move_three(lanes, flag, p, 0, q, 4, 1, a, b, c, d)

    @njit(**JIT)
    def copy_and_merge(flag, p, q):
        vectors.copy_row(lanes, p, 2, q, 0)
        vectors.merge_row(lanes, p, 3, q, p, 5)

    return dot, (move, move_both, move_three, copy_and_merge)


def matrices(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=ROWS * vectors.LANE * count).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_compiled_is_what_python_says(count):
    (dot, moves), (plain_dot, plain_moves) = compile_for(count), plain_for(count)
    p, q = matrices(count)
    for u in range(ROWS):
        for i in range(ROWS):
            found = dot(p, u, q, i)
            assert found == plain_dot(p, u, q, i)
            size = vectors.LANE * count
            exact = p[u * size : (u + 1) * size].astype(float) @ q[i * size : (i + 1) * size]
            assert found == pytest.approx(exact, abs=1e-5 * size)
    for flag in (0, 1):
        for move, plain in zip(moves, plain_moves):
            (p1, q1), (p2, q2) = matrices(count, 1), matrices(count, 1)
            move(flag, p1, q1)
            plain(flag, p2, q2)
            assert p1.tobytes() == p2.tobytes(), plain.__name__
            assert q1.tobytes() == q2.tobytes(), plain.__name__


def test_the_old_row_moves_the_other():
    _, (_, move_both, move_three, merge) = compile_for(1)
    for flag in (0, 1):
        p, q = np.zeros(96, np.float32), np.ones(96, np.float32)
        move_both(flag, p, q)
        assert q[80] == SHRINK[1]  # along the zero that p was
        assert p[48] == (0 if flag else -STEP * SHRINK[0])
        p, q = np.zeros(96, np.float32), np.ones(96, np.float32)
        q[16:32] = 3
        move_three(flag, p, q)
        assert p[0] == pytest.approx(0.3 * 2 * 0.9)
        assert (q[64], q[16]) == (SHRINK[1], pytest.approx(3 * SHRINK[2]))
    p, q = np.full(96, 5, np.float32), np.full(96, 7, np.float32)
    merge(0, p, q)
    assert p[48] == p[80] == q[80] == 7  # nobody else moved it


def test_projection_leaves_nan():
    _, (move, *_) = compile_for(1)
    p, q = np.full(96, -1, np.float32), np.zeros(96, np.float32)
    p[20] = np.nan
    move(1, p, q)
    assert np.isnan(p[20])
    assert np.count_nonzero(p[16:32]) == 1
    assert (p[:16] == -1).all()
    assert (p[32:] == -1).all()
