"""The optimum of a linear model on given rows, as near as an allowance of work reaches.

It ends a run whose stochastic steps have stopped far above the optimum: because columns depend on each other, a row
outweighs all others, or the optimum of nearly separable classes is far away. It ends the fits of estimators, is what
few rows are judged by when l2 is chosen (``folds.py``), and with much work it is what comparisons are held against.
Smooth losses take truncated Newton steps (``newton.py``), losses with a kink the method of multipliers or dual ascent
(``kinked.py``). Work is counted in entries visited, never in time: results do not depend on how busy a machine is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import Rows
from hogwild.data.rows.labels import LabelSets
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum import kinked
from hogwild.problems.linear.optimum.newton import COLUMNS, Descent, Newton, smooth_bound
from hogwild.problems.linear.optimum.sums import FEW, LossSums, Softmax
from hogwild.problems.linear.rows import lengths_of

WORK = 1 << 30  # entries that the steps of a run may visit on few rows
FIT_WORK = 1 << 28  # entries that the steps of an estimator's fit, or of a run on more rows, may visit
AFTER = 3.0  # the same in multiples of the entries that its epochs have visited, if that is more
ENOUGH = 3e-5  # share of the objective that the last step gains at most
ENOUGH_SPARSE = 1e-6  # the same with an l1 penalty, so that its zeros are those of the optimum
ENOUGH_KINKED = 5e-3  # share of the objective that a solution of a loss with kinks is above its bound at most
ENOUGH_KINKED_SPARSE = 1e-4  # the same with an l1 penalty
AGAIN = 2.0  # times as much the first step must promise
FLOOR = 2e-6  # share of the start's objective, times classes: steps take shares of a smaller objective of that
NEGLIGIBLE = 1e-4  # share of the start's objective that nobody misses
JUDGED = 1 << 26  # entries that are visited to judge a solution
COLD = 0.5  # share of the objective up to which the bound of stochastic steps tells that a fit has settled


@dataclass(frozen=True)
class Solution:
    """Where the steps have ended.

    Attributes
    ----------
    coef, intercept : array of float64, shape (width,) or (K, width), and (K,)
    value, start : float
        The objective here, and that of zero parameters.
    gap : float
        By how much it may be above the optimum: a bound or, where steps cannot prove one, an estimate.
    spent : float
        Entries visited.
    steps : int
        Zero if the start is returned.
    """

    coef: np.ndarray
    intercept: np.ndarray
    value: float
    start: float
    gap: float
    spent: float
    steps: int

    @property
    def share(self) -> float:
        """The gap over the objective."""
        return self.gap / max(abs(self.value), 1e-300)

    def is_near(self, share: float) -> bool:
        """Whether the gap is at most this share of the objective, or too small for anybody to miss."""
        return self.gap <= max(share * abs(self.value), NEGLIGIBLE * abs(self.start))


@dataclass
class FitProblem:
    """An objective on rows: ``sum of shares times losses + l2/2 ||w||^2 + l1 ||w||_1``, the intercept unpenalised.

    Parameters
    ----------
    rows : Rows
        No feature is beyond the width of the parameters.
    loss, param : str, float
    l1, l2 : float
    targets : array of shape (n,)
        -1 and +1, real numbers or counts; of several classes their numbers from 0, also of those in ``sets``.
    weights, scales : array of shape (n,), optional
        Weights of the rows, over n their shares, and factors on their values. An empty array is none.
    intercept : bool
    sets : LabelSets, optional
        Of rows that have several labels each.
    """

    rows: Rows
    loss: str
    param: float
    l1: float
    l2: float
    targets: np.ndarray
    weights: np.ndarray | None
    scales: np.ndarray | None
    intercept: bool
    sets: LabelSets | None = None

    def __post_init__(self) -> None:
        self.targets = np.asarray(self.targets, np.float64)
        equal = self.weights is None or not len(self.weights)
        self.shares = (np.ones(len(self.rows)) if equal else np.asarray(self.weights, np.float64)) / len(self.rows)
        self.kinked = not LOSSES[self.loss].smooth

    @classmethod
    def of(cls, objective: Objective, rows: Rows, classes: int, intercept: bool) -> FitProblem:
        """That of an objective, with ``classes`` margins a row."""
        o = objective
        targets = 2.0 * o.targets - 1.0 if o.labels and classes == 1 else o.targets
        sets = o.sets if o.multilabel else None
        return cls(rows, o.loss, o.loss_param, o.l1, o.l2, targets, o.weights, o.scales, intercept, sets)

    @cached_property
    def _rows_of(self) -> Any:
        """The rows that have each label, as columns of a CSC matrix."""
        assert self.sets is not None
        return self.sets.indicator(self.targets).tocsc()

    def signs(self, k: int) -> np.ndarray:
        """Whether each row is of class ``k``, or has label ``k``: -1 or +1."""
        if self.sets is None:
            return np.where(self.targets == k, 1.0, -1.0)
        signs, columns = np.full(len(self.rows), -1.0), self._rows_of
        signs[columns.indices[columns.indptr[k] : columns.indptr[k + 1]]] = 1.0
        return signs

    def sums(self, k: int, classes: int) -> LossSums:
        """The sums of class ``k`` against the others, or those of all classes together."""
        y = self.targets
        if self.loss == "softmax":
            return Softmax(self.rows, self.loss, self.param, y, self.shares, self.scales)
        y = y if classes == 1 else self.signs(k)
        return LossSums(self.rows, self.loss, self.param, y, self.shares, self.scales, classes > 1)

    def lowered(
        self,
        coef: np.ndarray,
        intercept: np.ndarray,
        work: float = WORK,
        enough: float | None = None,
        skip: float | None = None,
    ) -> Solution:
        """Parameters whose objective is as low or lower.

        Parameters
        ----------
        coef, intercept : array, shape (width,) or (K, width), and (K,)
        work : float
            Entries that may be visited, about.
        enough : float, optional
            Share of the objective at which steps end.
        skip : float, optional
            Share of the objective that the first step must promise, or none is taken. Not for losses with kinks.
            Default: a few times ``enough``, so that to go on from a solution changes nothing.
        """
        w = np.atleast_2d(coef).astype(np.float64)
        classes, start = len(w), np.column_stack((w, np.asarray(intercept, np.float64)))
        if enough is None:
            smooth = ENOUGH_SPARSE if self.l1 > 0.0 else ENOUGH
            enough = smooth if not self.kinked else ENOUGH_KINKED_SPARSE if self.l1 > 0.0 else ENOUGH_KINKED
        skip = AGAIN * enough if skip is None else skip
        softmax = self.loss == "softmax"

        def one(k: int, _: int) -> tuple[Descent, float]:
            sums, x = self.sums(k, classes), np.ascontiguousarray(start.T) if softmax else start[k].copy()
            start_value = objective_at_zero(sums, x.shape)
            floor = FLOOR * classes * start_value
            newton = Newton(sums, self.l1, self.l2, self.intercept, floor)
            allowance = work if softmax else work / classes
            if self.loss == "perceptron":  # zero weights have its optimum, and it has no exact steps
                return Descent(x, math.nan, math.inf, 0.0, 0), start_value
            if self.kinked:
                return kinked.lowered(newton, x, allowance, enough), start_value
            fit = newton.lower(x, allowance, enough, skip)
            if self.l1 > 0.0 and not softmax and not fit.gap <= enough * max(abs(fit.value), floor):
                lower = smooth_bound(newton, fit.x)
                fit = fit._replace(gap=min(max(fit.value - lower, 0.0), fit.gap))
            return fit, start_value

        threads = 1 if self.rows.nnz * classes < FEW else None
        parts = list(map_cuts([(k, k + 1) for k in range(1 if softmax else classes)], one, threads))
        x = np.column_stack([fit.x for fit, _ in parts]).T
        value, gap, spent = (sum(getattr(fit, name) for fit, _ in parts) for name in ("value", "gap", "spent"))
        return Solution(
            x[:, :-1].reshape(coef.shape),
            x[:, -1].copy(),
            value,
            sum(each for _, each in parts),
            gap,
            spent,
            max(fit.steps for fit, _ in parts),
        )

    def work(self, epochs: int, classes: int) -> float:
        """Entries that steps may visit after so many epochs: finishing takes a few times what training took."""
        return max(FIT_WORK, AFTER * epochs * self.rows.nnz * classes)

    def promise(self, coef: np.ndarray, intercept: np.ndarray) -> float | None:
        """The share of the objective that a Newton step promises; losses with kinks have none."""
        if self.kinked:
            return None
        return self.lowered(coef, intercept, JUDGED, skip=math.inf).share

    def has_settled(self, epochs: int, value: float) -> bool:
        """Whether the bound of stochastic gradient descent, ``E x.x / (2 l2 t)`` after ``t`` rows, says so.

        ``value`` is the objective. A step's promise costs less where the whole Hessian is held.
        """
        squares = float(lengths_of(self.rows) @ self.shares)
        return self.rows.width > COLUMNS and squares < COLD * value * 2 * self.l2 * epochs * len(self.rows)


def objective_at_zero(sums: LossSums, shape: tuple[int, ...]) -> float:
    """The size of the objective at zero parameters."""
    nothing = np.zeros((len(sums.rows), *shape[1:]))
    return abs(sums.derive(nothing, nothing, 0.0)[0])
