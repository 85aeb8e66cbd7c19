"""Arrays in a store's files, which worker processes map by path instead of receiving a copy.

The page cache is shared, nothing is pickled, and data larger than memory are never loaded whole.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hogwild import machine
from hogwild.data.order import BLOCKS_PER_CHUNK, Order
from hogwild.data.rows.container import Rows, advise
from hogwild.data.rows.store import read_meta

AHEAD = 1 << 29  # most bytes that are read before workers want them


class Mapped(NamedTuple):
    """Elements ``first <= i < last`` of a .npy file (``last`` None: to the end)."""

    path: Path
    first: int | None = None
    last: int | None = None
    scattered: bool = False  # the file exceeds the memory, and is read in pieces far apart

    def open(self) -> np.ndarray:
        """Return the elements, read-only; the parent has checked the file."""
        array = np.asarray(np.load(self.path, mmap_mode="r"))[self.first : self.last]
        if self.scattered:
            advise(array, mmap.MADV_RANDOM)
        return array


def outgrows_memory(rows: Rows) -> bool:
    """Whether rows in a store should not be copied into memory."""
    total, _ = machine.memory()
    return rows.store is not None and total is not None and 8 * len(rows.indices) > total // 2


class ReadAhead:
    """Has the system read the chunks that workers will claim next; a worker that waits for a page waits for the disk.

    Parameters
    ----------
    rows : Rows
        Of a store.
    order : Order
    blocks : array of int32, shape (n_blocks,)
        The epoch's sequence of blocks.
    """

    def __init__(self, rows: Rows, order: Order, blocks: np.ndarray) -> None:
        self.rows = rows
        self.order = order
        self.blocks = blocks
        total, _ = machine.memory()
        chunk = 8 * rows.nnz * order.chunk // max(len(rows), 1)  # bytes
        self.depth = min(AHEAD, (total or AHEAD) // 8) // max(chunk, 1) + 1  # chunks
        self.done = -1

    def __call__(self, chunk: int) -> None:
        """Read the chunks from ``chunk`` on, the next that a worker claims, as far as they are not under way."""
        if not self.done - self.depth <= chunk <= self.done:  # an epoch begins, or workers are ahead
            self.done = chunk
            self.rows.advise(mmap.MADV_RANDOM)
        size, end = self.order.block, chunk + self.depth
        for block in self.blocks[self.done * BLOCKS_PER_CHUNK : end * BLOCKS_PER_CHUNK].tolist():
            self.rows.fetch(block * size, min((block + 1) * size, len(self.rows)))
        self.done = max(self.done, end)


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
    beyond = outgrows_memory(rows)
    mapped = {name: Mapped(rows.store / f"{name}.npy", scattered=beyond) for name in names}
    meta = read_meta(rows.store)
    if rows.contiguous and (len(rows), rows.nnz) == (meta["rows"], meta["nnz"]):  # all of the store, none cut short
        offsets = rows.store / "indptr.npy"
        mapped |= {"begin": Mapped(offsets, None, -1), "end": Mapped(offsets, 1)}
    return arrays, mapped
