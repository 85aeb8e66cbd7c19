"""Tables as rows: CSV, TSV, Parquet and Arrow files, and frames of pandas, polars and pyarrow.

``open_table`` plans a table and makes a store of it in the cache, as ``open_data`` does for text; rows of a frame are
made in memory. Rows keep their plan (``plan.py``), so a model trained on them can read such tables by itself.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from hogwild.data.cache import Cache, Pieces, Recipe, build, text_recipe
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import Rows
from hogwild.data.tables.arrays import buckets_of, texts_of, words_in, words_of
from hogwild.data.tables.column import bucket_of
from hogwild.data.tables.files import TableSource, is_frame, open_source
from hogwild.data.tables.plan import KINDS, TAKEN, AskedColumns, TablePlan, has, shown
from hogwild.data.tables.rows import Reader, plan_table
from hogwild.errors import HogwildWarning, InputError, UsageError

SHARED = 3  # names shown of a bucket
VERSION = 5  # version of the rows made from a table; part of a cache entry's key


def open_table(
    table: Any,
    label: str | None = None,
    *,
    categorical: str | Iterable[str] | None = None,
    numeric: str | Iterable[str] | None = None,
    text: str | Iterable[str] | None = None,
    date: str | Iterable[str] | None = None,
    bucket: str | Iterable[str] | None = None,
    cross: str | Iterable[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    weight: str | None = None,
    hash_bits: int | None = None,
    like: Any = None,
    separator: str | None = None,
    cache: Cache | None = None,
    progress: BytesRead | None = None,
) -> Rows:
    """Open a table as rows; each column becomes features by its type or by the options given.

    Parameters
    ----------
    table : path or frame
        A TSV (also .gz, .bz2, .xz), Parquet or Arrow file by its suffix, any other file as CSV, or a frame of pandas,
        polars or pyarrow.
    label : str
        The column to be learned: text, booleans or numbers.
    categorical, numeric, text, date, ignore : names, optional
        Columns to treat as categories, numbers, words or dates, or to leave out; a list, or comma-separated text. The
        others are treated by their type: numbers are numeric, text of many words is text, dates are dates, all else
        categorical.
    bucket : names and numbers, optional
        Numbers to treat as categories of about as many rows each, such as ``"price:20,width:10"``.
    cross : names, optional
        Categorical columns whose values together are categories, such as ``"device*country,site*time.hour"``.
    weight : str, optional
        A column with the weight of each row.
    hash_bits : int, optional
        Features are hashed to ``2**hash_bits`` buckets; by default 18 to 24, as many as the table needs.
    like : Rows or model, optional
        Read the table by the plan of these, for testing, rather than making a new plan.
    separator : str, optional
        Of the columns of text (other tables pass over it): one character; by default a comma, or a tab for TSV.
    cache, progress
        As for :func:`hogwild.open_data`.

    Returns
    -------
    Rows
        With the plan in ``table``, so that a model trained on them predicts tables.

    Raises
    ------
    InputError, UsageError
        One line that names the table, the column, and the line if known.

    See Also
    --------
    train : trains on what it returns.

    Examples
    --------
    >>> import hogwild, pyarrow as pa
    >>> table = pa.table({"site": ["a", "b", "a"], "price": [1.5, 2.0, 8.25], "click": [1, 0, 1]})
    >>> rows = hogwild.open_table(table, label="click")
    >>> len(rows), rows.targets.tolist()
    (3, [1.0, 0.0, 1.0])
    """
    asked = AskedColumns.of(
        label=label,
        categorical=categorical,
        numeric=numeric,
        text=text,
        date=date,
        bucket=bucket,
        cross=cross,
        ignore=ignore,
        weight=weight,
    )
    plan = None
    if like is not None:
        if asked or hash_bits is not None:
            raise UsageError("like= has a plan already: leave out label, columns and hash_bits")
        plan = like.table
        if plan is None:
            raise UsageError(f"like={like!r}: it was not made from a table")
    recipe = table_recipe(table, asked, hash_bits, plan, separator=separator, progress=progress)
    rows: Rows = build(None if is_frame(table) else cache, recipe)[0]
    if len(rows) == 0:
        raise InputError(f"{recipe.meta['source']}: no rows in it")
    return rows


def table_recipe(
    table: Any,
    options: AskedColumns,
    hash_bits: int | None = None,
    plan: dict[str, Any] | None = None,
    *,
    separator: str | None = None,
    labels: bool = True,
    streamed: bool = False,
    progress: BytesRead | None = None,
) -> Recipe:
    """Return the recipe for a table's store, by ``plan`` or by a plan made from the table and ``asked``.

    Without ``labels`` the label column may be absent, and targets are 0. ``streamed`` rows have no weights or fields.
    """
    name = os.fspath(table) if isinstance(table, str | os.PathLike) else "the table"

    def read() -> Pieces:
        made = None if plan is None else TablePlan.from_json(plan)
        usual = None if made is None else made.separator
        with closing(open_source(table, progress, separator, usual)) as source:
            if made is None:
                made = dataclasses.replace(plan_table(source, options, hash_bits, labels), separator=separator)
            else:
                check_columns(source, made, labels)
            facts = {"hash_bits": made.hash_bits, "width": 2**made.hash_bits, "table": made.to_json()}
            weight = made.weight if made.weight in source.names and not streamed else None
            reader = Reader(dataclasses.replace(made, weight=weight) if labels else made.unlabelled())
            fields = np.full(0 if streamed else 2**made.hash_bits, -1, np.int16)
            reader.fields = fields.view(np.uint16)
            for block, fresh in reader.each(source, reader.block):
                np.minimum.at(reader.fields, fresh[:, 0], fresh[:, 1].astype(np.uint16))
                yield Rows.of_lengths(*block, **facts)
        return facts | {"fields": fields}

    asked = dataclasses.asdict(options)
    key = {"format": "table", "asked": asked, "bits": hash_bits, "plan": plan, "labels": labels}
    return text_recipe(name, read, key | {"separator": separator}, f"tables {VERSION}")


def stream_table(table: Any, plan: dict[str, Any], **reading: Any) -> Iterator[Rows]:
    """Yield a table's rows by the plan, in blocks of bounded size, in order; nothing is stored.

    ``reading`` are options of :func:`table_recipe`.
    """
    return table_recipe(table, AskedColumns(), None, plan, streamed=True, **reading).pieces()


def feature_names(table: Any, plan: Mapping[str, Any], buckets: Iterable[int]) -> dict[int, list[str]]:
    """Return names such as ``site=example.org`` of the features in ``buckets``; buckets without a name are left out.

    Parameters
    ----------
    table : path or frame
        The training table, or one like it; all of it is read.
    plan : dict
        ``table`` of the model or rows.
    buckets : whole numbers

    Raises
    ------
    InputError
        As for reading the table.
    """
    table_plan = TablePlan.from_json(plan)
    with closing(open_source(table, usual=table_plan.separator)) as source:
        check_columns(source, table_plan, labels=False)
        wanted = np.zeros(2**table_plan.hash_bits, np.bool_)
        wanted[list(buckets)] = True
        names = {bucket: texts for bucket, texts in table_plan.known_names().items() if wanted[bucket]}
        reader, bits = Reader(table_plan.unlabelled()), table_plan.hash_bits

        def look(batch: Any) -> list[str]:
            texts, arrays = [], reader.arrays(batch)
            for column in reader.features:
                values = arrays[column.name]
                if column.role == "categorical":
                    values = values.filter(wanted[buckets_of(values, column, bits)])
                    texts += [f"{column.name}={text}" for text in texts_of(values, column).unique().to_pylist()]
                elif column.role == "text":  # words and pairs are looked up where a batch has them first
                    begins, codes = words_of(values, column, bits)
                    for code, at in zip(*np.unique(codes, return_index=True)):
                        if wanted[code]:
                            row = int(np.searchsorted(begins, at, side="right")) - 1
                            texts.append(f"{column.name}={words_in(values[row].as_py())[at - begins[row]]}")
            return texts

        for texts in reader.each(source, look):
            for text in texts:
                bucket = bucket_of(text, bits)
                known = names.setdefault(bucket, []) if wanted[bucket] else []
                if text not in known and len(known) < SHARED:
                    known.append(text)
        return names


def check_columns(source: TableSource, plan: TablePlan, labels: bool) -> None:
    """Refuse a table whose columns are not those that the plan reads; warn of columns unknown to it.

    Raises
    ------
    InputError
    """
    kinds = source.held()
    wanted = {column.name: column.role for column in plan.columns}
    if labels:
        wanted[plan.label] = "numeric" if plan.label_kind == "number" else "label"
    missing = [column for column in wanted if column not in kinds]
    if missing:
        raise InputError(f"{source.name}: no column {shown(missing)}, which the model was trained with{has(kinds)}")
    for column, role in wanted.items():
        if kinds[column] not in TAKEN[role]:
            expected = {"numeric": "numbers", "bucket": "numbers", "date": "dates"}.get(role, "text")
            raise InputError(f"{source.name}: column {column} holds {KINDS[kinds[column]]}, expected {expected}")
    known = {*wanted, plan.label, plan.weight, *plan.ignored, ""}
    if unknown := [name for name in source.names if name not in known]:
        message = f"{source.name}: the model does not know {shown(unknown)}: passed over"
        warnings.warn(message, HogwildWarning, stacklevel=3)
