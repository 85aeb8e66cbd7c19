"""Models as files of other programs: NumPy's ``.npz`` and scikit-learn (by skops) both ways, ONNX out.

A written file predicts what hogwild predicts, or nothing is written: a format that cannot hold a part of the model
refuses it in one line that says what to do. Files may come from anywhere, and reading one runs none of its content.

An ``.npz`` holds the arrays and the JSON header of hogwild's own model file, the header in the array ``hogwild``, so it
holds a model of any problem, and ten lines in any language can read it. Without a header, an archive is a linear model
if it has the arrays ``coef_``, ``intercept_`` and, for a classifier, ``classes_``: ``np.savez`` makes one of the
attributes of any linear estimator.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.errors import InputError, UsageError, expected_one_of, reason_of
from hogwild.interchange.sklearn import in_order, load_skops, onnx_graph, skops_file
from hogwild.methods import LABEL_LOSSES, LOSSES, PROBLEMS, located
from hogwild.model_file import usable, write_atomically
from hogwild.problems.linear.model import LinearModel
from hogwild.rows_file import plain

__all__ = ["READ", "WRITTEN", "export_model", "import_model"]

WRITTEN = ("npz", "sklearn", "onnx")
READ = ("npz", "sklearn")
HEADER, SCHEMA = "hogwild", 1
ARRAYS = ("coef", "intercept", "classes")


def export_model(model: Any, path: str | Path, to: str, *, bare: bool = False) -> list[str]:
    """Write ``model`` to ``path`` as a file of another program.

    Parameters
    ----------
    model : LinearModel, an estimator that has one (``to_model``), or, for ``npz``, a model of any problem
    path : str or Path
        An existing file is replaced at the end, or left unchanged on an error.
    to : {"npz", "sklearn", "onnx"}
    bare : bool
        Leave out the preparation of a row before its margin (hashing its features, scaling it to length one), if the
        format cannot hold it; the user of the file must then do it.

    Returns
    -------
    list of str
        Notes on how to use the file.

    Raises
    ------
    UsageError
        For an unknown format, or one whose package is not installed.
    InputError
        If the format cannot hold the model.
    OutputError
        If the file cannot be written; no partial file is left.
    """
    if to not in WRITTEN:
        raise UsageError(f"--to {to}: {expected_one_of(WRITTEN, to)}")
    model = model.to_model() if hasattr(model, "to_model") else model
    if to == "npz":
        write_atomically(Path(path), _npz(model))
        return []
    if type(model) is not LinearModel:
        raise UsageError(f"--to {to} holds a linear model; got a {type(model).__name__}: take npz")
    content, notes = (onnx_graph if to == "onnx" else skops_file)(model, bare)
    write_atomically(Path(path), content)
    return notes


def import_model(path: str | Path, source: str, *, loss: str | None = None, labels: list[float] | None = None) -> Any:
    """Read the model in a file of another program; it predicts what that program does with the same rows.

    Weights become float32. Labels are put in ascending order; where margins are exactly equal the first label is
    predicted, whichever it was in that program.

    Parameters
    ----------
    path : str or Path
    source : {"npz", "sklearn"}
    loss : str, optional
        Meaning of the margins of an ``npz`` without a header: with ``log`` they give probabilities. Default:
        ``squared-error``, or ``hinge`` if there are classes.
    labels : list of float, optional
        Labels of the classes of such an ``npz``, in its order. Default: its ``classes_``, else -1 and 1, or 1 to K.

    Raises
    ------
    UsageError
        For an unknown format, or one whose package is not installed.
    InputError
        One line naming the file, for any fault in it.
    """
    if source not in READ:
        raise UsageError(f"--from {source}: {expected_one_of(READ, source)}")
    if loss not in (None, *LOSSES):
        raise UsageError(f"loss {loss!r}: {expected_one_of(LOSSES, loss)}")
    arrays, header = _load_npz(Path(path)) if source == "npz" else ({}, None)
    if (source == "sklearn" or header) and (loss or labels):
        raise UsageError(f"{path}: says itself what its loss and labels are: leave --loss and --labels out")
    if header:
        return located(PROBLEMS[header["problem"]].model).from_file(arrays, header, path)
    if source == "sklearn":
        estimator = load_skops(Path(path))
        with usable(path):
            return LinearModel.from_sklearn(estimator)
    with usable(path):
        return _plain_arrays(arrays, loss, labels)


def _npz(model: Any) -> bytes:
    """Return the content of an archive; of the history it has the last row only."""
    arrays, header = model.to_file()
    header = {"schema": SCHEMA, **header, "history": header["history"][-1:]}
    content = io.BytesIO()
    np.savez(content, hogwild=json.dumps(plain(header), sort_keys=True), **arrays)
    return content.getvalue()


def _load_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """Return the arrays of an archive, and its header if it has one."""
    try:
        with path.open("rb") as file:  # NumPy leaves a damaged one open
            arrays = dict(np.load(file, allow_pickle=False))
        header = json.loads(str(arrays.pop(HEADER))) if HEADER in arrays else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from error
    except Exception as error:  # whatever NumPy, zipfile, zlib and json raise for a damaged file
        raise InputError(f"{path}: not an npz archive: {reason_of(error)}") from error
    if header is not None and (header.get("problem") not in PROBLEMS or header.pop("schema", None) != SCHEMA):
        raise InputError(f"{path}: its header is not one of format {SCHEMA}, which this version reads")
    return arrays, header


def _plain_arrays(arrays: dict[str, np.ndarray], loss: str | None, labels: list[float] | None) -> LinearModel:
    """Return a linear model from a scikit-learn estimator's attributes, whatever program saved them."""
    plain = {name.removesuffix("_"): array for name, array in arrays.items()}
    if "coef" not in plain or not set(plain) <= set(ARRAYS):
        raise InputError(f"expected the arrays {', '.join(ARRAYS)}; got {', '.join(arrays)}")
    coef = np.atleast_2d(plain["coef"])
    labels = labels or plain.get("classes", np.empty(0)).tolist()
    loss = loss or ("hinge" if labels else "squared-error")
    if not labels and loss in LABEL_LOSSES:
        labels = [-1.0, 1.0] if len(coef) == 1 else list(range(1, len(coef) + 1))
    if labels and loss not in LABEL_LOSSES:
        raise InputError(f"has classes: expected a loss of {', '.join(LABEL_LOSSES)}; got {loss}")
    return LinearModel(**in_order(coef, plain.get("intercept", np.zeros(1)), loss, labels))
