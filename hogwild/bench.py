"""How fast a machine trains on data, and whether another worker pays: an epoch of every discipline, as flat rows.

Machines drift, so rivals are timed A B A B in one process and compared by medians; the first round (page faults, branch
predictors, a rising clock rate) is not counted. Each number of workers is a group of rounds that includes one serial
worker, so every ratio is between neighbours in time. All runs take the step that the serial worker has found, and their
objectives are compared after the same epochs. A side that fails keeps its row with the reason, and the others go on.
Disciplines whose workers wait for each other are not timed with more workers than cores: that times the scheduler.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from hogwild import machine
from hogwild.config import options_of
from hogwild.errors import HogwildError, HogwildWarning
from hogwild.methods import DISCIPLINES
from hogwild.problems.protocol import HOLDS
from hogwild.training.run import Run, train

Row = dict[str, Any]
Note = Callable[[str], Any]  # told in a few words what is being done
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

    @property
    def spread(self) -> float | None:
        """The interquartile range over the median; None with fewer than two rounds."""
        if len(self.times) < 2:
            return None
        low, median, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return (high - low) / median

    def per_second(self, count: float) -> float | None:
        """Return the rate at which ``count`` things were done."""
        return count / self.seconds if self.seconds else None


def interleaved(
    sides: Mapping[str, Callable[[], float]], repeats: int, note: Note = lambda text: None
) -> dict[str, Timing]:
    """Call every side, which returns its seconds, once a round for ``repeats + 1`` rounds; the first is not counted."""
    timings = dict.fromkeys(sides, Timing())
    for turn in range(repeats + 1):
        for name, timing in timings.items():
            if timing.status != "ok":
                continue
            note(f"round {turn} of {repeats}: {name}")
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


def measure(
    data: Any, counts: Sequence[int], repeats: int, note: Note = lambda text: None, **options: Any
) -> Iterator[Row]:
    """Yield seconds per epoch, throughput, speed-up and objective of every discipline and number of workers.

    ``options`` are those of :func:`hogwild.train` for all runs, with ``problem`` and ``host``.
    """
    problem = options["problem"]
    offered = options_of(problem)["discipline"].metadata["option"].choices
    ways: dict[str, dict[str, Any]] = {name: {"discipline": name} for name in DISCIPLINES if name in offered}
    if problem == "completion":
        ways["blocks"] = {"discipline": "hogwild", "order": "blocks"}
    unit, examples = ("nonzeros", data.nnz) if problem == "linear" else ("ratings", len(data))
    note("searching for a step")
    with closing(Training.of(data, **options, workers=1, discipline="serial")) as serial:
        options["step"] = serial.run.config.step
    for workers in counts:
        crowded = workers > machine.physical_cores()
        group = {name: way for name, way in ways.items() if not (crowded and name in HOLDS)}
        with ExitStack() as stack:
            sides = {}
            for name, way in group.items():
                count = 1 if name == "serial" else workers
                note(f"starting {name} on {count}")
                sides[name] = stack.enter_context(closing(Training.of(data, **options, **way, workers=count)))
            times = interleaved(sides, repeats, note)
            for name, timing in times.items():
                if name == "serial" and workers != counts[0]:
                    continue
                learned = sides[name].last if timing.times else {}
                yield {
                    "method": name,
                    "workers": 1 if name == "serial" else workers,
                    "seconds": timing.seconds,
                    "spread": timing.spread,
                    "rounds": len(timing.times),
                    "status": timing.status,
                    f"{unit}_per_second": timing.per_second(examples),
                    "speedup": ratio(times["serial"].seconds, timing.seconds),
                    "epochs": learned.get("epoch"),
                    "objective": learned.get("objective"),
                    "objective_ratio": ratio(learned.get("objective"), sides["serial"].last["objective"]),
                    **options,
                }
