"""Derivatives of the evaluator's losses in float64, their sums by feature, and descent over one coordinate at a time.

Like the evaluator's losses these are a second implementation, so that the gradient reported at the end of a run shares
nothing with the kernel that trained. They serve the two things done once, after the last epoch: a check of the
gradient on all rows, and the last steps of an l1 penalty (``settle.py``).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.loss_kernel import loss
from hogwild.kernels.losses import POISSON_CAP
from hogwild.kernels.options import JIT
from hogwild.problems.linear.objective_kernel import above_zero, cross_entropy

# hinge and epsilon-insensitive loss with parabolas of curvature one for their kinks; other codes are the evaluator's
BENT_HINGE, BENT_EPSILON = 10, 11
LEAST = 1e-12  # curvature of a coordinate along which the model of the loss is flat


@njit(**JIT)
def along(code, p, y, param):
    """How far the margin ``p`` is along the parabola of a bent loss, from 0 to 1 or beyond, and the sign of its slope.

    That of hinge begins at the target ``y``, whose sign is the label, and those of the other loss ``param`` from it.
    """
    r = p - y
    if code == BENT_HINGE:
        sign = -math.copysign(1.0, y)
        return sign * r, sign
    return abs(r) - param, math.copysign(1.0, r)


@njit(**JIT)
def slope(code, p, y, param):
    """Derivative of ``objective_kernel.loss`` in the margin ``p``; a subgradient at a kink."""
    z = y * p
    if code == 0:
        return -y / (1.0 + math.exp(min(z, 700.0)))
    if code == 1:
        return -y if z < 1.0 else 0.0 * z
    if code == 2:
        return -2.0 * y * above_zero(1.0 - z)
    if code == 3:
        return -2.0 * y * min(above_zero(1.0 - z), 2.0)
    if code == 4:
        return -y if z < 0.0 else 0.0 * z
    r = p - y
    if code == 5:
        return r
    if code == 6:
        return max(-param, min(r, param))
    if code == 7:
        return math.copysign(1.0, r) if abs(r) > param else 0.0 * r
    if code >= BENT_HINGE:
        t, sign = along(code, p, y, param)
        return sign * min(above_zero(t), 1.0)
    if code == 8:
        return math.copysign(2.0 * above_zero(abs(r) - param), r)
    return math.exp(min(p, POISSON_CAP)) - y


@njit(**JIT)
def curvature(code, p, y, param):
    """Second derivative of a smooth loss in the margin, where it has one.

    Beyond the bends of the Huber losses it is zero, and a model with it has no minimum there. It is then that of the
    parabola which touches the loss here and has its minimum there, as in iteratively reweighted least squares.
    """
    z, r = y * p, p - y
    if code == 0:
        t = math.exp(-abs(z))
        return t / ((1.0 + t) * (1.0 + t))
    if code == 2:
        return 2.0 if z < 1.0 else 0.0
    if code == 3:
        return 4.0 / (1.0 - z) if z < -1.0 else 2.0 if z < 1.0 else 0.0
    if code == 5:
        return 1.0
    if code == 6:
        return 1.0 if abs(r) <= param else param / abs(r)
    if code == 8:
        return 2.0 if abs(r) > param else 0.0
    if code >= BENT_HINGE:
        return 1.0 if 0.0 < along(code, p, y, param)[0] < 1.0 else 0.0
    return math.exp(p) if p < POISSON_CAP else 0.0


@njit(**JIT)
def slopes(code, margins, targets, shares, param, out):
    """Set ``out`` (n,) to the derivatives of the rows' losses, times each row's share of the mean."""
    for i in range(len(margins)):
        out[i] = shares[i] * slope(code, margins[i], targets[i], param)


@njit(**JIT)
def curvatures(code, margins, targets, shares, param, out):
    """Set ``out`` (n,) to the second derivatives of the rows' losses, times each row's share of the mean."""
    for i in range(len(margins)):
        out[i] = shares[i] * curvature(code, margins[i], targets[i], param)


@njit(**JIT)
def mean_loss(code, margins, targets, shares, param):
    """Sum of the rows' losses, times their shares."""
    total = 0.0
    for i in range(len(margins)):
        p, y = margins[i], targets[i]
        if code >= BENT_HINGE:
            t = above_zero(along(code, p, y, param)[0])
            total += shares[i] * (t - 0.5 if t >= 1.0 else 0.5 * t * t)
        else:
            total += shares[i] * loss(code, p, y, param)
    return total


@njit(**JIT)
def mean_cross_entropy(margins, targets, shares):
    """Sum of the rows' softmax losses, times their shares."""
    total = 0.0
    for i in range(len(margins)):
        total += shares[i] * cross_entropy(margins[i], np.int64(targets[i]))
    return total


