"""ONNX graphs: onnxruntime predicts the same, skl2onnx's own graphs are read, and strange ones refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hogwild.errors import InputError
from hogwild.interchange import export_model, import_model
from hogwild.problems.linear.model import LinearModel
from tests.interchange.models import KINDS, WIDTH, made, rows, size

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
INPUT = [("X", skl2onnx.common.data_types.FloatTensorType([None, WIDTH]))]


def run(path: Path, X: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})


@pytest.mark.parametrize(("loss", "classes"), KINDS)
@pytest.mark.parametrize("normalize", ["none", "l2"])
def test_onnxruntime_predicts_the_same(loss: str, classes: int, normalize: str, tmp_path: Path) -> None:
    model, X, path = made(loss, classes, normalize), rows(), tmp_path / "file.onnx"
    notes = export_model(model, path, "onnx")
    found, scale = run(path, X.toarray()), size(model, X)
    expected = model.decision_function(X)
    if classes == 1:
        error = np.abs(found[0].ravel() - model.predict(X))
        assert (error < 1e-6 * scale * (1 + np.abs(model.predict(X)) * (loss == "poisson"))).all()
        return
    np.testing.assert_array_equal(found[0], model.predict(X))
    if loss in ("log", "softmax"):
        assert (np.abs(found[1] - model.predict_proba(X)).max(axis=1) < 1e-6 * scale).all()
    else:
        expected = np.column_stack((-expected, expected)) if classes == 2 else expected
        assert (np.abs(found[1] - expected).max(axis=1) < 1e-6 * scale).all()
    assert (len(notes) == 2) == (loss == "modified-huber")


def test_probabilities_of_classes_that_are_all_unlikely(tmp_path: Path) -> None:
    path, model = tmp_path / "file.onnx", made("log", 3)
    model = type(model)(model.coef_, [-40.0, -41.0, -90.0], "log", labels=model.labels)
    export_model(model, path, "onnx")
    X = np.zeros((1, WIDTH), np.float32)
    np.testing.assert_allclose(run(path, X)[1], model.predict_proba(X), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["LogisticRegression", "RidgeClassifier", "LinearRegression", "LinearSVC"])
@pytest.mark.parametrize("scaled", [False, True])
def test_graphs_of_skl2onnx_are_read(name: str, scaled: bool, tmp_path: Path) -> None:
    from sklearn import linear_model, svm
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    if scaled and name == "LinearSVC":
        pytest.skip("skl2onnx does not convert it behind another step")
    X, path = rows(), tmp_path / "file.onnx"
    last = getattr(linear_model, name, None) or getattr(svm, name)
    for classes in (2, 3):
        estimator = make_pipeline(Normalizer(), last()) if scaled else last()
        estimator.fit(X, made("hinge", classes).predict(X))
        path.write_bytes(skl2onnx.to_onnx(estimator, initial_types=INPUT).SerializeToString())
        model = import_model(path, "onnx")
        assert model.normalize == ("l2" if scaled else "none")
        np.testing.assert_allclose(model.predict(X), estimator.predict(X), rtol=1e-5, atol=1e-5)
        if name == "LogisticRegression":
            np.testing.assert_allclose(model.predict_proba(X), estimator.predict_proba(X), rtol=0, atol=1e-6)


# -- files ------------------------------------------------------------------------------------------------------------


def graph(*nodes: Any, labels: list[int] | None = None) -> bytes:
    """A graph of nodes, each ``(type, inputs, outputs, attributes)``; not checked."""
    made = [onnx.helper.make_node(kind, inputs, outputs, **given) for kind, inputs, outputs, given in nodes]
    return onnx.helper.make_model(onnx.helper.make_graph(made, "g", [], [])).SerializeToString()


def classifier(**given: Any) -> tuple[str, list[str], list[str], dict[str, Any]]:
    attributes = {"coefficients": [-1.0, 1.0], "intercepts": [0.0, 0.0], "classlabels_ints": [3, 4]} | given
    return "LinearClassifier", ["X"], ["label", "scores"], {name: v for name, v in attributes.items() if v is not None}


def regressor(**given: Any) -> tuple[str, list[str], list[str], dict[str, Any]]:
    return "LinearRegressor", ["X"], ["y"], {"coefficients": [1.0, 2.0]} | given


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "a graph of nothing: expected one of LinearClassifier or LinearRegressor"),
        ([("MatMul", ["X", "w"], ["y"], {})], "a graph of MatMul: expected one of"),
        ([classifier(), regressor()], "a graph of LinearClassifier, LinearRegressor: expected one of"),
        ([("Scaler", ["A"], ["X"], {}), classifier()], "Scaler before LinearClassifier: expected at most a"),
        ([classifier(), ("Mul", ["scores", "w"], ["s"], {})], "Mul with LinearClassifier: expected it alone"),
        ([("Normalizer", ["A"], ["X"], {"norm": "MAX"}), classifier()], "Normalizer MAX before LinearClassifier"),
        ([("Normalizer", ["X"], ["X"], {"norm": "L2"}), classifier()], "Normalizer L2 before|a graph that goes round"),
        ([("Identity", ["X"], ["X"], {}), classifier()], "a graph that goes round"),
        ([classifier(coefficients=[1.0, 2.0, 3.0])], "3 coefficients for 2 margins"),
        ([classifier(coefficients=None)], "0 coefficients for 2 margins"),
        ([classifier(coefficients=[1.0, float("nan")])], "weight of feature 1 is not a finite float32"),
        ([classifier(intercepts=[1.0, 2.0, 3.0])], "3 intercepts for 2 margins"),
        ([classifier(classlabels_ints=[3, 3])], "label 3 stands for more than one class"),
        ([classifier(classlabels_ints=None)], "LinearClassifier of 0 labels: expected two or more"),
        ([classifier(classlabels_ints=None, classlabels_strings=["a", "b"])], "labels are text: hogwild's are numbers"),
        ([classifier(coefficients=[1.0, 1.0], post_transform="LOGISTIC")], "two logistic functions for two classes"),
        ([classifier(coefficients="text")], "not a usable ONNX graph: ValueError"),
        ([regressor(targets=2)], "LinearRegressor with several targets or a transform"),
        ([regressor(post_transform="PROBIT")], "LinearRegressor with several targets or a transform"),
        ([regressor(coefficients=[float("inf")])], "weight of feature 1 is not a finite float32"),
    ],
)
def test_strange_graphs_are_one_line(nodes: list[Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.onnx"
    path.write_bytes(graph(*nodes))
    with pytest.raises(InputError, match=message) as caught:
        import_model(path, "onnx")
    assert str(caught.value).startswith(f"{path}: ")


def test_margins_of_two_classes(tmp_path: Path) -> None:
    path = tmp_path / "file.onnx"
    for given, coef, loss in (
        ({}, 1.0, "hinge"),
        ({"post_transform": "LOGISTIC"}, 1.0, "log"),
        ({"post_transform": "SOFTMAX"}, 2.0, "log"),  # exp(w) / (exp(w) + exp(-w))
        ({"coefficients": [1.0, 4.0], "post_transform": "SOFTMAX"}, 3.0, "log"),
        ({"coefficients": [5.0], "intercepts": [0.5], "post_transform": "LOGISTIC"}, 5.0, "log"),
    ):
        path.write_bytes(graph(classifier(**given)))
        model = import_model(path, "onnx")
        assert (model.coef_.tolist(), model.loss, model.labels) == ([[coef]], loss, [3.0, 4.0])


def test_other_files_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "file.onnx"
    outside = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    tensor = outside.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    tensor.external_data.add(key="location", value="/dev/zero")
    path.write_bytes(outside.SerializeToString())
    with pytest.raises(InputError, match="a graph of nothing"):
        import_model(path, "onnx")


def test_a_model_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no features, which an ONNX graph has to have"):
        export_model(LinearModel(np.zeros((1, 0)), [1.0], "log", 0.0, [0, 1]), tmp_path / "file", "onnx")
