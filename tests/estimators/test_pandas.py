"""DataFrames in place of arrays: names of columns, sparse columns, and labels of every kind that pandas has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import SGDClassifier

from hogwild import HogwildClassifier, HogwildRegressor

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


@pytest.mark.parametrize("dtype", ["float32", "Float64", "Int8"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_values_count_and_indices_of_rows_do_not(kind: Any, dtype: str, frame: pd.DataFrame, right: pd.Series) -> None:
    X = frame.round().astype(dtype)
    plain = X.to_numpy(dtype=np.float64)
    weights = pd.Series(np.linspace(0.5, 2, len(X)))  # its index is another than that of X
    model = kind(random_state=0).fit(X, right.reset_index(drop=True), sample_weight=weights)
    twin = kind(random_state=0).fit(plain, right.to_numpy(), sample_weight=weights.to_numpy())
    assert np.array_equal(model.coef_, twin.coef_)
    assert np.allclose(model.predict(X), twin.predict(plain), rtol=1e-4, atol=1e-4)


LABELS: dict[str, Callable[[pd.Series], Any]] = {
    "bool": lambda right: right,
    "boolean": lambda right: right.astype("boolean"),
    "Int64": lambda right: right.astype("Int64"),
    "objects": lambda right: right.map({True: "yes", False: "no"}).astype(object),
    "text": lambda right: right.map({True: "yes", False: "no"}).astype("string"),
    "categories": lambda right: right.map({True: "yes", False: "no"}).astype("category"),
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


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
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
