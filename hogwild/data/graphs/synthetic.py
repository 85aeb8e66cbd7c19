"""Synthetic graphs named like files: ``synthetic:grid?side=128&noise=0.5``, the same bits on every machine.

``grid`` and ``volume`` are images with planted balls, to be segmented; each voxel's brightness is its label plus noise.
``grid`` has two dimensions and a cost of each label at every point; ``volume`` has three, with such costs at few
points, and joins neighbours of similar brightness by capacities of at most 10. The latter stands in for the Abdomen of
the Hogwild paper: whatever the size, a terminal is in 9.2e-4 of the edges, its Delta and rho. ``clusters`` are mentions
of entities, each joined to the entity it seems to name and to similar mentions; it stands in for the paper's DBLife at
1 % of its size, with two neighbouring mentions in 4.3e-3 of the edges each: Delta is 4.3e-3, rho twice that.

Only operations that IEEE 754 rounds exactly are used, on one counter-based random stream per purpose (splitmix64), and
weights are whole numbers, so that an exact solver can be used; a test pins a checksum. Generation takes about a
microsecond a vertex.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data import synthetic as common
from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.mrf import mrf_graph
from hogwild.data.rows.container import readonly

STREAMS = {"balls": 1, "noise": 2, "links": 3, "entities": 4, "partners": 5, "weights": 6, "hubs": 7}
CAPACITY = 10  # the largest weight, as in the paper
SCALE = 10.0  # cost of one step of brightness in a grid
WORST = 100.0  # the largest cost of a label
CONTRAST = 0.25  # difference in brightness at which a volume's capacity is half the largest
VERTICES = 1 << 28


@dataclass(frozen=True)
class GraphSpec(common.Spec):
    """Parameters of a synthetic graph; those left out of a name take their family's defaults.

    Attributes
    ----------
    family : str
        ``grid``, ``volume`` or ``clusters``.
    side : int
        grid, volume: points along each axis.
    labels : int
        grid, volume: number of labels; brightness is 0, 1, ...
    balls : int
        grid, volume: number of planted balls, with labels 1, 2, ... in turn.
    noise : float
        grid, volume: standard deviation of the brightness; clusters: share of links to a wrong entity or its mentions.
    smooth : int
        grid: weight between neighbours. volume: their weight follows their similarity, at most 10.
    delta : float
        Share of the edges at the busiest vertices: each terminal (grid, volume; 0: a link at every point), or two
        mentions (clusters).
    entities, mentions, degree : int
        clusters: numbers of each, and the mean number of similar mentions that a mention is joined to.
    seed : int
    """

    family: str = "grid"
    side: int = 128
    labels: int = 2
    balls: int = 6
    noise: float = 0.5
    smooth: int = 10
    delta: float = 0.0
    entities: int = 182
    mentions: int = 1801
    degree: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        common.check_family(self.family, FAMILIES, "graph")
        most = int(VERTICES ** (1 / 2 if self.family == "grid" else 1 / 3) + 1e-6)
        ranges = {
            "side": (2, most),
            "labels": (2, 64),
            "balls": (0, 1000),
            "smooth": (0, 1000),
            "delta": (0, 0.1),
            "entities": (2, self.mentions),
            "mentions": (4, VERTICES),
            "degree": (0, 1000),
            "seed": (0, 2**63 - 1),
            "noise": (0, 1 if self.family == "clusters" else 10),
        }
        common.check_ranges(self, {name: ranges[name] for name in FAMILIES[self.family]})

    @classmethod
    def usual(cls, family: str, given: Mapping[str, Any]) -> dict[str, Any]:
        return FAMILIES.get(family, {})


FAMILIES: dict[str, dict[str, Any]] = {
    "grid": {"side": 128, "labels": 2, "balls": 6, "noise": 0.5, "smooth": 10, "delta": 0.0, "seed": 0},
    "volume": {"side": 64, "labels": 2, "balls": 6, "noise": 0.15, "delta": 9.2e-4, "seed": 0},
    "clusters": {"entities": 182, "mentions": 1801, "degree": 6, "noise": 0.1, "delta": 4.3e-3, "seed": 0},
}


def generate_graph(name: str) -> Graph:
    """Return the graph called ``name``, in memory."""
    spec = GraphSpec.parse(name)
    return {"grid": _grid, "volume": _volume, "clusters": _clusters}[spec.family](spec)


def _bits(spec: GraphSpec, stream: str, count: int) -> np.ndarray:
    """Random numbers (count,) uint64: splitmix64 of a counter."""
    return common.random_bits(common.mix_bits(common.mix_bits(spec.seed) + STREAMS[stream]), 1, count + 1)


def _below(bits: np.ndarray, limits: Any) -> np.ndarray:
    """Whole numbers below ``limits`` (less than 2^32), int64."""
    return (((bits >> np.uint64(32)) * np.asarray(limits, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)


def _picture(spec: GraphSpec, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(truth, image)``: planted labels int32 and brightness float64, with ``axes`` dimensions."""
    shape, side = (spec.side,) * axes, spec.side
    truth = np.zeros(shape, dtype=np.int32)
    drawn = common.uniform(_bits(spec, "balls", spec.balls * (axes + 1))).reshape(spec.balls, axes + 1)
    for ball, numbers in enumerate(drawn):
        radius = side * (0.08 + 0.14 * numbers[0])
        distance = np.zeros(shape)
        for axis in range(axes):
            away = (np.arange(side) - side * numbers[1 + axis]) ** 2
            distance = distance + away.reshape([side if axis == other else 1 for other in range(axes)])
        truth[distance < radius * radius] = 1 + ball % (spec.labels - 1)
    noise = common.normal(_bits(spec, "noise", truth.size)).reshape(shape)
    return truth, truth + spec.noise * noise


