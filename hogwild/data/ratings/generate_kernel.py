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

from hogwild.data.rows.generate_kernel import draw_words, normal
from hogwild.kernels.options import JIT, called
from hogwild.kernels.order import GOLDEN, mix

STARS, REAL = 0, 1


@called
def _hash(key, number):
    return mix(key ^ mix(np.uint64(number) * GOLDEN))


@njit(**JIT)
def draw_ratings(
    keys,  # (6,) uint64: keys of item draws, user and item factors, user and item biases, noise
    first,  # number of the first user
    begin,  # (n + 1,) int64: where each user's ratings go
    cdf,
    guide,
    shift,
    ids,  # (items,) int64 popularity, cumulative, 52 bits; index by its high bits; item of a rank
    rank,
    law,  # factors; STARS or REAL
    dials,  # (5,) float64: mean, standard deviations of factors (squared), biases and noise; stars above one
    slots,
    ranks,
    counts,  # scratch: (power of two > 2 longest, at least 16,) int32, two of (longest,) int64
    topic,
    factors,  # (0,) int16; scratch: (rank,) float64
    users,
    items,
    values,  # out: (ratings,) int32, int32, float32
):
    """Set ratings of users from ``first`` on: ``mean + b_u + b_i + p_u . q_i + noise`` of five stars, scaled."""
    for i in range(len(begin) - 1):
        low = begin[i]
        n = begin[i + 1] - begin[i]
        user = first + i
        if n == 0:
            continue
        draw_words(_hash(keys[0], user), n, -1, 0, cdf, guide, shift, topic, slots, ranks, counts)
        for k in range(rank):
            factors[k] = normal(_hash(keys[1], user * rank + k))
        user_bias = normal(_hash(keys[3], user))
        for j in range(n):
            item = np.int64(ids[ranks[j]])
            dot = 0.0
            for k in range(rank):
                dot += factors[k] * normal(_hash(keys[2], item * rank + k))
            noise = normal(_hash(keys[5], user * len(ids) + item))
            bias = user_bias + normal(_hash(keys[4], item))
            value = dials[0] + dials[1] * dot + dials[2] * bias + dials[3] * noise
            value = 1.0 + (value - 1.0) * (dials[4] / 4.0)
            if law == STARS:
                value = min(max(math.floor(value + 0.5), 1.0), 1.0 + dials[4])
            users[low + j] = user
            items[low + j] = item
            values[low + j] = value
