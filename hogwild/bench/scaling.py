"""An epoch of every discipline for 1, 2, 4 ... workers: its speed-up over one serial worker, and what it has learned.

Each number of workers is a group of interleaved rounds that includes a serial run, so every ratio is between neighbours
in time. All runs take the step that the serial run has found, and their
objectives are compared after the same epochs. Disciplines that wait (locks, turns) are refused with more workers than
cores, since that would measure the scheduler. Other programs that can be driven epoch by epoch take part with
``against``: scikit-learn's SGD, and cornac for ratings.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from hogwild import machine
from hogwild.bench.rounds import BenchPlan, Row, Timing, interleaved, ratio
from hogwild.compare.reference.outside import OUTSIDE, Outside, timed
from hogwild.config import TrainConfig, options_of
from hogwild.errors import HogwildError, HogwildWarning
from hogwild.methods import DISCIPLINES
from hogwild.problems.protocol import case_of
from hogwild.training.run import Run, train

WAITING = ("aig", "locked", "round-robin")
RIVALS = {"linear": "sklearn-sgd", "completion": "cornac"}  # driven epoch by epoch
HELD_OUT = {"linear": "test_loss", "completion": "test_rmse"}
RATE = {"linear": "nonzeros_per_second", "completion": "ratings_per_second"}
ENDLESS = 10**6  # epochs


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


class Rival:
    """A side that does an epoch of another program, which has the start and the step of ours."""

    def __init__(self, program: Outside, data: Any, test: Any, config: TrainConfig) -> None:
        self._epoch = 0
        self._solver = program.make(data, config)
        self._workers = config.workers or 1
        alone = dataclasses.replace(config, workers=1, discipline="serial")
        self._case = case_of(config.problem)(alone, data, test)
        self._case.make_evaluator()

    @property
    def last(self) -> Row:
        """What it has learned so far."""
        return {"epoch": self._epoch} | self._case.evaluate(self._solver.solution())

    def __call__(self) -> float:
        usable = os.sched_getaffinity(0)
        self._epoch += 1
        os.sched_setaffinity(0, set(machine.one_cpu_a_core()[: self._workers]) or usable)
        try:
            return timed(self._solver, self._epoch)
        finally:
            os.sched_setaffinity(0, usable)


def measure(plan: BenchPlan, problem: str, data: Any, test: Any) -> Iterator[Row]:
    """Yield seconds per epoch, throughput, speed-up and objective of every cell."""
    options = plan.options | {"problem": problem, "host": plan.host}
    if problem == "completion":
        options.setdefault("penalty", "per-rating")  # which cornac has too
    plan.note("searching for a step")
    with closing(Training.of(data, workers=1, discipline="serial", **options)) as serial:
        options["step"] = serial.run.config.step
        config = serial.run.config
    for workers in plan.workers:
        yield from _group(plan, data, test, workers, options, config)


def _group(
    plan: BenchPlan, data: Any, test: Any, workers: int, options: dict[str, Any], config: TrainConfig
) -> Iterator[Row]:
    """Measure all methods with ``workers`` workers; one serial worker always takes turns."""
    offered = options_of(config.problem)["discipline"].metadata["option"].choices
    ways = {name: {"discipline": name, "workers": workers} for name in DISCIPLINES if name in offered}
    ways["serial"] = {"discipline": "serial", "workers": 1}
    if config.problem == "completion":
        ways["blocks"] = {"discipline": "hogwild", "order": "blocks", "workers": workers}
    first, rival = workers == plan.workers[0], OUTSIDE[RIVALS[config.problem]]
    refused: dict[str, str] = {}
    learners: dict[str, Training | Rival] = {}
    with ExitStack() as stack:
        for name, way in ways.items():
            if name in WAITING and workers > machine.physical_cores():
                refused[name] = f"refused: {workers} workers of {name} would wait for each other on fewer cores"
                continue
            plan.note(f"{workers} worker(s): starting {name}")
            try:
                learners[name] = stack.enter_context(closing(Training.of(data, test, **options, **way)))
            except HogwildError as error:
                refused[name] = f"refused: {error}"
        if plan.against and rival.version and (first or rival.name == "cornac"):
            if why := rival.refusal(config, data):
                refused[rival.name] = f"refused: {why}"
            else:
                learners[rival.name] = Rival(rival, data, test, dataclasses.replace(config, workers=workers))
        times = interleaved(learners, plan.repeats, lambda text: plan.note(f"{workers} worker(s), {text}"))
        alone = times["serial"].seconds if "serial" in times else None
        serial = learners["serial"].last["objective"] if "serial" in learners else None
        for name in [*learners, *refused]:
            timing = times[name] if name in times else Timing(None, status=refused[name])
            learned = learners[name].last if name in learners and timing.seconds is not None else {}
            if name != "serial" or first:
                yield timing.fields() | {
                    "method": name,
                    "workers": 1 if name == "serial" else workers,
                    "host": plan.host,
                    "step": config.step,
                    "rank": config.to_json().get("rank"),
                    RATE[config.problem]: timing.per_second(data.nnz if config.problem == "linear" else len(data)),
                    "speedup": ratio(alone, timing.seconds),
                    "epochs": learned.get("epoch"),
                    "objective": learned.get("objective"),
                    "objective_ratio": ratio(learned.get("objective"), serial),
                    "held_out": learned.get(HELD_OUT[config.problem]),
                }
