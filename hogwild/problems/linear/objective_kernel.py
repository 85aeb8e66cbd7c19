"""Sums over rows of losses and of the task's metrics, computed from margins in float64.

The formulas are those of ``kernels/losses.py``; loops and sums share nothing with the kernels that train. ``code`` is
an argument, so one compiled loop serves all losses; a branch that is the same for every row costs nothing next to the
row. NaN stays NaN, and nothing overflows needlessly.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE
from hogwild.kernels import vectors
from hogwild.kernels.loss_kernel import loss
from hogwild.kernels.losses import COUNTS, LABELS, LOG, SOFTMAX
from hogwild.kernels.options import JIT, called, inlined
from hogwild.kernels.vectors import LANES

LARGEST_EXPONENT = 709.0


@inlined
def exponential(x):
    return math.inf if x > LARGEST_EXPONENT else math.exp(x)


@njit(**JIT)
def loss_values(code, margins, targets, param, out):
    """Set ``out`` to the loss of each margin."""
    for i in range(len(margins)):
        out[i] = loss(code, margins[i], targets[i], param)


@njit(**JIT)
def tally(code, kind, margins, targets, weights, param, sums):
    """Add to ``sums`` (4,): weights, weighted losses, then rows classified right, or squared and absolute errors.

    ``targets`` (n,) float32 are of a ``kind``: LABELS, 0 and 1, NUMBERS or COUNTS; ``weights`` (n,) may be empty.
    """
    total = 0.0
    lost = 0.0
    first = 0.0
    second = 0.0
    for i in range(len(margins)):
        p, y = margins[i], np.float64(targets[i])
        y = 2.0 * y - 1.0 if kind == LABELS else y
        weight = np.float64(weights[i]) if len(weights) else 1.0
        total += weight
        lost += weight * loss(code, p, y, param)
        if kind == LABELS:
            first += 1.0 if (y > 0.0 and p > 0.0) or (y < 0.0 and p <= 0.0) else 0.0
        else:
            error = (exponential(p) if kind == COUNTS else p) - y
            first += error * error
            second += abs(error)
    sums[0] += total
    sums[1] += lost
    sums[2] += first
    sums[3] += second


@njit(**REASSOCIATE)
def tally_log(margins, targets, weights, sums):
    """Do :func:`tally` for the log loss in vector instructions."""
    total = 0.0
    lost = 0.0
    right = 0.0
    for i in range(len(margins)):
        p = margins[i]
        y = 2.0 * np.float64(targets[i]) - 1.0
        weight = np.float64(weights[i]) if len(weights) else 1.0
        total += weight
        lost += weight * loss(LOG, p, y, 0.0)
        right += 1.0 if (y > 0.0) == (p > 0.0) and p == p else 0.0
    sums[0] += total
    sums[1] += lost
    sums[2] += right


@njit(**JIT)
def cross_entropy(margins, label):
    """Softmax loss of one row's margins (K,)."""
    top, total = -math.inf, 0.0
    for margin in margins:
        top = max(top, margin)
    for margin in margins:
        total += math.exp(margin - top)
    return top + math.log(total) - margins[label]


@called
def is_first_of_largest(margins, label):
    """Whether the margin of ``label`` is the largest, and the first such if several are equal; False if one is NaN."""
    for k in range(len(margins)):
        if not (margins[k] < margins[label] if k < label else margins[k] <= margins[label]):
            return False
    return True


@njit(**JIT)
def loss_of_classes(code, margins, label, param):
    """Loss of one row's margins (K,): the cross-entropy, or the sum over the classes of one-versus-rest."""
    if code == SOFTMAX:
        return cross_entropy(margins, label)
    total = 0.0
    for k in range(len(margins)):
        total += loss(code, margins[k], 1.0 if k == label else -1.0, param)
    return total


@njit(**JIT)
def losses_of_classes(code, margins, targets, param, out):
    """Do :func:`loss_values` for several classes: ``margins`` (n, K), ``targets`` the classes from 0 on."""
    for i in range(len(margins)):
        out[i] = loss_of_classes(code, margins[i], np.int64(targets[i]), param)


@njit(**JIT)
def tally_classes(code, margins, targets, weights, param, sums):
    """Do :func:`tally` for several classes: ``margins`` (n, K), ``targets`` the classes from 0 on."""
    total = 0.0
    lost = 0.0
    right = 0.0
    for i in range(len(margins)):
        label = np.int64(targets[i])
        weight = np.float64(weights[i]) if len(weights) else 1.0
        total += weight
        lost += weight * loss_of_classes(code, margins[i], label, param)
        right += 1.0 if is_first_of_largest(margins[i], label) else 0.0
    sums[0] += total
    sums[1] += lost
    sums[2] += right


@lru_cache(None)
def many_margins(code, size):
    """Losses during a fit with several classes; a feature's weights span a multiple of ``size``, which is 4, 8 or 16.

    ``tally_classes`` takes three to six times as long, which made fits on handwritten digits a fifth slower: here the
    margins are summed in float32, in the vectors that training uses.
    """
    lanes = LANES[size]

    @njit(**JIT)
    def run(row, classes, begin, end, indices, values, targets, weights, coef, intercept, param):
        """Sum of weighted losses, for one-versus-rest over all classes; ``row`` (stride,) float32 is work space."""
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
                for k in range(classes):
                    row[k] += intercept[k]
                lost = cross_entropy(row[:classes], label)
            else:
                for k in range(classes):
                    margin = np.float64(row[k]) + np.float64(intercept[k])
                    lost += loss(code, margin, 1.0 if k == label else -1.0, param)
            total += lost * (np.float64(weights[i]) if len(weights) else 1.0)
        return total

    return run


@njit(**REASSOCIATE)
def sum_of_squares(w):
    """Return ``w . w`` of float32 in float64."""
    total = 0.0
    for i in range(len(w)):
        total += np.float64(w[i]) * np.float64(w[i])
    return total
