"""What is done once, after the last epoch: how near the optimum a model is, and exact steps if it is not near.

One pass over all rows gives the gradient and the curvature along each coordinate. Conjugate gradients on the quadratic
model then lower the objective, and by how much tells at least how far above its optimum the model was. Where SGD has
ended far above it, because columns depend on each other, a row outweighs all others, or the optimum of nearly
separable classes is far away, such steps (truncated Newton, Dembo and Steihaug 1983) go on until the optimum is near or
their allowance of work is used. An l1 penalty (``settle.py``) and losses with a kink (``kinked.py``) have steps of
their own.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from hogwild.data.parallel import map_cuts, pieces
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.data.rows.margins import Margins
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.exact import gradient_kernel as loops
from hogwild.problems.linear.exact.curved import Curved, Solution
from hogwild.problems.linear.objective import Objective

Sums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # by feature and over rows: of slopes, and of curvatures
CODES = {name: loss.code for name, loss in LOSSES.items()} | {
    "bent-hinge": loops.BENT_HINGE,
    "bent-epsilon-insensitive": loops.BENT_EPSILON,
}
SMOOTH = (
    "log",
    "squared-hinge",
    "modified-huber",
    "squared-error",
    "huber",
    "squared-epsilon-insensitive",
    "poisson",
    "bent-hinge",
    "bent-epsilon-insensitive",
)
KINKED = "hinge", "epsilon-insensitive"  # losses with a kink whose optimum exact steps find (``kinked.py``)
PARTS = 4  # sums over rows are taken in so many parts, whatever the number of threads
WORK, PASSES = 1 << 30, 10  # entries that exact steps may visit: this many, and so many times all
CALL = 1 << 14  # entries that could be visited in the time that a pass takes besides
#: Largest curvature of a row, of losses that have one
STEEPEST = {
    "log": 0.25,
    "squared-hinge": 2.0,
    "modified-huber": 2.0,
    "squared-error": 1.0,
    "huber": 1.0,
    "squared-epsilon-insensitive": 2.0,
    "bent-hinge": 1.0,
    "bent-epsilon-insensitive": 1.0,
}
FROM_ZERO = "squared-hinge", "modified-huber"  # flat beyond the margins: at zero every row is curved
DAMPING = 1e-3, 1.0  # least and largest share of it that every row has more after a step that had to be shortened
STEPS, STEPS_WORK = 20, 1 << 26  # most conjugate gradients that judge a solution, and most entries that they visit
SHORT = 8  # steps that judge a solution, until one needs not be shortened
MOST_STEPS = 200  # most conjugate gradients of an exact step
SMALL = 0.01  # share of an exact step's gain below which conjugate gradients are its last,
WAIT = 4  # if so many together bring no more: one may be followed by others that bring much
FLAT = 1e-9  # curvature along a direction, over that of its coordinates, below which the model has no minimum there
LITTLE = 0.01  # share of the objective that the gradient's norm bounds what is left by (strong convexity)
FEW_GAINS = 6  # steps in turn that are shortened or damped and gain less than the smallest gain, until the last
SMALLEST_GAIN = 1e-4  # share of the objective below which a further step is not taken
LENGTHS = tuple(0.25**k for k in range(7))  # of a step; the first is taken that lowers the objective
ENOUGH = 0.1  # by this share of what its slope promises (Armijo)
FEW = 1_000_000  # entries below which to wait costs little and one part is as fast, as it is if its sums are as many
WIDE = 1 << 22  # features above which one part is taken, since each has sums of its own
PIECE = 1 << 20  # margins at a time


@dataclasses.dataclass(frozen=True)
class _Local:
    """The objective's smooth part near some parameters: sums by feature (width, K) and over the rows (K,)."""

    margins: Margins
    start: Solution  # gradient at zero
    here: Solution  # gradient at the parameters
    curved: Curved | None  # None for losses with kinks
    bends: np.ndarray | None  # (n, 1) curvatures of the rows; None if there are several a row, which are many


