"""Losses of rows, computed from margins in float64.

The formulas are those of ``kernels/losses.py``; loops share nothing with the kernels that train. NaN stays NaN, and
nothing overflows needlessly.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE
from hogwild.kernels.loss_kernel import loss
from hogwild.kernels.options import JIT


@lru_cache(None)
def losses(code):
    """The loop over margins and their targets; of loss log it becomes vector instructions."""

    @njit(**JIT)
    def run(margins, targets, param, out):
        """Set ``out`` to the loss of each margin; ``targets`` (n,) float64."""
        for i in range(len(margins)):
            out[i] = loss(code, margins[i], targets[i], param)

    return run


@njit(**REASSOCIATE)
def sum_of_squares(w):
    """Return ``w . w`` of float32 in float64."""
    total = 0.0
    for i in range(len(w)):
        total += np.float64(w[i]) * np.float64(w[i])
    return total
