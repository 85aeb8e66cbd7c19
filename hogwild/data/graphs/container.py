"""Weighted graphs to be cut: the container ``Graph``, what its shape means for workers, and a reader for all formats.

A graph is a list of edges, each listed once, with a weight in either direction, and some vertices, the *terminals*,
with known labels. A cut labels every vertex and costs

    two labels:  sum over edges of forward[e] [label u = 0, label v = 1] + backward[e] [label u = 1, label v = 0]
    more:        sum over edges of forward[e] [label u != label v],   where forward = backward

Parallel edges are merged and self-loops dropped, so a pair of vertices is one row, its two locks are distinct,
and the degrees say exactly how often two edges meet. This costs one sort. Edges keep the order in which their pairs
first occurred: neighbours in a file are neighbours in memory.

Directed capacities and source and sink: Ford, Fulkerson (1956). Many labels: Dahlhaus et al. (1994).
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from hogwild.data.ids import Ids
from hogwild.data.rows.container import INDEX_LIMIT, check_numbers, check_range, check_whole, evenly, frozen_array
from hogwild.errors import HogwildWarning, InputError

SAMPLED = 1 << 20  # edges that sample_arrays gives at most


class Graph:
    """Edges between numbered vertices, with terminals whose labels are fixed.

    Parameters
    ----------
    u, v : array of int32, shape (m,)
        The two ends of each edge, in any order. The graph has ``u < v`` and each pair once: parallel edges are summed,
        edges from a vertex to itself dropped with a warning, those of weight 0 without one.
    forward, backward : array of float32, shape (m,)
        Weight of the edge from u to v, and from v to u. They are equal in an undirected graph.
    n_vertices : int
    terminals : array of int32, shape (t,)
        Vertices whose label is known.
    terminal_labels : array of int32, shape (t,)
        0 to ``n_labels - 1``; with two labels, 0 is the source's side.
    n_labels : int
        Each label needs a terminal.
    shape : tuple of int, optional
        Shape of a grid whose points are the vertices 0 to ``prod(shape) - 1`` in C order.
    ids, label_ids : Ids, optional
        Names of the vertices and of the labels, if these are not their numbers.
    offset : float
        The energy that the graph represents is the cut's value plus this.
    title : str
        Name of the data in the warning.
    check : bool
        Verify all of this and put the edges in order (one sort). Who guarantees it passes False.

    Raises
    ------
    InputError
        The message names the first edge, or the terminal, that breaks a rule.

    See Also
    --------
    open_graph : reads one.
    Segmentation : the cut that training finds.

    Examples
    --------
    >>> import hogwild
    >>> u, v, weight = [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [5, 5, 1, 5, 5]  # a chain with one weak edge
    >>> graph = hogwild.Graph(u, v, weight, weight, n_vertices=6, terminals=[0, 5], terminal_labels=[0, 1])
    >>> hogwild.train(graph, problem="cuts", workers=1).finish().labels.tolist()
    [0, 0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        u: Any,
        v: Any,
        forward: Any,
        backward: Any,
        n_vertices: int,
        terminals: Any,
        terminal_labels: Any,
        n_labels: int = 2,
        shape: tuple[int, ...] | None = None,
        ids: Ids | None = None,
        label_ids: Ids | None = None,
        offset: float = 0.0,
        title: str = "",
        check: bool = True,
    ) -> None:
        if check:
            for name, array in (("u", u), ("v", v), ("terminals", terminals), ("terminal labels", terminal_labels)):
                check_whole(name, array)
            for name, array in (("forward", forward), ("backward", backward)):
                check_numbers(name, array)
            if n_vertices != int(n_vertices) or not 0 < n_vertices <= INDEX_LIMIT:
                raise InputError(f"{n_vertices} vertices: expected a whole number from 1 to {INDEX_LIMIT}")
            u, v, forward, backward = _in_order(u, v, forward, backward, n_vertices, title)
        self.u, self.v = (frozen_array(array, np.int32) for array in (u, v))
        with np.errstate(over="ignore"):  # a weight beyond float32 becomes inf and is reported by the check
            self.forward, self.backward = (frozen_array(array, np.float32) for array in (forward, backward))
        self.n_vertices, self.n_labels = int(n_vertices), int(n_labels)
        self.terminals, self.terminal_labels = (frozen_array(array, np.int32) for array in (terminals, terminal_labels))
        self.shape = None if shape is None else tuple(int(side) for side in shape)
        self.ids, self.label_ids = ids, label_ids
        self.offset = float(offset)
        self.image: np.ndarray | None = None
        self.truth: np.ndarray | None = None
        self.store = None  # graphs are in memory
        if check:
            self._check()

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.u)

    @property
    def nnz(self) -> int:
        """Number of edges."""
        return len(self)

    def __repr__(self) -> str:
        grid = "" if self.shape is None else f", grid {' x '.join(map(str, self.shape))}"
        kind = "" if self.undirected else ", directed"
        return f"Graph({self.n_vertices:,} vertices, {len(self):,} edges, {self.n_labels} labels{kind}{grid})"

    @property
    def undirected(self) -> bool:
        """Whether both directions of every edge have the same weight."""
        return bool(np.array_equal(self.forward, self.backward))

    def _check(self) -> None:
        _check_weights(self.forward, self.backward)  # sums may be beyond float32
        t, labels = self.terminals, self.terminal_labels
        if t.ndim != 1 or t.shape != labels.shape or len(np.unique(t)) < len(t):
            raise InputError(f"terminals: expected different vertices and one label each, got {t} and {labels}")
        check_range("terminals", t, self.n_vertices)
        check_range("terminal labels", labels, self.n_labels)
        if not len(np.unique(labels)) == self.n_labels > 1:
            raise InputError(f"{self.n_labels} labels: a cut needs two or more, each with a terminal")
        if self.n_labels > 2 and not self.undirected:
            e = int(np.argmax(self.forward != self.backward))
            raise InputError(
                f"edge {e}: weighs {self.forward[e]:g} one way and {self.backward[e]:g} the other: directions need two "
                f"labels; there are {self.n_labels}"
            )
        if self.shape is not None and not 0 < math.prod(self.shape) <= self.n_vertices:
            raise InputError(f"a grid of {self.shape} needs as many vertices as points; got {self.n_vertices}")
        for name, ids, count in (("ids", self.ids, self.n_vertices), ("label_ids", self.label_ids, self.n_labels)):
            if ids is not None and len(ids) != count:
                raise InputError(f"{name}: expected {count}, got {len(ids)}")

    def degrees(self) -> np.ndarray:
        """Number of edges at each vertex, (n_vertices,) int64."""
        return np.bincount(self.u, minlength=self.n_vertices) + np.bincount(self.v, minlength=self.n_vertices)

    def fixed(self) -> np.ndarray:
        """Return the label of each terminal and -1 elsewhere, (n_vertices,) int32."""
        labels = np.full(self.n_vertices, -1, dtype=np.int32)
        labels[self.terminals] = self.terminal_labels
        return labels

    def sample_arrays(self) -> list[np.ndarray]:
        """Return arrays that identify this graph, for a fingerprint: sizes, terminals, and edges spread over all."""
        picked = evenly(len(self), SAMPLED)
        sizes = np.array([len(self), self.n_vertices, self.n_labels, *(self.shape or ())], dtype=np.int64)
        edges = [array[picked] for array in (self.u, self.v, self.forward, self.backward)]
        return [sizes, self.terminals, self.terminal_labels, *edges]


