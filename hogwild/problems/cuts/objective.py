"""The evaluator of a relaxed cut: its own value, and that of the cut to which it is rounded.

The values are computed in float64 from the graph itself by separate code (``values_kernel.py``), none of it shared with
the training kernel; the tests check it against NumPy. Values are sums over the edges, not means, so that they are
values of cuts in the usual sense. This costs a few ns an edge and core, off the training clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import frozen_array
from hogwild.errors import InputError

PIECE = 1 << 16  # edges at a time; affects the last digits of a sum


class CutEvaluator:
    """``objective`` and ``cut_value`` of relaxed labels ``x``, (n_vertices, n_labels)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, x: np.ndarray) -> dict[str, float]:
        """Return the values that go into a row of measurements."""
        return {"objective": self.relaxed(x), "cut_value": self.cut(rounded(x))}

    def relaxed(self, x: np.ndarray) -> float:
        """Return ``sum of w/2 ||x_u - x_v||_1``; for two labels, w is the weight in the direction of the change.

        Raises
        ------
        InputError
            If the shape of ``x`` does not fit the graph.
        """
        graph = self.graph
        if x.shape != (graph.n_vertices, graph.n_labels):
            raise InputError(f"x: expected shape {(graph.n_vertices, graph.n_labels)}, got {x.shape}")
        from hogwild.problems.cuts.values_kernel import relaxed_value

        return sum(self._over_edges(relaxed_value, frozen_array(x, np.float32)), 0.0)

    def cut(self, labels: np.ndarray) -> float:
        """Value of the cut that gives vertex i the label ``labels[i]``."""
        from hogwild.problems.cuts.values_kernel import cut_value

        return sum(self._over_edges(cut_value, frozen_array(labels, np.int32)), 0.0)

    def _over_edges(self, function: Callable[..., Any], of_vertices: np.ndarray) -> Iterator[Any]:
        """Results of ``function`` for each piece of the edges and all vertices, in order."""
        graph = self.graph

        def part(first: int, last: int) -> Any:
            edges = (array[first:last] for array in (graph.u, graph.v, graph.forward, graph.backward))
            return function(*edges, of_vertices)

        return map_pieces(len(graph), PIECE, part)


def rounded(x: np.ndarray) -> np.ndarray:
    """Label of the largest share in each row; ties go to the first."""
    return x[:, 1] > x[:, 0] if x.shape[1] == 2 else x.argmax(axis=1)
