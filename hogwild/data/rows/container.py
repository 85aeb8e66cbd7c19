"""Container of training examples: ``Rows``, sparse rows with one target each.

A row is a slice ``[begin, end)`` of two flat arrays. With both ends instead of one ``indptr``, a subset of the rows (a
hold-out split, a fold) is a pair of small arrays over the *same* data: nothing is copied, and a store larger than
memory can be split. For whole data ``begin`` and ``end`` are two views of one ``indptr``.

All arrays are read-only, so that kernels compile once per role and a memory map never counts as used memory.

Passes over rows take chunks of about a million nonzeros, not a number of rows, so a thread needs the same memory for
tweets and for books, and for data in memory and for a store larger than it. Where the cuts fall depends on the rows
alone, so sums over the chunks are the same to the last bit on any number of threads. A chunk costs some 50 us of Python
for half a millisecond of a compiled loop.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hogwild.data.parallel import map_cuts, map_pieces
from hogwild.data.rows.labels import LabelSets, has_several, of_indicator
from hogwild.errors import HogwildWarning, InputError

if TYPE_CHECKING:
    import scipy.sparse

INDEX_LIMIT = 2**31 - 1  # indices are int32, so this is also the largest width
MOST_FIELDS = 1 << 15  # their numbers are int16
PIECE = 1 << 20  # entries processed at a time where temporaries are made
READ = 1 << 26  # nonzeros that statistics are taken of
SAMPLED_ROWS, SAMPLED = 4096, 1 << 20  # at most this many rows, with about this many nonzeros, are in a fingerprint
RUN = 1024  # longest run of neighbours in a sample of more than READ, which may lie on a disk
HEAD = 128  # bytes of a .npy file before its data
SAMPLE = 16  # rows with less than one in so many of the entries are read page by page
ALONE = 1 << 18  # nonzeros for each thread that counts, which take as long as to start it
OWN_BYTES = 64 << 20  # for all threads' counts of features together
CHUNK_NONZEROS = 1 << 20
CHUNK_ROWS = 1 << 18  # limit for rows that are short or empty
UNSORTED = "does not come after the one before it (Rows.from_scipy sorts and sums them)"
Result = TypeVar("Result")


def evenly(total: int, count: int) -> np.ndarray:
    """``count`` of the numbers below ``total``, evenly spaced from first to last; all of them if they are fewer."""
    if count >= total:
        return np.arange(total)
    return np.arange(count) * (total - 1) // max(count - 1, 1)


def frozen_array(array: Any, dtype: Any) -> np.ndarray:
    """A read-only C-contiguous view (a copy only if the dtype or layout differs); never a ``memmap`` instance."""
    return readonly(np.ascontiguousarray(np.asarray(array), dtype=dtype))


def advise(array: np.ndarray, advice: int, first: int = 0, last: int | None = None) -> None:
    """Tell the system how the array of a mapped .npy file, or its elements ``first <= i < last``, will be read."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        begin, end = (HEAD + array.itemsize * (len(array) if i is None else i) for i in (first, last))
        begin -= begin % mmap.PAGESIZE
        owner.madvise(advice, begin, end - begin)


