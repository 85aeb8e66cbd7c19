"""How everything is timed: rounds in which the sides take turns.

Machines drift, so rivals are timed A B A B in one process and compared by medians; the first round (page faults, branch
predictors, a rising clock rate) is not counted. A side that fails keeps its place in the table with the reason, and the
others go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hogwild import machine
from hogwild.errors import HogwildError

Side = Callable[[], float]  # does its work once and returns its seconds
Row = dict[str, Any]
REPEATS, QUICK_REPEATS = 9, 3


@dataclass(frozen=True)
class BenchPlan:
    """Options of one benchmark.

    Attributes
    ----------
    workers : tuple of int
        Numbers of workers to measure, ascending.
    repeats : int
        Rounds that count; one more precedes them.
    quick : bool
        Spend less time on searching for what reaches a loss.
    against : bool
        Measure other programs too, where they are installed.
    host : str
        Host of the training runs: ``threads`` or ``processes``.
    options : dict
        Options of :func:`hogwild.train` for all runs, such as ``loss``.
    note : callable
        Called often with a few words about the current work.
    """

    workers: tuple[int, ...] = field(default_factory=lambda: machine.worker_counts(machine.physical_cores()))
    repeats: int = REPEATS
    quick: bool = False
    against: bool = False
    host: str = "threads"
    options: dict[str, Any] = field(default_factory=dict)
    note: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class Timing:
    """Seconds of one side over the rounds that counted, with quartiles; None if there are none."""

    seconds: float | None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    status: str = "ok"

    @classmethod
    def of(cls, times: Sequence[float], status: str = "ok") -> Timing:
        if status != "ok" or not times:
            return cls(None, status=status)
        low, _, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
        return cls(statistics.median(times), low, high, len(times))

    def fields(self) -> Row:
        """Return the timing as fields of a row."""
        return {
            "seconds": self.seconds,
            "seconds_q25": self.low,
            "seconds_q75": self.high,
            "rounds": self.rounds,
            "status": self.status,
        }

    def per_second(self, count: float) -> float | None:
        """Return the rate at which ``count`` things were done."""
        return count / self.seconds if self.seconds else None


def interleaved(
    sides: Mapping[str, Side], repeats: int, note: Callable[[str], None] = lambda text: None
) -> dict[str, Timing]:
    """Time every side once a round for ``repeats + 1`` rounds, of which the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    failed: dict[str, str] = {}
    for turn in range(repeats + 1):
        for name, side in sides.items():
            if name in failed:
                continue
            note(f"round {turn} of {repeats}: {name}")
            try:
                times[name].append(side())
            except HogwildError as error:  # diverged, or a worker was lost
                failed[name] = f"failed: {error}"
    return {name: Timing.of(times[name][1:], failed.get(name, "ok")) for name in sides}


def ratio(over: float | None, under: float | None) -> float | None:
    """Return ``over / under``, or None if either is missing."""
    return over / under if over is not None and under else None
