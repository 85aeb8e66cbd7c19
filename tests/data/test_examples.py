"""``Rows``: what it refuses, what it shares, and how numbers that are labels are written."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from hogwild.data.rows.container import Rows, narrowed, shortest
from hogwild.errors import InputError
from tests.runs import equal

VALUES, TARGETS = np.ones(3, np.float32), np.array([1.0, 2.0], np.float32)


def rows(indices, indptr=(0, 2, 3), width=9, **more) -> Rows:
    return Rows(np.array(indptr), np.array(indices), VALUES, TARGETS, width, **more)


@pytest.mark.parametrize(
    ("indices", "what"),
    [
        ([0, 1, 9], "indices run from 0 to 9, expected 0 to 8"),
        ([-1, 1, 2], "indices run from -1 to 2"),
        ([0, 1, 2**32], "indices run from 0 to 4294967296: expected 0 to 2147483646"),  # would wrap around to 0
        ([0.0, 1.5, 2.0], "indices: expected whole numbers, got dtype float64"),
        ([2, 1, 0], "row 0, feature 1 .from 0. does not come after"),
        ([1, 1, 0], "row 0, feature 1 .from 0. does not come after"),
    ],
)
def test_bad_indices(indices, what) -> None:
    with pytest.raises(InputError, match=what):
        rows(indices)


def test_what_lies_between_the_rows_of_a_split_is_not_checked() -> None:
    indices, targets = np.array([2, 4, 3, 3, 1]), np.ones(2)  # entries 2 and 3 are of a row that is not among these
    Rows((np.array([4, 0]), np.array([5, 2])), indices, np.ones(5), targets, 9)
    with pytest.raises(InputError, match="row 1, feature 3 .from 0. does not come after"):
        Rows((np.array([0, 2]), np.array([2, 5])), indices, np.ones(5), targets, 9)


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1"), (-1, "-1"), (0.1, "0.1"), (1_000_001, "1000001"), (16_777_215, "16777215"), (1e30, "1e+30")],
)
def test_shortest(number: float, text: str) -> None:
    assert shortest(number) == text
    assert np.float32(shortest(number)) == np.float32(number)


def test_what_is_no_matrix_of_numbers_is_refused():
    for X in (np.zeros((2, 2, 2)), np.array([[1.0, None]]), np.eye(2) * 1j):
        with pytest.raises(InputError, match="expected real numbers in two dimensions"):
            Rows.from_scipy(X, np.zeros(len(X)))


def test_half_floats_and_damaged_offsets() -> None:
    assert Rows.from_scipy(np.eye(2, dtype=np.float16), [0, 1]).nnz == 2
    for indptr in ([0, 5, 2, 3], [0, 1, 2, 9], [0, -5, 2, 3]):
        X = scipy.sparse.csr_matrix((3, 3), dtype=np.float32)
        X.indptr, X.indices, X.data = np.array(indptr, np.int32), np.arange(3, dtype=np.int32), np.ones(3, np.float32)
        with pytest.raises(InputError, match="X: its indptr does not ascend from 0 to at most its 3 indices"):
            Rows.from_scipy(X, [0, 1, 2])


@pytest.mark.parametrize("fraction", [0, 1, -1, 2, float("nan")])
def test_fractions_that_cannot_be_held_out(fraction) -> None:
    with pytest.raises(InputError, match="cannot hold out"):
        rows([3, 5, 1]).split(fraction)


@pytest.mark.parametrize("ids", [[], [3, 3, 0]], ids=len)
def test_rows_compacted_are_those_of_scipy(ids: list[int]) -> None:
    X = scipy.sparse.random_array((50, 9), density=0.3, rng=np.random.default_rng(2), format="csr", dtype=np.float32)
    some = Rows(X.indptr, X.indices, X.data, np.arange(50), 9, np.arange(50) / 2).select(np.array(ids, dtype=int))
    assert np.shares_memory(some.indices, X.indices)
    made, kept = some.compact(), X[ids]
    assert (some.to_scipy()[0] != kept).nnz == 0
    assert equal(made, Rows(kept.indptr, kept.indices, kept.data, ids, 9, np.array(ids) / 2))
    assert made.contiguous
    assert (made.begin.dtype, made.indices.dtype, made.values.dtype) == (np.int64, np.int32, np.float32)
    arrays = (made.begin, made.end, made.indices, made.values, made.targets, some.begin, some.targets)
    assert not any(array.flags.writeable for array in arrays)


def test_rows_without_their_empty_columns() -> None:
    X = scipy.sparse.random(20, 1000, 0.005, format="csr", random_state=2, dtype=np.float32)
    rows = Rows.from_scipy(X, np.arange(20), weights=np.ones(20)).block(3, 20)
    small, columns = narrowed(rows)
    assert sorted(columns) == np.unique(rows.indices[rows.begin[0] :]).tolist()
    assert small.width == len(columns)
    assert (small.to_scipy()[0] != X[3:][:, columns]).nnz == 0
    assert np.array_equal(small.targets, rows.targets)
    assert not np.shares_memory(small.indices, rows.indices)
    none, columns = narrowed(Rows.from_scipy(scipy.sparse.csr_matrix((3, 9), dtype=np.float32), np.zeros(3)))
    assert (none.width, len(columns), len(none)) == (1, 0, 3)


def test_rows_are_frozen() -> None:
    rows = Rows([0, 1, 2], [0, 1], [1.0, 2.0], [1, -1], 3)
    with pytest.raises(AttributeError):
        rows.width = 4  # type: ignore[misc]
    wider = rows.replace(width=4, known_degrees=None)
    assert (rows.width, wider.width) == (3, 4)
    assert wider.indices is rows.indices
    assert (rows.degrees().tolist(), wider.degrees().tolist()) == ([1, 1, 0], [1, 1, 0, 0])
