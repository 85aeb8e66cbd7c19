"""``partial_fit``: batches, pickles between them, and what it costs not to pass over all weights."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from hogwild import HogwildClassifier, HogwildRegressor, TrainingError
from hogwild.estimators import options as estimator_options
from hogwild.estimators import stream as stream_module


def learn(model: Any, X: Any, y: np.ndarray, size: int, **more: Any) -> Any:
    for first in range(0, len(y), size):
        model.partial_fit(X[first : first + size], y[first : first + size], **more)
    return model


@pytest.mark.parametrize("size", [50, 500])
def test_batches_learn_nearly_what_fit_does(text: Any, size: int) -> None:
    X, y = text
    whole = HogwildClassifier("log_loss", random_state=0).fit(X, y).score(X, y)
    model = learn(HogwildClassifier("log_loss", random_state=0), X, y, size, classes=[-1, 1])
    assert model.score(X, y) > whole - 0.03
    assert model.t_ == 1 + len(y)
    assert model.coef_.dtype == np.float32


def dumped(model: Any, path: Path, **how: Any) -> Any:
    joblib.dump(model, path)
    return joblib.load(path, **how)


SENT = {
    "pickle": lambda model, path: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, path: copy.deepcopy(model),
    "joblib": dumped,
    "joblib, read-only maps": lambda model, path: dumped(model, path, mmap_mode="r"),
}


@pytest.mark.parametrize("way", SENT)
@pytest.mark.parametrize("average", [False, True])
def test_a_pickle_between_batches_changes_nothing(text: Any, average: bool, way: str, tmp_path: Path) -> None:
    X, y = text
    plain = learn(HogwildClassifier(random_state=0, average=average), X[:2000], y[:2000], 400, classes=[-1, 1])
    sent = HogwildClassifier(random_state=0, average=average)
    for first in range(0, 2000, 400):
        sent.partial_fit(X[first : first + 400], y[first : first + 400], classes=[-1, 1])
        sent = SENT[way](sent, tmp_path / f"model-{first}")  # a mapped file must not be written over
    assert np.array_equal(plain.coef_, sent.coef_)
    assert np.array_equal(plain.intercept_, sent.intercept_)


def test_it_goes_on_from_fit_and_from_weights_of_the_users(text: Any) -> None:
    X, y = text
    model = HogwildClassifier(random_state=0).fit(X, y)
    before, kept = model.coef_.copy(), model.coef_
    model.partial_fit(X[:300], y[:300])
    assert np.array_equal(kept, before)  # what fit gave is the caller's
    assert 0 < np.abs(model.coef_ - before).max() < np.abs(before).max()
    model.coef_ = np.zeros_like(before)
    model.intercept_ = np.zeros(1, np.float32)
    model.partial_fit(X[:1], y[:1])
    assert np.count_nonzero(model.coef_) <= X[:1].nnz


def test_schedules_go_on_from_fit(text: Any) -> None:
    X, y = text
    model = HogwildClassifier("log_loss", learning_rate="optimal", alpha=1e-2, random_state=0).fit(X, y)
    visited, before = model.t_, model.coef_.copy()
    model.partial_fit(X[:50], y[:50])
    assert model.t_ == visited + 50
    assert np.abs(model.coef_ - before).max() < 0.05 * np.abs(before).max()


def test_a_first_batch_that_fails_leaves_nothing(text: Any) -> None:
    X, y = text
    model = HogwildClassifier(random_state=0)
    with pytest.raises(ValueError, match="label -1.0 is not among the classes"):
        model.partial_fit(X[:300], y[:300], classes=[0, 1])
    with pytest.raises(ValueError, match="labels such as 'a' cannot be held against the classes"):
        model.partial_fit(X[:2], np.array(["a", "b"], dtype=object), classes=[0, 1])
    model.set_params(loss="squared_error", learning_rate="constant", eta0=1e20)
    with pytest.raises(TrainingError):
        model.partial_fit(X[:300], y[:300], classes=[-1, 1])
    model.set_params(loss="hinge", learning_rate="auto").partial_fit(X[:300], y[:300], classes=[-1, 1])
    fresh = HogwildClassifier(random_state=0).partial_fit(X[:300], y[:300], classes=[-1, 1])
    assert np.array_equal(model.coef_, fresh.coef_)


def test_workers_share_a_large_batch(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = text
    monkeypatch.setattr(estimator_options, "RACE", 0)
    models = [
        learn(HogwildClassifier("log_loss", random_state=k, n_jobs=2), X, y, 3000, classes=[-1, 1]) for k in range(3)
    ]
    assert np.median([model.score(X, y) for model in models]) > 0.9


def test_other_classes_than_before_are_refused(text: Any) -> None:
    X, y = text
    model = HogwildClassifier(random_state=0).partial_fit(X[:300], y[:300], classes=[-1, 1])
    with pytest.raises(ValueError, match="differ from those before"):
        model.partial_fit(X[:2], y[:2], classes=[1, 2])


def test_a_learning_rate_that_changes_between_batches_is_the_one_in_use(text: Any) -> None:
    """Passive-aggressive steps begin and end with their option."""
    X, y = text
    options = {"penalty": None, "shuffle": False, "fit_intercept": False, "eta0": 1.0}
    model = HogwildClassifier(learning_rate="pa1", **options).partial_fit(X[:400], y[:400], classes=[-1, 1])
    twin = HogwildClassifier(learning_rate="constant", **options).partial_fit(X[:400], y[:400], classes=[-1, 1])
    for one, rate in ((model, "constant"), (twin, "pa1")):
        before = one.coef_.copy()
        one.set_params(learning_rate=rate, eta0=0.01).partial_fit(X[400:800], y[400:800])
        fresh = HogwildClassifier(learning_rate=rate, max_iter=1, tol=None, **options | {"eta0": 0.01})
        fresh.fit(X[400:800], y[400:800], coef_init=before)
        assert np.allclose(one.coef_, fresh.coef_, atol=1e-5)


def rows_in_turn(n: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8)).astype(np.float32)
    return X, X @ rng.normal(size=8).astype(np.float32)


@pytest.mark.parametrize("n", [30, 400])
def test_a_short_row_does_not_undo_what_was_learnt(n: int) -> None:
    """Its margin is the intercept's, and a step that suits its length would move that far beyond all others."""
    X, y = rows_in_turn(n)
    model = learn(HogwildRegressor(random_state=0), X, y, 1)
    label = learn(HogwildClassifier(random_state=0), X, y > 0, 1, classes=[False, True])
    before, right = model.score(X, y), label.score(X, y > 0)
    assert before > 0.5
    for tiny in (1e-2, 1e-4, 1e-20):
        assert copy.deepcopy(model).partial_fit(X[:1] * tiny, [1.0]).score(X, y) > before - 0.2
        assert copy.deepcopy(label).partial_fit(X[:1] * tiny, [not y[0] > 0]).score(X, y > 0) > right - 0.1


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_model_that_diverged_is_gone(good: int) -> None:
    X, y = rows_in_turn(100)
    model = HogwildClassifier("squared_hinge", learning_rate="constant", eta0=0.01, random_state=0)
    learn(model, X[: 30 * good], y[: 30 * good] > 0, 30, classes=[False, True])
    with pytest.raises(TrainingError, match=f"diverged in batch {good + 1}: begin again"):
        learn(model.set_params(eta0=1e20), X, y > 0, 100, classes=[False, True])
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert not [name for name in vars(model) if name.endswith("_")]
    learn(model.set_params(learning_rate="auto"), X, y > 0, 10, classes=[False, True])
    assert model.score(X, y > 0) > 0.6


