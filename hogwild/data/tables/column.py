"""A column of a table: its use, the facts that encode its values, and how one value becomes text, a number or a date.

``arrays.py`` encodes whole arrays of pyarrow by the same facts; here is what a server needs, without pyarrow or Numba.

A category's name does not depend on how a file stores it. 7 as an integer, as a float (pandas's type for integers with
gaps), as a dictionary's value and as text are all ``column=7``; booleans are ``true`` and ``false``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hogwild.errors import InputError

NUMERIC = ("whole", "number")
DATE_PARTS = ("hour", "weekday", "month")
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATE = 1e11  # Unix times beyond this are milliseconds
BEYOND = 3.4028235677973366e38  # rounds to infinity in float32
MASK = 2**64 - 1
WORD = re.compile(r"[A-Za-z0-9_\u00c0-\u1fff\u2070-\u2fff\u3040-\U0010ffff]+")  # as text_kernel.py finds them
WHOLE = r"^(-?[0-9]+)\.0+$"  # how a whole number is written where numbers are floats
NOTHING = ("NoneType", "NAType", "NaTType")  # types of None and of pandas's NA and NaT
#: Texts that stand for a missing number, as in pyarrow's reader of CSV.
MISSING = {"", "#N/A N/A", *"#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN N/A NA NULL NaN n/a nan null".split()}


@dataclass(frozen=True)
class TableColumn:
    """One column. ``kind`` is its kind in the training table.

    Numbers, and the ages of dates, are divided by ``deviation``. ``edges`` are the limits of buckets; ``latest`` is the
    latest date in training, in days since 1970, and ``zone`` the one in which hours are told, by default UTC.
    """

    name: str
    role: str
    kind: str
    deviation: float = 1.0
    edges: tuple[float, ...] = ()
    latest: float = 0.0
    zone: str | None = None

    @cached_property
    def features(self) -> list[TableColumn]:
        """The columns of features that it becomes, which are categorical, numeric or text."""
        if self.role == "date":
            parts = DATE_PARTS[self.kind == "day" :]
            age = dataclasses.replace(self, name=f"{self.name}.age", role="numeric")
            return [*(TableColumn(f"{self.name}.{part}", "categorical", self.kind) for part in parts), age]
        return [TableColumn(self.name, "categorical", "text") if self.role == "bucket" else self]

    @cached_property
    def limits(self) -> list[str]:
        """The names of the categories between its edges, such as ``10..12.5``."""
        limits = ["", *(f"{edge:.12g}" for edge in self.edges), ""]
        return [f"{low}..{high}" for low, high in itertools.pairwise(limits)]

    @cached_property
    def timezone(self) -> tzinfo:
        """The zone in which hours are told."""
        if self.zone and self.zone[0] in "+-":
            return datetime.strptime(self.zone, "%z").tzinfo or UTC
        try:
            return ZoneInfo(self.zone) if self.zone else UTC
        except KeyError:
            raise InputError(f"column {self.name}: no time zone {self.zone} here: pip install tzdata") from None

    def text(self, value: Any) -> str:
        """Return a category as it is hashed; empty text if it is missing."""
        if isinstance(value, str):
            if self.kind in NUMERIC:
                return "" if value in MISSING else re.sub(WHOLE, r"\1", value)
            if self.kind == "boolean":
                return "" if value in MISSING else value.lower()
            return str(value)  # of NumPy's text, too, a plain one
        if type(value).__name__ in NOTHING:
            return ""
        if isinstance(value, float | np.floating | Decimal):
            number = float(value)
            if number.is_integer() and abs(number) < 2**63:
                return str(int(number))
            return "" if number != number else str(number if isinstance(value, Decimal) else value)
        if isinstance(value, int | np.integer | np.bool_):
            return str(value).lower()
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        raise InputError(f"column {self.name}: expected text or a number, got {value!r:.40}")

    def number(self, value: Any) -> float:
        """Return a number, or text that is one; NaN if it is missing."""
        return value if type(value) is float and math.isfinite(value) else number_of(value, f"column {self.name}")

    def moment(self, value: Any) -> datetime | None:
        """Return a date, its text in the form of ISO 8601, or a Unix time, in the column's zone; in UTC unless zoned.

        Raises
        ------
        InputError
        """
        try:
            moment = value.astype("datetime64[us]").item() if isinstance(value, np.datetime64) else value
            if type(moment).__name__ in NOTHING or moment != moment:
                return None
            if not isinstance(moment, date) and self.kind in NUMERIC:
                seconds = self.number(value)
                if seconds != seconds:
                    return None
                moment = EPOCH + timedelta(microseconds=int(1e6 * (seconds / 1000 if seconds > LATE else seconds)))
            elif not isinstance(moment, date):
                text = str(value).strip()
                if text in MISSING:
                    return None
                moment = datetime.fromisoformat(text)
            elif not isinstance(moment, datetime):
                moment = datetime(moment.year, moment.month, moment.day)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(self.timezone)
        except InputError:
            raise
        except (ValueError, OverflowError):
            raise InputError(f"column {self.name}: {value!r:.40} is no date such as 2005-09-06 17:30") from None


def number_of(value: Any, where: str) -> float:
    """Return a number, or text that is one; NaN if it is missing."""
    if (isinstance(value, str) and value.strip() in MISSING) or type(value).__name__ in NOTHING:
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: {value!r:.40} is no number") from None
    if math.isinf(number):
        raise InputError(f"{where}: expected a finite number")
    return number


def name_state(text: str, state: int = 0xCBF29CE484222325) -> int:
    """Return the 64-bit FNV-1a state after the UTF-8 bytes of ``text``, from the state after what is before it."""
    for byte in text.encode(errors="surrogatepass"):
        state = (state ^ byte) * 0x100000001B3 & MASK
    return state


def bucket_at(state: int, bits: int) -> int:
    """Return the bucket of a hash state or an index: as ``data/text/hashing_kernel.py``, without Numba."""
    z = state + 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return (z ^ z >> 31) >> (64 - bits)


def bucket_of(text: str, bits: int) -> int:
    """Return the bucket, below 2^bits, of a feature's name such as ``site=example.org`` or ``price``."""
    return bucket_at(name_state(text), bits)
