"""Slow float64 NumPy twin of the device's visits to ratings: program after program, each with a group at a time."""

from __future__ import annotations

import numpy as np


class Twin:
    """Parameters of a problem, from a flat array; ``arrays`` as its launcher takes them."""

    def __init__(self, problem, flat, arrays, atomic):
        self.problem, self.arrays, self.atomic = problem, arrays, atomic
        parts = problem.parameters(np.asarray(flat, np.float64))
        self.p, self.q = (part.reshape(-1, problem.stride).copy() for part in parts[:2])
        self.b_u, self.b_i = (part.copy() for part in parts[2:])

    def flat(self):
        flat = np.zeros(self.problem.size)
        for part, mine in zip(self.problem.parameters(flat), (self.p, self.q, self.b_u, self.b_i)):
            part[:] = mine.ravel()
        return flat

    def run(self, rows, steps, group, programs):
        for program in range(programs):
            for first in range(program * group, len(rows), programs * group):
                self.turn(rows[first : first + group], np.float64(steps[first : first + group]))

    def turn(self, rows, step):
        """Visits of a group, which all see what was there before."""
        u, i = self.arrays["users"][rows], self.arrays["items"][rows]
        p, q, b_u, b_i = self.p[u], self.q[i], self.b_u[u], self.b_i[i]
        margins = (p * q).sum(1) + (b_u + b_i) * self.problem.biases
        move = step * (margins - self.arrays["values"][rows])
        shrink_u, shrink_i = self.shrinks("user_rates", u, step), self.shrinks("item_rates", i, step)
        self.write(self.p, u, p, (p - move[:, None] * q) * shrink_u[:, None])
        self.write(self.q, i, q, (q - move[:, None] * p) * shrink_i[:, None])
        if self.problem.biases:
            self.write(self.b_u, u, b_u, (b_u - move) * shrink_u)
            self.write(self.b_i, i, b_i, (b_i - move) * shrink_i)

    def shrinks(self, rates, k, step):
        return 1 / (1 + step * self.problem.l2 * (self.arrays[rates][k] if self.problem.rated else 1.0))

    def write(self, array, k, old, new):
        """Of several of a group at one place the changes add up, or the last one stays."""
        if self.atomic:
            np.add.at(array, k, new - old)
        else:
            array[k] = new
