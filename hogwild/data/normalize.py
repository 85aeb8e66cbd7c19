"""Scaling each row to length one: ``l2`` (Euclidean) or ``max`` (largest absolute value).

The one decision: rows are never rewritten. A row's scale is one number, and ``(scale * x) . w = scale * (x . w)``, so
training and prediction multiply the margin: 4 bytes a row instead of a second copy of the data, and a store serves
every normalisation. Costs one pass over the values, about 1 ns a nonzero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.chunks import known_part, map_chunks
from hogwild.data.examples import Rows
from hogwild.errors import UsageError, expected_one_of

NORMALIZE = ("none", "l2", "max")


def row_scales(rows: Rows, kind: str, width: int | None = None, threads: int | None = None) -> np.ndarray | None:
    """What each row is multiplied by.

    Parameters
    ----------
    rows : Rows
        Streamed in chunks, so they may be larger than memory.
    kind : {"none", "l2", "max"}
    width : int, optional
        Features at or beyond it are left out of the length, as they are left out of the margin.
    threads : int, optional
        Default: the cores this process may use.

    Returns
    -------
    array of float32, shape (n,), or None for "none"
        One over the row's length. One for a row without a nonzero value, which stays zero.

    Raises
    ------
    UsageError
        For another ``kind``.
    """
    if kind not in NORMALIZE:
        raise UsageError(f"normalize {kind!r}: {expected_one_of(NORMALIZE, kind)}")
    if kind == "none":
        return None
    limit = rows.width if width is None else width
    scales = np.empty(len(rows), dtype=np.float32)

    def fill(first: int, last: int) -> None:
        scales[first:last] = chunk_scales(known_part(rows.block(first, last), limit), kind)

    for _ in map_chunks(rows, fill, threads):
        pass
    return scales


def scaled(values: np.ndarray, rows: Rows, kind: str, dtype: Any) -> np.ndarray:
    """A copy, of type ``dtype``, of these rows' ``values``, one row after the other, each times its row's scale."""
    found = values.astype(dtype)
    scales = row_scales(rows, kind)
    if scales is not None:
        found *= np.repeat(scales.astype(dtype), rows.end - rows.begin)
    return found


def chunk_scales(part: Rows, kind: str) -> np.ndarray:
    """:func:`row_scales` of contiguous rows that fit in memory; float32, shape (n,)."""
    values = part.values[part.begin[0] : part.end[-1]] if len(part) else part.values[:0]
    lengths = np.zeros(len(part))
    filled = part.end > part.begin
    if filled.any():
        starts = (part.begin - part.begin[0])[filled]  # rows between are empty, so segments end where they should
        if kind == "l2":
            lengths[filled] = np.sqrt(np.add.reduceat(np.square(values, dtype=np.float64), starts))
        else:
            lengths[filled] = np.maximum.reduceat(np.abs(values), starts)
    lengths[lengths == 0.0] = 1.0
    limit = float(np.finfo(np.float32).max)  # one over a length below 3e-39 would be infinite, and times zero NaN
    return np.minimum(1.0 / lengths, limit).astype(np.float32)
