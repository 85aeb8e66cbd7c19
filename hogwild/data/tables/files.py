"""Opens any table: CSV, TSV, Parquet and Arrow files, and frames in memory, as pyarrow's record batches.

Everything is converted to record batches, so one reader of columns serves all formats: text by ``text/delimited.py``,
files by pyarrow's datasets, frames of any library by Arrow's C interface.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from hogwild.data.parallel import BytesRead, Result
from hogwild.data.tables.arrays import kind_of
from hogwild.data.text.delimited import NAMED, Block, Delimited
from hogwild.data.text.lines import shown_word
from hogwild.errors import HogwildError, HogwildWarning, InputError, reason_of

ROWS = 1 << 16  # of a batch
CELLS = 1 << 24  # of a batch, at most: each takes 16 bytes while its features are made
LAZY = "collect_schema"  # of polars's LazyFrame
READ_AS = {True: "double", False: "large_string", None: None}  # types of text, by whether it is numbers
#: Suffixes of each format.
SUFFIXES = {
    "csv": r"csv(\.gz|\.bz2|\.xz)?",
    "tsv": r"(tsv|tab)(\.gz|\.bz2|\.xz)?",
    "parquet": "(parquet|pq)",
    "arrow": "(arrow|feather|ipc)",
}

SAID = {mark: name for name, mark in NAMED.items()}  # how separators are given

#: Names the location of a batch's row, counted from 0: ``table.csv:17`` or ``table.parquet: row 17``.
Place = Callable[[int], str]


def table_format(name: str) -> str | None:
    """Return the format suggested by a file's name, or None if it is not a table's."""
    return next((kind for kind, ends in SUFFIXES.items() if re.search(rf"\.{ends}$", name.lower())), None)


def open_source(
    table: Any,
    progress: BytesRead | None = None,
    separator: str | None = None,
    usual: str | None = None,
) -> TableSource:
    """Open a file by its path, a stream of CSV, or a frame of pandas, polars or pyarrow.

    A path that tells no format is that of CSV, whose separator is ``usual``, by default a comma, where ``separator`` is
    not given.

    Raises
    ------
    InputError
        If it cannot be read or has two columns with the same name.
    """
    stream, path = hasattr(table, "read"), isinstance(table, str | os.PathLike)
    if not path and not stream:
        return ArrowSource(table, None, progress)
    kind = (table_format(os.fspath(table)) if path else None) or "csv"
    if kind in ("csv", "tsv"):
        return TextSource(table, separator or ("tab" if kind == "tsv" else usual or ","), progress)
    return ArrowSource(os.fspath(table), "ipc" if kind == "arrow" else kind, progress)


def is_frame(table: Any) -> bool:
    """Return whether it is a table in memory: from pandas, polars, pyarrow or anything with Arrow's protocol."""
    return any(hasattr(table, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__", LAZY))


class TableSource:
    """A table that can be read from its beginning, a batch at a time; each kind defines its own ``batches``.

    Attributes
    ----------
    name : str
        For messages.
    schema : pyarrow.Schema
        Of text, null types, which may be read as anything.
    """

    name: str
    schema: Any

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    def held(self) -> dict[str, str]:
        """Return each column's kind (``plan.KINDS``) by its type."""
        return {field.name: kind_of(field.type) for field in self.schema}

    def kinds(self) -> tuple[dict[str, str], tuple[Any, Place] | None]:
        """Return each column's kind, and the first rows, None if there are none."""
        kinds = self.held()
        readable = {name: False for name, kind in kinds.items() if kind not in ("nested", "binary")}
        piece = next(self.batches(readable), None)
        if piece is not None:
            self.check(piece[0])
        return kinds, piece

    def batches(self, numbers: Mapping[str, bool | None]) -> Iterator[tuple[Any, Place]]:
        """Yield RecordBatches of the columns in ``numbers``, which tells whether text is read as numbers; None: as it
        looks.
        """
        raise NotImplementedError

    def check(self, batch: Any) -> None:
        """Refuse a damaged batch."""

    def close(self) -> None:
        """Close the file, however much of it was read."""


def check_names(names: list[str], where: str) -> None:
    """Refuse two columns of one name."""
    if repeated := sorted(column for column, count in Counter(names).items() if count > 1):
        several = f"are named {repeated[0]!r}" if repeated[0] else "have no name"
        raise InputError(f"{where}: several columns {several}")


class TextSource(TableSource):
    """A CSV or TSV file or stream with the names of the columns in its first line."""

    def __init__(self, text: Any, separator: str, progress: BytesRead | None) -> None:
        import pyarrow as pa

        self.table = Delimited(text, separator, lead=lambda number, line: False, table=True, progress=progress)
        self.name = self.table.label
        where = f"{self.name}:{self.table.first}"
        with contextlib.ExitStack() as failing:
            failing.callback(self.close)
            names = self.table.names = self.table.skip_header()
            other = next((mark for mark in ";\t|," if mark in names[0]), None) if len(names) == 1 else None
            if other is not None:
                said = f"one column, {shown_word(names[0])}: give --separator {SAID.get(other, repr(other))}"
                raise InputError(f"{where}: {said}")
            for name in names:
                if any("\udc80" <= character <= "\udcff" for character in name):
                    raise InputError(f"{where}: the column's name {shown_word(name)} is not UTF-8")
            self.schema = pa.schema([(name, pa.null()) for name in names])
            check_names(names, where)
            if not self.table.rows:
                raise InputError(f"{self.name}: no rows in it")
            failing.pop_all()

    def kinds(self) -> tuple[dict[str, str], tuple[Any, Place] | None]:
        """Return what the first values of each column look like, and these values."""
        batch, place = next(self.batches(dict.fromkeys(self.names)))
        kinds = {field.name: kind_of(field.type) for field in batch.schema}
        if "binary" in kinds.values():  # which pyarrow takes text for that is not UTF-8
            for _ in self.batches(dict.fromkeys(self.names, False)):
                pass
        for name in [name for name, kind in kinds.items() if kind == "empty"]:
            message = f"{self.name}: column {name} is empty in its first {len(batch):,} rows: taken as categorical"
            warnings.warn(message, HogwildWarning, stacklevel=2)
            kinds[name] = "text"
        return kinds, (batch, place)

    def batches(self, numbers: Mapping[str, bool | None]) -> Iterator[tuple[Any, Place]]:
        for batch, block in self.table.batches({name: READ_AS[number] for name, number in numbers.items()}):
            yield batch, partial(self._place, block)

    def _place(self, block: Block, row: int) -> str:
        return f"{self.name}:{self.table.row(row, block)[0]}"

    def close(self) -> None:
        self.table.close()


class ArrowSource(TableSource):
    """A Parquet or Arrow file, or a frame; only the columns asked for are read. Damage is refused in one line."""

    def __init__(self, table: Any, kind: str | None, progress: BytesRead | None) -> None:
        from pyarrow import dataset

        self.name, self.progress = table if kind else "the table", progress
        self.file = kind is not None
        self.data = self._reading(lambda: dataset.dataset(table if kind else framed(table), format=kind))
        self.schema = self.data.schema
        check_names(self._reading(lambda: self.names), self.name)

    def _reading(self, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except (HogwildError, MemoryError):
            raise
        except Exception as error:  # pyarrow's readers raise what they like of a damaged file
            reason = reason_of(error).rpartition(": ")[2]  # what is before it says only where pyarrow was
            raise InputError(f"{self.name}: cannot be read: {reason}") from None

    def batches(self, numbers: Mapping[str, bool | None]) -> Iterator[tuple[Any, Place]]:
        done = 0
        total = self._reading(self.data.count_rows)
        size = max(1, min(ROWS, CELLS // max(len(numbers), 1)))
        batches = self.data.to_batches(columns=list(numbers), batch_size=size)
        while (batch := self._reading(lambda: next(batches, None))) is not None:
            yield batch, partial(self._place, done)
            done += batch.num_rows
            if self.progress is not None:
                self.progress(done, total)

    def _place(self, first: int, row: int) -> str:
        return f"{self.name}: row {first + row + 1:,}"

    def check(self, batch: Any) -> None:
        if self.file:  # offsets may leave the arrays, and text may not be UTF-8
            self._reading(lambda: batch.validate(full=True))


def framed(frame: Any) -> Any:
    """Return a table of pandas, polars or pyarrow, as pyarrow's.

    Raises
    ------
    InputError
    """
    import pyarrow as pa

    try:
        if hasattr(frame, "reset_index"):  # pandas, whose index is no column
            frame = frame.reset_index(drop=True)
        if hasattr(frame, LAZY) and hasattr(frame, "collect"):
            frame = frame.collect()
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join("; ".join(map(str, error.args)).split())
        mixed = re.search("column (.*) with type object", reason)
        way = (
            f": column {mixed[1]} mixes types: .astype({{{mixed[1]!r}: str}}) makes it text" if mixed else f": {reason}"
        )
        raise InputError(f"{type(frame).__name__}: cannot be made a table{way}") from None
