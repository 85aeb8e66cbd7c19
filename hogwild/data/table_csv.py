"""CSV and TSV text as pieces of whole rows, which pyarrow parses on several threads and which know their lines.

The decision that matters: pyarrow's own streaming reader parses on one core and numbers no lines where it uses more.
So the text is cut here (``data/text.py``, which also decompresses it) behind the last line end that is in no quotes,
and each piece is parsed by a thread of the caller's. What pyarrow refuses is read once more by Python's own reader,
which says in which line and column it is.
"""

from __future__ import annotations

import csv
import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data.text import ReadError, Source, chunks
from hogwild.errors import InputError

CHUNK = 2 << 20  # bytes of text in a piece
LONGEST = 32 << 20  # bytes of a row: with more a quote has been left open
DELIMITERS = ",;\t|"
BAD_UTF8 = "\udc80", "\udcff"  # what surrogateescape makes of bytes that are no UTF-8
NOT_TEXT = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a zip archive, or a workbook", b"ARROW1": "an Arrow file",
            b"\xff\xfe": "UTF-16 text", b"\xfe\xff": "UTF-16 text"}  # fmt: skip


@dataclass(frozen=True)
class CsvPiece:
    """Whole rows of text, still to be parsed; ``types`` maps the columns wanted to "text" or "number"."""

    source: CsvSource
    text: memoryview
    line: int  # of the first row
    types: Mapping[str, str]

    def load(self) -> Any:
        """The rows as a pyarrow RecordBatch of the columns wanted."""
        import pyarrow as pa

        try:
            table = self.source.parse(self.text, self.types)
        except (pa.ArrowException, ValueError) as error:
            raise self.fault(" ".join(str(error).split())) from None
        return table.combine_chunks().to_batches()[0] if len(table) else None

    def place(self, row: int) -> str:
        """Where the row, counted from 0 in this piece, is."""
        return next((f"line {line}" for number, (line, _) in enumerate(self._rows()) if number == row), f"row {row}")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Rows that are not empty, as Python reads them, and the lines they begin at."""
        text = str(self.text, "utf-8", "surrogateescape")
        before = csv.field_size_limit(LONGEST)
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.source.delimiter)
            line = self.line
            for row in reader:
                if row:
                    yield line, row
                line = self.line + reader.line_num
        finally:
            csv.field_size_limit(before)

    def fault(self, reason: str) -> InputError:
        """What is wrong, and in which line and column; ``reason`` where Python finds nothing wrong."""
        names = self.source.names
        for line, row in self._rows():
            if len(row) != len(names):
                return self._said(line, f"{len(row)} values, but the first line names {len(names)} columns")
            for name, value in zip(names, row):
                if any(BAD_UTF8[0] <= character <= BAD_UTF8[1] for character in value):
                    return self._said(line, f"column {name}: {_short(value)} is not UTF-8")
                if self.types.get(name) == "number" and not _is_number(value):
                    return self._said(line, f"column {name}: {_short(value)} is not a number")
        return self._said(self.line, reason)

    def _said(self, line: int, what: str) -> InputError:
        return InputError(f"{self.source.name}: line {line}: {what}")


class CsvSource:
    """A CSV or TSV file, or a stream of one, with the names of the columns in its first line.

    Parameters
    ----------
    what : path or binary stream
        A stream can be read once.
    delimiter : str, optional
        By default the most frequent of comma, semicolon, tab and bar in the first line.
    progress : function, optional
        Called with the bytes read, and of how many.
    """

    def __init__(self, what: Any, delimiter: str | None = None, progress: Callable[..., None] | None = None) -> None:
        self.what, self.delimiter, self._progress = what, delimiter or "", progress
        self.name = os.fspath(what) if isinstance(what, str | os.PathLike) else Source(what).label
        self.names: list[str] = []
        self._skip = 0  # lines of the header
        begun = self._cut()
        self._first = next(begun, None)
        self._rest = begun
        if self._first is None:
            raise InputError(f"{self.name}: no rows in it")

    def held(self) -> dict[str, str]:
        return dict.fromkeys(self.names, "empty")

    def kinds(self) -> tuple[dict[str, str], Any]:
        """Of each column, what its first values look like, and these values as a RecordBatch."""
        from hogwild.data.table_files import kind_of

        assert self._first is not None
        text, line = self._first
        batch = CsvPiece(self, text, line, {}).load()
        if batch is None:
            raise InputError(f"{self.name}: no rows in it")
        found = {field.name: kind_of(field.type) for field in batch.schema}
        if "binary" in found.values():
            raise CsvPiece(self, text, line, {}).fault("not UTF-8")
        return {name: "text" if kind == "empty" else kind for name, kind in found.items()}, batch

    def pieces(self, types: Mapping[str, str]) -> Iterator[CsvPiece]:
        """The table from its beginning, each column named in ``types`` as "text" or "number"."""
        cut, self._rest = self._rest, None  # type: ignore[assignment]
        if cut is None:
            cut = self._cut()
        elif self._first is not None:
            yield CsvPiece(self, *self._first, types)
        self._first = None
        for text, line in cut:
            yield CsvPiece(self, text, line, types)

    def parse(self, text: memoryview, types: Mapping[str, str]) -> Any:
        """Rows of text as a pyarrow Table."""
        import pyarrow as pa
        from pyarrow import csv as reader

        known = {"text": pa.string(), "number": pa.float64()}
        return reader.read_csv(
            pa.BufferReader(pa.py_buffer(text)),
            reader.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self.names),
            reader.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            reader.ConvertOptions(
                column_types={name: known[kind] for name, kind in types.items()}, include_columns=list(types) or None
            ),
        )

    def _cut(self) -> Iterator[tuple[memoryview, int]]:
        """Pieces of whole rows behind the header, and the line that each begins at."""
        from hogwild.kernels.tables import whole_rows

        source = Source(self.what)
        rest, line, headed = b"", 1, False
        try:
            for buffer, size in chunks(source, CHUNK, deque()):
                if line == 1 and not rest:
                    size = self._begin(buffer, size)
                text = np.frombuffer(rest + memoryview(buffer)[:size] if rest else buffer, np.uint8)
                size += len(rest)
                end, lines = whole_rows(text, size, ord(self.delimiter))
                start, skipped = (0, 0) if headed else self._header(text.data[:end])
                headed = headed or skipped > 0
                if end > start:
                    yield text.data[start:end], line + skipped
                rest = bytes(text.data[end:size])
                line += lines
                if len(rest) > LONGEST:
                    break
                if self._progress is not None:
                    self._progress(source.done, source.total)
        except ReadError as error:
            raise InputError(f"{self.name}: line {line}: {error}") from None
        finally:
            source.close()
        if rest:
            raise InputError(f"{self.name}: line {line}: a quote in this row is never closed")

    def _begin(self, buffer: bytearray, size: int) -> int:
        """See that it is text and by what its values are parted; returns the size without a byte order mark."""
        for magic, what in NOT_TEXT.items():
            if buffer.startswith(magic):
                raise InputError(f"{self.name}: {what}, expected CSV text in UTF-8")
        if b"\0" in buffer[:size]:
            raise InputError(f"{self.name}: not a text: it has zero bytes in it")
        if buffer.startswith(b"   "):  # text.py puts blanks for the mark
            del buffer[:3]
            size -= 3
        if not self.delimiter:
            line = str(buffer[: buffer.find(b"\n", 0, size)], "utf-8", "replace")
            self.delimiter = max(DELIMITERS, key=line.count)
        return size

    def _header(self, text: memoryview) -> tuple[int, int]:
        """Read the names of the columns; returns where the header ends, and in which line."""
        lines = io.StringIO(str(text, "utf-8", "replace"), newline="")
        reader = csv.reader(lines, delimiter=self.delimiter)
        names = next((row for row in reader if row), [])  # lines may be empty before it
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"{self.name}: line {reader.line_num}: several columns are named {repeated[0]!r}")
        self.names = names
        end, raw = 0, bytes(text)
        for _ in range(reader.line_num if names else 0):
            end = raw.find(b"\n", end) + 1
        return end, reader.line_num if names else 0


def _is_number(value: str) -> bool:
    import pyarrow as pa
    from pyarrow import csv as reader

    if value in reader.ConvertOptions().null_values:
        return True
    try:
        pa.scalar(value.strip()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _short(value: str) -> str:
    """A value as a message shows it."""
    shown = value if len(value) <= 40 else value[:37] + "..."
    return repr(shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
