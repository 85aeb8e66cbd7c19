"""Random rows and ratings, the same bits on every machine: documents drawn word by word, and a planted low-rank matrix.

Each row has its own random stream (splitmix64 keyed by seed and row number), and each number of a rating is a function
of a seed and of the user, item or pair it belongs to, so they come out the same in any chunking and on any number of
threads, and of ratings only the table of popularity is stored.

Words are drawn by popularity from an integer table until the row has the requested number of *different* words; a
word's count is how often it was drawn. A user's items are drawn like words. Every float operation here is one that IEEE
754 rounds exactly (+ - * / sqrt, never exp or log, no contraction), so the results do not depend on a maths library.

splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT, called
from hogwild.kernels.order import GOLDEN, mix

S12 = np.uint64(12)
S16 = np.uint64(16)
S32 = np.uint64(32)
S48 = np.uint64(48)
LOW12, LOW16 = np.uint64(0xFFF), np.uint64(0xFFFF)
TFIDF = 0
COUNTS = 2
REAL = 3
ROOT3 = math.sqrt(3.0)


@njit(**JIT)
def draw_words(state, n, latent, tilt, cdf, guide, shift, topic, slots, ranks, counts):
    """Draw ``n`` different words into ``ranks`` with their ``counts``; return the state of the stream.

    A word of a topic other than the row's is rejected with probability ``tilt / 4096``. After 64 n draws (a row nearly
    as wide as the vocabulary) the most popular missing words fill the rest.
    """
    mask = 15
    while mask < 2 * n:
        mask = 2 * mask + 1
    slots[: mask + 1] = 0
    found = 0
    draws = 0
    fill = 0
    while found < n:
        draws += 1
        if draws <= 64 * n:
            state = state + GOLDEN
            u = mix(state)
            x = np.int64(u >> S12)
            rank = np.int64(guide[x >> shift])
            while cdf[rank] <= x:
                rank += 1
            if tilt and rank < len(topic) and topic[rank] >= 0 and topic[rank] != latent and np.int64(u & LOW12) < tilt:
                continue
        else:
            rank, fill = fill, fill + 1
        slot = np.int64((np.uint64(rank) * GOLDEN) >> S32) & mask
        while slots[slot] and ranks[slots[slot] - 1] != rank:
            slot = (slot + 1) & mask
        if slots[slot]:
            counts[slots[slot] - 1] += 1
        else:
            ranks[found] = rank
            counts[found] = 1
            found += 1
            slots[slot] = found
    return state


@called
def sort_row(keys, n):
    """Shell sort the first ``n`` keys: a row is short, and numba's own sort allocates."""
    for gap in (1750, 701, 301, 132, 57, 23, 10, 4, 1):
        for i in range(gap, n):
            key = keys[i]
            j = i
            while j >= gap and keys[j - gap] > key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key


@njit(**JIT)
def normal(bits):
    """Near-normal deviate: four 16-bit uniforms, mean 0, variance 1, at most 3.46."""
    total = (bits & LOW16) + ((bits >> S16) & LOW16) + ((bits >> S32) & LOW16) + (bits >> S48)
    return (np.float64(total) - 131070.0) / 65536.0 * ROOT3


@called
def word_value(law, rank, count, bits, tf, idf):
    if law == TFIDF:
        return tf[min(count, len(tf) - 1)] * idf[rank]
    if law == COUNTS:
        return float(count)
    if law == REAL:
        return normal(bits)
    return 1.0


@njit(**JIT)
def draw_rows(
    key,
    first,
    law,
    tilt,  # stream key (uint64), number of the first row, value law, tilt in 1/4096
    begin,
    latent,  # (n + 1,) int64 offsets into the output; (n,) topic of each row
    cdf,
    guide,
    shift,
    ids,  # (width,) int64 popularity, cumulative, 52 bits; index by its high bits; feature of a rank
    tf,
    idf,
    topic,
    weight,  # value tables; (planted,) topic of a rank or -1, and its weight
    slots,
    ranks,
    counts,
    keys,  # scratch: (power of two > 2 longest, at least 16,), and three of (longest,)
    indices,
    values,
    margins,  # out: (nnz,) int32, (nnz,) float32, (n, topics) float64
):
    """Draw rows from ``first`` on, and their margins: per topic, the sum of weight x value over planted words."""
    for i in range(len(begin) - 1):
        low, n = begin[i], begin[i + 1] - begin[i]
        state = mix(key ^ mix(np.uint64(first + i) * GOLDEN))
        if n == len(ids):
            for j in range(n):
                ranks[j], counts[j] = j, 1
        else:
            state = draw_words(state, n, latent[i], tilt, cdf, guide, shift, topic, slots, ranks, counts)
        for j in range(n):
            keys[j] = (np.int64(ids[ranks[j]]) << 32) | j
        sort_row(keys, n)
        square = 0.0
        for k in range(n):
            j = keys[k] & 0xFFFFFFFF
            rank = ranks[j]
            state = state + GOLDEN
            value = word_value(law, rank, counts[j], mix(state), tf, idf)
            indices[low + k] = ids[rank]
            values[low + k] = value
            square += value * value
            if rank < len(topic) and topic[rank] >= 0:
                margins[i, topic[rank]] += weight[rank] * value
        if law == TFIDF:
            scale = 1.0 / math.sqrt(square)
            for k in range(n):
                values[low + k] = np.float64(values[low + k]) * scale
            for k in range(margins.shape[1]):
                margins[i, k] *= scale


# -- ratings -----------------------------------------------------------------------------------------------------------


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
    law,  # factors; REAL, or anything else for whole stars
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
            if law != REAL:
                value = min(max(math.floor(value + 0.5), 1.0), 1.0 + dials[4])
            users[low + j] = user
            items[low + j] = item
            values[low + j] = value
