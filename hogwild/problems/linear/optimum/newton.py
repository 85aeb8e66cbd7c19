"""Truncated Newton steps for any smooth loss, with an l1 penalty or without (Dembo and Steihaug 1983).

A step is found by conjugate gradients on the quadratic model, scaled by each column's curvature. Columns are centred
for that, since those with large means depend on the intercept and so on each other. A line search on the margins needs
no pass over the rows. With an l1 penalty a step is the end of some passes of coordinate descent on the model (Yuan, Ho
and Lin 2012, newGLMNET): each weight takes the intercept along, as if its column were centred. Of few columns, which
may depend on each other, a Newton step of the weights that are not zero follows. Without an l1 penalty, few columns
take the whole Hessian, in one call (``kernel.descend``).
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from hogwild.problems.linear.optimum import kernel
from hogwild.problems.linear.optimum.sums import LossSums, Softmax

COLUMNS = 400  # most columns of which the whole Hessian is held
PAIRS = 1 << 27  # most pairs of entries in a row, summed over the rows, with a whole Hessian
FEW_ENTRIES = 1 << 23  # most entries with a whole Hessian
CALL = 1 << 12  # entries that could be visited in the time that a pass takes besides
FLAT = 1e-10  # curvature along a direction, over that of its coordinates, below which there is no minimum there
MOST_CONJUGATE = 200  # most conjugate gradients of a step
WAIT = 4  # conjugate gradients that are judged together
LITTLE = 0.01  # share of the step's gain that these must add, or the step ends
SPARSE_SWEEPS = 10  # most passes of coordinate descent in a step with an l1 penalty
FACTORS = 17  # multiples of dual variables that are tried with an l1 penalty
TINY = 1e-300


class Descent(NamedTuple):
    """Where steps have ended: parameters, objective, what they may gain yet, entries visited, number of steps."""

    x: np.ndarray
    value: float
    gap: float
    spent: float
    steps: int


class Newton:
    """Newton's method on an objective: sums of losses, and penalties, which may be changed between its runs.

    Parameters
    ----------
    sums : LossSums
    l1, l2 : float
    intercept : bool
    floor : float
        Least number that shares of the objective are taken of.
    """

    def __init__(self, sums: LossSums, l1: float, l2: float, intercept: bool, floor: float) -> None:
        self.sums = sums
        self.l1 = l1
        self.l2 = l2
        self.intercept = intercept
        self.floor = floor
        rows = sums.rows
        n = len(rows)
        size = rows.width + 1
        pairs = rows.nnz * min(rows.nnz // max(n, 1) + 1, size)
        self.whole = (
            size <= COLUMNS + 1 and pairs <= PAIRS and rows.nnz <= FEW_ENTRIES and not isinstance(sums, Softmax)
        )
        if self.whole:
            by_row, by_column = [np.zeros(n) for _ in range(5)], [np.zeros(size) for _ in range(5)]
            self.room = *by_row, *by_column, np.ones(size, bool), np.empty((size, size)), np.empty((size, size))

    def penalty(self, x: np.ndarray) -> float:
        """The penalties of the parameters."""
        w = x[:-1].ravel()
        return self.l2 / 2.0 * dot(w, w) + (self.l1 * float(np.abs(w).sum()) if self.l1 else 0.0)

    def lower(self, x: np.ndarray, work: float, enough: float, skip: float = 0.0) -> Descent:
        """Take steps from ``x`` until one promises no more than a share ``enough`` of the objective.

        None is taken if the first promises no more than a share ``skip``.
        """
        sums, floor = self.sums, self.floor

        def steps(x: np.ndarray, skip: float) -> Descent:
            if not self.whole or self.l1 > 0.0:
                return self._lower(x, work, enough, skip)
            x = x.copy()
            loss = sums.entries, sums.targets, sums.shares, sums.code, sums.param
            ends = floor, skip, enough, float(work)
            return Descent(x, *kernel.descend(*loss, self.l2, self.intercept, *ends, x, self.room))

        if self.l1 > 0.0 or sums.code >= kernel.BENT or not (kernel.is_flat(sums.code) and x.any()):
            return steps(x, skip)
        # Rows beyond their margin have no curvature. Near zero they have, and steps from there keep what they need.
        start = steps(x, math.inf)
        if start.gap <= skip * max(abs(start.value), floor):
            return start
        fit = steps(np.zeros_like(x), 0.0)
        return fit if fit.value < start.value else start

    def _lower(self, x: np.ndarray, work: float, enough: float, skip: float) -> Descent:
        sums, l2 = self.sums, self.l2
        each = sums.rows.nnz * (x.size // len(x)) + CALL
        spent = 0.0
        steps = 0
        small = 0
        p = sums.margins(x)
        value = sums.derive(p, p, 0.0)[0] + self.penalty(x)
        while True:
            unit = max(abs(value), self.floor)
            g = sums.gather(sums.slopes)
            g[:-1] += l2 * x[:-1]
            g[-1] *= self.intercept
            model = _Model(self)
            most = int(np.clip((work - spent) / (2 * each), 1, MOST_CONJUGATE))
            if self.l1:
                step, gain, passes = model.sparse_step(x, g, most)
            else:
                promise = skip if steps == 0 and skip < 1.0 else enough
                step, gain, passes = model.step(-g, 0.1 * max(promise, enough) * unit, most)
            spent += each * (4 + passes)
            if not gain > (enough if steps else skip) * unit:
                return Descent(x, value, gain, spent, steps)
            if not spent < work:
                return Descent(x, value, math.inf if self.l1 and steps else gain, spent, steps)
            slope = dot(g, step)
            q = sums.margins(step)
            low = 0.0
            high = math.inf
            t = 1.0
            for trial in range(kernel.TRIES):
                there, first, second = sums.derive(p, q, t)
                y = x + t * step
                there += self.penalty(y)
                if self.l1:
                    if there < value - kernel.ARMIJO * t * gain:
                        break
                    t /= 4.0
                    continue
                first += l2 * dot(y[:-1], step[:-1])
                second += l2 * dot(step[:-1], step[:-1])
                lower = there < value
                if lower and (abs(first) <= -kernel.FLAT_ENOUGH * slope or (first < 0.0 and trial > 8)):
                    break
                low, high = (t, high) if lower and first < 0.0 else (low, t)
                t = kernel.next_length(t, first, second, low, high)
            steps += 1
            if not there < value:  # nothing is left but rounding
                return Descent(x, value, gain, spent, steps)
            small = small + 1 if value - there < enough * unit else 0
            x = y
            p = sums.p
            value = there
            if small == kernel.FEW_GAINS:
                return Descent(x, value, gain, spent, steps)


class _Model:
    """The quadratic model of an objective at the margins where its sums are."""

    def __init__(self, of: Newton) -> None:
        self.of = of
        self.bends = of.sums.curvatures()
        self.curved, self.between = of.sums.gather(self.bends, squared=True), of.sums.gather(self.bends)
        self.curved[:-1] += of.l2
        self.curved += kernel.LEAST

    def product(self, x: np.ndarray) -> np.ndarray:
        """The model's Hessian times parameters."""
        image = self.of.sums.product(x)
        image[:-1] += self.of.l2 * x[:-1]
        image[-1] *= self.of.intercept
        return image

    def step(
        self, rest: np.ndarray, least: float, most: int, free: np.ndarray | float = 1.0
    ) -> tuple[np.ndarray, float, float]:
        """A Newton step by conjugate gradients, what the model gains by it, and how many passes they took.

        ``rest`` is minus the gradient, and ``free`` is 1 for the parameters that may move and 0 for others.
        """
        curved, between, intercept = self.curved, self.between, self.of.intercept
        means = between[:-1] / curved[-1] * intercept
        centred = np.maximum(curved[:-1] - means * between[:-1], kernel.CENTRED * curved[:-1])

        def scaled(rest: np.ndarray) -> np.ndarray:
            out = np.zeros_like(rest)
            out[:-1] = (rest[:-1] - means * rest[-1]) / centred
            out *= free
            out[-1] = (rest[-1] / curved[-1] - (means * out[:-1]).sum(axis=0)) * intercept
            return out

        rest = rest * free
        step = np.zeros_like(rest)
        gain = 0.0
        gains = [math.inf] * WAIT
        direction = scaled(rest)
        size = dot(rest, direction)
        for trial in range(1, most + 1):
            if not size > 0.0:
                return step, gain, 2 * trial
            image = self.product(direction) * free
            curvature = dot(direction, image)
            if not curvature > FLAT * size:  # the line search says how far to go
                return (step, gain, 2 * trial) if trial > 1 else (direction, math.inf, 2)
            length = size / curvature
            step += length * direction
            rest = rest - length * image
            gain += length * size / 2.0
            gains = [*gains[1:], length * size / 2.0]
            if not sum(gains) > max(LITTLE * gain, least):
                break
            then = scaled(rest)
            size, before = dot(rest, then), size
            direction = then + size / before * direction
        return step, gain, 2 * trial

    def sparse_step(self, x: np.ndarray, g: np.ndarray, most: int) -> tuple[np.ndarray, float, float]:
        """Do :meth:`step` with an l1 penalty.

        Coordinate descent over the weights that have left zero, or would, finds which are zero. Of few columns the
        others then take a Newton step, up to where the first of them reaches zero.
        """
        sums, l1, l2, intercept = self.of.sums, self.of.l1, self.of.l2, self.of.intercept
        fall = 0.0
        passes = 1.0
        w, gradients, slopes, bends = (np.array(each.T, order="C", ndmin=2) for each in (x, g, sums.slopes, self.bends))
        for weights, gradient, *derivatives in zip(w, gradients, slopes, bends):
            chosen = np.flatnonzero((weights[:-1] != 0.0) | (np.abs(gradient[:-1]) > l1))
            starts = sums.columns[0]
            moved = np.zeros(len(sums.p))
            first = 0.0
            share = 2.0 * float((starts[chosen + 1] - starts[chosen]).sum()) / max(sums.rows.nnz * len(w), 1)
            for _ in range(SPARSE_SWEEPS):
                model = *sums.columns, chosen, *derivatives, l1, l2, intercept
                fell = kernel.sweep(*model, weights, moved)
                fall = fall + fell
                first = max(first, fell)
                passes = passes + share
                if not fell > kernel.SETTLED * first:
                    break
        y = np.ascontiguousarray(w.T).reshape(x.shape)
        step = y - x
        if sums.rows.width > COLUMNS:
            return step, fall, passes
        rest = -g - self.product(step)
        rest[:-1] -= l1 * np.sign(y[:-1])
        free = (y != 0.0).astype(float)
        free[-1] = 1.0
        move, gain, more = self.step(rest, kernel.SETTLED * fall, most, free)
        if math.isfinite(gain):
            crosses = y * (y + move) < 0.0
            crosses[-1] = False
            lengths = np.where(crosses, -y / np.where(crosses, move, 1.0), 1.0)
            t = float(lengths.min())
            step = np.where(crosses & (lengths == t), -x, step + t * move)
            fall += t * (2.0 - t) * gain
        return step, fall, passes + more


