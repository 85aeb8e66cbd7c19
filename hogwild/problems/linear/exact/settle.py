"""The last steps of an l1 penalty, which bring its zeros.

SGD leaves weights that the optimum of an l1 penalty has at zero near zero, and others have not come to zero yet. Exact
steps on all rows bring them there: the loss is replaced by its quadratic model, which coordinate descent minimises with
the penalty over the features that are not zero or want to be (Yuan, Ho, Lin 2012, newGLMNET), and a line search makes
sure that the objective falls. The work is bounded by a multiple of the entries, so large data are improved as far as it
reaches. Losses with kinks, and softmax, take the condition of zero instead: weights that one proximal step along the
gradient, of length ``1 / E x_u^2``, sends to zero. Either result is returned only if the objective is not higher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.problems.linear.exact import gradient_kernel as loops
from hogwild.problems.linear.exact.curved import Solution
from hogwild.problems.linear.exact.ending import CODES, PASSES, SMOOTH, WORK, Ending, margins_of

LARGEST = 1 << 27  # entries of the chosen features, which are copied, at 16 bytes each
OUTER, SWEEPS = 50, 200  # quadratic models, and passes over each
CLOSE = 1e-7  # of the gradient at the start: there the steps end
SMALL = 0.002  # share of its first pass's gain below which a model is left
LITTLE = 1e-9  # share of the objective: a step that gains less is not taken, so settling twice is settling once
HALVINGS = 30  # of a step that does not lower the objective
SHORTER = 0.1, 0.01  # lengths tried in turn if weights sent to zero by a whole step raise the objective


def settled(ending: Ending, coef: np.ndarray, intercept: np.ndarray) -> tuple[Solution, float | None]:
    """Return parameters with the zeros of an l1 penalty, those given if the objective would be higher; and 0 if steps
    to their optimum were taken, else None.
    """
    one = np.atleast_2d(coef)
    before = ending.objective(one, intercept)
    if not math.isfinite(before):
        return (coef, intercept), None
    exact = ending.loss in SMOOTH and ending.rows.nnz <= LARGEST
    for found in [_descended(ending, one, intercept)] if exact else _cut(ending, one, intercept):
        if ending.objective(*found) <= before:
            return (found[0].reshape(coef.shape), found[1]), 0.0 if exact else None
    return (coef, intercept), None


def _cut(ending: Ending, coef: np.ndarray, intercept: np.ndarray) -> Iterator[Solution]:
    """Yield the weights without those that one proximal step sends to zero, for shorter and shorter steps."""
    g, n = ending.local(coef.astype(np.float64), intercept).here[0], len(ending.rows)
    total = ending.scatter(np.empty((n, 0)), np.ones((n, 1)), 0, n)[2]
    reach = n / np.maximum(total[:, 0], 1e-30)
    for share in (1.0, *SHORTER):
        length = share * reach
        yield np.where(np.abs(coef - length * g.T) <= length * ending.l1, np.float32(0), coef), intercept


def _descended(ending: Ending, coef: np.ndarray, intercept: np.ndarray) -> Solution:
    """Exact steps for each class, as far as the allowance of work reaches."""
    found, offsets = np.array(coef, dtype=np.float32), np.array(intercept, dtype=np.float32)
    for k in range(len(coef)):
        problem = _Descent(ending, k, coef, intercept)
        problem.run(max(WORK, PASSES * ending.rows.nnz) // len(coef))
        found[k], offsets[k] = problem.w, problem.b
    return found, offsets


class _Descent:
    """Exact steps for the weights ``w`` (width,) and the intercept ``b`` of one class."""

    def __init__(self, ending: Ending, k: int, coef: np.ndarray, intercept: np.ndarray) -> None:
        e = self.ending = ending
        self.y, self.w, self.b = e.of_class(k, len(coef)), coef[k].astype(np.float64), float(intercept[k])
        parts = margins_of(coef[k : k + 1], intercept[k : k + 1])
        self.p = np.concatenate([e.margins(parts, a, b)[:, 0] for a, b in e.parts])
        self.loss = CODES[e.loss], e.shares, e.param
        self.chosen = np.zeros(len(self.w), dtype=bool)

    def run(self, work: float) -> None:
        """Improve the parameters until the gradient is small or ``work`` entries have been visited."""
        e = self.ending
        enough = CLOSE * self._length(np.zeros_like(self.w), self._each(loops.slopes, np.zeros_like(self.p)))[0]
        for _ in range(OUTER):
            slopes = self._each(loops.slopes, self.p)
            length, g = self._length(self.w, slopes)
            wanted = (self.w != 0.0) | (np.abs(g) > e.l1)
            if not length > enough or work <= 0:
                return
            if not (self.chosen[wanted]).all() or not self.chosen.any():
                self._choose(wanted)
                work -= 2 * e.rows.nnz
            work -= e.rows.nnz
            spent = self._step(slopes, work)
            if not spent:
                return
            work -= spent

    def _each(self, loop: Any, p: np.ndarray) -> np.ndarray:
        code, shares, param = self.loss
        out = np.empty_like(p)
        loop(code, p, self.y, shares, param, out)
        return out

    def _length(self, w: np.ndarray, slopes: np.ndarray) -> tuple[float, np.ndarray]:
        """Norm of the shortest subgradient, and the gradient of the smooth part."""
        e = self.ending
        g = e.by_feature(slopes) + e.l2 * w
        of_intercept = float(slopes.sum()) if e.intercept else 0.0
        return math.hypot(math.sqrt(float(np.square(e.shortest(w, g)).sum())), of_intercept), g

    def _choose(self, wanted: np.ndarray) -> None:
        """Copy the columns of the features that the steps will change."""
        e, all_rows = self.ending, len(self.p)
        self.chosen |= wanted
        self.ids = np.flatnonzero(self.chosen)
        places = np.full(len(self.w), -1, dtype=np.int64)
        places[self.ids] = np.arange(len(self.ids))
        starts = np.zeros(len(self.ids) + 1, dtype=np.int64)
        begin, end, indices, values, scales = e.entries(0, all_rows)
        loops.count_places(begin, end, indices, places, starts)
        starts = np.cumsum(starts)
        rows, entries = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
        loops.fill_columns(begin, end, indices, values, scales, places, starts.copy(), rows, entries)
        self.columns = starts, rows, entries

    def _step(self, slopes: np.ndarray, work: float) -> int:
        """Minimise one quadratic model and go towards its minimum; return the entries visited, 0 for no step."""
        e, columns = self.ending, self.columns
        bends = self._each(loops.curvatures, self.p)
        curved, old = np.empty(len(self.ids)), self.w[self.ids]
        loops.curved(*columns, bends, curved)
        new, moved, change, first, spent = old.copy(), np.zeros_like(self.p), 0.0, 0.0, 0
        for _ in range(SWEEPS):
            fell, more = loops.sweep(*columns, slopes, bends, curved, e.l1, e.l2, new, moved, e.intercept)
            change, first, spent = change + more, max(first, fell), spent + len(columns[1]) + len(self.p)
            if not fell > SMALL * first or spent > work:
                break
        before = self._value(self.p, old)
        for halving in range(HALVINGS):
            t = 0.5**halving
            p, w = self.p + t * moved, new if halving == 0 else old + t * (new - old)
            after = self._value(p, w)
            if after < before - LITTLE * abs(before):
                self.p, self.w[self.ids], self.b = p, w, self.b + t * change
                return spent
        return 0

    def _value(self, p: np.ndarray, w: np.ndarray) -> float:
        code, shares, param = self.loss
        return float(loops.mean_loss(code, p, self.y, shares, param)) + self.ending.penalty(w)