def _neighbours(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of adjacent grid points along an axis, (m,) int64 each."""
    points = np.arange(int(np.prod(shape))).reshape(shape)
    pairs = [(np.delete(points, -1, axis).ravel(), np.delete(points, 0, axis).ravel()) for axis in range(len(shape))]
    u, v = (np.concatenate(ends) for ends in zip(*pairs))
    order = np.argsort(u, kind="stable")
    return u[order], v[order]


def _grid(spec: GraphSpec) -> Graph:
    """Return a graph with costs ``(brightness - label)^2`` at all or ``delta`` of the points, and one edge weight."""
    truth, image = _picture(spec, 2)
    away = image.reshape(-1, 1) - np.arange(spec.labels)
    unary = np.minimum(np.floor(SCALE * away * away), WORST)
    u, v = _neighbours(image.shape)
    if spec.delta > 0:
        unary[~np.isin(np.arange(len(unary)), np.concatenate(_linked(spec, truth, len(u))))] = 0.0
    graph = mrf_graph(unary, u, v, float(spec.smooth), image.shape, str(spec))
    graph.image, graph.truth = readonly(image.astype(np.float32)), readonly(truth)
    return graph


def _linked(spec: GraphSpec, truth: np.ndarray, pairs: int) -> list[np.ndarray]:
    """Points of each label to link to its terminal, so that the terminal has the share ``delta`` of all edges."""
    count = max(round(spec.delta * pairs / (1.0 - spec.labels * spec.delta)), 1)
    order = np.argsort(_bits(spec, "links", truth.size), kind="stable")
    labels = truth.ravel()[order]
    return [np.sort(order[labels == label][:count]) for label in range(spec.labels)]


def _volume(spec: GraphSpec) -> Graph:
    """Return a graph whose capacities fall with the squared brightness difference; links at ``delta`` of the points."""
    truth, image = _picture(spec, 3)
    u, v = _neighbours(image.shape)
    flat = image.ravel()
    contrast = (flat[u] - flat[v]) / CONTRAST
    weights = np.floor(CAPACITY / (1.0 + contrast * contrast))
    n = truth.size
    delta = spec if spec.delta > 0 else dataclasses.replace(spec, delta=0.1)
    linked = _linked(delta, truth, len(u))
    first = np.concatenate((u, *linked))
    second = np.concatenate((v, *(np.full(len(points), n + label) for label, points in enumerate(linked))))
    weights = np.concatenate((weights, np.full(len(first) - len(u), float(CAPACITY))))
    order = np.argsort(first, kind="stable")
    labels = np.arange(spec.labels)
    return Graph(
        first[order],
        second[order],
        weights[order],
        weights[order],
        n + spec.labels,
        n + labels,
        labels,
        spec.labels,
        title=str(spec),
        shape=image.shape,
        image=image,
        truth=truth,
    )


def _clusters(spec: GraphSpec) -> Graph:
    """Return a graph of mentions 0 to M - 1 and entities M to M + E - 1, its terminals; most links give the truth."""
    mentions, entities = spec.mentions, spec.entities
    entity = np.concatenate((np.arange(entities), _below(_bits(spec, "entities", mentions - entities), entities)))
    ranked = np.argsort(entity, kind="stable")  # mentions of an entity are adjacent
    begin = np.searchsorted(entity[ranked], np.arange(entities + 1))
    links = mentions + mentions * spec.degree // 2
    bits = _bits(spec, "partners", 2 * links).reshape(2, links)
    wrong = common.uniform(bits[0]) < spec.noise
    seems = np.where(wrong[:mentions], _below(bits[1, :mentions], entities), entity)
    asking = np.arange(links - mentions) % mentions
    first, size = begin[entity[asking]], np.diff(begin)[entity[asking]]
    alike = ranked[first + _below(bits[1, mentions:], size)]
    partner = np.where(wrong[mentions:], _below(bits[1, mentions:], mentions), alike)
    weight = 1 + _below(_bits(spec, "weights", links), np.where(wrong, CAPACITY // 2, CAPACITY)).astype(np.float64)
    u = np.concatenate((np.arange(mentions), asking))
    v = np.concatenate((mentions + seems, partner))
    u, v, weight = (array[u != v] for array in (u, v, weight))
    u, v, weight = _with_hubs(spec, u, v, weight)
    order = np.argsort(np.minimum(u, v), kind="stable")
    labels = np.arange(entities)
    return Graph(
        u[order],
        v[order],
        weight[order],
        weight[order],
        mentions + entities,
        mentions + labels,
        labels,
        entities,
        title=str(spec),
    )


def _with_hubs(
    spec: GraphSpec, u: np.ndarray, v: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join mentions 0 and 1 to each other, and to others by edges of weight 1 until each has its share of the edges."""
    pairs = np.unique(np.minimum(u, v) * (spec.mentions + spec.entities) + np.maximum(u, v))
    count = round(spec.delta * len(pairs) / (1.0 - 2.0 * spec.delta))
    order = np.argsort(_bits(spec, "hubs", spec.mentions), kind="stable")
    if count == 0:
        return u, v, weight
    us, vs = [u, np.zeros(1, np.int64)], [v, np.ones(1, np.int64)]
    for hub in (0, 1):
        met = np.union1d(v[u == hub], u[v == hub])
        others = order[~np.isin(order, np.union1d(met, (0, 1)))][: max(count - 1 - len(met), 0)]
        us.append(np.full(len(others), hub))
        vs.append(others)
    more = sum(map(len, us[1:]))
    return np.concatenate(us), np.concatenate(vs), np.concatenate((weight, np.ones(more)))
