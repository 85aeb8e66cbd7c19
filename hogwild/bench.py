"""How fast a machine trains on data, and whether another worker pays: an epoch of every discipline, as flat rows.

Machines drift, so rivals are timed A B A B in one process and compared by medians; the first round (page faults, branch
predictors, a rising clock rate) is not counted. Each number of workers is a group of rounds that includes one serial
worker, so every ratio is between neighbours in time. All runs take the step that the serial worker has found, and their
objectives are compared after the same epochs. A side that fails keeps its row with the reason, and the others go on.
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
from hogwild.training.run import Run, train

Row = dict[str, Any]
Note = Callable[[str], Any]  # told in a few words what is being done
WAITING = ("aig", "locked", "round-robin")  # disciplines that, with more workers than cores, time the scheduler
HELD_OUT = {"linear": "test_loss", "completion": "test_rmse"}
ENDLESS = 10**6  # epochs


@dataclass(frozen=True)
class Timing:
    """Seconds of one side over the rounds that counted, with quartiles; None if there are none."""

    seconds: float | None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    status: str = "ok"

    @classmethod
    def of(cls, times: Sequence[float]) -> Timing:
        low, _, high = statistics.quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
        return cls(statistics.median(times), low, high, len(times))

    def fields(self) -> Row:
        """Return the timing as fields of a row."""
        quartiles = {"seconds_q25": self.low, "seconds_q75": self.high}
        return {"seconds": self.seconds, **quartiles, "rounds": self.rounds, "status": self.status}

    def per_second(self, count: float) -> float | None:
        """Return the rate at which ``count`` things were done."""
        return count / self.seconds if self.seconds else None


def interleaved(
    sides: Mapping[str, Callable[[], float]], repeats: int, note: Note = lambda text: None
) -> dict[str, Timing]:
    """Call every side, which returns its seconds, once a round for ``repeats + 1`` rounds; the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    failed: dict[str, Timing] = {}
    for turn in range(repeats + 1):
        for name, side in sides.items():
            if name in failed:
                continue
            note(f"round {turn} of {repeats}: {name}")
            try:
                times[name].append(side())
            except HogwildError as error:  # diverged, or a worker was lost
                failed[name] = Timing(None, status=f"failed: {error}")
    return {name: failed.get(name) or Timing.of(times[name][1:]) for name in sides}


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
        self.run, self.last = run, next(run)

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
    data: Any, test: Any, counts: Sequence[int], repeats: int, note: Note = lambda text: None, **options: Any
) -> Iterator[Row]:
    """Yield seconds per epoch, throughput, speed-up and objective of every discipline and number of workers.

    ``options`` are those of :func:`hogwild.train` for all runs, with ``problem`` and ``host``.
    """
    note("searching for a step")
    with closing(Training.of(data, **options, workers=1, discipline="serial")) as serial:
        options["step"] = serial.run.config.step
    for workers in counts:
        for row in _group(data, test, workers, repeats, note, options):
            if row["method"] != "serial" or workers == counts[0]:
                yield row


def _group(data: Any, test: Any, workers: int, repeats: int, note: Note, options: dict[str, Any]) -> Iterator[Row]:
    """Measure all disciplines with ``workers`` workers; one serial worker always takes turns."""
    problem = options["problem"]
    offered = options_of(problem)["discipline"].metadata["option"].choices
    ways: dict[str, dict[str, Any]] = {name: {"discipline": name} for name in DISCIPLINES if name in offered}
    if problem == "completion":
        ways["blocks"] = {"discipline": "hogwild", "order": "blocks"}
    learners: dict[str, Training] = {}
    times: dict[str, Timing] = {}
    with ExitStack() as stack:
        for name, way in ways.items():
            count = 1 if name == "serial" else workers
            note(f"{count} worker(s): starting {name}")
            try:
                if name in WAITING and workers > machine.physical_cores():
                    raise HogwildError(f"{workers} workers of {name} would wait for each other on fewer cores")
                run = Training.of(data, test, **options, **way, workers=count)
                learners[name] = stack.enter_context(closing(run))
            except HogwildError as error:
                times[name] = Timing(None, status=f"refused: {error}")
        times |= interleaved(learners, repeats, lambda text: note(f"{workers} worker(s), {text}"))
        serial = learners["serial"].last if "serial" in learners else {}
        for name in ways:
            learned = learners[name].last if times[name].seconds else {}
            unit, count = ("nonzeros", data.nnz) if problem == "linear" else ("ratings", len(data))
            yield times[name].fields() | {
                "method": name,
                "workers": 1 if name == "serial" else workers,
                f"{unit}_per_second": times[name].per_second(count),
                "speedup": ratio(times["serial"].seconds, times[name].seconds),
                "epochs": learned.get("epoch"),
                "objective": learned.get("objective"),
                "objective_ratio": ratio(learned.get("objective"), serial.get("objective")),
                "held_out": learned.get(HELD_OUT[problem]),
                **options,
            }
