"""Hints for a file that cannot be read as the expected format, and for a file name that does not exist.

Only the ends of error messages are made here, after an error, so a run without errors pays nothing.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Collection
from typing import BinaryIO

from hogwild.data.beside import beside
from hogwild.data.public.catalogue import near
from hogwild.data.text.delimited import is_number
from hogwild.data.text.lines import ReadError, Source, chunks
from hogwild.errors import InputError

LINES, LONGEST = 8, 1 << 20  # lines of a file that are looked at; bytes of one
ENTRY = re.compile(rb"\s\d+:[-+.\d][^\s:,]*(\s|$)")
PROBLEM = re.compile(rb"p\s+max\s")
SEPARATORS = ("::", "\t", ";", ",", "|")
MAGIC = {
    b"PAR1": "a Parquet file: --format parquet --label COLUMN",
    b"ARROW1": "an Arrow file: --format arrow --label COLUMN",
    b"%%MatrixMarket": "a MatrixMarket file: read it in Python with scipy.io.mmread",
    b"PK\x03\x04": "a zip archive or a workbook: unpack it, or save it as CSV",
}
MEANT = {
    "svmlight": "svmlight text: it is for --problem linear",
    "ratings": "ratings: --problem completion",
    "graph": "a graph: --problem cuts",
    "table": "a table: name its label column with --label COLUMN, and --format csv",
    "unnamed": "a table: put a line of names above, name its label column with --label COLUMN, and --format csv",
    "blanks": "a table parted by blanks: put commas there, and name its label column with --label COLUMN",
}


def looks_like(name: str | BinaryIO, expected: Collection[str]) -> str:
    """Return ``; it looks like ratings: --problem completion``, or nothing if it looks ``expected`` or unknown."""
    buffer, size = bytearray(), 0
    try:
        if isinstance(name, str) and os.path.isfile(name):  # a pipe can be read only once
            source = Source(name)
            try:
                buffer, size = next(chunks(source, LONGEST, deque()), (buffer, 0))
            finally:
                source.close()
    except (InputError, ReadError):
        return ""
    for magic, meant in MAGIC.items():
        if buffer.startswith(magic) and {"svmlight", "ratings"} & set(expected):
            return f"; it looks like {meant}"
    text = (line.strip() for line in bytes(memoryview(buffer)[:size]).split(b"\n"))
    kind = _kind(list(itertools.islice((line for line in text if line and not line.startswith(b"#")), LINES)))
    return f"; it looks like {MEANT[kind]}" if kind and kind not in expected else ""


def _kind(lines: list[bytes]) -> str:
    """Return a key of ``MEANT``, or nothing."""
    if not lines or max(map(len, lines)) > LONGEST:
        return ""
    if any(PROBLEM.match(line) for line in lines):
        return "graph"
    if any(ENTRY.search(line) for line in lines):
        return "svmlight"
    first = lines[0].decode(errors="replace")
    separator = next((mark for mark in SEPARATORS if mark in first), None)
    rows = [line.decode(errors="replace").split(separator) for line in lines]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return ""
    if _names_ratings(rows[0]) or all(map(_is_rating, rows)):
        return "ratings"
    numbers = all(map(is_number, rows[0]))
    if separator is None:
        return "blanks" if numbers else ""
    return "unnamed" if numbers else "table"


def _names_ratings(row: list[str]) -> bool:
    text = " ".join(row).lower()
    return "user" in text and any(word in text for word in ("item", "movie", "book", "product"))


def _is_rating(row: list[str]) -> bool:
    """Return whether the row may be ``user item rating [time]``, without names."""
    whole = all(field.isdigit() for field in row[:2])
    return whole and len(row) in (3, 4) and all(map(is_number, row[2:]))


def of_columns(names: list[str]) -> str:
    """Return a hint from the first line of a table: it may hold ratings, or have no column names."""
    if _names_ratings(names) or _is_rating(names):
        return "; for ratings, --problem completion"
    return "; a line of names belongs above" if all(map(is_number, names)) else ""


def missing(name: str) -> str:
    """Return ``: did you mean data.gz?`` for a missing file, or say which of its directories is missing."""
    if name == "-":
        return ": standard input is /dev/stdin"
    folder, base = os.path.split(name)
    if folder and not os.path.isdir(folder):
        while not os.path.exists(parent := os.path.dirname(folder) or os.curdir):
            folder = parent
        return f": there is no directory {folder}{beside(*os.path.split(folder))}"
    return beside(folder, base) or ("" if folder else near(base))
