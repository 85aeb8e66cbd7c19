"""The store: a directory of plain ``.npy`` files and a ``meta.json``, written once and memory-mapped from then on.

Nothing is interpreted on opening. Workers map the same files by path, so they share the page cache, and any program can
``np.load(..., mmap_mode="r")`` them. A store appears under its name complete or not at all: it is written to a
temporary sibling, flushed to disk and renamed.

The features' degrees are stored beside the rows, because training asks for them first and counting them takes a pass
over the data.

The cost is a CRC-32 for every MiB of every array (``checksums.npy``), compared on opening: all of them up to 1 GiB
(about a second per GiB and core), a sample above. Stores in use hold a lock (``locks.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hogwild.data.columns import (
    REMEDY,
    Column,
    Degrees,
    check_blocks,
    entries,
    header,
    map_column,
    sync_folder,
    write_synced,
)
from hogwild.data.locks import LOCKED, lock_exclusive, make_temporary, still_named, sweep
from hogwild.data.names import NAMES, Names
from hogwild.data.rows.chunks import chunks
from hogwild.data.rows.container import INDEX_LIMIT, Rows
from hogwild.data.store_checks import check_counts, check_facts, check_offsets, check_range, usable
from hogwild.errors import InputError, OutputError

FORMAT, VERSION = "hogwild-store", 1
ARRAYS = {"indptr": "<i8", "indices": "<i4", "values": "<f4", "targets": "<f4", "weights": "<f4"}
#: Also how many rows hold each feature, which older stores lack, and a table's names.
COLUMNS = {**ARRAYS, "degrees": "<i4", **NAMES}
FEW = 1 << 16  # with at most this many features degrees are always stored; else only if not longer than the entries
CHECK_ALL_BELOW = 1 << 30  # bytes; in larger stores a sample of blocks is checked
KINDS = {"rows": "rows of features (--problem completion?)", "ratings": "ratings"}  # kinds of stores


class StoreExists(InputError):
    """The destination exists; for two writers of one cache entry this means that the other was faster."""


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


class StoreWriter:
    """Writes a store row by row, in bounded memory.

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
    dtypes : dict
        The arrays that the store may have; by default those of rows.

    Raises
    ------
    InputError
        If ``path`` exists.
    OutputError
        If it cannot be written (also from ``append`` and ``close``).
    """

    def __init__(
        self,
        path: str | Path,
        meta: dict[str, Any] | None = None,
        overwrite: bool = False,
        dtypes: dict[str, str] = COLUMNS,
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self.overwrite, self.dtypes = overwrite, dtypes
        self.meta = dict(meta or {})
        self.rows = self.nnz = self.width_seen = 0
        self._degrees = Degrees()
        self.names: Names | None = None  # names of a table's features
        self._columns: dict[str, Column] = {}
        self._check_free()
        sweep(self.path.parent)
        try:
            self._folder = self._make_folder()
        except OSError as error:
            raise self._failure(error) from None

    def _check_free(self) -> None:
        if not os.path.lexists(self.path):
            return
        if not is_store(self.path):
            raise StoreExists(f"{self.path} exists and is not a hogwild store: choose another name")
        if not self.overwrite:
            raise StoreExists(f"{self.path} exists: choose another name, or give --overwrite (overwrite=True)")

    def _make_folder(self) -> Path:
        while True:
            folder = make_temporary(self.path)
            try:
                column = self._columns["indices"] = Column(folder / LOCKED, ARRAYS["indices"])
                if lock_exclusive(column.file) is not False and still_named(column.file, column.path):
                    return folder
                column.discard()  # another process swept the folder away before it was locked
            except BaseException:  # Ctrl-C, while no caller can discard the writer yet
                shutil.rmtree(folder, ignore_errors=True)
                raise

    def _failure(self, error: OSError) -> OutputError:
        return OutputError(f"{self.path}: cannot write the store: {error.strerror or error}")

    def _column(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = Column(self._folder / f"{name}.npy", self.dtypes[name])
            if name == "indptr":
                self._columns[name].write(np.zeros(1, np.int64))
        return self._columns[name]

    def put(self, **arrays: Any) -> None:
        """Append to some of the arrays; those that are None are not made."""
        try:
            for name, array in arrays.items():
                if array is not None:
                    self._column(name).write(array)
        except OSError as error:
            self.abort()
            raise self._failure(error) from None

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        """Append rows: their numbers of nonzeros (m,), flat indices and values, targets (m,) and weights (m,)."""
        lengths, indices = np.asarray(lengths, np.int64), np.asarray(indices, np.int32)
        m, nnz = len(lengths), int(lengths.sum())
        if m == 0:
            return
        if (
            len(indices) != nnz
            or len(values) != nnz
            or len(targets) != m
            or (weights is not None and len(weights) != m)
        ):
            raise ValueError(f"append: {m} rows of {nnz} entries do not fit the arrays given")
        if self.rows and (weights is not None) != ("weights" in self._columns):
            raise ValueError("append: weights must be given for all rows or for none")
        self.put(indptr=np.cumsum(lengths) + self.nnz, indices=indices, values=values, targets=targets, weights=weights)
        self.rows, self.nnz = self.rows + m, self.nnz + nnz
        self.width_seen = max(self.width_seen, int(indices.max(initial=-1)) + 1)
        self._degrees.add(indices)

    def close(self, width: int | None = None, **facts: Any) -> Path:
        """Flush everything to disk and name the store; ``facts`` except ``names`` are added to the meta data."""
        self.names = facts.pop("names", None)
        width = self.width_seen if width is None else int(width)
        if not self.width_seen <= width <= INDEX_LIMIT:
            raise InputError(f"{self.path}: width {width}, but features up to {self.width_seen} occur")
        degrees = self._degrees.of(width) if width <= max(FEW, self.nnz) else None
        names = {} if self.names is None else self.names.arrays()
        self.put(indptr=[], indices=[], values=[], targets=[], degrees=degrees, **names)
        return self.seal({**self.meta, **facts, "rows": self.rows, "width": width, "nnz": self.nnz})

    def seal(self, meta: dict[str, Any]) -> Path:
        """Flush everything to disk, write ``meta`` and the checksums, and name the store."""
        columns = {name: self._columns[name] for name in self.dtypes if name in self._columns}
        try:
            for column in columns.values():
                column.finish()
            crcs = np.array([crc for column in columns.values() for crc in column.crcs], dtype="<u4").tobytes()
            meta |= {"format": FORMAT, "version": VERSION, "hogwild": _package_version(), "checksums": zlib.crc32(crcs)}
            meta["arrays"] = {name: {"dtype": each.dtype, "length": each.length} for name, each in columns.items()}
            meta["checksum"] = _meta_checksum(meta)
            write_synced(self._folder / "checksums.npy", header("<u4", len(crcs) // 4) + crcs)
            write_synced(self._folder / "meta.json", (json.dumps(meta, indent=1) + "\n").encode())
            sync_folder(self._folder)
            self._rename()
        except OSError as error:
            raise self._failure(error) from None
        finally:
            self.abort()
        return self.path

    def _rename(self) -> None:
        self._check_free()
        aside = None
        if os.path.lexists(self.path):
            # This name is not swept: if killed between the two renames, the old store is still there.
            aside = self._folder.with_name(self._folder.name.replace("tmp", "old"))
            os.rename(self.path, aside)
        try:
            os.rename(self._folder, self.path)
        except OSError as error:
            if aside is not None:
                os.rename(aside, self.path)
            if os.path.lexists(self.path):
                raise StoreExists(f"{self.path} exists: it was made by someone else meanwhile") from error
            raise
        sync_folder(self.path.parent)
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)

    def abort(self) -> None:
        """Close everything and remove the temporary directory, unless the store already has its name."""
        for column in self._columns.values():
            column.discard()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.abort()


class MemoryWriter:
    """Writer with the same interface that collects ``Rows`` in memory, for standard input or without a cache."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in ARRAYS}

    def append(self, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None) -> None:
        for name, part in zip(ARRAYS, (lengths, indices, values, targets, weights), strict=True):
            if part is not None:
                self._parts[name].append(np.array(part, dtype=ARRAYS[name]))  # a copy: readers reuse their buffers

    def close(
        self, width: int | None = None, hash_bits: int | None = None, table: dict[str, Any] | None = None
    ) -> Rows:
        lengths, indices, values, targets, weights = (self._join(name) for name in ARRAYS)
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        width = int(indices.max(initial=-1)) + 1 if width is None else width
        flat = indices, values, targets, width, weights if len(weights) else None
        return Rows(indptr, *flat, check=False, hash_bits=hash_bits, table=table)

    def _join(self, name: str) -> np.ndarray:
        parts = self._parts.pop(name)  # so that only one array at a time is held twice
        return np.concatenate(parts) if parts else np.empty(0, ARRAYS[name])


