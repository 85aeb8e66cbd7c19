"""Arrays that lie in a store's files, so that worker processes map them by path instead of being sent a copy.

The page cache is then the sharing: nothing is pickled, and data larger than memory are never held in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hogwild.data.examples import Rows
from hogwild.data.store import read_meta


class Mapped(NamedTuple):
    """Elements ``first <= i < last`` (None: to the end) of a .npy file."""

    path: Path
    first: int | None = None
    last: int | None = None

    def open(self) -> np.ndarray:
        """The elements, read-only; the parent has checked the file."""
        return np.asarray(np.load(self.path, mmap_mode="r"))[self.first : self.last]


def entries_of(rows: Rows, shared: bool) -> tuple[dict[str, np.ndarray], dict[str, Mapped]]:
    """``begin``, ``end``, ``indices`` and ``values`` of rows, and which of them other processes find in files.

    With ``shared`` the arrays are to be copied, so rows in memory that are a small part of their arrays are compacted.
    """
    if shared and rows.store is None and not _tight(rows):
        rows = rows.compact()
    arrays = {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values}
    if rows.store is None:
        return arrays, {}
    mapped = {name: Mapped(rows.store / f"{name}.npy") for name in ("indices", "values")}
    if _whole(rows):  # the offsets are one memory map too
        offsets = rows.store / "indptr.npy"
        mapped |= {"begin": Mapped(offsets, None, -1), "end": Mapped(offsets, 1)}
    return arrays, mapped


def _tight(rows: Rows) -> bool:
    """Whether the flat arrays hold these rows and not much else, so that copying them whole wastes little."""
    return rows.contiguous and rows.nnz == len(rows.indices)


def _whole(rows: Rows) -> bool:
    """Whether these are all rows of their store, none of them cut short, so that the store's own offsets serve."""
    if rows.store is None or not rows.contiguous:
        return False
    meta = read_meta(rows.store)
    return (len(rows), rows.nnz) == (meta["rows"], meta["nnz"])
