"""Sparse logistic regression on a GPU: nonzeros per second, and the time to reach the CPU's loss.

The CPU's loss is the objective after a few epochs of its default discipline on all its cores, at the same constant
step. It is the goal of all runs, the CPU's included: each trains anew until the first evaluation, after any epoch, that
is not above it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from hogwild import machine
from hogwild.bench.gpu.sides import CPU, Pace, Row, Side, race, trained
from hogwild.bench.gpu.sizes import IN_FLIGHT, LINEAR, Size
from hogwild.bench.sides import Training
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import TrainingError

DEFAULT = "default"


def measure(size: Size, pace: Pace) -> Iterator[Row]:
    """Yield nonzeros per second of each number in flight, with and without intercept, and times to the CPU's loss."""
    rows = open_data(size.rows)
    cpu = {"workers": machine.physical_cores(), "host": "threads"}
    ways: dict[str, dict[str, Any]] = {DEFAULT: {"device": "cuda"}, CPU: cpu}
    for intercept in (True, False):
        ways |= {
            f"{count} in flight{'' if intercept else ', no intercept'}": {
                "device": "cuda", "in_flight": count, "intercept": intercept
            }
            for count in IN_FLIGHT
        }  # fmt: skip
    ways["stored, default"] = {"device": "cuda", "discipline": "hogwild"}
    about: Row = {"unit": "nonzeros/s", "rival": CPU}
    options: Row = LINEAR | {"evaluate_every": size.epochs["linear"]}
    sides = {
        name: Side(partial(trained, data=rows, loss="objective", **options, **way), rows.nnz, about)
        for name, way in ways.items()
    }
    yield from race("linear", sides, pace)
    with Training(rows, LINEAR["step"], l2=LINEAR["l2"], **cpu) as first:
        for _ in range(size.goal):
            first()
        goal = first.objective
    fits = {"unit": "fits/s", "rival": CPU, "goal": goal}

    def again(way: Row, _: ExitStack) -> Callable[[], Row]:
        return lambda: to_loss(rows, goal, size.most, way)

    yield from race("to loss", {name: Side(partial(again, ways[name]), 1, fits) for name in (DEFAULT, CPU)}, pace)


def to_loss(rows: Rows, goal: float, most: int, way: Row) -> Row:
    """Train anew until a goal for the objective is reached; the seconds are by the run's clock."""
    with Training(rows, **LINEAR | way | {"epochs": most, "target": goal}) as training:
        *_, last = training.run
    if not last["objective"] <= goal:
        raise TrainingError(f"loss {last['objective']:.5f} after {last['epoch']:g} epochs, {goal:.5f} was asked")
    fields = {"seconds": "train_seconds", "kind": "discipline", "in_flight": "in_flight", "workers": "workers",
              "device": "device", "epochs": "epoch", "loss": "objective"}  # fmt: skip
    return {name: last.get(source) for name, source in fields.items()}