def test_workers_that_cannot_start_cost_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows_in_turn(200)
    model = learn(HogwildClassifier(random_state=0), X[:100], y[:100] > 0, 50, classes=[False, True])
    expected = model.coef_.copy()

    def fail(*_: Any) -> None:
        raise TrainingError("cannot start 2 worker processes")

    monkeypatch.setattr(stream_module, "start_pool", fail)
    for wrong, said in ({"n_jobs": 0}, "n_jobs=0"), ({"host": "processes"}, "cannot start"):
        with pytest.raises(ValueError if "n_jobs" in wrong else TrainingError, match=said):
            copy.copy(model).set_params(**wrong).partial_fit(X[100:], y[100:] > 0)
    assert np.array_equal(model.coef_, expected)


def test_the_first_steps_are_numbers() -> None:
    """Of rows that are next to nothing, and of empty ones that weigh much."""
    X, y = rows_in_turn(100)
    for fit_intercept in (True, False):
        tiny = HogwildClassifier("log_loss", penalty=None, fit_intercept=fit_intercept, random_state=0)
        assert learn(tiny, X * 1e-20, y > 0, 50, classes=[False, True]).score(X * 1e-20, y > 0) >= 0.4
    empty = HogwildRegressor(random_state=0).partial_fit(np.zeros((20, 3)), np.arange(20), sample_weight=[1000.0] * 20)
    assert 0 <= empty.intercept_[0] <= 19
    late = HogwildRegressor(fit_intercept=False, random_state=0).partial_fit(X[:50], y[:50] + 5)
    learn(late.set_params(fit_intercept=True), X, y + 5, 25)
    assert late.intercept_[0] > 1


def test_a_batch_of_weight_zero_teaches_nothing() -> None:
    X, y = rows_in_turn(300)
    model = learn(
        HogwildClassifier(penalty=None, random_state=0, class_weight={0: 0, 1: 1}), X, y > 0, 300, classes=[False, True]
    )
    before = model.coef_.copy()
    only = X[y <= 0]
    model.partial_fit(only, np.zeros(len(only), bool))
    assert np.array_equal(model.coef_, before)
