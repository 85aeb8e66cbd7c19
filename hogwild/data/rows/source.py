"""From a name to rows: one function opens whatever a user may call data.

Everything readable takes one of three ways. A store is mapped where it is; text and synthetic sets are made into a
store in the cache and mapped from there; the rest (standard input, or anything without a cache) is held in memory.
Training, prediction and statistics see ``Rows`` and do not need to know which.

The cost is that the first opening of a text file writes its content once more to disk (see ``cache.py``).
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hogwild.config import choice
from hogwild.data.bits import check_hashing
from hogwild.data.cache import Cache, Pieces, Recipe, build, text_recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.public.catalogue import located, suggestion
from hogwild.data.rows.container import Rows, chunks, fit_width
from hogwild.data.rows.store import ROWS, Kind, StoreWriter, is_store, open_store, read_meta
from hogwild.data.rows.synthetic import row_recipe
from hogwild.data.synthetic import PREFIX
from hogwild.data.tables.files import SUFFIXES as TABLES
from hogwild.data.tables.files import table_format
from hogwild.data.tables.plan import AskedColumns, check_plan
from hogwild.data.text.hashing import check_same, hashed_recipe
from hogwild.errors import HogwildWarning, InputError, UsageError, reason_of

PARSER = 2  # version of svmlight.py's result for a text; part of a cache entry's key
OTHERS = "; svmlight text was expected: tables need --label COLUMN, ratings and graphs --problem"
BEYOND = ("error", "ignore")
LABELS = ("required", "optional", "several")
REPAIRS = {
    "duplicate_rows": "rows with repeated features (summed)",
    "moved_entries": "features in another field than before (the first field counts)",
    "repeats": "ratings of a user and item that come again later (the last one counts)",
}


def open_data(
    name: str | Path | BinaryIO,
    *,
    zero_based: bool = False,
    width: int | None = None,
    beyond: str = "error",
    labels: str = "required",
    hash_bits: int | None = None,
    columns: AskedColumns | None = None,
    plan: dict[str, Any] | None = None,
    separator: str | None = None,
    cache: Cache | None = None,
    progress: BytesRead | None = None,
) -> Rows:
    """Open data by name.

    Parameters
    ----------
    name : str, Path or binary stream
        A store's directory; a table (:func:`hogwild.open_table`), by its suffix or because ``columns`` or ``plan`` are
        given; other text (plain, .gz, .bz2, .xz), which is svmlight's; a synthetic set such as
        ``synthetic:rcv1?rows=200000``; or, if no file has that name, a fetched set of the catalogue such as
        ``rcv1:test``. A stream is read as text into memory.
    zero_based : bool
        Features of svmlight text count from 0.
    width : int, optional
        Number of features, where it is not taken from the data: a test set has the width of its model.
    beyond : {"error", "ignore"}
        What to do with entries of features at or beyond ``width``. Ignored entries are counted in a HogwildWarning.
    labels : {"required", "optional", "several"}
        Whether targets must be present; missing ones are 0, which is enough to predict. "several": rows of svmlight
        text have any number of labels, as they have anyway where one has several, such as ``1,5,7 1:0.5``.
    hash_bits : int, optional
        Hash features to ``2**hash_bits`` buckets, 1 to 30; text may then have any indices below 2^64. A store is never
        hashed here: it must already be hashed (``hogwild convert`` does that). If None, a store may be hashed or not.
    columns : AskedColumns, optional
        Options for reading a table's columns.
    plan : dict, optional
        The plan of other rows or of a model (their ``table``) by which a table is read; other data are refused.
    separator : str, optional
        Of the columns of a table in text; others have none, and pass over it.
    cache : Cache, optional
        Where stores are made from text, tables and synthetic sets; without one they are made in memory.
    progress : function, optional
        Called now and then with how much is done (bytes of text, or synthetic rows) and the total.

    Returns
    -------
    Rows
        The rows, with ``store`` set if they are mapped from one.

    Raises
    ------
    InputError
        One line that names the file: missing, unreadable, damaged or breaking a rule of its format.

    See Also
    --------
    open_table, open_ratings, open_graph : data of other kinds.

    Examples
    --------
    >>> import hogwild
    >>> rows = hogwild.open_data("synthetic:rcv1?rows=1000&features=500&nnz=10", cache=None)
    >>> len(rows), rows.width
    (1000, 500)
    """
    choice("beyond", beyond, BEYOND)
    choice("labels", labels, LABELS)
    hash_bits = check_hashing(hash_bits, width)
    title, kind = named(name, "data", row_format)
    if kind == "store" and hash_bits is not None:
        check_same(read_meta(title).get("hash_bits"), hash_bits, title)
    recipe = recipe_of(
        name if hasattr(name, "read") else title,
        kind,
        zero_based=zero_based,
        width=width if beyond == "error" else None,  # text then reports the line; if ignored, it is cut off below
        labels=labels,
        hash_bits=hash_bits,
        columns=columns,
        plan=plan,
        separator=separator,
        progress=progress,
    )
    rows = opened(title, recipe, cache)
    if plan is not None:
        check_plan(rows.table, plan, title)
    return fit_width(rows, width, beyond, title)


def convert(name: str | Path, destination: str | Path, *, overwrite: bool = False, **options: Any) -> dict[str, Any]:
    """Make a store of any data, in bounded memory if they are text or synthetic; return its meta data.

    ``options`` are keywords of ``open_data``; ``destination`` must not exist, unless it is a store and ``overwrite`` is
    set. With ``hash_bits``, a store that is not hashed yet is hashed.

    Raises
    ------
    InputError, OutputError
    """
    title, kind = named(name, "data", row_format)
    width = options.get("width")
    options["hash_bits"] = check_hashing(options.get("hash_bits"), width)
    meta = write_store(recipe_of(title, kind, **options), destination, overwrite, {"width": width} if width else {})
    warn_of_repairs(title, meta)
    return meta


# -- what readers of rows, ratings and graphs have in common ----------------------------------------------------------


def named(name: Any, noun: str, tell: Callable[[str], str]) -> tuple[str, str]:
    """Return the name of data for messages, which is where they lie unless they are a stream, and their format.

    That is "store", "synthetic" or what ``tell`` makes of the name, which is empty for a stream.
    """
    if hasattr(name, "read"):
        return str(getattr(name, "name", "stream")), tell("")
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"expected the name of {noun} or a binary stream, got {type(name).__name__}")
    title = located(os.fspath(name))
    if title.startswith(PREFIX):
        return title, "synthetic"
    head = b""
    try:
        mode = os.stat(title).st_mode
        if stat.S_ISREG(mode):  # the writer of a named pipe would take the first close for the last
            with open(title, "rb") as file:
                head = file.read(4096)
    except FileNotFoundError:
        hint = suggestion(title) or f" (generated data are named like {PREFIX}rcv1)"
        raise InputError(f"{title}: no such file{hint}") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise InputError(f"{title}: cannot be read: {reason_of(error)}") from None
    if b"hogwild.npy" in head[:64] or (head[8:9] == b"{" and b'"hogwild"' in head):  # .npz, safetensors
        raise InputError(f"{title}: a hogwild model, not data: name the data (hogwild.load reads models)")
    if head.startswith(b"PK\x03\x04"):
        raise InputError(f"{title}: a zip archive; of a scipy matrix, train on (X, y) from Python")
    if stat.S_ISDIR(mode) and not is_store(title):
        raise InputError(f"{title}: a directory, but no store; expected a file")
    return title, "store" if stat.S_ISDIR(mode) else tell(title)


def opened(title: str, recipe: Recipe, cache: Cache | None) -> Any:
    """Return the examples of the recipe, from their store or the cache, or made in memory.

    Raises
    ------
    InputError
        Also if there are none.
    """
    examples, meta = build(cache, recipe)
    if not len(examples):
        raise InputError(f"{title}: no {recipe.kind.name} in it")
    warn_of_repairs(title, meta)
    return examples


def copy_of(path: str, examples: Any, kind: Kind = ROWS) -> Recipe:
    """Return the recipe that copies the examples of a store."""

    def pieces() -> Pieces:
        yield examples
        return {}

    return Recipe("copy", {}, {"source": os.path.abspath(path)}, pieces, kind, examples)


def write_store(recipe: Recipe, destination: str | Path, overwrite: bool, facts: dict[str, Any]) -> dict[str, Any]:
    """Make a store by a recipe, with some more facts; return its meta data."""
    with StoreWriter(destination, recipe.meta, overwrite, recipe.kind) as writer:
        writer.close(**writer.take(recipe.pieces()) | facts)
    return read_meta(destination)


def warn_of_repairs(name: str, meta: dict[str, Any]) -> None:
    """Say how many rows or ratings of a text were repaired."""
    repairs = meta.get("warnings") or {}
    parts = [f"{repairs[key]:,} {text}" for key, text in REPAIRS.items() if repairs.get(key)]
    if parts:
        warnings.warn(f"{name}: {', '.join(parts)}", HogwildWarning, stacklevel=4)


# -- rows -------------------------------------------------------------------------------------------------------------


def row_format(name: str) -> str:
    """Return the format that a name tells: that of a table, or svmlight."""
    return table_format(name) or "svmlight"


def stream_data(
    name: str | BinaryIO, labels: str = "required", plan: dict[str, Any] | None = None, **options: Any
) -> Iterator[Rows]:
    """Yield the rows in order, in blocks of bounded size; text and tables are read once, and not kept.

    ``options`` are keywords of :func:`open_data`. A table is read by ``plan``.
    """
    title, kind = named(name, "data", row_format)
    source: Any = name if hasattr(name, "read") else title
    if kind in TABLES and plan is None:
        raise InputError(f"{title}: a table, but the model's features are none of its columns")
    if kind in (*TABLES, "svmlight"):
        reading = {each: options[each] for each in ("zero_based", "hash_bits", "separator")}
        facts = yield from recipe_of(source, kind, labels=labels, plan=plan, streamed=True, **reading).pieces()
        warn_of_repairs(title, facts)
    else:
        rows = open_data(source, labels=labels, **options)
        for first, last in chunks(rows):
            yield rows.block(first, last)


def recipe_of(
    source: Any,
    kind: str,
    *,
    width: int | None = None,
    hash_bits: int | None = None,
    columns: AskedColumns | None = None,
    plan: dict[str, Any] | None = None,
    separator: str | None = None,
    progress: BytesRead | None = None,
    streamed: bool = False,
    **text: Any,
) -> Recipe:
    """Return how rows are made of a store, a text, a table or a synthetic set; the options are :func:`open_data`'s."""
    if kind == "svmlight" and (columns or plan is not None):
        kind = "csv"
    if kind in TABLES:
        from hogwild.data.tables.source import table_recipe

        more: dict[str, Any] = {"separator": separator, "streamed": streamed, "progress": progress}
        labels = text.get("labels") != "optional"
        return table_recipe(source, columns or AskedColumns(), hash_bits, plan, labels=labels, **more)
    if columns:
        raise UsageError(f"{source}: options of columns are for tables ({', '.join(TABLES)}); got {kind}")
    if kind in ("store", "synthetic"):
        if kind == "synthetic":
            recipe = row_recipe(source, progress)
        else:
            rows = open_store(source)
            if hash_bits is not None and rows.hash_bits is not None:
                check_same(rows.hash_bits, hash_bits, source)
                hash_bits = None
            recipe = copy_of(source, rows if hash_bits else fit_width(rows, width, "error", source))
        return recipe if hash_bits is None else hashed_recipe(recipe, hash_bits)
    text |= {"width": width, "hash_bits": hash_bits}

    def read() -> Pieces:
        from hogwild.data.text.svmlight import Svmlight

        reader, hint = Svmlight(progress=progress, streamed=streamed, **text), "" if streamed else OTHERS
        try:
            yield from reader.read(source)
        except InputError as error:
            said = str(error).partition(":1: ")[2]
            other = said and not re.search("archive|binary|svmlight|float32|finite|field:|width", said)
            raise InputError(f"{error}{hint if other else ''}") from None
        sets = reader.sets()
        if sets is not None and reader.nnz == 0:
            raise InputError(f"{source}: rows of labels alone, without features{hint}")
        return {"fields": reader.fields, "warnings": reader.repairs, "labels": sets}

    return text_recipe(source, read, {"format": "svmlight", **text}, f"svmlight {PARSER}")
