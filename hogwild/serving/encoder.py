"""Turns one row, a dict, into features without pyarrow or Numba: what a server does for each request.

The readers of tables take whole columns, and cost milliseconds however few rows there are. Here a value takes part of a
microsecond: the buckets of a column's texts are kept, up to ``KEPT`` of them, and only a new text is hashed in Python,
0.1 us a byte. Several threads may use one encoder; at worst both hash the same text.

A row has the features that ``data/tables/rows.py`` makes of the same values. Text is read as a number where numbers
belong, as in CSV, and columns that the plan does not know are passed over.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hogwild.data.tables.columns import BEYOND, LATE, WEEKDAYS, WORD, bucket_at, bucket_of, limits_of, name_state
from hogwild.data.tables.plan import DATE_PARTS, NUMBERS, TableColumn, TablePlan
from hogwild.errors import InputError

KEPT = 1 << 13  # texts of a column, each of at most LONGEST characters
LONGEST = 64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTHING = ("NoneType", "NAType", "NaTType")  # types of None and of pandas's NA and NaT
#: Texts that stand for a missing number, as in pyarrow's reader of CSV.
MISSING = {"", "#N/A N/A", *"#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN N/A NA NULL NaN n/a nan null".split()}


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
        bits = plan.hash_bits
        as_they_are = ("text", "category", "empty")
        self.columns = [(column.name, column.role, column.kind in as_they_are, column) for column in plan.columns]
        self.buckets = {column.name: Buckets(column.name, bits) for column in plan.features()}
        self.numbers = {
            column.name: (bucket_of(column.name, bits), column.deviation) for column in plan.of_role("numeric")
        }
        self.crosses = [(cross, cross.split("*")) for cross in plan.crosses]
        self.limits = {column.name: limits_of(column) for column in plan.columns if column.role == "bucket"}
        self.zones = {column.name: _zone(column.zone) for column in plan.columns if column.role == "date"}

    def __call__(self, row: Mapping[str, Any]) -> dict[int, float]:
        """Return the values of the row's features by bucket."""
        texts: dict[str, str] = {}
        numbers: dict[str, float] = {}
        entries: dict[int, float] = {}
        for name, role, as_it_is, column in self.columns:
            try:
                value = row[name]
            except KeyError:
                raise InputError(f"no column {name}, which the model was trained with; None if it is missing") from None
            if role == "categorical":
                texts[name] = value if as_it_is and type(value) is str else _text(value, column)
            elif role == "numeric":
                numbers[name] = value if type(value) is float else number_of(value, f"column {name}")
            elif role == "bucket":
                number = number_of(value, f"column {name}")
                texts[name] = "" if number != number else self.limits[name][bisect_right(column.edges, number)]
            elif role == "date":
                self._date(_moment(value, column, self.zones[name]), column, texts, numbers)
            else:
                self._words(value, name, entries)
        for cross, parts in self.crosses:
            texts[cross] = ",".join([texts[part] for part in parts])
        for name, text in texts.items():
            bucket = self.buckets[name][text]
            entries[bucket] = entries.get(bucket, 0.0) + 1.0
        for name, number in numbers.items():
            bucket, deviation = self.numbers[name]
            amount = number / deviation
            if amount != amount:
                bucket, amount = self.buckets[name][""], 1.0
            elif not -BEYOND < amount < BEYOND:
                raise InputError(f"column {name}: {number:g} is beyond float32 in deviations of this column")
            entries[bucket] = entries.get(bucket, 0.0) + amount
        return entries

    def _date(
        self, moment: datetime | None, column: TableColumn, texts: dict[str, str], numbers: dict[str, float]
    ) -> None:
        parts, age = ["", "", ""], math.nan
        if moment is not None:
            parts = [str(moment.hour), WEEKDAYS[moment.weekday()], str(moment.month)]
            age = column.latest - (moment - EPOCH) / timedelta(days=1)
        hourless = column.kind == "day"
        for part, text in zip(DATE_PARTS[hourless:], parts[hourless:]):
            texts[f"{column.name}.{part}"] = text
        numbers[f"{column.name}.age"] = age

    def _words(self, value: Any, name: str, entries: dict[int, float]) -> None:
        if isinstance(value, str):
            text = value.lower() if value.isascii() else "".join([each.lower()[0] for each in value])
        elif type(value).__name__ in NOTHING or value != value:
            return
        else:
            raise InputError(f"column {name}: expected text, got {value!r:.40}")
        start, bits = self.buckets[name].state, self.buckets[name].bits
        before = None
        for word in WORD.findall(text):
            states = [name_state(word, start)] + ([] if before is None else [name_state(f" {word}", before)])
            before = states[0]
            for state in states:
                bucket = bucket_at(state, bits)
                entries[bucket] = entries.get(bucket, 0.0) + 1.0


class PlainRow:
    """Encodes rows, dicts of values by the number of a feature, counted from 1 as in svmlight's text."""

    def __init__(self, width: int, bits: int | None) -> None:
        self.width, self.bits = width, bits

    def __call__(self, row: Mapping[Any, Any]) -> dict[int, float]:
        """Return the values of the row's features by index, from 0; features unknown to the model are left out."""
        entries: dict[int, float] = {}
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
                entries[index] = entries.get(index, 0.0) + number
        return entries


def number_of(value: Any, where: str) -> float:
    """Return a number, or text that is one; NaN if it is missing."""
    if type(value) is not float:
        text = value.strip() if isinstance(value, str) else None
        if text in MISSING or type(value).__name__ in NOTHING:
            return math.nan
        try:
            value = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{where}: {value!r:.40} is no number") from None
    if math.isinf(value):
        raise InputError(f"{where}: expected a finite number")
    return float(value)


def _text(value: Any, column: TableColumn) -> str:
    """Return a category as it is hashed; empty text if it is missing."""
    if isinstance(value, str):
        if column.kind == "boolean" or column.kind in NUMBERS:
            value = "" if value in MISSING else value
            return value.lower() if column.kind == "boolean" else re.sub(r"^(-?[0-9]+)\.0+$", r"\1", value)
        return value
    if type(value).__name__ in NOTHING:
        return ""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating | Decimal):
        number = float(value)
        if number.is_integer() and abs(number) < 2**63:
            return str(int(number))
        return "" if number != number else str(number if isinstance(value, Decimal) else value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    raise InputError(f"column {column.name}: expected text or a number, got {value!r:.40}")


def _moment(value: Any, column: TableColumn, zone: tzinfo) -> datetime | None:
    """Return a date, its text in the form of ISO 8601, or a Unix time, in the column's zone; in UTC unless zoned."""
    try:
        moment = value.astype("datetime64[us]").item() if isinstance(value, np.datetime64) else value
        if type(moment).__name__ in NOTHING:
            return None
        if not isinstance(moment, date) and column.kind in NUMBERS:
            seconds = number_of(value, f"column {column.name}")
            if seconds != seconds:
                return None
            moment = EPOCH + timedelta(microseconds=int(1e6 * (seconds / 1000 if seconds > LATE else seconds)))
        elif not isinstance(moment, date):
            text = "" if value != value else str(value).strip()
            if text in MISSING:
                return None
            moment = datetime.fromisoformat(text)
        elif not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(zone)
    except InputError:
        raise
    except (ValueError, OverflowError):
        raise InputError(f"column {column.name}: {value!r:.40} is no date such as 2005-09-06 17:30") from None


def _zone(name: str | None) -> tzinfo:
    if name and name[0] in "+-":
        return datetime.strptime(name, "%z").tzinfo or UTC
    return ZoneInfo(name) if name else UTC
