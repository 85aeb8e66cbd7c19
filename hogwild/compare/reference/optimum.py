"""The lowest value of the objective, the reference for every method of a comparison.

On rows the optimum finder looks for it from zero weights with much work, and the evaluator of all runs decides. The
tests hold it against L-BFGS, LIBLINEAR and linear programs.

On a graph with two labels SciPy's maximum flow (Dinic's algorithm) finds the minimum cut in whole numbers, and the
evaluator of all runs computes what the cut costs. Capacities that are not whole numbers are multiplied until their sum
just fits in 32 bits and rounded down, so the flow, divided again, is a lower bound: the cut exceeds the minimum by at
most ``gap``. It takes less than a second for a hundred thousand edges. Minimum cuts and maximum flows: Ford, Fulkerson
(1956). The relaxation that is trained has the same minimum.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.graphs.container import Graph
from hogwild.data.rows.container import Rows, narrowed
from hogwild.problems.cuts.objective import CutEvaluator
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights

MOST = 2**31 - 1  # the largest number of the solver of maximum flows
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
    objective = Objective(
        rows,
        config.loss,
        problem.loss_param,
        l1=config.l1,
        l2=config.l2,
        normalize=config.normalize,
        labels=problem.labels,
        weights=row_weights(rows, config.class_weight),
        width=problem.width,
    )
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


def minimum_cut(graph: Graph, start: float = math.nan) -> Optimum:
    """Return the optimum of a cut with two labels; ``start`` is the objective that a run starts from."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    fixed = graph.fixed()
    n = graph.n_vertices
    place = np.where(fixed < 0, np.arange(n), n + np.maximum(fixed, 0))  # terminals of a label are one vertex
    u, v = place[graph.u], place[graph.v]
    between = u != v
    ends = np.concatenate((u[between], v[between])), np.concatenate((v[between], u[between]))
    weights = np.concatenate((graph.forward[between], graph.backward[between])).astype(np.float64)
    most = max(*(np.bincount(end, weights, n + 2).max() for end in ends), 1e-300)
    whole = 2 * most <= MOST and np.array_equal(weights, np.floor(weights))
    factor = 1.0 if whole else MOST / most / 2  # a residual is up to the sum of both directions
    capacities = csr_matrix((np.floor(factor * weights), ends), shape=(n + 2, n + 2)).astype(np.int32)
    flow = maximum_flow(capacities, n, n + 1)
    residual = (capacities - flow.flow).tocsr()
    residual.data = (residual.data > 0).astype(np.int32)
    residual.eliminate_zeros()
    labels = np.where(fixed < 0, 1, fixed)
    reached = breadth_first_order(residual, n, return_predecessors=False)
    labels[reached[reached < n]] = 0
    value = CutEvaluator(graph).cut(labels)
    how = "the minimum cut, by maximum flow" + f", of capacities times {factor:.6g} rounded down" * (not whole)
    return Optimum(value, start, how, max(value - flow.flow_value / factor, 0.0))
