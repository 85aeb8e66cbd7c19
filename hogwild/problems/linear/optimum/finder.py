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

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import Rows
from hogwild.data.scaled import lengths_of
from hogwild.kernels.losses import EPSILON_INSENSITIVE, HINGE, PERCEPTRON
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum import kinked
from hogwild.problems.linear.optimum.newton import Found, Newton
from hogwild.problems.linear.optimum.sums import FEW, Softmax, Sums, scales_of

WORK, PASSES = 1 << 30, 10  # entries that the steps of a run may visit: this many, or so many times all
ENOUGH = 1e-4  # share of the objective that the last step gains at most,
ENOUGH_KINKED = 5e-3  # and that a solution of a loss with kinks is above its bound at most
FLOOR = 1e-4  # share of the start's objective: shares of a smaller objective are taken of that
JUDGED = 1 << 26  # entries that are visited to judge a solution
LARGEST = 1 << 22  # nonzeros times classes of an estimator's fit that is finished, and
FIT_WORK = 1 << 27  # entries that its steps may visit
COLD = 0.15  # share of the objective up to which the bound of stochastic steps tells that a fit has settled


@dataclass(frozen=True)
class Solution:
    """Where the steps have ended.

    Attributes
    ----------
    coef, intercept : array of float64, shape (width,) or (K, width), and (K,)
    value : float
        The objective.
    gap : float
        By how much it may be above the optimum: a bound for losses with kinks and a penalty, else an estimate.
    spent : float
        Entries visited.
    steps : int
        Zero if the start is returned.
    """

    coef: np.ndarray
    intercept: np.ndarray
    value: float
    gap: float
    spent: float
    steps: int

    @property
    def share(self) -> float:
        """The gap over the objective."""
        return self.gap / max(abs(self.value), kinked.TINY) if self.gap > 0.0 else 0.0


class Problem:
    """An objective on rows: ``sum of shares times losses + l2/2 ||w||^2 + l1 ||w||_1``, the intercept unpenalised.

    Parameters
    ----------
    rows : Rows
        No feature is beyond the width of the parameters.
    loss, param : str, float
    l1, l2 : float
    targets : array of shape (n,)
        -1 and +1, real numbers or counts; of several classes their numbers from 0.
    weights, scales : array of shape (n,), optional
        Weights of the rows, over n their shares, and factors on their values. An empty array is none.
    intercept : bool
    """

    def __init__(
        self,
        rows: Rows,
        loss: str,
        param: float,
        l1: float,
        l2: float,
        targets: np.ndarray,
        weights: np.ndarray | None,
        scales: np.ndarray | None,
        intercept: bool,
    ) -> None:
        self.rows, self.loss, self.param, self.l1, self.l2 = rows, loss, float(param), float(l1), float(l2)
        self.targets, self.intercept, self.scales = np.asarray(targets, np.float64), intercept, scales_of(scales)
        equal = weights is None or not len(weights)
        self.shares = (np.ones(len(rows)) if equal else np.asarray(weights, np.float64)) / len(rows)
        self.kinked = loss in ("hinge", "epsilon-insensitive")

    @classmethod
    def of(cls, objective: Objective, rows: Rows, classes: int, intercept: bool) -> Problem:
        """That of an objective, with ``classes`` margins a row."""
        o = objective
        targets = 2.0 * o.targets - 1.0 if o.labels and classes == 1 else o.targets
        return cls(rows, o.loss, o.loss_param, o.l1, o.l2, targets, o.weights, o.scales, intercept)

    def sums(self, k: int, classes: int) -> Sums:
        """The sums of class ``k`` against the others, or those of all classes together."""
        y = self.targets
        if self.loss == "softmax":
            return Softmax(self.rows, self.loss, self.param, y, self.shares, self.scales)
        y = y if classes == 1 else np.where(y == k, 1.0, -1.0)
        return Sums(self.rows, self.loss, self.param, y, self.shares, self.scales, classes > 1)

    def lowered(
        self,
        coef: np.ndarray,
        intercept: np.ndarray,
        work: float = WORK,
        enough: float | None = None,
        skip: float = 0.0,
    ) -> Solution:
        """Parameters whose objective is as low or lower.

        Parameters
        ----------
        coef, intercept : array, shape (width,) or (K, width), and (K,)
        work : float
            Entries that may be visited, about.
        enough : float, optional
            Share of the objective at which steps end.
        skip : float
            Share of the objective that the first step must promise, or none is taken. Not for losses with kinks.
        """
        w = np.atleast_2d(coef).astype(np.float64)
        classes, start = len(w), np.column_stack((w, np.asarray(intercept, np.float64)))
        enough = (ENOUGH_KINKED if self.kinked else ENOUGH) if enough is None else enough

        def one(k: int, last: int) -> Found:
            sums = self.sums(k, classes)
            x = np.ascontiguousarray(start.T) if self.loss == "softmax" else start[k].copy()
            nothing = np.zeros((len(self.rows), *x.shape[1:]))
            floor = FLOOR * abs(sums.derive(nothing, nothing, 0.0)[0])
            newton, allowance = Newton(sums, self.intercept, floor), work / (last - k if last > k + 1 else classes)
            if sums.code == PERCEPTRON:
                raise ValueError("the perceptron's loss has no exact steps: zero weights have its optimum")
            if sums.code in (HINGE, EPSILON_INSENSITIVE):
                return kinked.lowered(sums, newton, x, self.l1, self.l2, allowance, enough)
            return newton.lower(sums, x, self.l1, self.l2, allowance, enough, skip)

        if self.loss == "softmax":
            found = [one(0, classes)]
        else:
            threads = 1 if self.rows.nnz * classes < FEW else None
            found = list(map_cuts([(k, k + 1) for k in range(classes)], one, threads))
        x = found[0].x.T if self.loss == "softmax" else np.stack([each.x for each in found])
        value, gap, spent = (sum(getattr(each, name) for each in found) for name in ("value", "gap", "spent"))
        return Solution(
            x[:, :-1].reshape(coef.shape), x[:, -1].copy(), value, gap, spent, max(each.steps for each in found)
        )
