"""How good a model is on given rows: accuracy, log loss, AUC, F1 and confusion, or the errors of regression.

The one decision: one pass over chunks of rows whose sums are combined, so the predictions of a large file are never
held. The exception is the AUC, which is a matter of order: it keeps 9 bytes a row and sorts them at the end. The
numbers of each chunk are scikit-learn's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hogwild.data.chunks import count_unknown, map_chunks
from hogwild.data.examples import Rows
from hogwild.errors import InputError
from hogwild.model import PROBABILITIES, LinearModel
from hogwild.problems.objective import class_numbers


def evaluate(model: LinearModel, rows: Rows | Iterable[Rows], threads: int | None = None) -> dict[str, Any]:
    """Metrics of ``model`` on rows it has not been trained on, each row counted once whatever its weight.

    Parameters
    ----------
    model : LinearModel
    rows : Rows, or an iterable of them
        Blocks are evaluated as they come and let go. Features beyond the model's width are ignored, and counted in a
        warning.
    threads : int, optional
        Default: the cores this process may use.

    Returns
    -------
    dict
        ``rows`` and, for labels: ``accuracy``; ``log_loss`` (None for losses without probabilities); ``auc`` (two
        labels, else None; None if one of them is absent); ``f1_macro`` and ``f1``, by label; ``labels`` and
        ``confusion``, a list of lists, true labels down. Otherwise: ``rmse mae r2`` (None for constant targets) and,
        for poisson, ``poisson_deviance``, the mean. NaN where predictions are.

    Raises
    ------
    InputError
        For no rows, or a label the model does not know.
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
    """Sums for classification: the confusion counts, of which most metrics are functions, and the total log loss."""

    def __init__(self, model: LinearModel) -> None:
        self.model, self.margins, self.count = model, model.margins_of(), 0
        self.classes = np.arange(len(model.labels))
        self.confusion = np.zeros((len(model.labels),) * 2, dtype=np.int64)
        self.log_loss = 0.0
        self.scores: list[np.ndarray] = []  # of two labels: margins, and whether the label is the second
        self.positive: list[np.ndarray] = []

    def add(self, rows: Rows, threads: int | None) -> None:
        truth = class_numbers(rows.targets, self.model.labels, self.count)

        def chunk(first: int, last: int) -> tuple[np.ndarray, float, np.ndarray]:
            return self._chunk(rows.block(first, last), truth[first:last])

        for confusion, log_loss, margins in map_chunks(rows, chunk, threads, self.margins.columns):
            self.confusion += confusion
            self.log_loss += log_loss
            if len(self.classes) == 2 and margins.ndim == 1:
                self.scores.append(margins)
        self.positive.append(truth == 1)
        self.count += len(rows)

    def _chunk(self, rows: Rows, truth: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        from sklearn.metrics import confusion_matrix, log_loss

        margins = self.margins.of(rows)
        loss = math.nan
        if self.model.loss in PROBABILITIES and np.isfinite(margins).all():
            loss = log_loss(truth, self.model.probabilities(margins), labels=self.classes, normalize=False)
        return confusion_matrix(truth, self.model.decide_classes(margins), labels=self.classes), float(loss), margins

    def result(self) -> dict[str, Any]:
        from sklearn.metrics import accuracy_score, f1_score

        truth, decided = np.indices(self.confusion.shape).reshape(2, -1)  # one row a cell, its count the weight
        cells = {"sample_weight": self.confusion.ravel()}
        f1 = f1_score(truth, decided, labels=self.classes, average=None, zero_division=0.0, **cells)
        return {
            "accuracy": float(accuracy_score(truth, decided, **cells)),
            "log_loss": self.log_loss / self.count if self.model.loss in PROBABILITIES else None,
            "auc": self._auc(),
            "f1_macro": float(np.mean(f1)),
            "f1": dict(zip(self.model.labels, f1.tolist())),
            "labels": self.model.labels,
            "confusion": self.confusion.tolist(),
        }

    def _auc(self) -> float | None:
        from sklearn.metrics import roc_auc_score

        if not self.scores or (self.confusion.sum(axis=1) == 0).any():
            return None
        scores = np.concatenate(self.scores)
        return float(roc_auc_score(np.concatenate(self.positive), scores)) if np.isfinite(scores).all() else None


class _Reals:
    """Sums for real targets and counts."""

    def __init__(self, model: LinearModel) -> None:
        self.model, self.margins, self.count = model, model.margins_of(), 0
        self.errors = np.zeros(3)  # totals: squared errors, absolute errors, Poisson deviance
        self.mean, self.spread = 0.0, 0.0  # of the targets: mean, and sum of squares about it

    def add(self, rows: Rows, threads: int | None) -> None:
        for errors, targets in map_chunks(rows, lambda first, last: self._chunk(rows.block(first, last)), threads):
            self.errors += errors
            # merging two means and sums of squares (Chan, Golub, LeVeque 1979): exact where sum(y^2) would cancel
            shift = float(targets.mean()) - self.mean
            together = self.count + len(targets)
            self.spread += float(targets.var()) * len(targets) + shift**2 * self.count * len(targets) / together
            self.mean += shift * len(targets) / together
            self.count = together

    def _chunk(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.metrics import mean_absolute_error, mean_poisson_deviance, mean_squared_error

        targets = rows.targets.astype(np.float64)
        predicted = self.model.decide(self.margins.of(rows))
        if not np.isfinite(predicted).all():
            return np.full(3, math.nan), targets
        deviance = math.nan
        if self.model.loss == "poisson" and targets.min() >= 0:
            deviance = mean_poisson_deviance(targets, np.maximum(predicted, 1e-200))  # it divides by the prediction
        means = mean_squared_error(targets, predicted), mean_absolute_error(targets, predicted), deviance
        return np.array(means) * len(targets), targets

    def result(self) -> dict[str, Any]:
        squared, absolute, deviance = (float(total) for total in self.errors)
        found = {
            "rmse": math.sqrt(squared / self.count),
            "mae": absolute / self.count,
            "r2": 1.0 - squared / self.spread if self.spread > 0 else None,
        }
        if self.model.loss == "poisson":
            found["poisson_deviance"] = deviance / self.count
        return found
