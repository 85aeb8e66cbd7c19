"""What is done once, after the last epoch: the size of the gradient on all rows, and the last steps of an l1 penalty.

SGD leaves weights that the optimum of an l1 penalty has at zero near zero, and others have not come to zero yet. Exact
steps on all rows bring them there: the loss is replaced by its quadratic model, which coordinate descent minimises with
the penalty over the features that are not zero or want to be (Yuan, Ho, Lin 2012, newGLMNET), and a line search makes
sure that the objective falls. The work is bounded by a multiple of the entries, so large data are improved as far as it
reaches. Losses with kinks, and softmax, take the condition of zero instead: weights that one proximal step along the
gradient, of length ``1 / E x_u^2``, sends to zero. Either result is returned only if the objective is not higher.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.parallel import map_cuts, pieces
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.data.rows.margins import Margins
from hogwild.problems.linear.exact import gradient_kernel as loops
from hogwild.problems.linear.objective_kernel import CODES

Solution = tuple[np.ndarray, np.ndarray]  # coef (K, width) or (width,), and intercept (K,)
Sums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # by feature and over rows: of slopes, and of curvatures
SMOOTH = ("log", "squared-hinge", "modified-huber", "squared-error", "huber", "squared-epsilon-insensitive", "poisson")
PARTS = 4  # sums over rows are taken in so many parts, whatever the number of threads
WORK, PASSES = 1 << 27, 10  # entries that exact steps may visit: this many, and so many times all
LARGEST = 1 << 27  # entries of the chosen features, which are copied, at 16 bytes each
OUTER, SWEEPS = 50, 10  # quadratic models, and passes over each
CLOSE = 1e-7  # of the gradient at the start: there the steps end
SMALL = 0.05  # share of its first pass's gain below which a model is left
STEPS, STEPS_WORK = 20, 1 << 26  # most steps that judge a solution, and most entries that they visit
LENGTHS = 1.0, 0.25, 1 / 16  # of the step that they make together
SMALLEST_GAIN = 1e-4  # share of the objective below which a further step is not taken
HALVINGS = 30  # of a step that does not lower the objective
SHORTER = 0.1, 0.01  # lengths tried in turn if weights sent to zero by a whole step raise the objective
FEW = 1_000_000  # entries below which one part is as fast; so it is if the rows have fewer entries than its sums
PIECE = 1 << 20  # margins at a time


@dataclasses.dataclass(frozen=True)
class _Local:
    """The objective's smooth part near some parameters: sums by feature (width, K) and over the rows (K,)."""

    margins: Margins
    start: Solution  # gradient at zero
    here: Solution  # gradient at the parameters
    curved: Solution | None  # curvature along each coordinate; None for losses with kinks
    bends: np.ndarray | None  # (n, 1) curvatures of the rows; None if there are several a row, which are many


