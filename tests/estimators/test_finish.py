"""Exact steps after the epochs of a fit: when they are taken, what they reach, and when they are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import hogwild
from hogwild import HogwildClassifier, HogwildRegressor
from hogwild.estimators import fit as estimator_fit
from hogwild.estimators.options import LOSSES
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import FitProblem
from tests.runs import campaign

ALPHA = 1e-4


def dependent(n: int = 200, width: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose columns depend on each other, and labels that they nearly tell."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, width)) @ (np.ones((width, width)) + 0.1 * random.normal(size=(width, width)))
    z = X @ random.normal(size=width) + random.normal(size=n)
    return X, (z > np.median(z)).astype(float)


def objective(model: Any, X: np.ndarray, y: np.ndarray, loss: str, alpha: float = ALPHA) -> float:
    judge = Objective(hogwild.Rows.from_scipy(X, y), loss, l2=alpha, labels=tuple(np.unique(y)))
    coef = model.coef_ if len(model.coef_) > 1 else model.coef_[0]
    return judge.evaluate(np.asarray(coef, float), np.asarray(model.intercept_, float))["objective"]


@pytest.mark.parametrize(("classes", "seed"), [(2, 0), (3, 1)])
@pytest.mark.parametrize(("ours", "loss"), [("log_loss", "log"), ("hinge", "hinge")])
def test_a_default_fit_ends_near_the_optimum(ours: str, loss: str, classes: int, seed: int) -> None:
    X, y = dependent()
    if classes > 2:
        y = y + (X[:, 0] > 1.0)
    model = HogwildClassifier(ours, random_state=seed).fit(X, y)
    best, made = 0.0, campaign("optimum")
    for label in np.unique(y) if classes > 2 else [1.0]:
        signs, ones = np.where(y == label, 1.0, -1.0), np.ones(len(y))
        best += made.lowest(made.Drawn(loss, np.float32(X).astype(float), signs, ones, 0.0, ALPHA, True, 1))
    assert 0.99 * best <= objective(model, X, y, loss) <= 1.01 * best
    assert objective(model, X, y, loss) < model.loss_curve_[-1]  # at the end of the epochs


@pytest.mark.parametrize(
    "options",
    [
        {"tol": 2e-3},
        {"tol": None, "max_iter": 5},
        {"early_stopping": True},
        {"learning_rate": "constant", "eta0": 1e-3},
    ],
)
def test_exact_steps_are_left_out(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a fit is meant to end early, or by other rules."""

    def refuse(*given: Any) -> None:
        raise AssertionError("exact steps were taken")

    monkeypatch.setattr(estimator_fit, "_finish", refuse)
    HogwildClassifier("log_loss", random_state=0, **options).fit(*dependent())


@pytest.mark.parametrize("options", [{"average": True}, {"learning_rate": "optimal"}])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "modified_huber"])
def test_other_rates_and_means_are_finished_too(loss: str, options: dict[str, Any]) -> None:
    X, y = dependent()
    ends = [
        objective(HogwildClassifier(loss, random_state=0, **each).fit(X, y), X, y, LOSSES[loss])
        for each in ({}, options)
    ]
    assert ends[1] <= 1.01 * ends[0]


def test_a_fit_near_its_optimum_is_left_as_it_is() -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(600, 5))
    y = X @ np.arange(5.0) + random.normal(size=600)
    model = HogwildRegressor(random_state=0).fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator_fit, "UNSETTLED", np.inf)  # no steps whatever is promised
        assert np.array_equal(HogwildRegressor(random_state=0).fit(X, y).coef_, model.coef_)


def test_a_fit_whose_exact_steps_would_take_long_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    X = random.poisson(0.3, size=(150, 400)).astype(float)
    y = X @ random.normal(size=400) + random.normal(size=150) > 0
    monkeypatch.setattr(FitProblem, "work", lambda self, *_: 8 * self.rows.nnz)
    with pytest.warns(ConvergenceWarning, match="exact steps would take too long"):
        HogwildClassifier("log_loss", random_state=0).fit(X, y)


def test_a_small_objective_is_finished_on_wide_rows() -> None:
    """The bound of SGD is far above an objective of few positives, however small it is beside one."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 60, (8000, 10)) + 60 * np.arange(10)
    z = random.normal(size=600)[ids].sum(axis=1)
    y = (z > np.quantile(z, 0.997)).astype(float)
    X = csr_matrix((np.ones(ids.size, np.float32), ids.ravel(), 10 * np.arange(8001)), (8000, 600))
    alpha = 2.5e-3
    best = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-8).fit(X, y)
    model = HogwildClassifier("log_loss", alpha=alpha, random_state=0).fit(X, y)
    assert objective(model, X, y, "log", alpha) <= 1.01 * objective(best, X, y, "log", alpha)


def test_without_tol_the_step_falls_to_zero_over_all_epochs() -> None:
    X, y = dependent()
    about: dict[str, Any] = {"penalty": "l1", "alpha": 1e-3, "random_state": 0}
    curves = [
        HogwildClassifier("log_loss", **about, tol=tol, max_iter=100).fit(X, y).loss_curve_ for tol in (None, 1e-3)
    ]
    assert curves[0][-1] < 1.05 * curves[1][-1]


@pytest.mark.parametrize("count", [0.0, 7.0])
def test_constant_counts_with_weights_do_not_diverge(count: float) -> None:
    """The step that is tried grows as far as counts that are all alike allow, and poisson's slope is an exponential."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        X = random.normal(size=(60, 6)) * (random.random((60, 6)) < 0.4)
        rows = hogwild.Rows.from_scipy(X, np.full(60, count), weights=random.integers(0, 10, 60))
        run = hogwild.train(rows, loss="poisson", seed=seed, workers=1)
        run.finish()
        assert {row["status"] for row in run.history} == {"ok"}
