"""Container of training examples: ``Rows``, sparse rows with one target each.

A row is a slice ``[begin, end)`` of two flat arrays. With both ends instead of one ``indptr``, a subset of the rows (a
hold-out split, a fold) is a pair of small arrays over the *same* data: nothing is copied, and a store larger than
memory can be split. For whole data ``begin`` and ``end`` are two views of one ``indptr``.

All arrays are read-only, so that kernels compile once per role and a memory map never counts as used memory.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hogwild.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse

INDEX_LIMIT = 2**31 - 1  # indices are int32, so this is also the largest width
PIECE = 1 << 20  # entries processed at a time where temporaries are made


def evenly(total: int, count: int) -> np.ndarray:
    """``count`` of the numbers below ``total``, evenly spaced from first to last; all of them if they are fewer."""
    if count >= total:
        return np.arange(total)
    return np.arange(count) * (total - 1) // max(count - 1, 1)


def frozen_array(array: Any, dtype: Any) -> np.ndarray:
    """A read-only C-contiguous view (a copy only if the dtype or layout differs); never a ``memmap`` instance."""
    return readonly(np.ascontiguousarray(np.asarray(array), dtype=dtype))


def readonly(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: kernels then see one type, whether or not the array itself can be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_whole(name: str, array: Any) -> None:
    """Refuse what a cast to int32 would wrap around or cut off without a word."""
    given = np.asarray(array)
    if given.dtype == np.int32 or given.size == 0:
        return
    if given.dtype.kind not in "iu":
        raise InputError(f"{name}: expected whole numbers, got dtype {given.dtype}")
    if given.min() < -INDEX_LIMIT or given.max() > INDEX_LIMIT:
        raise InputError(f"{name} run from {given.min()} to {given.max()}: expected 0 to {INDEX_LIMIT - 1}")


def _check_offsets(indptr: np.ndarray, stored: int) -> None:
    """Refuse a damaged CSR matrix before scipy's compiled code follows its offsets out of the arrays."""
    if indptr[0] != 0 or indptr[-1] > stored or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"X: its indptr does not ascend from 0 to at most its {stored} indices")


def shortest(number: float) -> str:
    """Return a short decimal that reads back as the same float32; labels and values are written this way everywhere."""
    value = np.float32(number)
    if value and value.is_integer() and abs(value) < 2**24:  # 1000001, not 1.000001e+06; -0 keeps its sign
        return str(int(value))
    text = str(value).removesuffix(".0")
    return text if np.float32(float(text)) == value else repr(float(value))  # repr in theory only: rounded twice


EMPTY = readonly(np.empty(0, dtype=np.float32))  # used where there are no weights or scales


