"""Margins, row scales and the walk in chunks: against dense NumPy, on awkward rows, on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from hogwild.data.rows import container as chunks_module
from hogwild.data.rows.container import Rows, chunks, count_unknown, map_chunks
from hogwild.data.rows.margins import margins, row_scales
from tests.runs import living


@pytest.fixture
def small_chunks(monkeypatch):
    """Cut after 7 nonzeros, and after 5 rows."""
    monkeypatch.setattr(chunks_module.chunks, "__defaults__", (7,))
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS", 5)


def awkward(n=40, width=11, seed=0):
    """Random rows with empty ones at both ends and in the middle, and one of explicit zeros."""
    rng = np.random.default_rng(seed)
    dense = rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.3)
    dense[[0, 1, 7, 8, n - 1]] = 0
    X = scipy.sparse.csr_array(dense.astype(np.float32))
    X.data[X.indptr[3] : X.indptr[4]] = 0
    rows = Rows.from_scipy(X, rng.normal(size=n))
    return rows, X.toarray().astype(np.float64)


def test_chunks_cover_every_row_once_and_are_bounded(small_chunks):
    rows, _ = awkward()
    cuts = list(chunks(rows))
    assert [a for a, _ in cuts] == [0, *(b for _, b in cuts[:-1])]
    assert cuts[-1][1] == len(rows)
    assert all(rows.block(a, b).nnz <= 7 or b == a + 1 for a, b in cuts)
    assert all(0 < b - a <= 5 for a, b in cuts)
    assert list(chunks(rows.block(0, 0))) == []


def test_map_chunks_keeps_order_and_stops_early(small_chunks):
    rows, _ = awkward()
    assert list(map_chunks(rows, lambda a, b: (a, b), threads=4)) == list(chunks(rows))
    before = living()
    walk = map_chunks(rows, lambda a, b: a, threads=2)
    assert next(walk) == 0
    walk.close()
    assert not living() - before

    def fail(a, b):
        raise RuntimeError("in a chunk")

    with pytest.raises(RuntimeError, match="in a chunk"):
        list(map_chunks(rows, fail, threads=2))
    assert not living() - before


@pytest.mark.parametrize(("kind", "width"), [("none", 4), ("l2", 0), ("l2", 4)])
def test_features_beyond_the_width_are_not_there(small_chunks, kind, width):
    rows, dense = awkward()
    w = np.arange(1.0, width + 1)
    narrow = Rows.from_scipy(dense[:, :width], rows.targets)
    np.testing.assert_array_equal(margins(rows, w, 0.5, kind), margins(narrow, w, 0.5, kind))
    if kind != "none":
        np.testing.assert_array_equal(row_scales(rows, kind, width), row_scales(narrow, kind))
    beyond = int(np.count_nonzero(rows.indices >= width))
    assert count_unknown(rows, width) == beyond > 0
    assert count_unknown(rows, rows.width) == 0


def test_scales_of_zero_tiny_and_huge_rows():
    values = np.array([[0, 0], [1e-42, 0], [3e38, 3e38], [1e30, 1e-30]], dtype=np.float32)
    rows = Rows.from_scipy(values, np.zeros(4))
    scales = row_scales(rows, "l2")
    assert scales.dtype == np.float32
    assert scales[0] == 1.0
    assert np.isfinite(scales).all()
    assert np.isfinite(margins(rows, np.ones(2), 0.0, "l2")).all()
    assert row_scales(rows, "none") is None
