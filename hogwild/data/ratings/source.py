"""From a name to ratings: one function opens anything a user may call ratings, as ``data/rows/source.py`` for rows.

A file is read once with its own names, and cached with them; they are matched to the names of a model afterwards. A
test set is therefore one entry of the cache, whichever model it is used with.

The cost is that the first opening of a text writes its content once more to disk, in a third of its size.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hogwild.data.cache import Cache, Recipe, build, text_recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import located
from hogwild.data.ratings.container import Ids, Ratings, last_of_repeats
from hogwild.data.ratings.store import RATINGS, open_ratings_store, put_ratings, save_ratings
from hogwild.data.ratings.synthetic import rating_recipe
from hogwild.data.ratings.text import parse_ratings
from hogwild.data.rows.source import check_choices, kind_of, load_npz, title_of, warn_of_repairs
from hogwild.data.rows.store import MemoryWriter, read_meta
from hogwild.data.synthetic import PREFIX
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import HogwildWarning, InputError

PARSER = 3  # version of text.py's result for a text; part of a cache entry's key
FORMATS = ("ratings", "npz", "store", "synthetic")
UNKNOWN = ("error", "drop", "keep")
VALUES = ("required", "optional")
REPEATS = ("last", "keep")


def open_ratings(
    name: str | Path | BinaryIO,
    *,
    format: str | None = None,
    layout: TextLayout | None = None,
    cache: Cache | None = None,
    users: Ids | None = None,
    items: Ids | None = None,
    unknown: str = "error",
    values: str = "required",
    repeats: str = "last",
    progress: BytesRead | None = None,
) -> Ratings:
    """Open ratings by name.

    Parameters
    ----------
    name : str, Path or binary stream
        Text of columns (plain, .gz, .bz2, .xz), ``user item rating [time]`` unless ``layout`` says otherwise, or
        ``user item`` (each a rating of 1); a store's directory; ``x.npz`` (``scipy.sparse.save_npz``; named from 0); a
        synthetic set such as ``synthetic:ratings?users=5000``; or, if no file has that name, a fetched set of the
        catalogue such as ``movielens-1m``. A stream is read as text into memory.
    format : str, optional
        One of ``FORMATS``; by default inferred from the name.
    layout : TextLayout, optional
        Columns of the text, its separator (by default that of its suffix: commas for .csv, ``::`` for .dat, blanks for
        .txt, else tabs), and whether a header names them.
    cache : Cache, optional
        Where stores are made from text and synthetic sets; without one they are made in memory.
    users, items : Ids, optional
        Names in the numbering wanted, such as a model's; by default those in the data, in ascending order.
    unknown : {"error", "drop", "keep"}
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
    check_choices(unknown=(unknown, UNKNOWN), values=(values, VALUES), repeats=(repeats, REPEATS))
    stream = not isinstance(name, str | os.PathLike)
    title = title_of(name, "ratings") if stream else located(os.fspath(name))  # type: ignore[arg-type]
    kind = kind_of(title, format, FORMATS, "ratings") if not stream else "ratings"
    kind = kind or ("npz" if title.lower().endswith(".npz") else "ratings")
    (layout or TextLayout()).check(title, kind, "ratings")
    if kind == "store":
        ratings, meta = open_ratings_store(title), read_meta(title)
    elif kind == "npz":
        ratings, meta = _matrix(title, repeats)
    elif kind == "synthetic":
        ratings, meta = build(cache, rating_recipe(title, progress))
    else:
        ratings, meta = build(cache, recipe_of(name if stream else title, layout, values, repeats, progress))
    if len(ratings) == 0:
        raise InputError(f"{title}: no ratings in it")
    warn_of_repairs(title, meta)
    return _match(ratings, users, items, unknown, title)


def convert_ratings(
    name: str | Path,
    destination: str | Path,
    *,
    format: str | None = None,
    layout: TextLayout | None = None,
    overwrite: bool = False,
    progress: BytesRead | None = None,
) -> dict[str, Any]:
    """Make a store of any ratings; return its meta data. Parameters are those of :func:`open_ratings`.

    Raises
    ------
    InputError, OutputError
    """
    title = located(os.fspath(name))
    ratings = open_ratings(title, format=format, layout=layout, progress=progress)
    source = title if title.startswith(PREFIX) else os.path.abspath(title)
    save_ratings(ratings, destination, {"source": source, "parser": f"ratings {PARSER}"}, overwrite)
    return read_meta(destination)


def recipe_of(
    source: Any,
    layout: TextLayout | None,
    values: str = "required",
    repeats: str = "last",
    progress: BytesRead | None = None,
) -> Recipe:
    """Return how a store is made of a text; the options are those of :func:`open_ratings`."""

    def parse(writer: MemoryWriter) -> dict[str, Any]:
        ratings, facts = _without_repeats(parse_ratings(source, layout, values=values, progress=progress), repeats)
        return put_ratings(ratings, writer) | facts

    key: dict[str, Any] = {"kind": RATINGS.name, "format": "ratings", "values": values, "repeats": repeats}
    key["layout"] = dataclasses.asdict(layout or TextLayout())
    return text_recipe(source, parse, key, f"ratings {PARSER}", RATINGS)


def _without_repeats(ratings: Ratings, repeats: str) -> tuple[Ratings, dict[str, Any]]:
    if repeats == "keep":
        return ratings, {}
    ratings, dropped = last_of_repeats(ratings)
    return ratings, {"warnings": {"repeats": dropped}} if dropped else {}


def _matrix(name: str, repeats: str) -> tuple[Ratings, dict[str, Any]]:
    matrix = load_npz(name)
    try:
        return _without_repeats(Ratings.from_scipy(matrix), repeats)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _match(ratings: Ratings, users: Ids | None, items: Ids | None, unknown: str, title: str) -> Ratings:
    """Return the ratings in the numbering of ``users`` and ``items``, if these are given."""
    indices, sides, shape = [ratings.users, ratings.items], [ratings.user_ids, ratings.item_ids], [*ratings.shape]
    for k, (side, wanted) in enumerate((("user", users), ("item", items))):
        if wanted is None or sides[k] == wanted:
            continue
        names = np.arange(shape[k]) if (ids := sides[k]) is None else ids.names()
        before, indices[k] = indices[k], wanted.lookup(names)[indices[k]]
        sides[k], shape[k] = wanted, len(wanted)
        lost = int(np.count_nonzero(indices[k] < 0))
        if lost and unknown == "error":
            first = names[before[int(np.argmin(indices[k]))]]
            raise InputError(f"{title}: {side} {first} is none of the {shape[k]:,} known ones ({lost:,} such ratings)")
    if indices[0] is ratings.users and indices[1] is ratings.items:
        return ratings
    (user_ids, item_ids), size = sides, (shape[0], shape[1])
    matched = Ratings(indices[0], indices[1], ratings.values, size, ratings.times, user_ids, item_ids, check=False)
    placed = (matched.users >= 0) & (matched.items >= 0)
    if unknown == "keep" or placed.all():
        return matched
    if not placed.any():
        raise InputError(f"{title}: all its ratings are of users or items that are not known")
    dropped = len(matched) - int(np.count_nonzero(placed))
    message = f"{title}: {dropped:,} ratings of users or items that are not known were left out"
    warnings.warn(message, HogwildWarning, stacklevel=3)
    return matched.select(np.flatnonzero(placed))
