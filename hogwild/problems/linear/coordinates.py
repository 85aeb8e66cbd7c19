"""The coordinates in which a linear model is trained, and the way from the user's and back.

Models, checkpoints, evaluations and exact steps are in the user's coordinates. Workers have two others, each with
``rows``, ``inward`` and ``outward``; :class:`Coordinates` applies one after the other.

**Scaling.** A step that suits a column of size one is a million times too large for one of size 1000. So models are
trained in ``v_j = s_j w_j`` of ``x_j / s_j``, where ``s_j`` is the power of two nearest to the column's root mean
square: nothing is rounded, and without a penalty a column times 2^k gives the same model to the last bit. With an
intercept, a column whose mean exceeds its deviation is centred too, since otherwise it and the intercept move
together: ``b' = b + sum_j w_j m_j``. The objective is that of the user's columns: in ``v_j`` the penalties are
``l2 / s_j^2`` and ``l1 / s_j``, which :meth:`hogwild.problems.linear.problem.LinearProblem.rates` puts into the rates.
Sparse columns keep their scale unless one of them differs from one by ``ODD`` powers of two, and then all are scaled,
by the mean square of their entries. Rows of ones, and sparse rows of unit length as text has, are left as they are.
The price is one pass over the entries, or over ``READ`` of them, and a copy.

**Numbering.** A model that outgrows the cache trains two to three times as fast if its features are numbered by
popularity: the weights of popular ones share cache lines, and whatever passes over all weights (a copy, a mean, the
penalty) visits those only that can differ from zero. Rare features are numbered in packs of equal degree, which is all
that the rate of their penalty depends on: a pack shares one. Features that no training row holds share the last number,
whose weight stays zero. The entries of a row keep their order, so sums over them are the same to the last bit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.parallel import map_pieces
from hogwild.data.rows.container import READ, Rows, readonly
from hogwild.data.rows.counts_kernel import column_sums, look_up, scale_entries
from hogwild.data.rows.degrees import by_degree
from hogwild.kernels.tiers import PACK
from hogwild.problems.linear.rows import all_ones, like_text

ODD = 4  # powers of two
FILLED = 64  # most columns that are centred although some rows lack them, and then hold their means
LARGEST = 60  # power of two
PIECE = 1 << 20  # entries renumbered at a time
HIGHEST = 1 << 12  # degrees from which features are popular in any case

Solution = tuple[np.ndarray, np.ndarray]  # weights (width,) or (K, width), and intercepts (1,) or (K,)


@dataclass(frozen=True)
class Scaling:
    """Columns on one scale: ``v = (x - means) * inverse``.

    Attributes
    ----------
    inverse : array of float64, shape (width,)
        Powers of two.
    means : array of float64, shape (width,)
        Zero for columns that are not centred.
    """

    inverse: np.ndarray
    means: np.ndarray

    @classmethod
    def of(cls, rows: Rows, intercept: bool) -> Scaling | None:
        """How to scale the columns of these rows; None if they are to be left as they are.

        Columns are centred only where an ``intercept`` takes up their means.
        """
        if all_ones(rows.values) or not len(rows) or not rows.width or like_text(rows):
            return None
        rows = rows if rows.nnz <= READ else rows.select(rows.spread(READ))
        count, sums = np.zeros(rows.width, dtype=np.int64), np.zeros((3, rows.width))
        column_sums(rows.begin, rows.end, rows.indices, rows.values, count, *sums)
        first, total, squares = sums
        occurring = np.maximum(count, 1)
        offset = total / occurring  # mean of the entries, from the first
        entries, spread = first + offset, np.maximum(squares / occurring - np.square(offset), 0.0)
        square = np.square(entries) + spread  # of the entries
        share = count / len(rows)
        means = (share * entries).astype(np.float32).astype(np.float64)
        deviation = np.sqrt(share * (spread + (1 - share) * np.square(entries)))
        distant = np.abs(means) > deviation
        centred = distant & (share == 1)
        others = np.flatnonzero(distant & (share > 0.5) & (share < 1))
        if len(others):
            order = np.argsort(deviation[others] / np.abs(means[others]), kind="stable")
            centred[others[order[:FILLED]]] = True
        centred &= intercept
        sizes = np.where(centred, deviation, np.sqrt(square))
        powers = np.rint(np.log2(np.where(sizes > 0, sizes, 1.0))).clip(-LARGEST, LARGEST).astype(np.int32)
        sparse = ~centred & (share < 0.5)
        if not (np.abs(powers[sparse & (count > 1)]) >= ODD).any():
            powers[sparse] = 0
        if not (powers.any() or centred.any()):
            return None
        return cls(np.ldexp(1.0, -powers), np.where(centred, means, 0.0))

    @cached_property
    def centred(self) -> np.ndarray:
        """Numbers of the columns that are centred."""
        return np.flatnonzero(self.means)

    def rows(self, rows: Rows) -> Rows:
        """A scaled copy of the rows in memory."""
        room = rows.nnz
        if len(self.centred):  # whose means stand in rows that lack these columns
            room += int((len(rows) - rows.degrees()[self.centred]).sum())
        indptr = np.empty(len(rows) + 1, dtype=np.int64)
        entries = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.float32)
        scale_entries(
            rows.begin, rows.end, rows.indices, rows.values, self.centred, self.means, self.inverse, indptr, *entries
        )
        indices, values = entries
        arrays = {"begin": indptr[:-1], "end": indptr[1:], "indices": indices, "values": values}
        return rows.replace(**arrays, inverse=self.inverse, store=None, known_degrees=None, split_from=None)

    def inward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The weights of scaled columns that predict what the user's do, float32."""
        moved = intercept + self._shift(coef, len(intercept))
        return (coef / self.inverse).astype(np.float32), moved.astype(np.float32)

    def outward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The user's weights, of those of the scaled columns, float32."""
        coef = (coef * self.inverse).astype(np.float32)
        moved = intercept - self._shift(coef, len(intercept))  # of rounded weights: no error adds up
        return coef, moved.astype(np.float32)

    def _shift(self, coef: np.ndarray, classes: int) -> np.ndarray:
        return np.asarray(coef.reshape(classes, -1)[:, self.centred] @ self.means[self.centred])


