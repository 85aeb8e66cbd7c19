"""Vowpal Wabbit: reads its readable models, and writes examples from which it makes the model.

VW loads no text model, only its own undocumented binary one. But a step of plain SGD with rate 1/2 on the squared loss
moves the weight of a feature that was zero exactly to the example's label. So an export is one example per weight, in
VW's input format, and one run of ``vw`` over it (the notes have the command) makes the model. The constant is in every
example, so each but the last cancels it with a feature at the constant's own place and value -1; the last one sets it.
More than two classes are costs (``--csoaa``), minus the margins.

Features are numbers: VW takes a name of digits, outside a namespace, for its place among the 2^b weights. A readable
model (``--readable_model``, ``--invert_hash``) holds places only, with or without names, so rows for an imported model
are numbered as VW numbered theirs. It has six digits of a weight, so predictions agree to about 1e-6 of ``sum |w x|``.
A penalty that VW had not applied yet (it is lazy) is applied. VW clips real predictions to the range of labels it saw,
which hogwild does not do; it warns of this.
"""

from __future__ import annotations

import math
import re
import shlex
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hogwild.data.rows.container import shortest
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.interchange.reading import GivenModel, assemble, check_width, number, text_lines, whole
from hogwild.interchange.writing import Asked, check_finite, check_prepared
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.model import PROBABILITIES, LinearModel

CONSTANT = 11650396  # place of VW's constant, before truncation to b bits
MOST_BITS = 32
LINKS = {"log": "logistic", "poisson": "poisson"}
#: Options of a model that do not change the meaning of its weights; some only with one value.
HARMLESS = (
    "sgd",
    "adaptive",
    "normalized",
    "invariant",
    "bfgs",
    "learning_rate",
    "power_t",
    "initial_t",
    "l1",
    "l2",
    "bit_precision",
    "loss_function",
    "random_seed",
    "min_prediction",
    "max_prediction",
    "noconstant",
)
FIXED = {"hash": ("strings",), "hash_seed": ("0",), "rank": ("0",), "link": ("identity", "logistic", "poisson")}
CLASSES = ("oaa", "csoaa")
ENTRY = re.compile(
    r"(?:.*:)?(\d+):([^:\s\[]+)(?:\[\d+\])?(?:\s.*)?"
)  # [name:]place:weight, and state for further learning


def places(rows: int) -> int:
    """Return how many places VW keeps for the weights of a feature: their number, rounded up to a power of two."""
    return 1 << (rows - 1).bit_length()


def encode(model: LinearModel, asked: Asked) -> tuple[bytes, list[str]]:
    """Return examples, and the command that makes a model from them."""
    check_prepared(model, "a VW model", asked.bare)
    check_finite(model)
    shift, rows = 0 if asked.zero_based else 1, len(model.coef_)
    constant = bool(model.intercept_.any())
    bits = _bits(model.width + shift, rows, constant)
    cancel = f" {CONSTANT}:-1" if constant else ""

    def target(weights: list[float]) -> str:
        if rows == 1:
            return f"{weights[0]:.9g}"
        return " ".join(f"{place}:{-weight:.9g}" for place, weight in enumerate(weights, 1))

    used = np.flatnonzero(model.coef_.any(axis=0))
    examples = [
        f"{target(weights)} | {feature + shift}:1{cancel}"
        for feature, weights in zip(used.tolist(), model.coef_.T[used].tolist())
    ]
    examples.append(f"{target(model.intercept_.tolist())} |")
    options = f"-b {bits} --sgd -l 0.5 --power_t 0 --min_prediction -1e30 --max_prediction 1e30"
    options += "" if constant else " --noconstant"
    options += f" --csoaa {rows}" if rows > 1 else f" --link {LINKS[model.loss]}" if model.loss in LINKS else ""
    command = f"vw -d {shlex.quote(asked.path)} {options} -f {shlex.quote(asked.path + '.model')}"
    return "\n".join([*examples, ""]).encode(), [f"make VW's model of it: {command}", *_meaning(model, shift)]


