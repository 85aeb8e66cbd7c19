"""Losses with kinks: parabolas that replace the kinks for Newton's method, and lower bounds from dual variables.

Each row has a multiplier ``m``, a subgradient of its loss. At a distance ``r`` from the kink the bent loss is the
maximum over subgradients ``s`` of ``s r - epsilon |s| - unit / 2 (s - m)^2``. Its maximiser becomes the next ``m``
(method of multipliers), so the parabolas need not become narrow. Measured in ``unit`` each has curvature one. Only
epsilon-insensitive loss has an ``epsilon``. The minimum of the bent objective is a lower bound of the optimum.

With many columns and an l2 penalty, coordinate ascent over the dual is faster. Epsilon-insensitive and quantile losses
are sums of two hinges, so each row appears twice. A free intercept constrains the dual variables jointly. A proximal
term on the intercept removes that constraint, and each pass starts at the last intercept (proximal point method).

References
----------
Hestenes (1969), Multiplier and gradient methods, JOTA 4.
Rockafellar (1976), Augmented Lagrangians and applications of the proximal point algorithm in convex programming.
Hsieh, Chang, Lin, Keerthi, Sundararajan (2008), A dual coordinate descent method for large-scale linear SVM, ICML.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from hogwild.data.rows.container import readonly
from hogwild.kernels.losses import HINGE, QUANTILE
from hogwild.problems.linear.optimum import kernel
from hogwild.problems.linear.optimum.newton import CALL, TINY, Descent, Newton, balance, highest
from hogwild.problems.linear.optimum.sums import LossSums
from hogwild.problems.linear.rows import lengths_of

UNIT, NARROWER = 4.0, 0.5  # width of the first parabolas, over that of the loss, and the factor on it after a bend
USUAL = 1.0  # width after some bends: where parabolas are as wide, multipliers do the rest
FALLEN = 0.25  # share of the gap that a bend may leave; after one that leaves more the tolerance is tightened
TIGHTEST = 1e-10  # tolerance, as a share of the objective, at which parabolas are made narrower instead
BENDS = 60
SLIGHT = 1e-4  # share of the objective up to which a penalty is too weak for a bound by dual variables
LOOSE = 3e-3  # largest gain of the last Newton step on a bent loss, as a share of the objective
CLOSE = 0.05  # the same as a share of the gap
DUAL_PASSES = 20  # passes without which dual ascent is of no use
REACH = 0.01  # the intercept counts as a row of this squared length, over the mean row's
TIGHT = 1e-3  # spread of the derivatives, over a typical loss, at which dropped rows return
TIGHTER = 0.1  # factor by which that difference, and the tolerance of a bend, are tightened
LATE = 100.0  # passes after which rows left out come back at each look, since violations may fall slowly
LONGER = 1.0, *(1 + 2.0**k for k in range(-11, 0))  # factors on weights whose rows still fall short of their kinks
LOOKS = 5.0, 0.25  # passes between two looks at the objective, and share of all passes so far


def lowered(newton: Newton, x: np.ndarray, work: float, enough: float) -> Descent:
    """Parameters after steps of a loss with kinks, until they are within a share ``enough`` of the optimum."""
    sums = newton.sums
    value = sums.derive(p := sums.margins(x), p, 0.0)[0] + newton.penalty(x)
    if newton.whole or newton.l1 > 0.0 or newton.l2 == 0.0 or DUAL_PASSES * sums.rows.nnz > work:
        return _bent(newton, x, value, work, enough)
    return _ascended(newton, x, value, work, enough)


def _bent(newton: Newton, x: np.ndarray, value: float, work: float, enough: float) -> Descent:
    sums = newton.sums
    y = sums.targets
    shares = sums.shares
    epsilon = half_width(sums)
    size = 1.0
    if sums.code != HINGE:
        size = max(float(shares @ np.abs(sums.p - y)) / max(float(shares.sum()), TINY), epsilon) or 1.0
    unit = UNIT * size
    m = -0.5 * y if sums.code == HINGE else np.zeros(len(y))
    best = x
    lowest = value
    lower = -math.inf
    spent = 0.0
    steps = 0
    gap = math.inf
    inner = loosest = LOOSE
    smooth = copy.copy(newton)
    bent = smooth.sums = sums.bent()
    for _ in range(BENDS):
        bent.targets = y / unit - m
        bent.param = sums.param if sums.code == QUANTILE else epsilon / unit
        smooth.l2 = newton.l2 * unit
        smooth.floor = newton.floor / unit
        fit = smooth.lower(x / unit, work - spent, inner)
        x = fit.x * unit
        spent = spent + fit.spent
        steps = steps + fit.steps
        p = sums.margins(x)
        bent_minimum = unit * (fit.value - fit.gap - float(shares @ np.square(m)) / 2.0)  # if the gap is right
        bent.derive(p / unit, p, 0.0)
        m = bent.slopes / np.where(shares > 0.0, shares, 1.0)
        if newton.l1 + newton.l2 > 0.0:
            lower = max(lower, bound(newton, bent.slopes))
        cost = newton.penalty(x)
        value = sums.derive(p, p, 0.0)[0] + cost
        if cost <= SLIGHT * value:
            lower = max(lower, bent_minimum)
        if value < lowest:
            best, lowest = x, value
        last, gap = gap, max(lowest - lower, 0.0)
        if gap <= enough * max(lowest, newton.floor) or spent >= work:
            break
        if gap > FALLEN * last:
            if min(fit.gap / max(abs(fit.value), TINY), loosest) <= TIGHTEST:
                unit *= NARROWER
            else:
                loosest *= TIGHTER
        unit = min(unit, max(NARROWER * unit, USUAL * size))
        inner = min(loosest, CLOSE * gap / max(lowest, newton.floor))
    return Descent(best, lowest, gap, spent, steps)


def _ascended(newton: Newton, x: np.ndarray, start: float, work: float, enough: float) -> Descent:
    """The best solution on the way of dual ascent, which ends when the bound is near or ``work`` entries were visited.

    It is ``x`` if the objective ``start`` there is lower.
    """
    sums, l2, free = newton.sums, newton.l2, newton.intercept
    y = sums.targets
    n = len(y)
    begin, end, indices, values, scales = sums.entries
    squares = lengths_of(sums.rows) * (np.square(scales, dtype=np.float64) if len(scales) else 1.0)
    rho = 0.0 if not free else REACH * float(squares.mean()) / l2
    shares = sums.shares
    kinks = np.ones(n)
    times = 1  # hinges that a row's loss is the sum of
    size = 1.0
    if sums.code != HINGE:
        size = float(np.abs(y - np.median(y)).mean())
        times = 2
        kinks = np.append(y, -y) - half_width(sums)
        y = np.repeat((1.0, -1.0), n)
        begin, end, scales, squares, shares = (np.tile(each, times) for each in (begin, end, scales, squares, shares))
    if sums.code == QUANTILE:
        shares *= np.repeat((sums.param, 1.0 - sums.param), n)
    entries = readonly(begin), readonly(end), indices, values, readonly(scales)
    alpha = np.zeros(len(y))
    w = np.zeros(sums.rows.width)
    b = np.zeros(1)
    best = np.append(w, b)
    lowest = math.inf
    lower = -math.inf

    def is_near() -> bool:
        """Evaluate these weights, and longer ones, with the best intercept; say whether the bound is near."""
        nonlocal best, lowest, lower
        before = math.inf
        p = np.tile(sums.margins(np.append(w, 0.0)), times)
        intercept = best_intercept(y * kinks - p, y, shares) if free else 0.0
        margins, square = y * (p + intercept), l2 / 2.0 * float(w @ w)
        for factor in LONGER:
            value = float(shares @ np.maximum(kinks - factor * margins, 0.0)) + factor**2 * square
            if value < lowest:
                best = factor * np.append(w, intercept)
                lowest = value
            if value > before:
                break
            before = value
        slopes = -(alpha * y).reshape(times, -1).sum(axis=0)
        lower = max(lower, bound(newton, slopes))
        return lowest - lower <= enough * max(lowest, newton.floor)

    order = np.flatnonzero(shares > 0.0)
    random = np.random.default_rng(0)
    tight = TIGHT * size
    active = len(order)
    spent = 0.0
    next_look = LOOKS[0]
    limits = np.array((math.inf, -math.inf))
    unit = sums.rows.nnz + CALL
    while spent < work:
        random.shuffle(order[:active])
        active, visited = kernel.ascend(entries, y, kinks, shares, squares, alpha, w, b, order, active, l2, rho, limits)
        b[0] += rho * float(alpha @ y)
        spent += visited + active + CALL
        if active == 0 or not limits[0] - limits[1] > tight:
            if active == len(order) and (tight < TINY or is_near()):
                break
            tight *= TIGHTER if active == len(order) else 1.0
            active, limits[:] = len(order), (math.inf, -math.inf)
        else:
            limits[:] = limits[0] if limits[0] > 0.0 else math.inf, limits[1] if limits[1] < 0.0 else -math.inf
        if spent > next_look * unit:
            if is_near():
                break
            next_look = spent / unit + max(LOOKS[0], LOOKS[1] * spent / unit)
            if spent > LATE * unit:
                active, limits[:] = len(order), (math.inf, -math.inf)
    else:
        is_near()
    if lowest < start:
        x, start = best, lowest
    return Descent(x, start, start - lower, spent, 1)


def best_intercept(kinks: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    """The intercept with the least sum of hinges, which fall to their kinks (n,) if ``y`` is 1 or rise if it is -1."""
    order = np.argsort(kinks)
    slopes = np.cumsum(shares[order]) - shares[y > 0].sum()
    return float(kinks[order][min(int(np.searchsorted(slopes, 0.0)), len(y) - 1)])


def bound(newton: Newton, slopes: np.ndarray) -> float:
    """Lower bound of the objective of a loss with kinks, by dual variables: slopes that the losses may have (n,).

    Each slope is multiplied by its row's share.
    """
    sums = newton.sums
    slopes = slopes * balance(slopes) if newton.intercept else slopes
    height = -float(slopes @ sums.targets) - half_width(sums) * float(np.abs(slopes).sum())
    return highest(newton, height, sums.gather(slopes)[:-1])


def half_width(sums: LossSums) -> float:
    """Half-width of the insensitive tube; 0 for hinge and quantile."""
    return 0.0 if sums.code in (HINGE, QUANTILE) else sums.param
