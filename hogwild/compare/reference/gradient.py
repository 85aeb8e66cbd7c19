"""The smooth part of the objective and its gradient in float64, which L-BFGS needs to find the optimum.

The data are copied to float64, with rows scaled and features that never occur left out, in one block per core, because
an optimiser passes over them hundreds of times; this takes 12 bytes a nonzero, and 2 to 4 ns a nonzero and call. The
values are those of ``problems/linear/objective.py`` up to rounding (a test compares them), and that module decides on
every solution found here.

Losses with a kink can be smoothed: their ``max(0, t)`` becomes a parabola on ``0 < t < mu``, at most ``mu / 2`` below,
so a minimum of the smoothed objective is a lower bound of the true one (Nesterov 2005, Smooth minimization of
non-smooth functions).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.data.rows.normalize import scaled
from hogwild.kernels.losses import POISSON_CAP
from hogwild.machine import physical_cores
from hogwild.problems.linear.problem import LinearProblem

Pair = tuple[np.ndarray, np.ndarray]  # losses, and their derivatives by the margin


def _plus(t: np.ndarray, mu: float) -> Pair:
    """``max(0, t)``, smoothed on ``0 < t < mu``."""
    if mu == 0.0:
        return np.maximum(t, 0.0), (t > 0.0).astype(np.float64)
    inner = np.clip(t, 0.0, mu)
    return inner * inner / (2.0 * mu) + np.maximum(t - mu, 0.0) + 0.0 * t, inner / mu


def _log(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    from scipy.special import expit

    return np.logaddexp(0.0, -y * p), -y * expit(-y * p)


def _hinge(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    value, slope = _plus(1.0 - y * p, mu)
    return value, -y * slope


def _squared_hinge(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    t = np.maximum(1.0 - y * p, 0.0)
    return t * t, -2.0 * y * t


def _modified_huber(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    z = y * p
    t = np.clip(1.0 - z, 0.0, 2.0)
    return np.where(z < -1.0, -4.0 * z, t * t), -2.0 * y * t


def _squared_error(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    r = p - y
    return r * r / 2.0, r


def _huber(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    r = p - y
    inner = np.clip(r, -param, param)
    return inner * (r - inner / 2.0), inner


def _epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    value, slope = _plus(np.abs(p - y) - param, mu)
    return value, np.sign(p - y) * slope


def _squared_epsilon_insensitive(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    t = np.maximum(np.abs(p - y) - param, 0.0)
    return t * t, 2.0 * np.sign(p - y) * t


def _poisson(p: np.ndarray, y: np.ndarray, param: float, mu: float) -> Pair:
    top = np.exp(np.minimum(p, POISSON_CAP))
    return top * (1.0 + np.maximum(p - POISSON_CAP, 0.0)) - y * p, top - y


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, float, float], Pair]] = {
    "log": _log,
    "hinge": _hinge,
    "squared-hinge": _squared_hinge,
    "modified-huber": _modified_huber,
    "squared-error": _squared_error,
    "huber": _huber,
    "epsilon-insensitive": _epsilon_insensitive,
    "squared-epsilon-insensitive": _squared_epsilon_insensitive,
    "poisson": _poisson,
}
HALVINGS = 60
KINKED = ("hinge", "epsilon-insensitive")  # smooth only with mu > 0


def _softmax(p: np.ndarray, classes: np.ndarray) -> Pair:
    rows, top = np.arange(len(p)), p.max(axis=1)
    shares = np.exp(p - top[:, None])
    total = shares.sum(axis=1)
    losses = top + np.log(total) - p[rows, classes]
    shares /= total[:, None]
    shares[rows, classes] -= 1.0
    return losses, shares


def matrix(rows: Rows, normalize: str) -> tuple[Any, np.ndarray]:
    """Rows as they are trained on, scaled: CSR float64 (n, features that occur), and those features, ascending."""
    import scipy.sparse

    X, _ = rows.to_scipy()
    values, indices = scaled(X.data, rows, normalize, np.float64), X.indices
    seen = np.zeros(rows.width, dtype=bool)
    seen[indices] = True
    used = np.flatnonzero(seen)
    if len(used) < rows.width:
        indices = (np.cumsum(seen, dtype=np.int32) - 1)[indices]
    return scipy.sparse.csr_array((values, indices, X.indptr), shape=(len(rows), len(used)), copy=False), used


def _slice(X: Any, first: int, last: int) -> Any:
    """Rows of a CSR array, sharing its data, which scipy's own slices copy."""
    low, high = X.indptr[first], X.indptr[last]
    part = type(X)((last - first, X.shape[1]), dtype=X.dtype)
    part.data, part.indices = X.data[low:high], X.indices[low:high]  # the constructor would copy them
    part.indptr = X.indptr[first : last + 1] - low
    return part


