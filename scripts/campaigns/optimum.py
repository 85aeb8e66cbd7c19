"""Optima of random linear problems, held against scipy: L-BFGS in float64, and linear programs.

Shape, scale, sparsity, weights, loss and penalties are drawn. A problem is noted if the finder ends more than 1 % and a
ten-thousandth of the start's objective above what scipy finds and does not say so, or if scipy passes its bound.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse
from common import Campaign

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the twins of the losses

from hogwild.data.rows.container import Rows
from hogwild.methods import DEFAULT_PARAM
from hogwild.problems.linear.optimum.finder import FitProblem
from tests import reference

LABELLED = ("log", "hinge", "squared-hinge", "modified-huber", "softmax")
AMOUNTS = ("tweedie", "gamma")
NUMBERS = ("squared-error", "huber", "squared-epsilon-insensitive", "epsilon-insensitive", "quantile")
LOSSES = (*LABELLED, *NUMBERS, "poisson", *AMOUNTS)
KINKED = ("hinge", "epsilon-insensitive", "quantile")
SMOOTHINGS = (1e-1, 1e-2, 1e-3, 1e-4)  # widths of the parabolas that kinks have for L-BFGS
TOLERANCE, NEGLIGIBLE = 0.01, 1e-4  # share of the optimum, and of the start's objective


@dataclass
class Drawn:
    """A problem, its loss weighted by ``weights`` over n."""

    loss: str
    X: np.ndarray  # (n, width), float32 values
    y: np.ndarray
    weights: np.ndarray
    l1: float
    l2: float
    intercept: bool
    classes: int

    @property
    def param(self) -> float:
        return 0.3 if self.loss == "quantile" else DEFAULT_PARAM.get(self.loss, 0.0)

    def __str__(self) -> str:
        n, width = self.X.shape
        return f"{self.loss} {n} x {width} l1 {self.l1:g} l2 {self.l2:g} intercept {self.intercept}"

    def smooth(self, w: np.ndarray, b: np.ndarray, width: float) -> tuple[float, np.ndarray, np.ndarray]:
        """Objective without l1, and gradients; kinks are parabolas of this width, 0 for none."""
        p, shares = self.X @ w.T + b, (self.weights / len(self.y))[:, None]
        if self.loss == "softmax":
            top = p.max(axis=1, keepdims=True)
            exps = np.exp(p - top)
            chosen = np.arange(len(p)), self.y.astype(int)
            values = (np.log(exps.sum(axis=1)) + top[:, 0] - p[chosen])[:, None]
            slopes = exps / exps.sum(axis=1, keepdims=True)
            slopes[chosen] -= 1.0
        elif width:
            y = self.y[:, None]
            if self.loss == "hinge":
                t, steepest = 1.0 - y * p, -y
            elif self.loss == "quantile":
                t, steepest = np.abs(p - y), np.where(p > y, 1.0 - self.param, -self.param)
            else:
                t, steepest = np.abs(p - y) - self.param, np.sign(p - y)
            inner = np.clip(t, 0.0, width)
            values = np.abs(steepest) * (inner * inner / (2.0 * width) + np.maximum(t - width, 0.0))
            slopes = steepest * inner / width
        else:
            values = reference.loss(self.loss, p, self.y[:, None], self.param)
            slopes = reference.dloss(self.loss, p, self.y[:, None], self.param)
        slopes = slopes * shares
        return (
            float((values * shares).sum() + self.l2 / 2 * np.square(w).sum()),
            slopes.T @ self.X + self.l2 * w,
            slopes.sum(axis=0) * self.intercept,
        )

    def objective(self, w: np.ndarray, b: np.ndarray) -> float:
        return self.smooth(w, b, 0.0)[0] + self.l1 * float(np.abs(w).sum())


def drawn(random: np.random.Generator) -> Drawn:
    n, width = int(np.exp(random.uniform(2.5, 4.6))), int(np.exp(random.uniform(0, 4.8)))
    X = random.normal(size=(n, width))
    if random.random() < 0.3:  # dependent columns
        X = X @ (np.ones((width, width)) + 0.3 * random.normal(size=(width, width))) / np.sqrt(width)
    z = X @ random.normal(size=width) / np.sqrt(width) + random.choice((0.0, 0.5, 3.0)) * random.normal(size=n)
    X *= random.random((n, width)) < random.choice((0.1, 0.5, 1.0))
    X *= 10.0 ** (random.choice((0, 0, 1, 3)) * random.uniform(-1, 1, size=width))
    if random.random() < 0.2:  # far from zero
        X += 10.0
    loss = str(random.choice(LOSSES))
    y = np.where(z > np.quantile(z, random.choice((0.5, 0.9))), 1.0, -1.0) if loss in LABELLED else z
    y = random.poisson(np.exp(np.clip(z, -3, 3))).astype(float) if loss == "poisson" else y
    y = random.gamma(2.0, np.exp(np.clip(z, -3, 3))) if loss in AMOUNTS else y
    classes = 3 if loss == "softmax" else 1
    y = np.digitize(z, np.quantile(z, (0.3, 0.7))).astype(float) if classes > 1 else y
    weights = random.choice((1.0, 0.0)) + np.exp(random.normal(size=n)) * (random.random(n) < 0.8)
    weights = np.ones(n) if random.random() < 0.5 else weights
    l1, l2 = (10.0 ** random.uniform(-6, -1) * (random.random() < 0.5) for _ in range(2))
    X, y = np.float32(X).astype(float), np.float32(y).astype(float)
    return Drawn(loss, X, y, weights, l1, l2, bool(random.random() < 0.8), classes)


def lowest(d: Drawn) -> float:
    """The lowest objective that scipy finds."""
    if d.loss in KINKED and d.l2 == 0.0:
        return program(d)
    K, width = d.classes, d.X.shape[1]
    means = d.X.mean(axis=0) if d.intercept else np.zeros(width)
    scale = np.sqrt(np.square(d.X - means).mean(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    size = K * width

    def parameters(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = (x[:size] - x[size : 2 * size]).reshape(K, width) / scale
        return w, x[2 * size :] * d.intercept - w @ means

    def value(x: np.ndarray, kink: float) -> tuple[float, np.ndarray]:
        found, of_w, of_b = d.smooth(*parameters(x), kink)
        v = ((of_w - np.outer(of_b, means)) / scale).ravel()
        l1 = d.l1 / np.tile(scale, K)
        rest = x[: 2 * size] @ np.tile(l1, 2)
        return (found if np.isfinite(found) else 1e300) + rest, np.concatenate((v + l1, l1 - v, of_b))

    x, best = np.zeros(2 * size + K), d.objective(np.zeros((K, width)), np.zeros(K))
    bounds = [(0, None)] * 2 * size + [(None, None)] * K
    for kink in SMOOTHINGS if d.loss in KINKED else (0.0,):
        options: dict[str, Any] = {"maxiter": 1500, "maxfun": 3000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 30}
        with np.errstate(all="ignore"):
            x = scipy.optimize.minimize(value, x, (kink,), "L-BFGS-B", jac=True, bounds=bounds, options=options).x
        best = min(best, d.objective(*parameters(x)))
    return best


def program(d: Drawn) -> float:
    """The optimum of a loss with kinks and no l2 penalty."""
    n, width = d.X.shape
    free = np.ones((n, 1)) if d.intercept else np.zeros((n, 1))
    A = np.hstack((d.X, -d.X, free, -free))
    cost = np.concatenate((np.full(2 * width, d.l1), (0.0, 0.0), d.weights / n))
    if d.loss == "hinge":
        A, limits = np.hstack((-d.y[:, None] * A, -np.eye(n))), -np.ones(n)
    else:
        up, down, epsilon = (1.0 - d.param, d.param, 0.0) if d.loss == "quantile" else (1.0, 1.0, d.param)
        A = np.vstack((np.hstack((up * A, -np.eye(n))), np.hstack((-down * A, -np.eye(n)))))
        limits = np.concatenate((up * d.y, -down * d.y)) + epsilon
    found = scipy.optimize.linprog(cost, A, limits, bounds=(0, None))
    return float(found.fun) if found.status == 0 else np.inf


def main(arguments: list[str]) -> int:
    campaign = Campaign("optimum", arguments, 200)
    for number in campaign.rounds():
        d = drawn(np.random.default_rng((campaign.asked.seed, number)))
        rows = Rows.from_scipy(scipy.sparse.csr_matrix(d.X), d.y)
        posed = FitProblem(rows, d.loss, d.param, d.l1, d.l2, d.y, d.weights, None, d.intercept)
        shape = (d.classes, d.X.shape[1]) if d.classes > 1 else (d.X.shape[1],)
        found = posed.lowered(np.zeros(shape), np.zeros(d.classes))
        value, theirs = d.objective(np.atleast_2d(found.coef), found.intercept), lowest(d)
        campaign.tried[d.loss] += 1
        near = found.is_near(TOLERANCE)
        campaign.ended["near" if near else "warned"] += 1
        slack = max(TOLERANCE * abs(theirs), NEGLIGIBLE * found.start)
        if near and value > theirs + slack:
            campaign.problem(f"{number}: {d}: {value:.7g} is above {theirs:.7g}, gap {found.gap:.2g}")
        if theirs < value - found.gap - slack:
            campaign.problem(f"{number}: {d}: {theirs:.7g} is below the bound {value - found.gap:.7g}")
        if not near and found.value - slack <= theirs < np.inf:
            campaign.problem(f"{number}: {d}: {value:.7g} is near {theirs:.7g}, and the gap said to be {found.gap:.2g}")
        if not np.isclose(value, found.value, rtol=1e-6, atol=1e-9):
            campaign.problem(f"{number}: {d}: the finder says {found.value:.9g} of {value:.9g}")
    return campaign.close()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.optimize.OptimizeWarning)
        sys.exit(main(sys.argv[1:]))
