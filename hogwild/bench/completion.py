"""Matrix completion: ratings a second of every way that is meant to be fast, beside cornac where it is installed.

The decision that matters: all do the same work. Each call trains anew from the same random factors, for the same number
of epochs at the same step, penalty and rank, and the root mean squared error on held-out ratings after the last stands
beside each rate, so that none is fast by doing less. Step and penalty are in units in which the ratings have mean 0 and
deviation 1, so cornac is given them in these units; both count the penalty once a rating. cornac is timed by the
difference of a long and a short fit, which leaves out what either sets up, and visits the ratings by user, always in
one order, which is the fastest it has; ours are shuffled, for which the error may be lower.

Ratings are shaped like those of the Netflix Prize, few from most users and popular items, and come from a file too,
where one is named.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hogwild.bench.plan import Plan
from hogwild.bench.rounds import Side, interleaved, ratio, together
from hogwild.data.rating_source import open_ratings
from hogwild.hosts.job import Job, Task
from hogwild.machine import l2_bytes, one_cpu_a_core
from hogwild.problems.completion import CompletionProblem
from hogwild.problems.linear import aligned

RANKS = (32, 64)
SIZES = {False: (480_189, 17_770, 10_000_000), True: (60_000, 4_000, 1_000_000)}  # users, items, ratings; True: quick
STEP, L2 = 0.03, 0.05  # l2 as cornac's
KINDS = {"hogwild": ("hogwild", "shuffled"), "blocks": ("hogwild", "blocks"), "tiered": ("tiered", "shuffled")}
HELD_OUT = 0.1
EPOCHS, SHORT = 6, 1  # of training; of cornac's short fit
SEED = 0

Ratings = tuple[np.ndarray, np.ndarray, np.ndarray]


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Seconds an epoch, ratings a second, speed-up and held-out error, by data, rank and number of workers."""
    yield from measure_on(plan, "netflix-shaped", *netflix_shaped(*SIZES[plan.quick]))
    if plan.ratings is not None:
        yield from measure_on(plan, plan.ratings, *ratings_of(plan.ratings))


def measure_on(
    plan: Plan, title: str, shape: tuple[int, int], train: Ratings, test: Ratings
) -> Iterator[dict[str, Any]]:
    """The same on these ratings, sorted by user: cornac is fastest so."""
    counts = [workers for workers in plan.workers if workers <= max(len(one_cpu_a_core()), 1)] or [1]
    for rank in RANKS:
        for row in _of_rank(plan, rank, shape, train, test, counts):
            yield {"data": title} | row


def ratings_of(name: str) -> tuple[tuple[int, int], Ratings, Ratings]:
    """Shape, and the ratings of a file by user: those to train on, and others."""
    ratings = open_ratings(name)
    parts = []
    for part in ratings.split(HELD_OUT, SEED):
        by_user = np.argsort(part.users, kind="stable")
        parts.append((part.users[by_user], part.items[by_user], part.values[by_user]))
    return ratings.shape, parts[0], parts[1]


def _of_rank(
    plan: Plan, rank: int, shape: tuple[int, int], train: Ratings, test: Ratings, counts: list[int]
) -> Iterator[dict[str, Any]]:
    problem = CompletionProblem.of(shape, train[1], train[2], "serial", rank=rank, l2=L2)
    first = aligned(problem.size)
    problem.start(first, SEED)
    ways = {("serial", 1): ("serial", "shuffled")}
    ways |= {(kind, workers): way for workers in counts if workers > 1 for kind, way in KINDS.items()}
    sides: dict[tuple[str, int], _Training | _Cornac] = {
        (kind, workers): _Training(train, shape, rank, *way, workers, first) for (kind, workers), way in ways.items()
    }
    if plan.against and importlib.util.find_spec("cornac"):
        sides |= {("cornac", workers): _Cornac(train, problem, first, workers) for workers in counts}
    named: dict[str, Side] = {f"{kind}/{workers}": side for (kind, workers), side in sides.items()}
    times = interleaved(named, plan.repeats, lambda text: plan.note(f"rank {rank}, {text}"))
    alone = times["serial/1"].seconds
    for (kind, workers), side in sides.items():
        timing = times[f"{kind}/{workers}"]
        yield timing.fields() | {
            "rank": rank, "kind": kind, "workers": workers, "users": shape[0], "items": shape[1],
            "ratings": len(train[0]), "ratings_per_second": timing.per_second(len(train[0])),
            "speedup": ratio(alone, timing.seconds), "epochs": EPOCHS, "step": STEP, "l2": L2,
            "held_out_rmse": side.error(test) if timing.seconds is not None else None,
        }  # fmt: skip


