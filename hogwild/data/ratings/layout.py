"""Infers the layout of a text of ratings from its first lines: the separator, a header, and the role of each field.

A line is a header if its third field is not a number, and its first two are not both whole numbers. Its words then name
the columns, if they are usual ones; otherwise columns are user, item, rating, time, as in all public sets.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable

from hogwild.data.text.fields import FieldsLayout
from hogwild.data.text.tokens import quoted

SEPARATORS = {256: b"::", 9: b"\t", 59: b";", 44: b",", 124: b"|"}  # in the order they are tried; 0: blanks
SAID = {256: "'::'", 9: "tabs", 59: "semicolons", 44: "commas", 124: "bars", 0: "blanks"}
MOVIE = re.compile(rb"\d+:$")
QUOTED = re.compile(rb'"[^"]*"')
DAY = re.compile(rb"\d{4}-\d\d-\d\d$")
# Column names in headers; a name only has to contain one of the words.
HEADINGS = (
    ("time", ("time", "date")),
    ("user", ("user", "customer", "uid", "reviewer", "member")),
    ("value", ("rating", "score", "stars", "value", "plays", "count", "weight")),
    ("item", ("item", "movie", "book", "isbn", "product", "asin", "artist", "track", "song", "iid")),
)
WANTED = ("user", "item", "value", "time")


def content_lines(
    buffer: bytearray, size: int, comments: bytes | tuple[bytes, ...] = b"#"
) -> Iterable[tuple[int, bytes]]:
    """Yield ``(start, line)`` of the lines that are neither blank nor comments."""
    at = 0
    while at < size:
        end = buffer.index(b"\n", at)
        line = bytes(buffer[at:end]).strip()
        if line and not line.startswith(comments):
            yield at, line
        at = end + 1


def cut(line: bytes, separator: int) -> list[bytes]:
    """Split a line into fields as a reader would, for the layout and for messages."""
    if b'"' in line and separator != 256:
        blanks = line if separator else line.replace(b"\t", b" ")
        rows = csv.reader([blanks.decode("latin-1")], delimiter=chr(separator or 32), skipinitialspace=True)
        try:
            return [field.strip().encode("latin-1") for field in next(rows)]
        except csv.Error:  # a field is longer than csv allows
            pass
    parts = line.split(SEPARATORS[separator]) if separator else line.split()
    return [part.strip().strip(b'"') for part in parts]


def is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def kind_of_fields(fields: list[bytes], at: int) -> int:
    """How the times at field ``at`` are written: 1 numbers, 2 dates; 0 for anything else, which is passed over."""
    if at < 0 or at >= len(fields):
        return 0
    return 2 if DAY.match(fields[at]) else 1 if is_number(fields[at]) else 0


def is_headed(fields: list[bytes]) -> dict[str, int]:
    """Columns by the names in a header, so far as they are known; empty where user and item are not both."""
    found: dict[str, int] = {}
    for at, name in enumerate(fields):
        text = name.decode("utf-8", "replace").lower()
        for column, words in HEADINGS:
            if any(word in text for word in words):
                found.setdefault(column, at)
                break
    return found if {"user", "item"} <= set(found) else {}


def sniff(buffer: bytearray, size: int, netflix: bool | None = None) -> FieldsLayout | str:
    """Return the layout of a text that begins with ``buffer[:size]``, or a message why it is unknown.

    A header is overwritten by blanks.
    """
    lines = list(itertools.islice(content_lines(buffer, size), 64))
    if not lines:
        return "no ratings in it, expected lines of: user item rating"
    start, line = lines[0]
    if b"\0" in line:
        return f"binary data {quoted(line)}, expected text"
    if netflix or (netflix is None and MOVIE.match(line)):
        return _sniff_netflix([text for _, text in lines])
    # if there are tabs, they separate fields, and blanks are part of names
    unquoted = QUOTED.sub(b"", line)
    separator = next((code for code, text in SEPARATORS.items() if text in unquoted), 0)
    fields = cut(line, separator)
    if len(fields) < 2:
        return (
            f"one field {quoted(line)}, expected: user item rating, separated by blanks, tabs, commas, ';', '|' or '::'"
        )
    whole = all(field.isdigit() for field in fields[:2])  # 1,2,x is a rating that is wrong
    header = len(fields) > 2 and fields[2] and not is_number(fields[2]) and not whole
    bare = len(fields) == 2 and not any(48 <= byte <= 57 for byte in line)  # user_1 is an id, not a heading
    columns = is_headed(fields) if header or bare else {}
    if header or columns:
        end = buffer.index(b"\n", start)
        buffer[start:end] = b" " * (end - start)
        fields = cut(lines[1][1], separator) if len(lines) > 1 else []
    total = len(cut(line, separator))
    places = columns or {name: at for at, name in enumerate(WANTED) if at < total}
    kind = kind_of_fields(fields, places.get("time", -1))
    time = places.get("time", -1) if kind else -1
    return FieldsLayout(separator, total, places["user"], places["item"], places.get("value", -1), time, kind)


def _sniff_netflix(lines: list[bytes]) -> FieldsLayout | str:
    line = next((text for text in lines if not MOVIE.match(text)), b"")
    if not line:
        return "no ratings in it, expected lines of: user,rating,date below a line with the movie's number and a colon"
    fields = cut(line, 44)
    value = 1 if len(fields) > 2 or (len(fields) == 2 and not DAY.match(fields[1])) else -1
    time = value + 1 if value > 0 else 1
    kind = kind_of_fields(fields, time)
    return FieldsLayout(44, len(fields), 0, -1, value, time if kind else -1, kind)
