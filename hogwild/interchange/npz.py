"""Plain NumPy arrays: all arrays of a model of any problem, and everything else as JSON in the array ``hogwild``.

Arrays and header are those of hogwild's own model files, so nothing is left out, and 10 lines in any language can read
the model. ``numpy.load`` gives ``coef`` (1 or K, width) and ``intercept``; ``json.loads(str(file["hogwild"]))`` says
what they mean. Hashed features and row lengths are in the header; README describes the hash.

An archive without a header is read too, if it has ``coef`` and ``intercept`` (or ``coef_``, ``intercept_``, and
``classes_`` of a classifier): ``numpy.savez`` makes such files from the attributes of any linear estimator.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import LARGEST_FLOAT32
from hogwild.errors import InputError, UsageError
from hogwild.interchange.archives import opened, read_array, write_array
from hogwild.interchange.reading import GivenModel, assemble, check_finite
from hogwild.interchange.writing import Asked
from hogwild.json_rows import plain
from hogwild.methods import LABEL_LOSSES, LOSSES, PROBLEMS, located
from hogwild.problems.linear.model import LinearModel

HEADER, SCHEMA = "hogwild", 1
NAMES = {
    "coef": "coef",
    "coef_": "coef",
    "intercept": "intercept",
    "intercept_": "intercept",
    "classes": "classes",
    "classes_": "classes",
}


def encode(model: Any, asked: Asked) -> tuple[bytes, list[str]]:
    """Return the content of an archive; only the last row of the history is included."""
    arrays, header = model.to_file()
    if HEADER in arrays:
        raise InputError(f"an array of the model is called {HEADER}, as the header is")
    header = {"schema": SCHEMA, **header, "history": header["history"][-1:]}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        write_array(archive, HEADER, np.array(json.dumps(plain(header), sort_keys=True)))
        for name in sorted(arrays):
            write_array(archive, name, arrays[name])
    return content.getvalue(), []


def decode(path: Path, given: GivenModel) -> Any:
    """Return the model in an archive, with or without a header."""
    with opened(path, "an npz archive") as archive:
        arrays = {member.filename.removesuffix(".npy"): read_array(archive, member) for member in archive.infolist()}
    if HEADER not in arrays:
        return _plain_arrays(path, arrays, given)
    if given.loss is not None or given.labels is not None:
        raise UsageError(f"{path}: says itself what its loss and labels are: leave --loss and --labels out")
    header = _header(path, arrays.pop(HEADER))
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: {key} of type {array.dtype}: expected real numbers")
    try:
        model = located(PROBLEMS[header["problem"]]["model"]).from_file(arrays, header, path)
    except OverflowError as error:
        raise InputError(f"{path}: not a usable hogwild model: {error}") from error
    if header["problem"] == "linear":
        _check_linear(path, model)
    return model


def _check_linear(path: Path, model: LinearModel) -> None:
    """Raise InputError for values that hogwild's own models never hold."""
    if model.loss not in LOSSES:
        raise InputError(f"{path}: loss {model.loss!r}: expected one of {', '.join(LOSSES)}")
    if model.loss in LABEL_LOSSES if not model.labels else model.loss == "poisson":
        raise InputError(f"{path}: loss {model.loss} with{'' if model.labels else 'out'} labels: expected the contrary")
    wrong = [number for number in (model.loss_param, *model.labels) if not abs(number) <= LARGEST_FLOAT32]
    if wrong:
        raise InputError(f"{path}: a label or loss_param is {wrong[0]:g}: expected a number that fits float32")
    check_finite(path, model.coef_, model.intercept_)


def _header(path: Path, text: np.ndarray) -> dict[str, Any]:
    try:
        header = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {HEADER} is no JSON: {error}") from None
    if not isinstance(header, dict) or str(header.get("problem")) not in PROBLEMS:
        raise InputError(f"{path}: {HEADER} is not the header of a model: this version knows {', '.join(PROBLEMS)}")
    if header.pop("schema", None) != SCHEMA:
        raise InputError(f"{path}: of another format than {SCHEMA}, which this version reads")
    return header


def _plain_arrays(path: Path, arrays: dict[str, np.ndarray], given: GivenModel) -> Any:
    """Return a linear model from a scikit-learn estimator's attributes, whatever program saved them."""
    found: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name not in NAMES or NAMES[name] in found or array.dtype.kind not in "iuf" or array.ndim > 2:
            known = "coef, intercept and classes (numbers), or the header of hogwild"
            raise InputError(f"{path}: {name}, {array.dtype} of shape {array.shape}: expected {known}")
        found[NAMES[name]] = array
    if "coef" not in found:
        raise InputError(f"{path}: no coef: expected it, intercept, and classes of a classifier")
    coef = np.atleast_2d(found["coef"])
    intercept = found.get("intercept", np.zeros(1))
    if intercept.size == 1 and len(coef) > 1 and not intercept.any():  # fit_intercept=False
        intercept = np.zeros(len(coef))
    labels = given.labels or found.get("classes", np.empty(0)).ravel().tolist()
    loss = given.loss or ("hinge" if labels else "squared-error")
    if not labels and loss in LABEL_LOSSES:
        labels = [-1.0, 1.0] if len(coef) == 1 else list(range(1, len(coef) + 1))
    if labels and loss not in LABEL_LOSSES:
        raise UsageError(f"{path}: has classes: expected a loss of {', '.join(LABEL_LOSSES)}, not {loss}")
    return assemble(path, coef, intercept, loss, labels)