class Smooth:
    """``weighted mean loss + l2/2 ||w||^2`` and its gradient, for flat parameters: K rows of weights, then intercepts.

    Parameters
    ----------
    rows : Rows
    problem : LinearProblem
        The objective, except for l1.
    weights : array of shape (n,), optional
    intercept : bool
    """

    def __init__(self, rows: Rows, problem: LinearProblem, weights: np.ndarray | None, intercept: bool) -> None:
        self.problem, self.intercept = problem, intercept
        self.X, self.used = matrix(rows, problem.normalize)
        self.classes = problem.classes
        codes = problem.encode(rows.targets)
        if self.classes > 1:
            codes = codes.astype(np.int64)
        if self.classes > 1 and problem.loss != "softmax":
            signs = np.full((len(rows), self.classes), -1.0)
            signs[np.arange(len(rows)), codes] = 1.0
            codes = signs
        self.y = codes if self.classes > 1 else codes.astype(np.float64)
        weights = np.ones(len(rows)) if weights is None else weights.astype(np.float64)
        self.shares = weights / weights.sum()  # weights of the rows in the mean
        self.mu = 0.0
        cuts = np.linspace(0, len(rows), min(physical_cores(), len(rows)) + 1).astype(int)
        self.blocks = [(slice(i, j), _slice(self.X, i, j)) for i, j in itertools.pairwise(cuts)]

    @property
    def weights(self) -> int:
        """Number of penalised parameters."""
        return self.classes * len(self.used)

    @property
    def labels(self) -> np.ndarray:
        """Targets of each class against the others, (K, n); not of softmax."""
        return np.reshape(self.y.T, (self.classes, -1))

    @property
    def size(self) -> int:
        """Length of the flat parameters."""
        return self.weights + (self.classes if self.intercept else 0)

    def flat(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """Flatten parameters given as a :class:`LinearModel` or ``solution()`` has them."""
        kept = np.reshape(coef, (self.classes, -1))[:, self.used].ravel()
        return np.concatenate((kept, np.ravel(intercept) if self.intercept else ())).astype(np.float64)

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(coef, intercept)``, like :meth:`LinearProblem.solution` but in float64."""
        coef = np.zeros((self.classes, self.problem.width))
        coef[:, self.used] = flat[: self.weights].reshape(self.classes, -1)
        intercept = flat[self.weights :].copy() if self.intercept else np.zeros(self.classes)
        return (coef[0] if self.classes == 1 else coef), intercept

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        W = flat[: self.weights].reshape(self.classes, -1)
        columns = np.ascontiguousarray(W.T) if self.classes > 1 else W[0]
        b = flat[self.weights :] if self.intercept else 0.0

        def part(block: tuple[slice, Any]) -> tuple[float, np.ndarray, np.ndarray]:
            where, X = block
            losses, slopes = self.losses(X @ columns + b, where)
            shares = self.shares[where]
            slopes *= shares if slopes.ndim == 1 else shares[:, None]
            losses = losses if losses.ndim == 1 else losses.sum(axis=1)
            return float(np.einsum("i,i->", shares, losses)), X.T @ slopes, slopes.sum(axis=0)

        with np.errstate(over="ignore", invalid="ignore"):  # a step of the line search may go far
            values, sums, offsets = zip(*self._each(part))
            value = sum(values) + self.problem.l2 / 2.0 * float(np.einsum("ij,ij->", W, W))
            gradient = np.empty(self.size)
            gradient[: self.weights] = np.ravel(sum(sums).T) + self.problem.l2 * W.ravel()
            if self.intercept:
                gradient[self.weights :] = sum(offsets)
        return value, gradient

    def settle(self, flat: np.ndarray) -> np.ndarray:
        """Return the same weights with the best intercepts for them, found by bisection; not for softmax."""
        if not self.intercept or self.problem.loss == "softmax":
            return flat
        W, found = flat[: self.weights].reshape(self.classes, -1), flat.copy()
        margins = np.concatenate([X @ np.ascontiguousarray(W.T) for _, X in self.blocks])
        slopes_of, param = SLOPES[self.problem.loss], self.problem.loss_param
        for k, y in enumerate(self.labels):

            def slope(c: float, p: np.ndarray = margins[:, k], y: np.ndarray = y) -> float:
                return float(self.shares @ slopes_of(p + c, y, param, self.mu)[1])

            b = flat[self.weights + k]
            found[self.weights + k] = root(slope, b - 1e-3, b + 1e-3, down=True)
        return found

    def losses(self, margins: np.ndarray, where: slice) -> Pair:
        """Losses and slopes of some rows: (m,), or (m, K) for K classes, except that losses of softmax are (m,)."""
        if self.problem.loss == "softmax":
            return _softmax(margins, self.y[where])
        return SLOPES[self.problem.loss](margins, self.y[where], self.problem.loss_param, self.mu)

    def _each(self, function: Callable[[tuple[slice, Any]], Any]) -> list[Any]:
        if len(self.blocks) == 1:
            return [function(self.blocks[0])]
        with ThreadPoolExecutor(len(self.blocks), thread_name_prefix="hogwild-gradient") as pool:
            return list(pool.map(function, self.blocks))


def root(slope: Callable[[float], float], low: float, high: float, down: bool = False) -> float:
    """Return the root of an increasing function; the interval is widened to hold it, downwards only if asked."""
    for _ in range(HALVINGS):
        if slope(high) >= 0:
            break
        low, high = high, high + 2 * (high - low)
    for _ in range(HALVINGS if down else 0):
        if slope(low) <= 0:
            break
        low, high = low - 2 * (high - low), low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if slope(middle) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2
