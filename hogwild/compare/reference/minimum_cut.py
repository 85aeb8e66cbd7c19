"""The exact minimum cut of a graph with two labels, the reference for runs on such a graph.

An outside solver finds it (SciPy's maximum flow, Dinic's algorithm) in whole numbers, and the evaluator of all runs
computes what the cut costs. Capacities that are not whole numbers are multiplied until their sum just fits in 32 bits
and rounded down, so the flow, divided again, is a lower bound: the cut found exceeds the minimum by at most ``gap``. It
takes less than a second for a hundred thousand edges.

Minimum cuts and maximum flows: Ford, Fulkerson (1956). The relaxation that is trained has the same minimum.
"""

from __future__ import annotations

import time

import numpy as np

from hogwild.compare.reference.optimum import Optimum
from hogwild.data.graphs.container import Graph
from hogwild.problems.cuts.objective import CutEvaluator

EDGES = 4_000_000  # larger graphs are not solved: this many take about a minute at most
MOST = 2**31 - 1  # the solver's largest number


def minimum_cut(graph: Graph) -> Optimum:
    """Return the optimum of a cut with two labels; its ``start`` is unknown here and is NaN."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    began = time.perf_counter()
    fixed, n = graph.fixed(), graph.n_vertices
    place = np.where(fixed < 0, np.arange(n), n + np.maximum(fixed, 0))  # terminals of a label are one vertex
    u, v = place[graph.u], place[graph.v]
    between = u != v
    ends = np.concatenate((u[between], v[between])), np.concatenate((v[between], u[between]))
    weights = np.concatenate((graph.forward[between], graph.backward[between])).astype(np.float64)
    factor = _factor(weights, ends, n)
    capacities = csr_matrix((np.floor(factor * weights), ends), shape=(n + 2, n + 2)).astype(np.int32)
    flow = maximum_flow(capacities, n, n + 1)
    left = (capacities - flow.flow).tocsr()
    left.data = (left.data > 0).astype(np.int32)
    left.eliminate_zeros()
    labels = np.where(fixed < 0, 1, fixed)
    reached = breadth_first_order(left, n, return_predecessors=False)
    labels[reached[reached < n]] = 0
    value = CutEvaluator(graph).cut(labels)
    gap = max(value - flow.flow_value / factor, 0.0)
    whole = "" if factor == 1.0 else f", of capacities times {factor:.6g} rounded down"
    how = f"the minimum cut, by maximum flow{whole}"
    return Optimum(value, np.nan, how, None, None, time.perf_counter() - began, gap)


def _factor(weights: np.ndarray, ends: tuple[np.ndarray, np.ndarray], n: int) -> float:
    """Return the factor for capacities: 1 if they are whole, else the largest with which no sum overflows."""
    out = np.bincount(ends[0], weights, n + 2)
    inward = np.bincount(ends[1], weights, n + 2)
    most = max(float(out.max(initial=0.0)), float(inward.max(initial=0.0)), 1e-300)
    if 2 * most <= MOST and np.array_equal(weights, np.floor(weights)):
        return 1.0
    return MOST / most / 2  # a residual is up to the sum of both directions
