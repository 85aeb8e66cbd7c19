"""Graph cuts: the objective, the layout of the relaxed labels in the flat array, and the kernel that trains them.

    objective = sum over edges of w_uv / 2 ||x_u - x_v||_1,   x_v in the simplex, x_t a corner where t is a terminal

At the corners of the simplex that is the value of the cut. Two labels take one number per vertex, p = x_v[1], and then
the weight may differ by direction: forward * max(0, p_v - p_u) + backward * max(0, p_u - p_v), whose minimum *is* the
minimum cut. For more labels it is a lower bound, at most a factor of 2 - 2/D below (Calinescu, Karloff, Rabani 2000).

Terminals are pinned. The formula of the Hogwild paper does not say so, and the code released with it moves them, but
without it all x equal would cost nothing. An update is an edge, turned so that it does not begin at a terminal; an edge
between two terminals is a constant and is left out; and with more than two labels, the edges from one vertex to several
terminals are a bundle that is one update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.order import Order
from hogwild.errors import InputError, UsageError
from hogwild.kernels.order import PADDING
from hogwild.kernels.tiers import FLOATS
from hogwild.problems.cuts import kernel as cuts
from hogwild.problems.cuts.kernel import Data, Parameters, Plan
from hogwild.problems.linear import kernel as linear
from hogwild.problems.protocol import OrderSlice, Problem, Shared, counted
from hogwild.training.schedule import Step

SMALLEST, LARGEST = 1e-30, 1e36  # degree below which a rate exceeds float32; weight above which more has no effect


class Scratch(NamedTuple):
    """The memory of one worker."""

    rows: np.ndarray  # (chunk + PADDING,) int64
    buffer: np.ndarray  # (2 * stride,) float32: a pull, and a row
    state: np.ndarray  # (STATE,) int64: how far the chunk in hand is, see problems/linear/kernel.py


@dataclass(frozen=True)
class CutsProblem(Problem):
    """Everything a worker must know besides the arrays; made by :meth:`of`. For methods see ``protocol.Problem``."""

    discipline: str
    n_vertices: int
    n_rows: int  # updates in an epoch, which the order cuts
    labels: int
    terminals: tuple[tuple[int, int], ...]  # (vertex, label)
    far: bool  # the vertices outgrow the cache

    @classmethod
    def of(
        cls,
        graph: Graph,
        discipline: str,
        cache_bytes: int = 2 << 20,
    ) -> CutsProblem:
        """The problem of cutting ``graph``.

        Parameters
        ----------
        cache_bytes : int
            Size of the L2 cache: larger arrays are prefetched.

        Raises
        ------
        InputError
            If there is nothing to cut.
        UsageError
            If the discipline makes no sense here.
        """
        updates = int(np.count_nonzero(_kept(graph)[0]))
        if updates == 0:
            raise InputError("the graph has no edges but between terminals: there is nothing to cut")
        if discipline == "atomic" and graph.n_labels > 2:
            raise UsageError(
                f"discipline atomic needs two labels; got {graph.n_labels}: use hogwild, or aig to lock both rows"
            )
        pairs = zip(graph.terminals.tolist(), graph.terminal_labels.tolist())
        problem = cls(discipline, graph.n_vertices, updates, graph.n_labels, tuple(pairs), False)
        return replace(problem, far=4 * problem.size > cache_bytes)

    @property
    def scalar(self) -> bool:
        """Whether a vertex is one number."""
        return self.labels == 2

    @property
    def stride(self) -> int:
        """Numbers of a vertex in memory: the labels rounded up, so that each vertex starts on an aligned address."""
        if self.scalar:
            return 1
        unit = 4 if self.labels <= 8 else 16
        return -(-self.labels // unit) * unit

    @property
    def locks(self) -> int:
        return self.n_vertices if self.discipline == "aig" else 1

    @property
    def size(self) -> int:
        return -(-self.n_vertices * self.stride // FLOATS) * FLOATS

    def parameters(self, flat: np.ndarray) -> Parameters:
        return Parameters(flat[: self.n_vertices * self.stride])

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Set every vertex to the middle of the simplex, and the terminals to their corners."""
        vertices, labels = np.array(self.terminals, dtype=np.int64).reshape(-1, 2).T
        x = self.parameters(flat).x
        if self.scalar:
            x[:] = 0.5
            x[vertices] = labels
            return
        rows = x.reshape(-1, self.stride)[:, : self.labels]
        rows[:] = 1.0 / self.labels
        rows[vertices] = 0.0
        rows[vertices, labels] = 1.0

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray]:
        """``(x,)`` as a copy: (n_vertices, labels) float32, every row in the simplex.

        Rows that two workers wrote at once may be left outside it: they are projected here.
        """
        x = self.parameters(flat).x
        if self.scalar:
            share = np.clip(x, 0.0, 1.0)
            return (np.column_stack((1.0 - share, share)),)
        rows = x.reshape(-1, self.stride)[:, : self.labels].copy()
        outside = (np.abs(rows.sum(axis=1, dtype=np.float64) - 1.0) > 1e-6) | (rows.min(axis=1) < 0.0)
        rows[outside] = onto_simplex(rows[outside])
        return (rows,)

    def arrays(self, graph: Graph) -> dict[str, np.ndarray]:
        """The kernel's arrays of edges, turned so that none begins at a terminal; rates are 1 / weighted degree.

        Weights are scaled so that the middle between the least and the largest degree is near 1, which changes no
        update but keeps rates within float32, even if 1e30 stands for infinity. A weight times a rate is at most 1
        anyway.
        """
        kept, bundled, bundle = _kept(graph)
        fixed = graph.fixed()
        turned = fixed[graph.u] >= 0
        u, v = np.where(turned, graph.v, graph.u), np.where(turned, graph.u, graph.v)
        forward = np.where(turned, graph.backward, graph.forward)
        backward = np.where(turned, graph.forward, graph.backward)
        weights = np.zeros((int(bundle.max(initial=-1)) + 1, graph.n_labels))
        np.add.at(weights, (bundle[bundled], fixed[v[bundled]]), forward[bundled].astype(np.float64))
        weights -= weights.min(axis=1, keepdims=True, initial=np.inf)  # an equal pull to all labels moves nothing
        heaviness = np.maximum(forward, backward).astype(np.float64)
        heaviness[bundled] = np.ptp(weights, axis=1)[bundle[bundled]] if len(weights) else 0.0  # without what cancels
        degrees = np.bincount(np.concatenate((u[kept], v[kept])), np.tile(heaviness[kept], 2), graph.n_vertices)
        moved = (fixed < 0) & (degrees > 0)
        some = np.log2(degrees[moved]) if moved.any() else np.zeros(1)
        scale = 2.0 ** -np.floor((some.min() + some.max()) / 2)  # a power of two, so exact
        forward = forward * scale
        backward = backward * scale
        weights = weights * scale
        rates = np.where(moved, 1.0 / np.maximum(degrees * scale, SMALLEST), 0.0)
        return {
            "u": u[kept],
            "v": v[kept],
            "forward": _single(forward[kept]),
            "backward": _single(backward[kept]),
            "rates": rates.astype(np.float32),
            "bundle": bundle[:0] if self.scalar else bundle[kept],
            "weights": _single(weights.ravel()),
        }

    def data(self, arrays: Mapping[str, np.ndarray]) -> Data:
        return Data(**arrays)

    def scratch(self, order: Order, *_: Any) -> Scratch:
        return Scratch(
            np.empty(order.chunk + PADDING, dtype=np.int64),
            np.zeros(2 * self.stride, dtype=np.float32),
            np.zeros(linear.STATE, dtype=np.int64),
        )

    def prepare(self, shared: Shared, scratch: Scratch, data: Data, part: OrderSlice, step: Step) -> Callable[[], int]:
        scratch.state[:] = 0
        order = part.order
        plan = Plan(
            **part.facts(),
            block=order.block,
            n_chunks=order.n_chunks,
            start=part.start * order.chunk,
            step=step,
            labels=self.labels,
            stride=self.stride,
        )
        codes = linear.DISCIPLINES[self.discipline], int(self.scalar), int(self.far)
        memory = shared.parameters, data, shared.control, shared.locks, plan, *scratch
        return counted(partial(cuts.epoch(*codes), *memory), shared.control, part.worker)


