"""Common checks of a model before any format writes it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.data.rows.container import shortest
from hogwild.errors import InputError, UsageError
from hogwild.problems.linear.model import LinearModel


@dataclass(frozen=True)
class Asked:
    """How to write: options of :func:`hogwild.interchange.export_model`, and the name of the file for the notes."""

    bare: bool = False
    zero_based: bool = False
    path: str = "FILE"


def needed(package: str, what: str) -> Any:
    """Import and return the optional package ``package``.

    Raises
    ------
    UsageError
        If it is not installed; the message says how to install it, and what works without it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        root = package.partition(".")[0]
        raise UsageError(
            f"{what} needs {root} ({error}): pip install 'hogwild[export]', or take npz, which needs nothing"
        ) from None


def check_prepared(model: LinearModel, what: str, bare: bool, scales: tuple[str, ...] = ()) -> None:
    """Raise InputError if rows need a preparation that ``what`` cannot do and ``bare`` does not leave out.

    ``scales`` are the normalisations that it can do.
    """
    if bare:
        return
    if model.hash_bits is not None:
        raise InputError(
            f"features are hashed to 2^{model.hash_bits}, which {what} cannot do: take npz, or hash the rows yourself "
            f"(hogwild convert --hash-bits {model.hash_bits}) and add --bare"
        )
    if model.normalize not in ("none", *scales):
        raise InputError(
            f"rows are scaled to length one (normalize {model.normalize}), which {what} cannot do: take sklearn or "
            "npz, or scale the rows yourself and add --bare"
        )


def check_finite(model: LinearModel) -> None:
    """Raise InputError for weights that other programs could not read."""
    for name, array in (("weights", model.coef_), ("intercept", model.intercept_)):
        if not np.isfinite(array).all():
            raise InputError(f"{name}: not all are finite: its training diverged")


def whole_labels(model: LinearModel, what: str, bits: int) -> list[int]:
    """Return the labels as integers of ``bits`` bits.

    Raises
    ------
    InputError
        The message names the first that is not such an integer.
    """
    for label in model.labels:
        if label != int(label) or not -(2 ** (bits - 1)) <= label < 2 ** (bits - 1):
            raise InputError(f"label {shortest(label)}: {what} has whole numbers of {bits} bits: take sklearn or npz")
    return [int(label) for label in model.labels]
