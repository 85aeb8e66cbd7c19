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

import math

import numpy as np

from hogwild.kernels.losses import HINGE, QUANTILE
from hogwild.problems.linear.optimum import kernel
from hogwild.problems.linear.optimum.newton import CALL, TINY, Descent, Newton, balance, highest, penalty
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


def lowered(sums: LossSums, newton: Newton, x: np.ndarray, l1: float, l2: float, work: float, enough: float) -> Descent:
    """Parameters after steps of a loss with kinks, until they are within a share ``enough`` of the optimum."""
    value = sums.derive(p := sums.margins(x), p, 0.0)[0] + penalty(x, l1, l2)
    if newton.whole or l1 > 0.0 or l2 == 0.0 or DUAL_PASSES * sums.rows.nnz > work:
        return _bent(sums, newton, x, value, l1, l2, work, enough)
    ascent = _Ascent(sums, l2, newton, enough)
    spent = ascent.run(work)
    if ascent.value < value:
        x, value = ascent.best, ascent.value
    return Descent(x, value, value - ascent.lower, spent, 1)


def _bent(
    sums: LossSums, newton: Newton, x: np.ndarray, value: float, l1: float, l2: float, work: float, enough: float
) -> Descent:
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
    bent = sums.bent()
    for _ in range(BENDS):
        bent.targets = y / unit - m
        bent.param = sums.param if sums.code == QUANTILE else epsilon / unit
        fit = newton.lower(bent, x / unit, l1, l2 * unit, work - spent, inner, 0.0, newton.floor / unit)
        x = fit.x * unit
        spent = spent + fit.spent
        steps = steps + fit.steps
        p = sums.margins(x)
        bent_minimum = unit * (fit.value - fit.gap - float(shares @ np.square(m)) / 2.0)  # if the gap is right
        bent.derive(p / unit, p, 0.0)
        m = bent.slopes / np.where(shares > 0.0, shares, 1.0)
        if l1 + l2 > 0.0:
            lower = max(lower, bound(sums, bent.slopes, l1, l2, newton.intercept))
        cost = penalty(x, l1, l2)
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


class _Ascent:
    """Dual ascent, and the best primal solution that was seen on the way."""

    def __init__(self, sums: LossSums, l2: float, newton: Newton, enough: float) -> None:
        n = len(sums.rows)
        begin, end, indices, values, scales = sums.entries
        squares = lengths_of(sums.rows) * (np.square(scales, dtype=np.float64) if len(scales) else 1.0)
        self.rho = 0.0 if not newton.intercept else REACH * float(squares.mean()) / l2
        if sums.code == HINGE:
            self.times = 1
            self.y = sums.targets.copy()
            self.kinks = np.ones(n)
            self.size = 1.0
        else:
            y = sums.targets
            self.times = 2
            self.y = np.repeat((1.0, -1.0), n)
            self.kinks = np.append(y, -y) - half_width(sums)
            self.size = float(np.abs(y - np.median(y)).mean())
        begin, end, scales = (np.tile(each, self.times) for each in (begin, end, scales))
        for each in (begin, end, scales):
            each.flags.writeable = False
        self.squares, self.shares = (np.tile(each, self.times) for each in (squares, sums.shares))
        if sums.code == QUANTILE:
            self.shares *= np.repeat((sums.param, 1.0 - sums.param), n)
        self.entries = begin, end, indices, values, scales
        self.sums = sums
        self.l2 = l2
        self.newton = newton
        self.enough = enough
        self.alpha = np.zeros(len(self.y))
        self.w = np.zeros(sums.rows.width)
        self.b = np.zeros(1)
        self.best = np.append(self.w, self.b)
        self.value = math.inf
        self.lower = -math.inf

    def run(self, work: float) -> float:
        """Ascend until the bound is near or ``work`` entries were visited; return how many were."""
        order = np.flatnonzero(self.shares > 0.0)
        random = np.random.default_rng(0)
        tight = TIGHT * self.size
        active = len(order)
        spent = 0.0
        next_look = LOOKS[0]
        limits = np.array((math.inf, -math.inf))
        unit = self.sums.rows.nnz + CALL
        while spent < work:
            random.shuffle(order[:active])
            problem = self.entries, self.y, self.kinks, self.shares, self.squares, self.alpha, self.w, self.b
            active, visited = kernel.ascend(*problem, order, active, self.l2, self.rho, limits)
            self.b[0] += self.rho * float(self.alpha @ self.y)
            spent += visited + active + CALL
            if active == 0 or not limits[0] - limits[1] > tight:
                if active == len(order) and (tight < TINY or self._look()):
                    return spent
                tight *= TIGHTER if active == len(order) else 1.0
                active, limits[:] = len(order), (math.inf, -math.inf)
            else:
                limits[:] = limits[0] if limits[0] > 0.0 else math.inf, limits[1] if limits[1] < 0.0 else -math.inf
            if spent > next_look * unit:
                if self._look():
                    return spent
                next_look = spent / unit + max(LOOKS[0], LOOKS[1] * spent / unit)
                if spent > LATE * unit:
                    active, limits[:] = len(order), (math.inf, -math.inf)
        self._look()
        return spent

    def _look(self) -> bool:
        """Evaluate these weights, and longer ones, with the best intercept; say whether the bound is near."""
        y = self.y
        before = math.inf
        free = self.newton.intercept
        p = np.tile(self.sums.margins(np.append(self.w, 0.0)), self.times)
        b = best_intercept(y * self.kinks - p, y, self.shares) if free else 0.0
        margins, square = y * (p + b), self.l2 / 2.0 * float(self.w @ self.w)
        for factor in LONGER:
            value = float(self.shares @ np.maximum(self.kinks - factor * margins, 0.0)) + factor**2 * square
            if value < self.value:
                self.best = factor * np.append(self.w, b)
                self.value = value
            if value > before:
                break
            before = value
        slopes = -(self.alpha * y).reshape(self.times, -1).sum(axis=0)
        self.lower = max(self.lower, bound(self.sums, slopes, 0.0, self.l2, free))
        return self.value - self.lower <= self.enough * max(self.value, self.newton.floor)


def best_intercept(kinks: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    """The intercept with the least sum of hinges, which fall to their kinks (n,) if ``y`` is 1 or rise if it is -1."""
    order = np.argsort(kinks)
    slopes = np.cumsum(shares[order]) - shares[y > 0].sum()
    return float(kinks[order][min(int(np.searchsorted(slopes, 0.0)), len(y) - 1)])


def bound(sums: LossSums, slopes: np.ndarray, l1: float, l2: float, intercept: bool) -> float:
    """Lower bound of the objective of a loss with kinks, by dual variables: slopes that the losses may have (n,).

    Each slope is multiplied by its row's share.
    """
    slopes = slopes * balance(slopes) if intercept else slopes
    height = -float(slopes @ sums.targets) - half_width(sums) * float(np.abs(slopes).sum())
    return highest(height, sums.gather(slopes)[:-1], l1, l2)


def half_width(sums: LossSums) -> float:
    """Half-width of the insensitive tube; 0 for hinge and quantile."""
    return 0.0 if sums.code in (HINGE, QUANTILE) else sums.param
