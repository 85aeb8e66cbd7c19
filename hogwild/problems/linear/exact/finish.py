"""What follows the last epoch of an estimator's fit: exact steps, where stochastic ones have ended above the optimum.

``tol`` ends a fit when epochs gain little, which may be far above the optimum where columns depend on each other, one
row outweighs the others, or classes are nearly separable. With few features one Newton step's promise says so, at the
cost of a pass or two. With many, where a verdict takes longer than many fits, the bound of stochastic gradient descent
decides first: after ``t`` rows its excess is about ``E x.x / (2 l2 t)`` of the objective.
"""

from __future__ import annotations

import numpy as np

from hogwild.data.scaled import lengths_of
from hogwild.problems.linear.exact import newton
from hogwild.problems.linear.exact.curved import Solution
from hogwild.problems.linear.exact.ending import KINKED, Ending
from hogwild.problems.linear.exact.improve import improved

LARGEST = 1 << 22  # nonzeros times classes of fits that are judged
WORK = 1 << 27  # entries that exact steps visit at most, if features are many
COLD = 0.15  # share of the objective up to which the bound tells that a fit has settled


def finished(ending: Ending, solution: Solution, epochs: int, objective: float, most: float) -> tuple[Solution, bool]:
    """The solution that so many epochs ended with, after exact steps if it needs any, and whether these were enough.

    It needs them if it is above its optimum by more than a share ``most`` of the ``objective``, which may be that of a
    sample of the rows.
    """
    rows, classes = ending.rows, len(np.atleast_2d(solution[0]))
    if rows.nnz * classes > LARGEST:
        return solution, True
    kinked, few = ending.loss in KINKED, newton.has_few(ending, classes)
    if few and not kinked:  # half of what is allowed, since the model of the loss is not the loss
        return newton.lowered(ending, *solution, most / 2 * abs(objective) / classes) or solution, True
    if not few and ending.l2 and lengths_of(rows) @ ending.shares < COLD * 2 * ending.l2 * epochs * len(rows):
        return solution, True
    objective = ending.objective(np.atleast_2d(solution[0]).astype(np.float64), solution[1])
    gain = None if kinked else ending.judge(*solution, objective)[1]
    if gain is not None and gain < most / 2:
        return solution, True
    found, left = improved(ending, *solution, objective, WORK)
    return found, found[0] is solution[0] if left is None else left <= most