def smooth_bound(newton: Newton, x: np.ndarray) -> float:
    """Lower bound of the objective with a penalty, by the dual variables that are the slopes of smooth losses at ``x``.

    A loss of slope ``s`` at the margin ``p`` is everywhere at least ``value(p) + s (margin - p)``, and so is its mean
    with a tangent of slope zero at its infimum, which is how slopes are scaled.
    """
    sums = copy.copy(newton.sums)
    p = sums.margins(x)
    sums.derive(p, p, 0.0)
    if newton.intercept:
        sums.shares = sums.shares * balance(sums.slopes)
    value, slope, _ = sums.derive(p, p, 0.0)
    return highest(newton, value - slope, sums.gather(sums.slopes)[:-1])


def balance(slopes: np.ndarray) -> np.ndarray:
    """Factors up to 1 with which slopes sum to zero, as those of a free intercept do."""
    up, down = float(slopes[slopes > 0].sum()), -float(slopes[slopes < 0].sum())
    least = min(up, down)
    return np.where(slopes > 0, least / max(up, TINY), least / max(down, TINY))


def highest(newton: Newton, height: float, g: np.ndarray) -> float:
    """The highest bound of dual variables times a factor, for their sum of conjugates and the rows times them."""
    l1, l2 = newton.l1, newton.l2
    if not height > 0.0:
        return 0.0  # the losses are nowhere below
    g = np.abs(g)
    if l1 == 0.0:
        square = dot(g, g) / (2.0 * l2)
        factor = min(height / max(2.0 * square, TINY), 1.0)
        return factor * (height - factor * square)
    free = min(l1 / max(float(g.max(initial=0.0)), TINY), 1.0)  # up to which no weight is worth its penalty
    factors = np.linspace(free, 1.0, FACTORS) if l2 > 0.0 else [free]
    excess = [np.maximum(factor * g - l1, 0.0) for factor in factors]
    return max(factor * height - (dot(e, e) / (2.0 * l2) if l2 else 0.0) for factor, e in zip(factors, excess))


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of products; BLAS would leave threads that spin on the cores."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel()))
