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
import time
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Optimum:
    """The optimum of an objective on some rows.

    Attributes
    ----------
    objective, start : float
        Values at the optimum (None: unknown), and at the parameters that a run starts from.
    how : str
        How it was found, in words.
    coef, intercept : array, shape (width,) or (K, width), and (1,) or (K,), float64
        The solution of a linear problem.
    seconds : float
        Time it took.
    gap : float or None
        The true minimum is lower by at most about this; None if that is unknown.
    """

    objective: float | None
    start: float
    how: str
    coef: np.ndarray | None
    intercept: np.ndarray | None
    seconds: float
    gap: float | None


def unknown(start: float, why: str) -> Optimum:
    """Return a replacement for an unknown optimum: the lowest objective that any run reaches is used for it."""
    return Optimum(None, start, f"best seen: {why}", None, None, 0.0, None)


def find_optimum(rows: Rows, config: TrainConfig) -> Optimum:
    """Find the optimum of the objective that ``config`` defines on these rows.

    Raises
    ------
    InputError
        If the loss does not fit the targets.
    """
    began = time.perf_counter()
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
    coef = np.zeros((problem.width,) if classes == 1 else (classes, problem.width))
    start = objective.evaluate(coef, np.zeros(classes))["objective"]
    assert start is not None
    if config.loss == "perceptron":
        return Optimum(start, start, "zero weights", coef, np.zeros(classes), 0.0, 0.0)
    narrow, columns = narrowed(rows if rows.contiguous else rows.compact())
    posed = FitProblem.of(objective, narrow, classes, config.intercept)
    best = posed.lowered(coef[..., : narrow.width].copy(), np.zeros(classes), WORK, ENOUGH[posed.kinked])
    coef[..., columns] = best.coef
    facts = objective.evaluate(coef, best.intercept)
    value = facts["objective"]
    assert value is not None
    gap: float | None = max(best.gap, 0.0)
    how = f"{best.steps} steps of the optimum finder"
    if not posed.kinked and config.l2 > 0.0:
        gap = posed.slope(best.coef, best.intercept) ** 2 / (2.0 * config.l2)  # a bound: l2 makes it that convex
    if not config.l1 and not config.l2 and facts.get("accuracy") == 1.0 and config.loss in ("log", "softmax"):
        gap = None
        how += "; not attained: the classes are separable and nothing bounds the weights"
    return Optimum(value, start, how, coef, best.intercept, time.perf_counter() - began, gap)


# ---- minimum cuts


def minimum_cut(graph: Graph, start: float = math.nan) -> Optimum:
    """Return the optimum of a cut with two labels; ``start`` is the objective that a run starts from."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    began = time.perf_counter()
    fixed = graph.fixed()
    n = graph.n_vertices
    place = np.where(fixed < 0, np.arange(n), n + np.maximum(fixed, 0))  # terminals of a label are one vertex
    u, v = place[graph.u], place[graph.v]
    between = u != v
    ends = np.concatenate((u[between], v[between])), np.concatenate((v[between], u[between]))
    weights = np.concatenate((graph.forward[between], graph.backward[between])).astype(np.float64)
    factor = _factor(weights, ends, n)
    capacities = csr_matrix((np.floor(factor * weights), ends), shape=(n + 2, n + 2)).astype(np.int32)
    flow = maximum_flow(capacities, n, n + 1)
    residual = (capacities - flow.flow).tocsr()
    residual.data = (residual.data > 0).astype(np.int32)
    residual.eliminate_zeros()
    labels = np.where(fixed < 0, 1, fixed)
    reached = breadth_first_order(residual, n, return_predecessors=False)
    labels[reached[reached < n]] = 0
    value = CutEvaluator(graph).cut(labels)
    gap = max(value - flow.flow_value / factor, 0.0)
    whole = "" if factor == 1.0 else f", of capacities times {factor:.6g} rounded down"
    how = f"the minimum cut, by maximum flow{whole}"
    return Optimum(value, start, how, None, None, time.perf_counter() - began, gap)


def _factor(weights: np.ndarray, ends: tuple[np.ndarray, np.ndarray], n: int) -> float:
    """Return the factor for capacities: 1 if they are whole, else the largest with which no sum overflows."""
    out = np.bincount(ends[0], weights, n + 2)
    inward = np.bincount(ends[1], weights, n + 2)
    most = max(float(out.max(initial=0.0)), float(inward.max(initial=0.0)), 1e-300)
    if 2 * most <= MOST and np.array_equal(weights, np.floor(weights)):
        return 1.0
    return MOST / most / 2  # a residual is up to the sum of both directions
