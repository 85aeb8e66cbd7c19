"""Rivals timed in turns: machines drift, so rivals take turns in one process and are compared by medians.

The first round (page faults, branch predictors, a rising clock rate) is not counted. A side that fails keeps its place
with the reason, and the others go on.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hogwild.errors import HogwildError, HogwildWarning
from hogwild.training.run import Run, train

ENDLESS = 10**6  # epochs


@dataclass(frozen=True)
class Timing:
    """Seconds of one side in each round that counted."""

    times: tuple[float, ...] = ()
    status: str = "ok"

    @property
    def seconds(self) -> float | None:
        """The median; None if the side has failed."""
        return statistics.median(self.times) if self.times else None

    def per_second(self, count: float) -> float | None:
        """Return the rate at which ``count`` things were done."""
        return count / self.seconds if self.seconds else None


def interleaved(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Timing]:
    """Call every side, which returns its seconds, once a round for ``repeats + 1`` rounds; the first is not counted."""
    timings = dict.fromkeys(sides, Timing())
    for turn in range(repeats + 1):
        for name, timing in timings.items():
            if timing.status != "ok":
                continue
            try:
                seconds = sides[name]()
            except HogwildError as error:  # diverged, or a worker was lost
                timings[name] = Timing(status=f"failed: {error}")
            else:
                timings[name] = Timing((*timing.times, seconds) if turn else ())
    return timings


def ratio(over: float | None, under: float | None) -> float | None:
    """Return ``over / under``, or None if either is missing."""
    return over / under if over is not None and under else None


class Training:
    """A side that continues a run to its next row; returns the seconds of an epoch by the run's own clock.

    Attributes
    ----------
    last : dict
        The latest row.
    """

    def __init__(self, run: Run[Any]) -> None:
        self.run = run
        self.last = next(run)

    @classmethod
    def of(cls, data: Any, test: Any = None, **options: Any) -> Training:
        """Start a run of :func:`hogwild.train` that has no end of its own."""
        options = {"schedule": "constant", "epochs": ENDLESS, "patience": 0, **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HogwildWarning)  # more workers than cores: the caller warns once
            return cls(train(data, test, **options))

    def __call__(self) -> float:
        before, self.last = self.last, next(self.run)
        seconds: float = self.last["train_seconds"] - before["train_seconds"]
        return seconds / (self.last["epoch"] - before["epoch"])

    def close(self) -> None:
        self.run.close()