@dataclass(frozen=True, eq=False)
class Numbering:
    """Some of the user's features, in another order; the others have the weight zero.

    Attributes
    ----------
    features : array of int32, shape (k,)
        The user's number of each.
    width : int
        Number of the user's features.
    popular : int
        By popularity: how many come first; each ``PACK`` of the others have the same degree.
    """

    features: np.ndarray
    width: int
    popular: int = 0
    _renumbered: dict[tuple[int, int], tuple[np.ndarray, ...]] = field(default_factory=dict)  # by address and length

    @classmethod
    def by_popularity(cls, rows: Rows) -> Numbering:
        """The features of training rows, from the one in most rows on; last one that is in no row, if there is any."""
        degree = rows.degrees()
        occurring = np.flatnonzero(degree)
        features = occurring[by_degree(degree[occurring])]
        features, popular = packed(features, degree[features])
        if len(occurring) < rows.width:
            features = np.append(features, np.argmin(degree))
        return cls(readonly(features.astype(np.int32)), rows.width, popular)

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
            self._renumbered[key] = rows.indices, _renumbered(rows.indices, place)
        known = rows.known_degrees if rows.width == self.width else None
        return rows.replace(
            indices=self._renumbered[key][1],
            width=len(self.features),
            renumbered=True,
            inverse=None if rows.inverse is None else readonly(rows.inverse[self.features]),
            fields=None if rows.fields is None or rows.width != self.width else readonly(rows.fields[self.features]),
            known_degrees=None if known is None else readonly(known[self.features]),
            **dict.fromkeys(("hash_bits", "table", "totals", "split_from")),
        )

    def inward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The weights of these features."""
        return coef.T[self.features].T, intercept

    def outward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The weights of all of the user's features."""
        wide = np.zeros((self.width, *coef.shape[:-1]), dtype=coef.dtype)  # a feature's weights are neighbours
        wide[self.features] = coef.T
        return wide.T, intercept

    def size(self, problem: Any) -> int:
        """Number of parameters of all the user's features."""
        return int(problem.widened(self.width).size)

    def flat(self, problem: Any, flat: np.ndarray, users: bool) -> np.ndarray:
        """All parameters of these features, of those of the user's; with ``users``, the other way round."""
        wide = problem.widened(self.width)
        before, after = (problem, wide) if users else (wide, problem)
        result = np.zeros(after.size, dtype=flat.dtype)
        for part, old in zip(after.per_feature(result), before.per_feature(flat)):
            if users:
                part[self.features] = old
            else:
                part[:] = old[self.features]
        for part, old in zip(after.beside(result), before.beside(flat)):
            part[:] = old
        return result


