"""A store of ratings: a directory of plain ``.npy`` files as for rows, with ``"kind": "ratings"`` in its meta data.

``users.npy`` and ``indices.npy`` hold a number for each rating (``indices.npy`` the items: in every kind of store, this
file carries the lock), ``values.npy`` the ratings, ``times.npy`` the times if there are any. Names are whole numbers in
``user_numbers.npy``, or text in ``user_text.npy`` with the end of each in ``user_ends.npy``; likewise for items.

Checksums, locks, the temporary name and the cache are those of ``data/rows/store.py`` and ``data/cache.py``. Ratings
are made in memory before they are written, 12 bytes each (20 with times).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.cache import Cache, Recipe
from hogwild.data.columns import REMEDY, Column
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.data.rows.store import StoreWriter, open_arrays, read_meta
from hogwild.data.store_checks import check_counts, check_range
from hogwild.errors import InputError

KIND = "ratings"
DTYPES = {"users": "<i4", "indices": "<i4", "values": "<f4", "times": "<i8"}
NAMES = {"numbers": "<i8", "text": "|u1", "ends": "<i8"}
SIDES = ("user", "item")
DTYPES |= {f"{side}_{name}": dtype for side in SIDES for name, dtype in NAMES.items()}
FILES = {"users": "users.npy", "items": "indices.npy", "values": "values.npy", "times": "times.npy"}  # files of a store


class RatingStoreWriter(StoreWriter):
    """Writes a store of ratings; like its base, it is used in a ``with`` statement.

    Raises
    ------
    InputError
        If ``path`` exists.
    OutputError
        If it cannot be written (also from ``write`` and ``close``).
    """

    def __enter__(self) -> RatingStoreWriter:
        return self

    def _column(self, name: str) -> Column:
        if name not in self._columns:
            self._columns[name] = Column(self._folder / f"{name}.npy", DTYPES[name])
        return self._columns[name]

    def write(self, ratings: Ratings) -> None:
        """Write all ratings and their names."""
        arrays = {"users": ratings.users, "indices": ratings.items, "values": ratings.values, "times": ratings.times}
        for side, ids in zip(SIDES, (ratings.user_ids, ratings.item_ids), strict=True):
            arrays |= {} if ids is None else ids.arrays(f"{side}_")
        try:
            for name, array in arrays.items():
                if array is not None:
                    self._column(name).write(array)
        except OSError as error:
            self.abort()
            raise self._failure(error) from None
        users, items = ratings.shape
        self.rows = self.nnz = len(ratings)
        self.width_seen = items
        self.meta |= {"kind": KIND, "users": users, "items": items}

    def _finish(self, meta: dict[str, Any]) -> None:
        self._seal(meta, {name: self._columns[name] for name in DTYPES if name in self._columns})


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
    with RatingStoreWriter(path, meta, overwrite) as writer:
        writer.write(ratings)
        return writer.close()


def is_rating_store(path: str | Path) -> bool:
    """Return whether ``path`` is a store of ratings whose meta data can be read."""
    try:
        return bool(read_meta(path).get("kind") == KIND)
    except InputError:
        return False


def open_ratings_store(path: str | Path, verify: str = "auto") -> Ratings:
    """Return a store's ratings, mapped read-only; see :func:`hogwild.data.rows.store.open_store` for parameters.

    Raises
    ------
    InputError
        If it is not a store of ratings, has another version, is truncated or damaged; the message names the file.
    """
    path = Path(path)
    meta, arrays, verify = open_arrays(path, KIND, verify, _check_fit)
    if verify == "full":
        check_range(path, "users", arrays["users"], meta["users"])
        check_range(path, "indices", arrays["indices"], meta["items"])
    try:
        user_ids, item_ids = (_ids(arrays, side, meta[f"{side}s"]) for side in SIDES)
    except InputError as error:
        raise InputError(f"{path}: damaged store: {error}; {REMEDY}") from None
    flat = arrays["users"], arrays["indices"], arrays["values"], (meta["users"], meta["items"]), arrays.get("times")
    return Ratings(*flat, user_ids, item_ids, os.path.abspath(path), check=False)


def _ids(arrays: dict[str, np.ndarray], side: str, size: int) -> Ids | None:
    ids = Ids.from_arrays(arrays, f"{side}_")
    if ids is not None and len(ids) != size:
        raise InputError(f"{len(ids)} names for {size} {side}s")
    return ids


def _check_fit(path: Path, meta: dict[str, Any], described: dict[str, tuple[str, int]]) -> None:
    check_counts(path, meta, "rows", "users", "items")
    dtypes = {name: dtype for name, (dtype, _) in described.items()}
    columns = ["users", "indices", "values", *(["times"] if "times" in described else [])]
    if any(DTYPES.get(name) != dtype for name, dtype in dtypes.items()) or any(
        described.get(name, ("", -1))[1] != meta["rows"] for name in columns
    ):
        raise InputError(f"{path}: damaged store: the arrays in meta.json do not fit {meta['rows']} ratings; {REMEDY}")


# -- the cache --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RatingRecipe:
    """How ratings are made: a :class:`hogwild.data.cache.Recipe` whose ``make`` returns all of them, and facts."""

    label: str
    key: dict[str, Any]
    meta: dict[str, Any]
    make: Callable[[], tuple[Ratings, dict[str, Any]]]

    @property
    def name(self) -> str:
        """Name of its entry in a cache."""
        return Recipe(self.label, {"kind": KIND, **self.key}, {}, lambda sink: {}).name


def build_ratings(cache: Cache | None, recipe: RatingRecipe) -> tuple[Ratings, dict[str, Any]]:
    """Return ``(ratings, meta data)`` from the cache, made and kept there if missing, or in memory without a cache."""
    made: list[tuple[Ratings, dict[str, Any]]] = []  # at most one, whatever happens to its cache entry

    def write(path: Path) -> None:
        with RatingStoreWriter(path, recipe.meta) as writer:
            made[:] = made or [recipe.make()]
            ratings, facts = made[0]
            writer.meta |= facts
            writer.write(ratings)
            writer.close()

    if cache is not None and (kept := cache.keep(recipe.name, write, open_ratings_store)) is not None:
        return kept
    ratings, facts = made[0] if made else recipe.make()
    return ratings, {**recipe.meta, **facts}