def _meaning(model: LinearModel, shift: int) -> list[str]:
    """Return notes on the meaning of VW's predictions."""
    labels = [shortest(label) for label in model.labels]
    notes = [f"features are numbered from {shift}, as in {'svmlight text' if shift else 'zero-based text'}"]
    if len(model.coef_) > 1:
        notes.append(f"it predicts classes 1 to {len(labels)}, which are the labels {' '.join(labels)}")
    elif labels:
        what = f"the probability of {labels[1]}" if model.loss == "log" else f"a margin, above zero for {labels[1]}"
        notes.append(f"it predicts {what}")
    if model.loss in PROBABILITIES and not (len(model.coef_) == 1 and model.loss == "log"):
        notes.append(f"VW has no probabilities of loss {model.loss} here: margins and labels are the same")
    return notes


def _bits(width: int, rows: int, constant: bool) -> int:
    """Return the least b >= 18 whose 2^b places keep all features apart from each other and from the constant."""
    for bits in range(18, MOST_BITS + 1):
        features = (1 << bits) // places(rows)
        if width <= features and (not constant or CONSTANT % features >= width):
            return bits
    raise InputError(
        f"{width:,} features, and an intercept, which VW keeps at feature {CONSTANT:,}: take npz, or train without it"
    )


# -- readable models --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    """Header of a readable model; ``limits`` are the least and the largest prediction."""

    bits: int
    options: dict[str, str]
    limits: tuple[float, float]

    @property
    def classes(self) -> int:
        """Number of margins per row; 1 if there are no classes."""
        return int(next((self.options[name] for name in CLASSES if name in self.options), 1))


def decode(path: Path, given: GivenModel) -> LinearModel:
    """Return the model in a file of ``--readable_model`` or ``--invert_hash``."""
    shift = 0 if given.zero_based else 1
    with text_lines(path) as lines:
        header = _header(path, lines)
        place, weight = _entries(path, lines, header, shift)
    rows = header.classes
    coef, intercept = _dense(path, place, weight, header, shift)
    if "csoaa" in header.options:
        coef, intercept = -coef, -intercept
    link = header.options.get("link", "identity")
    loss = given.loss or {"logistic": "log", "poisson": "poisson"}.get(link) or ("hinge" if rows > 1 else None)
    labels = given.labels
    if labels is None and rows > 1:
        labels = [float(label) for label in range(1, rows + 1)]
    elif labels is None and loss in LABEL_LOSSES:
        labels = [-1.0, 1.0]
    loss = loss or ("hinge" if labels else "squared-error")
    low, high = header.limits
    if not labels and max(-low, high) < 1e30:
        said = f"VW keeps predictions within {low:g} and {high:g}, the labels it saw; hogwild does not"
        warnings.warn(f"{path}: {said}", HogwildWarning, stacklevel=3)
    if labels and loss not in LABEL_LOSSES:
        raise UsageError(f"labels go with loss {', '.join(LABEL_LOSSES)}, not with {loss}")
    if labels and len(labels) != max(rows, 2):
        raise UsageError(f"{len(labels)} labels for a model of {max(rows, 2)} classes")
    if not labels and rows > 1:
        raise UsageError("labels: expected one for each class")
    return assemble(path, coef, intercept, loss, labels or [])


def _header(path: Path, lines: Iterator[tuple[int, str]]) -> Header:
    """Read the header, up to the line ``:0`` or ``:1`` before the weights."""
    bits, options, limits = None, {}, {"Min label": -math.inf, "Max label": math.inf}
    for line, text in lines:
        if line == 1 and not text.startswith("Version "):
            raise InputError(f"{path}:1: not a readable model of VW: expected its version, got {text[:40]!r}")
        if re.fullmatch(r":[01]", text):
            break
        name, _, value = text.partition(":")
        if name == "bits":
            bits = whole(value.strip(), path, line, "bits")
        elif name == "options":
            options = _options(path, line, value)
        elif name in limits:
            limits[name] = number(value, path, line)
        count = re.fullmatch(r"(?:(\d+) )?(pairs|triples|interactions|ngram|skip|lda|rank)", name.strip())
        if count and (count[1] or value.strip() or "0") != "0":
            raise InputError(f"{path}:{line}: {text[:60]}: a model with {count[2]} is not linear in its features")
    else:
        raise InputError(f"{path}: not a whole readable model of VW: no line :0 or :1 before its weights")
    if bits is None or not 1 <= bits <= 61:
        raise InputError(f"{path}: not a readable model of VW: no line bits:B with B from 1 to 61")
    header = Header(bits, options, (limits["Min label"], limits["Max label"]))
    if places(header.classes) > 1 << bits:
        raise InputError(f"{path}: {header.classes} classes do not fit 2^{bits} weights")
    return header


