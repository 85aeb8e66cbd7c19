"""Parses ratings from delimited text: ``user item rating [time]``, by default in this order.

Ids are whole numbers if all of a side are written as such; otherwise they are strings, and ``7`` and ``07`` differ. All
ratings are held in memory until the last name is known, 20 bytes each (28 with times), and then once more in their
final form.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import BinaryIO

import numpy as np

from hogwild.data.ids import IdCollector
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import Ratings
from hogwild.data.text.delimited import FLOAT32_END, Delimited, Numbers, TextLayout
from hogwild.errors import InputError

COLUMNS = ("user", "item", "rating", "time")
RATING = Numbers(-FLOAT32_END, FLOAT32_END, "expected a finite number within float32")
TIMES = {
    kind: Numbers(-(2.0**62), 2.0**62, "expected a number or a date", kind)
    for kind in ("double", "int64", "date32[day]")
}
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
        users, items = IdCollector(), IdCollector()
        wanted: dict[str, Numbers | IdCollector] = {"user": users, "item": items}
        if "rating" in table.names:
            wanted["rating"] = RATING if values == "required" else dataclasses.replace(RATING, missing=0.0)
        if "time" in table.names and table.rows:
            time = dict(zip(table.names, table.rows[0])).get("time", "")  # a short row is refused below
            wanted["time"] = TIMES["date32[day]" if DAY.match(time) else "int64" if time.isdigit() else "double"]
        rows, numbers = table.columns(wanted)
    finally:
        table.close()
    if rows == 0:
        raise InputError(f"{table.label}:{table.first}: no ratings in it")
    (user_indices, user_ids), (item_indices, item_ids) = users.finish(), items.finish()
    ratings = numbers["rating"].astype(np.float32) if "rating" in numbers else np.ones(rows, np.float32)
    times = numbers["time"].astype(np.int64) if "time" in numbers else None
    shape = len(user_ids), len(item_ids)
    return Ratings(user_indices, item_indices, ratings, shape, times, user_ids, item_ids, check=False)
