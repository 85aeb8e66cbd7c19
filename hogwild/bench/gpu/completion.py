"""Matrix completion on a GPU, as a share of a copy's bandwidth, with its error beside the CPU's.

Errors on held-out ratings are compared after the same epochs at the same step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from hogwild.bench.gpu.sides import CPU, race, ways, worse
from hogwild.bench.gpu.sizes import COMPLETION, GIGA, RANKS, Size, update_bytes
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import ratio
from hogwild.bench.sides import Training
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.source import open_ratings

HELD_OUT = 0.01
SAMPLE = 1 << 20  # ratings from which the number in flight is determined
COPY = "copy"


def measure(plan: BenchPlan, size: Size, copy: Any) -> Iterator[dict[str, Any]]:
    """Yield updates per second of every rank, discipline and number in flight."""
    plan.note(f"opening {size.ratings}")
    ratings = open_ratings(size.ratings, cache=plan.cache)
    train, test = ratings.split(HELD_OUT)
    about = {"data": size.ratings, "users": train.shape[0], "items": train.shape[1], "ratings": len(train)}
    for rank in RANKS:
        for row in _of_rank(plan, size, rank, train, test, copy):
            yield about | row


def _of_rank(
    plan: BenchPlan, size: Size, rank: int, train: Ratings, test: Ratings, copy: Any
) -> Iterator[dict[str, Any]]:
    options: dict[str, Any] = {"problem": "completion", "rank": rank, **COMPLETION}
    sample = train.select(train.evenly(SAMPLE))
    title, every = f"completion, rank {rank}", size.epochs["completion"]
    starts = {
        name: partial(Training, train, evaluate_every=every, test=test, **options, **way)
        for name, way in ways(plan, title, sample, **options).items()
    }
    rounds = min(plan.repeats, size.rounds)
    found, times = race(starts, "test_rmse", rounds, lambda text: plan.note(f"{title}, {text}"), {COPY: copy})
    copied = times[COPY].per_second(copy.moved)
    for name, row in found.items():
        rate = ratio(len(train), row["seconds"])
        moved = None if rate is None else rate * update_bytes(rank)
        yield row | {
            "part": "completion", "what": f"completion {rank}: {name}", "rank": rank,
            "measured": None if rate is None else rate / GIGA, "unit": "G updates/s", "updates_per_second": rate,
            "bytes_per_update": update_bytes(rank), "bytes_per_second": moved, "copy_bytes_per_second": copied,
            "rival": COPY, "ratio": ratio(moved, copied), "worse": worse(row.get("loss"), found[CPU].get("loss")),
        }  # fmt: skip
