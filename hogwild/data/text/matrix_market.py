"""Reads MatrixMarket files (``.mtx``, plain or compressed) with the same result as ``scipy.io.mmread``.

SciPy's stream reader crashes the interpreter if the banner does not fit the entries, so they are read here: the banner
and the size line strictly, the entries by a pool of threads in the kernel that also reads ratings. Memory is allocated
for what a file holds, never for what its size line claims, and every mistake is reported with file and line.

Coordinate and array files of real, integer or pattern entries are read, general, symmetric or skew-symmetric; complex
ones are refused, as are values beyond float32. Reading takes 16 bytes an entry, and half as many more at the end.

Boisvert, Pozo and Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR 5935, 1996.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np

from hogwild import machine
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.text.fields import PLAIN, Fields, FieldsLayout, line_at, parse_fields
from hogwild.data.text.lines import Source
from hogwild.data.text.pipeline import CHUNK_BYTES, ChunkParser, usual_workers
from hogwild.data.text.tokens import bad_number, line_of, quoted
from hogwild.errors import InputError, expected_one_of

BANNER = "%%MatrixMarket matrix"
WORDS = (
    ("format", ("coordinate", "array")),
    ("field", ("real", "integer", "pattern", "double", "unsigned-integer")),  # two more that scipy accepts
    ("symmetry", ("general", "symmetric", "skew-symmetric")),
)
DECIMAL = re.compile(rb"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?")
ROW_BYTES = 28  # most memory that a row takes without entries: offsets here and in scipy, and a target


class MatrixHeader(NamedTuple):
    """Contents of the banner and the size line."""

    places: bool  # a coordinate file, whose entries name row and column
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int  # lines that follow

    @property
    def whole(self) -> bool:
        return self.field not in ("real", "double", "pattern")

    @property
    def layout(self) -> FieldsLayout:
        """What an entry's fields mean: row and column, value, or all three."""
        value, places = self.field != "pattern", 2 * self.places
        user, item = (0, 1) if places else (-2, -2)
        return FieldsLayout(PLAIN, places + value, user, item, places if value else -2, comments=b"%%")


def read_matrix_market(
    path: str | os.PathLike[str], workers: int | None = None, progress: BytesRead | None = None
) -> Any:
    """Return the matrix in a file.

    Parameters
    ----------
    path : path
        Text, plain or compressed by gzip, bzip2 or xz.
    workers : int, optional
        Threads that parse; by default one for each core available to this process, up to 8.
    progress : function, optional
        Called from this thread with the bytes of the file done and their total.

    Returns
    -------
    scipy.sparse.coo_array, or for an array file np.ndarray, of float64
        A symmetric matrix has both triangles.

    Raises
    ------
    InputError
        ``name:line: what`` for the first line that is wrong, or a damaged archive.
    """
    with Source(path) as source, ChunkParser(workers or usual_workers(), CHUNK_BYTES) as parser:
        return _Reader(source, parser).read(progress)


def check_room(rows: int) -> None:
    """Raise InputError if ``rows`` rows, which a file can claim in a few bytes, need more memory than there is."""
    machine.check_memory(f"{rows:,} rows", rows * ROW_BYTES)


class _Reader:
    """Collects the blocks of entries of a file, in order."""

    def __init__(self, source: Source, parser: ChunkParser) -> None:
        self.source, self.parser = source, parser
        self.header: MatrixHeader | None = None
        self.banner: tuple[str, ...] = ()
        self.entries = 0
        self.blocks: list[Fields] = []

    def fail(self, line: int, what: str) -> InputError:
        return self.parser.fault(self.source, line, what)

    def fail_at_end(self, what: str) -> InputError:
        return self.fail(0 if self.parser.lines else 1, what)

    def read(self, progress: BytesRead | None) -> Any:
        _parse(bytearray(b"\n"), 1, MatrixHeader(True, "real", "", (0, 0), 0))  # compiles where Ctrl-C is noticed
        for chunk in self.parser.each(self.source, self.parse, self.read_header, progress):
            self.add(chunk.block, chunk.buffer)
        return self.finish()

    def read_header(self, buffer: bytearray, size: int) -> bool:
        """Read the lines before the entries unless they are known; return whether they are now."""
        at = line = 0
        while at < size and self.header is None:
            line, end = line + 1, buffer.index(b"\n", at)
            text = bytes(buffer[at:end]).strip()
            try:
                if not self.banner:
                    self.banner = _read_banner(text)
                elif text and not text.startswith(b"%"):
                    self.header = _read_sizes(text, self.banner)
                    buffer[at:end] = b" " * (end - at)
            except ValueError as error:
                raise self.fail(line, str(error)) from None
            at = end + 1
        return self.header is not None

    def parse(self, buffer: bytearray, size: int) -> Fields:
        assert self.header is not None
        return _parse(buffer, size, self.header)

    def add(self, block: Fields, buffer: bytearray) -> None:
        assert self.header is not None
        faults, expected = [block.error] if block.error else [], self.header.entries
        if self.entries + len(block.values) > expected:
            what = f"more than the {expected:,} entries that the size line tells of"
            faults.append((line_of(buffer, expected - self.entries, b"%"), what))
        if faults:
            raise self.fail(*min(faults))
        self.entries += len(block.values)
        self.blocks.append(block)

    def finish(self) -> Any:
        """Return the matrix, once all is read."""
        if self.header is None:
            what = "no size line" if self.banner else f"an empty file, expected {BANNER} ..."
            raise self.fail_at_end(what)
        if self.entries < self.header.entries:
            told = f"{self.entries:,} entries, but the size line tells of {self.header.entries:,}"
            raise self.fail_at_end(f"the file ends after {told}: is it cut short?")
        blocks, self.blocks = self.blocks, []
        values = np.concatenate([block.values for block in blocks] or [np.empty(0)])
        if not self.header.places:
            return _unfold(values, self.header)
        import scipy.sparse

        none = np.empty(0, np.int32)
        rows, columns = (np.concatenate([block.numbers[side] for block in blocks] or [none]) for side in (0, 1))
        del blocks
        if self.header.symmetry != "general":
            off = np.flatnonzero(rows != columns)
            sign = -1.0 if self.header.symmetry == "skew-symmetric" else 1.0
            rows, columns = np.concatenate((rows, columns[off])), np.concatenate((columns, rows[off]))
            values = np.concatenate((values, sign * values[off]))
        return scipy.sparse.coo_array((values, (rows, columns)), shape=self.header.shape)


