"""Matrix completion: ratings per second of every fast method, beside cornac where it is installed.

All do the same work. Each call trains anew from the same random factors, for the same number of epochs at the same
step, penalty and rank, and the held-out root mean squared error after the last epoch stands beside each rate, so that
none is fast by doing less. cornac is driven as in a comparison (``compare/reference/factorisers.py``): it visits the
ratings by user, always in the same order, which is its fastest; ours are shuffled, which may lower the error.

Ratings are shaped like those of the Netflix Prize, few from most users and many of popular items; they also come from
a file, if one is named.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, interleaved, ratio, together
from hogwild.compare.reference.factorisers import CornacMF
from hogwild.compare.reference.outside import OUTSIDE
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.source import open_ratings
from hogwild.hosts.job import Task
from hogwild.machine import one_cpu_a_core
from hogwild.problems.completion.case import CompletionCase

RANKS = (32, 64)
SHAPED = {False: "synthetic:netflix?ratings=10000000", True: "synthetic:netflix?users=60000&items=4000&ratings=1000000"}
STEP, L2 = 0.03, 0.05  # l2 as in cornac
KINDS = {"hogwild": ("hogwild", "shuffled"), "blocks": ("hogwild", "blocks"), "tiered": ("tiered", "shuffled")}
HELD_OUT = 0.1
EPOCHS = 6
SEED = 0


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield seconds per epoch, ratings per second, speed-up and held-out error, by data, rank and number of workers."""
    yield from measure_on(plan, "netflix-shaped", *ratings_of(SHAPED[plan.quick]))
    if plan.ratings is not None:
        yield from measure_on(plan, plan.ratings, *ratings_of(plan.ratings))


def measure_on(plan: BenchPlan, title: str, train: Ratings, test: Ratings) -> Iterator[dict[str, Any]]:
    """Measure on these ratings, which are sorted by user because cornac is then fastest."""
    counts = [workers for workers in plan.workers if workers <= max(len(one_cpu_a_core()), 1)] or [1]
    for rank in RANKS:
        for row in _of_rank(plan, rank, train, test, counts):
            yield {"data": title} | row


def ratings_of(name: str) -> tuple[Ratings, Ratings]:
    """Return ratings by user: those to train on, and those held out."""
    train, test = (
        part.select(np.argsort(part.users, kind="stable")) for part in open_ratings(name).split(HELD_OUT, SEED)
    )
    return train, test


def config_of(rank: int, workers: int = 1, discipline: str = "serial", order: str = "shuffled") -> TrainConfig:
    """Return the options of one side: all but these are the same for all."""
    same: dict[str, Any] = {"problem": "completion", "step": STEP, "l2": L2, "schedule": "constant", "seed": SEED}
    return TrainConfig(**same, rank=rank, workers=workers, discipline=discipline, order=order)


def _of_rank(plan: BenchPlan, rank: int, train: Ratings, test: Ratings, counts: list[int]) -> Iterator[dict[str, Any]]:
    configs = {("serial", 1): config_of(rank)}
    configs |= {(kind, workers): config_of(rank, workers, *way)
                for workers in counts if workers > 1 for kind, way in KINDS.items()}  # fmt: skip
    judge = CompletionCase(configs["serial", 1], train, test)
    judge.make_evaluator()
    sides: dict[tuple[str, int], _Training | _Cornac] = {
        key: _Training(CompletionCase(config, train, test)) for key, config in configs.items()
    }
    if plan.against and OUTSIDE["cornac"].version is not None:
        sides |= {("cornac", workers): _Cornac(train, config_of(rank, workers)) for workers in counts}
    named: dict[str, Side] = {f"{kind}/{workers}": side for (kind, workers), side in sides.items()}
    times = interleaved(named, plan.repeats, lambda text: plan.note(f"rank {rank}, {text}"))
    alone = times["serial/1"].seconds
    for (kind, workers), side in sides.items():
        timing = times[f"{kind}/{workers}"]
        yield timing.fields() | {
            "rank": rank, "kind": kind, "workers": workers, "users": train.shape[0], "items": train.shape[1],
            "ratings": len(train), "ratings_per_second": timing.per_second(len(train)),
            "speedup": ratio(alone, timing.seconds), "epochs": EPOCHS, "step": STEP, "l2": L2,
            "held_out_rmse": judge.evaluate(side.solution())["test_rmse"] if timing.seconds is not None else None,
        }  # fmt: skip


class _Training:
    """Our epochs from the same factors at each call, by threads; a call returns the seconds of one epoch."""

    def __init__(self, case: CompletionCase) -> None:
        self._case, self._job = case, case.lay_out(shared=False)
        self._first = self._job.flat.copy()
        self._parts: list[tuple[Any, Any, Any]] = [
            (self._job.shared(), self._job.scratch(), self._job.data()) for _ in range(self._job.workers)
        ]
        case.problem.compile()

    def __call__(self) -> float:
        self._job.flat[:] = self._first
        return sum(self._epoch(epoch) for epoch in range(EPOCHS)) / EPOCHS

    def _epoch(self, epoch: int) -> float:
        self._job.begin_epoch(epoch, 0)
        task = Task(epoch, 0, (STEP, 1.0, 0.0))
        return together([partial(self._job.work, *parts, task, worker) for worker, parts in enumerate(self._parts)])

    def solution(self) -> tuple[np.ndarray, ...]:
        return self._case.solution(self._job.flat)


class _Cornac:
    """cornac's, from the same factors at each call; a call returns the seconds of one epoch."""

    def __init__(self, train: Ratings, config: TrainConfig) -> None:
        self._solver, self._workers = CornacMF(train, config), config.workers
        self.solution = self._solver.solution

    def __call__(self) -> float:
        mine = os.sched_getaffinity(0)
        self._solver.restart()
        start = time.perf_counter()
        try:
            os.sched_setaffinity(0, set(one_cpu_a_core()[: self._workers]) or mine)
            self._solver.advance(EPOCHS)
        finally:
            os.sched_setaffinity(0, mine)
        return max((time.perf_counter() - start) / EPOCHS - self._solver.untimed, 1e-9)