def _options(path: Path, line: int, text: str) -> dict[str, str]:
    """Return options of the model by name; refuse those that make it something other than linear."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{path}:{line}: options: {error}") from None
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name = word.lstrip("-")
            options[name] = ""
        elif name:
            options[name] = f"{options[name]} {word}".strip()
    for name, value in options.items():
        if name in CLASSES:
            classes = whole(value, path, line, f"--{name}")
            if not 1 < classes <= 1 << 20:
                raise InputError(f"{path}:{line}: --{name} {classes}: expected two classes or more, a million at most")
        elif name not in HARMLESS and value not in FIXED.get(name, ()):
            said = f"--{name} {value}".strip()[:60]
            raise InputError(f"{path}:{line}: made with {said}: only plain linear models, --oaa and --csoaa are read")
    if all(name in options for name in CLASSES):
        raise InputError(f"{path}:{line}: made with --oaa and --csoaa")
    return options


def _entries(path: Path, lines: Iterator[tuple[int, str]], header: Header, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places and weights, (n,) int64 and float64, without zeros."""
    place, weight, lazy = array("q"), array("d"), {"l1_state": 0.0, "l2_state": 1.0}
    step = places(header.classes)
    for line, text in lines:
        entry = ENTRY.fullmatch(text)
        if entry is None:
            if place or not re.fullmatch(r"[\w:.]+(?: \w+)* \S+", text):  # state for further learning: t, sum_loss, ...
                raise InputError(f"{path}:{line}: {text[:60]!r}: expected [name:]feature:weight")
            name, _, state = text.rpartition(" ")
            if name in lazy:
                lazy[name] = number(state, path, line)
            continue
        at, stored = whole(entry[1], path, line, "feature"), number(entry[2], path, line)
        value = lazy["l2_state"] * math.copysign(max(abs(stored) - lazy["l1_state"], 0.0), stored)
        if at >= 1 << header.bits:
            raise InputError(f"{path}:{line}: feature {at}: expected one below 2^{header.bits}")
        if at % step >= header.classes and value:
            raise InputError(f"{path}:{line}: a weight of class {at % step + 1} of {header.classes}")
        if at // step < shift and value:
            raise InputError(f"{path}:{line}: feature 0, and hogwild's are numbered from 1: add --zero-based")
        if value:
            place.append(at)
            weight.append(value)
    return np.frombuffer(place, np.int64), np.frombuffer(weight, np.float64)


def _dense(
    path: Path, place: np.ndarray, weight: np.ndarray, header: Header, shift: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(coef, intercept)`` of shapes (classes, width) and (classes,).

    A feature at the constant's place shares its weight, as in VW, if that place is among the features.
    """
    order = np.argsort(place, kind="stable")
    place, weight = place[order], weight[order]
    again = np.diff(place) == 0
    if (again & (np.diff(weight) != 0)).any():  # names at one place are all listed, with the same weight
        at = int(place[:-1][again & (np.diff(weight) != 0)][0])
        raise InputError(f"{path}: feature {at} has two different weights")
    rows, step = header.classes, places(header.classes)
    feature, row = place // step, place % step
    constant = CONSTANT % ((1 << header.bits) // step) if "noconstant" not in header.options else -1
    is_constant = feature == constant
    intercept = np.zeros(rows)
    intercept[row[is_constant]] = weight[is_constant]
    others = feature[~is_constant]
    width = int(others.max()) + 1 - shift if len(others) else 0
    check_width(path, width, rows)
    coef = np.zeros((rows, width))
    known = feature - shift < width
    coef[row[known], feature[known] - shift] = weight[known]
    return coef, intercept
