"""Linear models as scikit-learn's estimators and ONNX graphs: they predict the same, and no code of a file is run."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn import linear_model, svm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from hogwild.errors import InputError, UsageError
from hogwild.estimators import HogwildClassifier
from hogwild.interchange import export_model, import_model
from hogwild.methods import LABEL_LOSSES, LOSSES
from hogwild.problems.linear.model import PROBABILITIES, LinearModel

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
@pytest.mark.parametrize("normalize", ["none", "l2", "max"])
def test_an_estimator_predicts_the_same_and_comes_back(loss: str, classes: int, normalize: str) -> None:
    model, X = made(loss, classes, normalize), rows()
    estimator = model.to_sklearn()
    back = LinearModel.from_sklearn(estimator)
    assert (back.labels, back.normalize) == (model.labels, normalize)
    np.testing.assert_array_equal(back.coef_, model.coef_)
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    for given in (X.astype(np.float64), X.toarray().astype(np.float64)):
        if classes == 1:
            np.testing.assert_allclose(estimator.predict(given), model.predict(X), rtol=1e-6, atol=1e-6)
            continue
        margins = model.decision_function(X)
        np.testing.assert_allclose(estimator.decision_function(given), margins, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(estimator.predict(given), model.predict(X))
        if loss in PROBABILITIES:
            np.testing.assert_allclose(estimator.predict_proba(given), model.predict_proba(X), rtol=0, atol=1e-6)
            np.testing.assert_allclose(back.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-6)


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
    assert estimator.n_features_in_ == WIDTH
    estimator.partial_fit(X.astype(float), model.predict(X))
    assert (estimator.predict(X) == model.predict(X)).mean() > 0.5


CLASSIFIERS = [
    linear_model.SGDClassifier(loss="modified_huber", random_state=0),
    linear_model.SGDClassifier(fit_intercept=False, random_state=0),
    linear_model.LogisticRegression(),
    linear_model.Perceptron(random_state=0),
    linear_model.RidgeClassifier(),
    svm.LinearSVC(random_state=0),
    make_pipeline("passthrough", Normalizer("max"), linear_model.SGDClassifier(loss="log_loss", random_state=0)),
]
REGRESSORS = [
    linear_model.SGDRegressor(loss="huber", random_state=0),
    linear_model.Ridge(fit_intercept=False),
    linear_model.Lasso(0.01),
    linear_model.PoissonRegressor(),
    svm.LinearSVR(tol=0.1, max_iter=10**5, random_state=0),
]


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_fitted_classifiers_are_read(estimator: Any, classes: int) -> None:
    X = rows()
    y = made("hinge", 3).predict(X)
    estimator.fit(X, y if classes == 3 else y > 3)
    model = LinearModel.from_sklearn(estimator)
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    margins = estimator.decision_function(X)
    rounding = 1e-6 * max(np.abs(margins).max(), 1.0)  # weights are float32, and large terms of a margin may cancel
    np.testing.assert_allclose(model.decision_function(X), margins, rtol=1e-5, atol=rounding)
    if model.loss in PROBABILITIES:
        np.testing.assert_allclose(model.predict_proba(X), estimator.predict_proba(X), rtol=0, atol=1e-5)
    else:
        assert not hasattr(estimator, "predict_proba")


@pytest.mark.parametrize("estimator", REGRESSORS, ids=str)
def test_fitted_regressors_are_read(estimator: Any) -> None:
    X = rows()
    estimator.fit(X, np.exp(made("huber", 1).predict(X) / 10))
    np.testing.assert_allclose(LinearModel.from_sklearn(estimator).predict(X), estimator.predict(X), rtol=1e-5)


def fitted(**changed: Any) -> Any:
    estimator = linear_model.SGDClassifier(random_state=0).fit(rows(), made("log", 2).predict(rows()))
    for name, value in changed.items():
        setattr(estimator, name, value)
    return estimator


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (linear_model.SGDClassifier(), "not a usable hogwild model: .* no attribute 'coef_'"),
        (np.ones(3), "a ndarray: expected one of SGDClassifier, "),
        (make_pipeline(StandardScaler(), fitted()), "a StandardScaler, SGDClassifier: expected"),
        (make_pipeline(Normalizer("l1"), fitted()), "a Normalizer, SGDClassifier: expected"),
        (fitted(classes_=np.array(["ham", "spam"])), "classes are .*ham.* hogwild's labels are numbers"),
        (fitted(classes_=np.array([1, 1])), "expected none, or two or more different ones"),
        (fitted(classes_=np.array([1, 2, 3])), "coef has 1 rows for 3 labels"),
        (fitted(coef_=np.full((1, WIDTH), np.nan)), "not all weights are finite in float32"),
        (fitted(intercept_=np.ones(7)), "coef of shape .* does not go with intercept"),
        (linear_model.LinearRegression().fit(rows(), np.ones((100, 2))), "coef has 2 rows for 0 labels"),
    ],
)
def test_what_is_no_linear_model_is_one_line(estimator: Any, message: str, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    path = tmp_path / "file.skops"
    skops.dump(estimator, path)
    with pytest.raises(InputError, match=message) as caught:
        import_model(path, "sklearn")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


# -- files ------------------------------------------------------------------------------------------------------------


class Trap:
    """Says so when it is made from a file."""

    made = 0

    def __setstate__(self, state: object) -> None:
        Trap.made += 1


def test_skops_files_go_out_and_come_back_and_nothing_untrusted_is_made(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    path, model, trap = tmp_path / "file.skops", made("log", 3, "l2"), Trap()
    assert export_model(model, path, "sklearn") == ["skops.io.load(FILE) is a Normalizer + SGDClassifier"]
    assert skops.get_untrusted_types(file=path) == []
    np.testing.assert_array_equal(import_model(path, "sklearn").predict_proba(rows()), model.predict_proba(rows()))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="not a skops file that can be read"):
        import_model(path, "sklearn")
    skops.dump(fitted().sparsify(), path)
    assert import_model(path, "sklearn").width == WIDTH
    trap.here = 1  # type: ignore[attr-defined]
    for content in (trap, os.system):
        skops.dump(fitted(extra=content), path)
        with pytest.raises(InputError, match=r"holds types that are not trusted: .*(Trap|posix.system)"):
            import_model(path, "sklearn")
    path.write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError, match="not a skops file"):
        import_model(path, "sklearn")
    assert Trap.made == 0


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError, match=r"^No module named 'skops.io': pip install 'hogwild\[export\]', or take npz"):
        export_model(made("log", 2), tmp_path / "file", "sklearn")


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


def test_what_a_format_cannot_hold_is_refused_or_left_out(onnx_path: Path, tmp_path: Path) -> None:
    hashed = LinearModel(np.ones(8), [0.5], "log", 0.0, [0, 1], "l2", hash_bits=3)
    with pytest.raises(InputError, match=r"^features are hashed to 2\^3, .* add --bare$"):
        hashed.to_sklearn()
    back = LinearModel.from_sklearn(hashed.to_sklearn(bare=True))
    assert (back.hash_bits, back.normalize, back.width) == (None, "none", 8)
    with pytest.raises(InputError, match="weights are not all finite: the training diverged"):
        LinearModel([1.0, np.nan], [0.0], "log", labels=[0, 1]).to_sklearn()
    for model, message in (
        (LinearModel(np.ones(3), [0.0], "log", labels=[0.5, 1]), "needs labels that are whole numbers"),
        (made("log", 2, "max"), "rows are scaled by their largest size"),
    ):
        with pytest.raises(InputError, match=message):
            export_model(model, onnx_path, "onnx")
    assert not os.listdir(tmp_path)


def test_estimators_of_hogwild_are_exported(tmp_path: Path) -> None:
    X = rows()
    ours = HogwildClassifier().fit(X, made("hinge", 3).predict(X))
    export_model(ours, tmp_path / "file.npz", "npz")
    np.testing.assert_array_equal(import_model(tmp_path / "file.npz", "npz").predict(X), ours.predict(X))
