"""Models as NumPy's arrays, scikit-learn's estimators and ONNX graphs: they predict the same."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hogwild.errors import HogwildError, InputError, UsageError
from hogwild.estimators import HogwildClassifier
from hogwild.interchange import export_model
from hogwild.methods import LABEL_LOSSES, LOSSES
from hogwild.problems.completion.model import CompletionModel
from hogwild.problems.linear.model import LinearModel
from hogwild.serving.scorer import PROBABILITIES

WIDTH = 30
LABELS = {1: [], 2: [-1.0, 1.0], 3: [2.0, 5.0, 9.0], 5: [0.0, 1.0, 2.0, 3.0, 4.0]}
#: Each loss with each number of classes it can have (1: real targets), and classifiers by a loss of real targets.
KINDS = [(loss, classes) for loss in LOSSES for classes in ((2, 3, 5) if loss in LABEL_LOSSES else (1,))]
KINDS += [("squared-error", 2), ("huber", 3)]


def made(loss: str, classes: int, normalize: str = "none", shift: float = 0.0) -> LinearModel:
    rng = np.random.default_rng(1)
    rows = 1 if classes == 2 else classes
    coef, intercept = rng.standard_normal((rows, WIDTH)), rng.standard_normal(rows) + shift
    coef[:, 3] = 0.0
    param = 0.25 if loss in ("huber", "epsilon-insensitive") else 0.0
    return LinearModel(coef, intercept, loss, param, LABELS.get(classes, [*range(classes)]), normalize)


def rows(count: int = 100) -> scipy.sparse.csr_matrix:
    """Sparse rows of both signs in float32, the first one empty."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, WIDTH)) * (rng.random((count, WIDTH)) < 0.3)
    X[0] = 0.0
    return scipy.sparse.csr_matrix(X.astype(np.float32))


@pytest.mark.parametrize(("loss", "classes"), KINDS)
def test_an_estimator_predicts_the_same(loss: str, classes: int) -> None:
    for normalize in ("none", "l2") if (loss, classes) in (("log", 3), ("huber", 1)) else ("none",):
        model, X = made(loss, classes, normalize), rows()
        estimator = model.to_sklearn()
        assert estimator.n_features_in_ == WIDTH
        for given in (X.astype(np.float64), X.toarray().astype(np.float64)):
            if classes == 1:
                np.testing.assert_allclose(estimator.predict(given), model.predict(X), rtol=1e-6, atol=1e-6)
                continue
            margins = model.decision_function(X)
            np.testing.assert_allclose(estimator.decision_function(given), margins, rtol=1e-6, atol=1e-6)
            np.testing.assert_array_equal(estimator.predict(given), model.predict(X))
            if loss in PROBABILITIES:
                likely = model.predict_proba(X)
                np.testing.assert_allclose(estimator.predict_proba(given), likely, rtol=0, atol=1e-6)


def test_two_margins_of_two_classes_become_their_difference() -> None:
    model = LinearModel([[1.0, 2.0], [3.0, -1.0]], [0.0, 1.0], "softmax", labels=[0, 1])
    X = np.array([[1.0, 2.0], [-3.0, 0.5]])
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.predict_proba(X), rtol=1e-6)
    with pytest.raises(InputError, match="two classes of a margin each, and loss log: take npz"):
        LinearModel(model.coef_, model.intercept_, "log", labels=[0, 1]).to_sklearn()


def test_an_estimator_goes_on_learning() -> None:
    model, X = made("log", 3), rows()
    estimator = model.to_sklearn()
    assert estimator.classes_.dtype == np.int64
    estimator.partial_fit(X.astype(float), model.predict(X))
    assert (estimator.predict(X) == model.predict(X)).mean() > 0.5


# ---- files


