"""Answers for rows as dicts, one in some tens of microseconds, with NumPy alone: what ``predict_one`` does.

A scorer is made of the arrays and facts of a model's file and needs nothing else of the package than what this folder
imports, so ``interchange.py`` writes it, with all that it needs, as one file of Python. That file has :func:`load`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

import numpy as np

from hogwild.data.ids import Ids, numbers_of_names
from hogwild.data.tables.plan import TablePlan
from hogwild.errors import InputError, reason_of
from hogwild.kernels.losses import COUNTS, LOSSES
from hogwild.serving.encoder import PlainRow, TableRow

SCHEMA = 1  # version of the files that load reads
PROBABILITIES = ("log", "modified-huber", "softmax")  # losses that have them
LARGEST = float(np.finfo(np.float32).max)
SIDES = ("user", "item")
SIGNS = np.array([-1.0, 1.0])  # of a margin for each of two classes


def load(path: str | PathLike[str]) -> Scorer | PairScorer:
    """Read a model that ``hogwild export`` wrote as ``.npz``.

    Raises
    ------
    InputError
        One line that begins with the path.
    """
    try:
        with open(path, "rb") as stream, np.load(stream) as file:
            arrays = {name: file[name] for name in file.files}
        facts = json.loads(str(arrays.pop("hogwild")))
        if facts["schema"] != SCHEMA:
            raise ValueError(f"a model of format {facts['schema']}; this reader knows {SCHEMA}: export both anew")
        return PairScorer.of(arrays, facts) if "user_factors" in arrays else Scorer(arrays, facts)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from None
    except Exception as error:  # NumPy raises what it likes of a damaged archive
        raise InputError(f"{path}: not a model that hogwild export wrote, or damaged: {reason_of(error)}") from None


class Scorer:
    """Answers of a linear model or factorization machine; threads may share it.

    Parameters
    ----------
    arrays : dict
        ``coef`` (1 or K, width) and ``intercept`` (1 or K,); of a factorization machine ``factors`` (width, rank), or
        ``factors`` (width, fields * rank) and ``fields`` (width,).
    facts : dict
        ``loss``, ``labels``, ``normalize``, and ``hash_bits``, ``table`` and ``multilabel`` if there are any.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        self.coef, self.intercept = arrays["coef"], arrays["intercept"]
        self.factors, self.fields = arrays.get("factors"), arrays.get("fields")
        self.count = 1 if self.fields is None else int(self.fields.max(initial=0)) + 1  # of fields
        self.loss, self.unit = facts["loss"], facts["normalize"] != "none"
        self.multilabel = bool(facts.get("multilabel"))
        table, width = facts.get("table"), self.coef.shape[1]
        self.encode: TableRow | PlainRow = (
            PlainRow(width, facts.get("hash_bits")) if table is None else TableRow(TablePlan.from_json(table))
        )
        if width != facts["width"] or any(
            len(each) != width for each in (self.factors, self.fields) if each is not None
        ):
            raise ValueError(f"arrays of {width} features, expected {facts['width']}")
        names = label_values(facts["labels"], table).tolist()
        self.labels = [int(name) if isinstance(name, float) and name.is_integer() else name for name in names]

    def predict_one(self, row: Any) -> Any:
        """Return each label's probability, or the label, labels or value that is predicted."""
        if not isinstance(row, Mapping):
            way = ": give its .to_dict()" if hasattr(row, "to_dict") else ""
            raise InputError(f"expected a row as a dict of its columns, got {type(row).__name__}{way}")
        places, amounts = self.encode(row)
        indices, x = np.array(places, np.int64), np.array(amounts, np.float32).astype(np.float64)
        if self.unit:
            x *= np.float32(1.0 / max(math.hypot(*amounts), 1.0 / LARGEST))
        margins = self.coef.take(indices, axis=1) @ x + self.intercept  # (1,) or (K,)
        if self.factors is not None:
            margins += self._pairs(self.factors, indices, x)
        if len(margins) > 1:
            margins = margins[np.newaxis]
        if not self.labels:
            return expected_values(self.loss, margins).item()
        if self.loss in PROBABILITIES:
            if self.loss == "log" and margins.ndim == 1:  # a small part of the time that arrays take
                shares: Any = _probability(-margins.item()), _probability(margins.item())
            else:
                shares = probabilities(self.loss, margins, self.multilabel)[0].tolist()
            return dict(zip(self.labels, shares))
        if self.multilabel:
            return [self.labels[k] for k in np.flatnonzero(margins > 0).tolist()]
        return self.labels[likeliest(margins).item()]

    def predict_many(self, rows: Any) -> list[Any]:
        """Answer each of several rows as :meth:`predict_one` does; an error names the row, counted from 1."""
        return each_row(self.predict_one, rows)

    def _pairs(self, factors: np.ndarray, places: np.ndarray, x: np.ndarray) -> float:
        """The sum over a row's pairs of features."""
        n, rank = len(places), factors.shape[1] // self.count
        lines = factors.take(places, axis=0)
        if self.fields is None:
            parts = lines * x[:, np.newaxis]  # (n, rank)
            sums = parts.sum(axis=0)
            return float(0.5 * (sums @ sums - np.vdot(parts, parts)))
        facing = lines.reshape(n, self.count, rank).take(self.fields.take(places), axis=1)  # of i for the field of j
        turned = facing.view(f"V{4 * rank}")[:, :, 0].T.copy().view(np.float32)  # that of j for i's
        products = facing.reshape(n, n * rank) * turned
        products.reshape(-1, rank)[:: n + 1] = 0.0  # of a feature with itself
        return float(0.5 * ((x @ products).reshape(n, rank).sum(axis=1) @ x))


