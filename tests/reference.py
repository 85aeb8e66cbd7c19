"""Slow float64 NumPy twins, written from the formulas and sharing no line with the package."""

from __future__ import annotations

import numpy as np

# name: (loss, dloss) of prediction p, target y and parameter c; at a kink, the subgradient the package promises
_TWINS = {
    "log": (lambda p, y, c: np.logaddexp(0, -y * p), lambda p, y, c: -y * np.exp(-np.logaddexp(0, y * p))),
    "hinge": (lambda p, y, c: np.maximum(1 - y * p, 0), lambda p, y, c: np.where(y * p < 1, -y, 0 * p)),
    "squared-hinge": (
        lambda p, y, c: np.maximum(1 - y * p, 0) ** 2,
        lambda p, y, c: -2 * y * np.maximum(1 - y * p, 0),
    ),
    "modified-huber": (
        lambda p, y, c: np.where(y * p >= -1, np.maximum(1 - y * p, 0) ** 2, -4 * y * p),
        lambda p, y, c: np.where(y * p >= -1, -2 * y * np.maximum(1 - y * p, 0), -4 * y + 0 * p),
    ),
    "perceptron": (lambda p, y, c: np.maximum(-y * p, 0), lambda p, y, c: np.where(y * p <= 0, -y, 0 * p)),
    "squared-error": (lambda p, y, c: (p - y) ** 2 / 2, lambda p, y, c: p - y),
    "huber": (
        lambda p, y, c: np.where(np.abs(p - y) <= c, (p - y) ** 2 / 2, c * np.abs(p - y) - c**2 / 2),
        lambda p, y, c: np.clip(p - y, -c, c),
    ),
    "epsilon-insensitive": (
        lambda p, y, c: np.maximum(np.abs(p - y) - c, 0),
        lambda p, y, c: np.sign(p - y) * (np.abs(p - y) > c),
    ),
    "squared-epsilon-insensitive": (
        lambda p, y, c: np.maximum(np.abs(p - y) - c, 0) ** 2,
        lambda p, y, c: 2 * np.sign(p - y) * np.maximum(np.abs(p - y) - c, 0),
    ),
    "poisson": (  # from p = 60 on, the tangent of exp
        lambda p, y, c: np.exp(np.minimum(p, 60)) * (1 + np.maximum(p - 60, 0)) - y * p,
        lambda p, y, c: np.exp(np.minimum(p, 60)) - y,
    ),
}


def loss(name, p, y, c=0.0):
    """Loss of each prediction, float64."""
    with np.errstate(all="ignore"):
        return _TWINS[name][0](np.float64(p), np.float64(y), np.float64(c))


def dloss(name, p, y, c=0.0):
    """Its derivative in the prediction, float64."""
    with np.errstate(all="ignore"):
        return _TWINS[name][1](np.float64(p), np.float64(y), np.float64(c))


def row_scales(X, kind):
    """One over the length of each row of a dense array; one for rows of zeros."""
    X = np.asarray(X, dtype=np.float64)
    lengths = {"none": np.ones(len(X)), "l2": np.sqrt((X**2).sum(1)), "max": np.abs(X).max(1, initial=0)}[kind]
    return 1 / np.where(lengths > 0, lengths, 1)


def objective(X, classes, w, b, name, c=0.0, l1=0.0, l2=0.0, weights=None, normalize="none"):
    """The objective of architecture, row by row: dense X, targets or class numbers, w (width,) or (K, width)."""
    X = np.asarray(X, dtype=np.float64) * row_scales(X, normalize)[:, None]
    w, b = np.asarray(w, dtype=np.float64), np.asarray(b, dtype=np.float64)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = 0.0
    for x, y, s in zip(X, classes, weights):
        margins = w @ x + b
        if name == "softmax":
            total += s * (np.logaddexp.reduce(margins) - margins[int(y)])
        elif w.ndim == 2:
            total += s * sum(loss(name, m, 1.0 if k == int(y) else -1.0, c) for k, m in enumerate(margins))
        else:
            total += s * loss(name, margins, y, c)
    return total / weights.sum() + l2 / 2 * (w**2).sum() + l1 * np.abs(w).sum()
