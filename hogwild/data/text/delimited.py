"""Delimited text (ratings, edges, CSV, TSV), parsed by pyarrow a block at a time, whose errors name the line.

The text is decompressed by ``lines.py``; leading comment lines and a header are skipped here. Blocks of whole rows are
parsed on several threads. An error of pyarrow names a row of its block, of which Python's csv then gives the line and
the value.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hogwild.data.parallel import BytesRead, in_order
from hogwild.data.text.lines import PACKED, ReadError, Source, chunks, count_of, shown_word
from hogwild.errors import HogwildError, InputError, UsageError

BLOCK = 1 << 20  # bytes parsed at a time; with its columns it stays in the second-level cache
LONGEST = 16  # blocks that a quoted value may take
FLOAT32_END = 3.4028235677973366e38  # from here on float32 rounds to infinity
COMMENTS = (b"#", b"%")
SEPARATORS = {".csv": ",", ".dat": "::", ".txt": " "}  # of each suffix; of others a tab
NAMED = {"tab": "\t", "blank": " "}
SAID = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "single blanks", "|": "bars", "::": "'::'"}
EXPECTED = {"double": "a number", "int64": "a whole number", "date32[day]": "a date such as 2005-09-06"}


@dataclass(frozen=True)
class TextLayout:
    """The layout of a text, as far as a user says it; stores and generated data have none, and pass over it.

    Attributes
    ----------
    columns : str, optional
        Columns in order, such as ``user,item,-,rating``; one called ``-`` is not read. Others may follow.
    separator : str, optional
        One character, ``::``, ``tab`` or ``blank``; by default the suffix tells.
    header : bool, optional
        Whether the first line names columns; by default it does if its number is none, as in ``user,item,rating``.
    """

    columns: str | None = None
    separator: str | None = None
    header: bool | None = None


class Collector(Protocol):
    """Takes the values of a column, of the pyarrow type ``type``, and says which one is not as ``expected``."""

    type: str
    expected: str

    def take(self, column: Any) -> int:
        """Take a pyarrow array; return the place of the first wrong value, or -1."""


@dataclass
class Numbers:
    """Collects numbers: ``low <= x < high``; ``missing`` stands for an empty field."""

    low: float
    high: float
    expected: str
    type: str = "double"
    missing: float | None = None
    parts: list[np.ndarray] = field(default_factory=list)

    def take(self, column: Any) -> int:
        """Take a pyarrow array; return the place of the first wrong value, or -1."""
        if self.type == "date32[day]":
            column = column.cast("int32")
        numbers = (column.fill_null(self.missing or 0) if column.null_count else column).to_numpy()
        wrong = ~((numbers >= self.low) & (numbers < self.high))
        if column.null_count and self.missing is None:
            wrong |= column.is_null().to_numpy(zero_copy_only=False)
        self.parts.append(numbers)
        return int(np.argmax(wrong)) if wrong.any() else -1

    def finish(self, dtype: Any) -> np.ndarray:
        """Return all numbers."""
        return np.concatenate([np.empty(0, dtype), *(part.astype(dtype) for part in self.parts)])


#: The line that some whole rows begin at, and their text.
Block = tuple[int, bytes]


class Delimited:
    """A text of rows with one number of columns.

    Parameters
    ----------
    what : path or binary stream
        Text in UTF-8, plain or compressed by gzip, bzip2 or xz.
    separator : str, optional
    lead : function of (line number, line), optional
        Returns whether a line before the first row is skipped; by default comments are.
    table : bool
        Whether a quoted value may hold line ends, and words such as NA stand for missing numbers.
    progress : function, optional

    Attributes
    ----------
    names : list of str
        Name of each column, to be set before rows are read.
    rows : list of list of str
        Fields of the first two rows.
    first : int
        Line of the first row.
    """

    def __init__(
        self,
        what: Any,
        separator: str | None = None,
        *,
        lead: Callable[[int, bytes], bool] | None = None,
        table: bool = False,
        progress: BytesRead | None = None,
    ) -> None:
        self.what, self.table, self.progress = what, table, progress
        self.label = Source(what).label if hasattr(what, "read") else os.fspath(what)
        self.separator = _separator(separator, self.label)
        self.names: list[str] = []
        self.hint = ""
        self.first = 1
        self._source: Source | None = None
        try:
            self._begin(lead or (lambda number, line: line.startswith(COMMENTS)))
        except BaseException:
            self.close()
            raise

    def _begin(self, skipped: Callable[[int, bytes], bool]) -> None:
        """Read the lines before the first row, which are in the first piece of the text, and two rows."""
        pieces = self._read()
        text = next(pieces, b"")
        seen = [text]
        while text:
            line, _, after = text.partition(b"\n")
            if line.strip() and not skipped(self.first, line.strip()):
                break
            self.first += 1
            text = after
        while len(rows := list(itertools.islice(self.fields((self.first, text)), 2))) < 2 and (
            more := next(pieces, b"")
        ):
            seen.append(more)
            text += more
        self.rows = [fields for _, fields in rows]
        self._pieces: Iterator[bytes] | None = itertools.chain(seen, pieces)
        #: Line of the second row, or where it would be.
        self._second = rows[1][0] if len(rows) > 1 else self.first + text.count(b"\n")

    def close(self) -> None:
        """Stop reading."""
        if self._source is not None:
            self._source.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[bytes]:
        """Yield the text from its beginning in pieces of whole lines."""
        source = self._source = Source(self.what, self.progress)
        lines = 0
        try:
            for buffer, size in chunks(source, BLOCK):
                text = bytes(memoryview(buffer)[:size])
                if lines == 0 and b"\n" not in text[:-1]:  # old Macintosh's line ends
                    text = text.replace(b"\r", b"\n")
                if (zero := text.find(0)) >= 0:
                    lines += text.count(b"\n", 0, zero)
                    raise ReadError("binary data (a zero byte), expected text in UTF-8")
                lines += count_of(text, b"\n")
                yield text
        except ReadError as error:
            raise InputError(f"{self.label}:{lines + 1}: {error}") from None
        finally:
            source.close()

    def skip_header(self) -> list[str]:
        """Take the first row for the names of the columns, and return it."""
        if not self.rows:
            raise InputError(f"{self.label}: no rows in it")
        self.first = self._second
        return self.rows.pop(0)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows, which no block cuts, from the first one; a file is read again each time."""
        if (pieces := self._pieces) is None:
            if self.table and (hasattr(self.what, "read") or not os.path.isfile(self.what)):
                raise InputError(f"{self.label}: a table is read several times, a pipe only once: give a file")
            self.close()
            pieces = self._read()
        self._pieces = None
        line, skipped, held = self.first, self.first - 1, b""
        for piece in pieces:
            if skipped:
                *lines, piece = piece.split(b"\n", skipped)
                skipped -= len(lines)
            held += piece
            if self.table and len(held) < LONGEST * BLOCK and count_of(held, b'"') % 2:
                continue
            if held and not held.isspace():
                yield line, held
            line += count_of(held, b"\n")
            held = b""
        if held:
            deque(self.fields((line, held), strict=True), 0)
            yield line, held

    def batches(self, types: Mapping[str, Any]) -> Iterator[tuple[Any, Block]]:
        """Yield pyarrow's RecordBatches of the columns in ``types``, each of its type by its name (None: any).

        Raises
        ------
        InputError
            One line with the text's name and the line.
        """
        import pyarrow as pa
        from pyarrow import csv as reader

        names = self.names
        if self.separator == "::":  # pyarrow sees an empty column between two colons
            names = [name for column in names for name in (column, f":{column}")][:-1]
        parsing = reader.ParseOptions(delimiter=self.separator[0], newlines_in_values=self.table)
        converting = reader.ConvertOptions(
            column_types={name: kind for name, kind in types.items() if kind},
            include_columns=list(types),
            null_values=None if self.table else [""],
        )

        def parse(block: Block) -> tuple[Any, Block]:
            reading = reader.ReadOptions(column_names=names, block_size=len(block[1]) + 1, use_threads=False)
            try:
                return reader.read_csv(pa.BufferReader(block[1]), reading, parsing, converting), block
            except pa.ArrowInvalid as error:
                raise self._explained(str(error), block, types, names) from None

        for table, block in in_order(self.blocks() if self.rows else (), parse):
            for batch in table.to_batches():
                yield batch, block

    def collect(self, wanted: Mapping[str, Collector]) -> int:
        """Give the columns of all rows to their collectors and close the text; return how many rows there are.

        Raises
        ------
        InputError
            For the first wrong row; the message names its line, the column and the value.
        """
        rows = 0
        with contextlib.closing(self):
            for batch, block in self.batches({name: collector.type for name, collector in wanted.items()}):
                places = {name: collector.take(batch.column(name)) for name, collector in wanted.items()}
                if faults := [(place, name) for name, place in places.items() if place >= 0]:
                    row, name = min(faults)
                    raise self.fault(row, name, wanted[name].expected, block)
                rows += len(batch)
        return rows

    # -- faults -------------------------------------------------------------------------------------------------------

    def fields(
        self, block: Block, strict: bool = False, quoting: Any = csv.QUOTE_MINIMAL
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the line that each row of a block begins at and its fields, as Python's csv reads them."""
        limit = csv.field_size_limit(LONGEST * BLOCK)
        first, text = block
        begin = first
        try:
            lines = io.TextIOWrapper(io.BytesIO(text), "utf-8", "surrogateescape", newline="")
            reader = csv.reader(lines, delimiter=self.separator[0], strict=strict, quoting=quoting)
            for fields in reader:
                if fields:
                    yield begin, fields[::2] if self.separator == "::" else fields
                begin = first + reader.line_num
        except csv.Error as error:
            if "larger" in str(error):
                raise InputError(f"{self.label}:{begin}: a value longer than {LONGEST * BLOCK:,} bytes") from None
            if strict and "end of data" in str(error):
                raise InputError(f"{self.label}:{begin}: a quote in this row is never closed") from None
            if strict and not self.table:  # pyarrow takes it for a part of the value
                raise InputError(f"{self.label}:{begin}: a quote in this row ends before its value") from None
        finally:
            csv.field_size_limit(limit)

    def row(self, row: int, block: Block) -> tuple[int, list[str]]:
        """Return the line that a row of a block, counted from 0, begins at, and its fields."""
        return next(itertools.islice(self.fields(block), row, None), (self.first, []))

    def fault(self, row: int, column: str, expected: str, block: Block | None = None) -> InputError:
        """Return the error for a value: ``ratings.csv:7: bad rating 'x': expected a number``.

        Without its block, the row is one of all rows of a file, which is read again.
        """
        if block is None:
            block = self.first, b"".join(text for _, text in self.blocks())
        line, fields = self.row(row, block)
        value = dict(zip(self.names, fields)).get(column)
        if value is None:  # where pyarrow and Python's csv differ
            return InputError(f"{self.label}: row {row + 1}: bad {column}: {expected}")
        if any("\udc80" <= character <= "\udcff" for character in value):
            expected = "it is not UTF-8: convert the file first"
        return InputError(f"{self.label}:{line}: bad {column} {shown_word(value)}: {expected}")

    def _explained(self, reason: str, block: Block, types: Mapping[str, Any], names: list[str]) -> InputError:
        """Return the error that pyarrow means, by the row and column it names."""
        number, column = re.search(r"Row #(\d+)", reason), re.search(r"column #(\d+)", reason)
        if number is None:
            return InputError(f"{self.label}: {' '.join(reason.split())}")
        row = int(number[1]) - 1
        if column is not None:
            name = names[int(column[1])]
            return self.fault(row, name, f"expected {EXPECTED.get(str(types.get(name)), 'text')}", block)
        line, fields = self.row(row, block)
        expected = _in_a_line(self.names) if len(self.names) <= 8 else f"{len(self.names)}"
        return InputError(f"{self.label}:{line}: {self._miscounted(fields, expected)}")

    def _miscounted(self, fields: list[str], expected: str) -> str:
        if self.separator == " " and "" in fields:
            return "runs of blanks: make each of them one blank with tr -s ' '"
        number = f"{len(fields)} field{'s' * (len(fields) != 1)} in {shown_word(self.separator.join(fields))}"
        said = SAID.get(self.separator, repr(self.separator))
        return f"{number}, expected {expected} separated by {said}{self.hint}"

    # -- layouts ------------------------------------------------------------------------------------------------------

    def lay_out(self, layout: TextLayout, default: tuple[str, ...], needed: int) -> None:
        """Name the columns by the layout, or by default as many of ``default`` as there are; skip a header.

        The text is closed if its columns are wrong.

        Parameters
        ----------
        layout : TextLayout
        default : tuple of str
            The third is a number.
        needed : int
            How many of them a text must have.
        """
        try:
            self._name_columns(layout, default, needed)
        except HogwildError:
            self.close()
            raise

    def _name_columns(self, layout: TextLayout, default: tuple[str, ...], needed: int) -> None:
        self.hint = "; --columns and --separator say otherwise"
        if not self.rows:
            return
        fields = self.rows[0]
        names = list(default[: len(fields)])
        if layout.columns is not None:
            names = [name.strip() for name in layout.columns.split(",")]
            plain = [name for name in names if name != "-"]
            if len({*plain}) < len(plain) or not {*default[:needed]} <= {*plain} <= {*default}:
                raise UsageError(
                    f"columns {layout.columns}: expected {','.join(default)} in any order, '-' for one not read"
                )
        if len(fields) < max(len(names), needed) or (self.separator == " " and "" in fields):
            expected = names if layout.columns else default[:3]
            raise InputError(f"{self.label}:{self.first}: {self._miscounted(fields, ','.join(expected))}")
        number = names.index(default[2]) if len(default) > 2 and default[2] in names else None
        header = layout.header
        if header is None:
            header = number is not None and fields[number] != "" and not any(map(is_number, fields[: len(names)]))
        if header and layout.columns is None:
            for place, field in enumerate(fields[:needed]):
                others = [name for name in default[:needed] if name != default[place] and len(name) > 1]
                if field.strip().lower().startswith(tuple(others)):
                    named = _in_a_line(fields)
                    raise InputError(
                        f"{self.label}:{self.first}: columns named {named}: say which is which by --columns"
                    )
        if header:
            self.skip_header()
        self.names = [f"-{k}" if name == "-" else name for k, name in enumerate(names)]
        self.names += [f"-{k}" for k in range(len(names), len(fields))]


def _in_a_line(names: list[str]) -> str:
    """Return names for a message; a quoted one may hold line ends."""
    return " ".join(",".join(names).split())


def _separator(separator: str | None, name: str) -> str:
    if separator is None:
        plain = name.lower().removesuffix(".terminals")
        plain = plain.removesuffix(next((end for end in PACKED if plain.endswith(end)), ""))
        return SEPARATORS.get(os.path.splitext(plain)[1], "\t")
    separator = NAMED.get(separator, separator)
    if separator != "::" and (len(separator) != 1 or separator in '"\r\n' or ord(separator) > 127):
        raise UsageError(f"separator {separator!r}: expected one character, '::', tab or blank")
    return separator


def is_number(field: str) -> bool:
    """Return whether a field is written as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field
