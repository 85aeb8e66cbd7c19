"""Makes stand-ins for the graphs of the Hogwild paper's table, as lists of edges.

DBLife: mentions of entities, each joined to the entity it seems to name and to similar mentions, at 1 % of its size,
with two neighbouring mentions in 4.3e-3 of the edges each (Delta; rho is twice that). Abdomen: a volume of planted
balls, whose neighbours of similar brightness are joined by capacities of at most 10, and whose two terminals are in
9.2e-4 of the edges each. Numbers come from counter-based random streams, so the same bits everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.graphs.synthetic import neighbours, picture, stream_bits
from hogwild.data.synthetic import parse, uniform

LINKS, ENTITIES, PARTNERS, WEIGHTS, HUBS = range(3, 8)  # random streams
CAPACITY = 10  # the largest weight, as in the paper
CONTRAST = 0.25  # difference in brightness at which a capacity is half the largest
DEGREE = 6  # similar mentions that a mention is joined to, on average
WRONG = 0.1  # share of links to a wrong entity or its mentions
HUB_SHARE = 4.3e-3  # of the edges, at each of two mentions
TERMINAL_SHARE = 9.2e-4  # of the edges, at each terminal


def write(path: Path, u: np.ndarray, v: np.ndarray, weights: np.ndarray, terminals: np.ndarray) -> str:
    """Write the edges, grouped by vertex, and the terminals, whose labels are 0, 1, ...; return the path."""
    order = np.argsort(np.minimum(u, v), kind="stable")
    np.savetxt(path, np.stack([u, v, weights], axis=1)[order], "%d", "\t")
    np.savetxt(f"{path}.terminals", np.stack([terminals, np.arange(len(terminals))], axis=1), "%d", "\t")
    return str(path)


def bits(stream: int, count: int) -> np.ndarray:
    return stream_bits(0, stream, count)


def below(numbers: np.ndarray, limits: Any) -> np.ndarray:
    """Whole numbers below ``limits`` (less than 2^32), int64."""
    return (((numbers >> np.uint64(32)) * np.asarray(limits, dtype=np.uint64)) >> np.uint64(32)).astype(np.int64)


def abdomen(path: Path, side: int = 113) -> str:
    truth, image = picture(parse(f"synthetic:grid?side={side}&noise=0.15", "edges"), 3)
    u, v = neighbours(image.shape)
    contrast = (image.ravel()[u] - image.ravel()[v]) / CONTRAST
    weights = np.floor(CAPACITY / (1.0 + contrast * contrast))
    count = max(round(TERMINAL_SHARE * len(u) / (1.0 - 2 * TERMINAL_SHARE)), 1)
    order = np.argsort(bits(LINKS, truth.size), kind="stable")
    linked = [np.sort(order[truth.ravel()[order] == label][:count]) for label in (0, 1)]
    u = np.concatenate((u, *linked))
    v = np.concatenate((v, *(np.full(len(points), truth.size + label) for label, points in enumerate(linked))))
    weights = np.append(weights, np.full(len(u) - len(weights), CAPACITY))
    return write(path, u, v, weights, truth.size + np.arange(2))


def dblife(path: Path, entities: int = 182, mentions: int = 1801) -> str:
    entity = np.concatenate((np.arange(entities), below(bits(ENTITIES, mentions - entities), entities)))
    ranked = np.argsort(entity, kind="stable")  # mentions of an entity are adjacent
    begin = np.searchsorted(entity[ranked], np.arange(entities + 1))
    links = mentions + mentions * DEGREE // 2
    drawn = bits(PARTNERS, 2 * links).reshape(2, links)
    wrong = uniform(drawn[0]) < WRONG
    seems = np.where(wrong[:mentions], below(drawn[1, :mentions], entities), entity)
    asking = np.arange(links - mentions) % mentions
    alike = ranked[begin[entity[asking]] + below(drawn[1, mentions:], np.diff(begin)[entity[asking]])]
    partner = np.where(wrong[mentions:], below(drawn[1, mentions:], mentions), alike)
    weights = 1 + below(bits(WEIGHTS, links), np.where(wrong, CAPACITY // 2, CAPACITY))
    u = np.append(np.arange(mentions), asking)
    v = np.append(mentions + seems, partner)
    u, v, weights = (array[u != v] for array in (u, v, weights))
    # Mentions 0 and 1 are joined to each other, and to others by edges of weight 1, until each has its share.
    pairs = np.unique(np.minimum(u, v) * (mentions + entities) + np.maximum(u, v))
    count = round(HUB_SHARE * len(pairs) / (1.0 - 2.0 * HUB_SHARE))
    order = np.argsort(bits(HUBS, mentions), kind="stable")
    more = [(0, np.array([1]))] if count else []
    for hub in (0, 1):
        met = np.union1d(v[u == hub], u[v == hub])
        others = order[~np.isin(order, np.union1d(met, (0, 1)))]
        more.append((hub, others[: max(count - 1 - len(met), 0)]))
    u = np.concatenate((u, *(np.full(len(others), hub) for hub, others in more)))
    v = np.concatenate((v, *(others for _, others in more)))
    weights = np.append(weights, np.ones(len(u) - len(weights)))
    return write(path, u, v, weights, mentions + np.arange(entities))
