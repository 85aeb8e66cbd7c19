"""The classifier and the regressor: what they compute, accept and refuse, and whom they live with."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import joblib
import numpy as np
import pytest
import rich
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor, TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import scale

import hogwild
from hogwild import HogwildClassifier, HogwildRegressor, InputError, TrainingError, UsageError, machine
from hogwild.errors import HogwildWarning
from hogwild.estimators import options as estimator_options
from hogwild.estimators.arrays import rows_of
from hogwild.estimators.options import workers_of
from tests.estimators.test_finish import objective
from tests.runs import line_of

FORMATS = [scipy.sparse.csc_array, scipy.sparse.csr_matrix]


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return scale(X), y


def test_parameters_are_those_of_scikit_learn_and_a_few_more() -> None:
    ours, theirs = HogwildClassifier().get_params(), SGDClassifier().get_params()
    assert set(ours) == {*theirs, "host", "scale_columns"}
    assert {name: ours[name] for name in theirs} == theirs | {"learning_rate": "auto"}
    ours, theirs = HogwildRegressor().get_params(), SGDRegressor().get_params()
    assert set(ours) == {*theirs, "host", "loss_param", "n_jobs", "scale_columns"}
    assert {name: ours[name] for name in theirs} == theirs | {"learning_rate": "auto"}


def test_the_regressor_finds_the_ridge_solution_whatever_the_scale() -> None:
    X, y = make_regression(400, 10, noise=5.0, random_state=0)
    for factor in (1e-3, 1.0, 1e4):
        target = factor * (y + 1000.0)
        exact = Ridge(alpha=1e-4 * len(y)).fit(X, target)
        model = HogwildRegressor(random_state=0, tol=1e-4).fit(X, target)
        assert model.score(X, target) > exact.score(X, target) - 0.01
        assert model.coef_.shape == (10,)
        assert model.intercept_.shape == (1,)


@pytest.mark.parametrize(
    ("loss", "power", "needed"),
    [("poisson", 1, "of 0 or more"), ("tweedie", 1.5, "of 0 or more"), ("gamma", 2, "above 0")],
)
def test_counts_and_amounts_are_those_of_generalised_linear_models(loss: str, power: float, needed: str) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(500, 3))
    mean = np.exp(X @ [0.5, -0.3, 0.2] + 5)
    y = random.poisson(mean) if loss == "poisson" else random.gamma(2.0, mean / 2)
    model = HogwildRegressor(loss, alpha=0.001, random_state=0).fit(X, y)
    theirs = TweedieRegressor(power=power, alpha=0.001, link="log", tol=1e-9, max_iter=5000).fit(X, y)
    ours, best = (mean_tweedie_deviance(y, each.predict(X), power=power) for each in (model, theirs))
    assert ours < 1.01 * best
    assert np.allclose(model.to_model().to_sklearn().predict(X), model.predict(X), rtol=1e-5)
    with pytest.raises(ValueError, match=f"needs targets {needed}; row"):
        model.fit(X, y - y.max())


def test_quantiles_lie_above_their_share_of_the_targets() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(1000, 3))
    y = X @ [1.0, -2.0, 3.0] + random.standard_exponential(1000) + 1e6
    for share in (0.1, 0.9):
        model = HogwildRegressor("quantile", loss_param=share, alpha=0.0, random_state=0).fit(X, y)
        assert np.mean(y < model.predict(X)) == pytest.approx(share, abs=0.02)
    assert model.to_model().to_sklearn().quantile == 0.9
    for loss, param, message in (("quantile", 1.0, "from 0.001 to 0.999; got 1"), ("huber", 0.3, "is epsilon")):
        with pytest.raises(ValueError, match=message):
            HogwildRegressor(loss, loss_param=param).fit(X, y)


@pytest.mark.parametrize("kind", FORMATS)
def test_all_formats_train_the_same_model(kind: Any) -> None:
    X, y = load_digits(return_X_y=True)  # half of it zeros
    dense = HogwildClassifier(random_state=3, max_iter=30).fit(X, y)
    sparse = HogwildClassifier(random_state=3, max_iter=30).fit(kind(X), y)
    assert np.array_equal(dense.coef_, sparse.coef_)
    assert np.allclose(dense.decision_function(X), sparse.decision_function(kind(X)), rtol=1e-4, atol=1e-3)


def test_csr_is_used_where_it_lies(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, (X, y) = [], text
    monkeypatch.setattr("hogwild.estimators.linear.rows_of", lambda *args: seen.append(rows_of(*args)) or seen[-1])
    for data in (X.astype(np.float64), X):
        HogwildClassifier(random_state=0).fit(data, y)
        assert np.shares_memory(seen[-1].indices, data.indices)
    assert np.shares_memory(seen[-1].values, X.data)


def test_input_is_left_as_it_was_also_with_repeated_entries() -> None:
    X = scipy.sparse.csr_array((np.ones(6), np.array([1, 0, 0, 2, 1, 1]), np.array([0, 2, 4, 6])), shape=(3, 3))
    before = X.indices.copy(), X.data.copy()
    tidy = X.copy()
    tidy.sum_duplicates()
    first = HogwildClassifier(random_state=0).fit(X, [0, 1, 0])
    assert np.array_equal(X.indices, before[0])
    assert np.array_equal(X.data, before[1])
    assert np.array_equal(first.coef_, HogwildClassifier(random_state=0).fit(tidy, [0, 1, 0]).coef_)


def test_values_beyond_float32_are_refused() -> None:
    with pytest.raises(ValueError, match="too large for float32"):
        HogwildClassifier().fit(np.array([[1e300], [1.0]]), [0, 1])


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e12])
def test_an_offset_does_not_hide_the_spread(offset: float) -> None:
    """Float32 holds seven digits: far columns and targets are centred before they are rounded."""
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 4))
    w = random.normal(size=4)
    far = X + offset * np.array([1, 0, -1, 1])
    y = X @ w + 0.1 * random.normal(size=400)
    for rate, more in ("auto", {}), ("constant", {"eta0": 0.05, "early_stopping": True}):
        options = {"random_state": 0, "learning_rate": rate} | more
        assert HogwildClassifier("log_loss", **options).fit(far, y > 0).score(far, y > 0) > 0.93
        assert HogwildRegressor(**options).fit(far, y).score(far, y) > 0.95
        model = HogwildRegressor(warm_start=True, **options).fit(X, y + offset)
        for _ in range(2):
            assert model.score(X, y + offset) > 0.95
            model.fit(X, y + offset)
    with pytest.warns(HogwildWarning, match="so far from zero that float32 loses their spread"):
        HogwildRegressor(fit_intercept=False).fit(far, y)


def test_a_fit_of_far_columns_begins_where_it_is_told() -> None:
    w = np.array([1.0, 2.0, 3.0])
    X = np.random.default_rng(0).normal([1e6, 0, -1e6], size=(200, 3))
    still = HogwildRegressor(learning_rate="constant", eta0=1e-12, max_iter=1, tol=None)
    for targets in (X @ w, X @ w + 2e6):  # near zero of their own, and far
        model = still.fit(X, targets, coef_init=w, intercept_init=3 + (targets - X @ w).mean())
        np.testing.assert_allclose(model.predict(X), targets + 3, atol=0.5)


def test_more_columns_than_the_memory_holds_are_one_line() -> None:
    X = scipy.sparse.csr_matrix(([1.0, 1.0], ([0, 1], [0, 2**31 - 2])), shape=(4, 2**31 - 1))
    with (
        mock.patch.object(machine, "memory", return_value=(2**30, 2**30)),
        pytest.raises(ValueError, match="columns.*memory"),
    ):
        HogwildClassifier().fit(X, [0, 1, 0, 1])


@pytest.mark.parametrize("average", [False, True, np.True_])  # the last as from the grid of a search
def test_one_worker_and_a_seed_give_the_same_bits(text: Any, average: bool) -> None:
    """Without exact steps, which `tol` leaves out: they end at one optimum whatever the seed."""
    fits = [HogwildClassifier(random_state=1, average=average, tol=0.002).fit(*text) for _ in range(2)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    other = HogwildClassifier(random_state=2, average=average, tol=0.002).fit(*text)
    assert not np.array_equal(fits[0].coef_, other.coef_)


def test_two_processes_end_where_one_worker_does(text: Any) -> None:
    alone = HogwildClassifier("log_loss", random_state=0).fit(*text)
    both = [HogwildClassifier("log_loss", random_state=k, n_jobs=2, host="processes").fit(*text) for k in range(3)]
    assert np.median([model.loss_curve_[-1] for model in both]) < 1.05 * alone.loss_curve_[-1]


@pytest.mark.filterwarnings("ignore:n_jobs=.* share")
def test_n_jobs_as_in_joblib() -> None:
    assert workers_of(None) == 1
    assert workers_of(3) == 3
    assert workers_of(-1) >= 1
    with joblib.parallel_config(n_jobs=2, backend="threading"):
        assert workers_of(None) == 2
    for wrong in (0, 1.5, "2"):
        with pytest.raises(UsageError, match="n_jobs"):
            workers_of(wrong)
    enough = estimator_options.RACE
    assert workers_of(4, 100, enough - 1) == 1
    assert workers_of(4, 100, enough) == 4
    assert workers_of(4, 3) == 3


def test_densify_undoes_sparsify(cancer: Any) -> None:
    X, y = cancer
    for model in (HogwildClassifier(penalty="l1", alpha=0.05, random_state=0), HogwildRegressor(random_state=0)):
        before, predicted = model.fit(X, y).coef_, model.predict(X)
        assert scipy.sparse.issparse(model.sparsify().coef_)
        assert np.allclose(model.predict(X), predicted, atol=1e-5)
        assert np.array_equal(model.densify().coef_, before)


def test_who_is_warned_of_too_few_epochs(cancer: Any) -> None:
    X, y = cancer
    with pytest.warns(ConvergenceWarning, match="Maximum number of iteration reached") as caught:
        HogwildClassifier(max_iter=2, random_state=0).fit(X, y)
    assert [each.filename for each in caught] == [__file__]  # where fit was called
    HogwildClassifier("log_loss", tol=1e-7, max_iter=30, random_state=0).fit(X, y)  # exact steps reach the optimum
    HogwildRegressor(random_state=0).fit([[1.0]], [5.0])  # a row is looked at twice in 1,000 epochs: no warning


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"loss": "squared"}, "loss='squared': expected one of log_loss, hinge"),
        ({"penalty": "l3"}, "penalty='l3': expected one of l2, l1, elasticnet, None"),
        ({"alpha": -1}, "alpha=-1: expected a finite number of at least 0"),
        ({"alpha": None}, "alpha=None: expected a finite number of at least 0"),
        ({"l1_ratio": 3}, "l1_ratio=3: expected a finite number of at least 0 and at most 1"),
        ({"max_iter": 0}, "max_iter=0: expected a whole number from 1"),
        ({"learning_rate": "fast"}, "learning_rate='fast': expected one of auto, optimal"),
        ({"learning_rate": "constant", "eta0": 0.0}, "eta0=0.0: expected a finite number above 0"),
        ({"learning_rate": "optimal", "alpha": 0}, "divides by alpha"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0: expected a finite number above 0 and at most 0.999"),
        ({"tol": -1e-3}, "tol=-0.001: expected a finite number of at least 0"),
        ({"tol": np.inf}, "tol=inf: expected a finite number of at least 0"),
        ({"shuffle": np.array([1, 0])}, "expected True or False"),
        ({"shuffle": "no"}, "shuffle='no': expected True or False"),
        ({"host": "cluster"}, "host='cluster': expected one of threads, processes"),
        ({"loss": "log_loss", "learning_rate": "pa1"}, "learning_rate='pa1' goes with loss='hinge' only"),
    ],
)
def test_wrong_parameters_are_one_line(wrong: dict[str, Any], said: str, cancer: Any) -> None:
    assert said in line_of(UsageError, HogwildClassifier(**wrong).fit, *cancer)


def test_a_model_file_predicts_the_same(cancer: Any, tmp_path: Any) -> None:
    X, y = cancer
    model = HogwildClassifier("log_loss", random_state=0).fit(X, y)
    model.to_model().save(tmp_path / "m")
    loaded = hogwild.load(tmp_path / "m")
    assert np.allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-5)
    target = X[:, 0].astype(np.float64)
    real = HogwildRegressor(random_state=0).fit(X, target)
    assert np.allclose(real.to_model().predict(X), real.predict(X), atol=1e-4)
    for labels, said in (
        (np.where(y, "b", "m"), "needs classes that are numbers; got"),
        (2**60 + y, "some are equal in float64"),
    ):
        with pytest.raises(ValueError, match=said):
            HogwildClassifier(random_state=0).fit(X, labels).to_model()


@pytest.mark.parametrize("notebook", [False, True])
def test_the_bar_shows_epochs(
    notebook: bool, cancer: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook as in a terminal: rich's other bar would need ipywidgets."""
    monkeypatch.setattr(rich.get_console(), "is_jupyter", notebook)
    X, y = cancer
    quiet = HogwildClassifier(random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""
    loud = HogwildClassifier(random_state=0, verbose=1).fit(X, y)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    assert f"{loud.n_iter_}/{loud.n_iter_} epochs" in shown
    assert np.array_equal(quiet.coef_, loud.coef_)
    for loss, steps in (("log_loss", r"choosing alpha .* 1[0-9]/1[0-9] steps"), ("hinge", "100/100 steps")):
        HogwildClassifier(loss, alpha="auto", random_state=0, verbose=1).fit(X[:40], y[:40])
        assert re.search(steps, capsys.readouterr().out), steps


@pytest.mark.filterwarnings("always")
def test_a_class_without_weight_is_named() -> None:
    X, y = np.arange(24.0).reshape(12, 2) % 5, np.repeat(["a", "b", "c"], 4)
    with pytest.warns(
        HogwildWarning, match="all rows of a class have weight zero, so nothing is learned of it: b$"
    ) as w:
        found = HogwildClassifier(loss="log_loss", class_weight={"b": 0}, max_iter=5, tol=None).fit(X, y)
    assert w[0].filename == __file__
    assert found.classes_.tolist() == ["a", "b", "c"]


def test_weights_that_mean_nothing_are_refused(cancer: Any) -> None:
    X, y = cancer
    with pytest.raises(ValueError, match="row 3 has a negative weight"):
        HogwildClassifier().fit(X, y, sample_weight=np.where(np.arange(len(y)) == 3, -1.0, 1.0))
    with pytest.raises(ValueError, match="class_weight: -1 is negative"):
        HogwildClassifier(class_weight={0: -1, 1: 1}).fit(X, y)
    for weight in (np.nan, np.inf, 1e300):
        with pytest.raises(ValueError, match=f"the weight of row {np.argmin(y)} is not finite in float32"):
            HogwildClassifier(class_weight={0: weight}).fit(X, y)
    with pytest.raises(ValueError, match="all rows have weight zero"):
        HogwildClassifier().fit(X, y, sample_weight=np.full(len(y), 1e-60))
    with pytest.raises(ValueError, match="weights for (validation|training) set are all zero"):
        HogwildRegressor(early_stopping=True).fit(X, y, sample_weight=np.arange(len(y)) == 3)


def test_the_scale_of_the_weights_does_not_matter(cancer: Any) -> None:
    X, y = cancer
    plain = HogwildClassifier("log_loss", random_state=0).fit(X, y)
    for factor in (2.0**-10, 2.0**10):  # with them that of alpha, which the weights are held against
        model = HogwildClassifier("log_loss", alpha=1e-4 * factor, random_state=0)
        model.fit(X, y, sample_weight=np.full(len(y), factor))
        assert model.n_iter_ == plain.n_iter_
        assert np.allclose(model.coef_, plain.coef_, rtol=1e-3, atol=1e-4)


def test_weights_to_start_from_have_to_fit(iris: Any, cancer: Any) -> None:
    said = r"coef_init does not match dataset: shape \(4, 3\), where the data need \(3, 4\): keep"
    with pytest.raises(ValueError, match=said):
        HogwildClassifier(random_state=0).fit(*iris, coef_init=np.ones((4, 3)))
    one = HogwildClassifier(random_state=0).fit(*cancer, coef_init=np.ones(30), intercept_init=1.0)
    same = HogwildClassifier(random_state=0).fit(*cancer, coef_init=np.ones((1, 30)), intercept_init=[1.0])
    assert np.array_equal(one.coef_, same.coef_)


@pytest.mark.parametrize("rate", ["pa1", "pa2"])
@pytest.mark.parametrize("eta0", [0.03, 1.0, 50.0])
@pytest.mark.parametrize("sparse", [False, True])
def test_passive_aggressive_steps_are_those_of_scikit_learn(rate: str, eta0: float, sparse: bool, iris: Any) -> None:
    """Row by row in the same order, with and without weights, for two classes, three, and real targets."""
    X, y = iris
    options = {"learning_rate": rate, "eta0": eta0, "penalty": None, "shuffle": False, "max_iter": 3, "tol": None}
    options |= {"fit_intercept": False}
    weights = np.random.default_rng(0).random(len(y))
    given = scipy.sparse.csr_matrix(X) if sparse else X
    for targets in (y, y == 1):
        for sample_weight in (None, weights):
            ours = HogwildClassifier("hinge", **options).fit(given, targets, sample_weight=sample_weight)
            theirs = SGDClassifier("hinge", **options).fit(given, targets, sample_weight=sample_weight)
            assert np.allclose(ours.coef_, theirs.coef_, rtol=2e-3, atol=2e-3 * np.abs(theirs.coef_).max())
    real = X @ [1.0, -2.0, 0.5, 0.3] + 1
    ours = HogwildRegressor("epsilon_insensitive", epsilon=0.1, **options).fit(given, real)
    theirs = SGDRegressor("epsilon_insensitive", epsilon=0.1, **options).fit(given, real)
    assert np.allclose(ours.coef_, theirs.coef_, rtol=2e-3, atol=2e-3 * np.abs(theirs.coef_).max())


def test_probabilities_of_a_rare_class_are_as_rare() -> None:
    """Of columns that are scaled the rows agree on the intercept alone, and only that says how rare a class is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = X[:, 0] + 0.5 * rng.normal(size=len(X)) > 2
    best = LogisticRegression(C=1 / (1e-2 * len(X))).fit(X, y)
    model = HogwildClassifier("log_loss", alpha=1e-2, random_state=0).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.1)
    assert objective(model, X, y, "log", 1e-2) < 1.005 * objective(best, X, y, "log", 1e-2)
    hinge = HogwildClassifier(alpha=1e-2, random_state=0).fit(X, y)
    assert hinge.predict(X).any()


@pytest.mark.parametrize("scaling", [1e4, 1.0, 1e-3, 1e-6])
def test_without_a_penalty_neither_alpha_nor_the_scale_of_x_matter(scaling: float) -> None:
    rng = np.random.default_rng(0)
    X, w = scaling * rng.normal(size=(3000, 6)), rng.normal(size=6) / scaling
    y = X @ w > 0
    models = [HogwildClassifier("log_loss", penalty=None, alpha=a, random_state=0).fit(X, y) for a in (1e-4, 1e4)]
    assert models[0].score(X, y) > 0.93
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert HogwildRegressor(penalty=None, random_state=0).fit(X, X @ w).score(X, X @ w) > 0.99


@pytest.mark.parametrize("kind", ["values", "short", "long"])
def test_a_matrix_whose_arrays_do_not_fit_is_refused(kind: str, text: Any) -> None:
    X, y = text
    X = scipy.sparse.csr_matrix(X, copy=True)
    if kind == "values":
        X.data = X.data[:10].copy()
    else:
        X.indptr = X.indptr[:100].copy() if kind == "short" else np.append(X.indptr, [X.indptr[-1]] * 50)
    with pytest.raises(ValueError, match="X: its indptr"):
        rows_of(X, y.astype(np.float32), None)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_labels_of_two_kinds_are_one_line(method: str) -> None:
    model, X, more = HogwildClassifier(), np.eye(4), {} if method == "fit" else {"classes": [1, 2]}
    y = np.array([1, "a", 2, "b"], dtype=object)
    assert "needs labels of one type" in line_of(InputError, getattr(model, method), X, y, **more)
    with pytest.raises(InputError, match="no NaN"):
        model.partial_fit(X, [0, 1, 0, 1], classes=[0, 1, np.nan])


def test_a_fit_that_fails_leaves_the_model_of_the_last_one(cancer: Any) -> None:
    X, y = cancer
    model = HogwildClassifier(random_state=0).fit(X, y)
    expected = model.predict(X)
    model.set_params(learning_rate="constant", eta0=1e30)
    with pytest.raises(TrainingError, match=r"diverged in epoch .*eta0 below 1e\+30"):
        model.fit(X, y)
    assert np.array_equal(model.predict(X), expected)
    with pytest.raises(InputError, match="coef to start from is not finite"):
        HogwildClassifier().fit(X, y, coef_init=np.full((1, X.shape[1]), 1e39))


def test_more_workers_than_cores_are_told_so(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator_options, "RACE", 1)
    monkeypatch.setattr(estimator_options.machine, "physical_cores", lambda: 2)
    with pytest.warns(HogwildWarning, match="n_jobs=3: 3 workers share 2 cores") as caught:
        HogwildClassifier("log_loss", n_jobs=3, max_iter=2, tol=None).fit(*text)
    assert caught[0].filename == __file__
    with pytest.warns(HogwildWarning, match="n_jobs=3") as caught:
        HogwildClassifier("log_loss", n_jobs=3).partial_fit(*text, classes=[-1, 1])
    assert caught[0].filename == __file__


def test_steps_that_leap_at_first_may_come_back() -> None:
    """Those of 'optimal' begin large; only where they end tells whether they were too large."""
    X, y = [[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]], [1, 1, 1, 2, 2, 2]
    model = HogwildRegressor(alpha=0.01, learning_rate="optimal", shuffle=False, max_iter=100, tol=None).fit(X, y)
    assert max(model.loss_curve_) > 1e6 * model.loss_curve_[-1]
    assert model.score(X, y) > 0.9
    with pytest.raises(TrainingError, match="diverged"):
        model.set_params(max_iter=3).fit(X, y)


def test_weights_of_float64_rows_are_those_of_float32_rows(iris: Any) -> None:
    """``partial_fit`` changes weights in place and has them in float32."""
    X, y = iris[0].astype(np.float32), iris[1]
    narrow, wide = (HogwildClassifier(random_state=0).fit(X.astype(kind), y) for kind in (np.float32, np.float64))
    assert (narrow.coef_.dtype, wide.coef_.dtype, wide.intercept_.dtype) == (np.float32, np.float64, np.float64)
    assert np.array_equal(narrow.coef_, wide.coef_)
    assert wide.partial_fit(X.astype(np.float64), y).coef_.dtype == np.float32


def test_rows_held_out_do_not_move_where_it_begins() -> None:
    X, y = np.zeros((10, 1)), np.arange(10.0)
    model = HogwildRegressor(early_stopping=True, random_state=0, validation_fraction=0.2, tol=None, max_iter=1)
    held = next(ShuffleSplit(test_size=0.2, random_state=0).split(X))[1]
    other = y.copy()
    other[held] = 1e6
    assert model.fit(X, y).intercept_ == model.fit(X, other).intercept_
