"""Passes over sparse rows other than training: they count and sum features and copy entries."""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.atomics import prefetch
from hogwild.kernels.options import JIT, inlined

AHEAD = 16  # places are prefetched for entries this far ahead


@njit(**JIT)
def count_features(begin, end, indices, total):
    """Add to ``total`` (width,) int32 the number of entries of each feature in the rows ``[begin[i], end[i])``.

    Returns whether all features are below the width; others are not counted.
    """
    fits = True
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            u = np.uint32(indices[np.uint64(j)])
            if u < len(total):
                total[u] += 1
            else:
                fits = False
    return fits


@inlined
def value(values, scales, j, k):
    return np.float64(values[np.uint64(j)]) * (np.float64(scales[k]) if len(scales) else 1.0)


@njit(**JIT)
def lengths(begin, end, indices, values, scales, total):
    """Return ``(sum of ||x||^2, ||sum of x||^2)`` of the rows, float64; zeros ``total`` (width,) get the sum.

    ``scales`` (one per row, float32) multiply the rows; it may be empty.
    """
    own, mutual = 0.0, 0.0
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            x = value(values, scales, j, i)
            total[np.uint32(indices[np.uint64(j)])] += x
            own += x * x
    for i in range(len(begin)):  # visit the nonzeros of ``total`` again
        for j in range(begin[i], end[i]):
            mutual += value(values, scales, j, i) * total[np.uint32(indices[np.uint64(j)])]
    return own, mutual


@njit(**JIT)
def copy_entries(begin, indptr, indices, values, to_indices, to_values):
    """Copy rows that begin at ``begin`` to the positions ``indptr`` gives them."""
    for i in range(len(begin)):
        shift = begin[i] - indptr[i]
        for j in range(indptr[i], indptr[i + 1]):
            to_indices[np.uint64(j)] = indices[np.uint64(j + shift)]
        for j in range(indptr[i], indptr[i + 1]):
            to_values[np.uint64(j)] = values[np.uint64(j + shift)]


@njit(**JIT)
def column_sums(begin, end, indices, values, count, first, total, squares):
    """Add up each column in one pass: its entries, its first value, and sums and squares of differences from that.

    Differences lose no digits where a column's values are large and near each other. All arrays are (width,) zeros.
    """
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            u, x = np.uint32(indices[np.uint64(j)]), np.float64(values[np.uint64(j)])
            if count[u] == 0:
                first[u] = x
            x -= first[u]
            count[u] += 1
            total[u] += x
            squares[u] += x * x


@njit(**JIT)
def squared_lengths(begin, end, values, found):
    """Fill ``found`` (n,) float64 with the squared norms of the rows."""
    for i in range(len(begin)):
        total = 0.0
        for j in range(begin[i], end[i]):
            x = np.float64(values[np.uint64(j)])
            total += x * x
        found[i] = total


@njit(**JIT)
def scale_entries(begin, end, indices, values, centres, means, inverse, indptr, to_indices, to_values):
    """Copy rows with ``(x_j - means_j) * inverse_j`` for ``x_j``; the columns ``centres`` (ascending) are in every row.

    Row i is written from ``indptr[i]`` on; a return value is where the last one ends.
    """
    to = 0
    for i in range(len(begin)):
        indptr[i] = to
        c = 0
        for j in range(begin[i], end[i]):
            u = np.int64(indices[np.uint64(j)])
            while c < len(centres) and centres[c] < u:  # absent from this row
                to_indices[to], to_values[to] = centres[c], -means[centres[c]] * inverse[centres[c]]
                to, c = to + 1, c + 1
            if c < len(centres) and centres[c] == u:
                c += 1
            to_indices[to], to_values[to] = u, (np.float64(values[np.uint64(j)]) - means[u]) * inverse[u]
            to += 1
        while c < len(centres):
            to_indices[to], to_values[to] = centres[c], -means[centres[c]] * inverse[centres[c]]
            to, c = to + 1, c + 1
    indptr[len(begin)] = to
    return to


@njit(**JIT)
def look_up(indices, place, out):
    """Fill ``out`` (nnz,) int32, which may be ``indices`` itself, with ``place[indices]``."""
    n = len(indices)
    for j in range(n):
        prefetch(place, np.uint32(indices[np.uint64(min(j + AHEAD, n - 1))]))
        out[np.uint64(j)] = place[np.uint32(indices[np.uint64(j)])]


@njit(**JIT)
def sort_by_degree(degree, first, features):
    """Sort features by falling degree into ``features`` (width,), stably; degrees from ``len(first) - 1`` on are alike.

    ``first`` holds zeros, and then, for each degree, where the next smaller one begins.
    """
    most = len(first) - 1
    for u in range(len(degree)):
        first[min(degree[u], most)] += 1
    total = 0
    for d in range(most, -1, -1):
        total, first[d] = total + first[d], total
    for u in range(len(degree)):
        d = min(degree[u], most)
        features[first[d]] = u
        first[d] += 1


@njit(**JIT)
def put_back(ranked, features, own):
    """Copy row r of ``ranked`` (width, stride) to row ``features[r]`` of ``own``."""
    for r in range(len(features)):
        u = np.uint32(features[np.uint64(r)])
        for k in range(ranked.shape[1]):
            own[u, np.uint64(k)] = ranked[np.uint64(r), np.uint64(k)]
