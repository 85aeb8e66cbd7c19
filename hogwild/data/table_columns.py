"""Columns of a table as buckets and numbers: each value hashed once where the column is dictionary-encoded.

The decision that matters: what a category is called does not depend on how a file stores it. 7 as an integer, as a
float (what pandas makes of integers with gaps), as a dictionary's value and as text are all ``column=7``; booleans are
``true`` and ``false``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.examples import readonly
from hogwild.data.table_plan import Column
from hogwild.errors import InputError

BEYOND = 3.4028235677973366e38  # rounds to infinity in float32
MEMORY = 64  # dictionaries whose buckets are kept


class CellError(InputError):
    """A value that cannot be used; ``row`` is counted from 0 in its piece."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def name_state(text: str) -> int:
    """The FNV-1a state, 64 bits, after the UTF-8 bytes of ``text``."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def bucket_of(text: str, bits: int) -> int:
    """The bucket, below 2^bits, of a feature's name such as ``site=example.org`` or ``price``."""
    from hogwild.kernels.hashing import bucket

    with np.errstate(over="ignore"):
        return int(bucket(np.uint64(name_state(text)), bits))


def written(value: float, kind: Any) -> str:
    """A number of pyarrow's type ``kind`` in the shortest decimals that read back the same: 0.1 also in float32."""
    narrow = {"float": np.float32, "halffloat": np.float16}.get(str(kind))
    return repr(value) if narrow is None else str(narrow(value))


class Categories:
    """Buckets of the values of one column of categories."""

    def __init__(self, column: Column, bits: int) -> None:
        self.column, self.bits = column, bits
        self.state = np.uint64(name_state(f"{column.name}="))
        self.missing = bucket_of(f"{column.name}=", bits)
        self._known: dict[tuple[Any, ...], tuple[Any, np.ndarray]] = {}

    def of(self, values: Any) -> np.ndarray:
        """(n,) int32 of a pyarrow array of any type."""
        from pyarrow import types as t

        kind = values.type
        if t.is_dictionary(kind):
            return self._of_dictionary(values)
        if t.is_null(kind):
            return np.full(len(values), self.missing, np.int32)
        if t.is_integer(kind):
            found = self._of_whole(values)
        elif t.is_floating(kind) or t.is_decimal(kind):
            found = self._of_floats(numbers_of(values), values.type)
        elif t.is_boolean(kind):
            found = self._of_whole(values, ("false", "true"))
        else:
            return self._of_text(self._written(values))
        if values.null_count:
            found[np.asarray(values.is_null())] = self.missing
        return found

    def _of_dictionary(self, values: Any) -> np.ndarray:
        dictionary, indices = values.dictionary, values.indices
        key = tuple(buffer.address for buffer in dictionary.buffers() if buffer is not None)
        key += (dictionary.offset, len(dictionary))
        held = self._known.get(key)
        if held is None:
            held = dictionary, np.append(self.of(dictionary), np.int32(self.missing))
            if len(self._known) >= MEMORY:
                self._known.clear()
            self._known[key] = held  # with the dictionary, so that its address is not used again
        if indices.null_count:
            indices = indices.fill_null(0)
            found = held[1][np.asarray(indices)]
            found[np.asarray(values.indices.is_null())] = self.missing
            return found
        return held[1][np.asarray(indices)]

    def _written(self, values: Any) -> Any:
        """Text as it is hashed: ``true`` for True and 7 for 7.0 where the training table held booleans or numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow.csv import ConvertOptions

        if not pa.types.is_string(values.type):
            values = values.cast(pa.large_string() if not pa.types.is_temporal(values.type) else pa.string())
        kind = self.column.kind
        if kind in ("boolean", "whole", "number"):
            values = pc.if_else(pc.is_in(values, pa.array(ConvertOptions().null_values, values.type)), "", values)
        if kind == "boolean":
            return pc.utf8_lower(values)
        if kind in ("whole", "number"):
            return pc.replace_substring_regex(values, r"^(-?[0-9]+)\.0+$", r"\1")
        return values

    def _of_text(self, values: Any) -> np.ndarray:
        from hogwild.kernels.tables import hash_texts

        starts, text = text_of(values)
        found = np.empty(len(values), np.int32)
        with np.errstate(over="ignore"):
            hash_texts(starts, text, self.state, self.bits, found)
        return found

    def _of_whole(self, values: Any, names: tuple[str, ...] = ()) -> np.ndarray:
        import pyarrow as pa

        if names:
            codes = [bucket_of(f"{self.column.name}={name}", self.bits) for name in names]
            return np.array(codes, np.int32)[np.asarray(values.fill_null(False).cast(pa.uint8()))]
        return self._of_integers(np.asarray(values.fill_null(0)))

    def _of_integers(self, whole: np.ndarray) -> np.ndarray:
        from hogwild.kernels.tables import DIGITS, hash_numbers

        negative = whole < 0
        sizes = whole.astype(np.int64).view(np.uint64) if whole.dtype.kind == "i" else whole.astype(np.uint64)
        with np.errstate(over="ignore"):
            sizes = np.where(negative, np.uint64(0) - sizes, sizes)
            found = np.empty(len(whole), np.int32)
            hash_numbers(sizes, negative, self.state, self.bits, np.empty(DIGITS, np.uint64), found)
        return found

    def _of_floats(self, numbers: np.ndarray, kind: Any) -> np.ndarray:
        """Whole numbers as integers are written, others as ``written`` says."""
        whole = (np.abs(numbers) < 2**63) & (numbers == np.floor(numbers))
        found = self._of_integers(np.where(whole, numbers, 0).astype(np.int64))
        rest = np.flatnonzero(~whole)
        values = set(numbers[rest].tolist())
        names = {value: bucket_of(f"{self.column.name}={written(value, kind)}", self.bits) for value in values}
        missing = np.isnan(numbers)
        found[rest] = [names.get(value, self.missing) for value in numbers[rest].tolist()]
        found[missing] = self.missing
        return found


def text_of(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where each value of a pyarrow array of text begins, (n + 1,) int64, and the bytes; a missing one is empty."""
    import pyarrow as pa

    if values.null_count:
        values = values.fill_null("")
    wide = pa.types.is_large_string(values.type)
    _, starts, text = values.buffers()
    n, at = len(values), values.offset
    size = 8 if wide else 4
    found = np.frombuffer(starts, np.int64 if wide else np.int32, n + 1, at * size) if n else np.zeros(1, np.int64)
    raw = np.frombuffer(text, np.uint8) if text is not None and text.size else np.zeros(1, np.uint8)
    return readonly(found.astype(np.int64)), readonly(raw)


