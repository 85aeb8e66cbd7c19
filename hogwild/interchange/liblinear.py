"""LIBLINEAR's text models: a header with ``solver_type``, ``nr_class`` and so on, then one line of weights per feature.

Only the predictions of ``predict`` matter, and the solver type only tells it whether to give probabilities, classes or
real values; so a loss that LIBLINEAR lacks is written as a solver that predicts alike, with a note. The first label is
the positive one there, the second here. Feature ``j`` of svmlight text is ``j`` in both.

Fan, Chang, Hsieh, Wang, Lin: LIBLINEAR: a library for large linear classification, JMLR 9 (2008).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import InputError
from hogwild.interchange.reading import GivenModel, assemble, check_width, number, text_lines, whole
from hogwild.interchange.writing import Asked, check_finite, check_prepared, whole_labels
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.model import PROBABILITIES, LinearModel

#: Solvers, and the loss with the same predictions. MCSVM_CS takes the class of the largest margin, even for two.
SOLVERS = {
    "L2R_LR": "log",
    "L2R_LR_DUAL": "log",
    "L1R_LR": "log",
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    "MCSVM_CS": "hinge",
    "L2R_L2LOSS_SVC": "squared-hinge",
    "L2R_L2LOSS_SVC_DUAL": "squared-hinge",
    "L1R_L2LOSS_SVC": "squared-hinge",
    "L2R_L2LOSS_SVR": "squared-epsilon-insensitive",
    "L2R_L2LOSS_SVR_DUAL": "squared-epsilon-insensitive",
    "L2R_L1LOSS_SVR_DUAL": "epsilon-insensitive",
}
WRITTEN = {
    "log": "L2R_LR",
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "squared-hinge": "L2R_L2LOSS_SVC",
    "modified-huber": "L2R_L1LOSS_SVC_DUAL",
    "perceptron": "L2R_L1LOSS_SVC_DUAL",
    "softmax": "MCSVM_CS",
    "squared-epsilon-insensitive": "L2R_L2LOSS_SVR",
    "epsilon-insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared-error": "L2R_L2LOSS_SVR",
    "huber": "L2R_L2LOSS_SVR",
}
KEYS = ("solver_type", "nr_class", "label", "nr_feature", "bias", "w")


def encode(model: LinearModel, asked: Asked) -> tuple[bytes, list[str]]:
    """Return the content of a model file, and notes on it."""
    check_prepared(model, "a LIBLINEAR model", asked.bare)
    check_finite(model)
    labels = whole_labels(model, "LIBLINEAR", 32)
    coef, intercept, binary = model.coef_, model.intercept_, len(model.coef_) == 1 and len(labels) == 2
    if model.loss == "poisson":
        raise InputError("loss poisson predicts exp(margin), which LIBLINEAR cannot: take sklearn, onnx or npz")
    solver = "L2R_LR" if model.loss == "softmax" and binary else WRITTEN[model.loss]
    if labels and model.loss not in LABEL_LOSSES:  # a least-squares classifier, as in scikit-learn
        solver = WRITTEN["hinge"]
    if len(coef) == 2:  # other readers take two rows for two classes as Crammer and Singer's form
        solver = "MCSVM_CS"
    has_bias = bool(intercept.any())
    lines = [f"solver_type {solver}", f"nr_class {max(len(labels), 2)}"]
    if labels:
        lines.append("label " + " ".join(map(str, reversed(labels) if binary else labels)))
    lines += [f"nr_feature {model.width}", f"bias {1 if has_bias else -1}", "w"]
    weights = np.column_stack((coef, intercept)) if has_bias else coef
    lines += [" ".join([f"{weight:.9g}" for weight in row]) for row in weights.T.tolist()]
    notes = []
    if model.loss in PROBABILITIES and solver != "L2R_LR":
        notes.append(f"LIBLINEAR has no probabilities of loss {model.loss}: it predicts the same labels")
    return "\n".join([*lines, ""]).encode(), notes


def decode(path: Path, given: GivenModel) -> LinearModel:
    """Return the model in a file."""
    with text_lines(path) as lines:
        return _read(path, lines)


def _read(path: Path, lines: Iterator[tuple[int, str]]) -> LinearModel:
    facts = _header(path, lines)
    line, solver = facts["solver_type"]
    if solver not in SOLVERS:
        raise InputError(f"{path}:{line}: solver_type {solver[:40]!r}: expected one of {', '.join(SOLVERS)}")
    features, classes = (whole(facts[key][1], path, facts[key][0], key) for key in ("nr_feature", "nr_class"))
    labels = [number(word, path, facts["label"][0]) for word in facts["label"][1].split()] if "label" in facts else []
    if ("label" in facts) == (SOLVERS[solver] in ("epsilon-insensitive", "squared-epsilon-insensitive")):
        raise InputError(f"{path}: {solver} with{'' if labels else 'out'} labels: expected the contrary")
    if labels and len(labels) != classes:
        raise InputError(f"{path}:{facts['label'][0]}: {len(labels)} labels, but nr_class is {classes}")
    bias = number(facts["bias"][1], path, facts["bias"][0])
    columns = classes if labels and (classes != 2 or solver == "MCSVM_CS") else 1
    weights = _weights(path, lines, features + (bias >= 0), columns)
    intercept = weights[:, -1] * bias if bias >= 0 else np.zeros(columns)
    coef = weights[:, :features]
    if labels and classes == 2:  # the first is positive; of two margins the larger one counts
        labels = labels[::-1]
        if columns == 2:
            coef, intercept = coef[:1] - coef[1:], intercept[:1] - intercept[1:]
    return assemble(path, coef, intercept, SOLVERS[solver], labels)


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> dict[str, tuple[int, str]]:
    """Return ``{key: (line, value)}`` up to the line ``w``."""
    facts: dict[str, tuple[int, str]] = {}
    for line, text in lines:
        key, _, value = text.strip().partition(" ")
        if not facts and key != "solver_type":
            raise InputError(f"{path}:{line}: not a LIBLINEAR model: expected solver_type first, got {text[:40]!r}")
        if key not in KEYS or key in facts:
            what = f"{key[:40]} for the second time" if key in facts else f"{key[:40]!r}"
            raise InputError(f"{path}:{line}: {what}: expected one of {', '.join(KEYS)}")
        facts[key] = line, value.strip()
        if key == "w":
            break
    lacking = [key for key in KEYS if key not in facts and key != "label"]
    if lacking:
        raise InputError(f"{path}: not a whole LIBLINEAR model: no {', '.join(lacking)}")
    return facts


def _weights(path: Path, lines: Iterator[tuple[int, str]], rows: int, columns: int) -> Any:
    """Return weights, (columns, rows) float64, from one line per row."""
    values, found = array("d"), 0
    for line, text in lines:
        words = text.split()
        if found == rows and not words:
            continue
        if found == rows:
            raise InputError(f"{path}:{line}: more weights than the {rows:,} lines that nr_feature and bias call for")
        if len(words) != columns:
            raise InputError(f"{path}:{line}: {len(words)} weights, expected {columns}")
        values.extend([number(word, path, line) for word in words])
        found += 1
    if found != rows:
        raise InputError(f"{path}: cut short: {found:,} lines of weights, nr_feature and bias call for {rows:,}")
    check_width(path, rows, columns)
    return np.frombuffer(values, np.float64).reshape(rows, columns).T
