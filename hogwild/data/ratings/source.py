"""From a name to ratings: one function opens anything a user may call ratings, as ``data/rows/source.py`` for rows.

A file is read once with its own names, and cached with them; they are matched to the names of a model afterwards. A
test set is therefore one entry of the cache, whichever model it is used with.

The cost is that the first opening of a text writes its content once more to disk, in a third of its size.
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hogwild.config import choice
from hogwild.data.cache import Cache, Pieces, Recipe, text_recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import RATINGS, Ids, Ratings, last_of_repeats
from hogwild.data.ratings.synthetic import rating_recipe
from hogwild.data.ratings.text import parse_ratings
from hogwild.data.rows.source import copy_of, named, opened, write_store
from hogwild.data.rows.store import open_store
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import HogwildWarning, InputError

PARSER = 3  # version of text.py's result for a text; part of a cache entry's key
UNKNOWN = ("drop", "keep")
VALUES = ("required", "optional")
REPEATS = ("last", "keep")


def open_ratings(
    name: str | Path | BinaryIO,
    *,
    layout: TextLayout | None = None,
    cache: Cache | None = None,
    users: Ids | None = None,
    items: Ids | None = None,
    unknown: str = "drop",
    values: str = "required",
    repeats: str = "last",
    progress: BytesRead | None = None,
) -> Ratings:
    """Open ratings by name.

    Parameters
    ----------
    name : str, Path or binary stream
        Text of columns (plain, .gz, .bz2, .xz), ``user item rating [time]`` unless ``layout`` says otherwise, or
        ``user item`` (each a rating of 1); a store's directory; a synthetic set such as
        ``synthetic:ratings?users=5000``; or, if no file has that name, a fetched set of the catalogue such as
        ``movielens-1m``. A stream is read as text into memory.
    layout : TextLayout, optional
        Columns of the text, its separator (by default that of its suffix: commas for .csv, ``::`` for .dat, blanks for
        .txt, else tabs), and whether a header names them.
    cache : Cache, optional
        Where stores are made from text and synthetic sets; without one they are made in memory.
    users, items : Ids, optional
        Names in the numbering wanted, such as a model's; by default those in the data, in ascending order.
    unknown : {"drop", "keep"}
        What to do with ratings of other users and items: dropped ones are counted in a HogwildWarning, kept ones have
        index -1.
    values : {"required", "optional"}
        Whether the rating of a line may be empty; it is then 0, which is enough to predict.
    repeats : {"last", "keep"}
        If a user rated an item twice, "last" keeps the last rating and counts the others in a HogwildWarning; "keep"
        keeps all, for prediction line by line.
    progress : function, optional
        Called now and then with how much is done (bytes of text, or synthetic ratings) and the total.

    Returns
    -------
    Ratings
        The ratings, with ``store`` set if they are mapped from one.

    Raises
    ------
    InputError
        One line that names the file: missing, unreadable, damaged or breaking a rule of its format.

    See Also
    --------
    train : ``hogwild.train(ratings, problem="completion")``.
    HogwildFactorizer : the same as a scikit-learn transformer.

    Examples
    --------
    >>> import hogwild
    >>> ratings = hogwild.open_ratings("synthetic:ratings?users=50&items=20&ratings=400", cache=None)
    >>> ratings.shape, len(ratings)
    ((50, 20), 400)
    """
    choice("unknown", unknown, UNKNOWN)
    choice("values", values, VALUES)
    choice("repeats", repeats, REPEATS)
    title, recipe = recipe_of(name, layout, values, repeats, progress)
    return _match(opened(title, recipe, cache), users, items, unknown, title)


def convert_ratings(
    name: str | Path, destination: str | Path, *, overwrite: bool = False, **options: Any
) -> dict[str, Any]:
    """Make a store of any ratings; return its meta data.

    ``options`` are ``layout``, ``values``, ``repeats`` and ``progress`` of :func:`open_ratings`.

    Raises
    ------
    InputError, OutputError
    """
    return write_store(recipe_of(name, **options)[1], destination, overwrite, {})


def recipe_of(
    name: Any,
    layout: TextLayout | None = None,
    values: str = "required",
    repeats: str = "last",
    progress: BytesRead | None = None,
) -> tuple[str, Recipe]:
    """Return the name of ratings for messages, and how they are made; the options are those of :func:`open_ratings`."""
    title, kind = named(name, "ratings", lambda title: "text")
    layout = layout or TextLayout()
    if kind == "store":
        return title, copy_of(title, open_store(title, RATINGS), RATINGS)
    if kind == "synthetic":
        return title, rating_recipe(title, progress)
    source = name if hasattr(name, "read") else title

    def read() -> Pieces:
        ratings, dropped = parse_ratings(source, layout, values=values, progress=progress), 0
        if repeats == "last":
            ratings, dropped = last_of_repeats(ratings)
        yield ratings
        return {"warnings": {"repeats": dropped}}

    key: dict[str, Any] = {"kind": RATINGS.name, "values": values, "repeats": repeats}
    key["layout"] = dataclasses.asdict(layout)
    return title, text_recipe(source, read, key, f"ratings {PARSER}", RATINGS)


def _match(ratings: Ratings, users: Ids | None, items: Ids | None, unknown: str, title: str) -> Ratings:
    """Return the ratings in the numbering of ``users`` and ``items``, if these are given."""
    if users is None and items is None:
        return ratings
    matched = ratings.named_as(users, items)
    placed = np.flatnonzero((matched.users >= 0) & (matched.items >= 0))
    dropped = len(matched) - len(placed)
    if unknown == "keep" or not dropped:
        return matched
    if not len(placed):
        raise InputError(f"{title}: all its ratings are of users or items that are not known")
    message = f"{title}: {dropped:,} ratings of users or items that are not known were left out"
    warnings.warn(message, HogwildWarning, stacklevel=3)
    return matched.select(placed)
