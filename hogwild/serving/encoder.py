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

Entries = tuple[list[int], list[float]]
KEPT = 1 << 13  # texts of a column, each of at most LONGEST characters
LONGEST = 64


class Buckets(dict[Any, int]):
    """Buckets of the values of a categorical column, of which those of texts are kept."""

    def __init__(self, column: TableColumn, bits: int) -> None:
        self.column, self.bits = column, bits
        self.state = name_state(f"{column.name}=")  # the hash after the column's name and "="

    def __missing__(self, value: Any) -> int:
        text = self.column.text(value)
        if type(value) is not str:  # 1, 1.0 and True would be one key
            return self[text]
        bucket = bucket_at(name_state(text, self.state), self.bits)
        if len(value) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[value] = bucket
        return bucket


class TableRow:
    """Encodes rows, dicts by the names of columns, by a table's plan."""

    def __init__(self, plan: TablePlan) -> None:
        self.plan, features = plan, plan.features()
        self.buckets = {column.name: Buckets(column, plan.hash_bits) for column in features}
        self.places = {column.name: bucket_of(column.name, plan.hash_bits) for column in features}
        self.crosses = [(cross, cross.split("*")) for cross in plan.crosses]
        crossed = {part for _, parts in self.crosses for part in parts}
        self.categories: list[tuple[str, Buckets]] = []  # that are in no cross
        self.numbers: list[tuple[str, int, TableColumn]] = []
        self.others: list[TableColumn] = []
        for column in plan.columns:
            if column.role == "categorical" and column.name not in crossed:
                self.categories.append((column.name, self.buckets[column.name]))
            elif column.role == "numeric":
                self.numbers.append((column.name, self.places[column.name], column))
            else:
                self.others.append(column)

    def __call__(self, row: Mapping[str, Any]) -> Entries:
        """Return the buckets of the row's features and their values."""
        texts, words = dict[str, str](), list[int]()
        try:
            places = [buckets[row[name]] for name, buckets in self.categories]
            amounts = [1.0] * len(places)
            for name, bucket, column in self.numbers:
                number = row[name]
                amount = number / column.deviation if type(number) is float else math.nan
                if not -BEYOND < amount < BEYOND:
                    bucket, amount = self._number(column.number(number), column)
                places.append(bucket)
                amounts.append(amount)
            for column in self.others:
                name, role = column.name, column.role
                value = row[name]
                if role == "categorical":
                    texts[name] = column.text(value)
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
                    bucket, amount = self._number(age, last)
                    places.append(bucket)
                    amounts.append(amount)
                else:
                    words += self._words(value, column)
        except KeyError:
            missing = next(column.name for column in self.plan.columns if column.name not in row)
            raise InputError(f"no column {missing}, which the model was trained with; None if it is missing") from None
        except TypeError:
            for name, buckets in self.categories:  # which value is a list, say, that no dict has for a key
                buckets.column.text(row[name])
            raise
        for cross, parts in self.crosses:
            texts[cross] = ",".join([texts[part] for part in parts])
        places += [*words, *(self.buckets[name][text] for name, text in texts.items())]
        return merged(places, amounts + [1.0] * (len(places) - len(amounts)))

    def _number(self, number: float, column: TableColumn) -> tuple[int, float]:
        amount = number / column.deviation
        if amount != amount:
            return self.buckets[column.name][""], 1.0
        if not -BEYOND < amount < BEYOND:
            raise InputError(f"column {column.name}: {number:g} is beyond float32 in deviations of this column")
        return self.places[column.name], amount

    def _words(self, value: Any, column: TableColumn) -> list[int]:
        if type(value).__name__ in NOTHING or value != value:
            return []
        if not isinstance(value, str):
            raise InputError(f"column {column.name}: expected text, got {value!r:.40}")
        text = value.lower() if value.isascii() else "".join([each.lower()[0] for each in value])
        start, bits = self.buckets[column.name].state, self.buckets[column.name].bits
        before, places = None, []
        for word in WORD.findall(text):
            if before is not None:
                places.append(bucket_at(name_state(f" {word}", before), bits))
            before = name_state(word, start)
            places.append(bucket_at(before, bits))
        return places


class PlainRow:
    """Encodes rows, dicts of values by the number of a feature, counted from 1 as in svmlight's text."""

    def __init__(self, width: int, bits: int | None) -> None:
        self.width, self.bits = width, bits

    def __call__(self, row: Mapping[Any, Any]) -> Entries:
        """Return the indices of the features that the model knows, from 0, and their values."""
        places, amounts = [], []
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
                places.append(index)
                amounts.append(number)
        return merged(places, amounts)


def merged(places: list[int], amounts: list[float]) -> Entries:
    """Return the entries with one for each place, in which amounts are added up."""
    if len({*places}) == len(places):
        return places, amounts
    sums: dict[int, float] = defaultdict(float)
    for place, amount in zip(places, amounts):
        sums[place] += amount
    return [*sums], [*sums.values()]
