"""Parses ratings from delimited text: ``user item rating [time]``, by default in this order.

Ids are whole numbers if all of a side are written as such; otherwise they are strings, and ``7`` and ``07`` differ. All
ratings are held in memory until the last name is known, 20 bytes each (28 with times), and then once more in their
final form.
"""

from __future__ import annotations

import os
import re
from typing import Any, BinaryIO

import numpy as np

from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.ids import IdCollector
from hogwild.data.text.delimited import Delimited, TextLayout
from hogwild.data.text.lines import bad_number
from hogwild.errors import InputError

COLUMNS = ("user", "item", "rating", "time")
DAY = re.compile(r"\d{4}-\d\d-\d\d$")


def parse_ratings(
    text: str | os.PathLike[str] | BinaryIO,
    layout: TextLayout | None = None,
    *,
    values: str = "required",
    progress: BytesRead | None = None,
) -> Ratings:
    """Parse the ratings of a file or of a binary stream.

    Parameters
    ----------
    text : path, or binary stream
        Plain, or compressed by gzip, bzip2 or xz.
    layout : TextLayout, optional
        Its columns are ``user``, ``item``, ``rating`` and ``time``.
    values : {"required", "optional"}
        Whether the rating field may be empty; it is then 0.
    progress : function, optional
        Called with (bytes done, their total or None).

    Returns
    -------
    Ratings
        In the order of the text, repeats included. Without a rating, each line is a rating of 1. Times are numbers
        (truncated to whole ones) or dates (days since 1970).

    Raises
    ------
    InputError
        ``name:line: what`` for a wrong line, a damaged archive or a file without ratings.
    """
    layout = layout or TextLayout()
    table = Delimited(text, layout.separator, progress=progress)
    try:
        table.lay_out(layout, COLUMNS, 2)
        return _collect(table, values == "optional")
    finally:
        table.close()


def _collect(table: Delimited, optional: bool) -> Ratings:
    import pyarrow as pa

    types = {"user": pa.string(), "item": pa.string()}
    if "rating" in table.names:
        types["rating"] = pa.float64()
    if "time" in table.names and table.rows:
        time = dict(zip(table.names, table.rows[0])).get("time", "")  # a short row is refused below
        types["time"] = pa.date32() if DAY.match(time) else pa.int64() if time.isdigit() else pa.float64()
    users, items = IdCollector(), IdCollector()
    ratings: list[np.ndarray] = []
    times: list[np.ndarray] = []
    rows = 0
    for batch in table.batches(types):
        faults = [(users.add(batch.column("user")), "user", "it is empty")]
        faults.append((items.add(batch.column("item")), "item", "it is empty"))
        if "rating" in types:
            numbers = _filled(batch.column("rating"), 0.0 if optional else np.nan)
            with np.errstate(over="ignore"):
                ratings.append(numbers.astype(np.float32))
            faults.append((_first(~np.isfinite(ratings[-1])), "rating", ""))
        else:
            ratings.append(np.ones(len(batch), np.float32))
        if "time" in types:
            column = batch.column("time")
            numbers = _filled(column.cast(pa.int32()) if types["time"] == pa.date32() else column, np.nan)
            faults.append((_first(~(np.abs(numbers) < 2.0**62)), "time", "expected a number or a date"))
            times.append(numbers.astype(np.int64))
        if wrong := [fault for fault in faults if fault[0] >= 0]:
            row, column, expected = min(wrong)
            raise _fault(table, rows + row, column, expected)
        rows += len(batch)
    if rows == 0:
        raise InputError(f"{table.label}:{table.first}: no ratings in it")
    user_indices, user_ids = users.finish()
    item_indices, item_ids = items.finish()
    shape = len(user_ids), len(item_ids)
    flat = user_indices, item_indices, np.concatenate(ratings), shape
    return Ratings(*flat, np.concatenate(times) if times else None, user_ids, item_ids, check=False)


def _filled(column: Any, missing: float) -> np.ndarray:
    """Return a column of numbers with ``missing`` for empty fields."""
    if column.null_count == 0:
        return column.to_numpy()
    return np.where(column.is_null().to_numpy(zero_copy_only=False), missing, column.fill_null(0).to_numpy())


def _first(wrong: np.ndarray) -> int:
    return int(np.argmax(wrong)) if wrong.any() else -1


def _fault(table: Delimited, row: int, column: str, expected: str) -> InputError:
    if not expected and table.again:
        value = table.row(row)[1][table.names.index(column)].strip()
        expected = bad_number(value.encode()) if value else "it is empty, expected a number"
    return table.fault(row, column, expected or "expected a finite number")
