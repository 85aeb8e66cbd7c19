"""Copies of some of many rows, of rows joined, and of rows without empty columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.counts_kernel import renumber
from hogwild.kernels.order import choose


def drawn(rows: Rows, count: int, seed: int) -> Rows:
    """Return a copy in memory of ``count`` rows chosen at random, in their original order."""
    ids = np.empty(count, dtype=np.int64)
    choose(ids, len(rows), seed)
    return rows.select(ids).compact()


def joined(parts: Sequence[Rows]) -> Rows:
    """Return a copy in memory of the rows of all parts, concatenated; all parts have the same width."""
    copies = [part.compact() for part in parts]
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
    """Return a copy of contiguous rows without empty columns, and the numbers (int32) of the columns that are left.

    The columns keep their order. It takes two bits of memory a column, whatever the number of columns.
    """
    low, high = (int(rows.begin[0]), int(rows.end[-1])) if len(rows) else (0, 0)
    indices, columns = np.array(rows.indices[low:high]), np.empty(min(high - low, rows.width), np.int32)
    words = rows.width // 64 + 1
    count = renumber(indices, np.zeros(words, np.uint64), np.empty(words, np.int32), columns)
    own = (rows.begin - low, rows.end - low), indices, rows.values[low:high], rows.targets
    found = Rows(*own, max(count, 1), rows.weights, check=False)
    if rows.inverse is not None:
        found.inverse = readonly(rows.inverse[columns[: found.width]])
    return found, columns[:count]
