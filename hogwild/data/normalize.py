"""Scaling each row to length one: ``l2`` (Euclidean) or ``max`` (largest absolute value).

The one decision: rows are never rewritten. A row's scale is one number, and ``(scale * x) . w = scale * (x . w)``, so
training and prediction multiply the margin: 4 bytes a row instead of a second copy of the data, and a store serves
every normalisation. Costs one pass over the entries, at the speed of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.chunks import map_chunks
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
    from hogwild.kernels.margins import row_scales as fill

    limit = rows.width if width is None else width
    scales = np.empty(len(rows), dtype=np.float32)

    def part(first: int, last: int) -> None:
        entries = rows.begin[first:last], rows.end[first:last], rows.indices, rows.values
        fill(*entries, limit, kind == "max", scales[first:last])

    for _ in map_chunks(rows, part, threads):
        pass
    return scales


def scaled(values: np.ndarray, rows: Rows, kind: str, dtype: Any) -> np.ndarray:
    """A copy, of type ``dtype``, of these rows' ``values``, one row after the other, each times its row's scale."""
    found = values.astype(dtype)
    scales = row_scales(rows, kind)
    if scales is not None:
        found *= np.repeat(scales.astype(dtype), rows.end - rows.begin)
    return found
