"""``alpha="auto"``: what is chosen is what the command chooses; the model is then an ordinary one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hogwild import HogwildClassifier, HogwildRegressor
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.training.l2_choice import choose_l2


def data(n: int = 240, width: int = 12, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width))
    margins = X @ rng.normal(size=(width, max(classes, 1))) + 3 * rng.normal(size=(n, max(classes, 1)))
    return X, margins[:, 0] if classes == 0 else margins.argmax(axis=1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (HogwildClassifier, {"loss": "log_loss"}),
        (HogwildClassifier, {"loss": "hinge"}),
        (HogwildClassifier, {"loss": "log_loss", "penalty": "elasticnet"}),
        (HogwildRegressor, {}),
    ],
)
def test_the_model_is_that_of_the_alpha_that_was_chosen(kind: Any, options: dict[str, Any]) -> None:
    X, y = data(classes=2 if kind is HogwildClassifier else 0)
    found = kind(alpha="auto", random_state=0, **options).fit(X, y)
    own = kind(alpha=found.alpha_, random_state=0, **options).fit(X, y)
    np.testing.assert_array_equal(found.coef_, own.coef_)
    np.testing.assert_array_equal(found.intercept_, own.intercept_)
    assert not hasattr(found.set_params(alpha=1e-3).fit(X, y), "alpha_")


@pytest.mark.parametrize("loss", ["log_loss", "softmax"])
def test_it_is_chosen_as_the_command_does(loss: str) -> None:
    X, y = data(classes=3)
    one, other = (HogwildClassifier(loss=loss, alpha="auto", random_state=seed).fit(X, y) for seed in (0, 1))
    assert one.alpha_ == other.alpha_  # of optima, by folds that rows alone say
    if loss == "softmax":
        rows = Rows.from_scipy(X.astype(np.float32), y)
        assert one.alpha_ == choose_l2(TrainConfig(loss=loss, l2="auto"), rows).l2


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_it_is_in_units_of_the_weights(loss: str) -> None:
    X, y = data()
    one, many, few = (
        HogwildClassifier(loss=loss, alpha="auto", random_state=0).fit(X, y, sample_weight=np.full(len(y), weight))
        for weight in (1.0, 1e6, 1e-9)
    )
    assert many.alpha_ == pytest.approx(1e6 * one.alpha_)
    assert few.alpha_ == pytest.approx(1e-9 * one.alpha_)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"penalty": None}, "penalty is None"),
        ({"learning_rate": "pa1"}, "no passive steps"),
        ({"alpha": "best"}, "alpha='best': expected a finite number"),
    ],
)
def test_refusals(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        HogwildClassifier(**{"alpha": "auto"} | options).fit(*data(60))
    with pytest.raises(UsageError, match="chosen by fit"):
        HogwildRegressor(alpha="auto").partial_fit(*data(60, classes=0))
