"""Arrays in a store's files, which worker processes map by path instead of receiving a copy.

The page cache is shared, nothing is pickled, and data larger than memory are never loaded whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import read_meta


class Mapped(NamedTuple):
    """Elements ``first <= i < last`` of a .npy file (``last`` None: to the end)."""

    path: Path
    first: int | None = None
    last: int | None = None

    def open(self) -> np.ndarray:
        """Return the elements, read-only; the parent has checked the file."""
        return np.asarray(np.load(self.path, mmap_mode="r"))[self.first : self.last]


def entries_of(rows: Rows, shared: bool) -> tuple[dict[str, np.ndarray], dict[str, Mapped]]:
    """Return ``begin``, ``end``, ``indices`` and ``values`` of rows, and which of them are mapped from files.

    With ``shared`` the arrays are to be copied, so in-memory rows that are a small part of their arrays are compacted.
    """
    if shared and rows.store is None and not (rows.contiguous and rows.nnz == len(rows.indices)):
        rows = rows.compact()  # the flat arrays hold more than these rows
    arrays = {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values}
    if rows.store is None:
        return arrays, {}
    names = ("values",) if rows.renumbered else ("indices", "values")  # renumbered indices are in memory
    mapped = {name: Mapped(rows.store / f"{name}.npy") for name in names}
    if _whole(rows):  # the offsets are also mapped
        offsets = rows.store / "indptr.npy"
        mapped |= {"begin": Mapped(offsets, None, -1), "end": Mapped(offsets, 1)}
    return arrays, mapped


def _whole(rows: Rows) -> bool:
    """Return whether these are all rows of their store, none cut short, so that the store's own offsets serve."""
    if rows.store is None or not rows.contiguous:
        return False
    meta = read_meta(rows.store)
    return (len(rows), rows.nnz) == (meta["rows"], meta["nnz"])
