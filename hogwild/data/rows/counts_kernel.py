"""Passes over sparse rows other than training: they count and sum features, renumber columns and copy entries."""

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


@njit(forceinline=True, **JIT)
def value(values, scales, j, k):
    return np.float64(values[np.uint64(j)]) * (np.float64(scales[k]) if len(scales) else 1.0)


@njit(**JIT)
def lengths(ids, begin, end, indices, values, scales, total):
    """Return ``(sum of ||x||^2, ||sum of x||^2)`` of the rows ``ids``, float64; zeros ``total`` (width,) get the sum.

    ``scales`` (one per row of ``ids``, float32) multiply the rows; it may be empty.
    """
    own, mutual = 0.0, 0.0
    for k in range(len(ids)):
        for j in range(begin[ids[k]], end[ids[k]]):
            x = value(values, scales, j, k)
            total[np.uint32(indices[np.uint64(j)])] += x
            own += x * x
    for k in range(len(ids)):  # visit the nonzeros of ``total`` again
        for j in range(begin[ids[k]], end[ids[k]]):
            mutual += value(values, scales, j, k) * total[np.uint32(indices[np.uint64(j)])]
    return own, mutual


@njit(**JIT)
def renumber(indices, place, columns):
    """Renumber columns in place by first appearance; ``columns`` receives the old numbers. Return how many there are.

    ``place`` holds zeros (width,) and then, for each column that appears, its number plus one.
    """
    count = 0
    for j in range(len(indices)):
        u = np.uint32(indices[np.uint64(j)])
        if place[u] == 0:
            columns[np.uint64(count)] = u
            count += 1
            place[u] = count
        indices[np.uint64(j)] = place[u] - 1
    return count


@njit(**JIT)
def copy_entries(begin, indptr, indices, values, to_indices, to_values):
    """Copy rows that begin at ``begin`` to the positions ``indptr`` gives them."""
    for i in range(len(begin)):
        shift = begin[i] - indptr[i]
        for j in range(indptr[i], indptr[i + 1]):
            to_indices[np.uint64(j)] = indices[np.uint64(j + shift)]
        for j in range(indptr[i], indptr[i + 1]):
            to_values[np.uint64(j)] = values[np.uint64(j + shift)]
