"""Passes over the rows, and Newton's method for few columns in one call.

A problem of one margin is ``rows = (begin, end, indices, values, scales)``, targets and shares: a share is a row's
weight over the number of rows, and a row held out has none. Parameters are ``x`` (width + 1,), the intercept last.
Losses have the codes of ``kernels/losses.py``; three more are those with kinks, with a parabola of curvature one for
each kink, whose targets are where the parabolas are (``kinked.py``).

On some hundred rows, Python between the passes would take longer than the passes, so :func:`descend` holds the whole
loop: derivatives, Hessian, Cholesky factor, and a line search on the margins, which needs no pass over the entries.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.loss_kernel import curvature, dloss, loss
from hogwild.kernels.losses import (
    HINGE,
    MODIFIED_HUBER,
    QUANTILE,
    SQUARED_EPSILON_INSENSITIVE,
    SQUARED_HINGE,
)
from hogwild.kernels.options import JIT, inlined

BENT = 20  # added to the code of a loss with kinks that parabolas replace
ONE = np.uint64(1)
CENTRED = 1e-6  # least share of a column's curvature that is left when it is centred
LEAST = 1e-12  # curvature of a coordinate along which the model is flat
RIDGE = 1e-11  # share of its diagonal added to the Hessian, since columns may depend on each other
FLAT_ENOUGH = 0.3  # share of the first slope along a step that the slope at its end may have
TRIES = 60  # lengths of a step
FEW_GAINS = 6  # steps in turn that gain less than the smallest gain, until the last
LEVEL = 1e-4  # least curvature along the intercept, over that of a row, of losses that may have none
MOST_STEPS = 200
STALE = 4.0  # factor on the gain that the Hessian before the last step promises, as curvature may have become less
SETTLED = 0.01  # share of the largest fall of the model by a sweep, less than which is the last
ARMIJO = 0.1  # share of what a model with an l1 penalty promises that a step must bring


@inlined
def bent_at(code, p, y, param):
    """How far a margin is along the parabola of a bent loss, the sign of its slope there, and the steepest slope.

    Hinge's parabola begins at the target, whose sign is the label's; epsilon-insensitive loss has one ``param`` to each
    side; those of the quantile ``param`` meet.
    """
    r = p - y
    sign = math.copysign(1.0, r)
    if code == BENT + HINGE:
        sign = -math.copysign(1.0, y)
        return sign * r, sign, 1.0
    if code == BENT + QUANTILE:
        return abs(r), sign, 1.0 - param if r > 0.0 else param
    return abs(r) - param, sign, 1.0


@njit(**JIT)
def is_flat(code):
    """Whether rows have no curvature beyond their margin."""
    return code >= BENT or code in (SQUARED_HINGE, MODIFIED_HUBER, SQUARED_EPSILON_INSENSITIVE)


@inlined
def scale_of(scales, i):
    return np.float64(scales[i]) if len(scales) else 1.0


@inlined
def dot_row(indices, values, first, last, x):
    """A row times ``x``, in two sums, since each addition waits for the one before."""
    one = 0.0
    two = 0.0
    j = first
    while j + 1 < last:
        k = np.uint64(j)
        one += np.float64(values[k]) * x[np.uint32(indices[k])]
        two += np.float64(values[k + ONE]) * x[np.uint32(indices[k + ONE])]
        j += 2
    if j < last:
        one += np.float64(values[np.uint64(j)]) * x[np.uint32(indices[np.uint64(j)])]
    return one + two


@njit(**JIT)
def margins(rows, x, out):
    """Set ``out`` (n,) to the rows times ``x``."""
    begin, end, indices, values, scales = rows
    for i in range(len(begin)):
        out[i] = x[len(x) - 1] + scale_of(scales, i) * dot_row(indices, values, begin[i], end[i], x)


@njit(**JIT)
def gather(rows, slopes, squared, out):
    """Add the rows, or the squares of their values, times ``slopes`` (n,) to ``out`` (width + 1,)."""
    begin, end, indices, values, scales = rows
    for i in range(len(begin)):
        if slopes[i] != 0.0:
            scale = scale_of(scales, i)
            slope = slopes[i] * scale * (scale if squared else 1.0)
            for j in range(begin[i], end[i]):
                value = np.float64(values[np.uint64(j)])
                out[np.uint32(indices[np.uint64(j)])] += slope * value * (value if squared else 1.0)
            out[len(out) - 1] += slopes[i]


@njit(**JIT)
def product(rows, bends, x, out):
    """Add the Hessian of the mean loss times ``x`` to ``out`` (width + 1,), in one pass over rows with curvature."""
    begin, end, indices, values, scales = rows
    for i in range(len(begin)):
        if bends[i] != 0.0:
            scale = scale_of(scales, i)
            slope = bends[i] * (x[len(x) - 1] + scale * dot_row(indices, values, begin[i], end[i], x))
            for j in range(begin[i], end[i]):
                out[np.uint32(indices[np.uint64(j)])] += slope * scale * np.float64(values[np.uint64(j)])
            out[len(out) - 1] += slope


@njit(**JIT)
def derive(p, q, t, y, shares, code, param, out, slopes, bends):
    """Set ``out`` (n,) to the margins ``p + t q``, and slopes and curvatures of the rows' losses there.

    Return the mean loss, and its derivative and curvature in ``t``.
    """
    total = slope = bend = 0.0
    for i in range(len(p)):
        share, at = shares[i], p[i] + t * q[i] if t != 0.0 else p[i]
        out[i] = at
        if share == 0.0:
            slopes[i] = bends[i] = 0.0
            continue
        if code >= BENT:
            along, sign, steepest = bent_at(code, at, y[i], param)
            inner = min(max(along, 0.0), steepest)
            value, first, second = inner * (along - 0.5 * inner), sign * inner, 1.0 if 0.0 < along < steepest else 0.0
        else:
            value, first = loss(code, at, y[i], param), dloss(code, at, y[i], param)
            second = curvature(code, at, y[i], param)
        total += share * value
        second *= share
        slopes[i], bends[i] = share * first, second
        slope += share * first * q[i]
        bend += second * q[i] * q[i]
    return total, slope, bend


@njit(**JIT)
def hessian_of(rows, bends, row, out):
    """Set the lower triangle of ``out`` (width + 1, width + 1) to the Hessian of the mean loss; ``row`` holds zeros.

    Return the work, in visits of entries.
    """
    begin, end, indices, values, scales = rows
    width, visited = len(row) - 1, 0
    out[:, :] = 0.0
    for i in range(len(begin)):
        bend, scale = bends[i], scale_of(scales, i)
        if bend == 0.0:
            continue
        last, dense = out[width], 4 * (end[i] - begin[i]) > width
        visited += (end[i] - begin[i]) * (1 + (end[i] - begin[i]) // 4)
        last[width] += bend
        if dense:
            for j in range(begin[i], end[i]):
                row[np.uint32(indices[np.uint64(j)])] = scale * np.float64(values[np.uint64(j)])
        for j in range(begin[i], end[i]):
            u, x = np.int64(indices[np.uint64(j)]), bend * scale * np.float64(values[np.uint64(j)])
            line = out[u]
            last[u] += x
            if dense:
                for v in range(u + 1):
                    line[v] += x * row[v]
            else:
                x *= scale
                for k in range(begin[i], j + 1):
                    line[np.uint32(indices[np.uint64(k)])] += x * np.float64(values[np.uint64(k)])
        if dense:
            for j in range(begin[i], end[i]):
                row[np.uint32(indices[np.uint64(j)])] = 0.0
    return visited


@njit(**JIT)
def factorise(hessian, free, scale, column, out):
    """Set ``out`` to the Cholesky factor of the Hessian of the ``free`` parameters, scaled to a diagonal of one."""
    n = len(scale)
    for a in range(n):
        scale[a] = 1.0 / math.sqrt(max(hessian[a, a], 0.0) + LEAST * LEAST) if free[a] else 0.0
    for a in range(n):
        for b in range(a):
            out[a, b] = hessian[a, b] * scale[a] * scale[b]
        out[a, a] = 1.0 + RIDGE
    for k in range(n):
        pivot = math.sqrt(max(out[k, k], RIDGE))
        out[k, k] = pivot
        for a in range(k + 1, n):
            out[a, k] /= pivot
            column[a] = out[a, k]
        for a in range(k + 1, n):
            line, x = out[a], out[a, k]
            if x != 0.0:
                for b in range(k + 1, a + 1):
                    line[b] -= x * column[b]


@njit(**JIT)
def solve(factor, scale, g, out):
    """Set ``out`` to minus the solution for the right side ``g``; return their product over minus two, the gain."""
    n, size = len(g), 0.0
    for a in range(n):
        total = scale[a] * g[a]
        for b in range(a):
            total -= factor[a, b] * out[b]
        out[a] = total / factor[a, a]
        size += out[a] * out[a]
    for a in range(n - 1, -1, -1):
        out[a] /= factor[a, a]
        for b in range(a):
            out[b] -= factor[a, b] * out[a]
    for a in range(n):
        out[a] *= -scale[a]
    return size / 2.0


@inlined
def shrunk(w, g, h, l1):
    """The best value of a weight ``w`` with an l1 penalty, for gradient and curvature of the rest."""
    to = w - g / h
    return math.copysign(max(abs(to) - l1 / h, 0.0), to)


@njit(**JIT)
def next_length(t, slope, curvature, low, high):
    """The length to try after ``t``: Newton's for the slope, within what is known to be too short and too long."""
    guess = t - slope / curvature if curvature > 0.0 else math.inf
    if high == math.inf:
        return min(max(guess, 2.0 * t), 16.0 * t)
    margin = 0.05 * (high - low)
    return guess if low + margin < guess < high - margin else (low + high) / 2.0


