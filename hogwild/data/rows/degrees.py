"""Degrees: how many rows hold each feature, counted on all cores.

Each thread counts a share of the rows into its own array, at about 1 ns a nonzero; with very many features one thread
counts alone. Known degrees are not counted again: a store has its degrees beside it, and those of the rows that a
hold-out leaves are the store's minus the held-out rows'. ``Rows.degrees`` is the slow twin.

A model that outgrows the cache trains two to three times as fast if features are numbered by degree
(:class:`Ranked`): the weights of popular features share cache lines, and whatever passes over all weights (a copy, a
mean, the penalty) visits those only that can differ from zero. Rare features are numbered in packs of equal degree,
which is all that the rate of their penalty depends on: a pack shares one. Features that no training row holds share
the last number, whose weight stays zero. Sums over features are taken in the user's order, so they are the same to the
last bit. Models and checkpoints are in the user's numbering, and so is everything outside of ``LinearCase``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.counts_kernel import count_features, look_up, put_back, sort_by_degree
from hogwild.data.scaled import Columns
from hogwild.kernels.tiers import SHARING

OWN_BYTES = 64 << 20  # for all threads' arrays together
MANY = 1 << 16  # rows; features in fewer are sorted by counting, ten times as fast as NumPy sorts
PIECE = 1 << 20  # entries renumbered at a time
PACK = 1 << int(SHARING)  # features of equal degree that are numbered one after the other
HIGHEST = 1 << 12  # degrees from which features are popular in any case
Arrays = dict[str, np.ndarray]
FLAT = ("flat", "mean")  # arrays of all parameters; of the others "coef" has an element for each feature


def frequencies(rows: Rows, threads: int | None = None, most: int | None = None) -> tuple[int, np.ndarray]:
    """Number of rows, and of those that hold each feature, (width,), at least 1: on all machines, if others have more.

    A feature that is common here may be rare elsewhere; every machine must have the same numbers. ``most``: of so many
    features, the first ones.
    """
    if rows.totals is not None:
        return rows.totals.rows, np.maximum(rows.totals.degrees[:most], 1)
    return len(rows), np.maximum(degrees(rows, threads)[:most], 1)


def degrees(rows: Rows, threads: int | None = None) -> np.ndarray:
    """Number of rows that hold each feature, (width,) int32: the paper's ``d_u`` (Recht et al. 2011, section 2.2).

    Parameters
    ----------
    rows : Rows
        Streamed, so they may be larger than memory.
    threads : int, optional
        Default: the cores available to this process.
    """
    if rows.known_degrees is None:
        rows.known_degrees = readonly(_count(rows, threads))
    return rows.known_degrees


def _count(rows: Rows, threads: int | None) -> np.ndarray:
    """Count on several threads, or take the held-out rows' from the whole's."""
    if rows.left_by is not None and rows.left_by[0].known_degrees is not None:
        return rows.left_by[0].known_degrees - degrees(rows.left_by[1], threads)
    threads = threads or len(os.sched_getaffinity(0))
    threads = max(1, min(threads, len(rows), OWN_BYTES // max(4 * rows.width, 1)))
    cuts = np.linspace(0, len(rows), threads + 1).astype(np.int64)

    def count(part: int) -> np.ndarray:
        total = np.zeros(rows.width, dtype=np.int32)
        first, last = cuts[part], cuts[part + 1]
        count_features(rows.begin[first:last], rows.end[first:last], rows.indices, total)
        return total

    if threads == 1:
        return count(0)
    with ThreadPoolExecutor(threads, thread_name_prefix="hogwild-degrees") as pool:
        first, *others = pool.map(count, range(threads))
    for other in others:
        first += other
    return first


def by_popularity(rows: Rows) -> np.ndarray:
    """Features from the one in most rows to the rarest, (width,) int32; of equal ones the lower number comes first."""
    return by_degree(degrees(rows) if rows.totals is None else rows.totals.degrees)


def by_degree(degree: np.ndarray) -> np.ndarray:
    """Features by falling degree, (width,) int32; of equal ones the lower number comes first."""
    first, features = np.zeros(MANY + 1, dtype=np.int64), np.empty(len(degree), dtype=np.int32)
    sort_by_degree(degree, first, features)
    hot = features[: first[MANY]]
    hot[:] = hot[np.argsort(-degree[hot], kind="stable")]
    return features


def renumbered(indices: np.ndarray, place: np.ndarray) -> np.ndarray:
    """A copy of the indices, (nnz,) int32, with ``place[feature]`` for each feature.

    The entries of a row keep their order, so they no longer ascend, and sums over them are the same to the last bit.
    """
    found = np.empty(len(indices), dtype=np.int32)
    deque(map_pieces(len(indices), PIECE, lambda low, high: look_up(indices[low:high], place, found[low:high])), 0)
    return readonly(found)


def unranked(ranked: np.ndarray, features: np.ndarray, own: np.ndarray) -> None:
    """Copy row r of ``ranked`` (width, stride) to row ``features[r]`` of ``own``."""
    deque(map_pieces(len(features), PIECE, lambda low, high: put_back(ranked[low:high], features[low:high], own)), 0)


@dataclass(frozen=True, eq=False)
class Ranked:
    """The features of some training rows, from the one in most rows on.

    Attributes
    ----------
    features : array of int32, shape (k,)
        The user's number of each; the last one is in no row, if there is such a feature.
    ascending : array of int32, shape (k,)
        Places in ``features``, in the user's order.
    width : int
        Number of the user's features.
    popular : int
        How many come first; each ``PACK`` of the others have the same degree.
    """

    features: np.ndarray
    ascending: np.ndarray
    width: int
    popular: int = 0
    _renumbered: dict[tuple[int, int], tuple[np.ndarray, ...]] = field(default_factory=dict)  # by address and length

    @classmethod
    def of(cls, rows: Rows) -> Ranked:
        """Rank the features of training rows."""
        degree = degrees(rows)
        held = np.flatnonzero(degree)
        features = held[by_degree(degree[held])]
        features, popular = _packed(features, degree[features])
        if len(held) < rows.width:
            features = np.append(features, np.argmin(degree))
        features = features.astype(np.int32)
        return cls(readonly(features), readonly(_inverse(features)), rows.width, popular)

    def rows(self, rows: Rows) -> Rows:
        """The rows with a copy of their indices in these numbers; the entries of a row keep their order.

        So the indices of a row do not ascend, except that features beyond the user's width are its last entries, and
        beyond these features.
        """
        key = rows.indices.__array_interface__["data"][0], len(rows.indices)
        if key not in self._renumbered:  # training rows and those held out of them share their entries
            last = len(self.features)
            place = np.full(max(rows.width, self.width), last - 1, dtype=np.int32)
            place[self.width :] = last
            place[self.features] = np.arange(last, dtype=np.int32)
            self._renumbered[key] = rows.indices, renumbered(rows.indices, place)
        indices, width = self._renumbered[key][1], len(self.features)
        own = (rows.begin, rows.end), indices, rows.values, rows.targets, width, rows.weights
        found = Rows(*own, rows.store, check=False)
        found.ranks, found.inverse = self, None if rows.inverse is None else readonly(rows.inverse[self.features])
        if rows.known_degrees is not None and rows.width == self.width:
            found.known_degrees = readonly(rows.known_degrees[self.features])
        return found

    def size(self, problem: Any) -> int:
        """Number of parameters of all the user's features."""
        return problem.widened(self.width).size

    def columns(self, columns: Columns) -> Columns:
        """How the columns of these features are scaled."""
        place = np.full(self.width, len(self.features) - 1)
        place[self.features] = np.arange(len(self.features))
        return Columns(columns.inverse[self.features], columns.means[self.features], place[columns.centred])

    def widened(self, coef: np.ndarray) -> np.ndarray:
        """Weights (..., width) of the user's features, for those of these (..., k)."""
        found = np.zeros((*coef.shape[:-1], self.width), dtype=coef.dtype)
        found[..., self.features] = coef
        return found

    def saved(self, problem: Any, arrays: Arrays) -> Arrays:
        """Arrays of a checkpoint, in the user's numbering."""
        wide = problem.widened(self.width)

        def flat(array: np.ndarray) -> np.ndarray:
            found = np.zeros(wide.size, dtype=array.dtype)
            for mine, theirs in zip(problem.per_feature(array), wide.per_feature(found)):
                theirs[self.features] = mine
            for mine, theirs in zip(problem.beside(array), wide.beside(found)):
                theirs[:] = mine
            return found

        return _each(arrays, flat, self.widened)

    def loaded(self, problem: Any, arrays: Arrays) -> Arrays:
        """What :meth:`saved` made the arrays of."""
        wide = problem.widened(self.width)
        for name, length in {**dict.fromkeys(FLAT, wide.size), "coef": self.width}.items():
            if name in arrays and arrays[name].shape[-1:] != (length,):
                raise ValueError(f"{name} of shape {arrays[name].shape}, expected {length} in a row")

        def flat(array: np.ndarray) -> np.ndarray:
            found = np.zeros(problem.size, dtype=array.dtype)
            for mine, theirs in zip(problem.per_feature(found), wide.per_feature(array)):
                mine[:] = theirs[self.features]
            for mine, theirs in zip(problem.beside(found), wide.beside(array)):
                mine[:] = theirs
            return found

        return _each(arrays, flat, lambda coef: np.ascontiguousarray(coef[..., self.features]))