class Ending:
    """The objective's gradient on given rows, and exact steps that lower it.

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
        self,
        rows: Rows,
        loss: str,
        loss_param: float,
        l1: float,
        l2: float,
        targets: np.ndarray,
        weights: np.ndarray | None,
        scales: np.ndarray | None,
        intercept: bool,
    ) -> None:
        self.rows, self.loss, self.param, self.l1, self.l2 = rows, loss, float(loss_param), float(l1), float(l2)
        self.targets, self.intercept = np.asarray(targets, dtype=np.float64), intercept
        equal = weights is None or not len(weights)
        self.shares = (np.ones(len(rows)) if equal else np.asarray(weights, dtype=np.float64)) / len(rows)
        self.scales = None if scales is None or not len(scales) else scales
        few = rows.nnz < max(FEW, PARTS * rows.width) or rows.width > WIDE
        ends = np.linspace(0, len(rows), 2 if few else PARTS + 1).astype(np.int64).tolist()
        self.parts = [(a, b) for a, b in itertools.pairwise(ends) if a < b]

    def judge(self, coef: np.ndarray, intercept: np.ndarray, objective: float) -> tuple[float, float | None]:
        """Say how near the optimum parameters are.

        Returns
        -------
        gradient_norm : float
            Euclidean norm of the gradient over that at zero; with an l1 penalty, of the shortest subgradients.
        gain : float or None
            Share by which a few exact steps lower the ``objective``: a lower bound of how far it is above its optimum.
            They are conjugate gradients, scaled by each coordinate's curvature, on the quadratic model at these
            parameters: as many as the allowance of work pays for, until one brings little. None for losses with kinks,
            and where the model fails and the gradient is not small.
        """
        w, b = np.atleast_2d(coef).astype(np.float64), np.asarray(intercept, dtype=np.float64)
        at = self.local(w, b)
        start, norm = self._norm(np.zeros_like(w), at.start), self._norm(w, at.here)
        ratio = norm / start if start > 0 else norm
        if at.curved is None or not math.isfinite(objective) or objective == 0.0:
            return ratio, None if at.curved is None else 0.0
        most = int(np.clip(STEPS_WORK / (2 * self.rows.nnz * len(w) + 1), 1, STEPS))
        lowest, whole = objective, True
        for _ in range(SHORT):
            found = self._step(w, b, at, lowest, most, 0.0)
            whole &= found is not None and found[-1] == 1.0
            if found is None:
                break
            w, b, lowest, _, length = found
            if length == 1.0:
                break
            at = self.local(w, b)
        flat = not whole or self.penalty(w) > objective / 2.0  # most rows are beyond their margin
        if self.loss in FROM_ZERO and flat and norm * norm > LITTLE * 2.0 * self.l2 * objective:
            return ratio, None
        return ratio, (objective - lowest) / abs(objective)

    def lowered(
        self, coef: np.ndarray, intercept: np.ndarray, objective: float, work: int = WORK
    ) -> tuple[Solution, float | None]:
        """Parameters after exact steps of a smooth loss, and 0 if these have come to their end, else None.

        There are as many as the allowance of ``work`` pays for, until one brings little. The parameters are those given
        where that would not lower the objective.
        """
        w, b = np.atleast_2d(coef).astype(np.float64), np.asarray(intercept, dtype=np.float64)
        if self.loss in FROM_ZERO:
            w, b = np.zeros_like(w), np.zeros_like(b)
        w, b, allowance, _ = self.descend(w, b, self.allowance(work))
        found = w.astype(np.float32), b.astype(np.float32)
        lower = self.objective(*found) < objective
        return (found[0].reshape(coef.shape), found[1]) if lower else (coef, intercept), 0.0 if allowance > 0 else None

    @property
    def steepest(self) -> float:
        """Largest curvature of a row; zero where there is none or it is not known."""
        return STEEPEST.get(self.loss, 0.0)

    def allowance(self, work: int) -> float:
        """Number of entries that exact steps may visit."""
        return float(max(work, PASSES * self.rows.nnz))

    def descend(
        self, w: np.ndarray, b: np.ndarray, allowance: float, least: float = SMALLEST_GAIN
    ) -> tuple[np.ndarray, np.ndarray, float, bool]:
        """Parameters (K, width) and (K,) after exact steps, what is left of the entries that they may visit, and
        whether they have ended with a whole step that gained less than a share ``least`` of the objective.
        """
        objective, unit, damping, small = self.objective(w, b), self.rows.nnz * len(w) + CALL, 0.0, 0
        while allowance > 0 and math.isfinite(objective):
            most = int(np.clip(allowance / (2 * unit + 1), 1, MOST_STEPS))
            found = self._step(w, b, self.local(w, b, damping), objective, most, SMALL)
            if found is None:
                if damping >= DAMPING[1]:
                    break
                allowance, damping = allowance - 4 * unit, max(16.0 * damping, DAMPING[0])
                continue
            before = objective
            w, b, objective, steps, length = found
            allowance -= unit * (4 + 2 * steps)
            small = small + 1 if before - objective < least * abs(before) else 0
            if small and length == 1.0 and damping < DAMPING[0]:
                return w, b, allowance, True
            if small == FEW_GAINS:
                break
            damping = damping / 8.0 if length == 1.0 else max(4.0 * damping, DAMPING[0])
        return w, b, allowance, False

    def _step(
        self, w: np.ndarray, b: np.ndarray, at: _Local, objective: float, most: int, share: float
    ) -> tuple[np.ndarray, np.ndarray, float, int, float] | None:
        """Parameters after a Newton step of at most ``most`` conjugate gradients, their objective, how many there
        were, and the length of the step; None if the objective does not fall.
        """
        toward, shift, steps = self._newton(
            w, at, SMALLEST_GAIN * abs(objective) * (0.01 if share else 1.0), share, most
        )
        slope = _dot((self.shortest(w.T, at.here[0]), at.here[1] * self.intercept), (toward, shift))
        for t in LENGTHS:
            with np.errstate(all="ignore"):
                there = w + t * toward.T, b + t * shift
                after = self.objective(*there)
            if after < objective + ENOUGH * t * slope:
                return *there, after, steps, t
        return None

    def local(self, w: np.ndarray, intercept: np.ndarray, damping: float = 0.0) -> _Local:
        """Derivatives at zero and here, and the curvatures where the loss has them, in one pass over the rows."""
        parts, classes = margins_of(w, intercept), len(w)
        bent = classes if self.loss in (*SMOOTH, "softmax") else 0
        kept = np.empty((len(self.rows), 1)) if bent == 1 else None

        def part(a: int, b: int) -> Sums:
            p = self.margins(parts, a, b)
            bends = self._bends(p, None, a, b) if bent else np.empty((b - a, 0))
            if kept is not None and damping:
                bends += damping * self.steepest * self.shares[a:b, None]
            slopes = np.hstack((self.slopes(np.zeros_like(p), a, b), self.slopes(p, a, b), bends))
            if kept is not None:
                kept[a:b] = bends
            return self.scatter(slopes, bends, a, b)

        first, of_slopes, second, of_bends = self._sum(part, 3 * classes)
        start = first[:, :classes], of_slopes[:classes]
        here = first[:, classes : 2 * classes] + self.l2 * w.T, of_slopes[classes : 2 * classes]
        curved = Curved(second + self.l2, of_bends, first[:, 2 * classes :]) if bent else None
        return _Local(parts, start, here, curved, kept)

    def _newton(
        self, w: np.ndarray, at: _Local, little: float, share: float, most: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """An approximate Newton step, (width, K) and (K,), and how many conjugate gradients it is made of.

        The last of several brings, with those before it, no more than ``little``, or than a ``share`` of what all have
        brought; of one if the share is zero, where there are many entries.
        """
        assert at.curved is not None
        curved, classes = at.curved, len(w)

        def product(along: Margins) -> Solution:
            def part(a: int, b: int) -> Sums:
                change = self.margins(along, a, b)
                if at.bends is None:
                    change = self._bends(self.margins(at.margins, a, b), change, a, b)
                else:
                    change *= at.bends[a:b]
                return self.scatter(change, np.empty((b - a, 0)), a, b)

            return self._sum(part, classes)[:2]

        g = self.shortest(w.T, at.here[0])
        free = (g != 0.0) | (w.T != 0.0)
        rest = -g, -at.here[1] * self.intercept
        found, steps, brought, gains = (
            (np.zeros_like(g), np.zeros(classes)),
            0,
            0.0,
            [math.inf] * (WAIT if share or self.rows.nnz * classes < FEW else 1),
        )
        direction = scaled = curved.preconditioned(rest, self.intercept)
        size = _dot(rest, scaled)
        while steps < most and size > 0.0:
            bend, of_shift = product(margins_of(np.ascontiguousarray(direction[0].T), direction[1]))
            image = (bend + self.l2 * direction[0]) * free, of_shift * self.intercept
            if not (curvature := _dot(direction, image)) > FLAT * size:
                if not steps:  # the loss is flat here; then the line search says how far to go
                    return *direction, 1
                break
            length = size / curvature
            for here, there, left, bent in zip(found, direction, rest, image):
                here += length * there
                left -= length * bent
            steps, brought, gains = steps + 1, brought + length * size / 2.0, [*gains[1:], length * size / 2.0]
            if not sum(gains) > max(little, share * brought):
                break
            scaled = curved.preconditioned(rest, self.intercept)
            size, last = _dot(rest, scaled), size
            direction = scaled[0] + size / last * direction[0], scaled[1] + size / last * direction[1]
        return *found, steps

    # ---- sums over the rows

    def entries(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        r = self.rows
        scales = EMPTY if self.scales is None else readonly(self.scales[first:last])
        return r.begin[first:last], r.end[first:last], r.indices, r.values, scales

    def _pieces(self, first: int, last: int, classes: int) -> Iterator[tuple[int, int]]:
        for a, b in pieces(last - first, max(PIECE // classes, 1)):
            yield first + a, first + b

    def of_class(self, k: int, classes: int) -> np.ndarray:
        return self.targets if classes == 1 else np.where(self.targets == k, 1.0, -1.0)

    def margins(self, parts: Margins, first: int, last: int) -> np.ndarray:
        return parts.between(self.rows, first, last, self.scales).reshape(last - first, -1)

    def all_margins(self, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Margins (n, K) for weights (K, width) and intercepts (K,)."""
        parts = margins_of(w, b)
        return np.concatenate([self.margins(parts, first, last) for first, last in self.parts])

    def slopes(self, p: np.ndarray, first: int, last: int) -> np.ndarray:
        """Derivatives of the mean loss in margins ``p`` (n, K)."""
        out, shares = np.empty_like(p), self.shares[first:last]
        if self.loss == "softmax":
            loops.softmax_slopes(p, self.targets[first:last], shares, out)
            return out
        for k in range(p.shape[1]):
            y, own = self.of_class(k, p.shape[1])[first:last], np.empty(len(p))
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
            y, own = self.of_class(k, p.shape[1])[first:last], np.empty(len(p))
            loops.curvatures(CODES[self.loss], np.ascontiguousarray(p[:, k]), y, shares, self.param, own)
            out[:, k] = own
        return out if change is None else out * change

    def scatter(self, slopes: np.ndarray, bends: np.ndarray, first: int, last: int) -> Sums:
        """Sums by feature, and over the rows, of derivatives (n, A) and of curvatures (n, B)."""
        width = self.rows.width
        total, squares = np.zeros((width, slopes.shape[1])), np.zeros((width, bends.shape[1]))
        loops.by_feature(*self.entries(first, last), slopes, bends, total, squares)
        return total, slopes.sum(axis=0), squares, bends.sum(axis=0)

    def _sum(self, function: Callable[[int, int], Sums], columns: int) -> Sums:
        """Sums of what ``function`` returns for pieces of the rows, in order."""

        def part(first: int, last: int) -> Sums:
            pieces = self._pieces(first, last, columns)
            total = function(*next(pieces))
            for a, b in pieces:
                for array, more in zip(total, function(a, b)):
                    array += more  # one piece's sums at a time: of many classes they are large
            return total

        total, *others = map_cuts(self.parts, part)
        for other in others:
            for array, more in zip(total, other):
                array += more
        return total

    def by_feature(self, slopes: np.ndarray) -> np.ndarray:
        """Gradient of the mean loss, (width,), for the rows' derivatives (n,) in one margin."""

        def part(a: int, b: int) -> Sums:
            return self.scatter(slopes[a:b, None], np.empty((b - a, 0)), a, b)

        return self._sum(part, 1)[0][:, 0]

    def _norm(self, w: np.ndarray, gradient: Solution) -> float:
        """Norm of the shortest subgradient at weights ``w`` (K, width), from the smooth part's gradient."""
        g, of_intercept = self.shortest(w.T, gradient[0]), gradient[1] * self.intercept
        return math.sqrt(float(np.square(g).sum()) + float(np.square(of_intercept).sum()))

    def shortest(self, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The shortest subgradient of the objective at weights ``w``, for the gradient ``g`` of its smooth part."""
        if self.l1 == 0.0:
            return g
        kinks = np.sign(g) * np.maximum(np.abs(g) - self.l1, 0.0)
        return np.where(w != 0.0, g + self.l1 * np.sign(w), kinks)

    def penalty(self, w: np.ndarray) -> float:
        return self.l2 / 2 * float(np.square(w).sum()) + self.l1 * float(np.abs(w).sum())

    def objective(self, coef: np.ndarray, intercept: np.ndarray) -> float:
        parts, code = margins_of(coef, intercept), CODES[self.loss]

        def part(first: int, last: int) -> float:
            total = 0.0
            for a, b in self._pieces(first, last, len(coef)):
                p, shares = self.margins(parts, a, b), self.shares[a:b]
                if self.loss == "softmax":
                    total += loops.mean_cross_entropy(p, self.targets[a:b], shares)
                for k in range(len(coef) if self.loss != "softmax" else 0):
                    y = self.of_class(k, len(coef))[a:b]
                    total += loops.mean_loss(code, np.ascontiguousarray(p[:, k]), y, shares, self.param)
            return total

        return sum(map_cuts(self.parts, part)) + self.penalty(coef.astype(np.float64))


def ending_of(objective: Objective, rows: Rows, classes: int, intercept: bool) -> Ending:
    """What judges and improves parameters of this objective on its rows, with ``classes`` margins a row."""
    o = objective
    targets = 2.0 * o.targets - 1.0 if o.labels and classes == 1 else o.targets
    return Ending(rows, o.loss, o.loss_param, o.l1, o.l2, targets, o.weights, o.scales, intercept)


def _dot(a: Solution, b: Solution) -> float:
    return sum(float((one * other).sum()) for one, other in zip(a, b))


def margins_of(coef: np.ndarray, intercept: np.ndarray) -> Margins:
    return Margins(coef[0] if len(coef) == 1 else coef, intercept)
