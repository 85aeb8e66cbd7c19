"""Curvatures of a linear objective along its coordinates, which precondition exact steps."""

from __future__ import annotations

import dataclasses

import numpy as np

from hogwild.problems.linear.exact.gradient_kernel import LEAST

Solution = tuple[np.ndarray, np.ndarray]  # coef (K, width) or (width,), and intercept (K,)
CENTRED = 1e-6  # least share of a column's curvature that is left when it is centred


@dataclasses.dataclass(frozen=True)
class Curved:
    """Curvatures of the objective along each weight (width, K), along intercepts (K,), and between both (width, K)."""

    weights: np.ndarray
    intercepts: np.ndarray
    between: np.ndarray

    def preconditioned(self, rest: Solution, intercept: bool) -> Solution:
        """Newton step along each coordinate by itself, of weights whose columns are centred if there is an intercept.

        Columns with large means would otherwise depend on the intercept, and so on each other.
        """
        of_weights, of_intercepts = rest
        bent = self.intercepts + LEAST
        means = self.between / bent * intercept
        centred = np.maximum(self.weights - means * self.between, CENTRED * self.weights) + LEAST
        step = (of_weights - means * of_intercepts) / centred
        return step, (of_intercepts / bent - (means * step).sum(axis=0)) * intercept
