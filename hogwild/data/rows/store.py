"""The store: a directory of plain ``.npy`` files and a ``meta.json``, written once and memory-mapped from then on.

Nothing is interpreted on opening. Workers map the same files by path, so they share the page cache, and any program can
``np.load(..., mmap_mode="r")`` them. A store appears under its name complete or not at all: it is written to a
temporary sibling, flushed to disk and renamed.

The features' degrees are stored beside the rows, because training asks for them first and counting them takes a pass
over the data.

Opening checks every size, the offsets and the range of every index, so that no kernel can leave its arrays; this reads
``indptr`` and ``indices`` once. Damage to values is found by :func:`verify`, which compares one CRC-32 an array
(``hogwild info STORE``). Stores of version 1 have other checksums, which are not compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hogwild.data.parallel import in_order, map_pieces
from hogwild.data.rows.container import INDEX_LIMIT, Rows, chunks, fields_of_width, frozen_array
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

FORMAT = "hogwild-store"
VERSION = 2
READABLE = (1, 2)  # versions
COUNTS = ("rows", "nnz", "width", "users", "items")  # facts that are lengths of arrays
MOST_COUNTED = 1 << 27  # features; with more, degrees are not worth the memory
PIECE = 1 << 22  # numbers checked at a time
BUFFER = 1 << 20  # bytes written at a time
HEADER = 128  # bytes before the data of an array
REMEDY = "remove it and convert the source again"
TEMPORARY = ".hogwild-tmp-"  # part of the name of a directory that is being written
ABANDONED_AFTER = 86400.0  # seconds without a write


@dataclass(frozen=True)
class Kind:
    """What a store holds.

    Attributes
    ----------
    name : str
        Said in meta.json, and in messages.
    arrays : dict
        Type of each array, and the fact in meta.json that is its length (None: any).
    optional : tuple of str
        Arrays that a store may lack.
    container : function of (meta data, arrays, path or None)
        Makes the container of arrays whose sizes and types are right; raises InputError for contents that are not.
    """

    name: str
    arrays: dict[str, tuple[str, str | None]]
    optional: tuple[str, ...]
    container: Callable[[dict[str, Any], dict[str, np.ndarray], str | None], Any]


class StoreExists(InputError):
    """The destination exists; for two writers of one cache entry this means that the other was faster."""


# -- writing ----------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    """Destination for readers' rows: ``StoreWriter``, ``MemoryWriter``, or anything with this method."""

    def append(
        self,
        lengths: Any,  # (m,) int64: entries of each row
        indices: Any,  # (entries,) int32: zero-based, ascending in a row
        values: Any,  # (entries,) float32
        targets: Any,  # (m,) float32
        weights: Any = None,  # (m,) float32: for all rows of a store or for none
    ) -> None: ...


