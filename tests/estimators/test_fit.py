"""Who does the epochs of a fit, and how it is known when they are enough."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import hogwild
from hogwild import HogwildClassifier
from hogwild.estimators import options as estimator_options
from hogwild.estimators.arrays import (
    as_targets,
    problem_of,
    rows_of,
    shrinks_alike,
    shrinks_gently,
)
from hogwild.estimators.fit import sample_objective
from hogwild.estimators.options import config_of
from tests import numpy_objective


def many_classes(count: int = 11, n: int = 900, width: int = 60) -> tuple[Any, np.ndarray]:
    random = np.random.default_rng(count)
    X = scipy.sparse.random_array((n, width), density=0.2, rng=random, format="csr", dtype=np.float32)
    return X, (X @ random.normal(size=(width, count))).argmax(axis=1)


def test_a_matrix_whose_flags_are_older_than_its_arrays_is_sorted() -> None:
    X, y = many_classes()
    X.sort_indices()
    turned = X.copy()
    assert turned.has_canonical_format
    for first, last in pairwise(turned.indptr):
        turned.indices[first:last] = X.indices[first:last][::-1]
        turned.data[first:last] = X.data[first:last][::-1]
    rows, same = (rows_of(matrix, as_targets(y, 11), None) for matrix in (turned, X))
    np.testing.assert_array_equal(rows.indices, same.indices)
    np.testing.assert_array_equal(rows.values, same.values)


@pytest.mark.parametrize(
    ("loss", "classes"),
    [*product(["hinge", "softmax"], [2, 3, 7, 11, 40]), *product(["log_loss", "modified_huber"], [2, 3])],
)
def test_the_sample_objective_is_the_objective(loss: str, classes: int) -> None:
    weights = classes == 7
    X, y = many_classes(classes)
    given = np.random.default_rng(0).random(len(y)).astype(np.float32) if weights else None
    rows = rows_of(X, as_targets(y, classes), given)
    config = config_of(HogwildClassifier(loss, penalty="elasticnet", alpha=0.01))
    config = config.settled(loss="log") if loss == "softmax" and classes == 2 else config
    problem = problem_of(config, rows, classes, whole=True)
    flat = np.zeros(problem.size, np.float32)
    views, k = problem.parameters(flat), problem.classes
    random = np.random.default_rng(2)
    views.coef.reshape(problem.width, -1)[:, :k] = random.normal(size=(problem.width, k))
    views.intercept[:k] = random.normal(size=k)
    coef, intercept = problem.solution(flat)
    same = {"l1": problem.l1, "l2": problem.l2, "labels": np.arange(classes) if classes > 2 else (-1, 1)}
    expected = numpy_objective.evaluate(rows, problem.loss, coef, intercept, **same)["objective"]
    if weights:  # of mean one there; here they are what they are
        penalty = problem.l1 * np.abs(coef).sum() + problem.l2 / 2 * np.square(coef).sum()
        expected = (expected - penalty) * rows.weights.mean() + penalty
    assert sample_objective(problem, rows)(flat) == pytest.approx(expected, rel=1e-9 if k == 1 else 1e-5)


@pytest.mark.parametrize(
    ("options", "rows", "gently"),
    [
        ({}, 10**9, True),
        ({}, 100, False),
        ({"penalty": None}, 1000, False),
        ({"learning_rate": "optimal", "alpha": 10.0}, 1000, False),  # at first a step would shrink to nothing
        ({"learning_rate": "constant", "eta0": 1.0}, 10**6, False),
        ({"learning_rate": "adaptive", "eta0": 1.0, "alpha": 1.0}, 1000, False),
        ({"learning_rate": "invscaling", "eta0": 100.0, "alpha": 1e-3, "power_t": 3.0}, 300, False),
    ],
)
def test_when_a_scale_stands_for_the_penalty(options: dict[str, Any], rows: int, gently: bool) -> None:
    assert shrinks_gently(config_of(HogwildClassifier(**options)), rows, lambda p: 1.0) == gently


def test_when_racing_workers_see_the_same_scale() -> None:
    auto = config_of(HogwildClassifier()).settled(workers=2)
    constant = config_of(HogwildClassifier(learning_rate="constant", eta0=1.0)).settled(workers=2)
    assert shrinks_alike(auto, 500_000, 1024)
    assert not shrinks_alike(auto, 50_000, 1024)
    assert not shrinks_alike(auto.settled(workers=64), 500_000, 1024)
    assert shrinks_alike(constant, 50_000, 100)
    assert not shrinks_alike(constant, 50_000, 1024)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # there are few epochs
@pytest.mark.filterwarnings("ignore:n_jobs=.* share")
@pytest.mark.parametrize("rate", ["constant", "optimal", "auto"])
def test_racing_workers_end_where_one_does_whatever_the_penalty(rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator_options, "RACE", 1)
    X, y = many_classes(2, 4000, 200)
    for alpha in (1e-4, 1e-2):
        ends = []
        for jobs in (None, 2):
            fits = [
                HogwildClassifier("log_loss", alpha=alpha, learning_rate=rate, eta0=0.3, n_jobs=jobs, random_state=k)
                for k in range(3)
            ]
            ends.append(np.median([fit.set_params(max_iter=20).fit(X, y).loss_curve_[-1] for fit in fits]))
        # large steps never settle: with them, ends differ by a twentieth from run to run
        assert ends[1] < (1.3 if rate == "constant" else 1.1) * ends[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_three_rows_and_a_strong_penalty_never_blow_up() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        X, y = random.normal(size=(3, 2)), [0, 1, 1]
        model = HogwildClassifier("log_loss", alpha=10.0, random_state=seed, max_iter=100).fit(X, y)
        assert max(model.loss_curve_) < 2 * np.log(2)


@pytest.mark.parametrize("rate", ["constant", "adaptive", "invscaling", "optimal", "auto"])
@pytest.mark.parametrize("alpha", [1e-4, 0.1, 10.0, 1e3])
def test_any_alpha_is_minimised(rate: str, alpha: float) -> None:
    """Weights that shrink by many orders of magnitude in an epoch neither overflow nor stay."""
    X, y = many_classes(2)
    model = HogwildClassifier(alpha=alpha, learning_rate=rate, eta0=0.1, random_state=0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    if rate == "auto":
        theirs = np.maximum(0, 1 - np.where(y, 1, -1) * model.decision_function(X)).mean()
        assert theirs + alpha / 2 * np.square(model.coef_).sum() <= 1.0 + 1e-3  # what zeros have


@pytest.mark.parametrize("classes", [1, 3])
def test_steps_are_tried_without_the_columns_that_are_empty(classes: int) -> None:
    """A thousand columns for each that is used cost nothing, and change nothing."""
    X, y = hogwild.open_data(f"synthetic:rcv1?rows=2500&features=700&nnz=15&classes={max(classes, 2)}").to_scipy()
    wide = scipy.sparse.csr_matrix((X.data, 1000 * X.indices, X.indptr), (X.shape[0], 700_000))
    count = 1 if classes < 3 else classes
    coef = np.random.default_rng(0).normal(0, 30, (count, 700, 1)) * (np.arange(1000) == 0)  # of the used columns
    for begun in (False, True):
        models = []
        for matrix, start in ((X, coef[:, :, 0]), (wide, coef.reshape(count, -1))):
            given = {"coef_init": start, "intercept_init": np.full(count, 0.5)} if begun else {}
            models.append(HogwildClassifier("log_loss", random_state=0, max_iter=3, tol=None).fit(matrix, y, **given))
        assert np.allclose(models[0].coef_, models[1].coef_[:, ::1000], rtol=1e-3, atol=1e-5)
