"""Margins of factorization machines in float64, for evaluation and prediction; they share nothing with training."""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE, known_end
from hogwild.kernels.atomics import prefetch_second
from hogwild.kernels.vectors import LANE


@njit(**REASSOCIATE)
def margins_of_fields(
    begin, end, indices, values, lines, stride, weight, first, size, fields, rank, intercept, scales, out
):
    """Do :func:`margins` for features with a factor for each field, and the field of each, ``fields`` (width,).

    ``lines`` are flat, ``stride`` numbers each. A line's factors begin at ``first``, ``size`` numbers apart, so that
    lines need not be copied for this: it takes longer than the margins. Those of the next row are prefetched, which is
    three times as fast beyond the cache. Places are unsigned, which saves tests for negative ones.
    """
    width = len(lines) // stride
    for i in range(len(begin)):
        last, ahead = known_end(begin[i], end[i], indices, width), min(i + 1, len(begin) - 1)
        scale = np.float64(scales[i]) if len(scales) else 1.0
        total = 0.0
        for j in range(begin[i], last):
            near = min(begin[ahead] + j - begin[i], len(indices) - 1)
            near = np.uint64(np.uint32(indices[np.uint64(near)])) * np.uint64(stride)
            for k in range(0, stride, LANE):
                prefetch_second(lines, near + np.uint64(k))
            x, u = np.float64(values[np.uint64(j)]) * scale, np.uint32(indices[np.uint64(j)])
            line = np.uint64(u) * np.uint64(stride)
            total += x * np.float64(lines[line + np.uint64(weight)])
            own, line = np.uint64(first + np.int64(fields[u]) * size), line + np.uint64(first)
            for n in range(j + 1, last):
                v = np.uint32(indices[np.uint64(n)])
                one, other = line + np.uint64(np.int64(fields[v]) * size), np.uint64(v) * np.uint64(stride) + own
                product = 0.0
                for k in range(np.uint64(rank)):
                    product += np.float64(lines[one + k]) * np.float64(lines[other + k])
                total += x * np.float64(values[np.uint64(n)]) * scale * product
        out[i] = intercept + total


@njit(**REASSOCIATE)
def margins(begin, end, indices, values, lines, weight, intercept, scales, sums, out):
    """Set ``out`` (n,) float64 for ``lines`` (width, m) of factors, and of a weight at ``weight``.

    ``scales`` (n,) may be empty. ``sums`` (2, m) float64 is work space. Entries whose feature has no line are left out.
    """
    for i in range(len(begin)):
        last = known_end(begin[i], end[i], indices, len(lines))
        scale = np.float64(scales[i]) if len(scales) else 1.0
        sums[:] = 0.0
        for j in range(begin[i], last):
            x, u = np.float64(values[np.uint64(j)]) * scale, np.uint32(indices[np.uint64(j)])
            for k in range(lines.shape[1]):
                part = x * np.float64(lines[u, k])
                sums[0, k] += part
                sums[1, k] += part * part
        pairs = 0.0
        for k in range(lines.shape[1]):
            if k != weight:
                pairs += sums[0, k] * sums[0, k] - sums[1, k]
        out[i] = intercept + sums[0, weight] + 0.5 * pairs
