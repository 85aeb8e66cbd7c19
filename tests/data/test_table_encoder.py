"""The transformer makes the rows of ``open_table``, goes into pipelines, and passes scikit-learn's checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import hogwild
from hogwild import HogwildClassifier, HogwildFMClassifier, HogwildTableEncoder
from hogwild.errors import InputError, UsageError


def frame(n: int = 400) -> pd.DataFrame:
    """The label is by the pair of device and site."""
    random = np.random.default_rng(0)
    device, site = random.integers(0, 4, (2, n))
    columns = {
        "device": device,
        "site": [f"s{k}" for k in site],
        "price": random.gamma(2, 3, n).round(2),
        "time": (1_700_000_000 + random.integers(0, 10**7, n)).astype("datetime64[s]"),
        "y": (device + site) % 2,
    }
    return pd.DataFrame(columns)


MADE: dict[str, Any] = {"categorical": "device", "cross": "device*site", "bucket": "price:5", "hash_bits": 12}


def test_it_makes_the_rows_of_open_table() -> None:
    table = frame()
    X = table.drop(columns="y")
    encoder = HogwildTableEncoder(**MADE)
    features = encoder.fit_transform(X, table["y"])
    rows = hogwild.open_table(table, "y", **MADE)
    assert (features != rows.to_scipy()[0]).nnz == 0
    np.testing.assert_array_equal(encoder.fields_, np.maximum(rows.fields, 0))
    assert list(encoder.feature_names_in_) == ["device", "site", "price", "time"]
    for same in (X, X[["time", "price", "device", "site"]], pl.from_pandas(X), pl.from_pandas(X).lazy(), pa.table(X)):
        again = pickle.loads(pickle.dumps(clone(encoder).fit(X))).transform(same)
        assert (again != features).nnz == 0
    assert encoder.transform(X[:0]).shape == (0, 4096)
    with pytest.raises(InputError, match="the table: no column site, which the model was trained with"):
        encoder.transform(X.drop(columns="site"))
    with pytest.raises(InputError, match="^DataFrame: cannot be made a table: Duplicate column names found: "):
        HogwildTableEncoder().fit(pd.concat([X, X], axis=1))
    with pytest.raises(UsageError, match="cross site: expected columns joined"):
        HogwildTableEncoder(cross="site").fit(X)


def test_it_goes_into_pipelines() -> None:
    table = frame()
    X, y = table.drop(columns="y"), table["y"]
    pipeline = make_pipeline(HogwildTableEncoder(**MADE), SGDClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"hogwildtableencoder__cross": [None, "device*site"]}, cv=2).fit(X, y)
    assert search.best_params_ == {"hogwildtableencoder__cross": "device*site"}
    assert search.best_score_ > 0.95


def test_an_estimator_that_gets_the_frame_itself_names_the_encoder() -> None:
    table = frame(20)
    numbers, y = table[["device", "price"]], table["y"]
    for estimator in (HogwildClassifier(), HogwildFMClassifier()):
        with pytest.raises(InputError, match="X: column time holds times, expected numbers: make_pipeline"):
            estimator.fit(table[["time", "price"]], y)
        for kind in (pd.DataFrame, pl.from_pandas, pa.table):
            with pytest.raises(InputError, match="X: column site holds text, expected numbers: make_pipeline"):
                estimator.fit(kind(table[["price", "site"]]), y)
            with pytest.raises(ValueError, match="Found input variables with inconsistent numbers of samples"):
                estimator.fit(kind(numbers), y[:9])
    fitted = HogwildClassifier().fit(pl.from_pandas(numbers), y)
    with pytest.raises(InputError, match="X: column device holds text, expected numbers"):
        fitted.predict(numbers.assign(device="a"))


def test_a_column_of_an_array_that_mixes_types_is_named() -> None:
    with pytest.raises(InputError, match="^X: column 1 needs values of one type: [^\n]+$"):
        HogwildTableEncoder().fit(np.array([["a", 1], ["b", "c"]], object))


@parametrize_with_checks([HogwildTableEncoder(hash_bits=8)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
