"""The optimum: against closed forms, and by its own conditions."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.compare.reference.optimum import find_optimum
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from tests.runs import toy


def weighted(rows, seed=5):
    weights = np.random.default_rng(seed).random(len(rows)) * 3
    return Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, rows.width, weights)


def config(loss="log", **options):
    return TrainConfig(**{"loss": loss, "l2": 1e-3} | options)


# ---- against others


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge(intercept):
    rows = weighted(toy(400, 24, 4, classes=0))
    c = config("squared-error", l2=0.01, intercept=intercept)
    X, y = rows.to_scipy()
    A = np.hstack([X.toarray().astype(float), np.ones((len(rows), 1))]) if intercept else X.toarray().astype(float)
    a = rows.weights.astype(float) / rows.weights.astype(float).sum()
    ridge = np.sqrt(c.l2) * np.eye(A.shape[1])[: rows.width]
    exact = np.linalg.lstsq(
        np.vstack([np.sqrt(a)[:, None] * A, ridge]), np.append(np.sqrt(a) * y, np.zeros(rows.width)), rcond=None
    )[0]
    value = a @ (A @ exact - y) ** 2 / 2 + c.l2 / 2 * exact[: rows.width] @ exact[: rows.width]
    found = find_optimum(rows, c)
    assert found.objective == pytest.approx(value, abs=1e-9)
    assert found.gap < 1e-9
    assert found.start == pytest.approx(a @ y.astype(float) ** 2 / 2)
    np.testing.assert_allclose(found.coef, exact[: rows.width], atol=1e-4)
    assert found.intercept == pytest.approx(exact[rows.width :] if intercept else [0.0], abs=1e-4)


# ---- its own conditions


def test_separable_without_a_penalty_is_not_attained():
    rows = toy(200, 48, 6, noise=0.0)
    found = find_optimum(rows, config(l2=0.0))
    assert 0 <= found.objective < 1e-6
    assert "not attained" in found.how
    assert found.gap is None
