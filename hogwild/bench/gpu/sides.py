"""Sides that take turns on a GPU, each timing a row that is given away as soon as it is taken.

A side that is refused, runs out of memory, diverges or meets a fault of the device gives a row with the reason, and the
others go on. After a fault nothing works in this process any more: then :class:`Faulty` ends it, and the parent
(``__main__.py``) starts another without that side.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from hogwild.bench.sides import Running, Training
from hogwild.errors import TrainingError

CPU = "CPU"
BEGAN = "began"  # status of a row that says which side is at work, should the process end there
LONGER = 1.5  # a timing is not begun unless so many times the side's longest are left

Row = dict[str, Any]


class Faulty(Exception):
    """The device does not work in this process any more."""


class Started(Protocol):
    """What a side has started."""

    def __call__(self) -> float:
        """Do the work once and return its seconds."""

    def facts(self) -> Row:
        """Fields of the latest timing: loss, step, examples in flight, ..."""

    def close(self) -> None:
        """Free its memory."""


@dataclass(frozen=True)
class Side:
    """A way to do a part's work, ``work`` units in one timing; ``about`` are fields of its rows."""

    start: Callable[[], Started]
    work: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Pace:
    """The time that is left, and the sides that an earlier process found faulty."""

    seconds: float
    skipped: tuple[str, ...] = ()
    works: Callable[[], bool] = lambda: True  # whether the device still does
    rounds: int = 3  # that count; one more precedes them

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def allows(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return time.monotonic() + seconds <= self._end


class TrainedSide:
    """A run as a side; ``loss`` is the field of its rows to compare."""

    def __init__(self, running: Running, loss: str) -> None:
        self._running, self._loss = running, loss

    def __call__(self) -> float:
        seconds = self._running()
        status = self._running.run.history[-1]["status"]
        if status != "ok":
            raise TrainingError(status)
        return seconds

    def facts(self) -> Row:
        run, last = self._running.run, self._running.run.history[-1]
        return {
            "in_flight": last["in_flight"], "epochs": last["epoch"], "step": run.config.step,
            "kind": run.config.discipline, "workers": run.config.workers, "device": run.config.device,
            "loss": last[self._loss],
        }  # fmt: skip

    def close(self) -> None:
        self._running.close()


def trained(data: Any, step: float, loss: str, **options: Any) -> TrainedSide:
    """Start a run of :func:`hogwild.train`."""
    return TrainedSide(Training(data, step, **options), loss)


def race(part: str, sides: Mapping[str, Side], pace: Pace) -> Iterator[Row]:
    """Yield a row for each timing, and one with the reason for each side that ends early."""
    started: dict[str, Started] = {}
    longest: dict[str, float] = {}
    waiting = [name for name in sides if name not in pace.skipped]
    with ExitStack() as stack:
        for turn in range(pace.rounds + 1):
            for name in [*waiting]:
                row: Row = {"part": part, "what": name, "round": turn}
                if not pace.allows(LONGER * longest.get(name, 0.0)):
                    continue
                yield row | {"status": BEGAN}
                status = "ok"
                begin = time.monotonic()
                try:
                    if name not in started:
                        started[name] = sides[name].start()
                        stack.callback(started[name].close)
                    seconds = started[name]()
                    row |= {"seconds": seconds, "work": sides[name].work, **started[name].facts()}
                except Exception as error:  # of torch, of Triton's compiler, a refusal: what it is, its row says
                    waiting.remove(name)
                    status = "failed: " + " ".join(f"{type(error).__name__}: {error}".split())[:400]
                yield row | dict(sides[name].about) | {"status": status}
                longest[name] = max(longest.get(name, 0.0), time.monotonic() - begin)
                if name not in waiting:
                    close_failed(started.pop(name, None), pace)


def close_failed(side: Started | None, pace: Pace) -> None:
    """Free what a failed side has left, if the device still works.

    Raises
    ------
    Faulty
        If it does not.
    """
    if not pace.works():
        raise Faulty
    if side is not None:
        side.close()
    del side
    gc.collect()  # the next ones check the device's free memory
