"""The store: a directory of plain ``.npy`` files and a ``meta.json``, written once and memory-mapped from then on.

Nothing is interpreted on opening. Workers map the same files by path, so they share the page cache, and any program can
``np.load(..., mmap_mode="r")`` them. A store appears under its name complete or not at all: it is written to a
temporary sibling, flushed to disk and renamed.

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
import tokenize
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.data.parallel import in_order
from hogwild.data.rows.container import INDEX_LIMIT, Rows, ascending, chunks, fields_of_width, frozen_array
from hogwild.data.rows.labels import LabelSets
from hogwild.data.tables.plan import TablePlan
from hogwild.errors import HogwildError, InputError, OutputError, reason_of

FORMAT = "hogwild-store"
VERSION = 2
READABLE = (1, 2)  # versions
BUFFER = 1 << 20  # bytes written at a time
TEMPORARY = ".hogwild-tmp-"  # part of the name of a directory that is being written
ABANDONED_AFTER = 86400.0  # seconds since a store was begun


@dataclass(frozen=True)
class Kind:
    """What a store holds.

    Attributes
    ----------
    name : str
        Said in meta.json, and in messages.
    arrays : dict
        Type of each array, and the fact in meta.json that is its length (None: any).
    container : function of (meta data, arrays, path or None)
        Makes the container of arrays whose sizes and types are right; raises InputError for contents that are not.
    pour : function of (container, writer)
        Gives its arrays to a writer, and returns the facts that go with them.
    """

    name: str
    arrays: dict[str, tuple[str, str | None]]
    container: Callable[[dict[str, Any], dict[str, np.ndarray], str | None], Any]
    pour: Callable[[Any, Any], dict[str, Any]]


class StoreExists(InputError):
    """The destination exists; for two writers of one cache entry this means that the other was faster."""


# -- writing ----------------------------------------------------------------------------------------------------------


class MemoryWriter:
    """Collects the arrays of a store in memory, for standard input or without a cache."""

    def __init__(self, kind: Kind | None = None) -> None:
        self.kind = kind or ROWS
        self.rows = 0
        self.nnz = 0
        self.width_seen = 0
        self._columns: dict[str, Any] = {}

    def put(self, **arrays: Any) -> None:
        """Append to some of the arrays; those that are None are not made."""
        for name, array in arrays.items():
            if array is not None:
                self._write(name, array)

    def _write(self, name: str, array: Any) -> None:
        part = np.array(array, self.kind.arrays[name][0])  # a copy: readers' arrays have room to spare
        self._columns.setdefault(name, []).append(part)

    def append(
        self,
        lengths: Any,  # (m,) int64: entries of each row
        indices: Any,  # (entries,) int32: zero-based, ascending in a row
        values: Any,  # (entries,) float32
        targets: Any,  # (m,) float32
        weights: Any = None,  # (m,) float32: for all rows of a store or for none
    ) -> None:
        """Append rows."""
        ends = self.nnz + np.cumsum(lengths, dtype=np.int64)
        first = None if "indptr" in self._columns else [0]  # one number more than rows
        self.put(indptr=first, indices=indices, values=values, targets=targets, weights=weights)
        self.put(indptr=ends)
        self.rows += len(ends)
        self.nnz += len(indices)
        self.width_seen = max(self.width_seen, int(np.max(indices, initial=-1)) + 1)

    def take(self, pieces: Generator[Any, None, dict[str, Any]]) -> dict[str, Any]:
        """Write pieces of data; return the facts of the last one, and those that their reader returns at the end."""
        facts = dict[str, Any]()
        with contextlib.closing(pieces):  # also where writing fails
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    return facts | end.value
                facts = self.kind.pour(piece, self)

    def _end(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Complete the arrays; return what ``meta.json`` says of them."""
        if self.kind is not ROWS:
            return facts | {"kind": self.kind.name}
        width = self.width_seen if facts.get("width") is None else int(facts["width"])
        if not self.width_seen <= width <= INDEX_LIMIT:
            raise InputError(f"width {width}, but features up to {self.width_seen} occur")
        self.append([], [], [], [])
        self.put(fields=fields_of_width(facts.pop("fields", None), width))
        if (labels := facts.pop("labels", None)) is not None:
            self.put(**{f"label_{name}": array for name, array in labels._asdict().items()})
        return facts | {"rows": self.rows, "width": width, "nnz": self.nnz}

    def close(self, **facts: Any) -> Any:
        """Return the container."""
        meta = self._end(facts)
        # popped, so that only one array at a time is held twice
        arrays = {name: np.concatenate(self._columns.pop(name)) for name in tuple(self._columns)}
        return self.kind.container(meta, arrays, None)


