"""One pass of coordinate ascent over the dual of sums of hinges (Hsieh et al. 2008, algorithm 3), with an intercept."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT

ONE = np.uint64(1)


@njit(**JIT)
def ascend(
    begin, end, indices, values, scales, y, kinks, most, squares, alpha, w, state, order, active, l2, rho, limits
):
    """Solve for one ``alpha`` after another; return how many rows are left active and how many entries were visited.

    Rows whose ``alpha`` is at a bound, and whose derivative is beyond those of the pass before (``limits``), leave the
    first ``active`` of ``order``. ``w`` and the intercept ``state[0]`` follow; ``limits`` becomes this pass's largest
    and least derivatives. A row's loss is ``max(0, kinks - y p)``, times ``most``.
    """
    largest, least, visited, place, b = -math.inf, math.inf, 0, 0, state[0]
    while place < active:
        i = np.uint64(order[place])
        scale = scales[i] if len(scales) else 1.0
        first, second, j = 0.0, 0.0, begin[i]
        while j + 1 < end[i]:  # two sums, since each addition waits for the one before
            k = np.uint64(j)
            first += w[np.uint32(indices[k])] * values[k]
            second += w[np.uint32(indices[k + ONE])] * values[k + ONE]
            j += 2
        if j < end[i]:
            first += w[np.uint32(indices[np.uint64(j)])] * values[np.uint64(j)]
        visited += end[i] - begin[i]
        slope, a = y[i] * (scale * (first + second) + b) - kinks[i], alpha[i]  # of what is minimised, minus the dual
        if (a == 0.0 and slope > limits[0]) or (a == most[i] and slope < limits[1]):
            active -= 1
            order[place], order[active] = order[active], order[place]
            continue
        place += 1
        if (a == 0.0 and slope >= 0.0) or (a == most[i] and slope <= 0.0):
            largest, least = max(largest, 0.0), min(least, 0.0)
            continue
        largest, least = max(largest, slope), min(least, slope)
        alpha[i] = min(max(a - slope / (squares[i] / l2 + rho), 0.0), most[i])
        change = (alpha[i] - a) * y[i]
        step = change * scale / l2
        for j in range(begin[i], end[i]):
            w[np.uint32(indices[np.uint64(j)])] += step * values[np.uint64(j)]
        b += change * rho
        visited += end[i] - begin[i]
    state[0], limits[0], limits[1] = b, largest, least
    return active, visited
