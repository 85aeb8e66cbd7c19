"""Turns pyarrow's arrays of a column's values into buckets and numbers; each value of a dictionary is hashed once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.data.rows.container import readonly
from hogwild.data.tables.column import LATE, MISSING, NUMERIC, WEEKDAYS, WHOLE, WORD, TableColumn, bucket_of, name_state
from hogwild.errors import InputError

#: Arrow types of each kind.
TYPES = {
    "text": "string large_string string_view",
    "boolean": "boolean",
    "whole": "integer",
    "number": "floating decimal",
    "empty": "null",
    "day": "date",
    "date": "timestamp",
    "clock": "temporal",
    "binary": "binary large_binary fixed_size_binary binary_view",
}
FIRST, LAST = -62_135_596_800, 253_402_300_799  # Unix times of the first and the last second of a datetime


class CellError(InputError):
    """An unusable value; ``row`` is counted from 0 in its batch."""

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


def refuse(wrong: np.ndarray, what: str) -> None:
    """Raise the error for the first value that is wrong."""
    if wrong.any():
        raise CellError(int(np.argmax(wrong)), what)


def kind_of(type: Any) -> str:
    """Return the kind (``plan.KINDS``) of a pyarrow type."""
    from pyarrow import types as t

    if t.is_dictionary(type):
        inner = kind_of(type.value_type)
        return "category" if inner in ("text", "boolean", "whole", "number", "day", "date") else inner
    kinds = (kind for kind, names in TYPES.items() for name in names.split() if getattr(t, f"is_{name}")(type))
    return next(kinds, "nested")


def plain(values: Any, coded: bool = False) -> Any:
    """Return an array without a dictionary, unless it may be ``coded``, and whose text is large strings."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = pa.DictionaryArray.from_arrays(values.indices, plain(values.dictionary))
        return values if coded else values.dictionary_decode()
    return values.cast(pa.large_string()) if kind_of(values.type) == "text" else values


def missing_in(texts: Any) -> Any:
    """Return which large strings stand for a missing number, a pyarrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(texts, pa.array(sorted(MISSING), pa.large_string()))


def numbers_of(values: Any) -> np.ndarray:
    """Return numbers or booleans as (n,) float64, with NaN for missing values."""
    return np.asarray(values.cast("double", safe=False).fill_null(np.nan))


def finite(values: Any, name: str) -> np.ndarray:
    """Return numbers, (n,) float64, with NaN for missing values; an infinite one is an error."""
    numbers = numbers_of(values)
    refuse(np.isinf(numbers), f"column {name}: expected a finite number")
    return numbers


def scaled(values: Any, column: TableColumn) -> np.ndarray:
    """Return numbers divided by the column's deviation, (n,) float32, with NaN for missing values."""
    numbers = finite(values, column.name)
    with np.errstate(over="ignore"):
        quotients = (numbers / column.deviation).astype(np.float32)
    if (beyond := np.isinf(quotients)).any():
        number = numbers[np.argmax(beyond)]
        refuse(beyond, f"column {column.name}: {number:g} is beyond float32 in deviations of this column")
    return quotients


def texts_of(values: Any, column: TableColumn) -> Any:
    """Return each value's text as it is hashed, large strings; missing values give empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain(values)
    if kind_of(values.type) == "number":
        return pa.array(map(column.text, values.to_numpy(zero_copy_only=False)), pa.large_string())
    texts = values.cast(pa.large_string())
    if column.kind == "boolean" or column.kind in NUMERIC:
        texts = pc.if_else(missing_in(texts), "", texts)
        texts = pc.utf8_lower(texts) if column.kind == "boolean" else pc.replace_substring_regex(texts, WHOLE, r"\1")
    return texts.fill_null("")


def text_buffers(texts: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return where each of some large strings begins, (n + 1,) int64, and the bytes."""
    _, starts, text = texts.buffers()
    begins = np.frombuffer(starts, np.int64, len(texts) + 1, 8 * texts.offset) if len(texts) else np.zeros(1, np.int64)
    return readonly(begins), readonly(np.frombuffer(text or b"\0", np.uint8))