@njit(**JIT)
def softmax_slopes(margins, targets, shares, out):
    """Set ``out`` (n, K) to the derivatives of the cross-entropy in all margins, times each row's share."""
    for i in range(len(margins)):
        top, total = -math.inf, 0.0
        for k in range(margins.shape[1]):
            top = max(top, margins[i, k])
        for k in range(margins.shape[1]):
            out[i, k] = math.exp(margins[i, k] - top)
            total += out[i, k]
        for k in range(margins.shape[1]):
            out[i, k] = shares[i] * (out[i, k] / total - (1.0 if k == np.int64(targets[i]) else 0.0))


@njit(**JIT)
def by_feature(begin, end, indices, values, scales, slopes, bends, total, squares):
    """Add ``slope * x`` of every entry to ``total`` (width, A), and ``bend * x^2`` to ``squares`` (width, B).

    ``slopes`` are (n, A) and ``bends`` (n, B); either may have no column.
    """
    one, four = slopes.shape[1] == 1 and bends.shape[1] == 0, slopes.shape[1] == 3 and bends.shape[1] == 1
    for i in range(len(begin)):
        scale = np.float64(scales[i]) if len(scales) else 1.0
        if one:  # these two are most of the calls, and loops over few columns cost more than their sums
            slope = scale * slopes[i, 0]
            for j in range(begin[i], end[i]):
                total[np.uint32(indices[np.uint64(j)]), 0] += np.float64(values[np.uint64(j)]) * slope
            continue
        if four:
            first, second, third = scale * slopes[i, 0], scale * slopes[i, 1], scale * slopes[i, 2]
            bend = scale * scale * bends[i, 0]
            for j in range(begin[i], end[i]):
                x, u = np.float64(values[np.uint64(j)]), np.uint32(indices[np.uint64(j)])
                total[u, 0] += x * first
                total[u, 1] += x * second
                total[u, 2] += x * third
                squares[u, 0] += x * x * bend
            continue
        for j in range(begin[i], end[i]):
            x, u = scale * np.float64(values[np.uint64(j)]), np.int64(indices[np.uint64(j)])
            for k in range(slopes.shape[1]):
                total[u, k] += x * slopes[i, k]
            for k in range(bends.shape[1]):
                squares[u, k] += x * x * bends[i, k]


@njit(**JIT)
def count_places(begin, end, indices, places, starts):
    """Add to ``starts[place + 1]`` the entries of each feature that has a place (not -1)."""
    for i in range(len(begin)):
        for j in range(begin[i], end[i]):
            place = places[np.int64(indices[np.uint64(j)])]
            if place >= 0:
                starts[place + 1] += 1


@njit(**JIT)
def fill_columns(begin, end, indices, values, scales, places, following, rows, entries):
    """Store the entries of the features that have a place column by column; ``following`` are the columns' starts."""
    for i in range(len(begin)):
        scale = np.float64(scales[i]) if len(scales) else 1.0
        for j in range(begin[i], end[i]):
            place = places[np.int64(indices[np.uint64(j)])]
            if place >= 0:
                at = following[place]
                rows[at], entries[at] = i, scale * np.float64(values[np.uint64(j)])
                following[place] = at + 1


@njit(**JIT)
def sweep(starts, rows, entries, slopes, bends, curved, l1, l2, w, moved, intercept):
    """Pass once over the weights ``w`` (features,), each of which goes to the minimum of a model of the objective.

    The model is quadratic in the margins, with the rows' derivatives ``slopes`` and ``bends`` (n,) where they began and
    ``moved`` (n,) their change since. ``curved`` (features,) are the curvatures of the loss, and ``intercept`` says
    whether there is one. Return how far the model fell, and by how much the intercept changed.
    """
    fell, change = 0.0, 0.0
    for u in range(len(w)):
        g, now = 0.0, w[u]
        for j in range(starts[u], starts[u + 1]):
            i = rows[j]
            g += entries[j] * (slopes[i] + bends[i] * moved[i])
        h = curved[u] + l2 + LEAST
        g += l2 * now
        free = now - g / h
        then = math.copysign(above_zero(abs(free) - l1 / h), free)
        d = then - now
        if d != 0.0:
            w[u] = then
            fell -= d * (g + h * d / 2.0) + l1 * (abs(then) - abs(now))
            for j in range(starts[u], starts[u + 1]):
                moved[rows[j]] += d * entries[j]
    if intercept:
        g, h = 0.0, LEAST
        for i in range(len(slopes)):
            g += slopes[i] + bends[i] * moved[i]
            h += bends[i]
        change = -g / h
        fell += g * g / h / 2.0
        for i in range(len(moved)):
            moved[i] += change
    return fell, change


@njit(**JIT)
def curved(starts, rows, entries, bends, out):
    """Set ``out`` (features,) to the curvature of the mean loss along each weight."""
    for u in range(len(out)):
        total = 0.0
        for j in range(starts[u], starts[u + 1]):
            total += bends[rows[j]] * entries[j] * entries[j]
        out[u] = total
