"""The lowest value of the objective of a linear model, the reference for every method of a comparison.

The optimum finder looks for it from zero weights with much work, and the evaluator of all runs decides. The tests hold
the finder against L-BFGS, LIBLINEAR and linear programs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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


def find_optimum(case: Any) -> Optimum:
    """Find the optimum of the objective of a linear case, which has its evaluator."""
    problem, columns = case.exact
    classes, width = case.problem.classes, case.problem.width
    zero = np.zeros((width,) if classes == 1 else (classes, width)), np.zeros(classes)
    best = problem.lowered(*columns.inward(*zero), WORK, ENOUGH[problem.kinked])
    solution = columns.outward(best.coef, best.intercept)
    start, value = (case.evaluate(each)["objective"] for each in (zero, solution))
    assert start is not None
    how = f"{best.steps} steps of the optimum finder"
    return Optimum(value, start, how, max(best.gap, 0.0), *solution)