def numbers_of(values: Any) -> np.ndarray:
    """(n,) float64 of a pyarrow array of numbers or booleans; NaN where one is missing."""
    import pyarrow as pa

    kind = pa.types
    if kind.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if kind.is_null(values.type):
        return np.full(len(values), np.nan)
    values = values.cast(pa.float64(), safe=False)
    found = np.array(values.fill_null(np.nan) if values.null_count else values, np.float64)
    return found


def scaled(values: Any, column: Column) -> np.ndarray:
    """Numbers divided by the column's deviation, (n,) float32; NaN where one is missing."""
    numbers = finite(values, column.name)
    with np.errstate(over="ignore"):
        found = (numbers / column.deviation).astype(np.float32)
    if np.isinf(found).any():
        row = int(np.argmax(np.isinf(found)))
        raise CellError(row, f"column {column.name}: {numbers[row]:g} is beyond float32 in deviations of this column")
    return found


def finite(values: Any, name: str) -> np.ndarray:
    """Numbers, (n,) float64, NaN where one is missing, none of them infinite."""
    numbers = numbers_of(values)
    if np.isinf(numbers).any():
        raise CellError(int(np.argmax(np.isinf(numbers))), f"column {name}: expected a finite number")
    return numbers


def words_of(values: Any, column: Column, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the words of each row begin, (n + 1,) int64, and the buckets of words and of pairs of neighbours, int32."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from hogwild.kernels.tables import count_words, hash_words

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    starts, text = text_of(pc.utf8_lower(values.cast(pa.large_string()).fill_null("")))
    counts = np.empty(len(values), np.int64)
    count_words(starts, text, counts)
    found = np.empty(int(counts.sum()), np.int32)
    with np.errstate(over="ignore"):
        hash_words(starts, text, np.uint64(name_state(f"{column.name}=")), bits, found)
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))), found
