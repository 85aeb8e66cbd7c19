"""Exact steps of losses with kinks, and the bound of their optimum that any dual solution gives.

Coordinate ascent over the dual is tried first; each class has a thread. It is slow where columns are of very different
scales, so if rows are few, Newton steps on bent kinks (``bent.py``) follow where it has not come near. If features are
few, those steps are taken at once, with the whole Hessian. Epsilon-insensitive loss is the sum of two hinges, so for
dual ascent each row is there twice.

The dual of ``sum_i c_i max(0, 1 - y_i (w x_i + b)) + l2/2 |w|^2`` is to maximise ``sum_i a_i - |sum_i a_i y_i x_i|^2 /
(2 l2)`` over ``0 <= a_i <= c_i`` with ``sum_i a_i y_i = 0``, the condition of a free intercept. One ``a_i`` at a time
cannot change under it. So the distance of the intercept from where it was before a pass costs something, which lifts
the condition, and the next pass begins where this one has ended (proximal point; the multiplier is the intercept).

References
----------
Hsieh, Chang, Lin, Keerthi, Sundararajan (2008), A dual coordinate descent method for large-scale linear SVM, ICML.
Rockafellar (1976), Augmented Lagrangians and applications of the proximal point algorithm in convex programming.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.scaled import lengths_of
from hogwild.problems.linear.exact import newton
from hogwild.problems.linear.exact.bent import ENOUGH, TINY, bound, unbent
from hogwild.problems.linear.exact.curved import Solution
from hogwild.problems.linear.exact.dual_kernel import ascend
from hogwild.problems.linear.exact.ending import CALL, FEW, Ending

BENT_PASSES = 400  # passes for which the allowance must last where steps on a bent kink may follow,
SHARE, LITTLE = 0.25, 0.05  # and shares of it that dual ascent has before them, and before those with the whole Hessian
DUAL_PASSES = 20  # passes without which dual ascent is of no use
REACH = 0.01  # squared length of a row, over that of the mean row, that the intercept counts as
TIGHT = 1e-3  # difference of the largest and the least derivative, over a usual loss, at which rows left out come back,
TIGHTER = 0.1  # and the factor on it then
BLOCK = 16  # rows beside each other in memory are visited together where there are many
LATE = 100.0  # passes after which they do so at each look, since violations among the others may fall slowly
LONGER = 1.0, *(1 + 2.0**k for k in range(-11, 0))  # factors on weights whose rows still fall short of their kinks
LOOKS = 5.0, 0.25  # passes between two looks at the objective, and share of all passes so far


def unkinked(
    ending: Ending, coef: np.ndarray, intercept: np.ndarray, objective: float, work: int
) -> tuple[Solution, float | None]:
    """Parameters after exact steps, and the share of the objective by which they may still be above the optimum.

    The share is None if it is unknown. The parameters are those given where the steps would not lower the objective, or
    where the allowance of ``work`` is too small for any.
    """
    e, one = ending, np.atleast_2d(coef)
    allowance, entries, classes = e.allowance(work), e.rows.nnz * len(one), len(one)
    small = newton.has_few(e, classes)
    few = small or BENT_PASSES * entries <= allowance
    if not few and (e.l2 == 0.0 or DUAL_PASSES * entries > allowance):
        return (coef, intercept), None

    def own(k: int, _: int) -> tuple[np.ndarray, np.ndarray, float]:
        each = copy.copy(e)
        each.targets = np.ascontiguousarray(e.of_class(k, classes), dtype=np.float64)
        if classes > 1:  # the threads have a class each
            each.parts = [(0, len(e.rows))]
        start = one[k : k + 1].astype(np.float64), np.asarray(intercept[k : k + 1], dtype=np.float64)
        return _lowered(each, *start, allowance / classes, few, small)

    threads = 1 if entries < FEW else None
    ws, bs, lower = zip(*map_cuts([(k, k + 1) for k in range(classes)], own, threads))
    found = np.concatenate(ws).astype(np.float32), np.concatenate(bs).astype(np.float32)
    value, solution = e.objective(*found), (coef, intercept)
    if value < objective:
        objective, solution = value, (found[0].reshape(coef.shape), found[1])
    left = (objective - sum(lower)) / max(objective, TINY)
    return solution, left if math.isfinite(left) else None


def _lowered(
    e: Ending, w: np.ndarray, b: np.ndarray, allowance: float, few: bool, small: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """The best weights (1, width) and intercept (1,) of one margin, and a bound of its optimum."""
    value, lower = e.objective(w, b), -math.inf
    if e.l2 > 0.0 and (not small or e.rows.width > newton.FEATURES):
        ascent = _Ascent(e)
        allowance -= ascent.run((LITTLE if small else SHARE if few else 1.0) * allowance)
        lower = ascent.lower
        if ascent.value < value:
            w, b, value = ascent.best_w[None], np.array([ascent.best_b]), ascent.value
    if few and value - lower > ENOUGH * value:

        def steps(own: Ending, w: np.ndarray, b: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, bool]:
            nonlocal allowance
            w, b, allowance, whole = own.descend(w, b, allowance, least)
            return w, b, whole

        w, b, then = unbent(e, w, b, newton.newton_steps(e) if small else steps)
        lower = max(lower, then)
    return w, b, lower


class _Ascent:
    """Dual ascent for one margin, and the best primal solution that was seen on the way."""

    def __init__(self, ending: Ending) -> None:
        e, n = ending, len(ending.rows)
        squares = lengths_of(e.rows) * (1.0 if e.scales is None else np.square(e.scales, dtype=np.float64))
        self.rho = 0.0 if not e.intercept else REACH * float(squares.mean()) / e.l2
        begin, end, indices, values, scales = e.entries(0, n)
        if e.loss == "hinge":
            self.times, self.y, self.kinks, self.size = 1, np.array(e.targets), np.ones(n), 1.0
        else:
            self.times, self.y, self.kinks = 2, np.repeat((1.0, -1.0), n), np.append(e.targets, -e.targets) - e.param
            self.size = float(np.abs(e.targets - np.median(e.targets)).mean())
        begin, end, self.squares, self.shares = (np.tile(one, self.times) for one in (begin, end, squares, e.shares))
        self.entries = begin, end, indices, values, np.tile(scales, self.times)
        self.ending, self.alpha, self.w, self.b = e, np.zeros(len(self.y)), np.zeros(e.rows.width), np.zeros(1)
        self.best_w, self.best_b, self.value, self.lower = self.w, 0.0, math.inf, -math.inf

    def run(self, allowance: float) -> int:
        """Ascend until the bound is near or ``allowance`` entries were visited; return how many were."""
        order, random, tight = np.flatnonzero(self.shares > 0.0), np.random.default_rng(0), TIGHT * self.size
        block = BLOCK if self.ending.rows.nnz > FEW else 1
        active, spent, next_look, limits = len(order), 0, LOOKS[0], np.array((math.inf, -math.inf))
        unit = self.ending.rows.nnz + CALL
        while spent < allowance:
            _shuffle(order[:active], block, random)
            known = *self.entries, self.y, self.kinks, self.shares, self.squares
            active, visited = ascend(
                *known, self.alpha, self.w, self.b, order, active, self.ending.l2, self.rho, limits
            )
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
        """Evaluate, with the best intercept of these weights, or longer ones; and say whether the bound is near."""
        e, y, before = self.ending, self.y, math.inf
        p = np.tile(e.all_margins(self.w[None], np.zeros(1))[:, 0], self.times)
        b = best_intercept(y * self.kinks - p, y, self.shares) if e.intercept else 0.0
        margins, penalty = y * (p + b), e.penalty(self.w)
        for factor in LONGER:
            value = float(self.shares @ np.maximum(self.kinks - factor * margins, 0.0)) + factor**2 * penalty
            if value < self.value:
                self.best_w, self.best_b, self.value = factor * self.w, factor * b, value
            if value > before:
                break
            before = value
        slopes = -(self.alpha * y).reshape(self.times, -1).sum(axis=0)
        self.lower = max(self.lower, bound(e, slopes))
        return self.value - self.lower <= ENOUGH * self.value


def _shuffle(rows: np.ndarray, block: int, random: np.random.Generator) -> None:
    """Put rows into random order, of blocks and in these: rows far from each other have to be waited for."""
    rows.sort()
    blocks = rows[: len(rows) // block * block].reshape(-1, block)
    blocks[:] = blocks[random.permutation(len(blocks))][:, random.permutation(block)]


def best_intercept(kinks: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    """The intercept with the least sum of hinges, which fall to their kinks (n,) if ``y`` is 1 or rise if it is -1."""
    order = np.argsort(kinks)
    slopes = np.cumsum(shares[order]) - shares[y > 0].sum()
    return float(kinks[order][min(int(np.searchsorted(slopes, 0.0)), len(y) - 1)])