def netflix_shaped(users: int, items: int, n: int, seed: int = 0) -> tuple[tuple[int, int], Ratings, Ratings]:
    """Shape, and about ``n`` ratings from 1 to 5 by user, as files have them: those to train on, and others."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, items + 1) ** 0.8
    eager = rng.lognormal(0, 1.1, users)
    u = rng.choice(users, n, p=eager / eager.sum())
    i = rng.permutation(items)[rng.choice(items, n, p=popular / popular.sum())]
    pairs = np.unique(u * items + i)
    user, item = (part.astype(np.int32) for part in np.divmod(pairs, items))
    p, q = rng.normal(0, 0.5, (users, 8)).astype(np.float32), rng.normal(0, 0.6, (items, 8)).astype(np.float32)
    values = 3.6 + rng.normal(0, 0.4, users)[user] + rng.normal(0, 0.5, items)[item] + rng.normal(0, 0.6, len(user))
    for first in range(0, len(user), 1 << 20):  # so that gathered rows take little memory
        part = slice(first, first + (1 << 20))
        values[part] += np.einsum("ij,ij->i", p[user[part]], q[item[part]])
    values = np.clip(np.rint(values), 1, 5).astype(np.float32)
    held = rng.random(len(user)) < HELD_OUT
    train, test = ((user[part], item[part], values[part]) for part in (~held, held))
    return (users, items), train, test


def _error(mean: float, solution: Any, test: Ratings) -> float:
    users, items, values = test
    p, q, b_u, b_i = solution
    total = 0.0
    for first in range(0, len(users), 1 << 18):
        u, i, r = (array[first : first + (1 << 18)] for array in (users, items, values))
        misses = mean + b_u[u] + b_i[i] + np.einsum("ij,ij->i", p[u], q[i]) - r
        total += float(np.einsum("i,i->", misses, misses, dtype=np.float64))
    return float(np.sqrt(total / len(users)))


class _Training:
    """Our own epochs, by threads of this process; seconds of one of them."""

    def __init__(
        self, train: Ratings, shape: tuple[int, int], rank: int, discipline: str, order: str, workers: int,
        first: np.ndarray,
    ) -> None:  # fmt: skip
        users, items, values = train
        self._problem = CompletionProblem.of(
            shape, items, values, discipline, rank=rank, l2=L2, order=order, workers=workers
        )
        tiles, arrays = self._problem.lay_out(users, items, values, l2_bytes(), workers, SEED)
        self._first, self._job = first, Job.of(self._problem, tiles, SEED, workers, arrays, shared=False)
        self._parts: list[tuple[Any, Any, Any]] = [
            (self._job.shared(), self._job.scratch(), self._job.data()) for _ in range(workers)
        ]
        self._problem.compile()

    def __call__(self) -> float:
        self._job.flat[:] = self._first
        return sum(self._epoch(epoch) for epoch in range(EPOCHS)) / EPOCHS

    def _epoch(self, epoch: int) -> float:
        self._job.begin_epoch(epoch, 0)
        task = Task(epoch, 0, (STEP, 1.0, 0.0))
        return together([partial(self._job.work, *parts, task, worker) for worker, parts in enumerate(self._parts)])

    def error(self, test: Ratings) -> float:
        return _error(self._problem.mean, self._problem.solution(self._job.flat), test)


class _Cornac:
    """cornac's matrix factorisation of the ratings in the problem's units; seconds of one of its epochs."""

    def __init__(self, train: Ratings, problem: CompletionProblem, first: np.ndarray, workers: int) -> None:
        from cornac.data import Dataset

        users, items, values = train
        self._problem, self._first, self._workers, self._model = problem, problem.factors(first), workers, None
        ids = [{index: index for index in range(count)} for count in (problem.users, problem.items)]
        self._data = Dataset(
            num_users=problem.users, num_items=problem.items, uid_map=ids[0], iid_map=ids[1],
            uir_tuple=(users.astype(np.int64), items.astype(np.int64), problem.encode(values)), timestamps=None,
            seed=None,
        )  # fmt: skip

    def _fit(self, epochs: int) -> tuple[float, Any]:
        from cornac.models import MF

        p, q = (np.array(part) for part in self._first)  # which it writes to
        model: Any = MF(
            k=self._problem.rank, backend="cpu", max_iter=epochs, learning_rate=STEP, lambda_reg=L2, use_bias=True,
            early_stop=False, num_threads=self._workers, seed=None, verbose=False, init_params={"U": p, "V": q},
        )  # fmt: skip
        start = time.perf_counter()
        model.fit(self._data)
        return time.perf_counter() - start, model

    def __call__(self) -> float:
        mine = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, set(one_cpu_a_core()[: self._workers]) or mine)
            short, _ = self._fit(SHORT)
            long, self._model = self._fit(EPOCHS)
        finally:
            os.sched_setaffinity(0, mine)
        return max(long - short, 1e-9) / (EPOCHS - SHORT)

    def error(self, test: Ratings) -> float:
        model: Any = self._model
        scale = np.float32(self._problem.scale)
        factors = (part * np.sqrt(scale) for part in (model.u_factors, model.i_factors))
        mean = self._problem.mean + float(scale * model.global_mean)
        return _error(mean, (*factors, model.u_biases * scale, model.i_biases * scale), test)
