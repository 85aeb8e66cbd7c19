"""Newton's method for smoothed losses with a kink, one class at a time: hinge and epsilon-insensitive with l2 > 0.

The smoothed loss has curvature only at the kink, in the few rows whose margin is within ``mu`` of it, so a Hessian
product costs only those rows. An exact line search (bisection, since the derivative along a direction increases) makes
a step safe from any start. With decreasing ``mu`` this takes seconds where L-BFGS takes minutes, and ends so close to
the optimum that the slopes, as a dual solution, prove it to many digits.

Keerthi, DeCoste: A modified finite Newton method for fast solution of large scale linear SVMs (2005).
"""

from __future__ import annotations

import math
import time

import numpy as np

from hogwild.compare.reference.gradient import SLOPES, Pair, Smooth, root

STEPS = 150  # at each mu
CONJUGATE = 1000  # most products in each step,
ACCURACY = 0.1  # which end at that share of the gradient


class Newton:
    """Minimises the smoothed objective of class ``k``: ``shares . loss(X w + b) + l2/2 ||w||^2``, l2 above 0."""

    def __init__(self, smooth: Smooth, k: int) -> None:
        self.X, self.y, self.shares, self.intercept = smooth.X, smooth.labels[k], smooth.shares, smooth.intercept
        self.loss, self.param, self.l2 = smooth.problem.loss, smooth.problem.loss_param, smooth.problem.l2
        self.mu = 0.0

    def descend(
        self, w: np.ndarray, b: float, mu: float, enough: float, deadline: float = math.inf
    ) -> tuple[np.ndarray, float, float]:
        """Minimise the objective smoothed by ``mu``, to within ``enough`` or until a deadline on ``time.monotonic``.

        Return ``(w, b, a lower bound of the true minimum)``.
        """
        self.mu, lower = mu, -np.inf
        b = self._settle(self.X @ w, b)
        for _ in range(STEPS):
            p = self.X @ w + b
            losses, slopes = self._losses(p)
            pull = self.shares * slopes  # their sum is 0 once the intercept is optimal
            g = self.X.T @ pull + self.l2 * w
            value = self.shares @ losses + self.l2 / 2 * (w @ w)
            short = g @ g / (2 * self.l2)
            lower = max(lower, value + mu / 2 * (self.shares @ slopes**2) - short)  # the dual objective of the slopes
            if short <= enough or time.monotonic() > deadline:
                break
            dw, db = self._direction(g, pull.sum(), (np.abs(slopes) > 0) & (np.abs(slopes) < 1))
            t = self._line(p, self.X @ dw + db, w @ dw, dw @ dw)
            w, b = w + t * dw, self._settle(self.X @ (w + t * dw), b + t * db)
        return w, b, lower

    def _losses(self, p: np.ndarray) -> Pair:
        return SLOPES[self.loss](p, self.y, self.param, self.mu)

    def _direction(self, g: np.ndarray, gb: float, kink: np.ndarray) -> tuple[np.ndarray, float]:
        """Return minus the inverse Hessian times the gradient, by conjugate gradients; the intercept is eliminated."""
        from scipy.sparse.linalg import LinearOperator, cg

        X, weights = self.X[np.flatnonzero(kink)], self.shares[kink] / self.mu
        total = weights.sum() if self.intercept else 0.0
        centre = X.T @ weights / total if total > 0 else np.zeros_like(g)  # mean row on the kink

        def product(v: np.ndarray) -> np.ndarray:
            return self.l2 * v + X.T @ (weights * (X @ v)) - total * centre * (centre @ v)

        right = -g + centre * gb if total > 0 else -g
        operator = LinearOperator((len(g), len(g)), matvec=product, dtype=np.float64)
        dw, _ = cg(operator, right, rtol=ACCURACY, maxiter=CONJUGATE)
        return dw, float(-(gb / total + centre @ dw)) if total > 0 else 0.0

    def _line(self, p: np.ndarray, q: np.ndarray, wd: float, dd: float) -> float:
        """Return the best multiple of a direction that changes the margins by q."""
        return root(lambda t: self.shares @ (self._losses(p + t * q)[1] * q) + self.l2 * (wd + t * dd), 0.0, 1.0)

    def _settle(self, p: np.ndarray, b: float) -> float:
        """Return the best intercept for margins without one."""
        if not self.intercept:
            return 0.0
        return root(lambda c: float(self.shares @ self._losses(p + c)[1]), b - 1e-3, b + 1e-3, down=True)
