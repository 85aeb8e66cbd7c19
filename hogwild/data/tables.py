"""Tables as rows: CSV, TSV, Parquet and Arrow files, and frames of pandas, polars and pyarrow.

``open_table`` plans a table and makes a store of it in the cache, as ``open_data`` does of text; rows of a frame are
made in memory. Rows remember their plan (``table_plan.py``), so a model trained on them can read such tables by itself.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hogwild.data.cache import Cache, Recipe, build, identity
from hogwild.data.examples import Rows
from hogwild.data.hashing import HashedSink, warn_if_crowded
from hogwild.data.store import Sink
from hogwild.data.table_files import TableSource, is_frame, open_source
from hogwild.data.table_plan import Asked, TablePlan, shown
from hogwild.data.table_rows import as_rows, plan_table, read_blocks
from hogwild.errors import HogwildWarning, InputError, UsageError

VERSION = 1  # of what is made of a table; part of a cache entry's key
Progress = Callable[[int, int | None], None]


def open_table(
    table: Any,
    label: str | None = None,
    *,
    categorical: str | Iterable[str] | None = None,
    numeric: str | Iterable[str] | None = None,
    text: str | Iterable[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    weight: str | None = None,
    hash_bits: int | None = None,
    like: Any = None,
    format: str | None = None,
    cache: Cache | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Rows:
    """Rows of a table, each column made features by its type or as is asked.

    Parameters
    ----------
    table : path or frame
        A CSV, TSV (also .gz, .bz2, .xz), Parquet or Arrow file, or a frame of pandas, polars or pyarrow.
    label : str
        The column to be learned: text, booleans or numbers.
    categorical, numeric, text, ignore : names, optional
        Columns that are to be categories, numbers or words, or are left out; a list, or text with commas. The others
        are sorted by their type: numbers are numeric, text of many words is text, all else categorical.
    weight : str, optional
        A column with a weight of each row.
    hash_bits : int, optional
        Features are hashed to ``2**hash_bits``; by default 18 to 24, as many as the table needs.
    like : Rows or model, optional
        Read the table as those were, rather than making a plan of its own: to test on.
    format : {"csv", "tsv", "parquet", "arrow"}, optional
        By default told from the name.
    cache, workers, progress
        As for :func:`hogwild.open_data`.

    Returns
    -------
    Rows
        With the plan in ``table``: a model trained on them predicts tables.

    Raises
    ------
    InputError, UsageError
        One line that names the table, the column, and the line where it is known.
    """
    asked = Asked.of(label=label, categorical=categorical, numeric=numeric, text=text, ignore=ignore, weight=weight)
    plan = None
    if like is not None:
        if asked or hash_bits is not None:
            raise UsageError("like= has a plan already: leave out label, columns and hash_bits")
        plan = like.table
        if plan is None:
            raise UsageError(f"like={like!r}: it was not made from a table")
    recipe = table_recipe(table, asked, hash_bits, plan, format=format, workers=workers, progress=progress)
    rows, meta = build(None if is_frame(table) else cache, recipe)
    if len(rows) == 0:
        raise InputError(f"{recipe.meta['source']}: no rows in it")
    warn_if_crowded(recipe.label, meta["hashing"])
    return rows


def table_recipe(
    table: Any,
    asked: Asked,
    hash_bits: int | None = None,
    plan: dict[str, Any] | None = None,
    *,
    format: str | None = None,
    labels: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Recipe:
    """How the store of a table is made: by ``plan``, or by one that is made of it and what is ``asked``."""
    name, before = "the table", None
    if isinstance(table, str | os.PathLike):
        name, before = os.fspath(table), _identity(table)

    def fill(sink: Sink) -> dict[str, Any]:
        source = open_source(table, format, progress)
        made = plan_table(source, asked, hash_bits, workers) if plan is None else TablePlan.from_json(plan)
        if plan is not None:
            check_columns(source, made, labels)
        hashed = HashedSink(sink, made.hash_bits, raw=False)
        weighted = plan is None or made.weight in source.names
        for block in read_blocks(source, made, labels, weighted, workers):
            hashed.append(block.lengths, block.indices, block.values, block.targets, block.weights)
        if before is not None and _identity(table) != before:
            raise InputError(f"{name}: changed while it was being read: try again")
        return hashed.facts() | {"table": made.to_json()}

    uses = {word: list(names) for word, names in asked.uses().items()}
    key = {"format": f"table {format}", "file": before, "asked": uses, "bits": hash_bits, "plan": plan}
    key |= {"labels": labels, "tables": VERSION}
    meta = {"source": os.path.abspath(name) if before else name, "parser": f"tables {VERSION}"}
    return Recipe(os.path.basename(name), key, meta, fill)


def stream_table(
    table: Any, facts: dict[str, Any], labels: bool = True, format: str | None = None, workers: int | None = None
) -> Iterator[Rows]:
    """A table's rows by the plan ``facts``, in blocks of bounded size, in order; nothing is kept.

    Without ``labels`` their column need not be there, and targets are 0.
    """
    plan = TablePlan.from_json(facts)
    source = open_source(table, format)
    check_columns(source, plan, labels)
    for block in read_blocks(source, plan, labels, weighted=False, workers=workers):
        yield as_rows(block, plan, facts)


def check_columns(source: TableSource, plan: TablePlan, labels: bool) -> None:
    """Refuse a table that lacks what the plan reads; warn of columns that it does not know."""
    plan.check(source.name, source.held(), labels)
    known = {column.name for column in plan.columns} | {plan.label, plan.weight, *plan.ignored, ""}
    unknown = [name for name in source.names if name not in known]
    if unknown:
        said = f"{source.name}: the model does not know {shown(unknown)}: passed over"
        warnings.warn(said, HogwildWarning, stacklevel=3)


def _identity(path: Any) -> dict[str, Any]:
    try:
        return identity(path)
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None
