"""Delimited text (ratings, edges, CSV, TSV), parsed by pyarrow a block at a time, whose errors name the line.

The text is decompressed by ``lines.py``; leading comment lines and a header are skipped here. Blocks of whole rows are
parsed on several threads. An error of pyarrow names a row of its block, of which Python's csv then gives the line and
the value. For a value that is refused later the text is read again; a pipe cannot be, and such an error names the row.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from hogwild.data.ids import IdCollector
from hogwild.data.parallel import BytesRead, in_order
from hogwild.data.text.lines import PACKED, ReadError, Source, chunks, shown_word
from hogwild.errors import InputError, UsageError

BLOCK = 1 << 20  # bytes parsed at a time; with its columns it stays in the second-level cache
LONGEST = 16  # blocks that a quoted value may take
FLOAT32_END = 3.4028235677973366e38  # from here on float32 rounds to infinity
COMMENTS = (b"#", b"%")
SEPARATORS = {".csv": ",", ".dat": "::", ".txt": " "}  # of each suffix; of others a tab
NAMED = {"tab": "\t", "blank": " "}
SAID = {",": "commas", ";": "semicolons", "\t": "tabs", " ": "single blanks", "|": "bars", "::": "'::'"}
EXPECTED = {"double": "a number", "int64": "a whole number", "date32[day]": "a date such as 2005-09-06"}
NOT_TEXT = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive, a workbook or .npz under another name",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


@dataclass(frozen=True)
class TextLayout:
    """The layout of a text, as far as a user says it.

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

    def check(self, title: str, kind: str, text: str) -> None:
        """Refuse a layout for data of another kind than ``text``."""
        if kind != text and self != TextLayout():
            raise UsageError(f"{title}: --columns, --separator and --header are for {text} in text; got {kind}")


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: ``low <= x < high``; ``missing`` stands for an empty field."""

    low: float
    high: float
    expected: str
    type: str = "double"  # of pyarrow
    missing: float | None = None

    def of(self, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of a pyarrow array, and which of them are wrong."""
        if self.type == "date32[day]":
            column = column.cast("int32")
        numbers = (column.fill_null(self.missing or 0) if column.null_count else column).to_numpy()
        wrong = ~((numbers >= self.low) & (numbers < self.high))
        if column.null_count and self.missing is None:
            wrong |= column.is_null().to_numpy(zero_copy_only=False)
        return numbers, wrong