class Rows:
    """Sparse rows with a target, and optionally a weight, each.

    Parameters
    ----------
    indptr : array of int64, shape (n + 1,), or a pair (begin, end) of int64 arrays, each of shape (n,)
        Row ``i`` holds the entries ``begin[i] <= j < end[i]``.
    indices : array of int32, shape (nnz,)
        Zero-based features, ascending and without repeats inside a row.
    values : array of float32, shape (nnz,)
    targets : array of float32, shape (n,)
        Labels exactly as the user wrote them (two or more distinct numbers), or real targets.
    width : int
        Number of features; every index is below it.
    weights : array of float32, shape (n,), optional
        Non-negative sample weights.
    store : path, optional
        Directory the flat arrays are mapped from. Worker processes open it instead of receiving the data.
    check : bool
        Verify shapes, order and ranges (one pass). Readers that guarantee these pass False.
    hash_bits : int, optional
        The features are ``2**hash_bits`` buckets made by ``data/text/hashing.py``; None: they are not hashed.
    table : dict, optional
        The plan by which they were made from a table's columns (``data/tables/plan.py``), in JSON types.

    Raises
    ------
    InputError
        The message names the first row that breaks a rule.
    """

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        values: Any,
        targets: Any,
        width: int,
        weights: Any = None,
        store: str | Path | None = None,
        check: bool = True,
        hash_bits: int | None = None,
        table: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(indptr, tuple):
            self.begin, self.end = (frozen_array(a, np.int64) for a in indptr)
        else:
            whole = frozen_array(indptr, np.int64)
            if whole.ndim != 1 or len(whole) == 0:
                raise InputError("indptr: expected a one-dimensional array of at least one offset")
            self.begin, self.end = whole[:-1], whole[1:]
        if check:
            check_whole("indices", indices)
        self.indices = frozen_array(indices, np.int32)
        self.values = frozen_array(values, np.float32)
        self.targets = frozen_array(targets, np.float32)
        self.weights = None if weights is None else frozen_array(weights, np.float32)
        self.width = int(width)
        self.store = None if store is None else Path(store)
        self.hash_bits, self.table = hash_bits, table
        self.names: Any = None  # see `data/names.py`: names of a table's features
        self.known_degrees: np.ndarray | None = None  # (width,) int32, for rows whose store has them
        self.totals: Any = None  # see `data/rows/totals.py`: counts of all rows, if other machines have more
        self.renumbered = False  # the indices are not those of the store: see `problems/linear/coordinates.py`,
        self.inverse: np.ndarray | None = None  # as are these (width,) factors on the columns
        self.left_by: tuple[Rows, Rows, np.ndarray] | None = None  # (whole, held out, their ids) of a split
        if hash_bits is not None and self.width != 1 << hash_bits:
            raise InputError(f"width {self.width}: expected 2^{hash_bits} features of rows hashed to so many")
        if check:
            self._check()

    def __len__(self) -> int:
        return len(self.begin)

    def __repr__(self) -> str:
        where = f", store={str(self.store)!r}" if self.store else ""
        hashed = "" if self.hash_bits is None else f", hash_bits={self.hash_bits}"
        return f"Rows({len(self):,} rows x {self.width:,} features, {self.nnz:,} nonzeros{hashed}{where})"

    @cached_property
    def nnz(self) -> int:
        """Number of stored entries in these rows."""
        if self.contiguous:
            return int(self.end[-1] - self.begin[0]) if len(self) else 0
        return int((self.end - self.begin).sum())

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    @cached_property
    def contiguous(self) -> bool:
        """Whether the rows are adjacent and in order in the flat arrays: ``begin`` and ``end`` are then one indptr."""
        if len(self) == 0:
            return True
        ends, begins = self.end.__array_interface__["data"][0], self.begin.__array_interface__["data"][0]
        return ends == begins + self.begin.itemsize or bool(np.array_equal(self.begin[1:], self.end[:-1]))

    def _check(self) -> None:
        n = len(self.begin)
        if len(self.end) != n or len(self.targets) != n or self.targets.ndim != 1:
            raise InputError(f"targets: expected one per row ({n}), got an array of shape {self.targets.shape}")
        if self.weights is not None and (
            self.weights.shape != (n,) or not np.all(np.isfinite(self.weights)) or (n and self.weights.min() < 0)
        ):
            raise InputError(f"weights: expected {n} finite, non-negative numbers")
        if not np.all(np.isfinite(self.targets)):
            raise InputError(f"targets: row {int(np.argmin(np.isfinite(self.targets)))} is not finite")
        if self.indices.shape != self.values.shape or self.indices.ndim != 1:
            raise InputError(f"indices and values differ in shape: {self.indices.shape} and {self.values.shape}")
        if n and (np.any(self.begin > self.end) or self.begin.min() < 0 or self.end.max() > len(self.indices)):
            raise InputError("indptr: offsets must ascend and stay inside indices")
        if not 0 <= self.width <= INDEX_LIMIT:
            raise InputError(f"width {self.width}: expected 0 to {INDEX_LIMIT}")
        self._check_entries()

    def _check_entries(self) -> None:
        if len(self.indices) == 0:
            return
        low, high = int(self.indices.min()), int(self.indices.max())
        if low < 0 or high >= self.width:
            raise InputError(f"indices run from {low} to {high}, outside the width of {self.width} features")
        falls = np.flatnonzero(self.indices[1:] <= self.indices[:-1]) + 1  # only a row's first entry may fall
        filled = np.flatnonzero(self.begin < self.end)
        filled = filled[np.argsort(self.begin[filled], kind="stable")]
        before = np.searchsorted(self.begin[filled], falls) - 1  # the last row that begins before the fall, if any
        wrong = before[(before >= 0) & (falls < np.append(self.end[filled], 0)[before])]  # else between rows of a split
        if len(wrong):
            row = int(filled[wrong[0]])
            raise InputError(f"row {row}: indices must ascend without repeats (Rows.from_scipy sorts and sums them)")
        finite = np.isfinite(self.values)
        if not finite.all():
            raise InputError(f"values: {self._place(int(np.argmin(finite)))} is not a finite float32")

    def _place(self, entry: int) -> str:
        """Name the row and the feature of an entry, or only its number if it is of no row."""
        rows = np.flatnonzero((self.begin <= entry) & (entry < self.end))
        return f"row {rows[0]}, feature {self.indices[entry]} (from 0)" if len(rows) else f"entry {entry}"

    @classmethod
    def from_scipy(cls, X: Any, y: Any, weights: Any = None, width: int | None = None) -> Rows:
        """Make rows from any scipy sparse matrix or a dense array; CSR float32 with int32 indices is not copied.

        Unsorted indices are sorted and repeated ones summed, in a copy; the caller's matrix is not changed.

        Raises
        ------
        InputError
            If values or targets are not finite in float32, or lengths do not match.
        """
        import scipy.sparse

        if np.iscomplexobj(X):
            raise InputError("X is complex: expected real values")
        if not scipy.sparse.issparse(X):
            X = np.atleast_2d(np.asarray(X))
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise InputError(f"X: expected real numbers in two dimensions, got shape {X.shape}, dtype {X.dtype}")
        if X.dtype == np.float16:  # scipy has no sparse float16
            X = X.astype(np.float32)
        if scipy.sparse.issparse(X) and X.format == "csr":
            _check_offsets(X.indptr, len(X.indices))
        matrix = scipy.sparse.csr_array(X)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        width = matrix.shape[1] if width is None else int(width)
        if max(width, matrix.shape[1]) > INDEX_LIMIT:
            raise InputError(f"X has {matrix.shape[1]} columns: at most {INDEX_LIMIT} are supported")
        targets = np.asarray(y)
        if targets.dtype.kind not in "biuf":
            raise InputError(
                f"targets: expected numbers, got dtype {targets.dtype}: number the labels, as by np.unique(y, "
                "return_inverse=True), or give them to HogwildClassifier"
            )
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets[:, 0]
        with np.errstate(over="ignore"):  # a value beyond float32 becomes inf and is reported by the check
            return cls(matrix.indptr, matrix.indices, matrix.data, targets, width, weights)

    def to_scipy(self) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        """Return ``(X, y)``: a CSR float32 array, (n, width), and the targets; contiguous rows share memory."""
        import scipy.sparse

        rows = self if self.contiguous else self.compact()
        low, high = (int(rows.begin[0]), int(rows.end[-1])) if len(rows) else (0, 0)
        offset_type = np.int32 if high - low < 2**31 else np.int64  # as scikit-learn and scipy expect
        indptr = (np.append(rows.begin, high) - low).astype(offset_type)
        X = scipy.sparse.csr_array(
            (rows.values[low:high], rows.indices[low:high], indptr), shape=rows.shape, copy=False
        )
        return X, rows.targets

    def select(self, ids: Any) -> Rows:
        """Return the rows ``ids`` (in that order), sharing the flat arrays; offsets, targets and weights are copied."""
        ids = np.asarray(ids)
        weights = None if self.weights is None else self.weights[ids]
        return self._part((self.begin[ids], self.end[ids]), self.targets[ids], weights)

    def spread(self, nonzeros: int, most: int | None = None) -> np.ndarray:
        """Ids of evenly spaced rows with about ``nonzeros`` nonzeros together; at least 64 ids and at most ``most``."""
        wanted = max(64, nonzeros * len(self) // max(self.nnz, 1))
        return self.evenly(wanted if most is None else min(wanted, most))

    def evenly(self, count: int) -> np.ndarray:
        """Ids of ``count`` evenly spaced rows, or of all if they are fewer."""
        return evenly(len(self), count)

    def block(self, first: int, last: int) -> Rows:
        """Return the rows ``first <= i < last`` without copying anything."""
        weights = None if self.weights is None else self.weights[first:last]
        return self._part((self.begin[first:last], self.end[first:last]), self.targets[first:last], weights)

    def _part(self, ends: tuple[np.ndarray, np.ndarray], targets: np.ndarray, weights: np.ndarray | None) -> Rows:
        flat = self.indices, self.values, targets, self.width, weights
        part = Rows(ends, *flat, self.store, check=False, hash_bits=self.hash_bits, table=self.table)
        part.names, part.inverse = self.names, self.inverse
        return part

    def compact(self) -> Rows:
        """Return a copy in memory whose flat arrays hold these rows only, in order."""
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.end - self.begin)))
        if self.contiguous:
            part = slice(self.begin[0], self.end[-1]) if len(self) else slice(0)
            indices, values = np.array(self.indices[part]), np.array(self.values[part])
        else:
            from hogwild.data.rows.counts_kernel import copy_entries

            indices, values = np.empty(indptr[-1], self.indices.dtype), np.empty(indptr[-1], self.values.dtype)
            copy_entries(self.begin, indptr, self.indices, self.values, indices, values)
        flat = indices, values, self.targets, self.width, self.weights
        copy = Rows(indptr, *flat, check=False, hash_bits=self.hash_bits, table=self.table)
        copy.names, copy.inverse = self.names, self.inverse
        return copy

    def split(self, fraction: float, seed: int = 0) -> tuple[Rows, Rows]:
        """Return ``(rest, held_out)`` with ``round(fraction * n)`` rows held out at random, each part in file order.

        Raises
        ------
        InputError
            If either part would be empty.
        """
        if not 0 < fraction < 1:
            raise InputError(f"cannot hold out {fraction}: expected a fraction between 0 and 1")
        held = round(fraction * len(self))
        if not 0 < held < len(self):
            raise InputError(f"cannot hold out {fraction:g} of {len(self)} rows: both parts need at least one row")
        mask = np.zeros(len(self), dtype=bool)
        mask[np.random.default_rng(seed).permutation(len(self))[:held]] = True
        ids = np.flatnonzero(mask)
        rest, held_out = self.select(np.flatnonzero(~mask)), self.select(ids)
        rest.left_by = self, held_out, ids
        return rest, held_out

    @property
    def held_out(self) -> Rows | None:
        """What the split that left these rows held out."""
        return None if self.left_by is None else self.left_by[1]

    def degrees(self) -> np.ndarray:
        """Rows that hold each feature, (width,) int64: the paper's ``d_u`` (Recht et al. 2011, section 2.2)."""
        total = np.zeros(self.width, dtype=np.int64)
        step = max(1, PIECE * len(self) // max(self.nnz, 1))
        for first in range(0, len(self), step):  # so that a store larger than memory is only streamed
            part = self.block(first, first + step).compact()
            np.add.at(total, part.indices, 1)  # many times faster than bincount, which casts to 64 bits
        return total
