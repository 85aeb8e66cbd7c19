"""Rows with several labels each, or none, whose targets stand for sets of labels.

A row with one label has it as its target, as rows of classes do. The target of any other row is ``-1 - s``: its labels
are row ``s`` of a sparse matrix that holds each different set once. So a part of the rows shares the sets of the whole,
a text is read in one pass even if its first comma comes late, and loops over classes need one more branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hogwild.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse

EXACT = 2**24  # targets are float32, which holds all whole numbers below


class LabelSets(NamedTuple):
    """Sets of labels as a sparse indicator matrix; all arrays are read-only."""

    indptr: np.ndarray  # (sets + 1,) int64
    indices: np.ndarray  # (m,) int32: labels of the sets, ascending in each
    names: np.ndarray  # (L,) int32: all labels, ascending; those of rows with one label too

    def flat(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many labels each row has, (n,) int64, and the labels of all rows one after another, int64."""
        codes = targets.astype(np.int64)
        others = codes < 0
        sets = -1 - codes[others]
        counts = np.ones(len(codes), np.int64)
        counts[others] = np.diff(self.indptr)[sets]
        labels, several = np.repeat(codes, counts), np.repeat(others, counts)
        ends = np.cumsum(counts[others])
        firsts = np.repeat(self.indptr[sets] - ends + counts[others], counts[others])
        labels[several] = self.indices[firsts + np.arange(len(firsts))]
        return counts, labels

    def pairs(self, targets: np.ndarray) -> int:
        """Number of labels of all rows together."""
        return len(self.flat(targets)[1])

    def indicator(self, targets: np.ndarray) -> scipy.sparse.csr_array:
        """Return the rows' labels as a matrix of zeros and ones, (n, L) int64 CSR, with a column for each name."""
        import scipy.sparse

        counts, labels = self.flat(targets)
        indptr = np.append(0, np.cumsum(counts))
        entries = np.ones(len(labels), np.int64), np.searchsorted(self.names, labels), indptr
        return scipy.sparse.csr_array(entries, shape=(len(targets), len(self.names)))

    def signs(self, targets: np.ndarray) -> np.ndarray:
        """Return +1 for each label that a row has, else -1: (n, L) float64, for a chunk of rows."""
        return 2.0 * self.indicator(targets).toarray() - 1.0

    def numbered(self, targets: np.ndarray, names: Any) -> tuple[np.ndarray, LabelSets]:
        """Return the same targets and sets with labels numbered by their place in ``names``, which ascend.

        Labels that are not among the names are left out.
        """
        names = np.asarray(names, np.int64)
        places, known = _places(self.indices, names)
        indptr = np.append(0, np.cumsum(known))[self.indptr]
        indptr = np.append(indptr, indptr[-1])  # an empty set behind the others
        single, there = _places(targets, names)
        codes = np.where(there, single, -len(indptr) + 1)
        coded = np.where(targets < 0, targets, codes).astype(np.float32)
        return coded, frozen(indptr, places[known], np.arange(len(names)))


def frozen(indptr: Any, indices: Any, names: Any) -> LabelSets:
    """Sets of these arrays in the right types, read-only."""
    arrays = [
        np.asarray(array).astype(kind) for array, kind in zip((indptr, indices, names), (np.int64, *2 * [np.int32]))
    ]
    for array in arrays:
        array.flags.writeable = False
    return LabelSets(*arrays)


def _places(labels: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each label among the names, and whether it is there."""
    places = np.searchsorted(names, labels).clip(max=len(names) - 1)
    return places, names[places] == labels


def target_of(labels: Sequence[int], numbers: dict[tuple[int, ...], int]) -> float:
    """The target of a row with these labels, which ascend; a new set of them is numbered."""
    return labels[0] if len(labels) == 1 else -1.0 - numbers.setdefault(tuple(labels), len(numbers))


def tabulated(numbers: Mapping[tuple[int, ...], int], names: Any) -> LabelSets:
    """The sets whose numbers are those in ``numbers``, from 0 in its order.

    Raises
    ------
    InputError
        If there are too many.
    """
    if len(numbers) >= EXACT:
        raise InputError(f"expected fewer than {EXACT:,} different sets of labels, got {len(numbers):,}")
    indptr = np.append(0, np.cumsum(np.fromiter(map(len, numbers), np.int64, len(numbers))))
    return frozen(indptr, np.fromiter(chain.from_iterable(numbers), np.int32, indptr[-1]), names)


def has_several(y: Any) -> bool:
    """Whether ``y`` is a matrix with a column for each label, rather than a target for each row.

    Raises
    ------
    InputError
        If it is lists of labels.
    """
    import scipy.sparse

    try:
        shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape  # np.shape would call __array_function__
    except ValueError:  # lists of different lengths
        needed = "a matrix of zeros and ones (n, labels) tells them (MultiLabelBinarizer)"
        raise InputError(f"y: several labels a row as lists: {needed}") from None
    return scipy.sparse.issparse(y) or (len(shape) == 2 and shape[1] > 1)


def of_indicator(Y: Any) -> tuple[np.ndarray, LabelSets]:
    """Targets (n,) float32 and sets of a matrix (n, L) of zeros and ones, sparse or dense; label k is column k.

    Raises
    ------
    InputError
        If it holds other values.
    """
    import scipy.sparse

    if np.shape(Y)[1] < 2:
        raise InputError(f"a matrix of labels needs two columns or more; got {np.shape(Y)[1]}: give labels (n,)")
    Y = Y if scipy.sparse.issparse(Y) else np.asarray(Y)
    if Y.dtype.kind not in "biuf":
        raise InputError(f"a matrix of labels needs values 0 and 1; got dtype {Y.dtype}")
    matrix = scipy.sparse.csr_array(Y.astype(np.float32) if Y.dtype == np.float16 else Y, copy=True)
    matrix.sum_duplicates()
    wrong = (matrix.data != 0) & (matrix.data != 1)
    if wrong.any():
        value = matrix.data[np.argmax(wrong)]
        row = int(np.searchsorted(matrix.indptr, np.argmax(wrong), side="right")) - 1
        raise InputError(f"a matrix of labels needs values 0 and 1; got {value} in row {row}")
    matrix.eliminate_zeros()
    numbers: dict[tuple[int, ...], int] = {}
    targets = np.empty(matrix.shape[0], np.float32)
    flat, ends = matrix.indices.tolist(), matrix.indptr.tolist()
    for row in range(len(targets)):
        targets[row] = target_of(flat[ends[row] : ends[row + 1]], numbers)
    return targets, tabulated(numbers, np.arange(matrix.shape[1]))


NO_SETS = frozen([0], [], [])  # of rows with one label each
