"""Sparse logistic regression on a GPU: nonzeros per second, and the time to reach the CPU's loss.

The CPU's loss is the objective after a few epochs of its default discipline on all its cores, at the same constant
step. It is the goal of all runs, the CPU's included: each trains anew until the first evaluation, after any epoch, that
is not above it.
"""

from __future__ import annotations

from collections.abc import Iterator
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
        name: Side(partial(trained, rows, loss="objective", **options, **way), rows.nnz, about)
        for name, way in ways.items()
    }
    yield from race("linear", sides, pace)
    with Training(rows, LINEAR["step"], l2=LINEAR["l2"], **cpu) as first:
        for _ in range(size.goal):
            first()
        goal = first.objective
    fits = {"unit": "fits/s", "rival": CPU, "goal": goal}
    yield from race(
        "to loss",
        {name: Side(partial(ToLoss, rows, goal, size.most, ways[name]), 1, fits) for name in (DEFAULT, CPU)},
        pace,
    )


class ToLoss:
    """A side that trains anew until it reaches a goal for the objective; returns seconds by the run's clock."""

    def __init__(self, rows: Rows, goal: float, most: int, way: dict[str, Any]) -> None:
        self._rows, self._goal, self._most, self._way = rows, goal, most, way
        self.last: Row = {}

    def __call__(self) -> float:
        options = LINEAR | self._way | {"epochs": self._most, "target": self._goal}
        with Training(self._rows, **options) as training:
            for row in training.run:
                self.last = row
        if not self.last["objective"] <= self._goal:
            raise TrainingError(
                f"loss {self.last['objective']:.5f} after {self.last['epoch']:g} epochs, {self._goal:.5f} was asked"
            )
        seconds: float = self.last["train_seconds"]
        return seconds

    def facts(self) -> Row:
        last = self.last
        fields = {"kind": "discipline", "in_flight": "in_flight", "workers": "workers", "device": "device",
                  "epochs": "epoch", "loss": "objective"}  # fmt: skip
        return {name: last.get(source) for name, source in fields.items()}

    def close(self) -> None:
        """Do nothing: no run is open."""
