"""Labelling problems as graphs: a cost for each label at each vertex, and a weight for neighbours that differ.

The energy of labels l is ``sum_v unary[v, l_v] + sum_e weights[e] [l_u != l_v]`` (the Potts model). It becomes a cut
among D terminals, one per label (Boykov, Veksler, Zabih 2001, section 7): vertex v is joined to terminal a by an edge
of weight ``max_b unary[v, b] - unary[v, a]``, and a vertex labelled l cuts all of those but the one to l. So

    energy = cut + offset,    offset = sum_v (most[v] - sum_a (most[v] - unary[v, a])),    most[v] = max_b unary[v, b]

Any number larger than this maximum would do too, but then edges to all terminals pull at once and nearly cancel. The
edge to the worst label has weight zero and is left out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph, check_real
from hogwild.data.rows.container import INDEX_LIMIT, check_whole
from hogwild.errors import InputError

NAMES = {"u": ("u", "i"), "v": ("v", "j"), "weights": ("weights", "w")}  # accepted names of the arrays in an .npz


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
        check_real(name, numbers)
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


def read_mrf(name: str) -> Graph:
    """Read an ``.npz`` with ``unary`` (n, D), ``edges`` (m, 2) or ``u`` and ``v`` (or ``i``, ``j``), and ``weights``.

    ``shape``, if present, is the grid's; one of its numbers may be D, which is left out.

    Raises
    ------
    InputError
        The message names the file and what is wrong with it.
    """
    arrays = _load(name)
    try:
        if "unary" not in arrays:
            raise InputError(f"expected an array unary of costs (n, D), found {', '.join(sorted(arrays)) or 'nothing'}")
        if "edges" in arrays:
            edges = arrays["edges"]
            if edges.ndim != 2 or edges.shape[1] != 2:
                raise InputError(f"edges: expected shape (m, 2), got {edges.shape}")
            u, v = edges.T
        else:
            u, v = (_one_of(arrays, NAMES[end]) for end in ("u", "v"))
        weights = _one_of(arrays, NAMES["weights"])
        for label, array in (("u", u), ("v", v), ("weights", weights)):
            if array.ndim != 1 or array.shape != u.shape:
                raise InputError(f"{label}: expected one for each of {len(np.atleast_1d(u))} edges, got {array.shape}")
        return mrf_graph(arrays["unary"], u, v, weights, _grid(arrays), title=name)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _load(name: str) -> dict[str, np.ndarray]:
    try:
        with np.load(name, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{name}: is a directory, expected an .npz file") from None
    except Exception as error:  # zipfile, zlib, NumPy: each has its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name}: not an .npz file that can be read: {reason}") from None


def _one_of(arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise InputError(f"expected an array {' or '.join(names)}, found {', '.join(sorted(arrays))}")


def _grid(arrays: dict[str, np.ndarray]) -> tuple[int, ...] | None:
    """Return the sides of the grid, from ``shape``: their product is the number of vertices."""
    if "shape" not in arrays:
        return None
    sides_given = np.ravel(arrays["shape"])
    if (
        sides_given.dtype.kind not in "iuf"
        or not ((sides_given >= 1) & (sides_given <= INDEX_LIMIT) & (sides_given == np.trunc(sides_given))).all()
    ):
        raise InputError(f"shape: expected the sides of a grid, whole numbers from 1, got {sides_given.tolist()}")
    unary = arrays["unary"]
    if unary.ndim != 2:  # mrf_graph reports it
        return None
    (n, labels), sides = unary.shape, [int(side) for side in sides_given]
    without = list(sides)
    if labels in without:
        without.remove(labels)
    for shape in (sides, without):
        if shape and math.prod(shape) == n:
            return tuple(shape)
    return None