def _packed(features: np.ndarray, degree: np.ndarray) -> tuple[np.ndarray, int]:
    """Put rare features in packs of ``PACK`` that have the same degree, and what is left of a degree before these.

    Parameters
    ----------
    features, degree : arrays of integers, shape (k,)
        By falling degree.

    Returns
    -------
    array of integers, shape (k,)
    int
        How many are popular, or left: as few as possible, since about half a pack is left of each degree.
    """
    from_degree = np.searchsorted(-degree, -np.arange(HIGHEST + 1), side="right")  # features of at least this degree
    rare = int(np.argmin(from_degree[1:] + PACK // 2 * np.arange(HIGHEST))) + 1  # degrees below are rare
    first, sizes = from_degree[rare], -np.diff(from_degree[: rare + 1])[:0:-1]
    place = np.arange(len(features) - first) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # among those of its degree
    packed = np.append(np.zeros(first, bool), place < np.repeat(sizes - sizes % PACK, sizes))
    return np.concatenate([features[~packed], features[packed]]), int(len(features) - packed.sum())


def _inverse(features: np.ndarray) -> np.ndarray:
    """Places in ``features`` by ascending feature, int32."""
    place = np.zeros(int(features.max(initial=-1)) + 1, dtype=np.int32)
    place[features] = np.arange(len(features), dtype=np.int32)
    return place[np.sort(features)]


def _each(arrays: Arrays, flat: Callable[[np.ndarray], np.ndarray], coef: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    of = dict.fromkeys(FLAT, flat) | {"coef": coef}
    return {name: of[name](array) if name in of else array for name, array in arrays.items()}