def buckets_of(values: Any, column: TableColumn, bits: int) -> np.ndarray:
    """Return the buckets, (n,) int32, of the values of a categorical column.

    Raises
    ------
    CellError
        For values that pyarrow cannot write as text, such as times in an unknown zone.
    """
    from pyarrow import types as t

    from hogwild.data.tables.text_kernel import hash_texts

    with naming(column.name, "categorical"):
        coded = t.is_dictionary(values.type)
        if not coded and not t.is_large_string(values.type):
            values, coded = values.dictionary_encode(), True  # each value is written once
        starts, text = text_buffers(texts_of(values.dictionary if coded else values, column))
    buckets = np.empty(len(starts) - 1, np.int32)
    with np.errstate(over="ignore"):
        hash_texts(starts, text, np.uint64(name_state(f"{column.name}=")), bits, buckets)
    if not coded:
        return buckets
    places = values.indices.cast("int64").fill_null(len(buckets))  # which int8 may not hold
    return np.append(buckets, np.int32(bucket_of(f"{column.name}=", bits)))[np.asarray(places)]


def words_of(values: Any, column: TableColumn, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each row's words and pairs of words begin, (n + 1,) int64, and their buckets, (words,) int32."""
    import pyarrow.compute as pc

    from hogwild.data.tables.text_kernel import hash_words

    starts, text = text_buffers(pc.utf8_lower(values.cast("large_string").fill_null("")))
    begins, codes = np.zeros(len(values) + 1, np.int64), np.empty(starts[-1] - starts[0] + 1, np.int32)
    with np.errstate(over="ignore"):
        hash_words(starts, text, np.uint64(name_state(f"{column.name}=")), bits, begins[1:], codes)
    return begins, codes[: begins[-1]]


def words_in(text: str) -> list[str]:
    """Return the words and pairs of words in a text, in the order of :func:`words_of`."""
    words = WORD.findall(text.lower())
    return words[:1] + [each for pair in itertools.pairwise(words) for each in (" ".join(pair), pair[1])]


def feature_arrays(values: Any, column: TableColumn) -> dict[str, Any]:
    """Return a column's columns of features, pyarrow arrays by name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = plain(values, coded=column.role == "categorical")
    if column.role == "bucket":
        numbers = finite(values, column.name)
        codes = np.searchsorted(column.edges, numbers, side="right").astype(np.int32)
        values = pa.DictionaryArray.from_arrays(pa.array(codes, mask=np.isnan(numbers)), column.limits)
    if column.role != "date":
        return {column.name: values}
    with naming(column.name, "a date"):
        dates = dates_of(values, column)
        weekdays = pa.DictionaryArray.from_arrays(pc.day_of_week(dates), WEEKDAYS)
        ages = pa.array(column.latest - numbers_of(dates.cast("int64")) / 86_400e6)
        parts = {"hour": pc.hour(dates), "weekday": weekdays, "month": pc.month(dates), "age": ages}
    return {f"{column.name}.{part}": plain(each, coded=True) for part, each in parts.items()}


def dates_of(values: Any, column: TableColumn) -> Any:
    """Return dates, their text in the form of ISO 8601, or Unix times, as a pyarrow array in the column's zone.

    Raises
    ------
    CellError
        For the first value that is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    zoned = pa.timestamp("us", column.zone)
    if pa.types.is_temporal(values.type) or pa.types.is_null(values.type):
        return values.cast(zoned, safe=False)
    if column.kind in NUMERIC:
        seconds = finite(values, column.name)
        seconds = np.where(seconds > LATE, seconds / 1000, seconds)
        if (beyond := (seconds < FIRST) | (seconds > LAST)).any():
            time = seconds[np.argmax(beyond)]
            refuse(beyond, f"column {column.name}: {time:.6g} is no Unix time of the years 1 to 9999")
        microseconds = np.nan_to_num(1e6 * seconds).astype(np.int64)
        return pa.array(microseconds, mask=np.isnan(seconds)).cast(pa.timestamp("us")).cast(zoned)
    texts = pc.utf8_trim_whitespace(values.cast("large_string"))
    texts = pc.if_else(missing_in(texts), None, texts)
    for zone in (None, "UTC"):
        with contextlib.suppress(pa.ArrowInvalid):
            return texts.cast(pa.timestamp("us", zone)).cast(zoned)
    moments = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            moments.append(column.moment(text))
        except InputError as error:
            raise CellError(row, f"{error} (train with --categorical {column.name} to keep text)") from None
    return pa.array(moments, pa.timestamp("us", "UTC")).cast(zoned)
