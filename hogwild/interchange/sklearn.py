"""Linear models as fitted scikit-learn estimators, both ways; their files by skops, and their ONNX graphs by skl2onnx.

An estimator made here is one of scikit-learn's own, ``SGDClassifier`` or ``SGDRegressor`` if they have the loss, so
using it needs no hogwild; rows scaled to length one become a ``Pipeline`` with a ``Normalizer``. It is fitted on one
row per class, so that scikit-learn itself makes its private attributes; the public ones are then replaced. Its weights
are float64, so its predictions are too. skops, unlike pickle, runs no code when a file is read.

An ONNX graph takes dense rows ``X`` (n, width) float32. skl2onnx makes its margins and labels; the step to
probabilities is added here, because skl2onnx takes the label from probabilities rounded to float32: of 20 classes that
are all unlikely, 1 to 98 % of the labels and then the probabilities as well are wrong. ``softmax(-softplus(-margin))``
is the logistic functions over their sum, at any margin.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import LARGEST_FLOAT32
from hogwild.errors import InputError, UsageError, reason_of
from hogwild.methods import SGD_LOSSES

#: Estimators of scikit-learn whose predictions follow from margins of ``coef_`` and ``intercept_`` as ours do.
READ = """SGDClassifier LogisticRegression LogisticRegressionCV LinearSVC Perceptron PassiveAggressiveClassifier
RidgeClassifier RidgeClassifierCV SGDRegressor PoissonRegressor LinearSVR PassiveAggressiveRegressor HuberRegressor
LinearRegression Ridge RidgeCV Lasso LassoCV ElasticNet ElasticNetCV Lars LassoLars BayesianRidge ARDRegression
TheilSenRegressor QuantileRegressor""".split()
SPARSE = ["scipy.sparse._csr.csr_matrix", "scipy.sparse._csr.csr_array"]  # coef_ after sparsify()
OPSET = {"": 17, "ai.onnx.ml": 3}  # supported by runtimes from 2022 on
LOGISTIC = ("Neg", "Softplus", "Neg", "Softmax")  # from margins to probabilities, which sum to one
LINKS = {"log": LOGISTIC, "softmax": ("Softmax",)}


def to_sklearn(model: Any, bare: bool = False) -> Any:
    """Return a fitted estimator that predicts what ``model`` does (:meth:`LinearModel.to_sklearn`)."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    if model.hash_bits is not None and not bare:
        raise InputError(
            f"features are hashed to 2^{model.hash_bits}, which only npz can hold: "
            f"hash rows yourself (hogwild convert --hash-bits {model.hash_bits}) and add --bare"
        )
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        raise InputError("weights are not all finite: the training diverged")
    estimator = _classifier(model) if model.labels else _regressor(model)
    estimator.n_features_in_ = model.width
    if model.normalize == "none" or bare:
        return estimator
    scaler = Normalizer(norm=model.normalize).fit(np.zeros((1, 1)))
    scaler.n_features_in_ = model.width
    return make_pipeline(scaler, estimator)


def _classifier(model: Any) -> Any:
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    coef = model.coef_.astype(np.float64)
    intercept = model.intercept_.astype(np.float64)
    labels = model.classes_
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all() and (np.abs(labels) < 2**53).all():
        labels = labels.astype(np.int64)
    if len(coef) == 2:  # two margins for two classes: scikit-learn's one is their difference
        if model.loss in ("log", "modified-huber"):
            raise InputError(f"two classes of a margin each, and loss {model.loss}: take npz")
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    if model.loss == "softmax":
        estimator: Any = LogisticRegression(max_iter=1)
    else:
        estimator = SGDClassifier(loss=SGD_LOSSES[model.loss], max_iter=1, tol=None)
    _fit(estimator, np.arange(len(labels)))
    estimator.classes_ = labels
    estimator.coef_ = coef
    estimator.intercept_ = intercept
    return estimator


def _regressor(model: Any) -> Any:
    from sklearn.linear_model import PoissonRegressor, SGDRegressor

    if model.loss == "poisson":
        estimator: Any = PoissonRegressor()
    else:
        param = {"epsilon": model.loss_param} if model.loss_param else {}
        estimator = SGDRegressor(loss=SGD_LOSSES[model.loss], max_iter=1, tol=None, **param)
    _fit(estimator, np.ones(2))
    estimator.coef_ = model.coef_[0].astype(np.float64)
    intercept = model.intercept_.astype(np.float64)
    estimator.intercept_ = float(intercept[0]) if model.loss == "poisson" else intercept
    return estimator


def _fit(estimator: Any, targets: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        estimator.fit(np.zeros((len(targets), 1)), targets)


def from_sklearn(estimator: Any) -> dict[str, Any]:
    """Return the parts of the model that predicts what a fitted estimator does (:meth:`LinearModel.from_sklearn`)."""
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)]) if not isinstance(step, str | None)]
    *before, last = steps
    normalize = getattr(before[0], "norm", "") if before else "none"
    if len(before) > 1 or normalize not in ("none", "l2", "max") or type(last).__name__ not in READ:
        kinds = ", ".join(type(step).__name__ for step in steps)
        raise InputError(f"a {kinds}: expected one of {', '.join(READ)}, after a Normalizer of l2 or max at most")
    coef = last.coef_.toarray() if hasattr(last.coef_, "toarray") else last.coef_
    labels = np.asarray(getattr(last, "classes_", []))
    if labels.dtype.kind not in "biuf":
        raise InputError(f"classes are {labels[0]!r} and so on: hogwild's labels are numbers")
    param = float(getattr(last, "epsilon", 0.0))
    return in_order(coef, last.intercept_, _loss(last, len(labels)), labels.tolist(), param, normalize)


