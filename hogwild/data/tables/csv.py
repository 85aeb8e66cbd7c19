"""Cuts CSV and TSV text into pieces of whole rows that know their lines; pyarrow parses them on several threads.

pyarrow's own streaming reader parses on one core, and does not number lines when it uses more. So the text is cut here
(``data/text/lines.py`` also decompresses it) behind the last line end outside quotes, and each piece is parsed by one
of the caller's threads. Pieces that pyarrow refuses are read again by Python's own reader, which finds the line and
column of the fault.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data.hints import of_columns
from hogwild.data.text.lines import ReadError, Source, chunks
from hogwild.data.text.tokens import shown_word
from hogwild.errors import InputError

CHUNK = 2 << 20  # bytes of text in a piece
LONGEST = 32 << 20  # bytes of a row: a longer one means that a quote was left open
DELIMITERS = ",;\t|"
BAD_UTF8 = "\udc80", "\udcff"  # how surrogateescape represents bytes that are not UTF-8
NOT_TEXT = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive, or a workbook",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True)
class CsvPiece:
    """Whole rows of unparsed text; ``types`` maps the columns wanted to "text" or "number"."""

    source: CsvSource
    text: memoryview
    line: int  # line of the first row
    types: Mapping[str, str]

    def load(self) -> Any:
        """Return the rows as a pyarrow RecordBatch of the columns wanted."""
        import pyarrow as pa

        try:
            table = self.source.parse(self.text, self.types)
        except (pa.ArrowException, ValueError) as error:
            raise self.fault(" ".join(str(error).split())) from None
        return table.combine_chunks().to_batches()[0] if len(table) else None

    def place(self, row: int) -> str:
        """Return the location of the row, counted from 0 in this piece."""
        return next((f"line {line}" for number, (line, _) in enumerate(self._rows()) if number == row), f"row {row}")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield nonempty rows, as Python reads them, with the lines they begin at."""
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
        """Return an error with the fault's line and column, or with ``reason`` if Python finds no fault."""
        names = self.source.names
        for line, row in self._rows():
            if len(row) != len(names):
                return self._said(line, f"{len(row)} values, but the first line names {len(names)} columns")
            for name, value in zip(names, row):
                if _is_bad(value):
                    return self._said(line, f"column {name}: {shown_word(value)} is not UTF-8")
                if self.types.get(name) == "number" and not _is_number(value):
                    return self._said(line, f"column {name}: {shown_word(value)} is not a number")
        return self._said(self.line, reason)

    def _said(self, line: int, what: str) -> InputError:
        return InputError(f"{self.source.name}: line {line}: {what}")


