"""Synthetic graphs named like files: ``synthetic:grid?side=128&noise=0.5``, the same bits on every machine.

It is a picture of planted discs, to be segmented: the brightness of a point is its label plus noise, and each label has
a cost at every point.

Only operations that IEEE 754 rounds exactly are used, on one counter-based random stream per purpose (splitmix64), and
weights are whole numbers, so that an exact solver can be used; a test pins a checksum. Generation takes about a
microsecond a vertex.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.graphs.container import Graph
from hogwild.data.rows.container import readonly

BALLS = 1  # number of the random stream
NOISE = 2  # likewise
SCALE = 10.0  # cost of one step of brightness in a grid
WORST = 100.0  # the largest cost of a label


def generate_graph(name: str) -> Graph:
    """Return the graph called ``name``, in memory: costs ``(brightness - label)^2``, and one weight of all edges."""
    spec = common.parse(name, "edges")
    truth, image = picture(spec, 2)
    away = image.reshape(-1, 1) - np.arange(spec.labels)
    unary = np.minimum(np.floor(SCALE * away * away), WORST)
    graph = mrf_graph(unary, *neighbours(image.shape), float(spec.smooth), image.shape, name)
    graph.image, graph.truth = readonly(image.astype(np.float32)), readonly(truth)
    return graph


def mrf_graph(
    unary: np.ndarray,  # (n, D) cost of each label at each vertex
    u: np.ndarray,
    v: np.ndarray,  # (m,) neighbours
    weights: Any,  # (m,), or one number: cost of different labels at two neighbours
    shape: tuple[int, ...] | None = None,
    title: str = "",
) -> Graph:
    """Return the graph whose cuts are the labellings of a Potts model; its terminals are the vertices n to n + D - 1.

    The energy of labels l is ``sum_v unary[v, l_v] + sum_e weights[e] [l_u != l_v]``. It becomes a cut among D
    terminals, one per label (Boykov, Veksler, Zabih 2001, section 7): vertex v is joined to terminal a by an edge of
    weight ``max_b unary[v, b] - unary[v, a]``, and a vertex labelled l cuts all of those but the one to l. So

    energy = cut + offset,  offset = sum_v (most[v] - sum_a (most[v] - unary[v, a])),  most[v] = max_b unary[v, b]

    Any number larger than this maximum would do too, but then edges to all terminals pull at once and nearly cancel.
    The edge to the worst label has weight zero and is left out.
    """
    n, labels = unary.shape
    pulls = unary.max(axis=1, keepdims=True) - unary
    offset = float((unary.max(axis=1) - pulls.sum(axis=1)).sum())
    vertices = np.arange(n)
    first = np.concatenate((np.repeat(vertices, labels), u))
    second = np.concatenate((np.tile(n + np.arange(labels), n), v))
    weight = np.concatenate((pulls.ravel(), np.broadcast_to(weights, len(u))))
    order = np.argsort(np.minimum(first, second), kind="stable")  # group edges by vertex
    return Graph(
        first[order],
        second[order],
        weight[order],
        weight[order],
        n + labels,
        n + np.arange(labels),
        np.arange(labels),
        labels,
        title=title,
        shape=shape,
        offset=offset,
    )


def stream_bits(seed: int, stream: int, count: int) -> np.ndarray:
    """Random numbers (count,) uint64: splitmix64 of a counter."""
    return common.random_bits(common.mix_bits(common.mix_bits(seed) + stream), 1, count + 1)


def picture(spec: SimpleNamespace, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(truth, image)``: planted labels int32 and brightness float64, with ``axes`` dimensions."""
    shape, side = (spec.side,) * axes, spec.side
    truth = np.zeros(shape, dtype=np.int32)
    drawn = common.uniform(stream_bits(spec.seed, BALLS, spec.balls * (axes + 1))).reshape(spec.balls, axes + 1)
    for ball, numbers in enumerate(drawn):
        radius = side * (0.08 + 0.14 * numbers[0])
        distance = np.zeros(shape)
        for axis in range(axes):
            away = (np.arange(side) - side * numbers[1 + axis]) ** 2
            distance = distance + away.reshape([side if axis == other else 1 for other in range(axes)])
        truth[distance < radius * radius] = 1 + ball % (spec.labels - 1)
    noise = common.normal(stream_bits(spec.seed, NOISE, truth.size)).reshape(shape)
    return truth, truth + spec.noise * noise


def neighbours(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of adjacent grid points along an axis, (m,) int64 each."""
    points = np.arange(int(np.prod(shape))).reshape(shape)
    pairs = [(np.delete(points, -1, axis).ravel(), np.delete(points, 0, axis).ravel()) for axis in range(len(shape))]
    u, v = (np.concatenate(ends) for ends in zip(*pairs))
    order = np.argsort(u, kind="stable")
    return u[order], v[order]