class Column:
    """A one-dimensional ``.npy`` file that grows, and the CRC-32 of its data so far.

    NumPy's header takes 128 bytes for any length, so it is written again once the length is known, and the data behind
    it are aligned to cache lines.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.dtype = dtype
        self.length = 0
        self.crc32 = 0
        self.file = open(path, "xb", buffering=BUFFER)  # closed by the store's writer
        write_header(self.file, dtype, 0)

    def write(self, array: Any) -> None:
        data: Any = np.ascontiguousarray(array, dtype=self.dtype).view(np.uint8)
        self.file.write(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        self.length += len(array)

    def finish(self) -> dict[str, Any]:
        """Complete the header, flush everything to disk, and return what ``meta.json`` says of the file."""
        self.file.seek(0)
        write_header(self.file, self.dtype, self.length)
        _flush(self.file)
        return {"dtype": self.dtype, "length": self.length, "crc32": self.crc32}


def write_header(file: Any, dtype: str, length: int) -> None:
    """Write what is before the data of a one-dimensional .npy file."""
    header = {"descr": dtype, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)


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
        self._check_free()
        sweep(self.path.parent)
        self._folder = self.path.parent / f".{self.path.name[:100]}{TEMPORARY}{secrets.token_hex(6)}"

    def _check_free(self) -> None:
        if os.path.lexists(self.path):
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

    def _write(self, name: str, array: Any) -> None:
        with self._writing():
            if name not in self._columns:
                self._columns[name] = Column(self._folder / f"{name}.npy", self.kind.arrays[name][0])
            self._columns[name].write(array)

    def close(self, **facts: Any) -> Path:
        """Flush everything to disk and name the store; ``facts`` are added to the meta data."""
        meta = self._end(self.meta | facts)
        with self._writing():
            meta |= {"format": FORMAT, "version": VERSION, "hogwild": sys.modules["hogwild"].__version__}
            arrays = {name: self._columns[name].finish() for name in self.kind.arrays if name in self._columns}
            with open(self._folder / "meta.json", "wb") as file:
                file.write(json.dumps(meta | {"arrays": arrays}, indent=1).encode() + b"\n")
                _flush(file)
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
        except OSError:
            self._check_free()  # somebody else may have been faster
            raise
        shutil.rmtree(aside, ignore_errors=True)

    def abort(self) -> None:
        """Close everything and remove the temporary directory, unless the store already has its name."""
        for column in self._columns.values():
            with contextlib.suppress(OSError):  # the final flush fails again on a full disk
                column.file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> StoreWriter:
        try:
            with self._writing():
                self._folder.mkdir()
        except BaseException:  # Ctrl-C once the folder is there: ``__exit__`` is not called
            self.abort()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()


def save_store(
    rows: Any, path: str | Path, meta: dict[str, Any] | None = None, overwrite: bool = False, kind: Kind | None = None
) -> Path:
    """Write rows, or what else ``kind`` says, as a store; ``meta`` holds facts to keep, such as ``source``.

    Errors are those of ``StoreWriter``.
    """
    with StoreWriter(path, meta, overwrite, kind) as writer:
        return writer.close(**writer.kind.pour(rows, writer))


def pour(rows: Rows, writer: Any) -> dict[str, Any]:
    """Append ``rows`` to ``writer``, about a million entries at a time; return the facts that go with them."""
    for first, last in chunks(rows):
        part = rows.block(first, last)
        _, indices, values = part.flat()
        writer.append(part.end - part.begin, indices, values, part.targets, part.weights)
    facts = {name: getattr(rows, name) for name in ("width", "hash_bits", "table", "fields", "labels")}
    return {name: fact for name, fact in facts.items() if fact is not None}


def sweep(folder: Path) -> None:
    """Remove the temporary directories that killed writers left in ``folder``: they were begun a day ago."""
    with contextlib.suppress(OSError):
        for entry in folder.glob(f".*{TEMPORARY}*"):
            if time.time() - entry.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(entry, ignore_errors=True)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


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
    return InputError(f"{path}: damaged store: {problem}; remove it and convert the source again")


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
    with usable(path):
        meta: dict[str, Any] = json.loads((Path(path) / "meta.json").read_bytes())
        dict(meta.get("warnings") or {})
        if meta["version"] not in READABLE:
            version = f"store of version {meta['version']}, expected at most {VERSION}"
            raise InputError(f"{path}: {version}: convert the source again")
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
        for name in meta["arrays"].keys() & kind.arrays.keys():  # version 1 had others
            dtype, fact = kind.arrays[name]
            length = None if fact is None else meta[fact] + (name == "indptr")
            arrays[name] = _map_array(path, name, dtype, length)
        try:
            return kind.container(meta, arrays, os.path.abspath(path))
        except HogwildError as error:
            raise damaged(path, str(error)) from None


def rows_of(meta: dict[str, Any], arrays: dict[str, np.ndarray], path: str | None) -> Rows:
    """Return the rows in a store's arrays."""
    facts = {name: meta.get(name) for name in ("width", "hash_bits", "table")}
    sets = [arrays.pop(name) for name in [f"label_{field}" for field in LabelSets._fields] if name in arrays]
    labels = LabelSets(*sets) if sets else None
    known: dict[str, Any] = arrays | facts
    rows = Rows(**known, store=path, check=False, labels=labels)
    if path is not None:
        rows.check_bounds()
        total, _ = machine.memory()
        small = total is None or 8 * rows.nnz <= total // 2  # of others each pass reads the disk
        if small and not ascending(rows.begin, rows.indices[: rows.nnz]):
            raise InputError("indices do not ascend in each row")
        if rows.table is not None:
            TablePlan.from_json(rows.table)
    return rows