class PairScorer:
    """Scores of pairs of a user and an item by a factorisation; threads may share it.

    Parameters
    ----------
    ids : (Ids or None, Ids or None)
        Names of users and of items.
    biases, factors : pairs of arrays, shapes (users,) and (items,); (users, k) and (items, k)
    mean : float
    """

    def __init__(self, ids: Any, biases: Any, factors: Any, mean: float) -> None:
        self.ids, self.biases, self.factors, self.mean = ids, biases, factors, mean

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], facts: Mapping[str, Any]) -> PairScorer:
        """Return the scorer of a file's arrays and facts."""
        biases, factors = ([arrays[f"{side}_{kind}"] for side in SIDES] for kind in ("bias", "factors"))
        return cls([Ids.from_arrays(arrays, f"{side}_ids.") for side in SIDES], biases, factors, float(facts["mean"]))

    def predict_one(self, row: Any) -> float:
        """Return the score of ``{"user": name, "item": name}``; what is unknown counts nothing."""
        sides = zip(self.ids, _pair(row), self.biases)
        user, item = (numbers_of_names(ids, [name], len(bias)).item() for ids, name, bias in sides)
        score = self.mean
        if user >= 0:
            score += float(self.biases[0][user])
        if item >= 0:
            score += float(self.biases[1][item])
        if min(user, item) >= 0:
            score += float(self.factors[0][user].astype(np.float64) @ self.factors[1][item])
        return score

    def predict_many(self, rows: Any) -> list[float]:
        """Score each of several rows as :meth:`predict_one` does; an error names the row, counted from 1."""
        return each_row(self.predict_one, rows)


def _pair(row: Any) -> tuple[Any, Any]:
    try:
        user, item = (row[side] if isinstance(row[side], int | np.integer) else str(row[side]) for side in SIDES)
    except (KeyError, TypeError, IndexError):
        raise InputError(f'expected {{"user": name, "item": name}}, got {row!r:.60}') from None
    return user, item


def each_row(function: Callable[[Any], Any], rows: Any) -> list[Any]:
    """Return what a function makes of each of several rows; an error names the row, counted from 1."""
    if not isinstance(rows, Iterable) or hasattr(rows, "columns") or isinstance(rows, Mapping | str):
        raise InputError(f"expected a list of dicts, got {type(rows).__name__}: a table goes to model.predict")
    results = []
    for number, row in enumerate(rows, 1):
        try:
            results.append(function(row))
        except InputError as error:
            raise InputError(f"row {number:,}: {error}") from None
    return results


# ---- from margins to answers


def label_values(labels: Any, table: Mapping[str, Any] | None) -> np.ndarray:
    """Return a model's labels as in scikit-learn, float64; those of a table as it has them: text, booleans or int64."""
    if table is None or not table["label_names"]:
        numbers = np.array(labels, dtype=np.float64)
        whole = table is not None and bool((numbers == np.floor(numbers)).all())
        return numbers.astype(np.int64) if whole else numbers
    codes = [int(label) for label in labels]
    return np.array(
        [bool(code) for code in codes]
        if table["label_kind"] == "boolean"
        else [table["label_names"][code] for code in codes]
    )


def expected_values(loss: str, margins: np.ndarray) -> np.ndarray:
    """Return real values, or the expected counts or amounts."""
    with np.errstate(over="ignore"):
        return np.exp(margins) if loss in LOSSES and LOSSES[loss].targets == COUNTS else margins


def likeliest(margins: np.ndarray) -> np.ndarray:
    """Return the positions of the predicted classes, (n,) int64, from margins (n,) or (n, K); ties go to the first."""
    return (margins > 0).astype(np.int64) if margins.ndim == 1 else margins.argmax(axis=1)


def probabilities(loss: str, margins: np.ndarray, multilabel: bool = False) -> np.ndarray:
    """Probabilities of the classes under a loss of ``PROBABILITIES``, (n, K) float64, from margins (n,) or (n, K).

    With ``multilabel`` each is by itself; else a row's sum to one.
    """
    if loss == "softmax" and margins.ndim == 2:
        exponentials = np.exp(margins - margins.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)
    link = _clipped if loss == "modified-huber" else _logistic
    if margins.ndim == 1:  # not 1 - p, which would be zero for margins of 37 and more
        return link(np.multiply.outer(margins, SIGNS))
    positive = link(margins)
    if multilabel:
        return positive
    total = positive.sum(axis=1, keepdims=True)
    none = total == 0.0  # no class is likely, so all are equally likely
    return np.where(none, 1.0 / positive.shape[1], positive / np.where(none, 1.0, total))


def _probability(margin: float) -> float:
    """Return the probability of a margin."""
    return 1.0 / (1.0 + math.exp(min(-margin, 700.0)))


def _clipped(margins: np.ndarray) -> np.ndarray:
    return (np.clip(margins, -1.0, 1.0) + 1.0) / 2.0


def _logistic(margins: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-margins))
