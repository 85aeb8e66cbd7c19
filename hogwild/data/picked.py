"""Some rows copied out of many, by a compiled loop: ``rows.select(ids).compact()`` is the slow twin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hogwild.data.examples import Rows
from hogwild.kernels.order import choose
from hogwild.kernels.rows import copy_entries, renumber


def drawn(rows: Rows, count: int, seed: int) -> Rows:
    """A copy in memory of so many of the rows, chosen at random, in their order."""
    ids = np.empty(count, dtype=np.int64)
    choose(ids, len(rows), seed)
    return picked(rows, ids)


def joined(parts: Sequence[Rows]) -> Rows:
    """A copy in memory of the rows of all parts, which are of one width, one behind the other."""
    copies = [picked(part, np.arange(len(part))) for part in parts]
    lengths = np.concatenate([part.end - part.begin for part in copies])
    indices, values, targets = (
        np.concatenate([getattr(part, name) for part in copies]) for name in ("indices", "values", "targets")
    )
    weights = None
    if any(part.weights is not None for part in copies):
        ones = [np.ones(len(part), np.float32) if part.weights is None else part.weights for part in copies]
        weights = np.concatenate(ones)
    return Rows(np.append(0, np.cumsum(lengths)), indices, values, targets, copies[0].width, weights, check=False)


def narrowed(rows: Rows) -> tuple[Rows, np.ndarray]:
    """A copy of contiguous rows without the columns that are empty, and the numbers (int32) of those that are left.

    They are numbered in the order they appear, so the columns of a row do not ascend.
    """
    low, high = (int(rows.begin[0]), int(rows.end[-1])) if len(rows) else (0, 0)
    indices, columns = np.array(rows.indices[low:high]), np.empty(min(high - low, rows.width), np.int32)
    count = renumber(indices, np.zeros(rows.width, np.int32), columns)
    own = (rows.begin - low, rows.end - low), indices, rows.values[low:high], rows.targets
    return Rows(*own, max(count, 1), rows.weights, check=False), columns[:count]


def picked(rows: Rows, ids: np.ndarray) -> Rows:
    """A copy in memory of the rows ``ids``, in that order, one behind the other."""
    chosen = rows.select(ids)
    indptr = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(chosen.end - chosen.begin, out=indptr[1:])
    indices, values = np.empty(indptr[-1], rows.indices.dtype), np.empty(indptr[-1], rows.values.dtype)
    copy_entries(chosen.begin, indptr, rows.indices, rows.values, indices, values)
    flat = indices, values, chosen.targets, rows.width, chosen.weights
    return Rows(indptr, *flat, check=False, hash_bits=rows.hash_bits)
