"""What may be meant by a file that cannot be read as what it was given for, and by a name that no file has.

Only the ends of messages are made here, after an error, so nothing of it costs a run that goes well.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Collection
from typing import BinaryIO

from hogwild.data.catalogue import near
from hogwild.data.rating_layout import SEPARATORS, _headed, _is_number, _kind_of, content_lines, cut
from hogwild.data.text import ReadError, Source, chunks
from hogwild.errors import InputError, nearest

LINES, LONGEST = 8, 1 << 20  # how many of a file are looked at; bytes of one
NAMES = 5000  # of a directory
ENTRY = re.compile(rb"\s\d+:[-+.\d][^\s:,]*(\s|$)")
PROBLEM = re.compile(rb"p\s+max\s")
MAGIC = {b"PAR1": "a Parquet file: --format parquet --label COLUMN",
         b"ARROW1": "an Arrow file: --format arrow --label COLUMN",
         b"PK\x03\x04": "a zip archive or a workbook: unpack it, or save it as CSV"}  # fmt: skip
MEANT = {
    "svmlight": "svmlight text: it is for --problem linear",
    "ratings": "ratings: --problem completion",
    "graph": "a graph: --problem cuts",
    "table": "a table: name its label column with --label COLUMN, and --format csv",
    "unnamed": "a table: put a line of names above, name its label column with --label COLUMN, and --format csv",
    "blanks": "a table parted by blanks: put commas there, and name its label column with --label COLUMN",
}
PACKED = (".gz", ".bz2", ".xz")


def looks_like(name: str | BinaryIO, expected: Collection[str]) -> str:
    """``; it looks like ratings: --problem completion``; nothing if it looks ``expected``, or like nothing known."""
    buffer, size = bytearray(), 0
    try:
        if isinstance(name, str) and os.path.isfile(name):  # a pipe is read only once
            source = Source(name)
            try:
                buffer, size = next(chunks(source, LONGEST, deque()), (buffer, 0))
            finally:
                source.close()
    except (InputError, ReadError):
        return ""
    for magic, meant in MAGIC.items():
        if buffer.startswith(magic) and "svmlight" in expected:
            return f"; it looks like {meant}"
    kind = _kind(list(itertools.islice((line for _, line in content_lines(buffer, size)), LINES)))
    return f"; it looks like {MEANT[kind]}" if kind and kind not in expected else ""


def _kind(lines: list[bytes]) -> str:
    """A key of ``MEANT``, or nothing."""
    if not lines or max(map(len, lines)) > LONGEST:
        return ""
    if any(PROBLEM.match(line) for line in lines):
        return "graph"
    if any(ENTRY.search(line) for line in lines):
        return "svmlight"
    separator = next((code for code, mark in SEPARATORS.items() if mark in lines[0]), 0)
    rows = [cut(line, separator) for line in lines]
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return ""
    if _headed(rows[0]) or all(map(_is_rating, rows)):
        return "ratings"
    numbers = all(map(_is_number, rows[0]))
    if separator == 0:
        return "blanks" if numbers else ""
    return "unnamed" if numbers else "table"


def _is_rating(row: list[bytes]) -> bool:
    """Whether it may be ``user item rating [time]``, without names."""
    whole = all(field.isdigit() for field in row[:2])
    return whole and len(row) in (3, 4) and _is_number(row[2]) and (len(row) == 3 or _kind_of(row, 3) > 0)


def of_columns(names: list[str]) -> str:
    """The same by the first line of a table: it may be ratings, or have no names in it."""
    fields = [name.encode(errors="replace") for name in names]
    if _headed(fields) or _is_rating(fields):
        return "; for ratings, --problem completion"
    return "; a line of names belongs above" if all(map(_is_number, fields)) else ""


def missing(name: str) -> str:
    """``: did you mean data.gz?`` for the name of a file that is not there, or what is not there of its directories."""
    folder, base = os.path.split(name)
    if folder and not os.path.isdir(folder):
        while not os.path.exists(parent := os.path.dirname(folder) or os.curdir):
            folder = parent
        return f": there is no directory {folder}{_beside(*os.path.split(folder))}"
    return _beside(folder, base) or ("" if folder else near(base))


def _beside(folder: str, base: str) -> str:
    """The same for one of the names in a directory."""
    try:
        with os.scandir(folder or os.curdir) as entries:
            found = {entry.name: os.path.join(folder, entry.name) for entry in itertools.islice(entries, NAMES)}
    except OSError:
        found = {}
    if same := sorted(each for each in found if _bare(each) == _bare(base)):
        return f": did you mean {found[same[0]]}?"
    return nearest(base, (), 0.75, {each.lower(): path for each, path in found.items()})


def _bare(name: str) -> str:
    return name.lower().removesuffix(next((end for end in PACKED if name.lower().endswith(end)), ""))
