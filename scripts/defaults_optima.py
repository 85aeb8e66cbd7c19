"""Certified optima of the sets of ``scripts/defaults.py``: what any finder is judged by, itself included.

    python scripts/defaults_optima.py [SET ...] [--data DIR]     # lowers the values in scripts/defaults_optima.json

Candidates are the solutions of the package's reference finder and of SciPy's L-BFGS in float64, started from there. The
objective of each is computed here, in NumPy and float64, from formulas that share nothing with the package, and the
least is kept. ``bound`` is a proven lower bound of the minimum: the objective is l2-strongly convex once the intercept
is at its best, so it is at least ``f - ||gradient||^2 / (2 l2)``; a hinge is smoothed for that, which makes this the
value of its dual at the slopes. A value that is already stored is replaced by a lower one only, a bound by a higher
one. ``start`` is the objective of zero weights, by which ``scripts/defaults.py`` knows that a value is for its data;
``finder`` is the objective of the package's reference over the best.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from scipy.special import expit, xlogy

STORE = Path(__file__).with_name("defaults_optima.json")
NARROW = 400  # columns up to which L-BFGS is preconditioned by the whole Hessian, else by its diagonal
SMOOTHINGS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # widths of the parabola that replaces the hinge's kink
ITERATIONS, ROUNDS = (2_000, 300), (5, 1)  # of L-BFGS, and how often it is preconditioned anew: narrow, wide
DELTA = 1.0  # of Huber's loss
LARGEST_MARGIN = 60.0  # of a count: exp(60) is none

Losses = tuple[np.ndarray, np.ndarray, np.ndarray]  # value, slope and curvature by the margin, each (n,)


def log(p: np.ndarray, y: np.ndarray, width: float) -> Losses:
    q = expit(-y * p)
    return np.logaddexp(0.0, -y * p), -y * q, q * (1 - q)


def hinge(p: np.ndarray, y: np.ndarray, width: float) -> Losses:
    """The hinge, or with a width a function that is at most width / 2 below it."""
    t = 1 - y * p
    if width == 0:
        return np.maximum(t, 0), -y * (t > 0), np.zeros(len(p))
    inner = np.clip(t, 0, width)
    return inner**2 / (2 * width) + np.maximum(t - width, 0), -y * inner / width, ((t > 0) & (t < width)) / width


def squared_error(p: np.ndarray, y: np.ndarray, width: float) -> Losses:
    return (p - y) ** 2 / 2, p - y, np.ones(len(p))


def huber(p: np.ndarray, y: np.ndarray, width: float) -> Losses:
    inner = np.clip(p - y, -DELTA, DELTA)
    return inner * (p - y - inner / 2), inner, (np.abs(p - y) < DELTA) * 1.0


def poisson(p: np.ndarray, y: np.ndarray, width: float) -> Losses:
    top = np.exp(np.minimum(p, LARGEST_MARGIN))
    return top - y * p + xlogy(y, y) - y, top - y, top


LOSSES: dict[str, Callable[[np.ndarray, np.ndarray, float], Losses]] = {
    "log": log,
    "hinge": hinge,
    "squared-error": squared_error,
    "huber": huber,
    "poisson": poisson,
}


class Binary:
    """``weighted mean loss + l2/2 ||w||^2`` of one class against the others, or of numbers, in float64.

    The parameters are those of the columns that occur, then the intercept.
    """

    def __init__(self, X: Any, y: np.ndarray, weights: np.ndarray | None, loss: str, l2: float) -> None:
        X = scipy.sparse.csr_array(X, dtype=np.float32).astype(np.float64)  # as rows hold them
        X.sum_duplicates()
        self.used = np.unique(X.indices)
        self.X = scipy.sparse.csr_array(scipy.sparse.hstack((X[:, self.used], np.ones((len(y), 1)))))
        self.y, self.loss, self.width = y, LOSSES[loss], 0.0
        weights = np.ones(len(y)) if weights is None else weights.astype(np.float32).astype(np.float64)
        self.shares = weights / weights.sum()
        self.l2 = np.full(self.X.shape[1], l2)
        self.l2[-1] = 0.0

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient."""
        value, slope, _ = self.loss(self.X @ w, self.y, self.width)
        return float(self.shares @ value + self.l2 @ (w * w) / 2), self.X.T @ (self.shares * slope) + self.l2 * w

    def bound(self, w: np.ndarray) -> float:
        """A lower bound of the minimum, after one Newton step of the intercept."""
        w = w.copy()
        for _ in range(20):  # until its gradient is nothing
            _, slope, curvature = self.loss(self.X @ w, self.y, self.width)
            bend = self.shares @ curvature
            w[-1] -= self.shares @ slope / bend if bend > 0 else 0.0
        value, gradient = self(w)
        if self.l2[0] == 0 or abs(gradient[-1]) > 1e-13:
            return -math.inf
        smoothed = self.width / 2 * float(self.shares @ self.loss(self.X @ w, self.y, self.width)[1] ** 2)
        return value + smoothed - float(gradient[:-1] @ gradient[:-1]) / (2 * float(self.l2[0]))

    def preconditioner(self, w: np.ndarray) -> Callable[[np.ndarray, bool], np.ndarray]:
        """Map from variables in which the Hessian at w is near the identity, and its transpose."""
        c = self.shares * self.loss(self.X @ w, self.y, self.width)[2]
        if len(w) <= NARROW + 1:
            H = (self.X.T @ (self.X * c[:, None])).toarray() + np.diag(self.l2)
            scale = 1 / np.sqrt(np.maximum(np.diag(H), 1e-30))
            U = scipy.linalg.cholesky(H * scale[:, None] * scale + 1e-12 * np.eye(len(w)))
            return lambda z, back: (
                scipy.linalg.solve_triangular(U, scale * z, trans="T")
                if back
                else scale * scipy.linalg.solve_triangular(U, z)
            )
        diagonal = np.asarray(self.X.multiply(self.X).T @ c).ravel() + self.l2
        scale = 1 / np.sqrt(np.maximum(diagonal, 1e-12))
        return lambda z, back: scale * z

    def descend(self, w: np.ndarray) -> np.ndarray:
        """SciPy's L-BFGS from w, preconditioned anew until that gains nothing."""
        wide = len(w) > NARROW + 1
        for _ in range(ROUNDS[wide]):
            start, value = w, self(w)[0]
            of = self.preconditioner(w)

            def moved(z: np.ndarray, start: np.ndarray = start, of: Any = of) -> tuple[float, np.ndarray]:
                value, gradient = self(start + of(z, False))
                return value, of(gradient, True)

            most = ITERATIONS[wide]
            options = {"maxiter": most, "maxfun": 2 * most, "maxcor": 20, "ftol": 1e-16, "gtol": 1e-13}
            result = scipy.optimize.minimize(moved, np.zeros(len(w)), jac=True, method="L-BFGS-B", options=options)
            if not result.fun < value:
                break
            w = start + of(result.x, False)
            if value - result.fun <= 1e-12 * value:
                break
        return w

    def solve(self, w: np.ndarray) -> tuple[float, float]:
        """Objective and bound, both the best of those that a descent from w meets."""
        least, bound = self(w)[0], -math.inf
        for width in SMOOTHINGS if self.loss is hinge else (0.0,):
            self.width = width
            w = self.descend(w)
            bound = max(bound, self.bound(w))
            self.width = 0.0
            least = min(least, self(w)[0])
            if least - bound <= 1e-7 * least:
                break
        return least, bound