class Ending:
    """The objective's gradient on given rows, and the steps that an l1 penalty ends with.

    Parameters
    ----------
    rows : Rows
        No feature is beyond the width of the parameters.
    loss, loss_param : str, float
    l1, l2 : float
    targets : array of shape (n,)
        -1 and +1, real numbers or counts; of several classes their numbers from 0.
    weights, scales : array of shape (n,), optional
        Weights of the rows, whose mean counts, and factors on their values. An empty array is none.
    intercept : bool
    """

    def __init__(
        self, rows: Rows, loss: str, loss_param: float, l1: float, l2: float, targets: np.ndarray,
        weights: np.ndarray | None, scales: np.ndarray | None, intercept: bool,
    ) -> None:  # fmt: skip
        self.rows, self.loss, self.param, self.l1, self.l2 = rows, loss, float(loss_param), float(l1), float(l2)
        self.targets, self.intercept = np.asarray(targets, dtype=np.float64), intercept
        equal = weights is None or not len(weights)
        self.shares = (np.ones(len(rows)) if equal else np.asarray(weights, dtype=np.float64)) / len(rows)
        self.scales = None if scales is None or not len(scales) else scales
        few = rows.nnz < max(FEW, PARTS * rows.width)
        ends = np.linspace(0, len(rows), 2 if few else PARTS + 1).astype(np.int64).tolist()
        self._parts = [(a, b) for a, b in itertools.pairwise(ends) if a < b]

    def judge(self, coef: np.ndarray, intercept: np.ndarray, objective: float) -> tuple[float, float | None]:
        """Say how near the optimum parameters are.

        Returns
        -------
        gradient_norm : float
            Euclidean norm of the gradient over that at zero; with an l1 penalty, of the shortest subgradients.
        gain : float or None
            Share by which a few exact steps lower the ``objective``: a lower bound of how far it is above its optimum.
            They are conjugate gradients, scaled by each coordinate's curvature, on the quadratic model at these
            parameters: as many as the allowance of work pays for, until one brings little. None for losses with kinks.
        """
        w, b = np.atleast_2d(coef).astype(np.float64), np.asarray(intercept, dtype=np.float64)
        at = self._local(w, b)
        start, norm = self._norm(np.zeros_like(w), at.start), self._norm(w, at.here)
        ratio = norm / start if start > 0 else norm
        if at.curved is None or not 0.0 < objective < math.inf:
            return ratio, None if at.curved is None else 0.0
        toward, shift = self._newton(w, at, SMALLEST_GAIN * objective)
        for t in LENGTHS:
            with np.errstate(all="ignore"):
                after = self._objective(w + t * toward.T, b + t * shift)
            if after < objective:
                return ratio, 1.0 - after / objective
        return ratio, 0.0

    def settled(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """Return parameters with the zeros of an l1 penalty; those given if the objective would be higher."""
        one = np.atleast_2d(coef)
        before = self._objective(one, intercept)
        if not math.isfinite(before):
            return coef, intercept
        exact = self.loss in SMOOTH and self.rows.nnz <= LARGEST
        for found in [self._descended(one, intercept)] if exact else self._cut(one, intercept):
            if self._objective(*found) <= before:
                return found[0].reshape(coef.shape), found[1]
        return coef, intercept

    def _local(self, w: np.ndarray, intercept: np.ndarray) -> _Local:
        """Derivatives at zero and here, and the curvatures where the loss has them, in one pass over the rows."""
        parts, classes = _margins_of(w, intercept), len(w)
        bent = classes if self.loss in (*SMOOTH, "softmax") else 0
        kept = np.empty((len(self.rows), 1)) if bent == 1 else None

        def part(a: int, b: int) -> Sums:
            p = self._margins(parts, a, b)
            slopes = np.hstack((self._slopes(np.zeros_like(p), a, b), self._slopes(p, a, b)))
            bends = self._bends(p, None, a, b) if bent else np.empty((b - a, 0))
            if kept is not None:
                kept[a:b] = bends
            return self._scatter(slopes, bends, a, b)

        first, of_slopes, second, of_bends = self._sum(part, 2 * classes, bent)
        start = first[:, :classes], of_slopes[:classes]
        here = first[:, classes:] + self.l2 * w.T, of_slopes[classes:]
        return _Local(parts, start, here, (second, of_bends) if bent else None, kept)

    def _newton(self, w: np.ndarray, at: _Local, little: float) -> Solution:
        """An approximate Newton step, (width, K) and (K,)."""
        assert at.curved is not None
        (smooth, of_intercept), (curved, bent) = at.here, at.curved
        classes = len(w)

        def product(along: Margins) -> Solution:
            def part(a: int, b: int) -> Sums:
                change = self._margins(along, a, b)
                if at.bends is None:
                    change = self._bends(self._margins(at.margins, a, b), change, a, b)
                else:
                    change *= at.bends[a:b]
                return self._scatter(change, np.empty((b - a, 0)), a, b)

            return self._sum(part, classes)[:2]

        g = self._shortest(w.T, smooth)
        free = (g != 0.0) | (w.T != 0.0)
        scale = np.concatenate((curved + self.l2, bent[None])) + loops.LEAST
        rest = -np.concatenate((g, of_intercept[None] * self.intercept))
        found, direction, size = np.zeros_like(rest), rest / scale, float((rest * rest / scale).sum())
        for _ in range(int(np.clip(STEPS_WORK / (2 * self.rows.nnz * classes + 1), 1, STEPS))):
            bend, of_shift = product(_margins_of(np.ascontiguousarray(direction[:-1].T), direction[-1]))
            bend = (bend + self.l2 * direction[:-1]) * free
            image = np.concatenate((bend, of_shift[None] * self.intercept))
            length = size / max(float((direction * image).sum()), 1e-300)
            found += length * direction
            rest -= length * image
            if not length * size / 2.0 > little:
                break
            size, last = float((rest * rest / scale).sum()), size
            direction = rest / scale + size / last * direction
        return found[:-1], found[-1]

    # ---- sums over the rows

    def _entries(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        r = self.rows
        scales = EMPTY if self.scales is None else readonly(self.scales[first:last])
        return r.begin[first:last], r.end[first:last], r.indices, r.values, scales

    def _pieces(self, first: int, last: int, classes: int) -> Iterator[tuple[int, int]]:
        for a, b in pieces(last - first, max(PIECE // classes, 1)):
            yield first + a, first + b

    def _of_class(self, k: int, classes: int) -> np.ndarray:
        return self.targets if classes == 1 else np.where(self.targets == k, 1.0, -1.0)

    def _margins(self, parts: Margins, first: int, last: int) -> np.ndarray:
        return parts.between(self.rows, first, last, self.scales).reshape(last - first, -1)

    def _slopes(self, p: np.ndarray, first: int, last: int) -> np.ndarray:
        """Derivatives of the mean loss in margins ``p`` (n, K)."""
        out, shares = np.empty_like(p), self.shares[first:last]
        if self.loss == "softmax":
            loops.softmax_slopes(p, self.targets[first:last], shares, out)
            return out
        for k in range(p.shape[1]):
            y, own = self._of_class(k, p.shape[1])[first:last], np.empty(len(p))
            loops.slopes(CODES[self.loss], np.ascontiguousarray(p[:, k]), y, shares, self.param, own)
            out[:, k] = own
        return out

    def _bends(self, p: np.ndarray, change: np.ndarray | None, first: int, last: int) -> np.ndarray:
        """Change of the slopes at margins ``p`` (n, K) by ``change`` of them; None: of each by its own, one."""
        out, shares = np.empty_like(p), self.shares[first:last]
        if self.loss == "softmax":
            loops.softmax_slopes(p, np.full(len(p), -1.0), np.ones(len(p)), out)
            others = out if change is None else (out * change).sum(axis=1)[:, None]
            return shares[:, None] * out * ((1.0 if change is None else change) - others)
        for k in range(p.shape[1]):
            y, own = self._of_class(k, p.shape[1])[first:last], np.empty(len(p))
            loops.curvatures(CODES[self.loss], np.ascontiguousarray(p[:, k]), y, shares, self.param, own)
            out[:, k] = own
        return out if change is None else out * change

    def _scatter(self, slopes: np.ndarray, bends: np.ndarray, first: int, last: int) -> Sums:
        """Sums by feature, and over the rows, of derivatives (n, A) and of curvatures (n, B)."""
        width = self.rows.width
        total, squares = np.zeros((width, slopes.shape[1])), np.zeros((width, bends.shape[1]))
        loops.by_feature(*self._entries(first, last), slopes, bends, total, squares)
        return total, slopes.sum(axis=0), squares, bends.sum(axis=0)

    def _sum(self, function: Callable[[int, int], Sums], columns: int, bends: int = 0) -> Sums:
        """Sums of what ``function`` returns for pieces of the rows, in order."""

        def part(first: int, last: int) -> Sums:
            pieces = self._pieces(first, last, columns)
            total = function(*next(pieces))
            for a, b in pieces:
                for array, more in zip(total, function(a, b)):
                    array += more  # one piece's sums at a time: of many classes they are large
            return total

        total, *others = map_cuts(self._parts, part)
        for other in others:
            for array, more in zip(total, other):
                array += more
        return total

    def _by_feature(self, slopes: np.ndarray) -> np.ndarray:
        """Gradient of the mean loss, (width,), for the rows' derivatives (n,) in one margin."""

        def part(a: int, b: int) -> Sums:
            return self._scatter(slopes[a:b, None], np.empty((b - a, 0)), a, b)

        return self._sum(part, 1)[0][:, 0]

    def _norm(self, w: np.ndarray, gradient: Solution) -> float:
        """Norm of the shortest subgradient at weights ``w`` (K, width), from the smooth part's gradient."""
        g, of_intercept = self._shortest(w.T, gradient[0]), gradient[1] * self.intercept
        return math.sqrt(float(np.square(g).sum()) + float(np.square(of_intercept).sum()))

    def _shortest(self, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The shortest subgradient of the objective at weights ``w``, for the gradient ``g`` of its smooth part."""
        if self.l1 == 0.0:
            return g
        kinks = np.sign(g) * np.maximum(np.abs(g) - self.l1, 0.0)
        return np.where(w != 0.0, g + self.l1 * np.sign(w), kinks)

    def _penalty(self, w: np.ndarray) -> float:
        return self.l2 / 2 * float(np.square(w).sum()) + self.l1 * float(np.abs(w).sum())

    def _objective(self, coef: np.ndarray, intercept: np.ndarray) -> float:
        parts, code = _margins_of(coef, intercept), CODES[self.loss]

        def part(first: int, last: int) -> float:
            total = 0.0
            for a, b in self._pieces(first, last, len(coef)):
                p, shares = self._margins(parts, a, b), self.shares[a:b]
                if self.loss == "softmax":
                    total += loops.mean_cross_entropy(p, self.targets[a:b], shares)
                for k in range(len(coef) if self.loss != "softmax" else 0):
                    y = self._of_class(k, len(coef))[a:b]
                    total += loops.mean_loss(code, np.ascontiguousarray(p[:, k]), y, shares, self.param)
            return total

        return sum(map_cuts(self._parts, part)) + self._penalty(coef.astype(np.float64))

    # ---- the steps of an l1 penalty

    def _cut(self, coef: np.ndarray, intercept: np.ndarray) -> Iterator[Solution]:
        """Yield the weights without those that one proximal step sends to zero, for shorter and shorter steps."""
        g, n = self._local(coef.astype(np.float64), intercept).here[0], len(self.rows)
        total = self._scatter(np.empty((n, 0)), np.ones((n, 1)), 0, n)[2]
        reach = n / np.maximum(total[:, 0], 1e-30)
        for share in (1.0, *SHORTER):
            length = share * reach
            yield np.where(np.abs(coef - length * g.T) <= length * self.l1, np.float32(0), coef), intercept

    def _descended(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """Exact steps for each class, as far as the allowance of work reaches."""
        found, offsets = np.array(coef, dtype=np.float32), np.array(intercept, dtype=np.float32)
        for k in range(len(coef)):
            problem = _Descent(self, k, coef, intercept)
            problem.run(max(WORK, PASSES * self.rows.nnz) // len(coef))
            found[k], offsets[k] = problem.w, problem.b
        return found, offsets


class _Descent:
    """Exact steps for the weights ``w`` (width,) and the intercept ``b`` of one class."""

    def __init__(self, ending: Ending, k: int, coef: np.ndarray, intercept: np.ndarray) -> None:
        e = self.ending = ending
        self.y, self.w, self.b = e._of_class(k, len(coef)), coef[k].astype(np.float64), float(intercept[k])
        parts = _margins_of(coef[k : k + 1], intercept[k : k + 1])
        self.p = np.concatenate([e._margins(parts, a, b)[:, 0] for a, b in e._parts])
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
        g = e._by_feature(slopes) + e.l2 * w
        of_intercept = float(slopes.sum()) if e.intercept else 0.0
        return math.hypot(math.sqrt(float(np.square(e._shortest(w, g)).sum())), of_intercept), g

    def _choose(self, wanted: np.ndarray) -> None:
        """Copy the columns of the features that the steps will change."""
        e, all_rows = self.ending, len(self.p)
        self.chosen |= wanted
        self.ids = np.flatnonzero(self.chosen)
        places = np.full(len(self.w), -1, dtype=np.int64)
        places[self.ids] = np.arange(len(self.ids))
        starts = np.zeros(len(self.ids) + 1, dtype=np.int64)
        begin, end, indices, values, scales = e._entries(0, all_rows)
        loops.count_places(begin, end, indices, places, starts)
        starts = np.cumsum(starts)
        rows, entries = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
        loops.fill_columns(begin, end, indices, values, scales, places, starts.copy(), rows, entries)
        self.columns = starts, rows, entries

    def _step(self, slopes: np.ndarray, work: float) -> int:
        """Minimise one quadratic model and go towards its minimum; return the entries visited, 0 if nothing fell."""
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
            if self._value(p, w) < before:
                self.p, self.w[self.ids], self.b = p, w, self.b + t * change
                return spent
        return 0

    def _value(self, p: np.ndarray, w: np.ndarray) -> float:
        code, shares, param = self.loss
        return float(loops.mean_loss(code, p, self.y, shares, param)) + self.ending._penalty(w)


def _margins_of(coef: np.ndarray, intercept: np.ndarray) -> Margins:
    return Margins(coef[0] if len(coef) == 1 else coef, intercept)
