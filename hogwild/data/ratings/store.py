"""A store of ratings: a directory of plain ``.npy`` files as for rows, with ``"kind": "ratings"`` in its meta data.

``users.npy`` and ``indices.npy`` hold a number for each rating (``indices.npy`` the item's), ``values.npy`` the
ratings, ``times.npy`` the times if there are any. Names are whole numbers in
``user_numbers.npy``, or text in ``user_text.npy`` with the end of each in ``user_ends.npy``; likewise for items.

Checks, the temporary name and the cache are those of ``data/rows/store.py`` and ``data/cache.py``. Ratings
are made in memory before they are written, 12 bytes each (20 with times).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.ratings.container import Ids, Ratings
from hogwild.data.rows.store import Kind, MemoryWriter, StoreWriter, check_range, open_store, read_meta
from hogwild.errors import InputError

NAMES = {"numbers": "<i8", "text": "|u1", "ends": "<i8"}
SIDES = ("user", "item")


def ratings_of(meta: dict[str, Any], arrays: dict[str, np.ndarray], path: str | None) -> Ratings:
    """Return the ratings in a store's arrays."""
    shape = meta["users"], meta["items"]
    for name, size in zip(("users", "indices"), shape):
        check_range(name, arrays[name], size)
    ids = [Ids.from_arrays(arrays, f"{side}_") for side in SIDES]
    for side, size, names in zip(SIDES, shape, ids):
        if names is not None and len(names) != size:
            raise InputError(f"{len(names)} names for {size} {side}s")
    flat = arrays["users"], arrays["indices"], arrays["values"], shape, arrays.get("times")
    return Ratings(*flat, ids[0], ids[1], path, check=False)


_ARRAYS: dict[str, tuple[str, str | None]] = {
    "users": ("<i4", "rows"),
    "indices": ("<i4", "rows"),
    "values": ("<f4", "rows"),
    "times": ("<i8", "rows"),
    **{f"{side}_{name}": (dtype, None) for side in SIDES for name, dtype in NAMES.items()},
}
RATINGS = Kind("ratings", _ARRAYS, tuple(_ARRAYS)[3:], ratings_of)


def put_ratings(ratings: Ratings, writer: MemoryWriter) -> dict[str, Any]:
    """Write ``ratings``; return the facts that go with them."""
    arrays = {"users": ratings.users, "indices": ratings.items, "values": ratings.values, "times": ratings.times}
    for side, ids in zip(SIDES, (ratings.user_ids, ratings.item_ids), strict=True):
        arrays |= {} if ids is None else ids.arrays(f"{side}_")
    writer.put(**arrays)
    n, (users, items) = len(ratings), ratings.shape
    return {"users": users, "items": items, "rows": n, "width": items, "nnz": n}


def save_ratings(
    ratings: Ratings, path: str | Path, meta: dict[str, Any] | None = None, overwrite: bool = False
) -> Path:
    """Write ``ratings`` as a store; ``meta`` holds facts to keep, such as ``source``.

    Raises
    ------
    InputError
        If ``path`` exists (with ``overwrite``, if it is not a store), or a user or item is unknown.
    OutputError
        If it cannot be written.
    """
    if len(ratings) and min(int(ratings.users.min()), int(ratings.items.min())) < 0:
        raise InputError(f"{os.fspath(path)}: ratings of unknown users or items cannot be kept: drop them first")
    with StoreWriter(path, meta, overwrite, RATINGS) as writer:
        return writer.close(**put_ratings(ratings, writer))


def is_rating_store(path: str | Path) -> bool:
    """Return whether ``path`` is a store of ratings whose meta data can be read."""
    try:
        return bool(read_meta(path).get("kind") == RATINGS.name)
    except InputError:
        return False


def open_ratings_store(path: str | Path) -> Ratings:
    """Return a store's ratings, mapped read-only and checked; errors are those of ``open_store``."""
    ratings: Ratings = open_store(path, RATINGS)
    return ratings
