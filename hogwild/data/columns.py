"""One ``.npy`` file of a store: it is written as it grows, with a checksum for every MiB, and mapped back.

The header takes 128 bytes for any length (NumPy leaves room for it to grow), so it is filled in once the length is
known, and the data behind it are aligned to cache lines.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.locks import lock_shared, still_named
from hogwild.errors import InputError

SAMPLE = 64  # blocks checked in each array when not all are
BLOCK = 1 << 20  # bytes covered by one checksum
HEADER = 128  # bytes
MOST_COUNTED = 1 << 27  # features
REMEDY = "remove it and convert the source again"


class Column:
    """A one-dimensional array on disk that can grow.

    Attributes
    ----------
    length : int
        Entries written.
    crcs : list of int
        CRC-32 of each full block so far and, after ``finish``, of the last one.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype, self.length = path, dtype, 0
        self.crcs: list[int] = []
        self._crc = self._filled = 0
        self.file = open(path, "xb", buffering=BLOCK)  # closed by the store's writer
        self.file.write(bytes(HEADER))

    def write(self, array: Any) -> None:
        array = np.ascontiguousarray(array, dtype=self.dtype)
        if not len(array):
            return
        data = memoryview(array).cast("B")
        self.file.write(data)
        self.length += len(array)
        at = 0
        while at < len(data):
            part = data[at : at + BLOCK - self._filled]
            self._crc = zlib.crc32(part, self._crc)
            self._filled += len(part)
            at += len(part)
            if self._filled == BLOCK:
                self.crcs.append(self._crc)
                self._crc = self._filled = 0

    def finish(self) -> None:
        """Write the header and flush everything to disk; the file stays open, and locked if it was."""
        if self._filled:
            self.crcs.append(self._crc)
        self.file.seek(0)
        self.file.write(header(self.dtype, self.length))
        self.file.flush()
        os.fsync(self.file.fileno())

    def discard(self) -> None:
        """Close the file even if the final flush fails, as it does again on a full disk."""
        try:
            self.file.close()
        except OSError:
            pass


class Degrees:
    """Number of rows that hold each feature, counted as they are written."""

    def __init__(self) -> None:
        self._counts: np.ndarray | None = np.zeros(1 << 10, np.int32)

    def add(self, indices: np.ndarray) -> None:
        """Count the features of some rows; no row may hold a feature twice."""
        if self._counts is None or not len(indices):
            return
        needed = int(indices.max()) + 1
        if needed > MOST_COUNTED:
            self._counts = None  # not worth the memory
            return
        if needed > len(self._counts):
            grown = np.zeros(max(needed, 2 * len(self._counts)), np.int32)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        np.add.at(self._counts, indices, np.int32(1))  # with a Python 1 it takes twenty times as long

    def of(self, width: int) -> np.ndarray | None:
        """Return the degrees of the features below ``width``, which exceeds all; None if too many to count."""
        if self._counts is None:
            return None
        found = np.zeros(width, np.int32)
        known = self._counts[:width]
        found[: len(known)] = known
        return found


def header(dtype: str, length: int) -> bytes:
    """Return the 128 bytes before the data of a one-dimensional .npy file."""
    out = BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": (length,)})
    text = out.getvalue()[10:].rstrip()  # NumPy pads to 128 bytes today; the format allows any padding
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


def map_column(store: Path, name: str, dtype: str, length: int, lease: bool = False) -> mmap.mmap:
    """Return a read-only map of ``name``, size and header checked; ``lease`` holds its lock while the map lives.

    Raises
    ------
    InputError
        The message names the store and the file.
    """
    path = store / name
    try:
        with open(path, "rb") as file:
            if lease:
                lock_shared(file)
                if not still_named(file, path):
                    raise InputError(f"{store}: the store was removed while it was being opened")
            size, expected = os.fstat(file.fileno()).st_size, HEADER + length * np.dtype(dtype).itemsize
            if size != expected:
                raise InputError(f"{store}: damaged store: {name} has {size} bytes, expected {expected}; {REMEDY}")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # keeps a duplicate of the descriptor
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{store}: damaged store: {name} cannot be read ({reason}); {REMEDY}") from None
    if mapped[:HEADER] != header(dtype, length):
        raise InputError(f"{store}: damaged store: {name} has another header than expected; {REMEDY}")
    return mapped


def entries(mapped: mmap.mmap, dtype: str, length: int) -> np.ndarray:
    """Return the data of a map as a read-only array, which keeps the map alive."""
    return np.frombuffer(mapped, dtype=dtype, count=length, offset=HEADER)


def check_blocks(path: Path, checksum: int, maps: dict[str, mmap.mmap], everything: bool) -> None:
    """Compare all or a sample of the blocks of a store's arrays with its checksums, whose own is ``checksum``.

    Raises
    ------
    InputError
        The message names the store, the file and the byte.
    """
    counts = {name: -(-(len(data) - HEADER) // BLOCK) for name, data in maps.items()}
    total = sum(counts.values())
    crcs = entries(map_column(path, "checksums.npy", "<u4", total), "<u4", total)
    if zlib.crc32(crcs.tobytes()) != checksum:
        raise InputError(f"{path}: damaged store: checksums.npy does not match meta.json; {REMEDY}")

    def check(name: str, first: int, blocks: Iterable[int]) -> str | None:
        view = memoryview(maps[name])
        for block in blocks:
            at = HEADER + block * BLOCK
            if zlib.crc32(view[at : at + BLOCK]) != crcs[first + block]:
                return f"{name}.npy does not match its checksum at byte {at}"
        return None  # an error raised here would be kept by its future, and so would the maps and their lock

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool:
        first, tasks = 0, []
        for name, count in counts.items():
            picked = np.arange(count)
            if not everything and count > SAMPLE + 2:
                random = np.random.default_rng().choice(count, SAMPLE, replace=False)  # different ones every time
                picked = np.unique(np.concatenate(([0, count - 1], random)))
            tasks += [pool.submit(check, name, first, picked[i : i + 16].tolist()) for i in range(0, len(picked), 16)]
            first += count
        found = [problem for task in tasks if (problem := task.result())]
    if found:
        raise InputError(f"{path}: damaged store: {found[0]}; {REMEDY}")


def write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a directory durable across a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
