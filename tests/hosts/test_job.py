"""What workers in other processes are given of rows that lie in a store."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import hogwild
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import save_store
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.workers import job_of


def test_rows_cut_short_keep_their_own_offsets(tmp_path):
    """A narrower width that cuts entries off the last row only: the store's offsets would reach past the weights."""
    X = sp.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0]]))
    store = save_store(Rows.from_scipy(X, np.array([0, 1, 1])), tmp_path / "store")
    with pytest.warns(hogwild.HogwildWarning, match="beyond"):
        rows = hogwild.open_data(str(store), width=2, beyond="ignore")
    assert rows.nnz == 4
    problem = LinearProblem.of(hogwild.TrainConfig(), rows, "serial")
    data = job_of(problem, Order.of(3), 0, 1, rows, problem.row_arrays(rows, None), shared=True).data()
    seen = [data.indices[i:j] for i, j in zip(data.begin, data.end)]
    assert max(indices.max() for indices in seen) < 2
