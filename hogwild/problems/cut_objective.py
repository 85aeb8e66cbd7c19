"""What a relaxed cut is judged by: its own value, and that of the cut it is rounded to.

The one decision, as in ``objective.py``: this is float64 NumPy from the graph itself, with no code of the kernel.
Values are sums over the edges, not means, so that they are the values of cuts as everybody states them. It costs about
30 ns an edge and label, off the training clock; memory for a piece of the edges at a time.

Two labels can be rounded at any threshold, not at 1/2 only: over all thresholds the mean value of the cut is the
relaxed value (the coarea formula), so the best one is never worse than that. All are tried in one pass, by counting.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hogwild.data.graphs import Graph
from hogwild.errors import InputError

PIECE = 1 << 20  # numbers of temporaries at a time
THRESHOLDS = 1024  # of which the best is taken


class CutEvaluator:
    """``objective`` and ``cut_value`` of relaxed labels ``x``, (n_vertices, n_labels).

    Parameters
    ----------
    graph : Graph
    best_threshold : bool
        Also say ``threshold_value`` and ``threshold``: the best cut of two labels at any threshold.
    """

    def __init__(self, graph: Graph, best_threshold: bool = False) -> None:
        self.graph = graph
        self.best_threshold = best_threshold and graph.n_labels == 2

    def __call__(self, x: np.ndarray) -> dict[str, float]:
        """The facts that go into a row of measurements."""
        found = {"objective": self.relaxed(x), "cut_value": self.cut(x.argmax(axis=1))}
        if self.best_threshold:
            found |= dict(zip(("threshold_value", "threshold"), self.threshold(x)))
        return found

    def relaxed(self, x: np.ndarray) -> float:
        """``sum of w/2 ||x_u - x_v||_1``; two labels: with the weight of the direction.

        Raises
        ------
        InputError
            If ``x`` has another shape than the graph asks for.
        """
        graph = self.graph
        if x.shape != (graph.n_vertices, graph.n_labels):
            raise InputError(f"x: expected shape {(graph.n_vertices, graph.n_labels)}, got {x.shape}")
        total = 0.0
        for part in self._pieces():
            u, v = graph.u[part], graph.v[part]
            forward, backward = (w[part].astype(np.float64) for w in (graph.forward, graph.backward))
            if graph.n_labels == 2:
                rise = x[v, 1].astype(np.float64) - x[u, 1]
                total += float(forward @ np.maximum(rise, 0.0) + backward @ np.maximum(-rise, 0.0))
            else:
                apart = np.abs(x[u].astype(np.float64) - x[v]).sum(axis=1)
                total += float(np.einsum("e,e->", forward, apart)) / 2
        return total

    def cut(self, labels: np.ndarray) -> float:
        """The value of the cut that gives vertex i the label ``labels[i]``."""
        graph = self.graph
        a, b = labels[graph.u], labels[graph.v]
        if graph.n_labels == 2:
            return float(graph.forward[a < b].sum(dtype=np.float64) + graph.backward[a > b].sum(dtype=np.float64))
        return float(graph.forward[a != b].sum(dtype=np.float64))

    def threshold(self, x: np.ndarray) -> tuple[float, float]:
        """``(value, threshold)`` of the best cut into ``x[:, 1] > threshold`` and the rest.

        With k = ceil(1024 p), ``p > t/1024`` is ``k > t``: an edge with k_u < k_v pays its forward weight at thresholds
        t/1024 for k_u <= t < k_v.
        """
        graph, count = self.graph, THRESHOLDS
        k = np.ceil(x[:, 1].astype(np.float64) * count).astype(np.int64).clip(0, count)
        steps = np.zeros(count + 1)
        a, b = k[graph.u], k[graph.v]
        for low, high, weights in ((a, b, graph.forward), (b, a, graph.backward)):
            paying = low < high
            weights = weights[paying].astype(np.float64)
            steps += np.bincount(low[paying], weights, count + 1) - np.bincount(high[paying], weights, count + 1)
        values = np.cumsum(steps)[:count]
        best = int(np.argmin(values))
        return float(self.cut(x[:, 1] > best / count)), best / count

    def _pieces(self) -> Iterator[slice]:
        edges = max(PIECE // self.graph.n_labels, 1)
        for first in range(0, len(self.graph), edges):
            yield slice(first, first + edges)
