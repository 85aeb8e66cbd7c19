"""Losses of rows, computed from margins in float64.

The formulas are those of ``kernels/losses.py``; loops share nothing with the kernels that train. NaN stays NaN, and
nothing overflows needlessly.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE
from hogwild.kernels import vectors
from hogwild.kernels.loss_kernel import loss
from hogwild.kernels.losses import SOFTMAX
from hogwild.kernels.options import JIT
from hogwild.kernels.vectors import LANES


@lru_cache(None)
def losses(code):
    """The loop over rows with one margin; of loss log it becomes vector instructions."""

    @njit(**JIT)
    def run(margins, targets, param, out):
        """Set ``out`` to the loss of each margin; ``targets`` (n,) float64."""
        for i in range(len(margins)):
            out[i] = loss(code, margins[i], targets[i], param)

    return run


@njit(**JIT)
def cross_entropy(margins, label):
    """Softmax loss of one row's margins (K,)."""
    top, total = -math.inf, 0.0
    for margin in margins:
        top = max(top, margin)
    for margin in margins:
        total += math.exp(margin - top)
    return top + math.log(total) - margins[label]


@lru_cache(None)
def losses_of_classes(code):
    """The loop over rows with a margin a class: ``margins`` (n, K), ``targets`` the classes from 0 on."""

    @njit(**JIT)
    def run(margins, targets, param, out):
        """Set ``out`` to each row's cross-entropy, or to the sum over the classes of one-versus-rest."""
        for i in range(len(margins)):
            label = np.int64(targets[i])
            if code == SOFTMAX:
                out[i] = cross_entropy(margins[i], label)
            else:
                total = 0.0
                for k in range(margins.shape[1]):
                    total += loss(code, margins[i, k], 1.0 if k == label else -1.0, param)
                out[i] = total

    return run


@lru_cache(None)
def many_margins(code, size):
    """Losses during a fit with several classes; a feature's weights span a multiple of ``size``, which is 4, 8 or 16.

    ``losses_of_classes`` takes three to six times as long, which made fits on handwritten digits a fifth slower: here
    the margins are summed in float32, in the vectors that training uses.
    """
    lanes = LANES[size]

    @njit(**JIT)
    def run(row, classes, begin, end, indices, values, targets, sets, weights, coef, intercept, param):
        """Sum of weighted losses, for one-versus-rest over all classes; ``row`` (stride,) float32 is work space.

        ``sets`` are the indptr and indices of the LabelSets of targets below zero.
        """
        stride, total = np.uint64(len(row)), 0.0
        for i in range(len(begin)):
            for k in range(0, len(row), size):
                margins = vectors.filled(lanes, np.float32(0))
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
                if label < 0:  # each label of a set was counted as a label that the row has not
                    for j in range(sets[0][-1 - label], sets[0][-label]):
                        margin = np.float64(row[sets[1][j]]) + np.float64(intercept[sets[1][j]])
                        lost += loss(code, margin, 1.0, param) - loss(code, margin, -1.0, param)
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
