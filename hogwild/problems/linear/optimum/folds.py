"""Optima without each fold, for one penalty after the other: what cross-validation of few rows is judged by.

Rows held out have no share of the objective, and the penalty stays what it is on all rows: it then weighs as much
against each row as in the fit that follows on all of them. Each penalty begins where the one before has ended, so from
strong to weak ones a few steps are enough.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import Rows, narrowed
from hogwild.errors import NoChoice
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FLOOR, FitProblem, objective_at_zero
from hogwild.problems.linear.optimum.newton import Newton

SHARE = 1e-4  # of the objective: a step that promises less is not taken
WORK = 1 << 30  # entries that the steps of a fit may visit
MOST_FOLDS, MOST_ROUNDS = 5, 5
ENTRIES, MARGINS = 500_000, 1 << 22  # up to which rows are few: nonzeros times classes, and margins of all fits
ROUND, ROWS = 40_000, 1000  # entries, times classes, and rows that are divided once; fewer more often, for chance


def are_few(rows: Rows, loss: str, l1: float, classes: int) -> bool:
    """Whether so many rows are judged by exact fits, which take some tenths of a second then."""
    few = rows.nnz * classes <= ENTRIES and len(rows) * MOST_FOLDS * classes <= MARGINS
    return few and l1 == 0.0 and LOSSES[loss].smooth


def divisions(targets: np.ndarray, classes: int, entries: int, folds: int = MOST_FOLDS) -> list[np.ndarray]:
    """The fold of each row, (n,) int32, in one division of the rows or, of few ``entries``, in several.

    Each class is spread evenly over the folds, which are as many as its rows if these are fewer. ``classes`` is zero
    for other targets. The seed of a run has no part in it, so that rows alone say what is chosen.

    Raises
    ------
    NoChoice
        If a class has one row.
    """
    random = np.random.default_rng(0)
    divided = []
    groups = (
        [np.flatnonzero(targets == label) for label in np.unique(targets)] if classes else [np.arange(len(targets))]
    )
    many = min(folds, min(map(len, groups)))
    if many < 2:
        rows = "a class has" if classes else "there is"
        raise NoChoice(f"l2='auto': {rows} one row, which cannot be held out: give l2 as a number")
    for _ in range(int(np.clip(max(ROUND // max(entries, 1), ROWS // len(targets)), 1, MOST_ROUNDS))):
        fold_of = np.empty(len(targets), np.int32)
        for group in groups:
            fold_of[random.permutation(group)] = np.arange(len(group)) % many
        divided.append(fold_of)
    return divided


class Folds:
    """The fits that leave out a fold each.

    Parameters
    ----------
    objective : Objective
        On all rows, of a smooth loss or "softmax"; its penalty does not count.
    classes : int
        Margins of a row.
    intercept : bool
    divisions : sequence of arrays of int32, shape (n,)
        The fold of each row; -1 of those that no fit leaves out.
    """

    def __init__(self, objective: Objective, classes: int, intercept: bool, divisions: Sequence[np.ndarray]) -> None:
        rows = objective.rows
        self._columns = None
        self._width = objective.rows.width
        if rows.width > len(rows):
            rows, self._columns = narrowed(rows if rows.contiguous else rows.compact())
        problem = FitProblem.of(objective, rows, classes, intercept)
        softmax = problem.loss == "softmax"
        shape = (rows.width + 1, classes) if softmax else (rows.width + 1,)
        self._fits = []  # by class, division and fold: the method without it, and the solution so far
        for k in range(1 if softmax else classes):
            sums = problem.sums(k, classes)
            floor = FLOOR * objective_at_zero(sums, shape)
            for fold_of in divisions:
                for fold in range(int(fold_of.max()) + 1):
                    without = copy.copy(sums)
                    without.shares = np.where(fold_of == fold, 0.0, sums.shares)
                    self._fits.append((Newton(without, intercept, floor), np.zeros(shape)))
        self._classes = 1 if softmax else classes

    @np.errstate(all="ignore")
    def fit(self, l2: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """The weights, (width,) or (K, width), and intercepts (K,) of the optimum without each fold."""

        def one(number: int, _: int) -> None:
            newton, x = self._fits[number]
            self._fits[number] = newton, newton.lower(x, 0.0, l2, WORK, SHARE).x

        list(map_cuts([(k, k + 1) for k in range(len(self._fits))], one))
        solutions = []
        parts = len(self._fits) // self._classes
        for part in range(parts):
            x = np.column_stack([x for _, x in self._fits[part::parts]]).T
            coef = np.zeros((len(x), self._width))
            coef[:, slice(None) if self._columns is None else self._columns] = x[:, :-1]
            solutions.append((coef[0] if len(coef) == 1 else coef, x[:, -1].copy()))
        return solutions
