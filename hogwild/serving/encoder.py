"""Turns one row, a dict, into features without pyarrow or Numba: what a server does for each request.

The readers of tables take whole columns, and cost milliseconds however few rows there are. Here a value takes part of a
microsecond: the buckets of a column's texts are kept, up to ``KEPT`` of them, and only a new text is hashed in Python,
0.1 us a byte. Several threads may use one encoder; at worst both hash the same text.

A row has the features that ``data/tables/rows.py`` makes of the same values. Text is read as a number where numbers
belong, as in CSV, and columns that the plan does not know are passed over.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from hogwild.data.tables.column import (
    BEYOND,
    EPOCH,
    NOTHING,
    WEEKDAYS,
    WORD,
    TableColumn,
    bucket_at,
    bucket_of,
    name_state,
    number_of,
)
from hogwild.data.tables.plan import TablePlan
from hogwild.errors import InputError

KEPT = 1 << 13  # texts of a column, each of at most LONGEST characters
LONGEST = 64


class Buckets(dict[str, int]):
    """Buckets of the texts of a column; ``state`` is the hash after the column's name and ``=``."""

    def __init__(self, name: str, bits: int) -> None:
        self.state, self.bits = name_state(f"{name}="), bits

    def __missing__(self, text: str) -> int:
        bucket = bucket_at(name_state(text, self.state), self.bits)
        if len(text) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[text] = bucket
        return bucket


class TableRow:
    """Encodes rows, dicts by the names of columns, by a table's plan."""

    def __init__(self, plan: TablePlan) -> None:
        features = plan.features()
        self.columns = plan.columns
        self.buckets = {column.name: Buckets(column.name, plan.hash_bits) for column in features}
        self.numbers = {column.name: (bucket_of(column.name, plan.hash_bits), column.deviation) for column in features}
        self.crosses = [(cross, cross.split("*")) for cross in plan.crosses]

    def __call__(self, row: Mapping[str, Any]) -> dict[int, float]:
        """Return the values of the row's features by bucket."""
        texts: dict[str, str] = {}
        numbers: dict[str, float] = {}
        entries: dict[int, float] = defaultdict(float)
        for column in self.columns:
            name, role = column.name, column.role
            try:
                value = row[name]
            except KeyError:
                raise InputError(f"no column {name}, which the model was trained with; None if it is missing") from None
            if role == "categorical":
                texts[name] = column.text(value)
            elif role == "numeric":
                numbers[name] = column.number(value)
            elif role == "bucket":
                number = column.number(value)
                texts[name] = "" if number != number else column.limits[bisect_right(column.edges, number)]
            elif role == "date":
                moment, parts, age = column.moment(value), ["", "", ""], math.nan
                if moment is not None:
                    parts = [str(moment.hour), WEEKDAYS[moment.weekday()], str(moment.month)]
                    age = column.latest - (moment - EPOCH) / timedelta(days=1)
                *categories, last = column.features
                texts |= {each.name: part for each, part in zip(categories, parts[-len(categories) :])}
                numbers[last.name] = age
            else:
                self._words(value, column, entries)
        for cross, names in self.crosses:
            texts[cross] = ",".join([texts[part] for part in names])
        for name, text in texts.items():
            entries[self.buckets[name][text]] += 1.0
        for name, number in numbers.items():
            bucket, deviation = self.numbers[name]
            amount = number / deviation
            if amount != amount:
                bucket, amount = self.buckets[name][""], 1.0
            elif not -BEYOND < amount < BEYOND:
                raise InputError(f"column {name}: {number:g} is beyond float32 in deviations of this column")
            entries[bucket] += amount
        return entries

    def _words(self, value: Any, column: TableColumn, entries: dict[int, float]) -> None:
        if type(value).__name__ in NOTHING or value != value:
            return
        if not isinstance(value, str):
            raise InputError(f"column {column.name}: expected text, got {value!r:.40}")
        text = value.lower() if value.isascii() else "".join([each.lower()[0] for each in value])
        start, bits = self.buckets[column.name].state, self.buckets[column.name].bits
        before = None
        for word in WORD.findall(text):
            if before is not None:
                entries[bucket_at(name_state(f" {word}", before), bits)] += 1.0
            before = name_state(word, start)
            entries[bucket_at(before, bits)] += 1.0


class PlainRow:
    """Encodes rows, dicts of values by the number of a feature, counted from 1 as in svmlight's text."""

    def __init__(self, width: int, bits: int | None) -> None:
        self.width, self.bits = width, bits

    def __call__(self, row: Mapping[Any, Any]) -> dict[int, float]:
        """Return the values of the row's features by index, from 0; features unknown to the model are left out."""
        entries: dict[int, float] = defaultdict(float)
        for name, value in row.items():
            try:
                index = -1 if isinstance(name, bool | float) else int(name) - 1  # text, too: the names in JSON
            except (TypeError, ValueError):
                index = -1
            if not 0 <= index < 1 << 64:
                raise InputError(f"feature {name!r}: expected its number, counted from 1")
            number = number_of(value, f"feature {name}")
            if not -BEYOND < number < BEYOND:
                raise InputError(f"feature {name}: expected a finite number within float32")
            if self.bits is not None:
                index = bucket_at(index, self.bits)
            if index < self.width:
                entries[index] += number
        return entries
