"""The area under the ROC curve in linear time: scores are sorted by their bits, and ties count half.

Each float32 is mapped to an integer of the same order, and three passes over 11 bits each sort these (radix sort, least
significant first). Then each score is counted in either kind of row, with the negative rows below it: these are
integers, so the area is exact but for one division.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT, inlined

BITS, PASSES = 11, 3
PLACES = 1 << BITS
SIGN, EXPONENT = np.uint32(1 << 31), np.uint32(255 << 23)
DIGIT, MARK = np.uint64(PLACES - 1), np.uint64(1)


@inlined
def digit(key, k):
    return np.int64((key >> np.uint64(1 + BITS * k)) & DIGIT)


@njit(**JIT)
def prepare(bits, positive, keys, counts):
    """Set ``keys`` to the order of each score, times 2, plus whether it is positive, and count their digits.

    Return the number of positive rows, or -1 if a score is not finite.
    """
    marked = 0
    for i in range(len(bits)):
        b = bits[i]
        if b & EXPONENT == EXPONENT:
            return -1
        ordered = b ^ (np.uint32(0xFFFFFFFF) if b > SIGN else SIGN if b < SIGN else np.uint32(0))  # -0 is 0
        keys[i] = (np.uint64(ordered) << MARK) | np.uint64(positive[i])
        marked += np.int64(positive[i])
        for k in range(PASSES):
            counts[k, digit(keys[i], k)] += 1
    return marked


@njit(**JIT)
def area(bits, positive, keys, other, counts):
    """Share of pairs of a positive and a negative row in which the positive score is larger; ties count half.

    ``bits`` (n,) uint32 are the bits of the float32 scores, ``positive`` (n,) bool. The rest is work space: ``keys``
    and ``other`` (n,) uint64, ``counts`` (PASSES, PLACES) int64, zeros. The result is NaN for scores that are not
    finite, or if there are no pairs.
    """
    positives = prepare(bits, positive, keys, counts)
    if positives <= 0 or positives == len(bits):
        return math.nan
    for k in range(PASSES):
        before = 0
        for place in range(PLACES):
            count = counts[k, place]
            counts[k, place] = before
            before += count
        for i in range(len(keys)):
            place = digit(keys[i], k)
            other[counts[k, place]] = keys[i]
            counts[k, place] += 1
        keys, other = other, keys
    below, twice, first = 0, 0, 0
    while first < len(keys):
        last, marked = first, 0
        while last < len(keys) and keys[last] >> MARK == keys[first] >> MARK:
            marked += np.int64(keys[last] & MARK)
            last += 1
        others = last - first - marked
        twice += marked * (2 * below + others)
        below += others
        first = last
    return np.float64(twice) / 2.0 / np.float64(positives) / np.float64(below)
