"""Turns columns of a table into buckets and numbers; a dictionary-encoded column has each value hashed once.

A category's name does not depend on how a file stores it. 7 as an integer, as a float (pandas's type for integers with
gaps), as a dictionary's value and as text are all ``column=7``; booleans are ``true`` and ``false``.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hogwild.data.rows.container import readonly
from hogwild.data.tables.plan import NUMBERS, TableColumn, TablePlan
from hogwild.errors import InputError

BEYOND = 3.4028235677973366e38  # rounds to infinity in float32
MASK = 2**64 - 1
LATE = 1e11  # Unix times beyond this are milliseconds
FIRST, LAST = -62_135_596_800, 253_402_300_799  # Unix times of the first and the last second of a datetime
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
WORD = re.compile(r"[A-Za-z0-9_\u00c0-\u1fff\u2070-\u2fff\u3040-\U0010ffff]+")  # as text_kernel.py finds them


class CellError(InputError):
    """An unusable value; ``row`` is counted from 0 in its piece."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


@contextlib.contextmanager
def naming(column: str, role: str) -> Iterator[None]:
    """Refuse what pyarrow cannot convert, such as times in an unknown zone."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        raise CellError(0, f"column {column}: cannot be {role}: {' '.join(str(error).split())}") from None


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


def known_names(plan: TablePlan) -> dict[int, list[str]]:
    """Return the names known without the table, by bucket: those of numbers and of missing values."""
    names: dict[int, list[str]] = {}
    for column in plan.features():
        for end in {"numeric": ("", "="), "categorical": ("=",), "text": ()}[column.role]:
            names.setdefault(bucket_of(column.name + end, plan.hash_bits), []).append(column.name + end)
    return names


def written(value: float, kind: Any) -> str:
    """Return a number of pyarrow's type ``kind`` as the shortest decimal that reads back: 0.1 also in float32."""
    narrow = {"float": np.float32, "halffloat": np.float16}.get(str(kind))
    return repr(value) if narrow is None else str(narrow(value))


class Categories:
    """Buckets of the values of one categorical column."""

    def __init__(self, column: TableColumn, bits: int) -> None:
        self.column, self.bits = column, bits
        self.state = np.uint64(name_state(f"{column.name}="))
        self.missing = bucket_of(f"{column.name}=", bits)

    def of(self, values: Any) -> np.ndarray:
        """Return the buckets, (n,) int32, of a pyarrow array of any type.

        Raises
        ------
        InputError
            For values that pyarrow cannot write as text, such as times in an unknown zone.
        """
        from pyarrow import types as t

        with naming(self.column.name, "categorical"):
            if t.is_string(values.type) or t.is_large_string(values.type):
                return self._of_text(values)
            coded = values if t.is_dictionary(values.type) else values.dictionary_encode()  # each value is written once
            buckets = np.append(self._of_text(coded.dictionary), np.int32(self.missing))
            places = coded.indices.cast("int64").fill_null(len(coded.dictionary))  # which int8 may not hold
            return buckets[np.asarray(places)]

    def texts(self, values: Any) -> Any:
        """Return each value's text as it is hashed, a pyarrow array; missing values give empty text."""
        import pyarrow as pa
        from pyarrow import types as t

        if t.is_dictionary(values.type):
            values = values.dictionary_decode()
        kind = values.type
        if t.is_floating(kind) or t.is_decimal(kind):
            texts = [
                str(int(x)) if x.is_integer() and abs(x) < 2**63 else "" if np.isnan(x) else written(x, kind)
                for x in numbers_of(values).tolist()
            ]
            return pa.array(texts, pa.large_string())
        plain = t.is_null(kind) or t.is_integer(kind) or t.is_boolean(kind)
        return (values.cast(pa.large_string()) if plain else self._written(values)).fill_null("")

    def _written(self, values: Any) -> Any:
        """Return text as it is hashed: ``true`` for True and 7 for 7.0 if training had booleans or numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_string(values.type):
            values = values.cast(pa.large_string() if not pa.types.is_temporal(values.type) else pa.string())
        kind = self.column.kind
        if kind in ("boolean", "whole", "number"):
            values = pc.if_else(missing_in(values), "", values)
        if kind == "boolean":
            return pc.utf8_lower(values)
        if kind in ("whole", "number"):
            return pc.replace_substring_regex(values, r"^(-?[0-9]+)\.0+$", r"\1")
        return values

    def _of_text(self, values: Any) -> np.ndarray:
        from hogwild.data.tables.text_kernel import hash_texts

        starts, text = text_of(self.texts(values))
        buckets = np.empty(len(values), np.int32)
        with np.errstate(over="ignore"):
            hash_texts(starts, text, self.state, self.bits, buckets)
        return buckets


def missing_in(texts: Any) -> Any:
    """Return which texts stand for a missing number, a pyarrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow.csv import ConvertOptions

    return pc.is_in(texts, pa.array(ConvertOptions().null_values, texts.type))