@njit(**JIT)
def descend(rows, y, shares, code, param, l2, intercept, floor, skip, enough, work, x, room):
    """Take Newton steps with the whole Hessian from ``x``, which they change, until one promises ``enough``.

    The first must promise more than ``skip``; both are shares of the objective, or of ``floor`` if that is more.
    ``room`` is memory. Return the objective, what is left to gain, the entries visited (less than ``work`` if the steps
    have come to their end) and how many steps there were.
    """
    p, q, r, slopes, bends, g, step, scale, column, row, free, hessian, factor = room
    width = len(x) - 1
    spent = 0
    steps = 0
    small = 0
    entries, cubed = len(rows[2]) + len(p), (width + 1) ** 3 // 16 + 1
    margins(rows, x, p)
    objective, _, _ = derive(p, q, 0.0, y, shares, code, param, r, slopes, bends)
    square = total = 0.0
    for i in range(len(p)):
        total += shares[i]
    for u in range(width):
        square += x[u] * x[u]
        free[u] = True
    free[width] = intercept
    objective += l2 / 2.0 * square
    while True:
        unit = max(abs(objective), floor)
        g[:] = 0.0
        gather(rows, slopes, False, g)
        spent += entries
        for u in range(width):
            g[u] += l2 * x[u]
        if not intercept:
            g[width] = 0.0
        if steps > 0 and not is_flat(code):  # the Hessian before this step often shows that nothing is left
            gain = STALE * solve(factor, scale, g, step)
            if gain <= enough * unit:
                return objective, gain, spent, steps
        spent += hessian_of(rows, bends, row, hessian) + cubed
        for u in range(width):
            hessian[u, u] += l2
        if is_flat(code):
            hessian[width, width] = max(hessian[width, width], LEVEL * total)
        factorise(hessian, free, scale, column, factor)
        gain = solve(factor, scale, g, step)
        if not gain > (enough if steps else skip) * unit or spent >= work or steps >= MOST_STEPS:
            return objective, gain, spent, steps
        along = across = 0.0
        for u in range(width):
            along += x[u] * step[u]
            across += step[u] * step[u]
        margins(rows, step, q)
        t = 1.0
        low = 0.0
        high = math.inf
        then = objective
        for trial in range(TRIES):
            value, first, second = derive(p, q, t, y, shares, code, param, r, slopes, bends)
            then = value + l2 / 2.0 * (square + t * (2.0 * along + t * across))
            first += l2 * (along + t * across)
            lower = then < objective
            if lower and (abs(first) <= 2.0 * FLAT_ENOUGH * gain or (first < 0.0 and trial > 8)):
                break
            if lower and first < 0.0:
                low = t
            else:
                high = t
            t = next_length(t, first, second + l2 * across, low, high)
        spent += entries
        steps += 1
        if not then < objective:  # nothing is left but rounding
            return objective, gain, spent, steps
        for i in range(len(p)):
            p[i] = r[i]
        square = 0.0
        for u in range(width + 1):
            x[u] += t * step[u]
            square += x[u] * x[u] if u < width else 0.0
        small = small + 1 if objective - then < enough * unit else 0
        objective = then
        if small == FEW_GAINS:
            return objective, gain, spent, steps


