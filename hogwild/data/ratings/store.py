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

from hogwild.data.cache import Cache, Recipe
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.data.rows.store import StoreWriter, check_range, damaged, open_arrays, read_meta, usable
from hogwild.errors import InputError

KIND = "ratings"
NAMES = {"numbers": "<i8", "text": "|u1", "ends": "<i8"}
SIDES = ("user", "item")
ARRAYS: dict[str, tuple[str, str | None]] = {
    "users": ("<i4", "rows"),
    "indices": ("<i4", "rows"),
    "values": ("<f4", "rows"),
    "times": ("<i8", "rows"),
    **{f"{side}_{name}": (kind, None) for side in SIDES for name, kind in NAMES.items()},
}


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
    arrays = {"users": ratings.users, "indices": ratings.items, "values": ratings.values, "times": ratings.times}
    for side, ids in zip(SIDES, (ratings.user_ids, ratings.item_ids), strict=True):
        arrays |= {} if ids is None else ids.arrays(f"{side}_")
    n, (users, items) = len(ratings), ratings.shape
    counts = {"kind": KIND, "users": users, "items": items, "rows": n, "width": items, "nnz": n}
    with StoreWriter(path, meta, overwrite, ARRAYS) as writer:
        writer.put(**arrays)
        return writer.seal(writer.meta | counts)


def is_rating_store(path: str | Path) -> bool:
    """Return whether ``path`` is a store of ratings whose meta data can be read."""
    try:
        return bool(read_meta(path).get("kind") == KIND)
    except InputError:
        return False


def open_ratings_store(path: str | Path) -> Ratings:
    """Return a store's ratings, mapped read-only and checked as :func:`hogwild.data.rows.store.open_store` does.

    Raises
    ------
    InputError
        If it is not a store of ratings, has another version, is truncated or damaged; the message names the file.
    """
    path = Path(path)
    meta, arrays = open_arrays(path, KIND, ARRAYS)
    with usable(path):
        check_range(path, "users", arrays["users"], meta["users"])
        check_range(path, "indices", arrays["indices"], meta["items"])
    try:
        user_ids, item_ids = (_ids(arrays, side, meta[f"{side}s"]) for side in SIDES)
    except InputError as error:
        raise damaged(path, str(error)) from None
    flat = arrays["users"], arrays["indices"], arrays["values"], (meta["users"], meta["items"]), arrays.get("times")
    return Ratings(*flat, user_ids, item_ids, os.path.abspath(path), check=False)


def _ids(arrays: dict[str, np.ndarray], side: str, size: int) -> Ids | None:
    ids = Ids.from_arrays(arrays, f"{side}_")
    if ids is not None and len(ids) != size:
        raise InputError(f"{len(ids)} names for {size} {side}s")
    return ids


# -- the cache --------------------------------------------------------------------------------------------------------


def build_ratings(cache: Cache | None, recipe: Recipe) -> tuple[Ratings, dict[str, Any]]:
    """Return ``(ratings, meta data)`` from the cache, made and kept there if missing, or in memory without a cache.

    The recipe's ``fill`` takes nothing, and returns the ratings and facts.
    """
    made: list[tuple[Ratings, dict[str, Any]]] = []  # at most one, whatever happens to its cache entry

    def write(path: Path) -> None:
        made[:] = made or [recipe.fill()]
        save_ratings(made[0][0], path, recipe.meta | made[0][1])

    if cache is not None and (kept := cache.keep(recipe.name, write, open_ratings_store)) is not None:
        return kept
    ratings, facts = made[0] if made else recipe.fill()
    return ratings, {**recipe.meta, **facts}
