"""Reads Parquet and Arrow files and in-memory frames in pieces of at most 65,536 rows; one function opens any table.

Everything is converted to pyarrow's record batches, so one reader of columns serves all formats. pyarrow is an optional
dependency, needed only for tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hogwild.data.tables.columns import kind_of
from hogwild.data.tables.csv import CsvSource
from hogwild.errors import HogwildError, InputError, UsageError, reason_of

PIECE = 1 << 16  # rows
#: Suffixes of each format; text may also be compressed.
SUFFIXES = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc", ".arrows"),
}
PACKED = ("", ".gz", ".bz2", ".xz")
ARROW_FILE = b"ARROW1"


class Piece(Protocol):
    """Some rows of a table."""

    def load(self) -> Any:
        """Return the rows as a pyarrow RecordBatch, or None if there are none."""

    def place(self, row: int) -> str:
        """Return the location in the table of a row, counted from 0 in this piece: ``line 17`` or ``row 17``."""


class TableSource(Protocol):
    """A table that can be read from its beginning, a piece at a time."""

    name: str
    names: list[str]

    def held(self) -> dict[str, str]:
        """Return each column's kind by its type; "empty" for text, which may be read as anything."""

    def kinds(self) -> tuple[dict[str, str], Any]:
        """Return each column's kind (``plan.KINDS``) and a RecordBatch of the first rows, None if there are none."""

    def close(self) -> None:
        """Close the file, however much of it was read."""

    def pieces(self, types: Mapping[str, str]) -> Iterator[Piece]:
        """Yield pieces with the columns in ``types``; text columns are read as the "text" or "number" it names."""


def table_format(name: str) -> str | None:
    """Return the format suggested by a file's name, or None if it is not a table's."""
    lowered = name.lower()
    for kind, suffixes in SUFFIXES.items():
        packed = PACKED if kind in ("csv", "tsv") else ("",)
        if lowered.endswith(tuple(suffix + more for suffix in suffixes for more in packed)):
            return kind
    return None


def need_pyarrow(name: str) -> Any:
    """Return the module pyarrow.

    Raises
    ------
    InputError
        If it is missing; the message says what to install.
    """
    try:
        import pyarrow
    except ImportError:
        raise InputError(f"{name}: tables are read by pyarrow: pip install 'hogwild[tables]', or pyarrow") from None
    return pyarrow


def open_source(what: Any, format: str | None = None, progress: Callable[..., None] | None = None) -> TableSource:
    """Open a file by its path, a stream of CSV, or a frame of pandas, polars or pyarrow.

    Raises
    ------
    InputError
        If it cannot be read or has two columns with the same name.
    """
    name = os.fspath(what) if isinstance(what, str | os.PathLike) else ""
    pa = need_pyarrow(name or type(what).__name__)
    if isinstance(what, str | os.PathLike) or hasattr(what, "read"):
        kind = format or table_format(name) or "csv"
        if kind in ("csv", "tsv"):
            return CsvSource(what, "\t" if kind == "tsv" else None, progress)
        if hasattr(what, "read"):
            raise UsageError(f"a stream is read as csv or tsv, not as {kind}")
        source: ArrowSource = FILES[kind](name, progress)
    else:
        source = FrameSource(_as_table(what, pa))
    repeated = sorted({column for column in source.names if source.names.count(column) > 1})
    if repeated:
        raise InputError(f"{source.name}: several columns are named {repeated[0]!r}")
    return source


def is_frame(what: Any) -> bool:
    """Return whether it is a table in memory: from pandas, polars, pyarrow or anything with Arrow's protocol."""
    return hasattr(what, "__arrow_c_stream__") or hasattr(what, "__dataframe__") or _is_pandas(what)


def _is_pandas(what: Any) -> bool:
    return type(what).__module__.split(".")[0] == "pandas" and hasattr(what, "columns")


def _as_table(what: Any, pa: Any) -> Any:
    kind = type(what).__name__
    try:
        if isinstance(what, pa.Table):
            return what
        if isinstance(what, pa.RecordBatch):
            return pa.Table.from_batches([what])
        if _is_pandas(what):
            names = [str(name) for name in what.columns]
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise InputError(f"the table: several columns are named {repeated[0]!r}")
            return pa.Table.from_pandas(what.set_axis(names, axis=1), preserve_index=False)
        if hasattr(what, "collect") and hasattr(what, "collect_schema"):  # a LazyFrame
            what = what.collect()
        return pa.table(what)
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{kind}: cannot be made a table: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class BatchPiece:
    """A batch already in memory; ``file`` is the one it was read from, which may be damaged."""

    batch: Any
    first: int  # rows before it
    file: str | None = None

    def load(self) -> Any:
        if self.file is not None:
            try:
                self.batch.validate(full=True)  # offsets may leave the arrays, and text may not be UTF-8
            except Exception as error:
                raise _unreadable(self.file, error) from None
        return _plain(self.batch) if self.batch.num_rows else None

    def place(self, row: int) -> str:
        return f"row {self.first + row + 1:,}"