def text_of(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where each value of a pyarrow text array begins, (n + 1,) int64, and the bytes; none if missing."""
    import pyarrow as pa

    if values.null_count:
        values = values.fill_null("")
    wide = pa.types.is_large_string(values.type)
    _, starts, text = values.buffers()
    n, at = len(values), values.offset
    size = 8 if wide else 4
    begins = np.frombuffer(starts, np.int64 if wide else np.int32, n + 1, at * size) if n else np.zeros(1, np.int64)
    raw = np.frombuffer(text, np.uint8) if text is not None and text.size else np.zeros(1, np.uint8)
    return readonly(begins.astype(np.int64)), readonly(raw)


def numbers_of(values: Any) -> np.ndarray:
    """Return a pyarrow array of numbers or booleans as (n,) float64, with NaN for missing values."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if types.is_null(values.type):
        return np.full(len(values), np.nan)
    values = values.cast(pa.float64(), safe=False)
    numbers = np.array(values.fill_null(np.nan) if values.null_count else values, np.float64)
    return numbers


def scaled(values: Any, column: TableColumn) -> np.ndarray:
    """Return numbers divided by the column's deviation, (n,) float32, with NaN for missing values."""
    numbers = finite(values, column.name)
    with np.errstate(over="ignore"):
        quotients = (numbers / column.deviation).astype(np.float32)
    if np.isinf(quotients).any():
        row = int(np.argmax(np.isinf(quotients)))
        raise CellError(row, f"column {column.name}: {numbers[row]:g} is beyond float32 in deviations of this column")
    return quotients


def finite(values: Any, name: str) -> np.ndarray:
    """Return numbers, (n,) float64, with NaN for missing values; an infinite one is an error."""
    numbers = numbers_of(values)
    if np.isinf(numbers).any():
        raise CellError(int(np.argmax(np.isinf(numbers))), f"column {name}: expected a finite number")
    return numbers


def dates_of(values: Any, column: TableColumn) -> Any:
    """Return dates, their text in the form of ISO 8601, or Unix times, as a pyarrow array in the column's zone.

    Raises
    ------
    CellError
        For the first value that is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    zoned = pa.timestamp("us", column.zone)
    if pa.types.is_temporal(values.type) or pa.types.is_null(values.type):
        return values.cast(zoned, safe=False)
    if column.kind in NUMBERS:
        seconds = finite(values, column.name)
        seconds = np.where(seconds > LATE, seconds / 1000, seconds)
        there = np.isfinite(seconds)
        beyond = there & ~((seconds >= FIRST) & (seconds <= LAST))
        if beyond.any():
            row = int(np.argmax(beyond))
            raise CellError(row, f"column {column.name}: {seconds[row]:.6g} is no Unix time of the years 1 to 9999")
        microseconds = np.where(there, 1e6 * seconds, 0).astype(np.int64)
        return pa.array(microseconds, mask=~there).cast(pa.timestamp("us")).cast(zoned)
    texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
    texts = pc.if_else(missing_in(texts), None, texts)
    for zone in (None, "UTC"):
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp("us", zone)).cast(zoned)
    moments = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            moment = None if text is None else datetime.fromisoformat(text)
        except ValueError:
            said = f"column {column.name}: {text[:40]!r} is no date such as 2005-09-06 17:30"
            raise CellError(row, f"{said} (train with --categorical {column.name} to keep text)") from None
        moments.append(moment if moment is None or moment.tzinfo else moment.replace(tzinfo=UTC))
    return pa.array(moments, pa.timestamp("us", "UTC")).cast(zoned)


def days_of(dates: Any) -> np.ndarray:
    """Return the days from 1970 to each of some times, (n,) float64, with NaN for missing ones."""
    return numbers_of(dates.cast("int64")) / 86_400e6


def date_parts(dates: Any, column: TableColumn) -> dict[str, Any]:
    """Return a date's columns of features, pyarrow arrays by name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    weekdays = pa.DictionaryArray.from_arrays(pc.day_of_week(dates), WEEKDAYS)
    parts: dict[str, Any] = {"hour": pc.hour(dates), "weekday": weekdays, "month": pc.month(dates)}
    parts["age"] = pa.array(column.latest - days_of(dates))
    return {f"{column.name}.{part}": values for part, values in parts.items()}


def bucketed(values: Any, column: TableColumn) -> Any:
    """Return numbers as the categories between the column's edges, a pyarrow array."""
    import pyarrow as pa

    numbers = finite(values, column.name)
    codes = np.searchsorted(column.edges, numbers, side="right").astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=np.isnan(numbers)), limits_of(column))


