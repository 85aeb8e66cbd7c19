"""LinearModel: margins and labels, every kind of X, and what it refuses.

That values and probabilities are scikit-learn's is in ``test_interchange.py``.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from hogwild.data.rows import container
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.problems.linear import model as model_module
from hogwild.problems.linear.model import LinearModel

WIDTH = 8


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(container.chunks, "__defaults__", (30,))
    monkeypatch.setattr(model_module, "CHUNK_NONZEROS", 30)


@pytest.fixture
def dense():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50, WIDTH)) * (rng.random((50, WIDTH)) < 0.5)).astype(np.float32)
    X[[0, 20]] = 0
    return X


def build(loss="log", classes=2, seed=1, **more):
    rng = np.random.default_rng(seed)
    rows = classes if classes > 2 else 1
    labels = {0: [], 2: [7.0, -2.0], 3: [3.0, -1.0, 0.5]}[classes]
    coef = rng.normal(size=(rows, WIDTH)).astype(np.float32)
    return LinearModel(coef, rng.normal(size=rows).astype(np.float32), loss, labels=labels, **more)


def exact(model, X):
    margins = X.astype(np.float64) @ model.coef_.T.astype(np.float64) + model.intercept_.astype(np.float64)
    return margins[:, 0] if len(model.coef_) == 1 else margins


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_decision_of_every_kind_of_x(dense, classes):
    model = build("squared-error" if classes == 0 else "log", classes)
    expected = exact(model, dense)
    kinds = [
        dense,
        dense.astype(np.float64),
        dense.tolist(),
        np.asfortranarray(dense),
        scipy.sparse.csr_matrix(dense),
        scipy.sparse.csc_array(dense),
        scipy.sparse.coo_array(dense),
        scipy.sparse.csr_array(dense).astype(np.float64),
        Rows.from_scipy(dense, np.zeros(50)),
    ]
    for X in kinds:
        found = model.decision_function(X)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    picked = Rows.from_scipy(dense, np.zeros(50)).select([4, 2, 44])
    np.testing.assert_allclose(model.decision_function(picked), expected[[4, 2, 44]], rtol=1e-12, atol=1e-13)
    assert np.array_equal(model.decision_function(dense, threads=1), model.decision_function(dense, threads=3))


def test_predicts_the_users_labels(dense):
    model = build()
    assert model.predict(dense).tolist() == np.where(exact(model, dense) > 0, -2.0, 7.0).tolist()
    model = build(classes=3)
    expected = np.array([3.0, -1.0, 0.5])[exact(model, dense).argmax(axis=1)]
    assert model.predict(dense).tolist() == expected.tolist()


def test_counts_beyond_float64_are_infinite():
    huge = LinearModel(np.full((1, WIDTH), 1e30, np.float32), [0.0], "poisson")
    assert np.isinf(huge.predict(np.ones((1, WIDTH)))).all()


@pytest.mark.parametrize("loss", ["log", "modified-huber", "softmax"])
@pytest.mark.parametrize("margins", [1, 3])
@pytest.mark.parametrize("size", [1e30, -45.0])
def test_probabilities_of_large_margins(loss, margins, size):
    labels = list(range(max(margins, 2)))
    model = LinearModel(np.full((margins, 1), size, np.float32), np.zeros(margins), loss, labels=labels)
    found = model.predict_proba(np.ones((1, 1)))
    assert np.isfinite(found).all()
    assert found.sum() == pytest.approx(1.0)
    if loss == "log" and margins == 1 and size == -45:
        assert found.min() == pytest.approx(np.exp(-45), rel=1e-9)  # one minus the other would be zero


def test_losses_without_probabilities():
    with pytest.raises(UsageError, match="loss hinge has no probabilities: train with log, modified-huber, softmax"):
        build("hinge").predict_proba(np.ones((1, WIDTH)))


def test_normalisation_is_the_models(dense):
    model = build(normalize="l2")
    lengths = np.linalg.norm(dense, axis=1)
    lengths[lengths == 0] = 1
    np.testing.assert_allclose(
        model.decision_function(dense), exact(model, dense / lengths[:, None]), rtol=1e-5, atol=1e-6
    )
    scaled = model.decision_function(dense * np.float32(64))
    np.testing.assert_allclose(scaled, model.decision_function(dense), rtol=1e-6, atol=1e-6)


def test_wider_x_is_counted_and_ignored(dense):
    model = build(normalize="l2")
    wide = np.hstack((dense, np.zeros((50, 3), np.float32)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.decision_function(wide[:, :9])  # a wider matrix alone is no reason to warn
    wide[3, 9], wide[7, 8:] = 1.0, 2.0
    for X in (wide, scipy.sparse.csr_array(wide), Rows.from_scipy(wide, np.zeros(50))):
        with pytest.warns(HogwildWarning, match="^4 values of features beyond the model's 8 were ignored$") as caught:
            found = model.decision_function(X)
        assert caught[0].filename == __file__
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_narrower_x_and_no_rows(dense):
    model = build()
    padded = dense.copy()
    padded[:, 5:] = 0
    np.testing.assert_allclose(model.decision_function(dense[:, :5]), exact(model, padded), rtol=1e-12, atol=1e-13)
    assert model.predict(dense[:0]).shape == (0,)
    assert build(classes=3).predict_proba(scipy.sparse.csr_array((0, WIDTH))).shape == (0, 3)
    assert build(classes=3).predict(np.zeros((4, 0))).shape == (4,)


@pytest.mark.parametrize(
    "X",
    [np.ones(WIDTH), np.array([["a"]]), np.ones((1, WIDTH)) * 1j, scipy.sparse.coo_array([1.0])],
)
def test_x_that_is_no_table_of_numbers(X):
    with pytest.raises(InputError, match="two dimensions"):
        build().predict(X)


@pytest.mark.parametrize("bad", [np.nan, 1e39])
@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array])
def test_x_that_is_not_finite(bad, wrap):
    X = np.ones((2, WIDTH))
    X[1, 2] = bad
    with pytest.raises(InputError, match="finite"):
        build().predict(wrap(X))


def test_is_immutable_and_a_copy():
    shared = np.zeros(WIDTH, np.float32)
    model = LinearModel(shared, 0.0, "log", labels=[0, 1])
    shared[:] = 1
    assert not model.coef_.any()
    assert (model.coef_.shape, model.intercept_.shape, model.width) == ((1, WIDTH), (1,), WIDTH)
    with pytest.raises(ValueError, match="read-only"):
        model.coef_[0] = 1
    with pytest.raises(AttributeError):
        model.loss = "hinge"


@pytest.mark.parametrize(
    ("coef", "intercept", "labels", "more", "message"),
    [
        (np.ones((2, 4)), np.ones(1), [1, 2], {}, "does not go with intercept"),
        (np.ones((2, 4)), np.ones(2), [1, 2, 3], {}, "2 rows for 3 labels"),
        (np.ones((1, 4)), np.ones(1), [1], {}, "two or more"),
        (np.ones((1, 4)), np.ones(1), [1, 2], {"normalize": "l1"}, "none, l2"),
    ],
)
def test_parts_that_do_not_fit(coef, intercept, labels, more, message):
    with pytest.raises(InputError, match=message):
        LinearModel(coef, intercept, "log", labels=labels, **more)
