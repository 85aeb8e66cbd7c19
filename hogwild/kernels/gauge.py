"""The loss of rows while a fit runs: loops over rows that share no line with those that train but the losses.

Several times as fast as scipy's product and NumPy's losses, and one call: on a few hundred rows calls are what costs.
One margin is summed in float64, those of several classes in float32; losses are added up in float64.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels import lanes as vectors
from hogwild.kernels.lanes import LANES
from hogwild.kernels.losses import SOFTMAX
from hogwild.kernels.losses import loss as loss_of
from hogwild.kernels.options import JIT


@njit(forceinline=True, **JIT)
def weight_of(weights, i):
    """Row ``i``'s; one where there are none."""
    return np.float64(weights[i]) if len(weights) else 1.0


@lru_cache(None)
def one_margin(code):
    """The loop for models with one margin a row."""

    @njit(**JIT)
    def run(begin, end, indices, values, targets, weights, coef, intercept, param):
        """The sum of weighted losses; ``weights`` may be empty."""
        total = 0.0
        for i in range(len(begin)):
            even, odd, last = 0.0, 0.0, end[i] - 1
            for j in range(begin[i], last, 2):
                even += np.float64(coef[np.uint32(indices[j])]) * np.float64(values[j])
                odd += np.float64(coef[np.uint32(indices[j + 1])]) * np.float64(values[j + 1])
            if (end[i] - begin[i]) % 2:
                even += np.float64(coef[np.uint32(indices[last])]) * np.float64(values[last])
            margin = even + odd + np.float64(intercept[0])
            total += loss_of(code, margin, targets[i], param) * weight_of(weights, i)
        return total

    return run


@lru_cache(None)
def many_margins(code, size):
    """The loop for classes whose weights lie a multiple of ``size`` apart, which is 4, 8 or 16."""
    lanes = LANES[size]

    @njit(**JIT)
    def run(row, classes, begin, end, indices, values, targets, weights, coef, intercept, param):
        """The sum of weighted losses, of one-versus-rest over all classes; ``row`` (stride,) float32 is to work in."""
        stride, total = np.uint64(len(row)), 0.0
        for i in range(len(begin)):
            for k in range(0, len(row), size):
                margins = vectors.nothing(lanes)
                for j in range(begin[i], end[i]):
                    first = np.uint64(np.uint32(indices[j])) * stride + np.uint64(k)
                    margins = vectors.fma(values[j], vectors.load(lanes, coef, first), margins)
                vectors.store(margins, row, k)
            label, lost = np.int64(targets[i]), 0.0
            if code == SOFTMAX:
                top, found = -math.inf, 0.0
                for k in range(classes):
                    row[k] += intercept[k]
                    top = max(top, np.float64(row[k]))
                for k in range(classes):
                    found += math.exp(np.float64(row[k]) - top)
                lost = top + math.log(found) - np.float64(row[label])
            else:
                for k in range(classes):
                    margin = np.float64(row[k]) + np.float64(intercept[k])
                    lost += loss_of(code, margin, 1.0 if k == label else -1.0, param)
            total += lost * weight_of(weights, i)
        return total

    return run


SQUARED = LANES[16]
TOGETHER = 4 * len(SQUARED)  # numbers of which the squares are added at once,
PIECE = 16 * TOGETHER  # and those whose sum is float32


@njit(forceinline=True, **JIT)
def add_squares(w, first, total):
    """``total`` plus the squares of the numbers from ``first`` on, each in its lane."""
    numbers = vectors.load(SQUARED, w, first)
    return vectors.fma(numbers, numbers, total)


@njit(**JIT)
def sum_of_squares(w):
    """``w . w`` of contiguous float32: float32 sums of a thousand squares, in 64 parts, added up in float64."""
    found, whole = 0.0, len(w) // TOGETHER * TOGETHER
    for first in range(0, whole, PIECE):
        s0, s1 = vectors.nothing(SQUARED), vectors.nothing(SQUARED)
        s2, s3 = vectors.nothing(SQUARED), vectors.nothing(SQUARED)
        for i in range(first, min(first + PIECE, whole), TOGETHER):
            s0 = add_squares(w, i, s0)
            s1 = add_squares(w, i + 16, s1)
            s2 = add_squares(w, i + 32, s2)
            s3 = add_squares(w, i + 48, s3)
        found += np.float64(vectors.total(vectors.plus(vectors.plus(s0, s1), vectors.plus(s2, s3))))
    for i in range(whole, len(w)):
        found += np.float64(w[i]) * np.float64(w[i])
    return found
