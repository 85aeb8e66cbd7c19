"""Columns on one scale, for training: ``x_j`` becomes ``(x_j - m_j) / s_j``, and the weights are mapped back.

A step that suits a column of size one is a million times too large for one of size 1000. So models are trained in the
coordinates ``v_j = s_j w_j`` of ``x_j / s_j``, where ``s_j`` is the power of two nearest to the column's root mean
square: nothing is rounded, and without a penalty a column times 2^k gives the same model to the last bit. With an
intercept, a column whose mean exceeds its deviation is centred too, since otherwise it and the intercept move
together: ``b' = b + sum_j w_j m_j``. The objective is that of the user's columns: in ``v_j`` the penalties are
``l2 / s_j^2`` and ``l1 / s_j``, which :meth:`hogwild.problems.linear.problem.LinearProblem.rates` puts into the rates.

Sparse columns keep their scale unless one of them differs from one by ``ODD`` powers of two, and then all are scaled,
by the mean square of their entries. Rows of ones, and sparse rows of unit length as text has, are left as they are.
The price is one pass over the entries, or over ``READ`` of them, and a copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.counts_kernel import column_sums, scale_entries, squared_lengths

SAMPLED = 512  # rows that tell whether all have unit length
UNIT = 1e-3  # by how much their squared lengths may differ from one
FULL = 0.25  # share of the width that a row fills, from which rows are not sparse
ODD = 4
FILLED = 64  # most columns that are centred although some rows lack them, and then hold their means
LARGEST = 60  # power of two
READ = 1 << 26  # nonzeros that statistics are taken of


@dataclass(frozen=True)
class Columns:
    """How columns are scaled: ``v = (x - means) * inverse``.

    Attributes
    ----------
    inverse : array of float64, shape (width,)
        Powers of two.
    means : array of float64, shape (width,)
        Zero for columns that are not centred.
    centred : array of int64
        Numbers of those that are.
    """

    inverse: np.ndarray
    means: np.ndarray
    centred: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of columns that are scaled and centred, as fields of a row."""
        return {
            "columns_scaled": int(np.count_nonzero(self.inverse != 1.0)),
            "columns_centred": len(self.centred),
        }

    def apply(self, rows: Rows) -> Rows:
        """A scaled copy of the rows in memory."""
        centres = self.centred
        room = rows.nnz + len(rows) * len(centres)
        if room > rows.nnz:  # less, if most rows hold those columns
            held = np.zeros(rows.width, dtype=np.int64)
            held[centres] = 1
            room -= sum(int(held[rows.indices[a:b]].sum()) for a, b in _spans(rows))
        indptr = np.empty(len(rows) + 1, dtype=np.int64)
        entries = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.float32)
        scale_entries(
            rows.begin, rows.end, rows.indices, rows.values, centres, self.means, self.inverse, indptr, *entries
        )
        scaled = Rows(
            indptr,
            *entries,
            rows.targets,
            rows.width,
            rows.weights,
            check=False,
            hash_bits=rows.hash_bits,
            table=rows.table,
        )
        scaled.inverse = readonly(self.inverse)
        return scaled

    def back(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The user's weights, (width,) or (K, width), and intercepts of those of the scaled columns, float32."""
        coef = (coef * self.inverse).astype(np.float32)
        moved = intercept - self._shift(coef, len(intercept))  # of rounded weights: no error adds up
        return coef, moved.astype(np.float32)

    def forth(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of :meth:`back`."""
        moved = intercept + self._shift(coef, len(intercept))
        return (coef / self.inverse).astype(np.float32), moved.astype(np.float32)

    def _shift(self, coef: np.ndarray, classes: int) -> np.ndarray:
        return np.asarray(coef.reshape(classes, -1)[:, self.centred] @ self.means[self.centred])


def _spans(rows: Rows) -> list[tuple[int, int]]:
    """Parts of the flat arrays that the rows are made of."""
    if rows.contiguous:
        return [(int(rows.begin[0]), int(rows.end[-1]))] if len(rows) else []
    return list(zip(rows.begin.tolist(), rows.end.tolist()))


def columns_of(rows: Rows, intercept: bool, ones: bool) -> Columns | None:
    """How to scale the columns of these rows; None if they are to be left as they are.

    Parameters
    ----------
    rows : Rows
    intercept : bool
        Whether there is an intercept that may take up the means.
    ones : bool
        Whether all values are one.
    """
    if ones or not len(rows) or not rows.width or like_text(rows):
        return None
    rows = some_of(rows)
    n = len(rows)
    count, sums = np.zeros(rows.width, dtype=np.int64), np.zeros((3, rows.width))
    column_sums(rows.begin, rows.end, rows.indices, rows.values, count, *sums)
    first, total, squares = sums
    held = np.maximum(count, 1)
    about = total / held  # mean of the entries, from the first
    entries, spread = first + about, np.maximum(squares / held - np.square(about), 0.0)
    square = np.square(entries) + spread  # of the entries
    share = count / n
    means = (share * entries).astype(np.float32).astype(np.float64)
    deviation = np.sqrt(share * (spread + (1 - share) * np.square(entries)))
    apart = np.abs(means) > deviation
    centred = apart & (share == 1)
    others = np.flatnonzero(apart & (share > 0.5) & (share < 1))
    if len(others):
        order = np.argsort(deviation[others] / np.abs(means[others]), kind="stable")
        centred[others[order[:FILLED]]] = True
    centred &= intercept
    powers = _nearest(np.where(centred, deviation, np.sqrt(square)))
    sparse = ~centred & (share < 0.5)
    if not (np.abs(powers[sparse & (count > 1)]) >= ODD).any():
        powers[sparse] = 0
    if not (powers.any() or centred.any()):
        return None
    means = np.where(centred, means, 0.0)
    return Columns(np.ldexp(1.0, -powers), means, np.flatnonzero(means))


def some_of(rows: Rows) -> Rows:
    """The rows, or evenly spaced ones of very many."""
    return rows if rows.nnz <= READ else rows.select(rows.spread(READ))


def like_text(rows: Rows) -> bool:
    """Whether the rows are sparse and of length one, as far as a sample tells."""
    if rows.nnz >= FULL * rows.width * len(rows):
        return False
    ids = rows.evenly(SAMPLED)
    found = lengths_of(rows.select(ids))
    return bool((np.abs(found[found > 0] - 1) <= UNIT).all())


def lengths_of(rows: Rows) -> np.ndarray:
    """Squared norms of the rows, (n,) float64."""
    found = np.empty(len(rows))
    squared_lengths(rows.begin, rows.end, rows.values, found)
    return found


def _nearest(sizes: np.ndarray) -> np.ndarray:
    """Exponents of the nearest powers of two, int32; 0 for a size of zero."""
    fraction, power = np.frexp(sizes)
    power = np.where(fraction < np.sqrt(0.5), power - 1, power)
    return np.where(sizes > 0, power.clip(-LARGEST, LARGEST), 0).astype(np.int32)
