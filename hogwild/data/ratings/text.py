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

from hogwild.data.ids import IdCollector
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import Ratings
from hogwild.data.text.delimited import FLOAT32_END, Delimited, Numbers, TextLayout
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
    table.lay_out(layout, COLUMNS, 2)
    wanted: dict[str, Any] = {"user": IdCollector(), "item": IdCollector()}
    if "rating" in table.names:
        missing, expected = None if values == "required" else 0.0, "expected a finite number within float32"
        wanted["rating"] = Numbers(-FLOAT32_END, FLOAT32_END, expected, missing=missing)
    if "time" in table.names and table.rows:
        time = dict(zip(table.names, table.rows[0])).get("time", "")  # a short row is refused below
        kind = "date32[day]" if DAY.match(time) else "int64" if time.isdigit() else "double"
        wanted["time"] = Numbers(-(2.0**62), 2.0**62, "expected a number or a date", kind)
    rows = table.collect(wanted)
    if rows == 0:
        raise InputError(f"{table.label}:{table.first}: no ratings in it")
    (users, user_ids), (items, item_ids) = (wanted[side].finish() for side in COLUMNS[:2])
    ratings = wanted["rating"].finish(np.float32) if "rating" in wanted else np.ones(rows, np.float32)
    times = wanted["time"].finish(np.int64) if "time" in wanted else None
    return Ratings(users, items, ratings, (len(user_ids), len(item_ids)), times, user_ids, item_ids, check=False)