def _single(weights: np.ndarray) -> np.ndarray:
    return np.minimum(weights, LARGEST).astype(np.float32)


def _kept(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each edge: whether it is an update, whether it belongs to a bundle, and which one, else -1."""
    fixed = graph.fixed() >= 0
    outer = fixed[graph.u] != fixed[graph.v]  # between a terminal and another vertex
    kept = ~(fixed[graph.u] & fixed[graph.v])
    bundled = np.zeros(len(graph), bool)
    bundle = np.full(len(graph), -1)
    if graph.n_labels > 2:
        free = np.where(fixed[graph.u], graph.v, graph.u)
        links = np.bincount(free[outer], minlength=graph.n_vertices)
        bundled = outer & (links[free] > 1)
        _, first, which = np.unique(free[bundled], return_index=True, return_inverse=True)
        bundle[bundled] = which
        kept[np.delete(np.flatnonzero(bundled), first)] = False
    return kept, bundled, bundle.astype(np.int32)


def onto_simplex(rows: np.ndarray) -> np.ndarray:
    """The nearest points of the simplex, (n, D) float32, by sorting (Held, Wolfe, Crowder 1974)."""
    wide = np.asarray(rows, dtype=np.float64)
    falling = -np.sort(-wide, axis=1)
    ranks = np.arange(1, wide.shape[1] + 1)
    taus = (np.cumsum(falling, axis=1) - 1.0) / ranks
    kept = np.maximum(np.count_nonzero(falling > taus, axis=1), 1)
    tau = np.take_along_axis(taus, kept[:, np.newaxis] - 1, axis=1)
    return np.maximum(wide - tau, 0.0).astype(np.float32)
