"""Names of a table model's features: what stood in the columns whose buckets are asked for.

A hash cannot be undone, so the table is read once more, as far as is needed for each bucket to have a name. Of several
features that share a bucket the first of each column is found.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hogwild.data.table_columns import Categories, bucket_of, words_of, written
from hogwild.data.table_files import open_source
from hogwild.data.table_plan import Column, TablePlan
from hogwild.data.table_rows import Reader
from hogwild.data.tables import check_columns

WORD = re.compile(r"\w+")


def feature_names(
    table: Any, plan: Mapping[str, Any], buckets: Iterable[int], format: str | None = None
) -> dict[int, list[str]]:
    """Names such as ``site=example.org`` of the features in ``buckets``; one that the table has none for is absent.

    Parameters
    ----------
    table : path or frame
        The training table, or one like it.
    plan : dict
        ``table`` of the model or rows.
    buckets : whole numbers

    Raises
    ------
    InputError
        As for reading the table.
    """
    made = TablePlan.from_json(plan)
    wanted = np.zeros(2**made.hash_bits, dtype=bool)
    wanted[list(buckets)] = True
    found: dict[int, list[str]] = {}
    for column in made.columns:
        if column.role == "numeric":
            _add(found, wanted, column.name, made.hash_bits)
        _add(found, wanted, f"{column.name}=", made.hash_bits)
    source = open_source(table, format)
    check_columns(source, made, labels=False)
    reader = Reader(made, source.name, labels=False)
    left = wanted.copy()
    left[list(found)] = False
    for piece in source.pieces(reader.types()):
        if not left.any():
            break
        batch = piece.load()
        if batch is None:
            continue
        for categories in reader.categories:
            _of_categories(found, left, batch.column(categories.column.name), categories)
        for column in reader.texts:
            _of_words(found, left, batch.column(column.name), column, made.hash_bits)
        left[list(found)] = False
    return found


def _add(found: dict[int, list[str]], wanted: np.ndarray, name: str, bits: int) -> None:
    bucket = bucket_of(name, bits)
    if wanted[bucket] and name not in found.get(bucket, []):
        found.setdefault(bucket, []).append(name)


def _of_categories(found: dict[int, list[str]], left: np.ndarray, values: Any, categories: Categories) -> None:
    codes = categories.of(values)
    rows = np.flatnonzero(left[codes])
    _, first = np.unique(codes[rows], return_index=True)
    for row in rows[first]:
        value = values[int(row)].as_py()
        if isinstance(value, bool) or (isinstance(value, str) and categories.column.kind == "boolean"):
            value = str(value).lower()
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        elif isinstance(value, float):
            value = written(value, getattr(values.type, "value_type", values.type))
        name = f"{categories.column.name}={'' if value is None else value}"
        found.setdefault(int(codes[row]), []).append(name)


def _of_words(found: dict[int, list[str]], left: np.ndarray, values: Any, column: Column, bits: int) -> None:
    starts, codes = words_of(values, column, bits)
    at = np.flatnonzero(left[codes])
    _, first = np.unique(codes[at], return_index=True)
    for row in np.unique(np.searchsorted(starts, at[first], side="right") - 1):
        words = WORD.findall((values[int(row)].as_py() or "").lower())
        for name in [*words, *map(" ".join, itertools.pairwise(words))]:
            _add(found, left, f"{column.name}={name}", bits)
