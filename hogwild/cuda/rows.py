"""Sparse rows for a device: offsets start from zero in each part of the data, and have 32 bits where that is enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows

INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end


def part_of(rows: Rows, first: int, last: int, unit: bool = False) -> dict[str, np.ndarray]:
    """``begin end indices values`` of some rows: slices, but entries of rows not stored consecutively are copied.

    ``unit``: without the values, which are all one.
    """
    rows = rows.block(first, last)
    if rows.contiguous and len(rows):
        base = int(rows.begin[0])
        entries = slice(base, int(rows.end[-1]))
    else:
        rows, base, entries = rows.compact(), 0, slice(None)
    offsets = _offsets(rows.nnz)
    found = {
        "begin": (rows.begin - base).astype(offsets), "end": (rows.end - base).astype(offsets),
        "indices": rows.indices[entries],
    }  # fmt: skip
    return found if unit else found | {"values": rows.values[entries]}


def bytes_of(rows: Rows, first: int, last: int, unit: bool = False) -> int:
    """Bytes of :func:`part_of`, without making it."""
    nonzeros = int((rows.end[first:last] - rows.begin[first:last]).sum())
    return 2 * np.dtype(_offsets(nonzeros)).itemsize * (last - first) + (4 if unit else 8) * nonzeros


def _offsets(nonzeros: int) -> type[np.signedinteger[Any]]:
    return np.int32 if nonzeros < INT32 else np.int64
