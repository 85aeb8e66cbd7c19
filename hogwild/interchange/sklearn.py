"""Fitted scikit-learn estimators, saved by skops, which unlike pickle runs no code when a file is read.

An export is one of scikit-learn's own estimators, ``SGDClassifier`` or ``SGDRegressor`` if they have the loss, so
reading it needs no hogwild; rows scaled to length one become a ``Pipeline`` with a ``Normalizer``. It is fitted on one
row per class, so that scikit-learn itself makes its private attributes; the public ones are then replaced. Its weights
are float64, so its predictions are too.

The linear estimators of ``READ`` can be read, alone or after a ``Normalizer``, from types that skops trusts; anything
else is refused by name.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import HogwildError, InputError
from hogwild.interchange.archives import check_arrays, opened
from hogwild.interchange.reading import GivenModel, assemble, check_width
from hogwild.interchange.writing import Asked, check_finite, check_prepared, needed
from hogwild.methods import SGD_LOSSES
from hogwild.problems.linear.model import LinearModel

OURS = [f"hogwild.estimators.{kind}.Hogwild{kind.title()}" for kind in ("classifier", "regressor")]
KEPT = "estimators.stream.Stream", "problems.linear.problem.LinearProblem", "data.rows.container.Rows"  # by partial_fit
STREAM = [f"hogwild.{name}" for name in KEPT]
SPARSE = ["scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"]  # coef_ after sparsify()
#: Estimators that are read, and the loss with the same predictions; "": it depends on their parameters.
READ = {
    "SGDClassifier": "",
    "SGDRegressor": "",
    "LogisticRegression": "",
    "LogisticRegressionCV": "",
    "LinearSVC": "",
    "Perceptron": "perceptron",
    "PassiveAggressiveClassifier": "hinge",
    "RidgeClassifier": "hinge",
    "RidgeClassifierCV": "hinge",
    "PassiveAggressiveRegressor": "epsilon-insensitive",
    "LinearSVR": "epsilon-insensitive",
    "HuberRegressor": "huber",
    "PoissonRegressor": "poisson",
    **dict.fromkeys(
        ["LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV"], "squared-error"
    ),
    **dict.fromkeys(["Lars", "LassoLars", "BayesianRidge", "ARDRegression", "TheilSenRegressor"], "squared-error"),
}


def encode(model: LinearModel, asked: Asked) -> tuple[bytes, list[str]]:
    """Return the content of a skops file, and notes on it."""
    skops = needed("skops.io", "--to sklearn")
    made = estimator(model, asked.bare)
    return skops.dumps(made), [f"skops.io.load({asked.path!r}) is a {_described(made)}"]


def _described(made: Any) -> str:
    return " + ".join(type(step).__name__ for _, step in getattr(made, "steps", [("", made)]))


def estimator(model: LinearModel, bare: bool = False) -> Any:
    """Return a fitted estimator that predicts what ``model`` does.

    Raises
    ------
    InputError
        If there is no such estimator.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    check_prepared(model, "a scikit-learn estimator", bare, scales=("l2", "max"))
    check_finite(model)
    made = _classifier(model) if model.labels else _regressor(model)
    made.n_features_in_ = model.width
    if model.normalize == "none" or bare:
        return made
    scaler = Normalizer(norm=model.normalize).fit(np.zeros((1, 1)))
    scaler.n_features_in_ = model.width
    return make_pipeline(scaler, made)


def _classifier(model: LinearModel) -> Any:
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    labels = np.array(model.labels)
    if (labels == np.rint(labels)).all() and (np.abs(labels) < 2**53).all():
        labels = labels.astype(np.int64)
    coef, intercept, loss = model.coef_.astype(np.float64), model.intercept_.astype(np.float64), model.loss
    if len(coef) == 2:  # two margins for two classes: scikit-learn's one is their difference
        if loss not in ("softmax", "hinge", "squared-hinge", "perceptron"):
            raise InputError(f"two classes of a margin each, and loss {loss}: take npz")
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    if loss == "softmax":
        made: Any = LogisticRegression(max_iter=1)
    else:
        made = SGDClassifier(loss=SGD_LOSSES[loss], max_iter=1, tol=None)
    _fit(made, np.zeros((len(labels), 1)), np.arange(len(labels)))
    made.classes_, made.coef_, made.intercept_ = labels, coef, intercept
    return made


def _regressor(model: LinearModel) -> Any:
    from sklearn.linear_model import PoissonRegressor, SGDRegressor

    loss, param = model.loss, {"epsilon": model.loss_param} if model.loss_param else {}
    made: Any = (
        PoissonRegressor()
        if loss == "poisson"
        else SGDRegressor(loss=SGD_LOSSES.get(loss, "squared_error"), max_iter=1, tol=None, **param)
    )
    _fit(made, np.zeros((2, 1)), np.ones(2))
    made.coef_ = model.coef_[0].astype(np.float64)
    made.intercept_ = float(model.intercept_[0]) if loss == "poisson" else model.intercept_.astype(np.float64)
    return made


