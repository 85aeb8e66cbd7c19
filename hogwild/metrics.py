"""Quality of a model on given rows: accuracy, log loss, AUC, Brier score, F1, confusion, or the errors of regression.

Margins are made in chunks on all threads; of each row 8 to 12 bytes are kept, its target, its prediction, and for the
AUC its margin. The values equal scikit-learn's (tests compare them) but are computed here, since importing it takes as
long as evaluating a million rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows, count_unknown, map_chunks
from hogwild.data.rows.labels import NO_SETS, LabelSets
from hogwild.errors import InputError
from hogwild.methods import COUNT_LOSSES
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.linear.objective import auc, f1_by_label, f1_of, hits_of, loss_values, right_rows
from hogwild.problems.linear.rows import below_range, numbered, pairs_of
from hogwild.serving.scorer import PROBABILITIES, likeliest

BINS = 10  # of probabilities
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
        labels, else None; None if one of them is absent); with probabilities of two labels ``brier`` and
        ``reliability``, for each tenth of the probabilities that occurs its ``rows``, their mean ``probability`` and
        the ``share`` of the second label (Murphy 1973);
        ``f1_macro`` and ``f1``, by label; ``labels`` and ``confusion``, a list of lists with true labels as rows.
        Where rows may have several labels, ``accuracy`` is the share of rows with all labels right, ``log_loss`` the
        sum over the labels, and besides there are ``f1_micro``, ``f1_macro`` and ``f1``, by label, only; labels that
        the model does not know count as missed.
        Otherwise: ``rmse mae r2`` (None for constant targets) and, of counts and amounts, the mean deviance, such as
        ``poisson_deviance``; of a quantile the ``pinball_loss`` and the share of targets ``below`` the
        predictions. NaN predictions give NaN.

    Raises
    ------
    InputError
        If there are no rows, or a label is unknown to the model.
    """
    several, margins = model.multilabel, model.margins_of()
    parts: list[Any] = []
    count = beyond = missed = 0
    for block in [rows] if isinstance(rows, Rows) else rows:
        truth, sets = block.targets, NO_SETS
        if model.labels:
            truth, sets = numbered(block, model.labels, several, count)
        if several:
            missed += pairs_of(block) - sets.pairs(truth)
        elif model.labels:
            truth = truth.astype(np.int32)

        def chunk(first: int, last: int, block: Rows = block, truth: np.ndarray = truth, sets: LabelSets = sets) -> Any:
            part, found = truth[first:last], margins.between(block, first, last)
            if several:
                return _of_several(model, sets.signs(part), found)
            return part, *(_of_labels(model, part, found) if model.labels else [model.decide(found)])

        found = map_chunks(block, chunk, threads, margins.columns)
        parts += [sum(found)] if several else found
        count += len(block)
        beyond += count_unknown(block, model.width, threads)
    if count == 0:
        raise InputError("no rows to evaluate the model on")
    model.warn_unknown(beyond, stacklevel=3)
    if several:
        return {"rows": count, **_several_result(model, sum(parts), count, missed)}
    result = _labels_result if model.labels else _reals_result
    return {"rows": count, **result(model, *(np.concatenate(each) for each in zip(*parts)))}


