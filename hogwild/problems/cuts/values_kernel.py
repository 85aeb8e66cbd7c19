"""Values of relaxed labels and of cuts, for the evaluator: compiled loops in float64.

This shares nothing with the training kernel (``kernel.py``): it reads the graph's own edges, terminals included, and
labels as the user gets them. It takes a few ns an edge and core, and one more for each eight labels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE


@njit(**REASSOCIATE)
def relaxed_value(u, v, forward, backward, x):
    """Return ``sum of w/2 ||x_u - x_v||_1`` over edges; for two labels, w is the weight in the edge's direction."""
    total = 0.0
    if x.shape[1] == 2:
        for e in range(len(u)):
            rise = np.float64(x[np.uint32(v[e]), 1]) - np.float64(x[np.uint32(u[e]), 1])
            total += np.float64(forward[e] if rise > 0.0 else backward[e]) * abs(rise)
        return total
    for e in range(len(u)):
        a = np.uint32(u[e])
        b = np.uint32(v[e])
        apart = 0.0
        for label in range(x.shape[1]):
            apart += abs(np.float64(x[a, np.uint64(label)]) - np.float64(x[b, np.uint64(label)]))
        total += np.float64(forward[e]) * apart
    return total / 2.0


@njit(**REASSOCIATE)
def cut_value(u, v, forward, backward, labels):
    """Sum of weights between different ``labels`` (vertices,) int32, in the direction from the lower to the higher."""
    total = 0.0
    for e in range(len(u)):
        a, b = labels[np.uint32(u[e])], labels[np.uint32(v[e])]
        total += np.float64(forward[e]) if a < b else 0.0
        total += np.float64(backward[e]) if a > b else 0.0
    return total