class CsvSource:
    """A CSV or TSV file or stream with the names of the columns in its first line.

    Parameters
    ----------
    what : path or binary stream
        A stream can be read once.
    delimiter : str, optional
        By default the most frequent of comma, semicolon, tab and bar in the first line.
    progress : function, optional
        Called with the bytes read and their total.
    """

    def __init__(self, what: Any, delimiter: str | None = None, progress: Callable[..., None] | None = None) -> None:
        self.what, self.delimiter, self._progress = what, delimiter or "", progress
        self.name = os.fspath(what) if isinstance(what, str | os.PathLike) else Source(what).label
        self.names: list[str] = []
        self._skip = 0  # lines of the header
        self._open = self._cut()
        self._first = next(self._open, None)
        if self._first is None:
            raise InputError(f"{self.name}: no rows in it")

    def close(self) -> None:
        self._open.close()

    def held(self) -> dict[str, str]:
        return dict.fromkeys(self.names, "empty")

    def kinds(self) -> tuple[dict[str, str], Any]:
        """Of each column, what its first values look like, and these values as a RecordBatch."""
        from hogwild.data.tables.columns import kind_of

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
        """Yield the table from its beginning, each column in ``types`` as "text" or "number"."""
        first, self._first = self._first, None
        if first is None:
            self._open = self._cut()
        cut = self._open
        if first is not None:
            yield CsvPiece(self, *first, types)
        for text, line in cut:
            yield CsvPiece(self, text, line, types)

    def parse(self, text: memoryview, types: Mapping[str, str]) -> Any:
        """Parse rows of text into a pyarrow Table."""
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

    def _cut(self) -> Generator[tuple[memoryview, int], None, None]:
        """Yield pieces of whole rows after the header, and the line that each begins at."""
        source = Source(self.what)
        rest, line, headed = b"", 1, False
        try:
            for buffer, size in chunks(source, CHUNK, deque()):
                if line == 1 and not rest:
                    size = self._begin(buffer, size)
                text = np.frombuffer(rest + memoryview(buffer)[:size] if rest else buffer, np.uint8)
                size += len(rest)
                end, lines = whole_rows(text[:size], self.delimiter)
                start, skipped = (0, 0) if headed else self._header(text.data[:end])
                headed = headed or skipped > 0
                if end > start and headed:
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
        """Check that the input is text and find the delimiter; return the size without a byte order mark."""
        for magic, what in NOT_TEXT.items():
            if buffer.startswith(magic):
                raise InputError(f"{self.name}: {what}, expected CSV text in UTF-8")
        if b"\0" in buffer[:size]:
            raise InputError(f"{self.name}: not a text: it has zero bytes in it")
        if buffer.startswith(b"   "):  # lines.py replaces the mark by blanks
            del buffer[:3]
            size -= 3
        if b"\r" in buffer[:size] and b"\n" not in buffer[: size - 1]:
            raise InputError(f"{self.name}: lines that end in a carriage return alone, expected LF or CR LF")
        if not self.delimiter:
            line = str(buffer[: buffer.find(b"\n", 0, size)], "utf-8", "replace")
            self.delimiter = max(DELIMITERS, key=line.count)
        return size

    def _header(self, text: memoryview) -> tuple[int, int]:
        """Read the column names; return the position and the line where the header ends."""
        lines = io.StringIO(str(text, "utf-8", "surrogateescape"), newline="")
        reader = csv.reader(lines, delimiter=self.delimiter)
        names = next((row for row in reader if row), [])  # blank lines may precede it
        for name in filter(_is_bad, names):
            raise InputError(f"{self.name}: line {reader.line_num}: the column's name {shown_word(name)} is not UTF-8")
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            where, hint = f"{self.name}: line {reader.line_num}", of_columns(names)
            raise InputError(f"{where}: several columns are named {repeated[0]!r}{hint}")
        self.names = names
        end, raw = 0, bytes(text)
        for _ in range(reader.line_num if names else 0):
            end = raw.find(b"\n", end) + 1
        return end, reader.line_num if names else 0


def whole_rows(text: np.ndarray, delimiter: str) -> tuple[int, int]:
    """Return where the last whole row of ``text``, uint8, ends, and how many lines these rows take.

    As in other readers, a quote opens a value only at its beginning, so one inside of ``5" disk`` is a character.
    Usually each quote with an even number before it opens a value, or follows the last one, as the pair that stands for
    a quote. Then a line end is within quotes if an odd number precedes it, which NumPy counts fast.
    """
    quotes, ends = np.flatnonzero(text == ord('"')), np.flatnonzero(text == ord("\n"))
    opening = quotes[0::2]
    before = text[opening - 1]  # for a quote at the very beginning this is the last byte, and is not looked at
    usual = (opening == 0) | (before == ord(delimiter)) | (before == ord("\n")) | (before == ord('"'))
    if usual.all():
        outside = np.flatnonzero(np.searchsorted(quotes, ends) % 2 == 0)
    else:
        value = rb'(?:\A|(?<=[%s\n]))"[^"]*(?:""[^"]*)*(?:"|\Z)' % re.escape(delimiter.encode())
        bare = re.sub(value, lambda found: bytes(len(found[0])), text.tobytes())
        outside = np.flatnonzero(np.frombuffer(bare, np.uint8)[ends])
    return (int(ends[outside[-1]]) + 1, int(outside[-1]) + 1) if len(outside) else (0, 0)


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


def _is_bad(value: str) -> bool:
    return any(BAD_UTF8[0] <= character <= BAD_UTF8[1] for character in value)
