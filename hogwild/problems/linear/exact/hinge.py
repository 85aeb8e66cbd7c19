"""Exact steps of hinge, and the bound of its optimum that any dual solution gives.

Few rows get Newton steps (``ending.py``) on hinge with a rounded kink, which becomes sharper and sharper: columns may
be of very different scales. Many rows get coordinate ascent over the dual, at a fraction of the cost where they are
sparse.

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

from hogwild.data.scaled import lengths_of
from hogwild.problems.linear.exact.dual_kernel import ascend
from hogwild.problems.linear.exact.ending import Ending, Solution, margins_of

ROUNDINGS = tuple(0.5 * 0.2**k for k in range(9))  # widths of the kink, each from the solution of the one before
ROUNDED = 0.01  # width, as a share of the objective, that is small enough
ROUNDED_ENTRIES = 600_000  # most entries, times classes, for which there is rounding: it takes 400 passes or more
PROOF = 30  # passes of dual ascent after rounding that did not come to its end: they improve the bound
DUAL_PASSES = 20  # passes without which dual ascent is of no use
REACH = 0.01  # squared length of a row, over that of the mean row, that the intercept counts as
ENOUGH = 0.005  # share of the objective: when the bound is as near, the steps end
TIGHT = 1e-3  # difference between the largest and the least derivative, of rows that are left, at which all come back
TINY = 1e-300
LOOKS = 5.0, 0.25  # passes between two looks at the objective, and share of all passes so far


def unkinked(
    ending: Ending, coef: np.ndarray, intercept: np.ndarray, objective: float, work: int
) -> tuple[Solution, float | None]:
    """Parameters after exact steps, and the share of the objective by which they may still be above the optimum.

    The share is None if it is unknown. The parameters are those given where the steps would not lower the objective, or
    where the allowance of ``work`` is too small for any.
    """
    e, one, ended = ending, np.atleast_2d(coef), False
    allowance, entries = e.allowance(work), e.rows.nnz * len(one)
    few = entries <= ROUNDED_ENTRIES
    if not few and (e.l2 == 0.0 or DUAL_PASSES * entries > allowance):
        return (coef, intercept), None
    search = _Search(e, one, intercept)
    if few:
        alphas, ended = search.round(allowance)
        if e.l2 > 0.0 and not (ended or search.is_near):
            search.ascend(PROOF * entries, alphas)
    else:
        search.ascend(allowance)
    found = search.w.astype(np.float32), search.b.astype(np.float32)
    value, solution = e.objective(*found), (coef, intercept)
    if value < objective:
        objective, solution = value, (found[0].reshape(coef.shape), found[1])
    if ended:  # the bound may be loose then
        return solution, 0.0
    return solution, (objective - float(search.lower.sum())) / max(objective, TINY) if e.l2 > 0.0 else None


class _Search:
    """The best weights (K, width) and intercepts (K,), and each class's best lower bound (K,)."""

    def __init__(self, ending: Ending, w: np.ndarray, b: np.ndarray) -> None:
        self.ending, self.w, self.b = ending, w.astype(np.float64), np.asarray(b, dtype=np.float64)
        self.value, self.lower = ending.objective(self.w, self.b), np.full(len(w), -math.inf)
        self.labels = [np.ascontiguousarray(ending.of_class(k, len(w)), dtype=np.float64) for k in range(len(w))]

    @property
    def is_near(self) -> bool:
        return self.value - float(self.lower.sum()) <= ENOUGH * self.value

    def offer(self, w: np.ndarray, b: np.ndarray) -> None:
        value = self.ending.objective(w, b)
        if value < self.value:
            self.w, self.b, self.value = w, b, value

    def ascend(self, allowance: float, alphas: np.ndarray | None = None) -> None:
        """Ascend over the dual, from ``alphas`` (n, K) or zeros."""
        w, b, spent = self.w.copy(), self.b.copy(), 0.0
        for k, y in enumerate(self.labels):
            ascent = _Ascent(self.ending, y)
            if alphas is not None:
                ascent.start(alphas[:, k], b[k])
            spent += ascent.run((allowance - spent) / (len(w) - k))
            w[k], b[k], self.lower[k] = ascent.best_w, ascent.best_b, max(self.lower[k], ascent.lower)
        self.offer(w, b)

    def round(self, allowance: float) -> tuple[np.ndarray, bool]:
        """Step on rounded kinks; return what would be the dual's solution (n, K), and whether the steps ended."""
        e, (w, b), classes = self.ending, (self.w, self.b), len(self.w)
        rounded = copy.copy(e)
        rounded.loss = "rounded-hinge"
        for rounded.param in ROUNDINGS:
            w, b, allowance = rounded.descend(w, b, allowance)
            if allowance <= 0 or rounded.param * classes * e.shares.sum() <= ROUNDED * e.objective(w, b):
                break
        self.offer(w, b)
        p = np.concatenate([e.margins(margins_of(w, b), first, last) for first, last in e.parts])
        alphas = rounded.slopes(p, 0, len(p))
        for k, y in enumerate(self.labels):
            alphas[:, k] *= -y
            self.lower[k] = max(self.lower[k], bound(e, alphas[:, k], y))
        return alphas, allowance > 0


