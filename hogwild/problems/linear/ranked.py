"""Features numbered by popularity, and none that no row holds: how a model that outgrows the cache is trained.

The weights of popular features then share cache lines, and whatever passes over all weights (a copy, a mean, the
penalty) visits those that can differ from zero only. Features that no training row holds share the last number, whose
weight stays zero. Sums over features are taken in the user's order, so they are the same to the last bit. Models and
checkpoints are in the user's numbering; so is everything outside of :class:`hogwild.problems.linear.case.LinearCase`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.degrees import by_degree, degrees, renumbered
from hogwild.data.scaled import Columns
from hogwild.problems.linear.problem import LinearProblem

Arrays = dict[str, np.ndarray]
FLAT = ("flat", "mean")  # arrays of all parameters; of the others "coef" has an element for each feature


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
    """

    features: np.ndarray
    ascending: np.ndarray
    width: int
    _renumbered: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)  # by address and length

    @classmethod
    def of(cls, rows: Rows) -> Ranked:
        """Rank the features of training rows."""
        degree = degrees(rows)
        held = np.flatnonzero(degree)
        features = held[by_degree(degree[held])]
        if len(held) < rows.width:
            features = np.append(features, np.argmin(degree))
        features = features.astype(np.int32)
        return cls(readonly(features), readonly(_inverse(features)), rows.width)

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
            self._renumbered[key] = renumbered(rows.indices, place)
        own = (rows.begin, rows.end), self._renumbered[key], rows.values, rows.targets, len(self.features), rows.weights
        found = Rows(*own, rows.store, check=False)
        found.ranks, found.inverse = self, None if rows.inverse is None else readonly(rows.inverse[self.features])
        if rows.known_degrees is not None and rows.width == self.width:
            found.known_degrees = readonly(rows.known_degrees[self.features])
        return found

    def size(self, problem: LinearProblem) -> int:
        """Number of parameters of all the user's features."""
        return dataclasses.replace(problem, width=self.width).size

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

    def saved(self, problem: LinearProblem, arrays: Arrays) -> Arrays:
        """Arrays of a checkpoint, in the user's numbering."""
        wide = dataclasses.replace(problem, width=self.width)

        def flat(array: np.ndarray) -> np.ndarray:
            found = np.zeros(wide.size, dtype=array.dtype)
            for mine, theirs in zip(problem.per_feature(array), wide.per_feature(found)):
                theirs[self.features] = mine
            for mine, theirs in zip(problem.beside(array), wide.beside(found)):
                theirs[:] = mine
            return found

        return _each(arrays, flat, self.widened)

    def loaded(self, problem: LinearProblem, arrays: Arrays) -> Arrays:
        """What :meth:`saved` made the arrays of."""
        wide = dataclasses.replace(problem, width=self.width)
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


def _inverse(features: np.ndarray) -> np.ndarray:
    """Places in ``features`` by ascending feature, int32."""
    place = np.zeros(int(features.max(initial=-1)) + 1, dtype=np.int32)
    place[features] = np.arange(len(features), dtype=np.int32)
    return place[np.sort(features)]


def _each(arrays: Arrays, flat: Callable[[np.ndarray], np.ndarray], coef: Callable[[np.ndarray], np.ndarray]) -> Arrays:
    of = dict.fromkeys(FLAT, flat) | {"coef": coef}
    return {name: of[name](array) if name in of else array for name, array in arrays.items()}