def _fit(made: Any, X: np.ndarray, y: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        made.fit(X, y)


# -- reading ----------------------------------------------------------------------------------------------------------


def decode(path: Path, given: GivenModel) -> LinearModel:
    """Return the model for the estimator in a skops file."""
    skops = needed("skops.io", "--from sklearn")
    with opened(path, "a skops file") as archive:
        check_arrays(archive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another scikit-learn version: only attributes of all versions are read
        try:
            untrusted = sorted(set(skops.get_untrusted_types(file=path)) - {*OURS, *STREAM, *SPARSE})
            loaded = None if untrusted else skops.load(path, trusted=[*OURS, *STREAM, *SPARSE])
        except Exception as error:  # any error that a manipulated file causes in skops
            said = " ".join(str(error).split())[:120]
            raise InputError(f"{path}: not a skops file that can be read: {type(error).__name__}: {said}") from error
    if untrusted:
        some = ", ".join(untrusted[:5]) + (", ..." if len(untrusted) > 5 else "")
        raise InputError(f"{path}: holds types that are not trusted: {some[:200]}")
    try:
        return _model(path, loaded)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a fitted linear estimator: {error}") from error


def _model(path: Path, loaded: Any) -> LinearModel:
    normalize, last = _steps(path, loaded)
    name = type(last).__name__
    if f"{type(last).__module__}.{name}" in OURS:
        try:
            ours = last.to_model()
        except HogwildError as error:
            raise InputError(f"{path}: {error}") from error
        return assemble(path, ours.coef_, ours.intercept_, ours.loss, ours.labels, ours.loss_param, normalize)
    if name not in READ or not type(last).__module__.startswith("sklearn."):
        raise InputError(f"{path}: a {name}: expected one of {', '.join(READ)}")
    if not hasattr(last, "coef_"):
        raise InputError(f"{path}: a {name} that has not been fitted")
    coef = last.coef_
    if len(coef.shape) > 1 and hasattr(coef, "toarray"):  # sparsify()
        check_width(path, coef.shape[1], coef.shape[0])
        coef.check_format(full_check=True)  # scipy does not check indices
        coef = coef.toarray()
    coef = np.atleast_2d(_numbers(path, coef, "coef_"))
    labels = _labels(path, last)
    if not labels and len(coef) > 1:
        raise InputError(f"{path}: a {name} of {len(coef)} targets: expected one")
    intercept = np.atleast_1d(_numbers(path, last.intercept_, "intercept_"))
    if intercept.shape == (1,) and not intercept.any():  # fit_intercept=False
        intercept = np.zeros(len(coef))
    width = getattr(last, "n_features_in_", coef.shape[1])
    if width != coef.shape[1]:
        raise InputError(f"{path}: a {name} of {width} features with {coef.shape[1]} weights")
    param = float(getattr(last, "epsilon", 0.0))
    return assemble(path, coef, intercept, _loss(last, len(labels)), labels, param, normalize)


def _steps(path: Path, loaded: Any) -> tuple[str, Any]:
    """Return ``(normalize, last step)`` of a pipeline, or of an estimator alone."""
    if type(loaded).__name__ != "Pipeline":
        return "none", loaded
    *before, last = [step for _, step in loaded.steps if step is not None and step != "passthrough"]
    normalize = "none"
    for step in before:
        norm = getattr(step, "norm", None) if type(step).__name__ == "Normalizer" else None
        if len(before) > 1 or norm not in ("l2", "max"):
            said = f"{type(step).__name__}" + (f"({norm!r})" if norm else "")
            raise InputError(
                f"{path}: a pipeline with {said}: expected at most a Normalizer, l2 or max, before the estimator; save "
                "its last step alone, and give hogwild rows that have passed the others"
            )
        normalize = str(norm)
    return normalize, last


def _numbers(path: Path, value: Any, name: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.ndim > 2:
        raise InputError(f"{path}: {name} of type {array.dtype}, shape {array.shape}: expected real numbers")
    return array


def _labels(path: Path, last: Any) -> list[float]:
    classes = np.asarray(getattr(last, "classes_", []))
    if classes.ndim != 1:
        raise InputError(f"{path}: several targets: expected one")
    if classes.size and classes.dtype.kind not in "biuf":
        raise InputError(f"{path}: classes are {classes[0]!r} and so on: hogwild's labels are numbers")
    return [float(label) for label in classes.tolist()]


def _loss(last: Any, classes: int) -> str:
    name = type(last).__name__
    if READ[name]:
        return READ[name]
    if name == "LinearSVC":
        return "hinge" if last.loss == "hinge" else "squared-hinge"
    if name.startswith("Logistic"):
        ovr = getattr(last, "multi_class", None) == "ovr" or getattr(last, "solver", None) == "liblinear"
        return "log" if classes <= 2 or ovr else "softmax"
    theirs = {loss: ours for ours, loss in SGD_LOSSES.items()}.get(last.loss, "")
    return theirs or ("hinge" if classes else "squared-error")
