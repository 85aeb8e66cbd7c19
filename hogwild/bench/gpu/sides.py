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
from typing import Any

from hogwild.bench.sides import Running, Training
from hogwild.errors import TrainingError

CPU = "CPU"
BEGAN = "began"  # status of a row that says which side is at work, should the process end there
LONGER = 1.5  # a timing is not begun unless so many times the side's longest are left

Row = dict[str, Any]


class Faulty(Exception):
    """The device does not work in this process any more."""


@dataclass(frozen=True)
class Side:
    """A way to do a part's work, ``work`` units in one timing; ``about`` are fields of its rows.

    ``start`` returns a function that does the work once and returns its ``seconds`` and what else is worth a field
    (loss, step, examples in flight, ...). What frees the memory is called back by the stack.
    """

    start: Callable[[ExitStack], Callable[[], Row]]
    work: float = 1
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


def continued(stack: ExitStack, running: Running, loss: str) -> Callable[[], Row]:
    """A function that continues a run to its next row; ``loss`` is the row's field to compare."""
    stack.callback(running.close)
    config = running.run.config

    def timing() -> Row:
        seconds, last = running(), running.last
        if last["status"] != "ok":
            raise TrainingError(last["status"])
        return {
            "seconds": seconds, "in_flight": last["in_flight"], "epochs": last["epoch"], "step": config.step,
            "kind": config.discipline, "workers": config.workers, "device": config.device, "loss": last[loss],
        }  # fmt: skip

    return timing


def trained(stack: ExitStack, data: Any, step: float, loss: str, **options: Any) -> Callable[[], Row]:
    """Start a run of :func:`hogwild.train`."""
    return continued(stack, Training(data, step, **options), loss)


def race(part: str, sides: Mapping[str, Side], pace: Pace) -> Iterator[Row]:
    """Yield a row for each timing, and one with the reason for each side that ends early.

    Raises
    ------
    Faulty
        After the row of a side at whose work the device ceased to work.
    """
    started: dict[str, Callable[[], Row]] = {}
    longest: dict[str, float] = {}
    waiting = [name for name in sides if name not in pace.skipped]
    with ExitStack() as stack:
        stacks = {name: stack.enter_context(ExitStack()) for name in waiting}
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
                        started[name] = sides[name].start(stacks[name])
                    row |= {"work": sides[name].work} | started[name]()
                except Exception as error:  # of torch, of Triton's compiler, a refusal: what it is, its row says
                    waiting.remove(name)
                    status = "failed: " + " ".join(f"{type(error).__name__}: {error}".split())[:400]
                yield row | dict(sides[name].about) | {"status": status}
                longest[name] = max(longest.get(name, 0.0), time.monotonic() - begin)
                if name not in waiting:
                    if not pace.works():
                        stack.pop_all()  # nothing can be freed any more
                        raise Faulty
                    started.pop(name, None)
                    stacks[name].close()
                    gc.collect()  # the next ones check the device's free memory
