"""Quality of a model on given rows: accuracy, log loss, AUC, F1 and confusion, or the errors of regression.

One pass over chunks of rows adds up partial sums, so the predictions of a large file are never all in memory. The AUC
is the exception: it depends on the ranking, so it keeps 5 bytes a row and sorts them at the end. The values equal
scikit-learn's (tests compare them) but are computed here, since importing it takes as long as evaluating a million
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows, count_unknown, map_chunks
from hogwild.errors import InputError
from hogwild.problems.linear.model import PROBABILITIES, LinearModel
from hogwild.problems.linear.objective import auc, class_numbers, loss_values

EPSILON = float(np.finfo(np.float64).eps)


def evaluate(model: LinearModel, rows: Rows | Iterable[Rows], threads: int | None = None) -> dict[str, Any]:
    """Return metrics of ``model`` on test rows, each row counted once whatever its weight.

    Parameters
    ----------
    model : LinearModel
    rows : Rows, or an iterable of them
        Blocks are evaluated one by one and freed. Features beyond the model's width are ignored, and counted in a
        warning.
    threads : int, optional
        Default: the cores that this process may use.

    Returns
    -------
    dict
        ``rows`` and, for labels: ``accuracy``; ``log_loss`` (None for losses without probabilities); ``auc`` (two
        labels, else None; None if one of them is absent); ``f1_macro`` and ``f1``, by label; ``labels`` and
        ``confusion``, a list of lists with true labels as rows. Otherwise: ``rmse mae r2`` (None for constant targets)
        and, for poisson, ``poisson_deviance``, the mean. NaN predictions give NaN.

    Raises
    ------
    InputError
        If there are no rows, or a label is unknown to the model.
    """
    tally = _Labels(model) if model.labels else _Reals(model)
    unknown = 0
    for block in [rows] if isinstance(rows, Rows) else rows:
        tally.add(block, threads)
        unknown += count_unknown(block, model.width, threads)
    if tally.count == 0:
        raise InputError("no rows to evaluate the model on")
    model.warn_unknown(unknown, stacklevel=3)
    return {"rows": tally.count, **tally.result()}


class _Labels:
    """Sums for classification: the confusion counts, from which most metrics follow, and the total log loss."""

    def __init__(self, model: LinearModel) -> None:
        self.model = model
        self.margins = model.margins_of()
        self.count = 0
        self.classes = np.arange(len(model.labels))
        self.confusion = np.zeros((len(model.labels),) * 2, dtype=np.int64)
        self.log_loss = 0.0
        self.scores: list[np.ndarray] = []  # for two labels: margins as float32, and whether the label is the second
        self.positive: list[np.ndarray] = []

    def add(self, rows: Rows, threads: int | None) -> None:
        truth = class_numbers(rows.targets, self.model.labels, self.count)
        keep = len(self.classes) == 2 and self.margins.columns == 1

        def chunk(first: int, last: int) -> tuple[np.ndarray, float, np.ndarray | None]:
            margins, classes = self.margins.between(rows, first, last), truth[first:last].astype(np.int64)
            cells = classes * len(self.classes) + self.model.decide_classes(margins)
            with np.errstate(over="ignore"):
                return cells, self._log_loss(margins, classes), margins.astype(np.float32) if keep else None

        for cells, log_loss, scores in map_chunks(rows, chunk, threads, self.margins.columns):
            np.add.at(self.confusion.reshape(-1), cells, 1)
            self.log_loss += log_loss
            if scores is not None:
                self.scores.append(scores)
        self.positive.append(truth == 1)
        self.count += len(rows)

    def _log_loss(self, margins: np.ndarray, classes: np.ndarray) -> float:
        """Sum of -log of the probability of each row's class, of one-versus-rest at least machine epsilon."""
        loss = self.model.loss
        if loss not in PROBABILITIES or not np.isfinite(margins).all():
            return math.nan
        if margins.ndim == 1 and loss != "modified-huber":  # the loss itself, as training reports it
            return float(loss_values("log", margins, 2.0 * classes - 1.0).sum())
        if loss == "softmax":
            return float(loss_values(loss, margins, classes).sum())
        likely = self.model.probabilities(margins)[np.arange(len(classes)), classes]
        return float(-np.log(np.clip(likely, EPSILON, 1.0 - EPSILON)).sum())

    def result(self) -> dict[str, Any]:
        right, counts = np.diag(self.confusion), self.confusion.sum(axis=1)
        total = counts + self.confusion.sum(axis=0)
        f1 = 2.0 * right / np.maximum(total, 1)  # 0 for a label that is neither present nor predicted
        positive = np.concatenate(self.positive)
        return {
            "accuracy": float(right.sum() / self.count),
            "log_loss": self.log_loss / self.count if self.model.loss in PROBABILITIES else None,
            "auc": auc(np.concatenate(self.scores), positive) if self.scores else None,
            "f1_macro": float(np.mean(f1)),
            "f1": dict(zip(self._named(), f1.tolist())),
            "labels": self._named(),
            "confusion": self.confusion.tolist(),
        }

    def _named(self) -> list[Any]:
        """The labels: numbers, or text from a table."""
        return self.model.labels if self.model.table is None else self.model.label_texts


class _Reals:
    """Sums for real targets and counts."""

    def __init__(self, model: LinearModel) -> None:
        self.model = model
        self.margins = model.margins_of()
        self.count = 0
        self.errors = np.zeros(3)  # totals: squared errors, absolute errors, Poisson deviance
        self.mean, self.spread = 0.0, 0.0  # mean of the targets, and their sum of squares about it

    def add(self, rows: Rows, threads: int | None) -> None:
        def chunk(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
            return self._chunk(self.margins.between(rows, first, last), rows.targets[first:last].astype(np.float64))

        for errors, targets in map_chunks(rows, chunk, threads):
            self.errors += errors
            # merges two means and sums of squares (Chan, Golub, LeVeque 1979): exact where sum(y^2) would cancel
            shift = float(targets.mean()) - self.mean
            together = self.count + len(targets)
            self.spread += float(targets.var()) * len(targets) + shift**2 * self.count * len(targets) / together
            self.mean += shift * len(targets) / together
            self.count = together

    def _chunk(self, margins: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        predicted = self.model.decide(margins)
        if not np.isfinite(predicted).all():
            return np.full(3, math.nan), targets
        error, deviance = predicted - targets, math.nan
        if self.model.loss == "poisson" and targets.min() >= 0:
            mean = np.maximum(predicted, 1e-200)  # the deviance divides by the prediction
            counted = np.where(targets > 0, targets * np.log(np.maximum(targets, 1.0e-30) / mean), 0.0)
            deviance = 2.0 * float((counted - targets + mean).sum())
        return np.array([(error * error).sum(), np.abs(error).sum(), deviance]), targets

    def result(self) -> dict[str, Any]:
        squared, absolute, deviance = (float(total) for total in self.errors)
        metrics = {
            "rmse": math.sqrt(squared / self.count),
            "mae": absolute / self.count,
            "r2": 1.0 - squared / self.spread if self.spread > 0 else None,
        }
        if self.model.loss == "poisson":
            metrics["poisson_deviance"] = deviance / self.count
        return metrics
