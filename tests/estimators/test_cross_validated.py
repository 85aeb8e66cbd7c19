"""``alpha`` by cross-validation: what is chosen, by which folds and score; the model is then an ordinary one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, ShuffleSplit, TimeSeriesSplit, cross_val_score

from hogwild import HogwildClassifier, HogwildClassifierCV, HogwildRegressor, HogwildRegressorCV
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.problems.linear.options import L2_PATH
from hogwild.training.l2_choice import choose_l2

ALPHAS = [1e-4, 1e-2, 1.0]


def data(n: int = 240, width: int = 12, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width))
    margins = X @ rng.normal(size=(width, max(classes, 1))) + 3 * rng.normal(size=(n, max(classes, 1)))
    return X, margins[:, 0] if classes == 0 else margins.argmax(axis=1)


def test_the_model_is_that_of_the_alpha_with_the_best_mean_score() -> None:
    X, y = data()
    found = HogwildClassifierCV(loss="log_loss", alphas=ALPHAS, random_state=0).fit(X, y)
    assert found.path_.shape == (3, 25)  # of few rows, in five divisions
    np.testing.assert_array_equal(found.alphas_, ALPHAS)
    assert found.alpha_ == ALPHAS[found.path_.mean(axis=1).argmax()]
    assert found.best_score_ == pytest.approx(found.path_.mean(axis=1).max())
    own = HogwildClassifier(loss="log_loss", alpha=found.alpha_, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.coef_, own.coef_)
    np.testing.assert_array_equal(found.intercept_, own.intercept_)


@pytest.mark.parametrize("scale", [True, False])
def test_scores_are_those_of_optima_without_the_fold(scale: bool) -> None:
    X, y = data(classes=0)
    X, y = X + 1, y + 5  # most of which the intercept has to learn
    cv, more = KFold(4), {"scale_columns": scale, "random_state": 0}
    found = HogwildRegressorCV(alphas=ALPHAS, cv=cv, **more).fit(X, y)
    for alpha, scores in zip(ALPHAS, found.path_):
        ridge = Ridge(alpha=alpha * len(y))  # as on all rows
        own = cross_val_score(ridge, X, y, cv=cv, scoring="neg_mean_squared_error") / 2
        np.testing.assert_allclose(scores, own, rtol=0.03)
    named = HogwildRegressorCV(alphas=ALPHAS, cv=cv, scoring="neg_mean_squared_error", **more).fit(X, y)
    np.testing.assert_allclose(named.path_, 2 * found.path_, rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_scores_and_folds(classes: int) -> None:
    X, codes = data(classes=classes)
    y = np.array(["no", "so", "yes"])[codes]
    splits = list(KFold(3).split(X))
    seen = []

    def accuracy(estimator: Any, X: Any, y: Any) -> float:
        seen.append(len(y))
        return float(np.mean(estimator.predict(X) == y))

    found = HogwildClassifierCV(alphas=ALPHAS, cv=splits, scoring=accuracy, random_state=0)
    found.fit(scipy.sparse.csr_matrix(X), y)
    assert set(seen) == {80}
    assert len(seen) > 9  # the better half is judged again
    assert found.best_score_ > 1 / classes
    same = HogwildClassifierCV(alphas=ALPHAS, cv=KFold(3), scoring="accuracy", random_state=0).fit(X, y)
    np.testing.assert_allclose(found.path_, same.path_, atol=0.02)


def test_alpha_auto_is_five_folds_of_the_usual_path() -> None:
    X, y = data()
    found = HogwildClassifier(loss="log_loss", alpha="auto", penalty="elasticnet", random_state=0).fit(X, y)
    np.testing.assert_allclose(
        found.alphas_, 10 * np.array(L2_PATH)
    )  # a row's squared length is nearer to 10 than to 1
    assert found.path_.shape == (len(L2_PATH), 5)
    model = found.to_model()
    assert model.loss == "log"


@pytest.mark.parametrize("loss", ["log_loss", "softmax"])
def test_alpha_of_few_rows_is_walked_to_as_the_command_does(loss: str) -> None:
    X, y = data(classes=3)
    one, other = (HogwildClassifier(loss=loss, alpha="auto", random_state=seed).fit(X, y) for seed in (0, 1))
    assert one.alpha_ == other.alpha_  # of optima, by folds that rows alone say
    means = one.path_.mean(axis=1)
    assert 0 < means.argmax() < len(means) - 1
    assert one.best_score_ >= means.max() - 0.002 * np.ptp(means) - 1e-9
    rows = Rows.from_scipy(X.astype(np.float32), y)
    if loss == "softmax":
        assert one.alpha_ == choose_l2(TrainConfig(loss=loss, l2="auto"), rows).l2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"alphas": [1.0]}, "two or more"),
        ({"alphas": [-1.0, 1.0]}, "at least 0"),
        ({"alphas": [True, False]}, "at least 0"),
        ({"cv": TimeSeriesSplit(3)}, "train on all others"),
        ({"cv": [(np.arange(30), np.arange(30))]}, "train on all others"),
        ({"cv": [(np.arange(60), np.arange(0))]}, "another fold 0"),
        ({"cv": [(np.arange(60) < 30, np.arange(60) >= 30)]}, "another fold 0"),
        ({"cv": []}, "got no folds"),
        ({"cv": ShuffleSplit(5, test_size=0.5, random_state=0)}, "another fold [1-4]"),
        ({"penalty": None}, "penalty is None"),
        ({"learning_rate": "pa1"}, "no passive steps"),
        ({"alpha": "best"}, "alpha='best'"),
    ],
)
def test_refusals(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        HogwildClassifierCV(**options).fit(*data(60))


def test_many_rows_are_held_out_once() -> None:
    """Not in five folds of lanes, which took a hundred times as long as a fit on 20 newsgroups."""
    X, y = data(21_000, width=60, classes=3)
    found = HogwildClassifier("softmax", alpha="auto", max_iter=3, tol=None, random_state=0).fit(X, y)
    assert found.path_.shape == (len(L2_PATH), 1)


def test_more_refusals() -> None:
    X, y = data(60, classes=3)
    with pytest.raises(UsageError, match="chosen by fit"):
        HogwildRegressor(alpha="auto").partial_fit(X, y)
    assert not hasattr(HogwildClassifierCV(), "partial_fit")


def test_a_number_forgets_what_was_chosen_before() -> None:
    X, y = data(60)
    found = HogwildClassifierCV(alphas=ALPHAS, cv=3, random_state=0).fit(X, y)
    assert found.alpha_ in ALPHAS
    assert not hasattr(found.set_params(alpha=1e-3).fit(X, y), "alpha_")


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_the_path_is_in_units_of_the_weights(loss: str) -> None:
    X, y = data()
    one, many, few = (
        HogwildClassifier(loss=loss, alpha="auto", random_state=0).fit(X, y, sample_weight=np.full(len(y), weight))
        for weight in (1.0, 1e6, 1e-9)
    )
    np.testing.assert_allclose(many.alphas_, 1e6 * one.alphas_)
    assert many.alpha_ == pytest.approx(1e6 * one.alpha_)
    assert few.alpha_ == pytest.approx(1e-9 * one.alpha_)


def test_folds_without_weight_do_not_count() -> None:
    X, y = data(60)
    weights = np.where(np.arange(60) < 40, 1.0, 0.0)
    folds = KFold(3)
    found = HogwildClassifierCV(alphas=ALPHAS, cv=folds, random_state=0).fit(X, y, sample_weight=weights)
    assert np.isfinite(found.best_score_)
    assert (found.path_[:, 2] == -np.inf).all()