def _loss(estimator: Any, classes: int) -> str:
    """Return a loss whose predictions and probabilities are those of the estimator."""
    name = type(estimator).__name__
    if name.startswith("Logistic"):
        one_by_one = estimator.solver == "liblinear" or getattr(estimator, "multi_class", None) == "ovr"
        return "log" if classes <= 2 or one_by_one else "softmax"
    if name == "PoissonRegressor":
        return "poisson"
    ours = {sgd_loss: loss for loss, sgd_loss in SGD_LOSSES.items()}
    return ours.get(getattr(estimator, "loss", ""), "hinge" if classes else "squared-error")


def in_order(
    coef: Any,  # (1 or K, width) or (width,)
    intercept: Any,  # (1 or K,), or a single 0
    loss: str,
    labels: list[Any],
    loss_param: float = 0.0,
    normalize: str = "none",
) -> dict[str, Any]:
    """Return the parts of a LinearModel, with the classes in ascending order of their labels.

    The labels are given in the order of the rows; of two labels with one row, the second belongs to positive margins.
    """
    coef = np.atleast_2d(np.asarray(coef, np.float64))
    intercept = np.asarray(intercept, np.float64).reshape(-1)
    if intercept.shape == (1,) and not intercept.any():  # fit_intercept=False
        intercept = np.zeros(len(coef))
    if not (np.abs(coef) <= LARGEST_FLOAT32).all() or not (np.abs(intercept) <= LARGEST_FLOAT32).all():
        raise InputError("not all weights are finite in float32")
    order = np.argsort(labels, kind="stable")
    if len(coef) == 1 and order.tolist() == [1, 0]:
        coef, intercept = -coef, -intercept
    elif len(coef) == len(labels) == len(intercept):
        coef, intercept = coef[order], intercept[order]
    return {
        "coef_": coef,
        "intercept_": intercept,
        "loss": loss,
        "loss_param": loss_param,
        "labels": [float(labels[at]) for at in order],
        "normalize": normalize,
    }


# -- files ------------------------------------------------------------------------------------------------------------


def skops_file(model: Any, bare: bool) -> tuple[bytes, list[str]]:
    """Return the content of a skops file, and notes on it."""
    estimator = to_sklearn(model, bare)
    kinds = [type(step).__name__ for _, step in getattr(estimator, "steps", [("", estimator)])]
    return _needed("skops.io").dumps(estimator), [f"skops.io.load(FILE) is a {' + '.join(kinds)}"]


def load_skops(path: Path) -> Any:
    """Return the estimator in a skops file, if it consists of types that skops trusts."""
    skops = _needed("skops.io")
    try:
        untrusted = sorted(set(skops.get_untrusted_types(file=path)) - set(SPARSE))
        if not untrusted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of another scikit-learn version: attributes read are in all versions
                return skops.load(path, trusted=SPARSE)
    except Exception as error:  # any error that a damaged file causes in skops
        raise InputError(f"{path}: not a skops file that can be read: {reason_of(error)[:120]}") from error
    raise InputError(f"{path}: holds types that are not trusted: {', '.join(untrusted)[:200]}")


def onnx_graph(model: Any, bare: bool) -> tuple[bytes, list[str]]:
    """Return the content of an ONNX file, and notes on it."""
    skl2onnx, onnx = _needed("skl2onnx"), _needed("onnx")
    estimator = to_sklearn(model, bare)
    if model.normalize == "max" and not bare:
        raise InputError("rows are scaled by their largest size, which ONNX cannot do: scale them yourself, --bare")
    if model.labels and model.classes_.dtype.kind == "f" and any(not label.is_integer() for label in model.labels):
        raise InputError("ONNX needs labels that are whole numbers or text: take npz")
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    graph = skl2onnx.to_onnx(
        estimator,
        initial_types=[("X", skl2onnx.common.data_types.FloatTensorType([None, model.width]))],
        options={id(last): {"zipmap": False, "raw_scores": True}} if model.labels else None,
        target_opset=OPSET,
    )
    links = LINKS.get(model.loss, ("Identity",))
    if len(model.coef_) == 1 and model.loss == "softmax":  # its scores are -margin and margin
        links = LOGISTIC
    result = "prediction" if not model.labels else "probabilities" if model.loss in LINKS else "scores"
    output = graph.graph.output[-1]
    for node in graph.graph.node:
        for names in (node.input, node.output):
            names[:] = ["margins" if name == output.name else name for name in names]
    before = "margins"
    for number, link in enumerate(links, 1):
        after = result if number == len(links) else f"link_{number}"
        axis = {"axis": 1} if link == "Softmax" else {}
        graph.graph.node.append(onnx.helper.make_node(link, [before], [after], **axis))
        before = after
    output.name = result
    onnx.checker.check_model(graph)
    outputs = ", ".join(each.name for each in graph.graph.output)
    notes = [f"its input is X, dense rows of float32 (n, {model.width}); its outputs are {outputs}"]
    return graph.SerializeToString(), notes


def _needed(package: str) -> Any:
    """Import and return an optional package."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UsageError(f"{error}: pip install 'hogwild[export]', or take npz, which needs nothing") from None
