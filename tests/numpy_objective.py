"""The evaluator in NumPy and scipy, on all rows at once: the oracle that the compiled one is held against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hogwild.data.rows.container import Rows

POISSON_CAP = 60.0  # the loss goes on along its tangent beyond this margin; exp(60) is no count


def _log(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.logaddexp(0.0, -y * p)


def _hinge(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, 1.0 - y * p)


def _squared_hinge(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, 1.0 - y * p) ** 2


def _modified_huber(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    z = y * p
    return np.where(z < -1.0, -4.0 * z, np.maximum(0.0, 1.0 - z) ** 2)


def _perceptron(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, -y * p)


def _squared_error(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return (p - y) ** 2 / 2


def _huber(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    r = np.abs(p - y)
    inner = np.minimum(r, param)  # r^2/2 up to param, a straight line beyond
    return inner * (r - inner / 2)


def _epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, np.abs(p - y) - param)


def _squared_epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    return np.maximum(0.0, np.abs(p - y) - param) ** 2


def _poisson(p: np.ndarray, y: np.ndarray, param: float) -> np.ndarray:
    inner = np.minimum(p, POISSON_CAP)
    top = np.exp(inner)
    return np.where(p > POISSON_CAP, top * (1.0 - inner) + (top - y) * p, top - y * p)


VALUES: dict[str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]] = {
    "log": _log,
    "hinge": _hinge,
    "squared-hinge": _squared_hinge,
    "modified-huber": _modified_huber,
    "perceptron": _perceptron,
    "squared-error": _squared_error,
    "huber": _huber,
    "epsilon-insensitive": _epsilon_insensitive,
    "squared-epsilon-insensitive": _squared_epsilon_insensitive,
    "poisson": _poisson,
}


def loss_values(loss: str, margins: np.ndarray, targets: np.ndarray, param: float = 0.0) -> np.ndarray:
    """Loss of each row: -1 and +1, a real target or a count for one column of ``margins``, else the class."""
    with np.errstate(all="ignore"):
        if margins.ndim == 1:
            return VALUES["log" if loss == "softmax" else loss](margins, targets, param)
        rows, classes = np.arange(len(margins)), targets.astype(np.int64)
        if loss == "softmax":
            top = margins.max(axis=1)
            return top + np.log(np.exp(margins - top[:, None]).sum(axis=1)) - margins[rows, classes]
        signs = np.full(margins.shape, -1.0)
        signs[rows, classes] = 1.0
        return VALUES[loss](margins, signs, param).sum(axis=1)


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
            lengths = np.sqrt(squares) if normalize == "l2" else np.asarray(abs(X).max(axis=1).todense()).ravel()
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
            error = (np.exp(p) if loss == "poisson" else p) - y
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
