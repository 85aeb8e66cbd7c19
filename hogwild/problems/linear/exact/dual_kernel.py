"""One pass of coordinate ascent over the dual of hinge (Hsieh et al. 2008, algorithm 3), with an intercept."""

from __future__ import annotations

import math

from numba import njit

from hogwild.kernels.options import JIT


@njit(**JIT)
def ascend(begin, end, indices, values, scales, y, most, squares, alpha, w, state, order, active, l2, rho, limits):
    """Solve for one ``alpha`` after another; return how many rows are left active and how many entries were visited.

    Rows whose ``alpha`` is at a bound, and whose derivative is beyond those of the pass before (``limits``), leave the
    first ``active`` of ``order``. ``w`` and the intercept ``state[0]`` follow; ``limits`` becomes this pass's largest
    and least derivatives.
    """
    largest, least, visited, place, b = -math.inf, math.inf, 0, 0, state[0]
    while place < active:
        i = order[place]
        scale = scales[i] if len(scales) else 1.0
        margin = 0.0
        for e in range(begin[i], end[i]):
            margin += w[indices[e]] * values[e]
        visited += end[i] - begin[i]
        slope, a = y[i] * (scale * margin + b) - 1.0, alpha[i]  # derivative of what is minimised, minus the dual
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
        for e in range(begin[i], end[i]):
            w[indices[e]] += change * scale / l2 * values[e]
        b += change * rho
        visited += end[i] - begin[i]
    state[0], limits[0], limits[1] = b, largest, least
    return active, visited