def finder(train: Any, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (K, width) and intercepts (K,) of the package's reference."""
    import hogwild
    from hogwild.compare.run.problems import find_optimum
    from hogwild.compare.run.runner import Runner
    from hogwild.config import TrainConfig

    rows = hogwild.Rows.from_scipy(train.X, train.y, weights=train.weights)
    _, (coef, intercept) = find_optimum(Runner(rows, None, TrainConfig(loss=loss, **train.options), "rows", 600.0).case)
    return np.atleast_2d(coef), intercept


def record(train: Any, loss: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """The stored facts of one set and loss."""
    coef, intercept = finder(train, loss)
    labels = np.unique(train.y) if train.task == "classes" else ()
    signs = [np.where(train.y == label, 1.0, -1.0) for label in (labels[1:] if len(labels) == 2 else labels)]
    targets = signs or [train.y.astype(np.float32).astype(np.float64)]
    start, found, least, bound = 0.0, 0.0, 0.0, 0.0
    for y, w, b in zip(targets, coef, intercept, strict=True):
        binary = Binary(train.X, y, train.weights, loss, train.options.get("l2", 1e-5))
        flat = np.concatenate((w[binary.used], [b]))
        start += binary(np.zeros(len(flat)))[0]
        found += binary(flat)[0]
        value, lower = binary.solve(flat)
        least, bound = least + value, bound + lower
    known = known or {"objective": math.inf, "bound": None}
    bounds = [value for value in (known["bound"], bound if math.isfinite(bound) else None) if value is not None]
    return {
        "start": start,
        "objective": min(least, known["objective"]),
        "bound": max(bounds, default=None),
        "finder": found / least if least > 0 else 1.0,
    }


def stored() -> dict[str, dict[str, Any]]:
    """All values, by ``set/loss``."""
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def main() -> None:
    from defaults import LOSSES as TASKS
    from defaults import opened, parsed

    asked = parsed(argparse.ArgumentParser(description=__doc__.split("\n")[0]))
    for name in asked.sets:
        train, _ = opened(name, asked.data)
        for loss in TASKS[train.task]:
            key = f"{name}/{loss}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                facts = record(train, loss, stored().get(key))
            STORE.write_text(json.dumps(stored() | {key: facts}, indent=1) + "\n")
            gap = math.nan if facts["bound"] is None else 1 - facts["bound"] / facts["objective"]
            print(f"{key:40} {facts['objective']:.12g} gap {gap:.1e} finder {facts['finder']:.9f}", flush=True)


if __name__ == "__main__":
    main()
