"""Slow float64 twins of the linear problem's kernels on a device, written from the formulas.

Rows are visited in an order that is given; what the device does at the same time, no twin can know.
"""

from __future__ import annotations

import numpy as np

from tests import reference


class Twin:
    """Weights (width, K) and intercept (K,), and the sums of squares of each, of float64."""

    def __init__(self, problem, rows, arrays, w, b, w_squares, b_squares):
        self.problem, self.arrays = problem, arrays
        self.X = [(rows.indices[i:j].astype(int), rows.values[i:j].astype(float)) for i, j in zip(rows.begin, rows.end)]
        self.w, self.b, self.w_squares, self.b_squares = (
            np.array(part, np.float64) for part in (w, b, w_squares, b_squares)
        )

    def of(self, name, row):
        return float(self.arrays[name][row]) if len(self.arrays[name]) else 1.0

    def gradient(self, row):
        """The row's loss differentiated in each of its margins, its weight included."""
        u, x = self.X[row]
        margins, y = self.of("scales", row) * (x @ self.w[u]) + self.b, self.arrays["targets"][row]
        own = np.arange(len(margins)) == y
        if self.problem.loss == "softmax":
            e = np.exp(margins - margins.max())
            slope = e / e.sum() - own
        else:
            sides = y if self.problem.classes == 1 else np.where(own, 1.0, -1.0)
            slope = reference.dloss(self.problem.loss, margins, sides, self.problem.loss_param)
        return slope * self.of("weights", row)

    def visit(self, row, step):
        self.apply([(row, self.gradient(row), step)])

    def batch(self, rows, steps):
        """Rows that all see the same weights, whose penalty is taken once, by the sum of their steps."""
        self.apply([(row, self.gradient(row), step) for row, step in zip(rows, steps)])

    def apply(self, visits):
        problem, rates = self.problem, self.arrays["rates"]
        moved, pulls = np.zeros_like(self.w), np.zeros_like(self.w)
        gradients = [(row, np.outer(self.X[row][1] * self.of("scales", row), g), g, step) for row, g, step in visits]
        if problem.adagrad:
            for row, gradient, g, _ in gradients:
                self.w_squares[self.X[row][0]] += gradient**2
                self.b_squares += g**2 if problem.intercept else 0
        for row, gradient, g, step in gradients:
            u = self.X[row][0]
            roots = np.sqrt(self.w_squares[u] + 1e-10) if problem.adagrad else 1.0
            moved[u] += step / roots * gradient
            if len(rates):
                pulls[u] += (step / roots * np.ones_like(gradient)) * rates[u, None]
            root = np.sqrt(self.b_squares + 1e-10) if problem.adagrad else 1.0
            self.b -= problem.intercept * step / root * g
        self.w -= moved
        self.w = np.sign(self.w) * np.maximum(np.abs(self.w) - pulls * problem.l1, 0) / (1 + pulls * problem.l2)
