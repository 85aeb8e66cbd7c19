"""Matrix completion: ratings a second of every way that is meant to be fast, beside cornac where it is installed.

The decision that matters: all do their epochs at the same step, rank and penalty, and the root mean squared error on
held-out ratings stands beside each rate, so that none is fast by doing less. Ratings are shaped like those of the
Netflix Prize: few from most users, and popular items. cornac is timed by the difference of a long and a short fit,
which leaves out what either sets up; it is given the ratings by user, the order it is fastest in.
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
from hogwild.hosts.job import Job, Task
from hogwild.machine import cache_bytes, one_cpu_a_core
from hogwild.problems.completion import CompletionProblem

RANKS = (32, 64)
SIZES = {False: (480_189, 17_770, 10_000_000), True: (60_000, 4_000, 1_000_000)}  # users, items, ratings; True: quick
STEP, L2 = 0.03, 0.05  # l2 as cornac's
KINDS = {"hogwild": ("hogwild", "shuffled"), "blocks": ("hogwild", "blocks"), "tiered": ("tiered", "shuffled")}
HELD_OUT = 0.1
USUAL_CACHE = 1 << 20  # bytes, where the machine does not say
SHORT, LONG = 1, 3  # epochs of cornac's two fits

Ratings = tuple[np.ndarray, np.ndarray, np.ndarray]


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Seconds an epoch, ratings a second, speed-up and held-out error, by rank and number of workers."""
    shape, train, test = netflix_shaped(*SIZES[plan.quick])
    counts = [workers for workers in plan.workers if workers <= max(len(one_cpu_a_core()), 1)] or [1]
    for rank in RANKS:
        yield from _of_rank(plan, rank, shape, train, test, counts)


def _of_rank(
    plan: Plan, rank: int, shape: tuple[int, int], train: Ratings, test: Ratings, counts: list[int]
) -> Iterator[dict[str, Any]]:
    ours: dict[tuple[str, int], _Training] = {("serial", 1): _Training(train, shape, rank, "serial", "shuffled", 1)}
    for workers in counts:
        if workers > 1:
            for kind, (discipline, order) in KINDS.items():
                ours[kind, workers] = _Training(train, shape, rank, discipline, order, workers)
    theirs: dict[tuple[str, int], _Cornac] = {}
    if plan.against and importlib.util.find_spec("cornac"):
        theirs = {("cornac", workers): _Cornac(train, shape, rank, workers) for workers in counts}
    sides: dict[tuple[str, int], Any] = {**ours, **theirs}
    named: dict[str, Side] = {f"{kind}/{workers}": side for (kind, workers), side in sides.items()}
    times = interleaved(named, plan.repeats, lambda text: plan.note(f"rank {rank}, {text}"))
    alone = times["serial/1"].seconds
    for (kind, workers), side in sides.items():
        timing = times[f"{kind}/{workers}"]
        yield timing.fields() | {
            "rank": rank, "kind": kind, "workers": workers, "users": shape[0], "items": shape[1],
            "ratings": len(train[0]), "ratings_per_second": timing.per_second(len(train[0])),
            "speedup": ratio(alone, timing.seconds), "epochs": side.epochs, "step": STEP, "l2": L2,
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
    """Our own epochs, one a call, by threads of this process."""

    def __init__(
        self, train: Ratings, shape: tuple[int, int], rank: int, discipline: str, order: str, workers: int
    ) -> None:
        self.epochs = 0
        users, items, values = train
        self._problem = CompletionProblem.of(
            shape, items, values, discipline, rank=rank, l2=L2, order=order, workers=workers
        )
        tiles, arrays = self._problem.lay_out(users, items, values, cache_bytes("L2") or USUAL_CACHE, workers, 0)
        self._job = job = Job.of(self._problem, tiles, 0, workers, arrays, shared=False)
        self._parts: list[tuple[Any, Any, Any]] = [(job.shared(), job.scratch(), job.data()) for _ in range(workers)]
        self._problem.compile()

    def __call__(self) -> float:
        self._job.begin_epoch(self.epochs, 0)
        task = Task(self.epochs, 0, (STEP, 1.0, 0.0))
        works = [partial(self._job.work, *parts, task, worker) for worker, parts in enumerate(self._parts)]
        self.epochs += 1
        return together(works)

    def error(self, test: Ratings) -> float:
        return _error(self._problem.mean, self._problem.solution(self._job.flat), test)


class _Cornac:
    """cornac's matrix factorisation, trained anew in every call; seconds of one of its epochs."""

    def __init__(self, train: Ratings, shape: tuple[int, int], rank: int, workers: int) -> None:
        from cornac.data import Dataset

        users, items, values = train
        self.epochs, self._rank, self._workers, self._model = LONG, rank, workers, None
        ids = [{index: index for index in range(count)} for count in shape]
        self._data = Dataset(
            num_users=shape[0], num_items=shape[1], uid_map=ids[0], iid_map=ids[1],
            uir_tuple=(users.astype(np.int64), items.astype(np.int64), values), timestamps=None, seed=None,
        )  # fmt: skip

    def _fit(self, epochs: int) -> tuple[float, Any]:
        from cornac.models import MF

        model: Any = MF(
            self._rank, backend="cpu", max_iter=epochs, learning_rate=STEP, lambda_reg=L2, use_bias=True,
            early_stop=False, num_threads=self._workers, seed=None, verbose=False,
        )  # fmt: skip
        start = time.perf_counter()
        model.fit(self._data)
        return time.perf_counter() - start, model

    def __call__(self) -> float:
        mine = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, set(one_cpu_a_core()[: self._workers]) or mine)
            short, _ = self._fit(SHORT)
            long, self._model = self._fit(LONG)
        finally:
            os.sched_setaffinity(0, mine)
        return max(long - short, 1e-9) / (LONG - SHORT)

    def error(self, test: Ratings) -> float:
        model: Any = self._model
        return _error(model.global_mean, (model.u_factors, model.i_factors, model.u_biases, model.i_biases), test)