@njit(**JIT)
def sweep(starts, entries, values, chosen, slopes, bends, l1, l2, intercept, x, moved):
    """Pass once over the ``chosen`` weights of ``x``, each of which goes to the minimum of a quadratic model.

    The model has the rows' ``slopes`` and ``bends`` (n,) where it was made, and ``moved`` (n,) is the change of the
    margins since. The intercept, which comes last, follows each weight, as if columns were centred. Return how far the
    model fell. Columns are those of a scipy CSC matrix.
    """
    rest = 0.0
    level = LEAST
    shift = 0.0
    fell = 0.0
    for i in range(len(slopes)):
        rest += slopes[i] + bends[i] * moved[i]
        level += bends[i]
    if intercept:
        shift, fell = -rest / level, rest * rest / level / 2.0
    for u in chosen:
        g = l2 * x[u]
        h = l2 + LEAST
        between = 0.0
        for j in range(starts[u], starts[u + 1]):
            i, value = np.uint32(entries[j]), np.float64(values[j])
            bend = value * bends[i]
            g += value * slopes[i] + bend * (moved[i] + shift)
            h += value * bend
            between += bend
        mean = between / level if intercept else 0.0
        h = max(h - mean * between, CENTRED * h)
        then = shrunk(x[u], g, h, l1)
        d = then - x[u]
        if d != 0.0:
            fell -= d * (g + h * d / 2.0) + l1 * (abs(then) - abs(x[u]))
            x[u] = then
            shift -= d * mean
            for j in range(starts[u], starts[u + 1]):
                moved[np.uint32(entries[j])] += d * np.float64(values[j])
    x[len(x) - 1] += shift
    for i in range(len(moved)):
        moved[i] += shift
    return fell