def bound(ending: Ending, alpha: np.ndarray, y: np.ndarray) -> float:
    """Lower bound of the hinge objective for labels ``y`` (n,) by dual variables (n,), each at most its row's weight.

    Those of the label that has more are scaled down until both labels have the same sum. Without an l2 penalty it is
    -inf.
    """
    if ending.l2 <= 0.0:
        return -math.inf
    if ending.intercept:
        up, down = float(alpha[y > 0].sum()), float(alpha[y < 0].sum())
        least = min(up, down)
        alpha = alpha * np.where(y > 0, least / max(up, TINY), least / max(down, TINY))
    return float(alpha.sum()) - float(np.square(ending.by_feature(alpha * y)).sum()) / (2.0 * ending.l2)


class _Ascent:
    """Dual ascent for labels ``y`` (n,), and the best primal solution that was seen on the way."""

    def __init__(self, ending: Ending, y: np.ndarray) -> None:
        e, n = ending, len(y)
        self.ending, self.y, self.shares = ending, y, ending.shares
        self.entries = e.entries(0, n)
        self.squares = lengths_of(e.rows) * (1.0 if e.scales is None else np.square(e.scales, dtype=np.float64))
        self.rho = 0.0 if not e.intercept else REACH * float(self.squares.mean()) / e.l2
        self.alpha, self.w, self.b = np.zeros(n), np.zeros(e.rows.width), np.zeros(1)
        self.best_w, self.best_b, self.value, self.lower = self.w, 0.0, math.inf, -math.inf

    def start(self, alpha: np.ndarray, b: float) -> None:
        """Begin with these dual variables and this intercept."""
        self.alpha, self.b[0] = np.minimum(alpha, self.shares), b
        self.w = self.ending.by_feature(self.alpha * self.y) / self.ending.l2

    def run(self, allowance: float) -> int:
        """Ascend until the bound is near or ``allowance`` entries were visited; return how many were."""
        order, random = np.flatnonzero(self.shares > 0.0), np.random.default_rng(0)
        active, spent, next_look, limits = len(order), 0, LOOKS[0], np.array((math.inf, -math.inf))
        unit = max(self.ending.rows.nnz, 1)
        while spent < allowance:
            random.shuffle(order[:active])
            active, visited = ascend(*self.entries, self.y, self.shares, self.squares, self.alpha, self.w, self.b,
                                     order, active, self.ending.l2, self.rho, limits)  # fmt: skip
            self.b[0] += self.rho * float(self.alpha @ self.y)
            spent += visited + active
            if active == 0 or not limits[0] - limits[1] > TIGHT:
                if active == len(order):
                    break
                active, limits[:] = len(order), (math.inf, -math.inf)
            else:
                limits[:] = limits[0] if limits[0] > 0.0 else math.inf, limits[1] if limits[1] < 0.0 else -math.inf
            if spent > next_look * unit:
                if self._look():
                    return spent
                next_look = spent / unit + max(LOOKS[0], LOOKS[1] * spent / unit)
        self._look()
        return spent

    def _look(self) -> bool:
        """Evaluate, with the best intercept of these weights; and say whether the bound is near."""
        e, y = self.ending, self.y
        parts = margins_of(self.w[None], np.zeros(1))
        p = np.concatenate([e.margins(parts, first, last)[:, 0] for first, last in e.parts])
        b = best_intercept(p, y, self.shares) if e.intercept else 0.0
        value = float(self.shares @ np.maximum(1.0 - y * (p + b), 0.0)) + e.penalty(self.w)
        if value < self.value:
            self.best_w, self.best_b, self.value = self.w.copy(), b, value
        self.lower = max(self.lower, bound(e, self.alpha, y))
        return self.value - self.lower <= ENOUGH * self.value


def best_intercept(p: np.ndarray, y: np.ndarray, shares: np.ndarray) -> float:
    """The intercept with the least hinge loss, for labels ``y`` and margins ``p`` (n,) without one."""
    kinks = y - p
    order = np.argsort(kinks)
    slopes = np.cumsum(shares[order]) - shares[y > 0].sum()
    return float(kinks[order][min(int(np.searchsorted(slopes, 0.0)), len(p) - 1)])
