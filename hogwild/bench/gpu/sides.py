"""Sides that take turns on a GPU, each timing a row that is given away as soon as it is taken.

A side that is refused, runs out of memory, diverges or meets a fault of the device gives a row with the reason, and the
others go on; so does one that there was no time for. After a fault nothing works in its process any more, which then
ends (``__main__.py``).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from hogwild.bench.sides import Running, Training
from hogwild.errors import TrainingError

CPU = "CPU"
BEGAN, FAILED = "began", "failed: "  # statuses: of a row that says which side is at work; before a reason
LATE = "not begun: no time was left"
LONGER = 1.5  # a timing is not begun unless so many times the side's longest are left

Row = dict[str, Any]
Timings = Generator[Row, None, None]


class Side(NamedTuple):
    """A way to do a part's work, ``work`` units in one timing; ``about`` are fields of its rows.

    For each row that it yields, ``timings`` does the work once; the row has its ``seconds`` and what else is worth a
    field (loss, step, examples in flight, ...). What it holds is freed when it is closed or fails.
    """

    timings: Timings
    work: float
    about: Row


class Pace:
    """The time that is left, the sides that an earlier process found faulty, and the rounds that count."""

    def __init__(self, seconds: float, skipped: tuple[str, ...] = (), rounds: int = 3) -> None:
        self.end, self.skipped, self.rounds = time.monotonic() + seconds, skipped, rounds


def continued(running: Running, loss: str) -> Timings:
    """Timings of a run, which is continued to its next row; ``loss`` is the row's field to compare."""
    with closing(running):
        config = running.run.config
        while True:
            seconds, last = running(), running.last
            if last["status"] != "ok":
                raise TrainingError(last["status"])
            yield {
                "seconds": seconds,
                "in_flight": last["in_flight"],
                "epochs": last["epoch"],
                "step": config.step,
                "kind": config.discipline,
                "workers": config.workers,
                "device": config.device,
                "loss": last[loss],
            }


def trained(data: Any, loss: str, options: Row) -> Timings:
    """Timings of a run of :func:`hogwild.train`, which the first one starts."""
    yield from continued(Training(data, **options), loss)


def race(part: str, sides: Mapping[str, Side], pace: Pace) -> Iterator[Row]:
    """Yield a row for each timing after one that it began, and one with the reason for each side that ends early."""
    waiting = {name: side for name, side in sides.items() if name not in pace.skipped}
    longest: dict[str, float] = {}
    try:
        for turn in range(pace.rounds + 1):  # the first does not count
            for name, side in [*waiting.items()]:
                begin, row = time.monotonic(), {"part": part, "what": name, "round": turn}
                if begin + LONGER * longest.get(name, 0.0) > pace.end:
                    if turn == 0:
                        yield row | side.about | {"status": LATE}
                    continue
                yield row | {"status": BEGAN}
                status = "ok"
                try:
                    row |= {"work": side.work} | next(side.timings)
                except Exception as error:  # of torch, of Triton's compiler, a refusal: what it is, its row says
                    status = FAILED + " ".join(f"{type(error).__name__}: {error}".split())[:400]
                    del waiting[name]
                yield row | side.about | {"status": status}
                longest[name] = max(longest.get(name, 0.0), time.monotonic() - begin)
                if status != "ok":
                    gc.collect()  # the next ones check the device's free memory
    finally:
        for side in sides.values():
            side.timings.close()
