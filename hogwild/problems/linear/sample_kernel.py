"""Losses of rows with several margins, and squares of weights, during a fit.

With several classes the evaluator's loops (``objective_kernel.py``) take three to six times as long, which made fits on
handwritten digits a fifth slower: here the margins are summed in float32, in the vectors that training uses. Losses are
added in float64.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE
from hogwild.kernels import lanes as vectors
from hogwild.kernels.lanes import LANES
from hogwild.kernels.loss_kernel import loss
from hogwild.kernels.losses import SOFTMAX
from hogwild.kernels.options import JIT
from hogwild.problems.linear.objective_kernel import cross_entropy


@lru_cache(None)
def many_margins(code, size):
    """The loop for several classes; a feature's weights span a multiple of ``size``, which is 4, 8 or 16."""
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