def readonly(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: kernels then see one type, whether or not the array itself can be written."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_numbers(name: str, array: Any, kinds: str = "biuf") -> None:
    """Refuse an array whose cast would keep only a part: complex numbers, or fractions where ``kinds`` is "iu".

    Raises
    ------
    InputError
    """
    numbers = np.asarray(array)
    if numbers.size and numbers.dtype.kind not in kinds:
        wanted = "whole" if kinds == "iu" else "real"
        raise InputError(f"{name}: expected {wanted} numbers, got dtype {numbers.dtype}")


def check_whole(name: str, array: Any) -> None:
    """Refuse what a cast to int32 would wrap around or cut off without a word."""
    check_numbers(name, array, "iu")
    numbers = np.asarray(array)
    if numbers.size and (numbers.min() < -INDEX_LIMIT or numbers.max() > INDEX_LIMIT):
        raise InputError(f"{name} run from {numbers.min()} to {numbers.max()}: expected 0 to {INDEX_LIMIT - 1}")


def check_range(name: str, numbers: np.ndarray, size: int) -> None:
    """Refuse int32 ``numbers`` of which one would make a kernel leave an array of this size; one pass, no copy.

    Raises
    ------
    InputError
    """
    if len(numbers) and int(numbers.view(np.uint32).max()) >= size:  # below zero is 2^31 and more
        raise InputError(f"{name} run from {numbers.min()} to {numbers.max()}, expected 0 to {size - 1}")


def check_offsets(name: str, begin: np.ndarray, end: np.ndarray, stored: int) -> None:
    """Refuse offsets that lead compiled code out of arrays of ``stored`` entries."""
    if len(begin) and not (begin.min() >= 0 and (begin <= end).all() and end.max() <= stored):
        raise InputError(f"{name} does not ascend from 0 to at most its {stored} indices")


def ascending(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether the features of each row ascend without repeats, as compiled code takes for granted; on all cores."""

    def part(first: int, last: int) -> bool:
        rises = indices[first + 1 : last + 1] > indices[first:last][: len(indices) - first - 1]
        begins = np.zeros(last - first + 1, bool)  # a row's first entry may be below the one before
        begins[indptr[slice(*np.searchsorted(indptr, (first, last + 1)))] - first] = True
        return bool((rises | begins[1 : len(rises) + 1]).all())

    return all(map_pieces(len(indices), PIECE, part))


def held_out_ids(count: int, fraction: float, seed: int, noun: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(rest, held_out)``: the numbers below ``count``, of which ``round(fraction * count)`` at random.

    Raises
    ------
    InputError
        If either part would be empty.
    """
    if not 0 < fraction < 1:
        raise InputError(f"cannot hold out {fraction}: expected a fraction between 0 and 1")
    held = round(fraction * count)
    if not 0 < held < count:
        raise InputError(f"cannot hold out {fraction:g} of {count} {noun}: both parts need at least one")
    ids = np.random.default_rng(seed).permutation(count)
    return np.sort(ids[held:]), np.sort(ids[:held])


def shortest(number: float) -> str:
    """Return a short decimal that reads back as the same float32; labels and values are written this way everywhere."""
    value = np.float32(number)
    if value and value.is_integer() and abs(value) < 2**24:  # 1000001, not 1.000001e+06; -0 keeps its sign
        return str(int(value))
    return str(value).removesuffix(".0")


def fields_of_width(fields: np.ndarray | None, width: int) -> np.ndarray | None:
    """The fields of as many features, -1 for new ones."""
    if fields is None or len(fields) == width:
        return fields
    return readonly(np.append(fields, np.full(width, -1, np.int16))[:width])


EMPTY = readonly(np.empty(0, dtype=np.float32))  # used where there are no weights or scales
TYPES: dict[str, Any] = {
    "begin": np.int64,
    "end": np.int64,
    "indices": np.int32,
    "values": np.float32,
    "targets": np.float32,
    "weights": np.float32,
    "fields": np.int16,
}


@dataclass(frozen=True, eq=False, init=False, repr=False)
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
    fields : array of int16, shape (width,), optional
        The field of each feature, from 0, for field-aware factorization machines.
    labels : LabelSets, optional
        The sets of labels that targets below zero stand for, if rows have several labels each
        (``data/rows/labels.py``); None: each row has one target.

    Raises
    ------
    InputError
        The message names the first row that breaks a rule.

    See Also
    --------
    open_data : reads rows from files.

    Examples
    --------
    >>> import hogwild, numpy as np, scipy.sparse
    >>> X = scipy.sparse.csr_array(np.array([[0, 2, 0], [1, 0, 0], [0, 0, 3], [0, 1, 0]], dtype=np.float32))
    >>> rows = hogwild.Rows.from_scipy(X, np.array([1, -1, 1, -1]))
    >>> len(rows), rows.width, rows.nnz
    (4, 3, 4)
    >>> train, test = rows.split(0.5, seed=0)
    >>> len(train), len(test)
    (2, 2)
    """

    begin: np.ndarray
    end: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    targets: np.ndarray
    width: int
    weights: np.ndarray | None
    store: Path | None
    hash_bits: int | None
    table: dict[str, Any] | None
    fields: np.ndarray | None  # (width,) int16 field of each feature, -1 if no row holds it; None: they have none
    labels: LabelSets | None
    known_degrees: np.ndarray | None = None  # (width,) int32, once they are counted
    totals: Any = None  # counts of all rows, if other machines have more: see `data/rows/degrees.py`
    renumbered: bool = False  # whether indices are not those of the store, see `problems/linear/coordinates.py`
    inverse: np.ndarray | None = None  # (width,) float64 factors on the columns, of scaled rows
    split_from: tuple[Rows, Rows, np.ndarray] | None = None  # (whole, held out, their ids) if a split left these rows

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
        fields: Any = None,
        labels: LabelSets | None = None,
    ) -> None:
        if check:
            check_whole("indices", indices)
            check_whole("fields", [] if fields is None else fields)
        begin, end = indptr if isinstance(indptr, tuple) else (indptr[:-1], indptr[1:])
        arrays = [begin, end, indices, values, targets, weights, fields]
        for (name, dtype), array in zip(TYPES.items(), arrays):
            vars(self)[name] = None if array is None else frozen_array(array, dtype)
        place = None if store is None else Path(store)
        vars(self).update(width=int(width), store=place, hash_bits=hash_bits, table=table, labels=labels)
        if hash_bits is not None and self.width != 1 << hash_bits:
            raise InputError(f"width {self.width}: expected 2^{hash_bits} features of rows hashed to so many")
        if check:
            self._check()

    @classmethod
    def of_lengths(
        cls, lengths: Any, indices: Any, values: Any, targets: Any, weights: Any = None, **facts: Any
    ) -> Rows:
        """Return rows of these numbers of entries, (n,) int64, one after another; nothing is checked."""
        end = np.cumsum(lengths, dtype=np.int64)
        return cls((end - lengths, end), indices, values, targets, weights=weights, check=False, **facts)

    def replace(self, **changes: Any) -> Rows:
        """Return rows that differ in the attributes given, which are not checked: arrays are of the container's types,
        and made read-only.
        """
        rows = object.__new__(Rows)
        vars(rows).update({field.name: getattr(self, field.name) for field in fields(self)} | changes)
        vars(rows).update({name: readonly(value) for name, value in changes.items() if isinstance(value, np.ndarray)})
        return rows

    def __len__(self) -> int:
        return len(self.begin)

    def __repr__(self) -> str:
        where = f", store={str(self.store)!r}" if self.store else ""
        hashed = "" if self.hash_bits is None else f", hash_bits={self.hash_bits}"
        return f"Rows({len(self):,} rows x {self.width:,} features, {self.nnz:,} nonzeros{hashed}{where})"

    @cached_property
    def nnz(self) -> int:
        """Number of stored entries in these rows."""
        return int(self.end.sum() - self.begin.sum())

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    @cached_property
    def contiguous(self) -> bool:
        """Whether the rows are adjacent and in order in the flat arrays: ``begin`` and ``end`` are then one indptr."""
        return bool(np.array_equal(self.begin[1:], self.end[:-1]))

    def _check(self) -> None:
        n = len(self.begin)
        if self.targets.shape != (n,):
            raise InputError(f"targets: expected one per row ({n}), got an array of shape {self.targets.shape}")
        if not np.isfinite(self.targets).all():
            raise InputError(f"targets: row {np.argmin(np.isfinite(self.targets))} is not finite")
        w = self.weights
        if w is not None and (w.shape != (n,) or not (np.isfinite(w) & (w >= 0)).all()):
            raise InputError(f"weights: expected {n} finite, non-negative numbers")
        if self.indices.shape != self.values.shape or self.indices.ndim != 1:
            raise InputError(f"indices and values differ in shape: {self.indices.shape} and {self.values.shape}")
        if not 0 <= self.width <= INDEX_LIMIT:
            raise InputError(f"width {self.width}: expected 0 to {INDEX_LIMIT}")
        f = self.fields
        if f is not None and (f.shape != (self.width,) or not -1 <= f.min(initial=0) <= f.max(initial=0) < MOST_FIELDS):
            raise InputError(f"fields: expected {self.width} numbers from 0 to {MOST_FIELDS - 1}, one for each feature")
        self.check_bounds()
        indptr, indices, values = self.flat()
        first = np.zeros(len(indices) + 1, bool)
        first[indptr] = True  # entry of its row, which may be below the one before
        rises = np.append(True, indices[1:] > indices[:-1])[: len(indices)] | first[:-1]
        for good, wrong in ((np.isfinite(values), "is not a finite float32"), (rises, UNSORTED)):
            if not good.all():
                entry = int(np.argmin(good))
                row = int(np.searchsorted(indptr, entry, side="right")) - 1
                raise InputError(f"row {row}, feature {indices[entry]} (from 0) {wrong}")

    def check_bounds(self) -> None:
        """Refuse offsets and indices that would make a kernel leave its arrays."""
        check_offsets("indptr", self.begin, self.end, len(self.indices))
        if READ < self.nnz == len(self.indices) and self.contiguous:
            self.degrees()  # of a store that may exceed the memory: one pass for both
        else:
            check_range("indices", self.indices, self.width)
        if self.labels is not None:
            sets = self.labels
            check_offsets("label_indptr", sets.indptr[:-1], sets.indptr[1:], len(sets.indices))
            if not -len(sets.indptr) < self.targets.min(initial=0) <= self.targets.max(initial=0) <= INDEX_LIMIT:
                raise InputError(f"targets lie beyond the {max(len(sets.indptr) - 1, 0)} sets of labels")
            if (np.diff(sets.names) <= 0).any() or not np.isin(sets.indices, sets.names).all():
                raise InputError("label_names do not ascend, or lack one of label_indices")

    @classmethod
    def from_scipy(cls, X: Any, y: Any, weights: Any = None, width: int | None = None, fields: Any = None) -> Rows:
        """Make rows from any scipy sparse matrix or a dense array; CSR float32 with int32 indices is not copied.

        Unsorted indices are sorted and repeated ones summed, in a copy; the caller's matrix is not changed. Of several
        labels a row, ``y`` is a matrix (n, L) of zeros and ones, sparse or dense.

        Raises
        ------
        InputError
            If values or targets are not finite in float32, or lengths do not match.
        """
        import scipy.sparse

        X = X if scipy.sparse.issparse(X) else np.atleast_2d(np.asarray(X))
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise InputError(f"X: expected real numbers in two dimensions, got shape {X.shape}, dtype {X.dtype}")
        if X.dtype == np.float16:  # scipy has no sparse float16
            X = X.astype(np.float32)
        if scipy.sparse.issparse(X) and X.format == "csr":  # before scipy's compiled code follows them
            check_offsets("X: its indptr", X.indptr[:-1], X.indptr[1:], len(X.indices))
        matrix = scipy.sparse.csr_array(X)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        y, labels = of_indicator(y) if has_several(y) else (y, None)
        targets = np.asarray(y)
        if targets.dtype.kind not in "biuf":
            raise InputError(f"targets: expected numbers, got dtype {targets.dtype}: give texts to HogwildClassifier")
        if targets.shape == (matrix.shape[0], 1):
            targets = targets[:, 0]
        if fields is not None and np.asarray(fields).dtype.kind in "if" and np.min(fields, initial=0) < 0:
            raise InputError(f"fields: expected numbers from 0, got {np.min(fields)}")
        width = matrix.shape[1] if width is None else width
        with np.errstate(over="ignore"):  # a value beyond float32 becomes inf and is reported by the check
            arrays = matrix.indptr, matrix.indices, matrix.data, targets
            return cls(*arrays, width, weights, fields=fields, labels=labels)

    def to_scipy(self) -> tuple[scipy.sparse.csr_array, Any]:
        """Return ``(X, y)``: a CSR float32 array, (n, width), and the targets; contiguous rows share memory.

        Of several labels a row ``y`` is a matrix of zeros and ones, (n, L) CSR, with a column for each label.
        """
        import scipy.sparse

        indptr, indices, values = self.flat()
        offset_type = np.int32 if indptr[-1] < 2**31 else np.int64  # as scikit-learn and scipy expect
        return scipy.sparse.csr_array((values, indices, indptr.astype(offset_type)), shape=self.shape), (
            self.targets if self.labels is None else self.labels.indicator(self.targets)
        )

    def flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ``(indptr, indices, values)`` of these rows alone, one after another; copied unless contiguous."""
        if self.contiguous:
            low, high = (self.begin[0], self.end[-1]) if len(self) else (0, 0)
            return np.append(self.begin, high) - low, self.indices[low:high], self.values[low:high]
        from hogwild.data.rows.counts_kernel import copy_entries

        indptr = np.append(0, np.cumsum(self.end - self.begin))
        indices, values = np.empty(indptr[-1], self.indices.dtype), np.empty(indptr[-1], self.values.dtype)
        copy_entries(self.begin, indptr, self.indices, self.values, indices, values)
        return indptr, indices, values

    def select(self, ids: Any) -> Rows:
        """Return the rows ``ids`` (in that order), sharing the flat arrays; offsets, targets and weights are copied."""
        return self._part(np.asarray(ids))

    def block(self, first: int, last: int) -> Rows:
        """Return the rows ``first <= i < last`` without copying anything."""
        return self._part(slice(first, last))

    def _part(self, which: Any) -> Rows:
        arrays = {name: getattr(self, name) for name in ("begin", "end", "targets", "weights")}
        part = {name: None if array is None else array[which] for name, array in arrays.items()}
        return self.replace(**part, known_degrees=None, totals=None, split_from=None)

    def advise(self, advice: int, first: int = 0, last: int | None = None) -> None:
        """Tell the system how entries ``first <= j < last`` will be read, as far as they lie in files."""
        for array in (self.indices, self.values):
            advise(array, advice, first, last)

    def fetch(self, first: int, last: int) -> None:
        """Have the system read the entries of rows ``first <= i < last`` at once, if they lie in a store."""
        if self.store is not None and last > first:
            self.advise(mmap.MADV_WILLNEED, int(self.begin[first]), int(self.end[last - 1]))

    def spread(self, nonzeros: int, most: int | None = None) -> np.ndarray:
        """Ids of evenly spaced rows with about ``nonzeros`` nonzeros together; at least 64 ids and at most ``most``.

        Without ``most``, those of very many rows come in 64 or more runs of neighbours, so that a disk reads few pages.
        """
        wanted = max(64, nonzeros * len(self) // max(self.nnz, 1))
        if most is not None or self.nnz <= READ:
            return evenly(len(self), wanted if most is None else min(wanted, most))
        run = min(wanted // 64, RUN)
        return np.ravel(evenly(len(self) - run + 1, wanted // run)[:, np.newaxis] + np.arange(run))

    def sample_arrays(self) -> list[np.ndarray]:
        """Return arrays for a fingerprint: those of some rows, evenly spaced."""
        sample = self.select(self.spread(SAMPLED, SAMPLED_ROWS)).compact()
        arrays = (sample.begin, sample.indices, sample.values, sample.targets, sample.weights, *(self.labels or ()))
        return [array for array in arrays if array is not None]

    def compact(self) -> Rows:
        """Return a copy in memory whose flat arrays hold these rows only, in order."""
        sample = SAMPLE * self.nnz < len(self.indices) and not self.contiguous
        if sample:  # single pages; else the system reads up to megabytes around each
            self.advise(mmap.MADV_RANDOM)
        indptr, indices, values = self.flat()
        if sample:
            self.advise(mmap.MADV_NORMAL)
        if self.contiguous:
            indices, values = indices.copy(), values.copy()
        whole = self.block(0, len(self))
        return whole.replace(begin=indptr[:-1], end=indptr[1:], indices=indices, values=values, store=None)

    def split(self, fraction: float, seed: int = 0) -> tuple[Rows, Rows]:
        """Return ``(rest, held_out)`` with ``round(fraction * n)`` rows held out at random, each part in file order.

        Raises
        ------
        InputError
            If either part would be empty.
        """
        rest, ids = held_out_ids(len(self), fraction, seed, "rows")
        held_out = self.select(ids)
        return self.select(rest).replace(split_from=(self, held_out, ids)), held_out

    @property
    def held_out(self) -> Rows | None:
        """What the split that left these rows held out."""
        return None if self.split_from is None else self.split_from[1]

    def degrees(self, threads: int | None = None) -> np.ndarray:
        """Number of rows that hold each feature, (width,) int32: the paper's ``d_u`` (Recht et al. 2011, section 2.2).

        They are counted once, on ``threads`` threads (default: all cores), and rows may be larger than memory.
        """
        if self.known_degrees is None:
            vars(self)["known_degrees"] = readonly(_count(self, threads))
        return vars(self)["known_degrees"]


def _count(rows: Rows, threads: int | None) -> np.ndarray:
    """Count the rows of each feature; each thread counts a share of the rows into its own array.

    That takes about 1 ns a nonzero; of few nonzeros, or of very many features, one thread counts alone.
    """
    from hogwild.data.rows.counts_kernel import count_features

    threads = threads or len(os.sched_getaffinity(0))
    threads = max(1, min(threads, rows.nnz // ALONE, OWN_BYTES // max(4 * rows.width, 1)))
    cuts = [len(rows) * part // threads for part in range(threads + 1)]

    def count(first: int, last: int) -> np.ndarray:
        total = np.zeros(rows.width, dtype=np.int32)
        if not count_features(rows.begin[first:last], rows.end[first:last], rows.indices, total):
            check_range("indices", rows.indices, rows.width)
        return total

    return sum(map_cuts(list(pairwise(cuts)), count, threads))  # type: ignore[return-value]


# -- rows in pieces ---------------------------------------------------------------------------------------------------


def chunks(rows: Rows, nonzeros: int = CHUNK_NONZEROS, *, columns: int = 1) -> Iterator[tuple[int, int]]:
    """Cut rows into runs ``(first, last)`` of at most ``nonzeros`` entries (but at least one row) each, in order.

    ``columns`` is how many numbers will be computed per row: the more classes, the fewer rows in a chunk.
    """
    most = max(1, CHUNK_ROWS // columns)
    for base in range(0, len(rows), most):
        total = np.cumsum(rows.end[base : base + most] - rows.begin[base : base + most])
        first = 0
        while first < len(total):
            before = total[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(total, before + nonzeros, side="right")))
            yield base + first, base + last
            first = last


def map_chunks(
    rows: Rows, function: Callable[[int, int], Result], threads: int | None = None, columns: int = 1
) -> Iterator[Result]:
    """Yield ``function(first, last)`` of each chunk in order, computed on ``threads`` threads.

    Chunks not yet begun are dropped when the caller stops asking, or on an error or Ctrl-C.
    """
    return map_cuts(list(chunks(rows, columns=columns)), function, threads)


def count_unknown(rows: Rows, width: int, threads: int | None = None) -> int:
    """Number of entries whose feature is at or beyond ``width``, which the margins leave out."""
    return 0 if rows.width <= width else int((rows.end - _known_ends(rows, width, threads)).sum())


def _known_ends(rows: Rows, width: int, threads: int | None = None) -> np.ndarray:
    """Where the entries below ``width`` end in each row: features ascend, so the others are a row's last."""
    from hogwild.data.rows.margins_kernel import known_ends

    ends = np.empty(len(rows), dtype=np.int64)

    def fill(first: int, last: int) -> None:
        known_ends(rows.begin[first:last], rows.end[first:last], rows.indices, width, ends[first:last])

    deque(map_chunks(rows, fill, threads), 0)
    return ends


def fit_width(rows: Rows, width: int | None, beyond: str, name: str) -> Rows:
    """Return the same rows with ``width`` features; entries beyond it are cut off at the end of a row.

    Raises
    ------
    InputError
        If there are entries beyond it, unless ``beyond`` is "ignore": they are then counted in a warning.
    """
    if width is None or width == rows.width:
        return rows
    if rows.hash_bits is not None:
        raise InputError(f"{name}: hashed to 2^{rows.hash_bits} = {rows.width} features, so there cannot be {width}")
    end = rows.end if rows.width < width else _known_ends(rows, width)
    if dropped := int((rows.end - end).sum()):
        if beyond == "error":
            row = int(np.argmax(end < rows.end))
            raise InputError(f"{name}: row {row + 1}: feature beyond the {width} allowed ({dropped:,} such entries)")
        message = f"{dropped:,} entries of features beyond the model's {width:,} were ignored in {name}"
        warnings.warn(message, HogwildWarning, stacklevel=3)
    fields = fields_of_width(rows.fields, width)
    return rows.replace(end=end, width=width, table=None, known_degrees=None, fields=fields)


# -- copies -----------------------------------------------------------------------------------------------------------


def drawn(rows: Rows, count: int, seed: int) -> Rows:
    """Return a copy in memory of ``count`` rows chosen at random, in their original order."""
    ids = np.random.default_rng(seed).choice(len(rows), count, replace=False, shuffle=False)
    return rows.select(np.sort(ids)).compact()


def narrowed(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Return a copy of rows without empty columns, and the numbers (int32) of the columns that are left, ascending."""
    indptr, indices, values = rows.flat()
    if 16 * len(indices) < rows.width:
        columns, indices = np.unique(indices, return_inverse=True)
    else:
        there, place = np.zeros(rows.width, bool), np.empty(rows.width, np.int32)
        there[indices] = True
        columns = np.flatnonzero(there).astype(np.int32)
        place[columns] = np.arange(len(columns), dtype=np.int32)
        indices = place[indices]
    narrow = Rows(indptr, indices, values, rows.targets, max(len(columns), 1), rows.weights, check=False)
    inverse = None if rows.inverse is None else rows.inverse[columns[: narrow.width]]
    return narrow.replace(labels=rows.labels, inverse=inverse), columns
