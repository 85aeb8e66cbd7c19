"""Matrix completion on a GPU, as a share of a copy's bandwidth, with its error beside the CPU's.

Errors on held-out ratings are compared after the same epochs at the same step. The changes of both sides are added, or
those of the items only, or rows are stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from hogwild import machine
from hogwild.bench.gpu.copying import Copy
from hogwild.bench.gpu.sides import CPU, Pace, Row, Side, TrainedSide, race, trained
from hogwild.bench.gpu.sizes import COMPLETION, RANKS, Size, update_bytes
from hogwild.cuda.backend import Backend
from hogwild.cuda.completion.launcher import SIDES
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.source import open_ratings

HELD_OUT = 0.01
COPY = "copy"


def measure(size: Size, pace: Pace, device: Backend) -> Iterator[Row]:
    """Yield bytes per second of the copy, and of every rank and way of writing."""
    train, test = open_ratings(size.ratings).split(HELD_OUT)
    for rank in RANKS:
        yield from race("completion", sides_of(size, rank, train, test, device), pace)


def sides_of(size: Size, rank: int, train: Ratings, test: Ratings, device: Backend) -> dict[str, Side]:
    """Return the sides of a rank, the copy first."""
    options: dict[str, Any] = {"problem": "completion", "rank": rank, "evaluate_every": size.epochs["completion"]}
    start = partial(trained, train, loss="test_rmse", test=test, **COMPLETION, **options)
    ways = {
        "added": partial(start, device="cuda"),
        "items added": partial(with_sides, (False, True), start),
        "stored": partial(start, device="cuda", discipline="hogwild"),
        "added, file order": partial(start, device="cuda", order="file"),
        CPU: partial(start, workers=machine.physical_cores(), host="threads"),
    }
    copy, moved = Copy(device, size.copied), len(train) * update_bytes(rank)
    about = {"unit": "bytes/s", "rank": rank, "rival": f"{rank}: {COPY}", "against": f"{rank}: {CPU}"}
    found = {f"{rank}: {COPY}": Side(lambda: copy, copy.moved, {"unit": "bytes/s", "kind": COPY})}
    return found | {f"{rank}: {name}": Side(way, moved, about | {"updates": len(train)}) for name, way in ways.items()}


def with_sides(added: tuple[bool, bool], start: partial[TrainedSide]) -> TrainedSide:
    """Start a run on the device that adds the changes of users, and of items, or stores rows."""
    with contextlib.ExitStack() as stack:
        stack.callback(SIDES.__setitem__, "atomic", SIDES["atomic"])
        SIDES["atomic"] = added
        return start(device="cuda")
