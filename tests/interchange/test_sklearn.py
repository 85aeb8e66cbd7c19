"""scikit-learn estimators in skops' format: it predicts the same, what it fitted is read, and no code is run."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn import linear_model, svm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from hogwild.errors import InputError, UsageError
from hogwild.interchange import export_model, import_model, writing
from hogwild.problems.linear.model import PROBABILITIES
from tests.interchange.models import KINDS, WIDTH, made, rows, size

skops = pytest.importorskip("skops.io", reason="skops is not installed")


@pytest.mark.parametrize(("loss", "classes"), KINDS)
@pytest.mark.parametrize("normalize", ["none", "l2", "max"])
def test_scikit_learn_predicts_the_same(loss: str, classes: int, normalize: str, tmp_path: Path) -> None:
    model, X, path = made(loss, classes, normalize), rows(), tmp_path / "file.skops"
    export_model(model, path, "sklearn")
    assert skops.get_untrusted_types(file=path) == []
    theirs = skops.load(path)
    for given in (X, X.toarray()):
        if classes == 1:
            error = np.abs(theirs.predict(given) - model.predict(X))
            assert (error < 1e-6 * size(model, X) * (1 + np.abs(model.predict(X)) * (loss == "poisson"))).all()
            continue
        margins = np.abs(theirs.decision_function(given) - model.decision_function(X)).reshape(X.shape[0], -1)
        assert (margins.max(axis=1) < 1e-6 * size(model, X)).all()
        np.testing.assert_array_equal(theirs.predict(given), model.predict(X))
        if loss in PROBABILITIES:
            np.testing.assert_allclose(theirs.predict_proba(given), model.predict_proba(X), rtol=0, atol=1e-6)


def test_what_is_exported_goes_on_learning(tmp_path: Path) -> None:
    model, X, path = made("log", 3), rows(), tmp_path / "file.skops"
    export_model(model, path, "sklearn")
    theirs = skops.load(path)
    assert theirs.classes_.dtype == np.int64
    assert theirs.n_features_in_ == WIDTH
    theirs.partial_fit(X.astype(float), model.predict(X))
    assert (theirs.predict(X) == model.predict(X)).mean() > 0.5


CLASSIFIERS = [
    *(linear_model.SGDClassifier(loss=loss) for loss in ("hinge", "log_loss", "modified_huber")),
    linear_model.SGDClassifier(fit_intercept=False),
    linear_model.LogisticRegression(),
    linear_model.LogisticRegression(fit_intercept=False),
    linear_model.Perceptron(),
    linear_model.RidgeClassifier(),
    svm.LinearSVC(),
    make_pipeline(Normalizer("max"), linear_model.LogisticRegression()),
    make_pipeline("passthrough", Normalizer(), linear_model.SGDClassifier("log_loss")),
]
REGRESSORS = [
    linear_model.SGDRegressor(),
    linear_model.SGDRegressor("huber"),
    linear_model.LinearRegression(),
    linear_model.Ridge(fit_intercept=False),
    linear_model.Lasso(0.01),
    linear_model.HuberRegressor(),
    linear_model.PoissonRegressor(),
    svm.LinearSVR(tol=0.1, max_iter=10**5),
]


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_are_read(estimator: Any, classes: int, tmp_path: Path) -> None:
    X, path = rows(), tmp_path / "file.skops"
    y = made("hinge", 3).predict(X)
    estimator.fit(X, y if classes == 3 else y > 3)
    skops.dump(estimator, path)
    model = import_model(path, "sklearn")
    assert len(model.labels) == classes
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    expected = estimator.decision_function(X).reshape(X.shape[0], -1)
    error = np.abs(model.decision_function(X).reshape(expected.shape) - expected)
    assert (error < 1e-6 * size(model, X)[:, None]).all()
    if model.loss in PROBABILITIES:
        np.testing.assert_allclose(model.predict_proba(X), estimator.predict_proba(X), rtol=0, atol=1e-5)
    else:
        assert not hasattr(estimator, "predict_proba")


@pytest.mark.parametrize("estimator", REGRESSORS, ids=str)
def test_regressors_are_read(estimator: Any, tmp_path: Path) -> None:
    X, path = rows(), tmp_path / "file.skops"
    estimator.fit(X, np.exp(made("huber", 1).predict(X) / 10))
    skops.dump(estimator, path)
    model = import_model(path, "sklearn")
    np.testing.assert_allclose(model.predict(X), estimator.predict(X), rtol=1e-6, atol=1e-6)


def test_sparse_weights_and_our_own_estimators(tmp_path: Path) -> None:
    from hogwild.estimators import HogwildClassifier

    X, path = rows(), tmp_path / "file.skops"
    y = made("hinge", 3).predict(X)
    sparse = linear_model.SGDClassifier(penalty="l1").fit(X, y).sparsify()
    ours = HogwildClassifier(loss="log_loss", n_jobs=1, random_state=0).fit(X, y)
    batches = HogwildClassifier(random_state=0).partial_fit(X, y, classes=np.unique(y))
    for estimator in (sparse, ours, batches):
        skops.dump(estimator, path)
        np.testing.assert_array_equal(import_model(path, "sklearn").predict(X), estimator.predict(X))


def test_our_own_estimators_of_strings(tmp_path: Path) -> None:
    from hogwild.estimators import HogwildClassifier

    X, path = rows(), tmp_path / "file.skops"
    skops.dump(HogwildClassifier(random_state=0).fit(X, np.where(made("hinge", 2).predict(X) > 0, "a", "b")), path)
    with pytest.raises(InputError, match=f"^{path}: classes .'a', 'b'.: a model file holds numbers only"):
        import_model(path, "sklearn")


def fitted(**changes: Any) -> Any:
    estimator = linear_model.SGDClassifier().fit(rows(), made("hinge", 2).predict(rows()))
    vars(estimator).update(changes)
    return estimator


def sparse_beyond() -> Any:
    """Weights at a column that is not there, which scipy would write to."""
    matrix = scipy.sparse.csr_matrix(np.ones((1, 4)))
    matrix.indices[:] = 10**6
    return fitted(coef_=matrix, n_features_in_=4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear_model.SGDClassifier(), "a SGDClassifier that has not been fitted"),
        (lambda: np.ones(3), "a ndarray: expected one of SGDClassifier, "),
        (lambda: StandardScaler(with_mean=False), "a StandardScaler: expected one of"),
        (lambda: make_pipeline(StandardScaler(), fitted()), "a pipeline with StandardScaler: expected at most"),
        (lambda: make_pipeline(Normalizer("l1"), fitted()), r"a pipeline with Normalizer\('l1'\): expected at most"),
        (lambda: fitted(classes_=np.array(["ham", "spam"])), "classes are .*ham.* hogwild's labels are numbers"),
        (lambda: fitted(classes_=np.array([1, 1])), "label 1 stands for more than one class"),
        (lambda: fitted(classes_=np.array([1, 2, 3])), "coef has 1 rows for 3 labels"),
        (lambda: fitted(classes_=np.array([np.nan, 2])), "label nan: expected a number that fits float32"),
        (lambda: fitted(coef_=np.full((1, WIDTH), np.nan)), "weight of feature 1 is not a finite float32"),
        (lambda: fitted(coef_=np.ones((1, 2))), f"a SGDClassifier of {WIDTH} features with 2 weights"),
        (lambda: fitted(coef_=np.ones((1, 1, WIDTH))), "coef_ of type float64, shape"),
        (lambda: fitted(coef_=[["a"]]), "not a fitted linear estimator: .* no attribute"),
        (lambda: fitted(intercept_=np.ones(7)), "coef of shape .* does not go with intercept"),
        (lambda: linear_model.LinearRegression().fit(rows(), np.ones((100, 2))), "a LinearRegression of 2 targets"),
        (sparse_beyond, "not a fitted linear estimator|not a skops file that can be read"),
    ],
)
def test_what_is_no_linear_model_is_one_line(make: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.skops"
    skops.dump(make(), path)
    with pytest.raises(InputError, match=message) as caught:
        import_model(path, "sklearn")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


class Trap:
    """Says so when it is made from a file."""

    made = 0

    def __setstate__(self, state: object) -> None:
        Trap.made += 1


def test_nothing_untrusted_is_made(tmp_path: Path) -> None:
    path, trap = tmp_path / "file.skops", Trap()
    trap.here = 1  # type: ignore[attr-defined]
    skops.dump(fitted(extra=trap), path)
    with pytest.raises(InputError, match=r"holds types that are not trusted: .*Trap"):
        import_model(path, "sklearn")
    skops.dump(fitted(extra=os.system), path)
    with pytest.raises(InputError, match=r"holds types that are not trusted: posix.system"):
        import_model(path, "sklearn")
    path.write_bytes(pickle.dumps(trap))
    with pytest.raises(InputError, match="not a skops file but a pickle, which could run code: it is not read"):
        import_model(path, "sklearn")
    assert Trap.made == 0


def test_an_array_larger_than_its_bytes(tmp_path: Path) -> None:
    path, crafted = tmp_path / "file.skops", tmp_path / "crafted.skops"
    skops.dump(fitted(), path)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (1, 10**12)})
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(crafted, "w") as archive:
        for member in whole.infolist():
            archive.writestr(member, buffer.getvalue() if member.filename.endswith(".npy") else whole.read(member))
    with pytest.raises(InputError, match="an array of shape .* is 8,000,000,000,000 bytes, and 0 are there"):
        import_model(crafted, "sklearn")


def test_without_skops_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(writing.importlib, "import_module", missing)
    message = r"^--to sklearn needs skops \(.*\): pip install 'hogwild\[export\]', or take npz, which needs nothing$"
    with pytest.raises(UsageError, match=message):
        writing.needed("skops.io", "--to sklearn")