def _unfold(values: np.ndarray, header: MatrixHeader) -> np.ndarray:
    """Return the dense matrix whose columns, or their parts on or below the diagonal, are stored one after another."""
    if header.symmetry == "general":
        return values.reshape(header.shape, order="F")
    size, skew = header.shape[0], header.symmetry == "skew-symmetric"
    matrix = np.zeros(header.shape)
    upper = np.triu_indices(size, 1 if skew else 0)  # by rows, as the lower triangle goes by columns
    matrix[upper[::-1]] = values
    matrix[upper] = -values if skew else values
    return matrix


def _read_banner(line: bytes) -> tuple[str, ...]:
    """Return format, field and symmetry; ValueError says what is wrong with the line."""
    words = [word.decode("latin-1").lower() for word in line.split()]
    if words[:2] != BANNER.lower().split():
        raise ValueError(f"{quoted(line)}, expected {BANNER} coordinate real general, or the like")
    if len(words) != 5:
        raise ValueError(f"{len(words)} words in {quoted(line)}, expected {BANNER} format field symmetry")
    for word, (what, choices) in zip(words[2:], WORDS, strict=True):
        if word not in choices:
            shown = quoted(word.encode("latin-1"))
            raise ValueError(f"{what} {shown}: {expected_one_of(choices, word)}")
    if words[2:4] == ["array", "pattern"]:
        raise ValueError("an array of pattern has no values, expected real or integer")
    return tuple(words[2:])


def _read_sizes(line: bytes, banner: tuple[str, ...]) -> MatrixHeader:
    """Return the contents of the size line; ValueError says what is wrong with it."""
    form, field, symmetry = banner
    words = line.split()
    expected = "rows, columns and entries" if form == "coordinate" else "rows and columns"
    if len(words) != (3 if form == "coordinate" else 2) or not all(word.isdigit() for word in words):
        raise ValueError(f"a size line {quoted(line)}, expected {expected} as whole numbers")
    if max(map(len, words)) > 18:
        raise ValueError(f"sizes {quoted(line)} are too large")
    rows, columns, *entries = map(int, words)
    if max(rows, columns) > INDEX_LIMIT:
        raise ValueError(f"{rows} rows and {columns} columns: at most {INDEX_LIMIT} are supported")
    if symmetry != "general" and rows != columns:
        raise ValueError(f"{rows} rows and {columns} columns: a {symmetry} matrix is square")
    below = rows * (rows - 1) // 2
    stored = {"general": rows * columns, "symmetric": below + rows, "skew-symmetric": below}[symmetry]
    return MatrixHeader(form == "coordinate", field, symmetry, (rows, columns), entries[0] if entries else stored)


# -- the entries ------------------------------------------------------------------------------------------------------


def _parse(buffer: bytearray, size: int, header: MatrixHeader) -> Fields:
    """Parse the entries of ``buffer[:size]``, on a thread of the pool."""
    fields = parse_fields(buffer, size, header.layout)
    wrong = np.zeros(len(fields.values), bool)
    if header.places:
        for numbers, limit in zip(fields.numbers, header.shape, strict=True):
            wrong |= (numbers < 1) | (numbers > limit)
    if header.whole:
        wrong |= fields.values != np.floor(fields.values)
    fields.numbers = [(numbers - 1).astype(np.int32) for numbers in fields.numbers] if header.places else []
    fields.spans = fields.spans[:0].copy()
    faults = [line_at(buffer, fields.fault[1])[0]] if fields.fault else []
    faults += [line_of(buffer, int(np.argmax(wrong)), b"%")] if wrong.any() else []
    if faults:
        fields.error = min(faults), _describe(bytes(buffer).split(b"\n", min(faults))[min(faults) - 1], header)
    return fields


def _describe(line: bytes, header: MatrixHeader) -> str:
    """Return what is wrong with a line of an entry."""
    from hogwild.data.text.parse_kernel import FLOAT32_END

    names = ["row", "column"] * header.places + ["value"] * (header.field != "pattern")
    words, expected = line.split(), " ".join(names)
    for name, word, limit in zip(names, words, (*header.shape, 0) if header.places else (0,), strict=False):
        if name == "value":
            if not DECIMAL.fullmatch(word) or not abs(float(word)) < FLOAT32_END:
                return f"bad value {quoted(word)}: {bad_number(word)}"
            if header.whole and not float(word).is_integer():
                return f"bad value {quoted(word)}: expected a whole number"
        elif not word.isdigit():
            return f"bad {name} {quoted(word)}: expected a whole number"
        elif not word.strip(b"0"):
            return f"{name} 0, but they count from 1"
        elif len(word) > 18 or int(word) > limit:
            return f"{name} {quoted(word)} is beyond the {limit} of the size line"
    if len(words) < len(names):
        return f"no {names[len(words)]}, expected: {expected}"
    return f"{quoted(words[len(names)])} is one too many, expected: {expected}"
