"""Labelling problems as graphs: a cost for each label at each vertex, and a weight for neighbours that differ.

The energy of labels l is ``sum_v unary[v, l_v] + sum_e weights[e] [l_u != l_v]`` (the Potts model). It becomes a cut
among D terminals, one per label (Boykov, Veksler, Zabih 2001, section 7): vertex v is joined to terminal a by an edge
of weight ``max_b unary[v, b] - unary[v, a]``, and a vertex labelled l cuts all of those but the one to l. So

    energy = cut + offset,    offset = sum_v (most[v] - sum_a (most[v] - unary[v, a])),    most[v] = max_b unary[v, b]

Any number larger than this maximum would do too, but then edges to all terminals pull at once and nearly cancel. The
edge to the worst label has weight zero and is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.rows.container import check_numbers, check_whole
from hogwild.errors import InputError


def mrf_graph(unary: Any, u: Any, v: Any, weights: Any, shape: tuple[int, ...] | None = None, title: str = "") -> Graph:
    """Return the graph whose cuts are the labellings of a Potts model; its terminals are the vertices n to n + D - 1.

    Parameters
    ----------
    unary : array, shape (n, D)
        Cost of each label at each vertex; any finite numbers.
    u, v : arrays of integers, shape (m,)
        Neighbours.
    weights : array, shape (m,), or one number
        Cost of different labels at two neighbours; not negative.
    shape : tuple of int, optional
        Shape of the grid that the vertices form.
    title : str
        Name of the data in a warning.

    Raises
    ------
    InputError
    """
    for name, numbers in (("unary", unary), ("weights", weights)):
        check_numbers(name, numbers)
    for name, end in (("u", u), ("v", v)):
        check_whole(name, end)
    unary = np.asarray(unary, dtype=np.float64)
    if unary.ndim != 2 or unary.shape[1] < 2 or len(unary) == 0:
        raise InputError(f"unary: expected costs of two or more labels at each vertex, got shape {unary.shape}")
    finite = np.isfinite(unary).all(axis=1)
    if not finite.all():
        raise InputError(f"unary: vertex {int(np.argmin(finite))} has a cost that is not finite")
    u, v = np.asarray(u), np.asarray(v)
    weights = np.broadcast_to(np.asarray(weights, dtype=np.float64), u.shape)
    n, labels = unary.shape
    for ends in (u, v):
        if ends.size and (ends.min() < 0 or ends.max() >= n):
            raise InputError(f"edges run from {ends.min()} to {ends.max()}: expected vertices 0 to {n - 1}")
    pulls = unary.max(axis=1, keepdims=True) - unary
    offset = float((unary.max(axis=1) - pulls.sum(axis=1)).sum())
    vertices = np.arange(n)
    first = np.concatenate((np.repeat(vertices, labels), u))
    second = np.concatenate((np.tile(n + np.arange(labels), n), v))
    weight = np.concatenate((pulls.ravel(), weights))
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
