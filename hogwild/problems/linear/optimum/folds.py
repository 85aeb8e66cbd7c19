"""Optima without each fold, for one penalty after the other: what cross-validation of few rows is judged by.

Rows held out have no share of the objective, and the penalty stays what it is on all rows: it then weighs as much
against each row as in the fit that follows on all of them. Each penalty begins where the one before has ended, so from
strong to weak ones a few steps are enough.

Losses on rows held out fall and rise again as the penalty gets weaker, and weak penalties take the most steps, so the
walk over penalties begins at the strongest and ends where the loss has risen. Columns of other scales come to count at
penalties in their own units, so it may have many decades to go.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import Rows, narrowed
from hogwild.errors import NoChoice
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FLOOR, FitProblem, objective_at_zero
from hogwild.problems.linear.optimum.newton import Newton
from hogwild.problems.linear.options import L2_PATH

SHARE = 1e-4  # of the objective: a step that promises less is not taken
WORK = 1 << 30  # entries that the steps of a fit may visit
MOST_FOLDS, MOST_ROUNDS = 5, 5
ENTRIES, MARGINS = 500_000, 1 << 22  # up to which rows are few: nonzeros times classes, and margins of all fits
ROUND, ROWS = 40_000, 1000  # entries, times classes, and rows that are divided once; fewer more often, for chance
RISEN, LEAST = 0.05, 1e-3  # a loss is past the lowest by so much of what is learned, and of the loss itself
DECADES = 6  # beyond the strongest penalty, at most
FARTHEST = 24  # power of ten of a unit, so that penalties are normal numbers in float32


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


def fits_without(
    objective: Objective, classes: int, intercept: bool, divisions: Sequence[np.ndarray]
) -> Callable[[float], list[tuple[np.ndarray, np.ndarray]]]:
    """Return a function of l2: weights, (width,) or (K, width), and intercepts (K,) of the optimum without each fold.

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
    rows = objective.rows
    width = rows.width
    columns: Any = slice(None)
    if width > len(rows):
        rows, columns = narrowed(rows if rows.contiguous else rows.compact())
    problem = FitProblem.of(objective, rows, classes, intercept)
    softmax = problem.loss == "softmax"
    shape = (rows.width + 1, classes) if softmax else (rows.width + 1,)
    fits = []  # by class, division and fold: the method without it, and the solution so far
    for k in range(1 if softmax else classes):
        sums = problem.sums(k, classes)
        floor = FLOOR * objective_at_zero(sums, shape)
        for fold_of in divisions:
            for fold in range(int(fold_of.max()) + 1):
                without = copy.copy(sums)
                without.shares = np.where(fold_of == fold, 0.0, sums.shares)
                fits.append((Newton(without, 0.0, 0.0, intercept, floor), np.zeros(shape)))
    parts = len(fits) // (1 if softmax else classes)

    @np.errstate(all="ignore")
    def optima(l2: float) -> list[tuple[np.ndarray, np.ndarray]]:
        def one(number: int, _: int) -> None:
            newton, x = fits[number]
            newton.l2 = l2
            fits[number] = newton, newton.lower(x, WORK, SHARE).x

        list(map_cuts([(k, k + 1) for k in range(len(fits))], one))
        solutions = []
        for part in range(parts):
            x = np.column_stack([x for _, x in fits[part::parts]]).T
            coef = np.zeros((len(x), width))
            coef[:, columns] = x[:, :-1]
            solutions.append((coef[0] if len(coef) == 1 else coef, x[:, -1].copy()))
        return solutions

    return optima


# ---- which penalties are tried, by the losses of those before


def walked(loss: Callable[[float], float], strongest: float, weakest: float) -> dict[float, float]:
    """The losses of penalties, by ascending penalty: of whole decades from the strongest on, until they have risen.

    While the strongest is clearly the best, stronger ones are tried. Then come those halfway between the best and its
    neighbours.
    """
    losses = {strongest: loss(strongest)}
    while not _risen(losses) and min(losses) > 1.01 * weakest:
        l2 = rounded(min(losses) / 10)
        losses[l2] = loss(l2)
    for _ in range(DECADES):
        nothing = losses[max(losses)]
        others = [each for l2, each in losses.items() if l2 < max(losses)]
        if not math.isfinite(nothing) or nothing > min(others, default=nothing) - LEAST * abs(nothing):
            break
        l2 = rounded(10 * max(losses))
        losses[l2] = loss(l2)
    best, sizes = min(losses, key=losses.__getitem__), sorted(losses)
    k = sizes.index(best)
    for other in sizes[max(k - 1, 0) : k + 2]:
        l2 = rounded(math.sqrt(best * other))
        losses[l2] = losses[l2] if l2 in losses else loss(l2)
    return dict(sorted(losses.items()))


def rounded(l2: float) -> float:
    """A penalty to two digits, as it is shown and can be given again."""
    return float(f"{l2:.2g}")


def _risen(losses: dict[float, float]) -> bool:
    """Whether the loss of the weakest penalty is past the lowest."""
    lowest, nothing = min(losses.values()), losses[max(losses)]
    return losses[min(losses)] > lowest + max(RISEN * (nothing - lowest), LEAST * abs(lowest))


def unit_of(rows: Rows) -> float:
    """What penalties are multiples of: the power of ten nearest to a typical row's squared length.

    That is 1 for rows of unit length. A typical entry is the geometric mean of those that are not zero, so that a few
    columns of another scale do not count.
    """
    values = np.abs(rows.select(rows.spread(100_000)).compact().values)
    values = values[values > 0]
    if not len(values):
        return 1.0
    squared = 2.0 * float(np.log10(values, dtype=np.float64).mean()) + math.log10(rows.nnz / len(rows))
    return float(10.0 ** min(max(round(squared), -FARTHEST), FARTHEST))


def weakest_of(weakest: float, smallest_scale: float) -> float:
    """The weakest penalty that may matter to a column, if ``weakest`` is of a typical one."""
    return max(min(weakest, L2_PATH[0] * smallest_scale**2), 10.0**-FARTHEST)
