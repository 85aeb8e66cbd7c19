"""Models of other programs: writes a trained model as a file of another program, and reads such files.

A written file predicts what hogwild predicts, or nothing is written. A format that cannot hold a part of the model
(rows scaled to length one, hashed features, labels that are not whole numbers) refuses it in one line that says what to
do; a format that holds the margins but not what follows from them says so in the notes. Files may come from anywhere,
so reading runs none of their content and takes memory in proportion to their size.

A format is one module with ``encode(model, asked)`` and ``decode(path, given)``, and a row in ``FORMATS``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hogwild.errors import InputError, UsageError, expected_one_of, nearest
from hogwild.interchange.reading import GivenModel
from hogwild.interchange.writing import Asked
from hogwild.methods import LOSSES
from hogwild.model_file import write_atomically
from hogwild.problems.linear.model import LinearModel

__all__ = ["FORMATS", "Format", "export_model", "import_model"]


@dataclass(frozen=True)
class Format:
    """Description of a format.

    Attributes
    ----------
    title : str
        Description of its files.
    module : str
        Module that reads and writes it, imported when needed.
    linear_only : bool
        Whether it can hold linear models only.
    options : tuple of str
        The options of :func:`import_model` and :func:`export_model` that apply to it.
    """

    title: str
    module: str
    linear_only: bool = True
    options: tuple[str, ...] = ("bare",)


FORMATS = {
    "sklearn": Format("a fitted scikit-learn estimator in skops' format", "hogwild.interchange.sklearn"),
    "vw": Format("text of Vowpal Wabbit", "hogwild.interchange.vw", options=("bare", "zero_based", "loss", "labels")),
    "liblinear": Format("a LIBLINEAR model", "hogwild.interchange.liblinear"),
    "npz": Format("NumPy arrays", "hogwild.interchange.npz", False, ("loss", "labels")),
    "onnx": Format("an ONNX graph", "hogwild.interchange.onnx"),
}
#: Other names in use for the formats.
ALIASES = {"scikit-learn": "sklearn", "scikit": "sklearn", "skops": "sklearn", "vowpal-wabbit": "vw", "numpy": "npz"}


def export_model(
    model: Any, path: str | Path, to: str, *, bare: bool = False, zero_based: bool = False, name: str = "the model"
) -> list[str]:
    """Write ``model`` to ``path`` as a file of another program.

    Parameters
    ----------
    model : LinearModel, an estimator that has one (``to_model``), or, for ``npz``, a model of any problem
    path : str or Path
        An existing file is replaced at the end, or left unchanged on an error.
    to : str
        One of ``FORMATS``.
    bare : bool
        Leave out the preparation of a row before its margin (hashing its features, scaling it to length one), if the
        format cannot hold it; the user of the file must then do it.
    zero_based : bool
        ``vw``: the model's first feature is number 0, not 1 as in svmlight text.
    name : str
        Name of the model in errors.

    Returns
    -------
    list of str
        Notes on the file: how to use it, and what it does not hold.

    Raises
    ------
    UsageError
        For an unknown format, an option that it does not have, or a format whose package is not installed.
    InputError
        If the format cannot hold the model.
    OutputError
        If the file cannot be written; no partial file is left.
    """
    chosen = choose(to, {"bare": bare, "zero_based": zero_based}, "--to")
    model = model.to_model() if hasattr(model, "to_model") else model
    if not hasattr(model, "to_file"):
        raise UsageError(f"{name}: is a {type(model).__name__}: expected a model of hogwild")
    if chosen.linear_only and not isinstance(model, LinearModel):
        raise UsageError(f"{name}: is no linear model, and only --to npz holds another")
    try:
        content, notes = _module(chosen).encode(model, Asked(bare, zero_based, str(path)))
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    write_atomically(Path(path), content)
    return list(notes)


def import_model(
    path: str | Path,
    source: str,
    *,
    loss: str | None = None,
    labels: list[float] | None = None,
    zero_based: bool = False,
) -> Any:
    """Read the model in a file of another program; it predicts what that program does with the same rows.

    Weights become float32. Labels are put in ascending order; where margins are exactly equal the first label is
    predicted, whichever it was in that program.

    Parameters
    ----------
    path : str or Path
    source : str
        One of ``FORMATS``.
    loss : str, optional
        Meaning of the margins, for ``vw`` and for an ``npz`` without a header, whose files do not say: with ``log``
        they give probabilities. Default: what the file says, else ``squared-error`` (``hinge`` if there are classes).
    labels : list of float, optional
        Values of the classes, in the order of the file, if it does not state them. Default: -1 and 1, or 1 to K.
    zero_based : bool
        ``vw``: its feature 0, rather than 1, is the model's first.

    Raises
    ------
    UsageError
        For an unknown format, an option that it does not have, or a format whose package is not installed.
    InputError
        One line naming the file, and the line of text, for any fault in it.
    """
    chosen = choose(source, {"loss": loss, "labels": labels, "zero_based": zero_based}, "--from")
    if loss is not None and loss not in LOSSES:
        raise UsageError(f"loss {loss!r}: {expected_one_of(LOSSES, loss)}")
    return _module(chosen).decode(Path(path), GivenModel(loss, labels, zero_based))


def choose(name: str, options: dict[str, Any], option: str) -> Format:
    """Return the format called ``name``, after checking that it has all given ``options``."""
    if name not in FORMATS:
        close = nearest(name, FORMATS, aliases=ALIASES)
        raise UsageError(f"{option} {name}: expected one of {', '.join(FORMATS)}{close}")
    for given, value in options.items():
        if value and given not in FORMATS[name].options:
            raise UsageError(f"--{given.replace('_', '-')} means nothing to {option} {name}: leave it out")
    return FORMATS[name]


def _module(chosen: Format) -> Any:
    return importlib.import_module(chosen.module)
