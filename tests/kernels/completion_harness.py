"""Small sets of ratings, epochs of the completion kernels run by hand, and their slow twins in float64."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse

from hogwild.data.ratings.container import Ratings
from hogwild.hosts.job import Job
from hogwild.kernels.order import generator
from hogwild.problems.completion import kernel
from hogwild.problems.completion.kernel import STATE, Plan
from hogwild.problems.completion.problem import CompletionProblem
from tests.kernels import harness

CONSTANT, FALLING = (0.1, 1.0, 0.0), (0.4, 8.0, 0.5)
SHAPE = (43, 37)
SIDE = 16
open_tile, line_at, draw = (harness.from_python(helper) for helper in (kernel.open_tile, kernel.line_at, kernel.draw))
RANK = 5 if numba.config.DISABLE_JIT else 13  # plain Python takes its time; one vector, as in most tests


def some_ratings(n=600, shape=SHAPE, rank=3, noise=0.1, seed=0):
    """Pairs that differ, values that factors explain; the last user and item have no rating."""
    rng = np.random.default_rng(seed)
    pairs = rng.permutation((shape[0] - 1) * (shape[1] - 1))[:n]
    users, items = (part.astype(np.int32) for part in np.divmod(pairs, shape[1] - 1))
    p, q = rng.normal(size=(shape[0], rank)), rng.normal(size=(shape[1], rank))
    values = 3 + np.einsum("ij,ij->i", p[users], q[items]) + rng.normal(size=n) * noise
    return users, items, values.astype(np.float32)


def some_features(size, count=4, seed=5):
    """Amounts of a few features of each user or item, (size, count)."""
    rng = np.random.default_rng(seed)
    return scipy.sparse.csr_array(rng.integers(1, 4, (size, count)) * (rng.random((size, count)) < 0.4))


def make_job(
    discipline="serial",
    workers=1,
    ratings=None,
    shape=SHAPE,
    seed=0,
    cache_bytes=1 << 13,
    features=None,
    **options,
):
    """A job on these ratings; ``options`` are those of ``CompletionProblem.of``."""
    ratings = Ratings(*(some_ratings() if ratings is None else ratings), shape)
    if features is not None:
        ratings = ratings.with_features(*features)
    problem = CompletionProblem.of(ratings, discipline, workers, **{"rank": RANK, "l2": 0.05} | options)
    order, arrays = problem.lay_out(ratings, cache_bytes, workers, seed)
    return Job.of(problem, order, seed, workers, arrays, shared=False)


def run_epoch(job, epoch=0, step=CONSTANT, **more):
    harness.run_epoch(job, epoch, step, **more)


def plan_of(job, epoch, step):
    problem, order = job.problem, job.order
    return Plan(
        job.state["blocks"],
        order.n_rows,
        order.n_chunks,
        order.grid[1],
        problem.users,
        problem.items,
        int(order.shuffled),
        0,
        job.seed,
        epoch,
        step,
        problem.l2,
        problem.negatives,
        0,
        job.workers,
        1 << 62,
    )


@np.errstate(all="ignore")
def visits(job, epoch=0, step=CONSTANT):
    """``(rating, step)`` of every visit of an epoch, in its order; the epoch must have begun."""
    state, data, plan = np.zeros(STATE, np.int64), job.data(), plan_of(job, epoch, step)
    scale, offset, power = step
    for number, tile in enumerate(job.state["blocks"]):
        open_tile(state, tile, number, data, plan)
        before = epoch * plan.n_rows + number * plan.n_rows // len(plan.blocks)
        for at in range(data.begin[tile + 1] - data.begin[tile]):
            line, flip = line_at(state, at - at % SIDE)
            yield line + (at % SIDE ^ flip), scale * (offset + before + at - at % SIDE) ** -power


class Twin:
    """The same epochs in float64, row by row."""

    def __init__(self, job):
        self.job, self.problem, self.data = job, job.problem, job.data()
        parts = job.problem.parameters(job.flat.astype(np.float64))
        self.p, self.q = (part.reshape(-1, job.problem.stride).copy() for part in parts[:2])
        self.b_u, self.b_i = (part.copy() for part in parts[2:])
        self.salt = None

    def flat(self):
        flat = np.zeros(self.problem.size)
        for part, mine in zip(self.problem.parameters(flat), (self.p, self.q, self.b_u, self.b_i)):
            part[:] = mine.ravel()
        return flat

    def run(self, epoch, step):
        plan = plan_of(self.job, epoch, step)
        with np.errstate(all="ignore"):
            self.salt = np.uint64(generator(plan.seed, epoch, len(plan.blocks)))
        for k, now in visits(self.job, epoch, step):
            u, i = self.data.users[k], self.data.items[k]
            if self.problem.loss == "squared-error":
                e = self.margin(u, i) - float(self.data.values[k])
                self.apply(u, i, now * e, now)
            else:
                self.implicit(k, u, i, now, plan)

    def of(self, side, n):
        """Rows of a user (side 0) or item (1), and their shares: of all but features one, whole."""
        data = self.data
        if self.problem.features is None:
            return [n], np.ones(1)
        place = slice(*data.sums_begin[n + side * self.problem.users :][:2])
        return data.sums_rows[place], data.sums_shares[place].astype(float)

    def sums(self, side, n):
        (rows, shares), bias = self.of(side, n), (self.b_u, self.b_i)[side]
        return shares @ (self.p, self.q)[side][rows], shares @ bias[rows] if self.problem.biases else 0.0

    def margin(self, u, i):
        (p, b_u), (q, b_i) = self.sums(0, u), self.sums(1, i)
        return p @ q + b_u + b_i

    def shift(self, side, n, move, other, step, biased=True):
        """Move the rows of a user or an item against ``move`` times the vector ``other``, and shrink them."""
        factors, bias = ((self.p, self.b_u), (self.q, self.b_i))[side]
        for row, share in zip(*self.of(side, n)):
            rate = (self.data.user_rates, self.data.item_rates)[side][row] if self.problem.penalty == "smoothed" else 1
            shrink = 1 / (1 + step * self.problem.l2 * rate * share**2)
            factors[row] = (factors[row] - move * share * other) * shrink
            if self.problem.biases and biased:
                bias[row] = (bias[row] - move * share) * shrink

    def apply(self, u, i, move, step, biased=True, before=None):
        """Move a user and an item along each other as they are, or as they were ``before``."""
        p, q = before or (self.sums(0, u)[0].copy(), self.sums(1, i)[0].copy())
        self.shift(0, u, move, q, step, biased)
        self.shift(1, i, move, p, step)

    def implicit(self, k, u, i, step, plan):
        featured, bpr = self.problem.features is not None, self.problem.loss == "bpr"
        with np.errstate(all="ignore"):
            drawn = [draw(self.data, plan, self.salt, k, t, np.uint32(u), featured) for t in range(plan.negatives)]
        items = [i, *(j for j in drawn if j >= 0)]
        first, *others = (self.margin(u, item) for item in items)  # all before any row moves
        if bpr:
            slopes = [1 / (1 + np.exp(first - other)) for other in others]
            slopes = [-sum(slopes), *slopes]
        else:
            slopes = [-1 / (1 + np.exp(first)), *(1 / (1 + np.exp(-other)) for other in others)]
        before = [(self.sums(0, u)[0].copy(), self.sums(1, item)[0].copy()) if featured else None for item in items]
        for item, slope, rows in zip(items, slopes, before, strict=True):
            self.apply(u, item, step * slope, step, not bpr, rows)
