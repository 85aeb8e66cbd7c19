"""Passes over sparse rows that are no training: counting the rows that hold each feature."""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT


@njit(**JIT)
def count_features(begin, end, indices, total):
    """Add to ``total`` (width,) int32 the number of entries of each feature in the rows ``[begin[i], end[i])``."""
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            total[np.uint32(indices[np.uint64(j)])] += 1
