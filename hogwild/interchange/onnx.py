"""ONNX graphs of linear models, by skl2onnx: dense rows ``X`` (n, width) float32 in, labels and scores out.

skl2onnx converts the linear part, ``LinearClassifier`` or ``LinearRegressor`` and a ``Normalizer`` for rows of length
one, and the step from margins to probabilities is added here: skl2onnx's own forms take the label from rounded
probabilities, or compute them as 1 - p in float32, and are wrong for several classes that are all unlikely. For log
loss the probabilities are ``softmax(-softplus(-margin))``, the logistic functions over their sum, at any margin.

Margins are sums in float32, so predictions agree to about 1e-6 of ``sum |w x|``. Graphs of other programs are read if
they are such a node with at most a Normalizer before it; everything after it only decides what its margins mean.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import InputError
from hogwild.interchange.reading import GivenModel, assemble
from hogwild.interchange.writing import Asked, check_finite, check_prepared, needed, whole_labels
from hogwild.methods import LABEL_LOSSES, LOSSES
from hogwild.problems.linear.model import LinearModel

OPSET = {"": 17, "ai.onnx.ml": 3}  # supported by runtimes from 2022 on
MOST_BYTES = 2**31 - 2**20  # limit of a protobuf message
PROPERTY = "hogwild"
LINEAR = ("LinearClassifier", "LinearRegressor")
BEFORE = ("Cast", "Identity", "Normalizer")
#: What may follow without changing the label, or the value except by an exponential.
AFTER = {
    "LinearClassifier": ("Neg", "Softplus", "Softmax", "ZipMap", "ArrayFeatureExtractor", "Reshape"),
    "LinearRegressor": ("Exp", "Reshape"),
}


def encode(model: LinearModel, asked: Asked) -> tuple[bytes, list[str]]:
    """Return the content of an ONNX file, and notes on it."""
    skl2onnx, onnx = needed("skl2onnx", "--to onnx"), needed("onnx", "--to onnx")
    check_prepared(model, "a linear ONNX model", asked.bare, scales=("l2",))
    check_finite(model)
    size = 4 * model.coef_.size * (2 if len(model.coef_) == 1 and model.labels else 1)
    if size > MOST_BYTES:
        raise InputError(f"{size / 2**30:.1f} GiB of weights: an ONNX file holds 2 GiB: take npz")
    if model.width == 0:
        raise InputError("no features, which an ONNX graph has to have: take npz")
    whole_labels(model, "ONNX", 64)
    inputs = [("X", skl2onnx.common.data_types.FloatTensorType([None, model.width]))]
    pipeline, last = _estimator(model, asked.bare)
    options = {id(last): {"zipmap": False, "raw_scores": True}} if model.labels else None
    graph = skl2onnx.to_onnx(pipeline, initial_types=inputs, options=options, target_opset=OPSET)
    _finish(onnx, graph.graph, model)
    graph.metadata_props.add(key=PROPERTY, value=json.dumps({"loss": model.loss, "loss_param": model.loss_param}))
    onnx.checker.check_model(graph)
    outputs = ", ".join(output.name for output in graph.graph.output)
    notes = [f"its input is X, dense rows of float32 (n, {model.width}); its outputs are {outputs}"]
    if model.loss == "modified-huber":
        notes.append("the probabilities of loss modified-huber are left out: scores are margins")
    return graph.SerializeToString(), notes


def _estimator(model: LinearModel, bare: bool) -> tuple[Any, Any]:
    """Return ``(pipeline, its last step)``, which hold the arrays and which skl2onnx converts to a single node."""
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer

    coef, intercept = model.coef_.astype(np.float64), model.intercept_.astype(np.float64)
    if model.labels:
        last: Any = LogisticRegression()
        if len(coef) == 2:
            raise InputError("two classes of a margin each: take npz")
        last.classes_, last.coef_, last.intercept_ = np.array(model.labels).astype(np.int64), coef, intercept
    else:
        last = LinearRegression()
        last.coef_, last.intercept_ = coef[0], float(intercept[0])
    last.n_features_in_ = model.width
    if model.normalize == "none" or bare:
        return last, last
    return make_pipeline(Normalizer(norm=model.normalize), last), last


def _finish(onnx: Any, graph: Any, model: LinearModel) -> None:
    """Name the outputs ``label`` and ``scores`` (or ``prediction``), and add what follows from the margins."""
    node = next(node for node in graph.node if node.op_type in LINEAR)
    margins = node.output[-1]
    chains = {"log": ("Neg", "Softplus", "Neg", "Softmax"), "softmax": ("Softmax",), "poisson": ("Exp",)}
    result = "prediction" if not model.labels else "probabilities" if model.loss in ("log", "softmax") else "scores"
    steps = chains.get(model.loss, ("Identity",))
    if model.loss == "softmax" and len(model.coef_) == 1:  # scores are -m and m, as for log loss
        steps = chains["log"]
    node.output[-1] = "margins"
    before = "margins"
    for number, step in enumerate(steps, 1):
        after = result if number == len(steps) else f"margins_{number}"
        graph.node.append(onnx.helper.make_node(step, [before], [after], **({"axis": 1} if step == "Softmax" else {})))
        before = after
    output = next(output for output in graph.output if output.name == margins)
    output.name = result


# -- reading ----------------------------------------------------------------------------------------------------------


def decode(path: Path, given: GivenModel) -> LinearModel:
    """Return the model in an ONNX file."""
    onnx = needed("onnx", "--from onnx")
    try:
        graph = onnx.load_model_from_string(path.read_bytes())  # from memory: a file may refer to other files
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf has its own errors
        raise InputError(f"{path}: not an ONNX file: {' '.join(str(error).split())[:120]}") from error
    try:
        return _read(path, onnx, graph)
    except InputError:
        raise
    except Exception as error:  # any error from a damaged graph: bytes as text, attributes without a type
        said = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: not a usable ONNX graph: {type(error).__name__}: {said}") from error


def _read(path: Path, onnx: Any, graph: Any) -> LinearModel:
    nodes = [node for node in graph.graph.node if node.op_type in LINEAR]
    if len(nodes) != 1:
        kinds = ", ".join(dict.fromkeys(node.op_type for node in graph.graph.node)) or "nothing"
        raise InputError(f"{path}: a graph of {kinds[:200]}: expected one of {' or '.join(LINEAR)}")
    node = nodes[0]
    normalize = _before(path, graph.graph, node)
    strange = sorted({other.op_type for other in graph.graph.node} - {*LINEAR, *BEFORE, *AFTER[node.op_type]})
    if strange:
        raise InputError(f"{path}: {', '.join(strange)[:200]} with {node.op_type}: expected it alone")
    exponential = any(other.op_type == "Exp" for other in graph.graph.node)
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    meant = _property(graph)
    if node.op_type == "LinearRegressor":
        return _regressor(path, attributes, exponential, normalize, meant)
    return _classifier(path, attributes, normalize, meant)


def _before(path: Path, graph: Any, node: Any) -> str:
    """Return the preparation of rows before ``node``: a value of ``normalize``."""
    makers = {output: other for other in graph.node for output in other.output}
    normalize, name = "none", node.input[0] if node.input else ""
    for _ in range(len(graph.node)):
        maker = makers.get(name)
        if maker is None:
            return normalize
        norm = next((entry.s for entry in maker.attribute if entry.name == "norm"), b"MAX")
        scales = maker.op_type == "Normalizer"
        if maker.op_type not in BEFORE or not maker.input or (scales and (norm != b"L2" or normalize != "none")):
            what = f"{maker.op_type} {norm.decode(errors='replace')}" if scales else maker.op_type
            raise InputError(f"{path}: {what[:60]} before {node.op_type}: expected at most a Normalizer L2")
        normalize, name = "l2" if scales else normalize, maker.input[0]
    raise InputError(f"{path}: a graph that goes round")


def _property(graph: Any) -> dict[str, Any]:
    """Return what hogwild's export recorded about itself, such as its loss; empty for other files."""
    for entry in graph.metadata_props:
        if entry.key == PROPERTY:
            try:
                meant = json.loads(entry.value)
            except ValueError:
                return {}
            loss, param = (meant.get("loss"), meant.get("loss_param")) if isinstance(meant, dict) else (None, None)
            if loss in LOSSES and isinstance(param, int | float):
                return {"loss": loss, "loss_param": float(param)}
    return {}


