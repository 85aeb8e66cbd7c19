"""Opens any table: CSV, TSV, Parquet and Arrow files, and frames in memory, as pyarrow's record batches.

Everything is converted to record batches, so one reader of columns serves all formats: text by ``text/delimited.py``,
files by pyarrow's datasets, frames of any library by Arrow's C interface.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hogwild.data.parallel import BytesRead, Result
from hogwild.data.tables.columns import kind_of
from hogwild.data.text.delimited import Delimited
from hogwild.data.text.lines import PACKED, shown_word
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError, reason_of

ROWS = 1 << 16  # of a batch
#: Suffixes of each format; text may also be compressed.
SUFFIXES = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
}

Piece = tuple[Any, int]  # a RecordBatch, and the number of rows before it


def table_format(name: str) -> str | None:
    """Return the format suggested by a file's name, or None if it is not a table's."""
    lowered = name.lower()
    for kind, suffixes in SUFFIXES.items():
        packed = ("", *PACKED) if kind in ("csv", "tsv") else ("",)
        if lowered.endswith(tuple(suffix + more for suffix in suffixes for more in packed)):
            return kind
    return None


def open_source(
    table: Any,
    format: str | None = None,
    progress: BytesRead | None = None,
    separator: str | None = None,
    usual: str | None = None,
) -> TableSource:
    """Open a file by its path, a stream of CSV, or a frame of pandas, polars or pyarrow.

    ``usual`` is the separator of CSV, by default a comma, where ``separator`` is not given.

    Raises
    ------
    InputError
        If it cannot be read or has two columns with the same name.
    """
    if not isinstance(table, str | os.PathLike) and not hasattr(table, "read"):
        return ArrowSource(table, None, progress)
    kind = format or table_format(os.fspath(table) if isinstance(table, str | os.PathLike) else "") or "csv"
    if kind in ("csv", "tsv"):
        return TextSource(table, separator or ("tab" if kind == "tsv" else usual or ","), progress)
    if hasattr(table, "read"):
        raise UsageError(f"a stream is read as csv or tsv, not as {kind}")
    if separator is not None:
        raise UsageError(f"separator {separator!r}: is for text, not for {kind}")
    return ArrowSource(os.fspath(table), "ipc" if kind == "arrow" else kind, progress)


def is_frame(table: Any) -> bool:
    """Return whether it is a table in memory: from pandas, polars, pyarrow or anything with Arrow's protocol."""
    return any(hasattr(table, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"))


class TableSource:
    """A table that can be read from its beginning, a batch at a time; each kind defines its own ``batches``.

    Attributes
    ----------
    name : str
        For messages.
    schema : pyarrow.Schema
    names : list of str
        Of the columns.
    """

    name: str
    schema: Any
    names: list[str]

    def check_names(self, where: str) -> None:
        """Refuse two columns of one name."""
        repeated = sorted({column for column in self.names if self.names.count(column) > 1})
        if repeated:
            raise InputError(f"{where}: several columns are named {repeated[0]!r}")

    def held(self) -> dict[str, str]:
        """Return each column's kind by its type; "empty" for text, which may be read as anything."""
        return {field.name: kind_of(field.type) for field in self.schema}

    def kinds(self) -> tuple[dict[str, str], Any]:
        """Return each column's kind (``plan.KINDS``) and a RecordBatch of the first rows, None if there are none."""
        types = self.held()
        readable = [name for name, kind in types.items() if kind not in ("nested", "binary")]
        piece = next(self.pieces(dict.fromkeys(readable, "text")), None)
        return types, None if piece is None else self.load(piece)

    def batches(self, types: Mapping[str, str]) -> Iterator[Any]:
        """Yield RecordBatches of the columns in ``types``, which names what text is read as: "text" or "number"."""
        raise NotImplementedError

    def pieces(self, types: Mapping[str, str]) -> Iterator[Piece]:
        """Yield the table's batches of at most ``ROWS`` rows, with the number of rows before each."""
        first = 0
        for batch in self.batches(types):
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS), first + start
            first += batch.num_rows

    def load(self, piece: Piece) -> Any:
        """Return a piece's batch without types that few pyarrow functions accept."""
        return _plain(piece[0])

    def place(self, row: int) -> str:
        """Return the location of a row, counted from 0: ``table.csv:17`` or ``table.parquet: row 17``."""
        return f"{self.name}: row {row + 1:,}"

    def close(self) -> None:
        """Close the file, however much of it was read."""


class TextSource(TableSource):
    """A CSV or TSV file or stream with the names of the columns in its first line."""

    def __init__(self, text: Any, separator: str, progress: BytesRead | None) -> None:
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions

        nulls = ConvertOptions().null_values
        self.table = Delimited(
            text, separator, lead=lambda number, line: False, newlines=True, null_values=nulls, progress=progress
        )
        self.name = self.table.label
        if not self.table.rows:
            raise InputError(f"{self.name}: no rows in it")
        names = self.names = self.table.rows[0]
        where = f"{self.name}:{self.table.first}"
        for name in names:
            if any("\udc80" <= character <= "\udcff" for character in name):
                raise InputError(f"{where}: the column's name {shown_word(name)} is not UTF-8")
        self.table.names = names
        self.schema = pa.schema([(name, pa.null()) for name in names])
        self.check_names(where)
        self.table.skip_header()
        if not self.table.rows:
            raise InputError(f"{self.name}: no rows in it")

    def kinds(self) -> tuple[dict[str, str], Any]:
        """Return what the first values of each column look like, and these values."""
        batch = next(self.table.batches(dict.fromkeys(self.names)))
        types = {field.name: kind_of(field.type) for field in batch.schema}
        if "binary" in types.values():  # which pyarrow takes text for that is not UTF-8
            for _ in self.batches(dict.fromkeys(self.names, "text")):
                pass
        for name in [name for name, kind in types.items() if kind == "empty"]:
            message = f"{self.name}: column {name} is empty in its first {len(batch):,} rows: taken as categorical"
            warnings.warn(message, HogwildWarning, stacklevel=2)
            types[name] = "text"
        return types, batch

    def batches(self, types: Mapping[str, str]) -> Iterator[Any]:
        return self.table.batches({name: {"text": "string", "number": "double"}[kind] for name, kind in types.items()})

    def place(self, row: int) -> str:
        return f"{self.name}:{self.table.row(row)[0]}" if self.table.again else super().place(row)

    def close(self) -> None:
        self.table.close()


class ArrowSource(TableSource):
    """A Parquet or Arrow file, or a frame; only the columns asked for are read. Damage is refused in one line."""

    def __init__(self, table: Any, kind: str | None, progress: BytesRead | None) -> None:
        from pyarrow import dataset

        self.name, self.progress = table if kind else "the table", progress
        self.data = self._reading(
            lambda: dataset.dataset(table, format=kind) if kind else dataset.dataset(_framed(table))
        )
        self.schema = self.data.schema
        self.names = self._reading(lambda: list(self.schema.names))
        self.file = kind is not None
        self.check_names(self.name)

    def _reading(self, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except (HogwildError, MemoryError):
            raise
        except Exception as error:  # pyarrow's readers raise what they like of a damaged file
            raise InputError(f"{self.name}: cannot be read: {reason_of(error)}") from None

    def batches(self, types: Mapping[str, str]) -> Iterator[Any]:
        done = 0
        total = self._reading(self.data.count_rows)
        batches = self.data.to_batches(columns=list(types), batch_size=ROWS)
        while (batch := self._reading(lambda: next(batches, None))) is not None:
            yield batch
            done += batch.num_rows
            if self.progress is not None:
                self.progress(done, total)

    def load(self, piece: Piece) -> Any:
        if self.file:  # offsets may leave the arrays, and text may not be UTF-8
            self._reading(lambda: piece[0].validate(full=True))
        return super().load(piece)


def _framed(frame: Any) -> Any:
    """Return a table of pandas, polars or pyarrow, as pyarrow's."""
    import pyarrow as pa

    try:
        if hasattr(frame, "reset_index"):  # pandas, whose index is no column
            frame = frame.reset_index(drop=True)
        if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a LazyFrame
            frame = frame.collect()
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        kind = type(frame).__name__
        raise InputError(f"{kind}: cannot be made a table: {' '.join(str(error).split())}") from None


def _plain(batch: Any) -> Any:
    """Return the batch without string views, which few pyarrow functions accept."""
    import pyarrow as pa

    def change(values: Any) -> Any:
        if pa.types.is_string_view(values.type):
            return values.cast(pa.large_string())
        if pa.types.is_dictionary(values.type) and pa.types.is_string_view(values.type.value_type):
            return pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(pa.large_string()))
        return values

    return pa.RecordBatch.from_arrays([change(values) for values in batch.columns], names=batch.schema.names)
