"""What a relaxed cut is judged by: its own value, and that of the cut it is rounded to.

The one decision, as in ``objective.py``: this is worked out in float64 from the graph itself by code of its own
(``kernels/cut_values.py``), none of it the training kernel's; NumPy's is its oracle in the tests. Values are sums over
the edges, not means, so that they are the values of cuts as everybody states them. It costs a few ns an edge and core,
off the training clock.

Two labels can be rounded at any threshold, not at 1/2 only: over all thresholds the mean value of the cut is the
relaxed value (the coarea formula), so the best one is never worse than that. All are tried in one pass, by counting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.examples import _frozen
from hogwild.data.graphs import Graph
from hogwild.data.pieces import map_pieces
from hogwild.errors import InputError

PIECE = 1 << 16  # edges at a time; part of the last digits of a sum
THRESHOLDS = 1024  # of which the best is taken


class CutEvaluator:
    """``objective`` and ``cut_value`` of relaxed labels ``x``, (n_vertices, n_labels).

    Parameters
    ----------
    graph : Graph
    best_threshold : bool
        Also say ``threshold_value`` and ``threshold``: the best cut of two labels at any threshold.
    threads : int, optional
        Default: the cores this process may use. Values are the same on any number.
    """

    def __init__(self, graph: Graph, best_threshold: bool = False, threads: int | None = None) -> None:
        self.graph, self.threads = graph, threads
        self.best_threshold = best_threshold and graph.n_labels == 2

    def __call__(self, x: np.ndarray) -> dict[str, float]:
        """The facts that go into a row of measurements."""
        found = {"objective": self.relaxed(x), "cut_value": self.cut(rounded(x))}
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
        from hogwild.kernels.cut_values import relaxed_value

        return sum(self._over_edges(relaxed_value, _frozen(x, np.float32)), 0.0)

    def cut(self, labels: np.ndarray) -> float:
        """The value of the cut that gives vertex i the label ``labels[i]``."""
        from hogwild.kernels.cut_values import cut_value

        return sum(self._over_edges(cut_value, _frozen(labels, np.int32)), 0.0)

    def threshold(self, x: np.ndarray) -> tuple[float, float]:
        """``(value, threshold)`` of the best cut into ``x[:, 1] > threshold`` and the rest."""
        from hogwild.kernels.cut_values import add_steps

        total, count = np.zeros(THRESHOLDS + 1), THRESHOLDS

        def changes(u: Any, v: Any, forward: Any, backward: Any, x: np.ndarray) -> np.ndarray:
            steps = np.zeros(count + 1)
            add_steps(u, v, forward, backward, x, steps)
            return steps

        for steps in self._over_edges(changes, _frozen(x, np.float32)):
            total += steps
        best = int(np.argmin(np.cumsum(total)[:count]))
        return self.cut(x[:, 1] > best / count), best / count

    def _over_edges(self, function: Callable[..., Any], of_vertices: np.ndarray) -> Iterator[Any]:
        """What ``function`` makes of each piece of the edges and of all vertices, in order."""
        graph = self.graph

        def part(first: int, last: int) -> Any:
            edges = (array[first:last] for array in (graph.u, graph.v, graph.forward, graph.backward))
            return function(*edges, of_vertices)

        return map_pieces(len(graph), PIECE, part, self.threads)


def rounded(x: np.ndarray) -> np.ndarray:
    """The label of the largest share of each row, of equal ones the first."""
    return x[:, 1] > x[:, 0] if x.shape[1] == 2 else x.argmax(axis=1)
