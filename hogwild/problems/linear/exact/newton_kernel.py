"""Newton's method for few features and one margin: the Hessian is held whole, and one call takes all steps.

On some hundred rows conjugate gradients in NumPy spend their time around the sums (``ending.py``). Here a step is one
pass for the derivatives, a Cholesky factor of ``features^2`` numbers, and a pass for each length that is tried.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT, inlined
from hogwild.problems.linear.exact.gradient_kernel import BENT_HINGE, LEAST, curvature, mean_loss, slope

ONE = np.uint64(1)
FLAT = 1e-4  # least curvature along the intercept, over the sum of the shares, of bent losses, which may have none
RIDGE = 1e-11  # share of its diagonal that is added to the Hessian, so that columns may depend on each other,
DAMPED, MOST_DAMPED = 1e-4, 1.0  # and after a step of which no length lowered the objective (Marquardt)
MOST = 100  # steps
ENOUGH = 0.2  # share of what the model promises that a step must bring (Armijo), or a shorter one is tried
SHORTEST = 1e-4  # length of a step below which none is taken


@inlined
def factor_of(scales, i):
    return np.float64(scales[i]) if len(scales) else 1.0


@njit(**JIT)
def margins_of(begin, end, indices, values, scales, x, out):
    """Set ``out`` (n,) to the rows times ``x`` (width + 1,), whose last entry is the intercept."""
    for i in range(len(begin)):
        first, second, j = 0.0, 0.0, begin[i]
        while j + 1 < end[i]:
            k = np.uint64(j)
            first += np.float64(values[k]) * x[np.uint32(indices[k])]
            second += np.float64(values[k + ONE]) * x[np.uint32(indices[k + ONE])]
            j += 2
        if j < end[i]:
            first += np.float64(values[np.uint64(j)]) * x[np.uint32(indices[np.uint64(j)])]
        out[i] = x[len(x) - 1] + (first + second) * factor_of(scales, i)


@njit(**JIT)
def derivatives(begin, end, indices, values, scales, code, p, y, shares, param, floor, g, hessian, row):
    """Add the rows' part to the gradient ``g`` (width + 1,) and to the Hessian's lower triangle.

    Every row has ``floor`` more curvature than it has. ``row`` (width + 1,) holds zeros, and a row's values while it is
    added.
    """
    last = len(g) - 1
    for i in range(len(begin)):
        factor = factor_of(scales, i)
        first = shares[i] * slope(code, p[i], y[i], param)
        second = shares[i] * (curvature(code, p[i], y[i], param) + floor)
        if first == 0.0 and second == 0.0:
            continue
        g[last] += first
        for j in range(begin[i], end[i]):
            k = np.uint64(j)
            g[np.uint32(indices[k])] += first * factor * np.float64(values[k])
        if second == 0.0:
            continue
        row[last] = 1.0
        for j in range(begin[i], end[i]):
            k = np.uint64(j)
            row[np.uint32(indices[k])] += factor * np.float64(values[k])
        for j in range(begin[i], end[i] + 1):
            u = np.int64(indices[np.uint64(j)]) if j < end[i] else last
            x, line = second * row[u], hessian[u]
            for v in range(u + 1):
                line[v] += x * row[v]
        for j in range(begin[i], end[i]):
            row[np.uint32(indices[np.uint64(j)])] = 0.0


@njit(**JIT)
def solve(hessian, g, step, intercept, ridge):
    """Set ``step`` to minus the solution of ``hessian @ step = g``; the Hessian becomes its Cholesky factor.

    It is scaled to a diagonal of one first, so that columns of any scale are alike.
    """
    n = len(g)
    if not intercept:
        g[n - 1] = 0.0
        hessian[n - 1, :] = 0.0
    for a in range(n):
        step[a] = 1.0 / math.sqrt(hessian[a, a] + LEAST * LEAST)
    for a in range(n):
        for b in range(a):
            hessian[a, b] *= step[a] * step[b]
        hessian[a, a] = 1.0 + ridge
        g[a] *= step[a]
    for a in range(n):
        for b in range(a + 1):
            total = hessian[a, b]
            for k in range(b):
                total -= hessian[a, k] * hessian[b, k]
            hessian[a, b] = total / hessian[b, b] if a > b else math.sqrt(max(total, RIDGE))
    for a in range(n):
        for b in range(a):
            g[a] -= hessian[a, b] * g[b]
        g[a] /= hessian[a, a]
    size = 0.0
    for a in range(n - 1, -1, -1):
        size += g[a] * g[a]
        for b in range(a + 1, n):
            g[a] -= hessian[b, a] * g[b]
        g[a] /= hessian[a, a]
    for a in range(n):
        step[a] *= -g[a]
    return size


@njit(**JIT)
def descend(
    begin,
    end,
    indices,
    values,
    scales,
    y,
    shares,
    code,
    param,
    l2,
    intercept,
    least,
    share,
    x,
    p,
    q,
    g,
    step,
    row,
    hessian,
):
    """Take Newton steps from ``x`` (width + 1,), which they change, until one gains less than a ``share``.

    Return 0 if none was taken, since the first one's model falls by no more than ``least``; 2 if they have come to
    that end, and 1 if not. ``p`` and ``q`` (n,), ``g``, ``step``, ``row`` (zeros) and ``hessian`` are work space.
    """
    width, total, square, now, ridge = len(x) - 1, shares.sum(), 0.0, 0.0, RIDGE
    for u in range(width):
        square += x[u] * x[u]
    margins_of(begin, end, indices, values, scales, x, p)
    for taken in range(MOST):
        hessian[:, :] = 0.0
        g[width] = 0.0
        for u in range(width):
            g[u], hessian[u, u] = l2 * x[u], l2
        floor = ridge if code >= BENT_HINGE and ridge >= DAMPED else 0.0  # where it is 1, whole steps never fail
        derivatives(begin, end, indices, values, scales, code, p, y, shares, param, floor, g, hessian, row)
        hessian[width, width] = max(hessian[width, width], (FLAT if code >= BENT_HINGE else LEAST) * total)
        fall = solve(hessian, g, step, intercept, ridge) / 2.0
        if taken == 0:
            if not fall > least:
                return 0
            now = mean_loss(code, p, y, shares, param) + l2 / 2.0 * square
        if not fall > share * abs(now):
            if ridge < DAMPED:
                return 2
            ridge = 0.01 * ridge
            continue
        margins_of(begin, end, indices, values, scales, step, q)
        along = across = 0.0
        for u in range(width):
            along += x[u] * step[u]
            across += step[u] * step[u]
        length, last, then = 1.0, 0.0, now
        while length > SHORTEST:
            for i in range(len(p)):
                p[i] += (length - last) * q[i]
            then = mean_loss(code, p, y, shares, param)
            then += l2 / 2.0 * (square + length * (2.0 * along + length * across))
            if then < now - ENOUGH * length * fall:
                break
            last, length = length, length / 4.0
        if not then < now:
            if ridge >= MOST_DAMPED:
                return 1
            ridge = max(16.0 * ridge, DAMPED)
            for i in range(len(p)):
                p[i] -= last * q[i]
            continue
        for u in range(width + 1):
            x[u] += length * step[u]
        square += length * (2.0 * along + length * across)
        if length == 1.0 and ridge < DAMPED and now - then < share * abs(now):
            return 2
        ridge = max(0.125 * ridge, RIDGE) if length == 1.0 else ridge
        now = then
    return 1