@njit(**JIT)
def derive_classes(p, q, t, y, shares, code, param, out, slopes, bends):
    """Do :func:`derive` for softmax: margins and slopes are (n, K), and ``bends`` become the classes' probabilities."""
    total = slope = bend = 0.0
    for i in range(len(p)):
        top = -math.inf
        sum_ = 0.0
        mean = 0.0
        squares = 0.0
        label = np.int64(y[i])
        for k in range(p.shape[1]):
            out[i, k] = p[i, k] + t * q[i, k] if t != 0.0 else p[i, k]
            top = max(top, out[i, k])
        for k in range(p.shape[1]):
            bends[i, k] = math.exp(out[i, k] - top)
            sum_ += bends[i, k]
        for k in range(p.shape[1]):
            bends[i, k] /= sum_
            slopes[i, k] = shares[i] * (bends[i, k] - (1.0 if k == label else 0.0))
            slope += slopes[i, k] * q[i, k]
            mean += bends[i, k] * q[i, k]
            squares += bends[i, k] * q[i, k] * q[i, k]
        bend += shares[i] * (squares - mean * mean)
        total += shares[i] * (top + math.log(sum_) - out[i, label])
    return total, slope, bend


@njit(**JIT)
def bend_classes(bends, shares, change):
    """Set ``change`` (n, K) of the margins to that of the slopes."""
    for i in range(len(bends)):
        mean = 0.0
        for k in range(bends.shape[1]):
            mean += bends[i, k] * change[i, k]
        for k in range(bends.shape[1]):
            change[i, k] = shares[i] * bends[i, k] * (change[i, k] - mean)


@njit(**JIT)
def gather_classes(rows, slopes, squared, out):
    """Do :func:`gather` for ``slopes`` (n, K) and ``out`` (width + 1, K)."""
    begin, end, indices, values, scales = rows
    classes = slopes.shape[1]
    for i in range(len(begin)):
        scale = scale_of(scales, i)
        for j in range(begin[i], end[i]):
            x, u = scale * np.float64(values[np.uint64(j)]), np.uint32(indices[np.uint64(j)])
            for k in range(classes):
                out[u, k] += x * slopes[i, k] * (x if squared else 1.0)
        for k in range(classes):
            out[len(out) - 1, k] += slopes[i, k]


@njit(**JIT)
def ascend(rows, y, kinks, most, squares, alpha, w, state, order, active, l2, rho, limits):
    """Solve for one dual variable ``alpha`` after another (Hsieh et al. 2008, algorithm 3), with an intercept.

    Return how many rows are still active and how many entries were visited. Rows whose ``alpha`` is at a bound, with a
    derivative beyond those of the pass before (``limits``), leave the first ``active`` of ``order``. ``w`` and the
    intercept ``state[0]`` follow; ``limits`` becomes this pass's largest and least derivative. A row's loss is
    ``max(0, kinks - y p)``, times ``most``.
    """
    begin, end, indices, values, scales = rows
    largest = -math.inf
    least = math.inf
    visited = 0
    place = 0
    b = state[0]
    while place < active:
        i = np.uint64(order[place])
        scale = scale_of(scales, i)
        p = scale * dot_row(indices, values, begin[i], end[i], w) + b
        visited += end[i] - begin[i]
        slope, a = y[i] * p - kinks[i], alpha[i]  # of what is minimised, minus the dual
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
            w[np.uint32(indices[np.uint64(j)])] += step * np.float64(values[np.uint64(j)])
        b += change * rho
        visited += end[i] - begin[i]
    state[0] = b
    limits[0] = largest
    limits[1] = least
    return active, visited
