"""The evaluator in NumPy and scipy, on all rows at once: the oracle that the compiled one is held against."""

from __future__ import annotations

import numpy as np

from hogwild.data.rows.container import Rows
from tests import reference


def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row: -1 and +1, a real target or a count for one column of ``margins``, else the class."""
    with np.errstate(all="ignore"):
        if margins.ndim == 1:
            return reference.loss("log" if loss == "softmax" else loss, margins, targets, param)
        rows, classes = np.arange(len(margins)), targets.astype(np.int64)
        if loss == "softmax":
            top = margins.max(axis=1)
            return top + np.log(np.exp(margins - top[:, None]).sum(axis=1)) - margins[rows, classes]
        signs = np.full(margins.shape, -1.0)
        signs[rows, classes] = 1.0
        return reference.loss(loss, margins, signs, param).sum(axis=1)


def margins_of(rows: Rows, coef: np.ndarray, intercept: np.ndarray, normalize: str = "none") -> np.ndarray:
    """Margins of all rows, (n,) or (n, K), of features below the width of ``coef``."""
    coef = np.asarray(coef, dtype=np.float64)
    X = rows.compact().to_scipy()[0].astype(np.float64)
    width = min(rows.width, coef.shape[-1])
    X = X[:, :width]
    with np.errstate(all="ignore"):
        found = X @ coef[..., :width].T
        if normalize != "none":
            squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
            lengths = np.sqrt(squares)
            scales = np.minimum(1.0 / np.where(lengths == 0, 1.0, lengths), np.finfo(np.float32).max)
            found *= scales.astype(np.float32).reshape(-1, *[1] * (found.ndim - 1))
        return found + (np.asarray(intercept, np.float64) if coef.ndim == 2 else float(np.ravel(intercept)[0]))


def evaluate(
    rows: Rows,
    loss: str,
    coef: np.ndarray,
    intercept: np.ndarray,
    param: float = 0.0,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    normalize: str = "none",
    labels: tuple[float, ...] = (),
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """What ``Objective(...).evaluate`` is to find, but the AUC."""
    p = margins_of(rows, coef, intercept, normalize)
    y = rows.targets.astype(np.float64)
    with np.errstate(all="ignore"):
        if len(labels):
            number = np.array([list(np.float32(labels)).index(target) for target in rows.targets])
            y = 2.0 * number - 1.0 if p.ndim == 1 else number
            right = np.where(y > 0, p > 0, p <= 0) if p.ndim == 1 else _right(p, number)
            metrics = {"accuracy": float(np.mean(right))}
        else:
            error = (np.exp(p) if loss in ("poisson", "tweedie", "gamma") else p) - y
            metrics = {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.mean(np.abs(error)))}
        weights = rows.weights if weights is None else weights
        w = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float32).astype(np.float64)
        mean = float((w * loss_values(loss, p, y, param)).sum() / w.sum())
        v = np.asarray(coef, dtype=np.float64)
        penalty = (l2 / 2 * float((v * v).sum()) if l2 else 0.0) + (l1 * float(np.abs(v).sum()) if l1 else 0.0)
    return {"objective": mean + penalty, "loss": mean, **metrics}


def _right(margins: np.ndarray, classes: np.ndarray) -> np.ndarray:
    best = margins.argmax(axis=1)  # the first NaN, if there is one
    return (best == classes) & ~np.isnan(margins[np.arange(len(margins)), best])