def _floats(attributes: dict[str, Any], name: str) -> np.ndarray:
    return np.array(attributes.get(name, []), np.float64)


def _matrix(path: Path, attributes: dict[str, Any], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients (rows, width) and intercepts (rows,)."""
    coef, intercept = _floats(attributes, "coefficients"), _floats(attributes, "intercepts")
    if coef.ndim != 1 or coef.size == 0 or coef.size % rows:
        raise InputError(f"{path}: {coef.size} coefficients for {rows} margins")
    if intercept.size not in (0, rows):
        raise InputError(f"{path}: {intercept.size} intercepts for {rows} margins")
    return coef.reshape(rows, -1), intercept if intercept.size else np.zeros(rows)


def _regressor(
    path: Path, attributes: dict[str, Any], exponential: bool, normalize: str, meant: dict[str, Any]
) -> LinearModel:
    transform = attributes.get("post_transform", b"NONE")
    if attributes.get("targets", 1) != 1 or transform != b"NONE":
        raise InputError(f"{path}: LinearRegressor with several targets or a transform: expected one, and none")
    coef, intercept = _matrix(path, attributes, 1)
    loss = "poisson" if exponential else meant.get("loss", "squared-error")
    if loss in LABEL_LOSSES or (loss == "poisson") != exponential:
        raise InputError(f"{path}: LinearRegressor of loss {loss}")
    return assemble(path, coef, intercept, loss, [], meant.get("loss_param", 0.0), normalize)


def _classifier(path: Path, attributes: dict[str, Any], normalize: str, meant: dict[str, Any]) -> LinearModel:
    if attributes.get("classlabels_strings"):
        raise InputError(f"{path}: labels are text: hogwild's are numbers")
    labels = _floats(attributes, "classlabels_ints").tolist()
    if len(labels) < 2:
        raise InputError(f"{path}: LinearClassifier of {len(labels)} labels: expected two or more")
    transform = attributes.get("post_transform", b"NONE")
    one = len(labels) == 2 and _floats(attributes, "intercepts").size == 1
    coef, intercept = _matrix(path, attributes, 1 if one else len(labels))
    loss = {b"LOGISTIC": "log", b"SOFTMAX": "softmax"}.get(transform) or meant.get("loss") or "hinge"
    if loss == "poisson":  # all other losses predict a class
        raise InputError(f"{path}: LinearClassifier of loss {loss}")
    if len(coef) == 2:
        opposite = np.array_equal(coef[0], -coef[1]) and np.array_equal(intercept[0], -intercept[1])
        if opposite and transform != b"SOFTMAX":  # as skl2onnx writes one margin
            coef, intercept = coef[1:], intercept[1:]
        elif transform == b"LOGISTIC":
            raise InputError(f"{path}: two logistic functions for two classes: expected opposite ones")
        else:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        loss = "log" if loss == "softmax" else loss
    return assemble(path, coef, intercept, loss, labels, meant.get("loss_param", 0.0), normalize)
