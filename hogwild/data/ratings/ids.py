"""Names of users and items, whole numbers or strings: maps names to indices and back.

Names that are all whole numbers are kept as int64, 8 bytes each, and found by bisection; only other names are Python
strings, found through a dict that is made at the first look-up (some 150 bytes a name). Both are written to files as
plain arrays, so that reading one runs no code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.rows.container import frozen_array
from hogwild.errors import InputError


class Ids:
    """Names of the indices 0, 1, ...: whole numbers, or strings.

    Parameters
    ----------
    names : array of integers, or sequence of str or bytes (UTF-8); shape (n,)
        All different. A sequence that holds anything but integers is taken as strings.
    check : bool
        Verify that no name occurs twice. Readers that guarantee it pass False.

    Raises
    ------
    InputError
        If a name occurs twice or is empty.
    """

    def __init__(self, names: Any, check: bool = True) -> None:
        array = _as_array(names)
        if array.ndim != 1:
            raise InputError(f"ids: expected one dimension, got shape {array.shape}")
        self.numbers: np.ndarray | None = None  # (n,) int64
        self._strings: np.ndarray | None = None  # (n,) of str
        self._table: Any = None  # look-up table, made when first needed
        if array.dtype.kind in "iu":
            if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
                raise InputError(f"ids: {array.max()} does not fit 64 bits: give such names as strings")
            self.numbers = frozen_array(array, np.int64)
        else:
            self._strings = _as_strings(array)
        if check:
            self._check()

    def _check(self) -> None:
        names = self.numbers if self.numbers is not None else self._strings
        assert names is not None
        values, counts = np.unique(names, return_counts=True)
        if len(values) != len(names):
            raise InputError(f"ids: {values[np.argmax(counts > 1)]!s} names more than one index")
        if self._strings is not None and len(values) and not values[0]:
            raise InputError("ids: a name is empty")

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        kind = "integers" if self.numbers is not None else "strings"
        return f"Ids({len(self):,} {kind})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        return (self.numbers is None) == (other.numbers is None) and np.array_equal(self._all(), other._all())

    __hash__ = None  # type: ignore[assignment]  # equal by content, and large

    def _all(self) -> np.ndarray:
        names = self.numbers if self.numbers is not None else self._strings
        assert names is not None
        return names

    def names(self, indices: Any = slice(None)) -> np.ndarray:
        """Return the names of indices, in their shape: int64, or an object array of str."""
        return self._all()[indices]

    def lookup(self, names: Any) -> np.ndarray:
        """Return the indices of names, int32 in their shape; -1 where unknown. ``5`` and ``"5"`` are the same name."""
        wanted = _as_array(names)
        if self.numbers is not None:
            return self._lookup_numbers(wanted)
        if self._table is None:
            self._table = {name: index for index, name in enumerate(self._all().tolist())}
        flat = [self._table.get(_text(name), -1) for name in wanted.ravel().tolist()]
        return np.array(flat, np.int32).reshape(wanted.shape)

    def _lookup_numbers(self, wanted: np.ndarray) -> np.ndarray:
        assert self.numbers is not None
        if wanted.dtype.kind not in "iu":
            wanted, whole = _as_numbers(wanted)
        else:
            whole = np.ones(wanted.shape, bool)
        if self._table is None:
            order = np.argsort(self.numbers, kind="stable")
            self._table = self.numbers[order], order.astype(np.int32)
        ordered, order = self._table
        if not len(ordered):
            return np.full(wanted.shape, -1, np.int32)
        at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(whole & (ordered[at] == wanted), order[at], np.int32(-1)).astype(np.int32)

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return the arrays a file holds: ``{"numbers": (n,) int64}``, or ``{"text": uint8, "ends": (n,) int64}``.

        ``text`` is all names in UTF-8, concatenated; name ``i`` ends before ``ends[i]``. The arrays' names begin with
        ``prefix``.
        """
        if self.numbers is not None:
            return {f"{prefix}numbers": self.numbers}
        encoded = [name.encode() for name in self._all().tolist()]
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)
        return {f"{prefix}text": np.frombuffer(b"".join(encoded), np.uint8), f"{prefix}ends": ends}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], prefix: str = "") -> Ids | None:
        """Return the ids from which :meth:`arrays` made those of ``arrays`` with the prefix; None if there are none.

        Raises
        ------
        InputError
            If the arrays are not what that method returns.
        """
        arrays = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        if not arrays:
            return None
        if set(arrays) == {"numbers"} and arrays["numbers"].ndim == 1 and arrays["numbers"].dtype.kind in "iu":
            return cls(arrays["numbers"])
        if set(arrays) != {"text", "ends"}:
            raise InputError(f"ids: expected an array of numbers, or text and its ends, got {sorted(arrays)}")
        text, ends = np.ascontiguousarray(arrays["text"]), arrays["ends"]
        begins = np.append(0, ends)[:-1] if ends.ndim == 1 else ends
        if text.dtype != np.uint8 or ends.ndim != 1 or np.any(ends <= begins) or (ends[-1:] != len(text)).any():
            raise InputError("ids: damaged: the ends of the names do not ascend to the length of their text")
        data = text.tobytes()
        try:
            return cls([data[a:b].decode() for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
        except UnicodeDecodeError:
            raise InputError("ids: damaged: a name is not UTF-8") from None


def _as_array(names: Any) -> np.ndarray:
    """Return names as int64 if all are whole numbers that fit, else as objects (NumPy would truncate strings)."""
    if isinstance(names, np.ndarray):
        return names
    array = np.array(
        list(names) if hasattr(names, "__iter__") and not isinstance(names, str | bytes) else names, object
    )
    if all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in array.flat):
        try:
            return array.astype(np.int64)
        except OverflowError:
            pass
    return array


def _as_strings(names: np.ndarray) -> np.ndarray:
    strings = np.empty(len(names), object)
    try:
        strings[:] = [_text(name) for name in names.tolist()]
    except UnicodeDecodeError:
        raise InputError("ids: a name is not UTF-8") from None
    strings.flags.writeable = False
    return strings


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _as_numbers(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(int64 values, which of the names are whole numbers)``; a name such as ``007`` is not one."""
    texts = [_text(name) for name in names.ravel().tolist()]
    values, whole = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for at, text in enumerate(texts):
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and str(number := int(text)) == text and -(2**63) <= number < 2**63:
            values[at], whole[at] = number, True
    return values.reshape(names.shape), whole.reshape(names.shape)


def distinct(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different whole numbers, ascending, and the place of each among them, (n,) int32."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low >= max(4 * len(numbers), 1 << 20) or high >= 2**62 or not len(numbers):
        names, places = np.unique(numbers, return_inverse=True)
        return names, places.astype(np.int32)
    present = np.zeros(high - low + 1, bool)  # if it fits, a table is many times faster than sorting
    shifted = numbers if low == 0 else numbers - numbers.dtype.type(low)
    present[shifted] = True
    places = np.cumsum(present, dtype=np.int32)
    places -= 1
    return np.flatnonzero(present) + low, places[shifted]


class IdCollector:
    """Ids of one side in order: numbers while all are numbers, codes of strings from the first batch with others."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, bool]] = []  # (numbers, True), or (codes, False)
        self.table: dict[str, int] = {}

    def add(self, names: Any) -> int:
        """Add a pyarrow array of strings; return the place of an empty one, or -1."""
        import pyarrow.compute as pc

        numbers = whole_numbers(names)
        if numbers is None:
            names = pc.utf8_trim_whitespace(names)
            numbers = whole_numbers(names)
        if numbers is None:
            coded = names.dictionary_encode()
            codes = np.array(self._codes(coded.dictionary.to_pylist()), np.int32)
            self.parts.append((codes[coded.indices.to_numpy()], False))
            return int(pc.index(names, "").as_py())
        fit = not len(numbers) or (numbers.min() >= -(2**31) and numbers.max() < 2**31)
        self.parts.append((numbers.astype(np.int32 if fit else np.int64), True))  # kept until the end
        return -1

    def _codes(self, names: list[str]) -> list[int]:
        table = self.table
        return [table.setdefault(name, len(table)) for name in names]

    def finish(self) -> tuple[np.ndarray, Ids]:
        """Return ``(indices, names)``: int32 indices in ascending order of the names."""
        parts, self.parts = self.parts, []
        if not self.table:
            different, places = distinct(np.concatenate([part for part, _ in parts] or [np.empty(0, np.int64)]))
            return places, Ids(different, check=False)
        codes = []
        for part, whole in parts:
            if whole:
                values, place = np.unique(part, return_inverse=True)
                part = np.array(self._codes([str(value) for value in values.tolist()]), np.int32)[place]
            codes.append(part)
        names = list(self.table)
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), np.int32)
        rank[order] = np.arange(len(names), dtype=np.int32)
        return rank[np.concatenate(codes)], Ids([names[place] for place in order], check=False)


def whole_numbers(names: Any) -> np.ndarray | None:
    """Return a pyarrow array of strings as int64 if all are whole numbers as Python writes them; ``07`` is none."""
    import pyarrow as pa

    try:
        numbers = names.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    _, offsets, _ = names.buffers()
    ends = np.frombuffer(offsets, np.int32, len(names) + 1, 4 * names.offset)
    shortest = len(numbers) + int(np.count_nonzero(numbers < 0))  # characters, if none are superfluous
    sizes = np.abs(numbers)
    power = 10
    while power <= sizes.max(initial=0):
        shortest += int(np.count_nonzero(sizes >= power))
        power *= 10
    return numbers if shortest == ends[-1] - ends[0] else None
