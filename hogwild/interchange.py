"""Models for other programs: NumPy's ``.npz`` and a file of Python that reads it, an estimator of scikit-learn, ONNX.

What is made predicts what hogwild predicts, or nothing is made: a format that cannot hold a part of the model refuses
it in one line that says what to do.

An ``.npz`` holds the arrays of hogwild's own model file, of any problem, and its JSON header in the array ``hogwild``.
The file of Python that answers rows by it, with NumPy alone, is no second implementation: it is ``serving/scorer.py``
and whatever of the package that needs, definition by definition, as their sources stand.

An estimator is one of scikit-learn's own, so using it needs no hogwild; rows scaled to length one become a ``Pipeline``
with a ``Normalizer``. It is fitted on one row per class, so that scikit-learn itself makes its private attributes; the
public ones are then replaced. Its weights are float64, so its predictions are too.

An ONNX graph takes dense rows ``X`` (n, width) float32. skl2onnx makes its margins and labels; the step to
probabilities is added here, because skl2onnx takes the label from probabilities rounded to float32: of 20 classes that
are all unlikely, 1 to 98 % of the labels and then the probabilities as well are wrong. ``softmax(-softplus(-margin))``
is the logistic functions over their sum, at any margin.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import json
import keyword
import re
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import HogwildError, InputError, UsageError, expected_one_of
from hogwild.methods import COUNT_LOSSES, EXPORTS, SGD_LOSSES
from hogwild.model_file import package_version, write_atomically
from hogwild.rows_file import plain
from hogwild.serving.scorer import SCHEMA

SERVED = "hogwild.serving.scorer", "load"  # what the file of Python is for
HEAD = '''"""Answers of a model of hogwild for rows as dicts, by NumPy alone: made by hogwild {version}, hogwild export.

    from {module} import load
    model = load("{module}.npz")
    model.predict_one({{"column": "value", ...}})  # or predict_many(list of dicts)

These are definitions of hogwild's own (BSD-3-Clause); they read any model that hogwild export --to npz writes.
"""

from __future__ import annotations
'''
OPSET = {"": 17, "ai.onnx.ml": 3}  # supported by runtimes from 2022 on
LOGISTIC = ("Neg", "Softplus", "Neg", "Softmax")  # from margins to probabilities, which sum to one
LINKS = {"log": LOGISTIC, "softmax": ("Softmax",)}


def export_model(model: Any, path: str | Path, to: str) -> None:
    """Write ``model`` to ``path`` as a file of another program.

    Parameters
    ----------
    model : LinearModel, an estimator that has one (``to_model``), or, for ``npz``, a model of any problem; for
        ``python``, of a linear model, a factorization machine or ratings
    path : str or Path
        An existing file is replaced at the end, or left unchanged on an error.
    to : {"npz", "python", "onnx"}
        For ``python``, ``path`` is a file ``.py``; the arrays are written beside it as ``.npz``.

    Raises
    ------
    UsageError
        For an unknown format.
    InputError
        If the format cannot hold the model.
    HogwildError
        If its package is not installed.
    OutputError
        If the file cannot be written; no partial file is left.

    See Also
    --------
    hogwild.load : reads model files of hogwild itself.

    Examples
    --------
    >>> import hogwild, numpy
    >>> from hogwild.interchange import export_model
    >>> export_model(hogwild.LinearModel([1.0, 2.0], 0.0, "log", labels=[0, 1]), "model.npz", "npz")
    >>> numpy.load("model.npz")["coef"]
    array([[1., 2.]], dtype=float32)
    """
    if to not in EXPORTS:
        raise UsageError(f"--to {to}: {expected_one_of(EXPORTS, to)}")
    model = model.to_model() if hasattr(model, "to_model") else model
    if to == "onnx" and type(model).__name__ != "LinearModel":
        raise UsageError(f"--to onnx needs a linear model; got {type(model).__name__}: take npz")
    path = Path(path)
    if to == "python":
        if not hasattr(model, "predict_many"):
            raise UsageError(f"--to python needs a model of rows or ratings; got {type(model).__name__}: take npz")
        taken = {*sys.stdlib_module_names, *keyword.kwlist, "numpy"}
        if path.suffix != ".py" or not path.stem.isidentifier() or path.stem in taken:
            raise UsageError(f"--to python writes a new module NAME.py, and NAME.npz; got {path}: name it so")
        write_atomically(path.with_suffix(".npz"), _npz(model))
    write_atomically(path, {"npz": _npz, "python": lambda _: _python(path.stem), "onnx": _onnx}[to](model))


def _npz(model: Any) -> bytes:
    """Return the content of an archive; of the history it has the last row only."""
    arrays, header = model.to_file()
    header = {"schema": SCHEMA, **header, "history": header["history"][-1:]}
    content = io.BytesIO()
    np.savez(content, hogwild=json.dumps(plain(header), sort_keys=True), **arrays)
    return content.getvalue()


# ---- a file of Python


def _python(module: str) -> bytes:
    """Return the source of a module that holds ``SERVED`` and all that it needs of the package."""
    imports: dict[str, set[str]] = {}  # what is imported, by how the line begins
    pieces: dict[tuple[str, int], str] = {}  # sources of definitions by module and line, each after those it needs
    _gather(*SERVED, imports, pieces)
    head = HEAD.format(module=module, version=package_version())
    lines = [begin + ", ".join(sorted(names)) for begin, names in sorted(imports.items())]
    return re.sub("\n{4,}", "\n\n\n", "\n".join([head, *lines, "\n", *pieces.values()])).rstrip().encode() + b"\n"


def _gather(module: str, name: str, imports: dict[str, set[str]], pieces: dict[tuple[str, int], str]) -> None:
    """Add what ``name`` is at the top of a module of the package, after all that this needs; of other names nothing."""
    source, top = _top_of(module)
    node, alias = top.get(name, (None, None))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hogwild."):
        _gather(str(node.module), alias.name, imports, pieces)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        begin = f"from {node.module} import " if isinstance(node, ast.ImportFrom) else "import "
        imports.setdefault(begin, set()).add(ast.unparse(alias))
    elif node is not None and (module, node.lineno) not in pieces:
        pieces[module, node.lineno] = ""
        for inner in dict.fromkeys(each.id for each in ast.walk(node) if isinstance(each, ast.Name)):
            _gather(module, inner, imports, pieces)
        del pieces[module, node.lineno]  # to come after them
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        lines = "\n".join(source[first - 1 : node.end_lineno])
        definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        pieces[module, node.lineno] = f"\n\n{lines}\n\n" if definition else lines


@cache
def _top_of(module: str) -> tuple[list[str], dict[str, tuple[Any, Any]]]:
    """Return a module's lines, and by the names it binds at its top the statements that do, and parts of imports."""
    source = inspect.getsource(importlib.import_module(module))
    top: dict[str, tuple[Any, Any]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            top |= {alias.asname or alias.name: (node, alias) for alias in node.names}
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [each.id for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)]
        top |= dict.fromkeys([getattr(node, "name", ""), *names], (node, None))
    return source.splitlines(), top


