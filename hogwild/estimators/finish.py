"""What follows the last epoch of a fit: exact steps, where stochastic ones have ended above the optimum.

``tol`` ends a fit when epochs gain little, which may be far above the optimum where columns depend on each other, one
row outweighs the others, or classes are nearly separable. Exact steps on all rows then finish it, the same as those of
``hogwild.train``. With few features one Newton step's promise decides, at the cost of a pass or two. With many, where a
verdict takes longer than many fits, the bound of stochastic gradient descent decides first: after ``t`` rows its excess
is about ``E x.x / (2 l2 t)`` of the objective, so that a fit which has visited enough rows is near.
"""

from __future__ import annotations

import warnings

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.estimators.options import Options
from hogwild.problems.linear.exact import newton
from hogwild.problems.linear.exact.ending import Ending, Solution
from hogwild.problems.linear.exact.settle import settled
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.probe import mean_square
from hogwild.training.stopping import UNSETTLED

LARGEST = 1 << 22  # nonzeros times classes of fits that are judged
LOOSE = 1e-3  # tol above which a fit is meant to end early
WORK = 1 << 27  # entries that exact steps visit at most, if features are many
FEWEST = 30  # epochs, fewer than which are meant to end a fit early if they are all that it may take
COLD = 0.15  # share of the objective up to which the bound tells that a fit has settled


def finished(options: Options, problem: LinearProblem, rows: Rows, solution: Solution, epochs: int,
             objective: float) -> Solution:  # fmt: skip
    """The solution of a fit that ended by itself after so many epochs at this objective, after exact steps if any.

    ``rows`` are the user's, with kernel targets.
    """
    early = options.tol > LOOSE or epochs == options.max_iter < FEWEST
    if early or options.average or options.learning_rate != "auto":
        return solution
    if rows.nnz * problem.classes > LARGEST:
        return solution
    ending, each = ending_of(options, problem, rows), abs(objective) / problem.classes
    if newton.has_few(ending, problem.classes):  # half of what is allowed, since the model is not the loss
        return newton.lowered(ending, *solution, UNSETTLED / 2 * each) or solution
    if options.l2 and mean_square(rows, rows.weights) < COLD * 2 * options.l2 * epochs * len(rows):
        return solution
    objective = ending.objective(np.atleast_2d(solution[0]).astype(np.float64), solution[1])
    _, gain = ending.judge(*solution, objective) if problem.loss != "hinge" else (0.0, None)
    if gain is not None and gain < UNSETTLED:
        return solution
    found, ended = ending.lowered(*solution, objective, WORK, 0)
    if not ended and found is not solution:
        _warn()
    return found


def zeroed(options: Options, problem: LinearProblem, rows: Rows, solution: Solution) -> Solution:
    """The solution with the zeros of its l1 penalty."""
    return settled(ending_of(options, problem, rows), *solution)[0]


def ending_of(options: Options, problem: LinearProblem, rows: Rows) -> Ending:
    about = problem.loss, problem.loss_param, problem.l1, problem.l2
    return Ending(rows, *about, rows.targets, rows.weights, None, options.intercept)


def _warn() -> None:
    from sklearn.exceptions import ConvergenceWarning

    said = "The fit has ended above its optimum, and exact steps would take too long to reach it"
    warnings.warn(f"{said}: a larger alpha, or columns of one scale, bring it nearer", ConvergenceWarning, stacklevel=7)