def _renumbered(indices: np.ndarray, place: np.ndarray) -> np.ndarray:
    """A copy of the indices, (nnz,) int32, with ``place[feature]`` for each feature."""
    copy = np.empty(len(indices), dtype=np.int32)
    deque(map_pieces(len(indices), PIECE, lambda low, high: look_up(indices[low:high], place, copy[low:high])), 0)
    return readonly(copy)


def packed(features: np.ndarray, degree: np.ndarray) -> tuple[np.ndarray, int]:
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
    in_pack = np.append(np.zeros(first, bool), place < np.repeat(sizes - sizes % PACK, sizes))
    return np.concatenate([features[~in_pack], features[in_pack]]), int(len(features) - in_pack.sum())


class Coordinates(NamedTuple):
    """Those of a run: the user's columns are scaled, and then numbered; each may be left out."""

    scaling: Scaling | None = None
    numbering: Numbering | None = None

    def rows(self, rows: Rows) -> Rows:
        """The user's rows in these coordinates."""
        for part in self._parts:
            rows = part.rows(rows)
        return rows

    def inward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The user's weights in these coordinates."""
        for part in self._parts:
            coef, intercept = part.inward(coef, intercept)
        return coef, intercept

    def outward(self, coef: np.ndarray, intercept: np.ndarray) -> Solution:
        """The user's weights, of those in these coordinates."""
        for part in reversed(self._parts):
            coef, intercept = part.outward(coef, intercept)
        return coef, intercept

    @property
    def _parts(self) -> list[Scaling | Numbering]:
        return [part for part in self if part is not None]

    @property
    def smallest_scale(self) -> float:
        """The smallest of the columns' scales."""
        return 1.0 if self.scaling is None else float((1.0 / self.scaling.inverse).min())

    @property
    def counts(self) -> dict[str, int]:
        """How many columns are scaled and centred, as fields of a row."""
        scaling = self.scaling
        return {
            "columns_scaled": 0 if scaling is None else int(np.count_nonzero(scaling.inverse != 1.0)),
            "columns_centred": 0 if scaling is None else len(scaling.centred),
        }


def scaled_for(config: TrainConfig, rows: Rows) -> tuple[Coordinates, str]:
    """The scale for a run on these rows, and a line about it for the user."""
    both_on_device = config.device == "cuda" and min(config.l1, config.l2) > 0  # whose kernels have one rate a feature
    if not config.scale_columns or config.normalize != "none" or both_on_device:
        return Coordinates(), ""
    total, _ = machine.memory()
    reason = ""
    if rows.totals is not None:  # each machine would scale by its own rows
        reason = "every machine has rows of its own"
    elif total is not None and 8 * rows.nnz > total // 4:
        reason = "a copy of the rows would take much memory"
    if reason:
        return Coordinates(), "" if like_text(rows) else f"columns not scaled: {reason}"
    coordinates = Coordinates(Scaling.of(rows, config.intercept))
    if coordinates.scaling is None:
        return coordinates, ""
    scaled, centred = coordinates.counts.values()
    note = f"columns scaled: {scaled:,} of {rows.width:,}; centred {centred:,} (--no-scale-columns: none)"
    return coordinates, note