# ---- scikit-learn


def to_sklearn(model: Any) -> Any:
    """Return a fitted estimator that predicts what ``model`` does (:meth:`LinearModel.to_sklearn`)."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    if model.hash_bits is not None:
        raise InputError(
            f"features are hashed to 2^{model.hash_bits}, which only python and npz can hold: take one of them"
        )
    if model.multilabel:
        raise InputError("a model of several labels a row goes out as python or npz: take one of them")
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        raise InputError("weights are not all finite: the training diverged")
    estimator = _classifier(model) if model.labels else _regressor(model)
    estimator.n_features_in_ = model.width
    if model.normalize == "none":
        return estimator
    scaler = Normalizer(norm=model.normalize).fit(np.zeros((1, 1)))
    scaler.n_features_in_ = model.width
    return make_pipeline(scaler, estimator)


def _classifier(model: Any) -> Any:
    from sklearn.linear_model import LogisticRegression, SGDClassifier

    coef, intercept = model.coef_, model.intercept_
    if len(coef) == 2:  # two margins for two classes: scikit-learn's one is their difference
        if model.loss in ("log", "modified-huber"):
            raise InputError(f"two classes of a margin each, and loss {model.loss}: take npz")
        coef, intercept = np.diff(coef, axis=0), np.diff(intercept)
    if model.loss == "softmax":
        estimator: Any = LogisticRegression(max_iter=1)
    else:
        estimator = SGDClassifier(loss=SGD_LOSSES[model.loss], max_iter=1, tol=None)
    labels = model.classes_
    if labels.dtype.kind == "f" and (labels == np.rint(labels)).all() and (np.abs(labels) < 2**53).all():
        labels = labels.astype(np.int64)
    estimator = _fitted(estimator, np.arange(len(labels)), coef, intercept)
    estimator.classes_ = labels
    return estimator


def _regressor(model: Any) -> Any:
    from sklearn import linear_model

    if model.loss in COUNT_LOSSES:
        power = {"power": model.loss_param, "link": "log"} if model.loss == "tweedie" else {}
        estimator = getattr(linear_model, f"{model.loss.title()}Regressor")(**power)
    elif model.loss == "quantile":
        estimator = linear_model.QuantileRegressor(quantile=model.loss_param)
    else:
        param = {"epsilon": model.loss_param} if model.loss_param else {}
        estimator = linear_model.SGDRegressor(loss=SGD_LOSSES[model.loss], max_iter=1, tol=None, **param)
    estimator = _fitted(estimator, np.ones(2), model.coef_[0], model.intercept_)
    if model.loss in COUNT_LOSSES:
        estimator.intercept_ = float(estimator.intercept_[0])
    return estimator


def _fitted(estimator: Any, targets: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        estimator.fit(np.zeros((len(targets), 1)), targets)
    estimator.coef_, estimator.intercept_ = coef.astype(np.float64), intercept.astype(np.float64)
    return estimator


# ---- ONNX


def _onnx(model: Any) -> bytes:
    """Return the content of an ONNX file."""
    estimator = to_sklearn(model)
    if model.labels and model.classes_.dtype.kind == "f" and any(not label.is_integer() for label in model.labels):
        raise InputError("ONNX needs labels that are whole numbers or text: take npz")
    try:
        import onnx
        import skl2onnx
    except ImportError as error:
        needed = f"onnx needs the package {error.name or error}"
        raise HogwildError(f"{needed}: pip install 'hogwild[export]', or take npz, which needs nothing") from None
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
    output = graph.graph.output[-1]
    for node in graph.graph.node:
        for names in (node.input, node.output):
            names[:] = ["margins" if name == output.name else name for name in names]
    output.name = "prediction" if not model.labels else "probabilities" if model.loss in LINKS else "scores"
    steps = ["margins", *(f"link_{number}" for number in range(1, len(links))), output.name]
    for link, before, after in zip(links, steps, steps[1:]):
        axis = {"axis": 1} if link == "Softmax" else {}
        graph.graph.node.append(onnx.helper.make_node(link, [before], [after], **axis))
    onnx.checker.check_model(graph)
    content: bytes = graph.SerializeToString()
    return content
