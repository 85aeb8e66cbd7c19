"""Margins ``scale * (x . w) + b`` of rows in float64, and scales of rows, for evaluation and prediction.

No training kernel is called from here, and none calls this, so the evaluator does not share a kernel's mistakes.
Nothing that is written is read again, so here, unlike in training, gathers pay: sums may be taken in any order
(``REASSOCIATE``), which is 1.4 times as fast. NaN and infinities keep their meaning.

Features ascend within a row, so those at or beyond the width of the parameters are a row's last entries.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT, inlined

REASSOCIATE: dict[str, Any] = JIT | {"fastmath": {"reassoc", "contract", "nsz"}}
LARGEST = 3.4028234e38  # largest float32; one over a length below 3e-39 would be infinite, and times zero NaN


@inlined
def known_end(first, last, indices, width):
    """End of the entries ``first <= j < last`` of a row whose features are below ``width``."""
    while last > first and np.int64(indices[np.uint64(last - 1)]) >= width:
        last -= 1
    return last


@njit(**REASSOCIATE)
def margins(begin, end, indices, values, coef, intercept, scales, out):
    """Set ``out`` (n,) float64; ``scales`` (n,) may be empty."""
    for i in range(len(begin)):
        last, total = known_end(begin[i], end[i], indices, len(coef)), 0.0
        for j in range(begin[i], last):
            total += np.float64(values[np.uint64(j)]) * np.float64(coef[np.uint32(indices[np.uint64(j)])])
        out[i] = (total * np.float64(scales[i]) if len(scales) else total) + intercept


@njit(**REASSOCIATE)
def margins_of_classes(begin, end, indices, values, coef, intercept, scales, out):
    """Set ``out`` (n, K), for ``coef`` (width, K) and ``intercept`` (K,) float64; otherwise like ``margins``."""
    classes = len(intercept)
    for i in range(len(begin)):
        last = known_end(begin[i], end[i], indices, len(coef))
        for k in range(classes):
            out[i, k] = 0.0
        for j in range(begin[i], last):
            x, u = np.float64(values[np.uint64(j)]), np.uint32(indices[np.uint64(j)])
            for k in range(classes):
                out[i, k] += x * np.float64(coef[u, k])
        for k in range(classes):
            out[i, k] = (out[i, k] * np.float64(scales[i]) if len(scales) else out[i, k]) + intercept[k]


@njit(**JIT)
def known_ends(begin, end, indices, width, out):
    """Set ``out`` (n,) int64 to the end of each row's entries whose features are below ``width``."""
    for i in range(len(begin)):
        out[i] = known_end(begin[i], end[i], indices, width)


@njit(**REASSOCIATE)
def row_scales(begin, end, indices, values, width, out):
    """Set ``out`` (n,) float32 to one over each row's Euclidean length; one for a row without nonzero values."""
    for i in range(len(begin)):
        last, length = known_end(begin[i], end[i], indices, width), 0.0
        for j in range(begin[i], last):
            x = np.float64(values[np.uint64(j)])
            length += x * x
        length = math.sqrt(length)
        out[i] = min(1.0 / length, LARGEST) if length > 0.0 else 1.0
