"""Random ratings of a planted low-rank matrix, the same bits on every machine.

Every number is a function of a seed and of the user, item or pair it belongs to, so only the table of popularity is
stored, and ratings come out the same in any chunking and on any number of threads. A user's items are drawn by
popularity, each once, like words in ``data/rows/generate_kernel.py``. All operations are ones that IEEE 754 rounds
exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT
from hogwild.kernels.order import GOLDEN, mix

S12, S16, S32, S48 = np.uint64(12), np.uint64(16), np.uint64(32), np.uint64(48)
LOW16 = np.uint64(0xFFFF)
ROOT3 = math.sqrt(3.0)
STARS, REAL = 0, 1


@njit(**JIT)
def _hash(key, number):
    return mix(key ^ mix(np.uint64(number) * GOLDEN))


@njit(**JIT)
def _normal(bits):
    """Near-normal deviate: four 16-bit uniforms, mean 0, variance 1, at most 3.46."""
    total = (bits & LOW16) + ((bits >> S16) & LOW16) + ((bits >> S32) & LOW16) + (bits >> S48)
    return (float(np.int64(total)) - 131070.0) / 65536.0 * ROOT3


@njit(**JIT)
def draw_items(state, n, cdf, guide, shift, slots, ranks):
    """Draw the first ``n`` different items of a user's stream, as ranks of popularity.

    After 64 n draws (a user who rated nearly everything) the most popular missing items fill the rest.
    """
    mask = 15
    while mask < 2 * n:
        mask = 2 * mask + 1
    for i in range(mask + 1):
        slots[i] = 0
    found, draws, fill = 0, 0, 0
    while found < n:
        draws += 1
        if draws <= 64 * n:
            state = state + GOLDEN
            x = np.int64(mix(state) >> S12)
            rank = np.int64(guide[x >> shift])
            while cdf[rank] <= x:
                rank += 1
        else:
            rank, fill = fill, fill + 1
        slot = np.int64((np.uint64(rank) * GOLDEN) >> S32) & mask
        while slots[slot] and ranks[slots[slot] - 1] != rank:
            slot = (slot + 1) & mask
        if slots[slot] == 0:
            ranks[found] = rank
            found += 1
            slots[slot] = found


@njit(**JIT)
def draw_ratings(
    keys,  # (6,) uint64: keys of item draws, user and item factors, user and item biases, noise
    first,  # number of the first user
    skipped,  # (n,) int64: ratings of each user that are left out
    begin,  # (n + 1,) int64: where each user's ratings go
    cdf, guide, shift, ids,  # (items,) int64 popularity, cumulative, 52 bits; index by its high bits; item of a rank
    rank, law,  # factors; STARS or REAL
    dials,  # (5,) float64: mean, standard deviations of factors (squared), biases and noise; stars above one
    slots, ranks, factors,  # scratch: (power of two >= 2 longest,) int32; (longest,) int64; (rank,) float64
    users, items, values,  # out: (ratings,) int32, int32, float32
):  # fmt: skip
    """Set ratings of users from ``first`` on: ``mean + b_u + b_i + p_u . q_i + noise`` of five stars, scaled."""
    for i in range(len(begin) - 1):
        low, n, user = begin[i], begin[i + 1] - begin[i], first + i
        if n == 0:
            continue
        draw_items(_hash(keys[0], user), skipped[i] + n, cdf, guide, shift, slots, ranks)
        for k in range(rank):
            factors[k] = _normal(_hash(keys[1], user * rank + k))
        user_bias = _normal(_hash(keys[3], user))
        for j in range(n):
            item = np.int64(ids[ranks[skipped[i] + j]])
            dot = 0.0
            for k in range(rank):
                dot += factors[k] * _normal(_hash(keys[2], item * rank + k))
            noise = _normal(_hash(keys[5], user * len(ids) + item))
            bias = user_bias + _normal(_hash(keys[4], item))
            value = dials[0] + dials[1] * dot + dials[2] * bias + dials[3] * noise
            value = 1.0 + (value - 1.0) * (dials[4] / 4.0)
            if law == STARS:
                value = min(max(math.floor(value + 0.5), 1.0), 1.0 + dials[4])
            users[low + j], items[low + j], values[low + j] = user, item, value