ROWS = Kind(
    "rows",
    {
        "indptr": ("<i8", "rows"),  # one number more
        "indices": ("<i4", "nnz"),
        "values": ("<f4", "nnz"),
        "targets": ("<f4", "rows"),
        "weights": ("<f4", "rows"),
        "fields": ("<i2", "width"),  # of tables and libffm's text
        "label_indptr": ("<i8", None),  # of rows with several labels: see labels.py
        "label_indices": ("<i4", None),
        "label_names": ("<i4", None),
    },
    rows_of,
    pour,
)


@contextlib.contextmanager
def usable(path: str | Path) -> Iterator[None]:
    """Turn errors from a damaged meta.json into one line that begins with ``path``."""
    try:
        yield
    except HogwildError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        raise damaged(path, f"meta.json cannot be used ({reason_of(error)})") from None


def _map_array(store: Path, name: str, dtype: str, length: int | None) -> np.ndarray:
    """Return an array of a store, mapped read-only; ``length`` None: of any."""
    try:
        array = np.load(store / f"{name}.npy", mmap_mode="r")
    except (OSError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # NumPy parses the head
        raise damaged(store, f"{name}.npy cannot be read ({reason_of(error)})") from None
    if array.dtype.str != dtype or array.ndim != 1 or length not in (None, len(array)):
        raise damaged(store, f"{name}.npy holds {array.shape} of {array.dtype.str}, expected {length} of {dtype}")
    return frozen_array(array, dtype)


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
