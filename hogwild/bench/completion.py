"""Matrix completion: ratings per second of every fast method, beside cornac where it is installed.

All do the same work: from the same random factors as many epochs at the same step, penalty and rank, and the held-out
root mean squared error after the last epoch stands beside each rate, so that none is fast by doing less. cornac is
driven as in a comparison (``compare/reference/factorisers.py``): it visits the ratings by user, always in the same
order, which is its fastest; ours are shuffled, which may lower the error.

Ratings are shaped like those of the Netflix Prize, few from most users and many of popular items; they also come from
a file, if one is named.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, interleaved, ratio
from hogwild.bench.sides import Training
from hogwild.compare.reference.factorisers import CornacMF
from hogwild.compare.reference.outside import OUTSIDE
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.source import open_ratings
from hogwild.machine import one_cpu_a_core
from hogwild.problems.completion.case import CompletionCase

RANKS = (32, 64)
SHAPED = {False: "synthetic:netflix?ratings=10000000", True: "synthetic:netflix?users=60000&items=4000&ratings=1000000"}
STEP, L2 = 0.03, 0.05  # l2 as in cornac
KINDS: dict[str, dict[str, Any]] = {
    "hogwild": {"discipline": "hogwild"},
    "blocks": {"discipline": "hogwild", "order": "blocks"},
    "tiered": {"discipline": "tiered"},
}
HELD_OUT = 0.1
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


def _of_rank(plan: BenchPlan, rank: int, train: Ratings, test: Ratings, counts: list[int]) -> Iterator[dict[str, Any]]:
    same: dict[str, Any] = {"problem": "completion", "rank": rank, "l2": L2, "seed": SEED}
    ways = {("serial", 1): {"discipline": "serial", "workers": 1}}
    ways |= {
        (kind, workers): {**way, "workers": workers} for workers in counts if workers > 1 for kind, way in KINDS.items()
    }
    with ExitStack() as stack:
        sides: dict[tuple[str, int], Training | _Cornac] = {
            key: stack.enter_context(Training(train, STEP, test=test, host=plan.host, **same, **way))
            for key, way in ways.items()
        }
        if plan.against and OUTSIDE["cornac"].version is not None:
            sides |= {("cornac", workers): _Cornac(train, test, workers, same) for workers in counts}
        named: dict[str, Side] = {f"{kind}/{workers}": side for (kind, workers), side in sides.items()}
        times = interleaved(named, plan.repeats, lambda text: plan.note(f"rank {rank}, {text}"))
        alone = times["serial/1"].seconds
        for (kind, workers), side in sides.items():
            timing = times[f"{kind}/{workers}"]
            yield timing.fields() | {
                "rank": rank,
                "kind": kind,
                "workers": workers,
                "users": train.shape[0],
                "items": train.shape[1],
                "ratings": len(train),
                "ratings_per_second": timing.per_second(len(train)),
                "speedup": ratio(alone, timing.seconds),
                "epochs": side.epochs,
                "step": STEP,
                "l2": L2,
                "held_out_rmse": side.last["test_rmse"] if timing.seconds is not None else None,
            }


class _Cornac:
    """cornac's epochs from the same factors."""

    def __init__(self, train: Ratings, test: Ratings, workers: int, same: dict[str, Any]) -> None:
        config = TrainConfig(step=STEP, schedule="constant", workers=workers, discipline="hogwild", **same)
        self._solver, self._workers = CornacMF(train, config), workers
        self._judge = CompletionCase(dataclasses.replace(config, workers=1, discipline="serial"), train, test)
        self._judge.make_evaluator()

    @property
    def epochs(self) -> int:
        return self._solver.epoch

    @property
    def last(self) -> dict[str, Any]:
        """Measurements after the latest epoch."""
        return self._judge.evaluate(self._solver.solution())

    def __call__(self) -> float:
        mine = os.sched_getaffinity(0)
        start = time.perf_counter()
        try:
            os.sched_setaffinity(0, set(one_cpu_a_core()[: self._workers]) or mine)
            self._solver.advance(self._solver.epoch + 1)
        finally:
            os.sched_setaffinity(0, mine)
        return max(time.perf_counter() - start - self._solver.untimed, 1e-9)