def save_store(rows: Rows, path: str | Path, meta: dict[str, Any] | None = None, overwrite: bool = False) -> Path:
    """Write ``rows`` as a store, a block at a time; errors are those of ``StoreWriter``."""
    with StoreWriter(path, meta, overwrite) as writer:
        pour(rows, writer)
        facts: dict[str, Any] = {"hash_bits": rows.hash_bits, "table": rows.table, "names": rows.names}
        return writer.close(rows.width, **{name: fact for name, fact in facts.items() if fact is not None})


def pour(rows: Rows, sink: Sink) -> None:
    """Append ``rows`` to ``sink``, about a million entries at a time."""
    for first, last in chunks(rows):
        part = rows.block(first, last)
        part = part if part.contiguous else part.compact()
        flat = slice(part.begin[0], part.end[-1])
        sink.append(part.end - part.begin, part.indices[flat], part.values[flat], part.targets, part.weights)


def is_store(path: str | Path) -> bool:
    """Return whether ``path`` is a directory with a store's ``meta.json``, of any version and in any state."""
    try:
        with open(Path(path) / "meta.json", "rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(1 << 20)
    except OSError:
        return False


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
        raise InputError(f"{path}: damaged store: meta.json cannot be read ({error}); {REMEDY}") from None
    if meta.get("version") != VERSION:
        version = meta.get("version")
        raise InputError(f"{path}: store of version {version}, expected {VERSION}: convert the source again")
    if meta.get("checksum") != _meta_checksum(meta):
        raise InputError(f"{path}: damaged store: meta.json does not match its checksum; {REMEDY}")
    return meta


def open_store(path: str | Path) -> Rows:
    """Return the rows of a store, mapped read-only. A cache cannot evict it while any of its arrays is alive.

    All checksums are compared up to 1 GiB, those of the first, the last and 64 random blocks of each array above.

    Raises
    ------
    InputError
        If it is not a store, has another version, is truncated or damaged; the message names the file.
    """
    path = Path(path)
    meta, arrays, everything = open_arrays(path, "rows", _check_fit)
    bits = meta.get("hash_bits")  # a store from before hashing existed has none
    check_offsets(path, arrays["indptr"], meta["nnz"])
    if everything:
        check_range(path, "indices", arrays["indices"], meta["width"])
    data = arrays["indptr"], arrays["indices"], arrays["values"], arrays["targets"]
    more = {"hash_bits": bits, "table": meta.get("table")}
    rows = Rows(*data, meta["width"], arrays.get("weights"), os.path.abspath(path), check=False, **more)
    rows.known_degrees = arrays.get("degrees")
    if set(NAMES) <= set(arrays):
        rows.names = Names(*(arrays[name] for name in NAMES))
    return rows


def open_arrays(
    path: Path, kind: str, check_fit: Callable[[Path, dict[str, Any], dict[str, tuple[str, int]]], None]
) -> tuple[dict[str, Any], dict[str, np.ndarray], bool]:
    """Return meta data and mapped arrays of a store of ``kind``, and whether all checksums were compared.

    ``check_fit`` raises if the arrays, given by name with dtype and length, do not fit the meta data. Other errors are
    those of ``open_store``.
    """
    meta = read_meta(path)
    if (found := meta.get("kind", "rows")) != kind:
        raise InputError(f"{path}: a store of {found}, expected one of {KINDS[kind]}")
    with usable(path):
        check_facts(meta)
        described = {name: (entry["dtype"], entry["length"]) for name, entry in meta["arrays"].items()}
        check_fit(path, meta, described)
    maps = {name: map_column(path, f"{name}.npy", *of, lease=f"{name}.npy" == LOCKED) for name, of in described.items()}
    everything = sum(map(len, maps.values())) <= CHECK_ALL_BELOW
    check_blocks(path, meta["checksums"], maps, everything)
    return meta, {name: entries(maps[name], *of) for name, of in described.items()}, everything


def _check_fit(path: Path, meta: dict[str, Any], described: dict[str, tuple[str, int]]) -> None:
    check_counts(path, meta, "rows", "nnz", "width")
    rows, nnz = meta["rows"], meta["nnz"]
    lengths = {"indptr": rows + 1, "indices": nnz, "values": nnz, "targets": rows, "weights": rows}
    expected = {name: (ARRAYS[name], lengths[name]) for name in ARRAYS if name != "weights" or name in described}
    if "degrees" in described:
        expected["degrees"] = COLUMNS["degrees"], meta["width"]
    expected |= {name: (NAMES[name], described[name][1]) for name in NAMES if name in described}
    if described != expected:
        raise InputError(
            f"{path}: damaged store: the arrays in meta.json do not fit {rows} rows of {nnz} entries; {REMEDY}"
        )
    bits = meta.get("hash_bits")
    if bits is not None and (bits not in range(32) or meta["width"] != 1 << bits):
        raise InputError(f"{path}: damaged store: {meta['width']} features, but hashed to 2^{bits}; {REMEDY}")


def _meta_checksum(meta: dict[str, Any]) -> int:
    rest = {name: value for name, value in meta.items() if name != "checksum"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hogwild")
    except PackageNotFoundError:
        return "unknown"
