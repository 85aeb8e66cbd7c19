"""Common part of reading all formats: lines of text, numbers, and a checked model at the end.

Nothing is allocated because a file claims a size. Widths and counts follow from what was read, and are then compared
with what the file states.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from hogwild import machine
from hogwild.config import LARGEST_FLOAT32
from hogwild.data.rows.container import INDEX_LIMIT, shortest
from hogwild.errors import HogwildError, InputError
from hogwild.problems.linear.model import LinearModel

LINE_BYTES = 20 << 20
DENSE_BYTES = 24  # memory that a weight takes until it is in the model


@dataclass(frozen=True)
class GivenModel:
    """What the user states about a file: options of :func:`hogwild.interchange.import_model`."""

    loss: str | None = None
    labels: list[float] | None = None
    zero_based: bool = False


@contextlib.contextmanager
def text_lines(path: Path) -> Iterator[Iterator[tuple[int, str]]]:
    """Yield an iterator of ``(number, line)`` for the lines of a file, without line ends, numbered from 1.

    Raises
    ------
    InputError
        If the file cannot be read, or a line is not text.
    """
    try:
        with path.open("rb") as file:
            yield _decoded(path, file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _decoded(path: Path, file: IO[bytes]) -> Iterator[tuple[int, str]]:
    for at in itertools.count(1):
        line = file.readline(LINE_BYTES + 1)
        if not line:
            return
        if len(line) > LINE_BYTES:
            raise InputError(f"{path}:{at}: a line longer than {LINE_BYTES >> 20} MiB: not a text model")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path}:{at}: not text{_pickled(line)}") from None
        if "\0" in text:
            raise InputError(f"{path}:{at}: not text: a zero byte")
        yield at, text.rstrip("\r\n")


def _pickled(start: bytes) -> str:
    return " but a pickle, which could run code: it is not read" if start[:1] == b"\x80" else ""


def number(text: str, path: Path, line: int) -> float:
    """Return the number written in ``text``.

    Raises
    ------
    InputError
        If it is not a number, or does not fit float32.
    """
    try:
        value = float(text) if "_" not in text else math.nan  # only Python reads 1_000
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST_FLOAT32:
        raise InputError(f"{path}:{line}: {text[:40]!r}: expected a number that fits float32")
    return value


def whole(text: str, path: Path, line: int, what: str) -> int:
    """Return the nonnegative whole number written in ``text``.

    Raises
    ------
    InputError
    """
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InputError(f"{path}:{line}: {what} {text[:40]!r}: expected a whole number")
    return int(text)


def check_width(path: Path, width: int, rows: int = 1) -> None:
    """Raise InputError if ``rows`` of ``width`` weights are more than a model or this machine's memory can hold."""
    if width > INDEX_LIMIT:
        raise InputError(f"{path}: {width:,} features: expected at most {INDEX_LIMIT:,}")
    machine.check_memory(f"{path}: {rows} x {width:,} weights", width * rows * DENSE_BYTES)


def check_finite(path: Path, coef: np.ndarray, intercept: np.ndarray) -> None:
    """Raise InputError, naming the first, if a parameter is not finite in float32."""
    for name, array in (("weight of feature", coef), ("intercept of class", intercept)):
        wrong = ~(np.abs(array) <= LARGEST_FLOAT32)
        if wrong.any():
            raise InputError(f"{path}: {name} {int(np.argwhere(wrong)[0][-1]) + 1} is not a finite float32")


def assemble(
    path: Path,
    coef: Any,  # (1 or K, width)
    intercept: Any,  # (1 or K,)
    loss: str,
    labels: Sequence[float] = (),
    loss_param: float = 0.0,
    normalize: str = "none",
) -> LinearModel:
    """Return a model of what was read, with its classes in ascending order of their labels.

    ``labels`` are in the order of the rows; of two labels with one row, the second belongs to positive margins.

    Raises
    ------
    InputError
        One line naming the file, if labels repeat, counts do not fit, or a weight is not finite in float32.
    """
    coef = np.atleast_2d(np.asarray(coef, np.float64))
    intercept = np.asarray(intercept, np.float64).reshape(-1)
    values = [float(label) for label in labels]
    if values:
        if len(values) == 1:
            raise InputError(f"{path}: one class, {shortest(values[0])}: expected two or more")
        wrong = [label for label in values if not abs(label) <= LARGEST_FLOAT32]
        if wrong:
            raise InputError(f"{path}: label {wrong[0]:g}: expected a number that fits float32")
        again = [label for label, count in Counter(map(shortest, values)).items() if count > 1]
        if again:
            raise InputError(f"{path}: label {again[0]} stands for more than one class (labels are float32)")
        order = np.argsort(values, kind="stable")
        if len(coef) == 1 and len(values) == 2:
            sign = 1.0 if order[0] == 0 else -1.0
            coef, intercept = sign * coef, sign * intercept
        elif len(coef) == len(values):
            coef, intercept = coef[order], intercept[order] if len(intercept) == len(coef) else intercept
        values = [values[at] for at in order]
    check_finite(path, coef, intercept)
    try:
        return LinearModel(coef, intercept, loss, loss_param, values, normalize)
    except HogwildError as error:
        raise InputError(f"{path}: {error}") from error