def limits_of(column: TableColumn) -> list[str]:
    """Return the names of the categories between the column's edges, such as ``10..12.5``."""
    limits = ["", *(f"{edge:.12g}" for edge in column.edges), ""]
    return [f"{low}..{high}" for low, high in itertools.pairwise(limits)]


def words_of(values: Any, column: TableColumn, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each row's words and pairs of words begin, (n + 1,) int64, and their buckets, (words,) int32."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from hogwild.data.tables.text_kernel import count_words, hash_words

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    starts, text = text_of(pc.utf8_lower(values.cast(pa.large_string()).fill_null("")))
    counts = np.empty(len(values), np.int64)
    count_words(starts, text, counts)
    codes = np.empty(int(counts.sum()), np.int32)
    with np.errstate(over="ignore"):
        hash_words(starts, text, np.uint64(name_state(f"{column.name}=")), bits, codes)
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))), codes


def words_in(text: str) -> list[str]:
    """Return the words and pairs of words in a text, in the order of :func:`words_of`."""
    words = WORD.findall(text.lower())
    return words[:1] + [each for pair in itertools.pairwise(words) for each in (" ".join(pair), pair[1])]


def kind_of(type: Any) -> str:
    """The kind (``table_plan.KINDS``) of a pyarrow type."""
    from pyarrow import types as t

    if t.is_dictionary(type):
        inner = kind_of(type.value_type)
        return "category" if inner in ("text", "boolean", "whole", "number", "day", "date") else inner
    tests = {
        "text": (t.is_string, t.is_large_string, t.is_string_view),
        "boolean": (t.is_boolean,),
        "whole": (t.is_integer,),
        "number": (t.is_floating, t.is_decimal),
        "empty": (t.is_null,),
        "day": (t.is_date,),
        "date": (t.is_timestamp,),
        "clock": (t.is_temporal,),
        "binary": (t.is_binary, t.is_large_binary, t.is_fixed_size_binary, t.is_binary_view),
    }
    return next((kind for kind, ways in tests.items() if any(way(type) for way in ways)), "nested")