def _check_weights(forward: np.ndarray, backward: np.ndarray) -> None:
    for weights in (forward, backward):
        with np.errstate(over="ignore"):
            wrong = ~(np.isfinite(weights.astype(np.float32)) & (weights >= 0))
        if wrong.any():
            e = int(np.argmax(wrong))
            raise InputError(f"edge {e}: weighs {weights[e]:g}: expected a finite number, not negative")


def _in_order(
    u: Any, v: Any, forward: Any, backward: Any, n_vertices: int, title: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return each pair of vertices once, ascending, in order of first occurrence, with summed weights."""
    u, v = np.asarray(u, np.int32), np.asarray(v, np.int32)
    forward, backward = np.asarray(forward, np.float64), np.asarray(backward, np.float64)
    if not u.shape == v.shape == forward.shape == backward.shape or u.ndim != 1:
        shapes = f"{u.shape}, {v.shape}, {forward.shape}, {backward.shape}"
        raise InputError(f"u, v, forward and backward: expected one of each for an edge, got shapes {shapes}")
    _check_weights(forward, backward)
    check_range("u", u, n_vertices)
    check_range("v", v, n_vertices)
    if (loops := int(np.count_nonzero(u == v))) > 0:
        which = f"{title + ': ' if title else ''}{loops:,} edges from a vertex to itself"
        warnings.warn(f"{which}, which no cut can cut, were dropped", HogwildWarning, stacklevel=3)
        u, v, forward, backward = (array[u != v] for array in (u, v, forward, backward))
    turned = u > v
    u, v = np.where(turned, v, u), np.where(turned, u, v)
    forward, backward = np.where(turned, backward, forward), np.where(turned, forward, backward)
    _, first, pair = np.unique(u.astype(np.int64) * n_vertices + v, return_index=True, return_inverse=True)
    forward, backward = (np.bincount(pair, weights, len(first)) for weights in (forward, backward))
    order = np.argsort(first)
    order = order[(forward + backward)[order] > 0]
    first = first[order]
    return u[first], v[first], forward[order], backward[order]


def graph_statistics(graph: Graph) -> dict[str, Any]:
    """Return the three quantities of the Hogwild paper (see ``data/rows/statistics.py``), all exact, and the sizes.

    An edge meets those at either end, and itself once, so ``rho = max_e (d_u + d_v - 1) / m``, since no pair occurs
    twice.

    Returns
    -------
    dict
        ``edges vertices labels terminals``, ``omega delta rho``, and ``delta_free``: delta among the other vertices,
        where workers can overwrite each other.
    """
    degrees, m = graph.degrees(), max(len(graph), 1)
    met = degrees[graph.u] + degrees[graph.v] - 1
    free = degrees.copy()
    free[graph.terminals] = 0
    return {
        "edges": len(graph),
        "vertices": graph.n_vertices,
        "labels": graph.n_labels,
        "terminals": len(graph.terminals),
        "omega": 2 if len(graph) else 0,
        "delta": float(degrees.max(initial=0)) / m,
        "rho": float(met.max(initial=0)) / m,
        "delta_free": float(free.max(initial=0)) / m,
    }
