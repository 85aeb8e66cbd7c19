"""Names of users and items, whole numbers or strings: maps names to indices and back.

Names that are all whole numbers are kept as int64, 8 bytes each, and found by bisection; only other names are Python
strings, found through a dict that is made at the first look-up (some 150 bytes a name). Both are written to files as
plain arrays, so that reading one runs no code.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from hogwild.data.rows.container import frozen_array
from hogwild.errors import InputError, UsageError, reason_of


class Ids:
    """Names of the indices 0, 1, ...: whole numbers, or strings.

    Parameters
    ----------
    names : array or sequence of integers, or of str; shape (n,)
        All different. Those that hold anything but integers of 64 bits are taken as strings.
    check : bool
        Verify that no name occurs twice. Readers that guarantee it pass False.

    Raises
    ------
    InputError
        If a name occurs twice or is empty.
    """

    def __init__(self, names: Any, check: bool = True) -> None:
        array = _named(names)
        if array.ndim != 1:
            raise InputError(f"ids: expected one dimension, got shape {array.shape}")
        self.whole = array.dtype == np.int64
        self._names = frozen_array(array, np.int64) if self.whole else array  # (n,)
        self._names.flags.writeable = False
        self._table: Any = None  # look-up table, made when first needed
        if check:
            values, counts = np.unique(self._names, return_counts=True)
            if len(values) != len(self._names):
                raise InputError(f"ids: {values[np.argmax(counts > 1)]!s} names more than one index")
            if not self.whole and len(values) and not values[0]:
                raise InputError("ids: a name is empty")

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Ids({len(self):,} {'integers' if self.whole else 'strings'})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ids):
            return NotImplemented
        return self.whole == other.whole and np.array_equal(self._names, other._names)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and large

    def names(self, indices: Any = slice(None)) -> np.ndarray:
        """Return the names of indices, in their shape: int64, or an object array of str."""
        return self._names[indices]

    def lookup(self, names: Any) -> np.ndarray:
        """Return the indices of names, int32 in their shape; -1 where unknown. ``5`` and ``"5"`` are the same name."""
        wanted = _named(names)
        if not self.whole:
            if self._table is None:
                self._table = {name: index for index, name in enumerate(self._names.tolist())}
            flat = [self._table.get(str(name), -1) for name in wanted.ravel().tolist()]
            return np.array(flat, np.int32).reshape(wanted.shape)
        if self._table is None:
            order = np.argsort(self._names, kind="stable")
            self._table = np.append(self._names[order], 0), np.append(order, -1).astype(np.int32)
        ordered, order = self._table
        known: Any = True
        if wanted.dtype == object:
            numbers = [whole_number(name) for name in wanted.ravel().tolist()]
            known = np.array([number is not None for number in numbers], bool).reshape(wanted.shape)
            wanted = np.array([number or 0 for number in numbers], np.int64).reshape(wanted.shape)
        at = np.searchsorted(ordered[:-1], wanted)
        return np.where(known & (ordered[at] == wanted), order[at], np.int32(-1))

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """Return the arrays a file holds: ``{"numbers": (n,) int64}``, or ``{"text": uint8, "ends": (n,) int64}``.

        ``text`` is all names in UTF-8, concatenated; name ``i`` ends before ``ends[i]``. The arrays' names begin with
        ``prefix``.
        """
        if self.whole:
            return {f"{prefix}numbers": self._names}
        encoded = [name.encode() for name in self._names.tolist()]
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
        try:
            if "numbers" in arrays:
                return cls(arrays["numbers"])
            text, ends = arrays["text"].tobytes(), arrays["ends"].tolist()
            if ends == sorted(ends) and ends[-1:] in ([], [len(text)]):
                return cls([text[begin:end].decode() for begin, end in zip([0, *ends], ends)])
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise InputError(f"ids: damaged: {reason_of(error)}") from None
        raise InputError("ids: damaged: the ends of the names do not ascend to the length of their text")


def _named(names: Any) -> np.ndarray:
    """Return names as int64 if all are whole numbers that fit, else as an array of str objects."""
    if not isinstance(names, np.ndarray):
        names = np.array(list(names) if hasattr(names, "__iter__") and not isinstance(names, str) else names, object)
    with contextlib.suppress(OverflowError):
        if names.dtype.kind == "i":
            return names.astype(np.int64)
        if all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names.flat):
            return names.astype(object).astype(np.int64)
    return np.asarray(np.frompyfunc(str, 1, 1)(names), object)


def numbers_of_names(ids: Ids | None, names: Any, size: int) -> np.ndarray:
    """Return the indices of names, int32 in their shape, -1 where unknown; without ``ids`` names are their indices."""
    if ids is not None:
        return ids.lookup(names)
    numbers = np.asarray(names)
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise UsageError("users and items of this model have no names: ask for them by number, from 0")
    return np.where((numbers >= 0) & (numbers < size), numbers, -1).astype(np.int32)


def whole_number(name: str) -> int | None:
    """Return the whole number of 64 bits that a name is, as Python writes it: ``07`` is none."""
    try:
        number = int(name)
    except ValueError:
        return None
    return number if str(number) == name and -(2**63) <= number < 2**63 else None


class IdCollector:
    """Collects the ids of one side of a text: whole numbers if all are written as such, else strings.

    pyarrow numbers the different names of each batch, so only these are looked at here. All must be ``only``, or none
    empty.
    """

    type = "string"

    def __init__(self, only: str = "") -> None:
        self.parts: list[Any] = []
        self.only = only
        self.expected = f"expected {only}" if only else "it is empty"

    def take(self, names: Any) -> int:
        """Take a pyarrow array of strings; return the place of the first wrong one, or -1."""
        import pyarrow.compute as pc

        coded = names.dictionary_encode()
        self.parts.append(coded)
        is_it = np.asarray(pc.equal(pc.utf8_trim_whitespace(coded.dictionary), self.only))
        wrong = np.flatnonzero(is_it != bool(self.only))
        return int(np.argmax(np.isin(coded.indices, wrong))) if len(wrong) else -1

    def finish(self) -> tuple[np.ndarray, Ids]:
        """Return ``(indices, names)``: int32 indices in ascending order of the names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        parts, self.parts = self.parts, []
        if not parts:
            return np.empty(0, np.int32), Ids([])
        column = pa.chunked_array(parts).unify_dictionaries()
        trimmed = pc.utf8_trim_whitespace(column.chunk(0).dictionary).dictionary_encode()
        names = trimmed.dictionary
        whole = False
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = names.cast(pa.int64())
            whole = bool(pc.all(pc.equal(numbers.cast(names.type), names)).as_py())  # 07 is no number
        names = numbers if whole else names
        order = pc.sort_indices(names)
        rank = np.empty(len(names), np.int32)
        rank[order] = np.arange(len(names), dtype=np.int32)
        rank = rank[trimmed.indices]
        indices = np.concatenate([rank[part.indices] for part in column.chunks])
        names = names.take(order)
        return indices, Ids(names.to_numpy() if whole else names.to_pylist(), check=False)
