"""The lowest value of the objective of a linear model, the reference for every method of a comparison.

The optimum finder looks for it from zero weights with much work, and the evaluator of all runs decides. The tests hold
the finder against L-BFGS, LIBLINEAR and linear programs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows, narrowed
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights

WORK = 1 << 36  # entries that the finder may visit
ENOUGH = 1e-11, 2e-8  # share of the objective that its last step gains, and of losses with kinks that it may be above


class Optimum(NamedTuple):
    """The optimum of an objective on some data.

    Attributes
    ----------
    objective, start : float
        Values at the optimum (None: unknown, so the lowest that any run reaches replaces it), and where runs start.
    how : str
        How it was found, or why not, in words.
    gap : float or None
        The true minimum is lower by at most about this; None if that is unknown.
    coef, intercept : array, shape (width,) or (K, width), and (K,), float64
        The solution of a linear problem.
    """

    objective: float | None
    start: float
    how: str
    gap: float | None = None
    coef: Any = None
    intercept: Any = None


def find_optimum(rows: Rows, config: TrainConfig) -> Optimum:
    """Find the optimum of the objective that ``config`` defines on these rows.

    Raises
    ------
    InputError
        If the loss does not fit the targets.
    """
    problem = LinearProblem.of(config, rows, "serial")
    classes = problem.classes
    objective = problem.objective(rows, weights=row_weights(rows, config.class_weight))
    narrow, columns = narrowed(rows if rows.contiguous else rows.compact())
    posed = FitProblem.of(objective, narrow, classes, config.intercept)
    coef = np.zeros((problem.width,) if classes == 1 else (classes, problem.width))
    start = objective.evaluate(coef, np.zeros(classes))["objective"]
    best = posed.lowered(coef[..., : narrow.width], np.zeros(classes), WORK, ENOUGH[posed.kinked])
    coef[..., columns] = best.coef
    value = objective.evaluate(coef, best.intercept)["objective"]
    assert start is not None
    how = f"{best.steps} steps of the optimum finder"
    return Optimum(value, start, how, max(best.gap, 0.0), coef, best.intercept)
