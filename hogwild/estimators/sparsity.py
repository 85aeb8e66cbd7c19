"""Removal of weights that an l1 penalty makes zero at the optimum and SGD has left near zero.

Such weights are identified by the optimality condition, not by their size. At a solution of ``loss + l1 |w_u|`` the
weight u is zero if a proximal step from it, along the gradient over all rows, ends at zero: ``|w_u - eta G_u| <= eta
l1``, with ``eta = 1 / E x_u^2``. Weights that belong in the model have ``G_u = -l1 sign(w_u)`` and stay. This costs one
pass over the rows, and is done only with an l1 penalty.
"""

from __future__ import annotations

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import loss_values
from hogwild.problems.linear.problem import LinearProblem

WIDTH = 1e-4  # width of the difference quotient: right for every loss, and a subgradient at kinks


def without_remainders(problem: LinearProblem, flat: np.ndarray, rows: Rows) -> np.ndarray:
    """Copy the flat parameters, with weights that fulfil the condition of zero set to zero.

    Parameters
    ----------
    problem : LinearProblem
        A problem with ``l1`` above 0.
    flat : array of float32
    rows : Rows
        Contiguous rows with kernel targets.
    """
    p, flat = problem, flat.copy()
    parts = p.parameters(flat)
    coef = parts.coef.reshape(p.width, p.stride)[:, : p.classes]
    X, _ = rows.to_scipy()
    squares = X.multiply(X).mean(axis=0)
    reach = 1.0 / np.maximum(np.asarray(squares).ravel(), 1e-30)[:, None]
    margins = (X @ coef).astype(np.float64) + parts.intercept[: p.classes]
    slopes = _slopes(p, margins, rows.targets.astype(np.float64))
    if rows.weights is not None:
        slopes *= rows.weights[:, None]
    inverse = np.ones((p.width, 1)) if rows.inverse is None else rows.inverse[:, None]  # of scaled columns
    gradient = X.T @ slopes / len(rows) + p.l2 * np.square(inverse) * coef
    coef[np.abs(coef - reach * gradient) <= reach * p.l1 * inverse] = 0
    return flat


def _slopes(problem: LinearProblem, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Derivatives of the rows' losses in their margins, (n, classes) float64."""
    p = problem
    if p.loss == "softmax":
        shares = np.exp(margins - margins.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(targets)), targets.astype(np.int64)] -= 1.0
        return shares
    found = np.empty_like(margins)
    for k in range(p.classes):
        y = targets if p.classes == 1 else np.where(targets == k, 1.0, -1.0)
        ahead, behind = (loss_values(p.loss, margins[:, k] + side, y, p.loss_param) for side in (WIDTH, -WIDTH))
        found[:, k] = (ahead - behind) / (2 * WIDTH)
    return found
