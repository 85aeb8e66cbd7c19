"""Tables about users or items: what they have in common, as features for training; and titles to show.

A row holds an id in its first column; an id may have several rows. Every other column says something: text is a
category, or several between bars (``Comedy|Drama``), as is a list; numbers are cut into ten ranges of about as many
rows each, and a column of zeros and ones is a feature where it is one. What is no number in such a column, and no text
either (NaN, infinities, nothing), says nothing. A value that one row alone has is left out, since it tells nothing
about another. Such tables are small beside the ratings, so Python's csv reads them; pyarrow cannot: titles hold single
colons between ``::``, and quotes that are never closed, and MovieLens' are not UTF-8.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.data.ids import Ids, whole_number
from hogwild.data.tables.files import open_source, table_format
from hogwild.data.text.delimited import Delimited
from hogwild.errors import InputError

SEPARATORS = {".csv": ",", ".tsv": "\t", ".dat": "::"}
LIKELY = ("::", "\t", ";", "|", ",")  # where the suffix tells nothing, the first of these in the first line
RANGES = 10
TITLES = ("title", "name")


def read_features(table: Any, ids: Ids | None, size: int, side: str) -> tuple[Any, Ids | None]:
    """Return features as a CSR float32 array (users or items, features), and the ids with those that the table adds.

    Parameters
    ----------
    table : path, frame, or matrix
        A matrix has a row for each of ``size`` users or items, in the order of the ratings, and is taken as it is.
    ids : Ids, optional
        Names in the ratings; without them, a name is a number, and others are refused.
    side : {"user", "item"}

    Raises
    ------
    InputError
        One line that names the table.
    """
    import scipy.sparse

    if scipy.sparse.issparse(table) or isinstance(table, np.ndarray):
        if table.ndim != 2 or table.dtype.kind not in "buif" or table.shape[0] != size or not table.shape[1]:
            wanted = f"{side} features need numbers for {size:,} {side}s, a row each"
            raise InputError(f"{wanted}; got {table.dtype} of shape {table.shape}")
        matrix = scipy.sparse.csr_array(table, dtype=np.float32)
        if not np.isfinite(matrix.data).all():
            raise InputError(f"{side} features: a value is not finite")
        return matrix, ids
    name, lines, names, numbers, columns = _read(table, ids, size, f"{side}s is in the ratings")
    new = np.flatnonzero(numbers < 0)
    if len(new) and ids is None:
        where = f"{name}:{lines[new[0]]}: {side} {names[new[0]]}"
        raise InputError(f"{where} is not among the {size:,} of the ratings")
    if ids is not None:
        added, places = np.unique([str(names[at]) for at in new], return_inverse=True)
        numbers[new] = size + places
        typed = map(whole_number, added) if ids.whole else added
        more = (name if number is None else number for name, number in zip(added.tolist(), typed))
        ids = Ids([*ids.names().tolist(), *more], check=False)
        size = len(ids)
    features: dict[tuple[str, str], int] = {}
    pairs = [
        (number, features.setdefault((column, cell), len(features)))
        for column, values in columns.items()
        for number, cells in zip(numbers.tolist(), _cells(values))
        for cell in cells
    ]
    rows, places = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0).T
    entries = np.ones(len(rows), np.float32), (rows, places)
    matrix = scipy.sparse.csr_array(entries, shape=(size, len(features)))
    shared = np.bincount(places, minlength=len(features)) > 1
    if not shared.any():
        raise InputError(f"{name}: no two {side}s share a value, so nothing can be learned from it")
    return matrix[:, np.flatnonzero(shared)].tocsr(), ids


def read_titles(table: Any, ids: Ids | None, size: int) -> dict[Any, str]:
    """Return a title of each item by its name: of the column ``title`` or ``name``, or the one after the id.

    An item without one has its name for a title.
    """
    *_, numbers, columns = _read(table, ids, size, "items is in the model")
    known = (np.arange(size) if ids is None else ids.names()).tolist()
    titles = dict(zip(known, map(str, known)))
    column = next((each for each in columns if each.lower() in TITLES), next(iter(columns)))
    for number, title in zip(numbers, columns[column]):
        if number >= 0 and title not in (None, ""):
            titles[known[number]] = " ".join(str(title).split())
    return titles


def _read(table: Any, ids: Ids | None, size: int, known: str) -> tuple[str, list[int], list[Any], np.ndarray, Any]:
    """Return what a table is called, the line or row of each of its ids, these, their numbers, -1 for unknown ones, and
    its other columns by name.

    Raises
    ------
    InputError
        Also if no id is one of ``ids``, whose place is ``known``.
    """
    ids = Ids(np.arange(size), check=False) if ids is None else ids
    path = isinstance(table, str | os.PathLike)
    if path and table_format(os.fspath(table)) not in ("parquet", "arrow"):
        name, lines, head, rows = _read_text(os.fspath(table), ids)
        values = [list(column) for column in zip(*rows)]
    else:
        source = open_source(table)
        whole: Any = source._reading(source.data.to_table)  # type: ignore[attr-defined]
        name, head, values = source.name, source.names, [column.to_pylist() for column in whole.columns]
        lines = [*range(1, len(whole) + 1)]
    if not values or not values[0]:
        raise InputError(f"{name}: no rows in it")
    if len(head) < 2:
        raise InputError(f"{name}: one column, {head[0]!r}; expected an id and others, such as item,genre")
    for row, each in enumerate(values[0]):
        if each is None or each != each or not str(each).strip():
            raise InputError(f"{name}:{lines[row]}: the id is empty")
        if isinstance(each, float) and each.is_integer():  # of a frame's column that was not whole once
            values[0][row] = int(each)
    numbers = ids.lookup(values[0])
    if (numbers < 0).all():
        raise InputError(f"{name}: none of its {known}; the first is {values[0][0]!r}")
    return name, lines, values[0], numbers, dict(zip(head[1:], values[1:]))


def _read_text(path: str, ids: Ids) -> tuple[str, list[int], list[str], list[list[str]]]:
    """Return the name, the line of each row, the columns' names, and the rows of text.

    The first line is a header unless its id is in the ratings, or is a number.
    """
    source = Delimited(path, lead=lambda *_: False)  # for its bytes: rows are cut below
    data = b"".join(text for _, text in source.blocks())
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # as MovieLens is
    begin = text.partition("\n")[0]
    usual = next((mark for end, mark in SEPARATORS.items() if path.lower().removesuffix(".gz").endswith(end)), "")
    separator = next((mark for mark in (usual, *LIKELY) if mark and mark in begin), ",")
    if separator == "::":
        text, separator = text.replace("::", "\t"), "\t"
    source.separator = separator
    quoting = csv.QUOTE_MINIMAL if separator in ",;" else csv.QUOTE_NONE
    cells = [*source.fields((source.first, text.encode()), strict=True, quoting=quoting)]
    lines, rows = [line for line, _ in cells], [[cell.strip() for cell in row] for _, row in cells]
    if not rows:
        raise InputError(f"{path}: no rows in it")
    width = len(rows[0])
    for line, row in zip(lines, rows):
        if len(row) != width:
            raise InputError(f"{path}:{line}: {len(row)} fields, expected {width} separated by {separator!r}")
    first = rows[0][0]
    if whole_number(first) is None and ids.lookup([first])[0] < 0:
        return path, lines[1:], rows[0], rows[1:]
    return path, lines, [f"column {place + 1}" for place in range(width)], rows


def _cells(values: list[Any]) -> Iterator[list[str]]:
    """Yield the categories of each value of a column."""
    try:
        numbers = np.array([np.nan if value in (None, "") else float(value) for value in values])
    except (TypeError, ValueError):
        for value in values:
            parts = (
                value
                if isinstance(value, list | tuple | np.ndarray)
                else str("" if value is None else value).split("|")
            )
            yield [str(part).strip() for part in parts if str(part).strip()]
        return
    numbers[np.isinf(numbers)] = np.nan
    different = np.unique(numbers[~np.isnan(numbers)])
    flag = set(different.tolist()) <= {0.0, 1.0}
    edges = different[1:]
    if len(different) > RANGES:
        edges = np.unique(np.nanquantile(numbers, np.arange(1, RANGES) / RANGES))
    places = np.searchsorted(edges, numbers, side="right")
    for number, place in zip(numbers, places.tolist()):
        yield [] if np.isnan(number) or (flag and number == 0) else [str(place)]
