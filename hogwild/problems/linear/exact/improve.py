"""Exact steps on all rows, for any penalty and loss."""

from __future__ import annotations

import numpy as np

from hogwild.problems.linear.exact import newton
from hogwild.problems.linear.exact.curved import Solution
from hogwild.problems.linear.exact.ending import KINKED, SMOOTH, WORK, Ending
from hogwild.problems.linear.exact.kinked import unkinked
from hogwild.problems.linear.exact.settle import settled


def improved(
    ending: Ending, coef: np.ndarray, intercept: np.ndarray, objective: float, work: int = WORK
) -> tuple[Solution, float | None]:
    """Return parameters whose objective is as low or lower, and the share of it that they may be above the optimum.

    The steps visit about ``work`` entries at most. The share is 0 if they came to their end, and None if it is unknown.
    The perceptron's loss has no such steps.
    """
    if ending.l1 > 0.0:
        return settled(ending, coef, intercept)
    if ending.loss in KINKED:
        return unkinked(ending, coef, intercept, objective, work)
    if newton.has_few(ending, len(np.atleast_2d(coef))):
        found = newton.lowered(ending, coef, intercept, 0.0)
        return ((coef, intercept), None) if found is None else (found, 0.0)
    if ending.loss in (*SMOOTH, "softmax"):
        return ending.lowered(coef, intercept, objective, work)
    return (coef, intercept), None
