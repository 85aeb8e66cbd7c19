"""Scaling each row to length one: ``l2`` (Euclidean) or ``max`` (largest absolute value).

Rows are never rewritten. A row's scale is one number, and ``(scale * x) . w = scale * (x . w)``, so training and
prediction multiply the margin: this takes 4 bytes a row instead of a second copy of the data, and one store serves
every normalisation. It costs one pass over the entries, at memory bandwidth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.rows.chunks import map_chunks
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError, expected_one_of
from hogwild.methods import NORMALIZE


def row_scales(rows: Rows, kind: str, width: int | None = None, threads: int | None = None) -> np.ndarray | None:
    """Factor by which each row is multiplied.

    Parameters
    ----------
    rows : Rows
        Streamed in chunks, so they may be larger than memory.
    kind : {"none", "l2", "max"}
    width : int, optional
        Features at or beyond it are left out of the length, as of the margin.
    threads : int, optional
        Default: the cores available to this process.

    Returns
    -------
    array of float32, shape (n,), or None for "none"
        One over the row's length; one for a row without a nonzero value, which stays zero.

    Raises
    ------
    UsageError
        For an unknown ``kind``.
    """
    if kind not in NORMALIZE:
        raise UsageError(f"normalize {kind!r}: {expected_one_of(NORMALIZE, kind)}")
    if kind == "none":
        return None
    from hogwild.data.rows.margins_kernel import row_scales as fill

    limit = rows.width if width is None else width
    scales = np.empty(len(rows), dtype=np.float32)

    def part(first: int, last: int) -> None:
        entries = rows.begin[first:last], rows.end[first:last], rows.indices, rows.values
        fill(*entries, limit, kind == "max", scales[first:last])

    for _ in map_chunks(rows, part, threads):
        pass
    return scales


def scaled(values: np.ndarray, rows: Rows, kind: str, dtype: Any) -> np.ndarray:
    """Copy of these rows' ``values`` as ``dtype``, concatenated, each multiplied by its row's scale."""
    found = values.astype(dtype)
    scales = row_scales(rows, kind)
    if scales is not None:
        found *= np.repeat(scales.astype(dtype), rows.end - rows.begin)
    return found
