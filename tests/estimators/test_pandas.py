"""DataFrames in place of arrays: names of columns, sparse columns, and labels of every kind that pandas has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from hogwild import HogwildClassifier, HogwildFactorizer, HogwildRegressor

TWINS = [(HogwildClassifier, SGDClassifier), (HogwildRegressor, SGDRegressor)]
ESTIMATORS = [HogwildClassifier, HogwildRegressor]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(random.normal(size=(300, 4)), columns=list("abcd"), index=np.arange(300)[::-1])


@pytest.fixture(scope="module")
def right(frame: pd.DataFrame) -> pd.Series:
    return frame["a"] > frame["b"]


def fitted(kind: Any, X: Any, y: Any, batch: bool = False) -> Any:
    model = kind(random_state=0)
    if not batch:
        return model.fit(X, y)
    return model.partial_fit(X, y, **({"classes": np.unique(y)} if "Classifier" in kind.__name__ else {}))


def said(action: Callable[[], Any]) -> list[tuple[type, str]]:
    """Warnings, and the error if there is one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            action()
        except ValueError as error:
            return [(type(error), str(error))]
    return [(warning.category, str(warning.message)) for warning in caught]


OTHERS = {
    "no names": lambda X: X.to_numpy(),
    "another order": lambda X: X[list("dcba")],
    "a column more": lambda X: X.assign(e=0.0),
    "another name": lambda X: X.rename(columns={"a": "z"}),
    "numbers for names": lambda X: X.set_axis(range(4), axis=1),
    "the same": lambda X: X.copy(),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("batch", [False, True], ids=["fit", "partial_fit"])
@pytest.mark.parametrize(("ours", "theirs"), TWINS)
def test_names_are_checked_as_scikit_learn_does(
    ours: Any, theirs: Any, batch: bool, other: str, frame: pd.DataFrame, right: pd.Series
) -> None:
    first, second = fitted(ours, frame, right, batch), fitted(theirs, frame, right, batch)
    assert list(first.feature_names_in_) == list("abcd")
    X = OTHERS[other](frame)
    expected = [(kind, text.replace(theirs.__name__, ours.__name__)) for kind, text in said(lambda: second.predict(X))]
    assert bool(expected) == (other != "the same")
    assert said(lambda: first.predict(X)) == expected
    before = first.coef_.copy()
    assert said(lambda: first.partial_fit(X, right)) == expected
    refused = any(issubclass(kind, ValueError) for kind, _ in expected)
    assert np.array_equal(first.coef_, before) == refused
    assert list(first.feature_names_in_) == list("abcd")


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_names_belong_to_the_last_fit(kind: Any, frame: pd.DataFrame, right: pd.Series) -> None:
    model = fitted(kind, frame, right)
    assert list(model.fit(frame.rename(columns={"a": "z"}), right).feature_names_in_) == list("zbcd")
    assert not hasattr(model.fit(frame.to_numpy(), right), "feature_names_in_")
    assert "has feature names, but" in said(lambda: model.predict(frame))[0][1]


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "Int8"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_values_count_and_indices_of_rows_do_not(kind: Any, dtype: str, frame: pd.DataFrame, right: pd.Series) -> None:
    X = frame.round().astype(dtype)
    plain = X.to_numpy(dtype=np.float64)
    weights = pd.Series(np.linspace(0.5, 2, len(X)))  # its index is another than that of X
    model = kind(random_state=0).fit(X, right.reset_index(drop=True), sample_weight=weights)
    twin = kind(random_state=0).fit(plain, right.to_numpy(), sample_weight=weights.to_numpy())
    assert np.array_equal(model.coef_, twin.coef_)
    assert np.allclose(model.predict(X), twin.predict(plain), rtol=1e-4, atol=1e-4)


def test_columns_of_several_types(frame: pd.DataFrame, right: pd.Series) -> None:
    X = frame.assign(flag=right, count=np.arange(len(frame)) % 3, small=frame["a"].astype("float32"))
    model = HogwildClassifier(random_state=0).fit(X, right)
    assert np.array_equal(model.coef_, HogwildClassifier(random_state=0).fit(X.to_numpy(float), right).coef_)
    with pytest.raises(ValueError, match="could not convert string to float: 'x'"):
        model.fit(X.assign(text="x"), right)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(X.mask(X > 2), right)


LABELS: dict[str, Callable[[pd.Series], Any]] = {
    "bool": lambda right: right,
    "boolean": lambda right: right.astype("boolean"),
    "int8": lambda right: right.astype("int8"),
    "Int64": lambda right: right.astype("Int64"),
    "float": lambda right: right.astype(float) * 2 - 1,
    "objects": lambda right: right.map({True: "yes", False: "no"}).astype(object),
    "text": lambda right: right.map({True: "yes", False: "no"}).astype("string"),
    "categories": lambda right: right.map({True: "yes", False: "no"}).astype("category"),
    "categories of which one does not occur": lambda right: pd.Series(
        pd.Categorical(right.map({True: "yes", False: "no"}), ["yes", "perhaps", "no"], ordered=True)
    ),
    "categories of numbers": lambda right: right.astype(int).astype("category"),
    "an index": lambda right: pd.Index(right.map({True: "yes", False: "no"})),
    "dates": lambda right: right.map({True: pd.Timestamp("2020-02-29"), False: pd.Timestamp("2019-12-31")}),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("batch", [False, True], ids=["fit", "partial_fit"])
def test_labels_of_every_kind(batch: bool, labels: str, frame: pd.DataFrame, right: pd.Series) -> None:
    y = LABELS[labels](right)
    model, twin = (fitted(kind, frame, y, batch) for kind in (HogwildClassifier, SGDClassifier))
    assert model.classes_.tolist() == twin.classes_.tolist()
    assert model.predict(frame).tolist() == [model.classes_[int(z > 0)] for z in model.decision_function(frame)]
    assert model.score(frame, y) > 0.9


def test_labels_that_are_missing_are_refused(frame: pd.DataFrame, right: pd.Series) -> None:
    for missing in (right.astype("Int64").where(frame["c"] > 0), right.map({True: "yes", False: None})):
        with pytest.raises(ValueError, match="contains NaN"):
            HogwildClassifier().fit(frame, missing)


def test_real_targets_of_pandas(frame: pd.DataFrame) -> None:
    y = 2 * frame["a"] + 100
    plain = HogwildRegressor(random_state=0).fit(frame, y.to_numpy())
    for target in (y, y.astype("Float64"), y.reset_index(drop=True)):
        assert np.array_equal(HogwildRegressor(random_state=0).fit(frame, target).coef_, plain.coef_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("batch", [False, True], ids=["fit", "partial_fit"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_sparse_columns_stay_sparse(kind: Any, batch: bool, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = scipy.sparse.random_array((200, 50), density=0.1, rng=np.random.default_rng(0), format="csr") * 5
    plain = plain.astype(dtype)
    X = pd.DataFrame.sparse.from_spmatrix(plain).rename(columns="column {}".format)
    y = pd.Series(np.arange(200) % 2)
    monkeypatch.setattr(pd.DataFrame, "__array__", lambda *args, **more: pytest.fail("made dense"))
    model, twin = fitted(kind, X, y, batch), fitted(kind, plain, y, batch)
    assert np.array_equal(model.coef_, twin.coef_)
    assert np.allclose(model.predict(X), twin.predict(plain), rtol=1e-4, atol=1e-4)
    assert model.feature_names_in_[7] == "column 7"


@pytest.fixture(scope="module")
def people() -> tuple[pd.DataFrame, pd.Series]:
    """Two numbers and two categories of 500 people, and what they do, which the first of each tells."""
    random = np.random.default_rng(1)
    city, trade = random.choice(["Oslo", "Rome", "Kyiv"], 500), random.choice(["baker", "smith"], 500)
    X = pd.DataFrame({"age": random.normal(40, 9, 500), "city": city, "trade": trade, "size": random.normal(size=500)})
    return X, pd.Series(np.where((X["age"] > 40) ^ (city == "Rome"), "votes", "stays"), name="does")


@pytest.mark.parametrize("sparse", [False, True])
def test_column_transformers_and_pipelines(sparse: bool, people: Any) -> None:
    X, y = people
    columns = make_column_transformer(
        (StandardScaler(), ["age", "size"]),
        (OneHotEncoder(sparse_output=sparse), ["city", "trade"]),
        sparse_threshold=1.0,
    )
    ours, theirs = (make_pipeline(clone(columns), kind(random_state=0)) for kind in (HogwildClassifier, SGDClassifier))
    for model in (ours, theirs):
        if not sparse:
            model.set_output(transform="pandas")
        model.fit(X, y)
    assert ours.score(X, y) > theirs.score(X, y) - 0.005
    assert list(ours.feature_names_in_) == list(X)
    assert ours.predict(X[["size", "trade", "city", "age"]]).tolist() == ours.predict(X).tolist()  # found by name
    if not sparse:
        assert list(ours[-1].feature_names_in_) == list(ours[:-1].get_feature_names_out())
        assert "onehotencoder__city_Rome" in ours[-1].feature_names_in_
    search = GridSearchCV(ours, {"hogwildclassifier__alpha": [1e-4, 1e-1]}, cv=3).fit(X, y)
    assert search.best_params_ == {"hogwildclassifier__alpha": 1e-4}
    assert set(search.predict(X.tail(9))) <= {"votes", "stays"}


def test_the_names_of_columns_that_are_chosen(frame: pd.DataFrame, right: pd.Series) -> None:
    choice = SelectFromModel(HogwildClassifier(penalty="l1", alpha=0.05, random_state=0)).set_output(transform="pandas")
    chosen = choice.fit_transform(frame, right)
    assert list(chosen) == list(choice.get_feature_names_out()) == ["a", "b"]
    assert chosen.index.equals(frame.index)


def test_factors_as_a_frame() -> None:
    ratings = scipy.sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0), format="csr")
    model = HogwildFactorizer(2, max_iter=2, random_state=0).set_output(transform="pandas")
    factors = model.fit_transform(ratings)
    assert isinstance(factors, pd.DataFrame)
    assert list(factors) == list(model.get_feature_names_out()) == ["hogwildfactorizer0", "hogwildfactorizer1"]
    assert factors.shape == (30, 2)
