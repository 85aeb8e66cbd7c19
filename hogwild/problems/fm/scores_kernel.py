"""Margins of factorization machines in float64, for evaluation and prediction; they share nothing with training."""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.rows.margins_kernel import REASSOCIATE, known_end
from hogwild.kernels.atomics import prefetch_second
from hogwild.kernels.vectors import LANE


@njit(**REASSOCIATE)
def margins(begin, end, indices, values, lines, stride, size, fields, sums, intercept, scales, out):
    """Set ``out`` (n,) float64 for ``lines`` of ``stride`` numbers, as ``lines_kernel.py`` has them.

    ``fields`` (width,) may be empty: then there is one, and ``sums`` (2, rank) stand for pairs. ``scales`` (n,) may be
    empty. Entries whose feature has no line are left out. The lines of the next row are prefetched, which is three
    times as fast beyond the cache. Places are unsigned, which saves tests for negative ones.
    """
    width, rank = len(lines) // stride, np.uint64(sums.shape[1])
    for i in range(len(begin)):
        last, ahead = known_end(begin[i], end[i], indices, width), min(i + 1, len(begin) - 1)
        scale = np.float64(scales[i]) if len(scales) else 1.0
        total = 0.0
        sums[:] = 0.0
        for j in range(begin[i], last):
            near = min(begin[ahead] + j - begin[i], len(indices) - 1)
            near = np.uint64(np.uint32(indices[np.uint64(near)])) * np.uint64(stride)
            for k in range(0, stride, LANE):
                prefetch_second(lines, near + np.uint64(k))
            x, u = np.float64(values[np.uint64(j)]) * scale, np.uint32(indices[np.uint64(j)])
            line = np.uint64(u) * np.uint64(stride)
            total += x * np.float64(lines[line + np.uint64(stride - 1)])
            if not len(fields):
                for k in range(rank):
                    part = x * np.float64(lines[line + k])
                    sums[0, k] += part
                    sums[1, k] += part * part
                continue
            own = np.uint64(np.int64(fields[u]) * size)
            for n in range(j + 1, last):
                v = np.uint32(indices[np.uint64(n)])
                one, other = line + np.uint64(np.int64(fields[v]) * size), np.uint64(v) * np.uint64(stride) + own
                product = 0.0
                for k in range(rank):
                    product += np.float64(lines[one + k]) * np.float64(lines[other + k])
                total += x * np.float64(values[np.uint64(n)]) * scale * product
        for k in range(rank):
            total += 0.5 * (sums[0, k] * sums[0, k] - sums[1, k])
        out[i] = intercept + total