class Delimited:
    """A text of rows with one number of columns.

    Parameters
    ----------
    what : path or binary stream
        Text in UTF-8, plain or compressed by gzip, bzip2 or xz.
    separator : str, optional
    lead : function of (line number, line), optional
        Returns whether a line before the first row is skipped; by default comments are.
    newlines : bool
        Whether a quoted value may hold line ends.
    null_values : list of str, optional
        Texts that are no number; by default only the empty one.
    progress : function, optional

    Attributes
    ----------
    names : list of str
        Name of each column, to be set before rows are read.
    rows : list of list of str
        Fields of the first two rows.
    """

    def __init__(
        self,
        what: str | os.PathLike[str] | BinaryIO,
        separator: str | None = None,
        *,
        lead: Callable[[int, bytes], bool] | None = None,
        newlines: bool = False,
        null_values: list[str] | None = None,
        progress: BytesRead | None = None,
    ) -> None:
        self.what = what
        self.newlines = newlines
        self.progress = progress
        self.null_values = null_values or [""]
        self.label = Source(what).label if not isinstance(what, str | os.PathLike) else os.fspath(what)
        self.start = what.tell() if self._seekable() else None  # type: ignore[union-attr]
        self.separator = _separator(separator, self.label)
        self.names: list[str] = []
        self.hint = ""
        self.first = 1  # line of the first row
        self._source: Source | None = None
        self._rest = b""
        self._pieces = self._read()
        self._begin(lead or (lambda number, line: line.startswith(COMMENTS)))
        self.rows = [fields for _, fields in itertools.islice(self._parse([self._rest]), 2)]

    def _seekable(self) -> bool:
        return not isinstance(self.what, str | os.PathLike) and hasattr(self.what, "seekable") and self.what.seekable()

    @property
    def again(self) -> bool:
        """Whether the text can be read again."""
        return self.start is not None or (isinstance(self.what, str | os.PathLike) and os.path.isfile(self.what))

    def close(self) -> None:
        """Stop reading."""
        if self._source is not None:
            self._source.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[bytes]:
        """Yield the text from its beginning in blocks of whole lines."""
        if self.start is not None:
            self.what.seek(self.start)  # type: ignore[union-attr]
        source = self._source = Source(self.what)
        lines = self._quotes = 0
        try:
            for buffer, size in chunks(source, BLOCK, deque()):
                text = bytes(memoryview(buffer)[:size])
                if lines == 0:
                    if magic := next((what for magic, what in NOT_TEXT.items() if text.startswith(magic)), None):
                        raise InputError(f"{self.label}: {magic}, expected text in UTF-8")
                    text = text.removeprefix(b"   ")  # which lines.py puts for a byte order mark
                    if b"\n" not in text[:-1] and b"\r" in text.removesuffix(b"\n")[:-1]:
                        raise InputError(f"{self.label}: lines end in a carriage return alone, expected LF or CR LF")
                if (zero := text.find(0)) >= 0:
                    lines += text.count(b"\n", 0, zero)
                    raise ReadError("binary data (a zero byte), expected text")
                lines += _count(text, b"\n")
                yield text
                if self.progress is not None:
                    self.progress(source.done, source.total)
        except ReadError as error:
            raise InputError(f"{self.label}:{lines + 1}: {error}") from None
        finally:
            source.close()

    def _begin(self, lead: Callable[[int, bytes], bool]) -> None:
        """Skip the lines before the first row."""
        for text in self._pieces:
            at = 0
            while at < len(text):
                end = text.index(b"\n", at) + 1
                line = text[at:end].strip()
                if line and not lead(self.first, line):
                    self._rest = text[at:]
                    return
                self.first += 1
                at = end

    def skip_header(self) -> None:
        """Take the first row for the names of the columns."""
        reader = csv.reader(_lines(self._rest), delimiter=self.separator[0])
        next(reader)
        for _ in range(reader.line_num):
            self._rest = self._rest[self._rest.index(b"\n") + 1 :]
        self.first += reader.line_num
        self.rows = self.rows[1:]

    def _again(self) -> Iterator[bytes]:
        """Return the rows' text once more, after the reader before has stopped."""
        self.close()
        return self._read_rows()

    def _read_rows(self) -> Iterator[bytes]:
        skip = self.first - 1
        for text in self._read():
            at = 0
            while skip and at < len(text):
                at = text.index(b"\n", at) + 1
                skip -= 1
            yield text[at:]

    def batches(self, types: Mapping[str, Any], threads: bool = True) -> Iterator[Any]:
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
        parsing = reader.ParseOptions(delimiter=self.separator[0], newlines_in_values=self.newlines)
        converting = reader.ConvertOptions(
            column_types={name: kind for name, kind in types.items() if kind},
            include_columns=list(types),
            null_values=self.null_values,
        )

        def parse(block: tuple[int, bytes]) -> Any:
            reading = reader.ReadOptions(column_names=names, block_size=len(block[1]) + 1, use_threads=False)
            try:
                return reader.read_csv(pa.BufferReader(block[1]), reading, parsing, converting)
            except pa.ArrowInvalid as error:
                raise self._explained(str(error), block, types, names) from None

        pieces = itertools.chain([self._rest], self._pieces) if self._rest else self._again()
        self._rest = b""
        if self.rows:
            for table in in_order(self._whole_rows(pieces), parse):
                yield from table.to_batches()

    def _whole_rows(self, pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the line that each block begins at and the block, which no quoted value crosses."""
        line, open_text = self.first, b""
        for piece in pieces:
            text = open_text + piece if open_text else piece
            open_text = text if self.newlines and len(text) < LONGEST * BLOCK and _count(text, b'"') % 2 else b""
            if not open_text:
                if not text.isspace():
                    yield line, text
                line += _count(text, b"\n")
        if open_text:
            for _ in self._parse([open_text], line, strict=True):
                pass
            yield line, open_text

    def columns(self, wanted: Mapping[str, Numbers | IdCollector]) -> tuple[int, dict[str, np.ndarray]]:
        """Read all rows; return how many there are, and the columns of numbers. Collectors take the names.

        Raises
        ------
        InputError
            For the first wrong row; the message names its line, the column and the value.
        """
        types = {name: rule.type if isinstance(rule, Numbers) else "string" for name, rule in wanted.items()}
        parts: dict[str, list[np.ndarray]] = {name: [] for name, kind in types.items() if kind != "string"}
        rows = 0
        for batch in self.batches(types):
            faults = []
            for name, rule in wanted.items():
                if isinstance(rule, Numbers):
                    numbers, wrong = rule.of(batch.column(name))
                    parts[name].append(numbers)
                    at, expected = int(np.argmax(wrong)) if wrong.any() else -1, rule.expected
                else:
                    at, expected = rule.add(batch.column(name)), "it is empty"
                if at >= 0:
                    faults.append((at, name, expected))
            if faults:
                row, name, expected = min(faults)
                raise self.fault(rows + row, name, expected)
            rows += len(batch)
        return rows, {name: np.concatenate(arrays) for name, arrays in parts.items() if arrays}

    # -- faults -------------------------------------------------------------------------------------------------------

    def _parse(
        self, text: Iterable[bytes], line: int | None = None, strict: bool = False
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the line that each row begins at and its fields, as Python's csv reads them."""
        limit = csv.field_size_limit(LONGEST * BLOCK)
        begin = first = self.first if line is None else line
        try:
            lines = itertools.chain.from_iterable(map(_lines, text))
            reader = csv.reader(lines, delimiter=self.separator[0], strict=strict)
            for fields in reader:
                if fields:
                    yield begin, fields[::2] if self.separator == "::" else fields
                begin = first + reader.line_num
        except csv.Error as error:
            if strict and "end of data" in str(error):
                raise InputError(f"{self.label}:{begin}: a quote in this row is never closed") from None
        finally:
            csv.field_size_limit(limit)

    def row(self, number: int) -> tuple[int, list[str]]:
        """Return the line that a row, counted from 0, begins at, and its fields."""
        return next(itertools.islice(self._parse(self._again()), number, None), (self.first, []))

    def fault(self, row: int, column: str, expected: str) -> InputError:
        """Return the error for a value: ``ratings.csv:7: bad rating 'x': expected a number``."""
        line, fields = self.row(row) if self.again else (0, [])
        return self._bad(column, expected, line, fields) or InputError(
            f"{self.label}: row {row + 1}: bad {column}: {expected}"
        )

    def _bad(self, column: str, expected: str, line: int, fields: list[str]) -> InputError | None:
        """Return the error for a value, None if the row has none, as where pyarrow and Python's csv differ."""
        value = dict(zip(self.names, fields)).get(column)
        if value is None:
            return None
        if any("\udc80" <= character <= "\udcff" for character in value):
            expected = "it is not UTF-8: convert the file first"
        return InputError(f"{self.label}:{line}: bad {column} {shown_word(value)}: {expected}")

    def _explained(
        self, reason: str, block: tuple[int, bytes], types: Mapping[str, Any], names: list[str]
    ) -> InputError:
        """Return the error that pyarrow means, by the row and column it names."""
        number, column = re.search(r"Row #(\d+)", reason), re.search(r"column #(\d+)", reason)
        rows = self._parse([block[1]], block[0])
        line, fields = next(itertools.islice(rows, int(number[1]) - 1, None), (0, [])) if number else (0, [])
        if column is None and fields:
            expected = _in_a_line(self.names) if len(self.names) <= 8 else f"{len(self.names)}"
            return InputError(f"{self.label}:{line}: {self._miscounted(fields, expected)}")
        name = names[int(column[1])] if column else ""
        expected = f"expected {EXPECTED.get(str(types.get(name)), 'text')}"
        return self._bad(name, expected, line, fields) or InputError(f"{self.label}: {' '.join(reason.split())}")

    def _miscounted(self, fields: list[str], expected: str) -> str:
        if self.separator == " " and "" in fields:
            return "runs of blanks: make each of them one blank with tr -s ' '"
        number = f"{len(fields)} field{'s' * (len(fields) != 1)} in {shown_word(self.separator.join(fields))}"
        said = SAID.get(self.separator, repr(self.separator))
        return f"{number}, expected {expected} separated by {said}{self.hint}"

    # -- layouts ------------------------------------------------------------------------------------------------------

    def lay_out(self, layout: TextLayout, default: tuple[str, ...], needed: int) -> None:
        """Name the columns by the layout, or by default as many of ``default`` as there are; skip a header.

        Parameters
        ----------
        layout : TextLayout
        default : tuple of str
            The third is a number.
        needed : int
            How many of them a text must have.
        """
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


def _count(text: bytes, character: bytes) -> int:
    """Number of times a character occurs, eight times as fast as bytes.count."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord(character)))


def _in_a_line(names: list[str]) -> str:
    """Return names for a message; a quoted one may hold line ends."""
    return " ".join(",".join(names).split())


def _lines(text: bytes) -> Iterator[str]:
    return io.TextIOWrapper(io.BytesIO(text), "utf-8", "surrogateescape", newline="")


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