def test_an_npz_has_the_arrays_and_says_what_it_is(tmp_path: Path) -> None:
    history = [{"epoch": 1}, {"epoch": 2, "objective": float("nan")}]
    linear = LinearModel(np.ones((1, 8)), [0.5], "log", 0.0, [3, 4], "l2", config={"l2": 0.1}, history=history)
    ratings = CompletionModel(np.ones((3, 2)), np.ones((2, 2)), np.zeros(3), np.ones(2), 3.5)
    fit = HogwildClassifier().fit(rows(), made("hinge", 3).predict(rows()))
    headers = []
    for given, model in ((fit, fit.to_model()), (ratings, ratings), (linear, linear)):
        export_model(given, tmp_path / "file.npz", "npz")
        arrays, facts = model.to_file()
        with np.load(tmp_path / "file.npz") as file:  # allow_pickle is off
            headers.append(json.loads(str(file["hogwild"])))
            assert {*file} == {*arrays, "hogwild"}
            for name, array in arrays.items():
                np.testing.assert_array_equal(file[name], array)
        assert (headers[-1]["problem"], headers[-1]["config"]) == (facts["problem"], facts["config"])
    assert (headers[-1]["labels"], headers[-1]["history"]) == ([3.0, 4.0], [{"epoch": 2, "objective": None}])


def run_onnx(path: Path, X: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [output.name for output in session.get_outputs()], session.run(None, {"X": X})


@pytest.fixture
def onnx_path(tmp_path: Path) -> Path:
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    return tmp_path / "file.onnx"


@pytest.mark.parametrize(("loss", "classes"), KINDS)
@pytest.mark.parametrize("normalize", ["none", "l2"])
def test_onnxruntime_predicts_the_same(loss: str, classes: int, normalize: str, onnx_path: Path) -> None:
    model, X = made(loss, classes, normalize), rows()
    export_model(model, onnx_path, "onnx")
    names, outputs = run_onnx(onnx_path, X.toarray())
    if classes == 1:
        assert names == ["prediction"]
        np.testing.assert_allclose(outputs[0].ravel(), model.predict(X), rtol=1e-4, atol=1e-5)
        return
    np.testing.assert_array_equal(outputs[0], model.predict(X))
    if loss in ("log", "softmax"):
        assert names == ["label", "probabilities"]
        np.testing.assert_allclose(outputs[1], model.predict_proba(X), rtol=0, atol=1e-5)
    else:
        assert names == ["label", "scores"]
        margins = model.decision_function(X)
        margins = np.column_stack((-margins, margins)) if classes == 2 else margins
        np.testing.assert_allclose(outputs[1], margins, rtol=0, atol=1e-4)


@pytest.mark.parametrize("loss", ["log", "softmax"])
@pytest.mark.parametrize("shift", [0.0, -20.0, -80.0])
def test_labels_and_probabilities_of_many_unlikely_classes(loss: str, shift: float, onnx_path: Path) -> None:
    """skl2onnx's own form fails here: it takes the label from probabilities that are equal in float32, or all zero."""
    model, X = made(loss, 20, shift=shift), rows()
    export_model(model, onnx_path, "onnx")
    label, probabilities = run_onnx(onnx_path, X.toarray())[1]
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            LinearModel(np.ones(8), [0.5], "log", 0.0, [0, 1], hash_bits=3),
            InputError,
            r"hashed to 2\^3, which only python and npz can hold",
        ),
        (LinearModel([1.0, np.nan], [0.0], "log", labels=[0, 1]), InputError, "not all finite: the training diverged"),
        (LinearModel(np.ones(3), [0.0], "log", labels=[0.5, 1]), InputError, "needs labels that are whole numbers"),
        (CompletionModel(*[np.ones((2, 2))] * 2, *[np.ones(2)] * 2), UsageError, "linear model; got CompletionModel"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(model: Any, error: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        export_model(model, tmp_path / "file", "onnx")
    assert not os.listdir(tmp_path)


def test_a_wrong_format_and_a_package_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--to onxn: expected one of npz, python, onnx: did you mean onnx\?"):
        export_model(made("log", 2), tmp_path / "file", "onxn")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(HogwildError, match=r"onnx needs the package onnx: pip install 'hogwild\[export\]'") as caught:
        export_model(made("log", 2), tmp_path / "file", "onnx")
    assert caught.value.exit_status == 1