def _of_several(model: LinearModel, signs: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Sums over a chunk of rows of several labels: rows that are all right, log losses, and hits by label."""
    if model.loss == "log":
        lost = loss_values("log", margins, signs)
    else:
        share = model.probabilities(margins) if model.loss in PROBABILITIES else np.ones(margins.shape)
        lost = -np.log(np.clip(np.where(signs > 0, share, 1.0 - share), EPSILON, 1.0))
    return np.array([right_rows(margins, signs).sum(), lost.sum(), *hits_of(margins, signs)])


def _several_result(model: LinearModel, sums: np.ndarray, count: int, missed: int) -> dict[str, Any]:
    facts = {"accuracy": sums[0] / count, "log_loss": sums[1] / count if model.loss in PROBABILITIES else None}
    facts |= f1_of(sums[2:], missed)
    return facts | {"f1": dict(zip(model.labels, f1_by_label(sums[2:]).tolist())), "labels": model.labels}


def _of_labels(model: LinearModel, truth: np.ndarray, margins: np.ndarray) -> tuple[np.ndarray, ...]:
    """Numbers of the predicted classes, the total log loss, and for two labels the margins, of a chunk of rows."""
    with np.errstate(over="ignore"):
        scores = margins.astype(np.float32) if margins.ndim == 1 else np.empty(0, np.float32)
        return likeliest(margins).astype(np.int32), np.array([_log_loss(model, margins, truth)]), scores


def _log_loss(model: LinearModel, margins: np.ndarray, truth: np.ndarray) -> float:
    """Sum of -log of the probability of each row's class, of one-versus-rest at least machine epsilon."""
    loss = model.loss
    if loss not in PROBABILITIES or not np.isfinite(margins).all():
        return math.nan
    if margins.ndim == 1 and loss != "modified-huber":  # the loss itself, as training reports it
        return float(loss_values("log", margins, 2.0 * truth - 1.0).sum())
    if loss == "softmax":
        return float(loss_values(loss, margins, truth.astype(np.int64)).sum())
    likely = model.probabilities(margins)[np.arange(len(truth)), truth]
    return float(-np.log(np.clip(likely, EPSILON, 1.0 - EPSILON)).sum())


def _labels_result(
    model: LinearModel, truth: np.ndarray, found: np.ndarray, log_losses: np.ndarray, scores: np.ndarray
) -> dict[str, Any]:
    classes = len(model.labels)
    confusion = np.bincount(truth.astype(np.int64) * classes + found, minlength=classes**2).reshape(classes, classes)
    right = np.diag(confusion)
    total = confusion.sum(axis=1) + confusion.sum(axis=0)
    f1 = 2.0 * right / np.maximum(total, 1)  # 0 for a label that is neither present nor predicted
    labels: list[Any] = model.labels if model.table is None else model.label_texts
    likely = model.loss in PROBABILITIES
    return {
        "accuracy": float(right.sum() / len(truth)),
        "log_loss": float(log_losses.sum() / len(truth)) if likely else None,
        "auc": auc(scores, truth == 1) if classes == 2 and len(scores) else None,
        **(_calibration(model, truth, scores) if likely and len(scores) else {}),
        "f1_macro": float(np.mean(f1)),
        "f1": dict(zip(labels, f1.tolist())),
        "labels": labels,
        "confusion": confusion.tolist(),
    }


def _calibration(model: LinearModel, truth: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    p = model.probabilities(scores.astype(np.float64))[:, 1]
    bins = np.minimum(p * BINS, BINS - 1).astype(np.int64) if np.isfinite(p).all() else np.zeros(len(p), np.int64)
    counts, means, shares = (np.bincount(bins, weights, BINS) for weights in (None, p, truth))
    reliability = [
        {"from": k / BINS, "rows": int(counts[k]), "probability": means[k] / counts[k], "share": shares[k] / counts[k]}
        for k in np.flatnonzero(counts).tolist()
    ]
    return {"brier": float(np.square(p - truth).mean()), "reliability": reliability}


@np.errstate(all="ignore")
def _reals_result(model: LinearModel, targets: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    truth = targets.astype(np.float64)
    if not np.isfinite(predicted).all():
        predicted = np.full(len(truth), math.nan)
    error = predicted - truth
    squared = float(np.square(error).mean())
    metrics = {
        "rmse": math.sqrt(squared),
        "mae": float(np.abs(error).mean()),
        "r2": 1.0 - squared / float(truth.var()) if truth.min() < truth.max() else None,
    }
    if model.loss == "quantile":
        metrics["pinball_loss"] = float(loss_values(model.loss, predicted, truth, model.loss_param).mean())
        metrics["below"] = float((truth < predicted).mean())
    if model.loss in COUNT_LOSSES:
        margins = np.log(np.maximum(predicted, 1e-200))
        deviance = 2.0 * float(loss_values(model.loss, margins, truth, model.loss_param).mean())
        metrics[f"{model.loss}_deviance"] = math.nan if below_range(model.loss, truth) else deviance
    return metrics