class MemoryWriter:
    """Collects the arrays of a store in memory, for standard input or without a cache."""

    def __init__(self, kind: Kind | None = None) -> None:
        self.kind = kind or ROWS
        self.rows = 0
        self.nnz = 0
        self.width_seen = 0
        self._columns: dict[str, Any] = {}

    def _column(self, name: str) -> Any:
        return MemoryColumn(self.kind.arrays[name][0])

    def put(self, **arrays: Any) -> None:
        """Append to some of the arrays; those that are None are not made."""
        for name, array in arrays.items():
            if array is None:
                continue
            if name not in self._columns:
                self._columns[name] = self._column(name)
                if name == "indptr":  # one number more than rows
                    self._columns[name].write([0])
            self._columns[name].write(array)

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        """Append rows: their numbers of nonzeros (m,), flat indices and values, targets (m,) and weights (m,)."""
        lengths, indices = np.asarray(lengths, np.int64), np.asarray(indices, np.int32)
        m, nnz = len(lengths), int(lengths.sum())
        if m == 0:
            return
        if (len(indices), len(values), len(targets), m if weights is None else len(weights)) != (nnz, nnz, m, m):
            raise ValueError(f"append: {m} rows of {nnz} entries do not fit the arrays given")
        if self.rows and (weights is not None) != ("weights" in self._columns):
            raise ValueError("append: weights must be given for all rows or for none")
        self.put(indptr=np.cumsum(lengths) + self.nnz, indices=indices, values=values, targets=targets, weights=weights)
        self.rows += m
        self.nnz += nnz
        self.width_seen = max(self.width_seen, int(indices.max(initial=-1)) + 1)

    def _end(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Complete the arrays; return what ``meta.json`` says of them."""
        if self.kind is not ROWS:
            return facts | {"kind": self.kind.name}
        width = facts.get("width")
        width = self.width_seen if width is None else int(width)
        if not self.width_seen <= width <= INDEX_LIMIT:
            raise InputError(f"width {width}, but features up to {self.width_seen} occur")
        self.put(indptr=[], indices=[], values=[], targets=[], fields=fields_of_width(facts.pop("fields", None), width))
        return facts | {"rows": self.rows, "width": width, "nnz": self.nnz}

    def close(self, **facts: Any) -> Any:
        """Return the container."""
        meta = self._end(facts)
        # popped, so that only one array at a time is held twice
        arrays = {name: np.concatenate(self._columns.pop(name).parts) for name in tuple(self._columns)}
        return self.kind.container(meta, arrays, None)


class MemoryColumn:
    """The parts of an array."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.parts: list[np.ndarray] = []

    def write(self, array: Any) -> None:
        self.parts.append(np.array(array, self.dtype))  # a copy: readers reuse their buffers


class Column:
    """A one-dimensional ``.npy`` file that grows, and the CRC-32 of its data so far.

    The header takes 128 bytes for any length, so it is filled in once the length is known, and the data behind it are
    aligned to cache lines.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.dtype = dtype
        self.length = 0
        self.crc32 = 0
        self.file = open(path, "xb", buffering=BUFFER)  # closed by the store's writer
        self.file.write(bytes(HEADER))

    def write(self, array: Any) -> None:
        data: Any = np.ascontiguousarray(array, dtype=self.dtype).view(np.uint8)
        self.file.write(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        self.length += len(array)

    def finish(self) -> dict[str, Any]:
        """Write the header, flush everything to disk, and return what ``meta.json`` says of the file."""
        self.file.seek(0)
        self.file.write(header(self.dtype, self.length))
        self.file.flush()
        os.fsync(self.file.fileno())
        return {"dtype": self.dtype, "length": self.length, "crc32": self.crc32}


def header(dtype: str, length: int) -> bytes:
    """Return the 128 bytes before the data of a one-dimensional .npy file."""
    out = BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": (length,)})
    text = out.getvalue()[10:].rstrip()  # NumPy pads to 128 bytes today; the format allows any padding
    return b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.ljust(HEADER - 11) + b"\n"


class StoreWriter(MemoryWriter):
    """Writes a store piece by piece, in bounded memory.

    Use it in a ``with`` statement: leaving it without ``close`` removes everything written so far.

    Parameters
    ----------
    path : str or Path
        Directory to be created.
    meta : dict, optional
        Facts to keep in ``meta.json``: ``source``, ``options``, ``parser``, ``warnings``, ``hash_bits`` and ``hashing``
        for hashed rows, ``table`` for those of a table, ...
    overwrite : bool
        Replace ``path`` if it is a store. Anything else is never overwritten.
    kind : Kind
        Rows by default.

    Raises
    ------
    InputError
        If ``path`` exists.
    OutputError
        If it cannot be written (also from ``append`` and ``close``).
    """

    def __init__(
        self, path: str | Path, meta: dict[str, Any] | None = None, overwrite: bool = False, kind: Kind | None = None
    ) -> None:
        super().__init__(kind)
        self.path = Path(os.path.abspath(path))
        self.overwrite = overwrite
        self.meta = meta or {}
        self._degrees: np.ndarray | None = np.zeros(1 << 10, np.int32)  # None: of too many features
        self._check_free()
        sweep(self.path.parent)
        self._folder = self.path.parent / f".{self.path.name[:100]}{TEMPORARY}{secrets.token_hex(6)}"

    def _check_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not is_store(self.path):
            raise StoreExists(f"{self.path} exists and is not a hogwild store: choose another name")
        if not self.overwrite:
            raise StoreExists(f"{self.path} exists: choose another name, or give --overwrite (overwrite=True)")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.abort()
            raise OutputError(f"{self.path}: cannot write the store: {error.strerror or error}") from None

    def _column(self, name: str) -> Column:
        return Column(self._folder / f"{name}.npy", self.kind.arrays[name][0])

    def put(self, **arrays: Any) -> None:
        with self._writing():
            super().put(**arrays)

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        super().append(lengths, indices, values, targets, weights)
        if self.width_seen > MOST_COUNTED:
            self._degrees = None
        if self._degrees is not None:
            if self.width_seen > len(self._degrees):
                self._degrees = _lengthened(self._degrees, max(self.width_seen, 2 * len(self._degrees)))
            np.add.at(self._degrees, np.asarray(indices), np.int32(1))  # with a Python 1 it takes twenty times as long

    def close(self, **facts: Any) -> Path:
        """Flush everything to disk and name the store; ``facts`` are added to the meta data."""
        meta = self._end(self.meta | facts)
        if self.kind is ROWS and self._degrees is not None and meta["width"] <= self.nnz:
            self.put(degrees=_lengthened(self._degrees, meta["width"]))
        with self._writing():
            meta |= {"format": FORMAT, "version": VERSION, "hogwild": sys.modules["hogwild"].__version__}
            arrays = {name: self._columns[name].finish() for name in self.kind.arrays if name in self._columns}
            with open(self._folder / "meta.json", "w") as file:
                file.write(json.dumps(meta | {"arrays": arrays}, indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._folder)
            self._rename()
        self.abort()
        return self.path

    def _rename(self) -> None:
        self._check_free()
        # This name is not swept: if killed between the two renames, the old store is still there.
        aside = self._folder.with_name(self._folder.name.replace("tmp", "old"))
        if os.path.lexists(self.path):
            os.rename(self.path, aside)
        try:
            os.rename(self._folder, self.path)
        except OSError as error:
            if os.path.lexists(self.path):
                raise StoreExists(f"{self.path} exists: it was made by someone else meanwhile") from error
            raise
        _sync_folder(self.path.parent)
        shutil.rmtree(aside, ignore_errors=True)

    def abort(self) -> None:
        """Close everything and remove the temporary directory, unless the store already has its name."""
        for column in self._columns.values():
            with contextlib.suppress(OSError):  # the final flush fails again on a full disk
                column.file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> StoreWriter:
        with self._writing():
            self._folder.mkdir()
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()


def save_store(rows: Rows, path: str | Path, meta: dict[str, Any] | None = None, overwrite: bool = False) -> Path:
    """Write ``rows`` as a store, a block at a time; errors are those of ``StoreWriter``."""
    with StoreWriter(path, meta, overwrite) as writer:
        return writer.close(**pour(rows, writer))


def pour(rows: Rows, sink: Sink) -> dict[str, Any]:
    """Append ``rows`` to ``sink``, about a million entries at a time; return the facts that go with them."""
    for first, last in chunks(rows):
        part = rows.block(first, last)
        part = part if part.contiguous else part.compact()
        flat = slice(part.begin[0], part.end[-1])
        sink.append(part.end - part.begin, part.indices[flat], part.values[flat], part.targets, part.weights)
    facts = {"width": rows.width, "hash_bits": rows.hash_bits, "table": rows.table, "fields": rows.fields}
    return {name: fact for name, fact in facts.items() if fact is not None}


def sweep(folder: Path) -> None:
    """Remove the temporary directories that killed writers left in ``folder``: nothing was written there for a day."""
    with contextlib.suppress(OSError):
        for entry in folder.glob(f".*{TEMPORARY}*"):
            latest = max(path.stat().st_mtime for path in (entry, *entry.iterdir()))
            if time.time() - latest > ABANDONED_AFTER:
                shutil.rmtree(entry, ignore_errors=True)


def _lengthened(counts: np.ndarray, width: int) -> np.ndarray:
    """Return the counts of the features below ``width``; those that are not counted yet have zero."""
    return np.concatenate((counts[:width], np.zeros(max(width - len(counts), 0), np.int32)))


def _sync_folder(path: Path) -> None:
    """Make the names in a directory durable across a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- reading ----------------------------------------------------------------------------------------------------------


def is_store(path: str | Path) -> bool:
    """Return whether ``path`` is a directory with a store's ``meta.json``, of any version and in any state."""
    try:
        with open(Path(path) / "meta.json", "rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(1 << 20)
    except OSError:
        return False


def damaged(path: str | Path, problem: str) -> InputError:
    """Return the error for a store that cannot be used."""
    return InputError(f"{path}: damaged store: {problem}; {REMEDY}")


def read_meta(path: str | Path) -> dict[str, Any]:
    """Return the facts in a store's ``meta.json``.

    Raises
    ------
    InputError
        If there is no store at ``path``, its version is different, or the file is damaged.
    """
    if not os.path.lexists(path):
        raise InputError(f"{path}: no such file or directory")
    if not is_store(path):
        raise InputError(f"{path}: not a hogwild store, as hogwild convert makes them (no meta.json of one in it)")
    try:
        meta = json.loads((Path(path) / "meta.json").read_bytes())
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise ValueError("not an object of this format")
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, f"meta.json cannot be read ({error})") from None
    if meta.get("version") not in READABLE:
        version = meta.get("version")
        raise InputError(f"{path}: store of version {version}, expected at most {VERSION}: convert the source again")
    return meta


def open_store(path: str | Path, kind: Kind | None = None) -> Any:
    """Return what a store of ``kind``, by default rows, contains, mapped read-only.

    Raises
    ------
    InputError
        If it is not such a store, has another version, is truncated or damaged; the message names the file.
    """
    path, kind = Path(path), kind or ROWS
    meta = read_meta(path)
    if (other := meta.get("kind", "rows")) != kind.name:
        raise InputError(f"{path}: a store of {other}, expected one of {kind.name}; --problem says which is meant")
    arrays = {}
    with usable(path):
        _check_facts(meta)
        for name, (dtype, fact) in kind.arrays.items():
            described = meta["arrays"].get(name)
            if described is None and name in kind.optional:
                continue
            length = described and (described["length"] if fact is None else meta[fact] + (name == "indptr"))
            if described is None or (described["dtype"], described["length"]) != (dtype, length):
                raise damaged(path, f"the arrays in meta.json do not fit {meta['rows']} {kind.name}")
            arrays[name] = _map_array(path, name, dtype, length)
        try:
            return kind.container(meta, arrays, os.path.abspath(path))
        except InputError as error:
            raise damaged(path, str(error)) from None


def rows_of(meta: dict[str, Any], arrays: dict[str, np.ndarray], path: str | None) -> Rows:
    """Return the rows in a store's arrays."""
    width, bits = meta["width"], meta.get("hash_bits")
    if bits is not None and (bits not in range(32) or width != 1 << bits):
        raise InputError(f"{width} features, but hashed to 2^{bits}")
    if path is not None:
        indptr, nnz = arrays["indptr"], meta["nnz"]
        ascends = indptr[0] == 0 and indptr[-1] == nnz
        for first in range(0, len(indptr), PIECE):
            part = indptr[first : first + PIECE + 1]
            ascends = ascends and bool((part[1:] >= part[:-1]).all())
        if not ascends:
            raise InputError(f"indptr.npy does not ascend from 0 to {nnz}")
        check_range("indices", arrays["indices"], width)
        check_range("degrees", arrays.get("degrees", np.empty(0, np.int32)), meta["rows"] + 1)
    rows = Rows(
        arrays["indptr"],
        arrays["indices"],
        arrays["values"],
        arrays["targets"],
        width,
        arrays.get("weights"),
        path,
        check=False,
        hash_bits=bits,
        table=meta.get("table"),
        fields=arrays.get("fields"),
    )
    return rows.replace(known_degrees=arrays.get("degrees"))


#: ``degrees`` are how many rows hold each feature; older stores lack them. ``fields`` are of tables and libffm's text.
ROWS = Kind(
    "rows",
    {
        "indptr": ("<i8", "rows"),  # one number more
        "indices": ("<i4", "nnz"),
        "values": ("<f4", "nnz"),
        "targets": ("<f4", "rows"),
        "weights": ("<f4", "rows"),
        "degrees": ("<i4", "width"),
        "fields": ("<i2", "width"),
    },
    ("weights", "degrees", "fields"),
    rows_of,
)


@contextlib.contextmanager
def usable(path: str | Path) -> Iterator[None]:
    """Turn errors from missing or wrong facts in meta.json into one line that begins with ``path``."""
    try:
        yield
    except HogwildError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise damaged(path, f"meta.json cannot be used ({reason_of(error)})") from None


def _check_facts(meta: dict[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if facts that other code relies on are unusable."""
    for name in COUNTS:
        count = meta.get(name, 0)
        if type(count) is not int or not 0 <= count < 2**48:
            raise ValueError(f"{name} is {repr(count)[:40]}, expected a whole number from 0")
    if not isinstance(meta.get("warnings") or {}, dict):
        raise TypeError(f"warnings is {repr(meta['warnings'])[:40]}")
    if meta.get("table") is not None:
        from hogwild.data.tables.plan import TablePlan

        TablePlan.from_json(meta["table"])


def _map_array(store: Path, name: str, dtype: str, length: int) -> np.ndarray:
    """Return an array of a store, mapped read-only."""
    path, size = store / f"{name}.npy", HEADER + length * np.dtype(dtype).itemsize
    try:
        if (actual := path.stat().st_size) != size:
            raise damaged(store, f"{path.name} has {actual} bytes, expected {size}")
        with open(path, "rb") as file:
            if file.read(HEADER) != header(dtype, length):
                raise damaged(store, f"{path.name} has another header than expected")
        return frozen_array(np.memmap(path, dtype, "r", HEADER, (length,)), dtype)
    except OSError as error:
        raise damaged(store, f"{path.name} cannot be read ({error.strerror or error})") from None


def check_range(name: str, numbers: np.ndarray, size: int) -> None:
    """Raise InputError if one of the int32 ``numbers`` would make a kernel leave an array of this size."""

    def check(first: int, last: int) -> None:
        part = numbers[first:last]
        if int(part.view(np.uint32).max()) >= size:  # below zero is 2^31 and more
            wrong = part[(part < 0) | (part >= size)][0]
            raise InputError(f"{name}.npy holds {wrong}, expected 0 to {size - 1}")

    deque(map_pieces(len(numbers), PIECE, check), 0)


def verify(path: str | Path) -> None:
    """Compare the checksums of a store's arrays, which reads all of it; stores of version 1 have none of these.

    Raises
    ------
    InputError
        The message names the store and the array.
    """

    def check(name: str) -> None:
        described = meta["arrays"][name]
        array: Any = _map_array(Path(path), name, described["dtype"], described["length"])
        if zlib.crc32(array) != described.get("crc32"):
            raise damaged(path, f"{name}.npy does not match its checksum")

    meta = read_meta(path)
    with usable(path):
        if meta["version"] > 1:
            deque(in_order(meta["arrays"], check), 0)