def _plain(batch: Any) -> Any:
    """Return the batch without types that few pyarrow functions accept: string views and run-end encoding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    view, known = pa.types.is_string_view, pa.large_string()

    def change(values: Any) -> Any:
        if pa.types.is_run_end_encoded(values.type):
            values = pc.run_end_decode(values)
        if view(values.type):
            return values.cast(known)
        if pa.types.is_dictionary(values.type) and view(values.type.value_type):
            return pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(known))
        return values

    return pa.RecordBatch.from_arrays([change(values) for values in batch.columns], names=batch.schema.names)


class ArrowSource:
    """Common part of the sources of typed columns; each defines its own ``schema`` and ``batches``."""

    def __init__(self, name: str, progress: Callable[..., None] | None = None) -> None:
        self.name, self._progress = name, progress
        self.file: str | None = name
        try:
            self.schema = self.read_schema()
            self.names = list(self.schema.names)
        except Exception as error:
            raise _unreadable(name, error) from None

    def read_schema(self) -> Any:
        raise NotImplementedError

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Yield record batches of some columns."""
        raise NotImplementedError

    def count(self) -> int:
        """Total number of rows, for progress reports."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing: a file is open only while its batches are read."""

    def held(self) -> dict[str, str]:
        return {field.name: kind_of(field.type) for field in self.schema}

    def kinds(self) -> tuple[dict[str, str], Any]:
        types = self.held()
        readable = [name for name, kind in types.items() if kind not in ("nested", "binary")]
        piece = next(self.pieces(dict.fromkeys(readable, "text")), None)
        return types, None if piece is None else piece.load()

    def pieces(self, types: Mapping[str, str]) -> Iterator[Piece]:
        first = 0
        batches = self.batches(list(types))
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:
                raise _unreadable(self.name, error) from None
            if batch is None:
                return
            for start in range(0, batch.num_rows, PIECE):
                yield BatchPiece(batch.slice(start, PIECE), first + start, self.file)
            first += batch.num_rows
            if self._progress is not None:
                self._progress(first, self.count())


class ParquetSource(ArrowSource):
    """A Parquet file; only the columns asked for are read."""

    def read_schema(self) -> Any:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.name) as file:
            self.rows = file.metadata.num_rows
            return file.schema_arrow

    def batches(self, names: list[str]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.name) as file:
            yield from file.iter_batches(PIECE, columns=names)

    def count(self) -> int:
        return self.rows


class IpcSource(ArrowSource):
    """An Arrow file (Feather is one) or stream, mapped into memory."""

    def _open(self, names: list[str] | None = None) -> Any:
        import pyarrow as pa

        with open(self.name, "rb") as file:
            whole = file.read(len(ARROW_FILE)) == ARROW_FILE
        opener = pa.ipc.open_file if whole else pa.ipc.open_stream
        fields = None if names is None else [self.names.index(name) for name in names]
        return opener(pa.memory_map(self.name), options=pa.ipc.IpcReadOptions(included_fields=fields))

    def read_schema(self) -> Any:
        return self._open().schema

    def batches(self, names: list[str]) -> Iterator[Any]:
        reader = self._open(names)
        if hasattr(reader, "num_record_batches"):
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            yield batch.select(names)

    def count(self) -> None:  # type: ignore[override]
        return None


class FrameSource(ArrowSource):
    """A table in memory."""

    def __init__(self, table: Any) -> None:
        self.table = table
        super().__init__("the table")
        self.file = None

    def read_schema(self) -> Any:
        return self.table.schema

    def batches(self, names: list[str]) -> Iterator[Any]:
        yield from self.table.select(names).to_batches(max_chunksize=PIECE)


FILES: dict[str, Callable[..., ArrowSource]] = {"parquet": ParquetSource, "arrow": IpcSource}


def _unreadable(name: str, error: Exception) -> Exception:
    if isinstance(error, HogwildError | MemoryError):
        return error
    return InputError(f"{name}: cannot be read: {reason_of(error)}")
