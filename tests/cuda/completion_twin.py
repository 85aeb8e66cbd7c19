"""Slow float64 NumPy twin of the device's visits to ratings: program after program, each with a group at a time."""

from __future__ import annotations

import numpy as np

from tests.reference import splitmix

MASK, GOLDEN, TRIES = 2**64 - 1, 0x9E3779B97F4A7C15, 8


def draw(seen, items, salt, visit, t):
    """The t-th item drawn at a visit to a rating of a user who has chosen the items ``seen``, or -1."""
    state = splitmix((salt + visit) & MASK)
    for attempt in range(t * TRIES, (t + 1) * TRIES):
        j = (splitmix((state + attempt * GOLDEN) & MASK) >> 32) * items >> 32
        if j not in seen:
            return j
    return -1


class Twin:
    """Parameters of a problem, from a flat array; ``arrays`` as its launcher takes them."""

    def __init__(self, problem, flat, arrays, atomic):
        self.problem, self.arrays, self.atomic = problem, arrays, atomic
        parts = problem.parameters(np.asarray(flat, np.float64))
        self.p, self.q = (part.reshape(-1, problem.stride).copy() for part in parts[:2])
        self.b_u, self.b_i = (part.copy() for part in parts[2:])
        self.seen = [set() for _ in range(problem.users)]
        for u, i in zip(arrays["users"], arrays["items"]):
            self.seen[u].add(int(i))

    def flat(self):
        flat = np.zeros(self.problem.size)
        for part, mine in zip(self.problem.parameters(flat), (self.p, self.q, self.b_u, self.b_i)):
            part[:] = mine.ravel()
        return flat

    def run(self, rows, steps, group, programs, salt=0):
        for program in range(programs):
            for first in range(program * group, len(rows), programs * group):
                self.turn(rows[first : first + group], np.float64(steps[first : first + group]), salt + first)

    def write(self, array, k, old, new):
        """Of several of a group at one place the changes add up, or the last one stays."""
        if not self.atomic:
            array[k] = new
            return
        np.add.at(array, k, new - old)

    def shrinks(self, rates, k, step):
        rate = self.arrays[rates][k] if self.problem.rated else 1.0
        return 1 / (1 + step * self.problem.l2 * rate)

    def moved(self, row, along, move, shrink):
        return (row - move[:, None] * along) * shrink[:, None]

    def turn(self, rows, step, salt):
        """Visits of a group, which all see what was there before; drawn items are written at once."""
        problem, u, i = self.problem, self.arrays["users"][rows], self.arrays["items"][rows]
        drawn = [
            np.array([draw(self.seen[user], problem.items, salt, visit, t) for visit, user in enumerate(u)])
            for t in range(0 if problem.loss == "squared-error" else problem.negatives)
        ]
        if problem.loss == "bpr":
            self.bpr(u, i, drawn, step)
        else:
            self.pairs(u, [i, *drawn], step, rows)

    def pairs(self, u, items, step, rows):
        biased = self.problem.biases
        raw_p, raw_b = self.p[u], self.b_u[u]
        p, b = raw_p.copy(), raw_b.copy()
        for t, j in enumerate(items):
            on = np.flatnonzero(j >= 0)
            k, q, b_i, now = j[on], self.q[j[on]], self.b_i[j[on]], step[on]
            margin, y = (p[on] * q).sum(1) + (b[on] + b_i) * biased, -1.0 if t else 1.0
            explicit = self.problem.loss == "squared-error"
            move = now * (margin - self.arrays["values"][rows] if explicit else -y / (1 + np.exp(y * margin)))
            s_u, s_i = self.shrinks("user_rates", u[on], now), self.shrinks("item_rates", k, now)
            new_q = self.moved(q, p[on], move, s_i)
            p[on] = self.moved(p[on], q, move, s_u)
            self.write(self.q, k, q, new_q)
            if biased:
                b[on] = (b[on] - move) * s_u
                self.write(self.b_i, k, b_i, (b_i - move) * s_i)
        self.write(self.p, u, raw_p, p)
        if biased:
            self.write(self.b_u, u, raw_b, b)

    def bpr(self, u, i, drawn, step):
        biased = self.problem.biases
        raw_p, raw_q, raw_b = self.p[u], self.q[i], self.b_i[i]
        p, q, b = raw_p.copy(), raw_q.copy(), raw_b.copy()
        for j in drawn:
            on = np.flatnonzero(j >= 0)
            k, other, b_j, now = j[on], self.q[j[on]], self.b_i[j[on]], step[on]
            margin = (p[on] * (q[on] - other)).sum(1) + (b[on] - b_j) * biased
            move = -now / (1 + np.exp(margin))
            shrink = self.shrinks("", k, now)
            new_other = self.moved(other, p[on], -move, shrink)
            p[on], q[on] = self.moved(p[on], q[on] - other, move, shrink), self.moved(q[on], p[on], move, shrink)
            self.write(self.q, k, other, new_other)
            if biased:
                self.write(self.b_i, k, b_j, (b_j + move) * shrink)
                b[on] = (b[on] - move) * shrink
        self.write(self.p, u, raw_p, p)
        self.write(self.q, i, raw_q, q)
        if biased:
            self.write(self.b_i, i, raw_b, b)
