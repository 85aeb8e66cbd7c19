"""Matrix completion on a GPU, as a share of a copy's bandwidth, with its error beside the CPU's.

Errors on held-out ratings are compared after the same epochs at the same step. The changes of both sides are added, or
those of the items only, or rows are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from hogwild import machine
from hogwild.bench.gpu.sides import CPU, Pace, Row, Side, race, trained
from hogwild.bench.gpu.sizes import COMPLETION, FLOAT, RANKS, Size, update_bytes
from hogwild.cuda import backend as backends
from hogwild.cuda.completion.launcher import SIDES
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.source import open_ratings

HELD_OUT = 0.01
COPY = "copy"
COPIES = 10  # copies timed together: one takes a millisecond or two
SHARE = 8  # at most 1 / SHARE of the free memory is copied


def measure(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield bytes per second of the copy, and of every rank and way of writing."""
    train, test = open_ratings(size.ratings).split(HELD_OUT)
    for rank in RANKS:
        yield from race("completion", sides_of(size, rank, train, test), pace)


def sides_of(size: Size, rank: int, train: Ratings, test: Ratings) -> dict[str, Side]:
    """Return the sides of a rank, the copy first."""
    options: dict[str, Any] = COMPLETION | {"rank": rank, "evaluate_every": size.epochs["completion"]}
    start = partial(trained, data=train, loss="test_rmse", problem="completion", test=test, **options)
    ways = {
        "added": partial(start, device="cuda"),
        "items added": partial(with_sides, (False, True), partial(start, device="cuda")),
        "stored": partial(start, device="cuda", discipline="hogwild"),
        "added, file order": partial(start, device="cuda", order="file"),
        CPU: partial(start, workers=machine.physical_cores(), host="threads"),
    }
    moved = len(train) * update_bytes(rank)
    about = {"unit": "bytes/s", "rank": rank, "rival": f"{rank}: {COPY}", "against": f"{rank}: {CPU}"}
    found = {f"{rank}: {COPY}": Side(partial(copied, size.copied), about={"unit": "bytes/s", "kind": COPY})}
    return found | {f"{rank}: {name}": Side(way, moved, about | {"updates": len(train)}) for name, way in ways.items()}


def with_sides(added: tuple[bool, bool], start: partial[Callable[[], Row]], stack: ExitStack) -> Callable[[], Row]:
    """Start a run on the device that adds the changes of users, and of items, or stores rows."""
    usual, SIDES["atomic"] = SIDES["atomic"], added
    try:
        return start(stack)
    finally:
        SIDES["atomic"] = usual


def copied(size: int, stack: ExitStack) -> Callable[[], Row]:
    """The limit of a memory-bound kernel: a copy of at most ``size`` bytes from the device's memory to itself."""
    device = backends.connect()
    stream, count = device.stream(), max(min(size, device.free() // SHARE) // FLOAT, 1)
    stack.callback(stream.close)
    source = torch.zeros(count, dtype=torch.float32, device=device.device)
    out = torch.empty_like(source)

    def copy() -> Row:
        start = time.perf_counter()
        stream.run(lambda: [out.copy_(source) for _ in range(COPIES)])
        stream.record().synchronize()
        seconds = (time.perf_counter() - start) / COPIES
        return {"seconds": seconds, "work": 2 * FLOAT * count, "bytes": FLOAT * count}

    return copy
