"""Sparse logistic regression on a GPU: nonzeros per second, and the time to reach the CPU's loss.

The CPU's loss is the objective after a few epochs of its default discipline on all its cores, at the same constant
step. It is the goal of all runs, the CPU's included: each trains anew until the first evaluation, after any epoch, that
is not above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from hogwild.bench.gpu.sides import CPU, Ways, race, ways, worse
from hogwild.bench.gpu.sizes import GIGA, LINEAR, Size
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import interleaved, ratio
from hogwild.bench.sides import Training
from hogwild.data.rows.container import Rows
from hogwild.data.rows.source import open_data
from hogwild.errors import TrainingError


def measure(plan: BenchPlan, size: Size, copy: Any) -> Iterator[dict[str, Any]]:
    """Yield both for every discipline and number in flight."""
    plan.note(f"opening {size.rows}")
    rows = open_data(size.rows, cache=plan.cache)
    about = {"data": size.rows, "rows": len(rows), "features": rows.width, "nonzeros": rows.nnz}
    found = ways(plan, "logistic", rows, **LINEAR)
    for part in (_rates, _times):
        for row in part(plan, size, rows, found):
            yield about | row


def _rates(plan: BenchPlan, size: Size, rows: Rows, options: Ways) -> Iterator[dict[str, Any]]:
    every = size.epochs["linear"]
    starts = {name: partial(Training, rows, evaluate_every=every, **LINEAR, **way) for name, way in options.items()}
    rounds = min(plan.repeats, size.rounds)
    found, _ = race(starts, "objective", rounds, lambda text: plan.note(f"logistic, {text}"))
    for name, row in found.items():
        rate = ratio(rows.nnz, row["seconds"])
        yield row | {
            "part": "linear", "what": f"logistic: {name}", "measured": None if rate is None else rate / GIGA,
            "unit": "G nonzeros/s", "nonzeros_per_second": rate, "rival": CPU,
            "ratio": ratio(found[CPU]["seconds"], row["seconds"]),
            "worse": worse(row.get("loss"), found[CPU].get("loss")),
        }  # fmt: skip


def _times(plan: BenchPlan, size: Size, rows: Rows, options: Ways) -> Iterator[dict[str, Any]]:
    plan.note(f"logistic: {size.goal} epochs on the CPU")
    with Training(rows, LINEAR["step"], l2=LINEAR["l2"], **options[CPU]) as first:
        for _ in range(size.goal):
            first()
        goal = first.objective
    sides = {name: ToLoss(rows, goal, size.most, way) for name, way in options.items()}
    rounds = min(plan.repeats, size.rounds)
    times = interleaved({**sides}, rounds, lambda text: plan.note(f"logistic, to loss {goal:.4f}, {text}"))
    for name, side in sides.items():
        timing, last = times[name], side.last
        yield timing.fields() | {
            "part": "to loss", "what": f"logistic to loss: {name}", "kind": last.get("discipline"),
            "in_flight": last.get("in_flight"), "workers": last.get("workers"), "device": last.get("device"),
            "epochs": last.get("epoch"), "step": LINEAR["step"], "goal": goal,
            "measured": timing.seconds, "unit": "s", "rival": CPU,
            "ratio": ratio(times[CPU].seconds, timing.seconds), "loss": last.get("objective"),
            "worse": worse(last.get("objective"), goal),
        }  # fmt: skip


class ToLoss:
    """A side that trains anew until it reaches a goal for the objective; returns seconds by the run's clock."""

    def __init__(self, rows: Rows, goal: float, most: int, way: dict[str, Any]) -> None:
        self._rows, self._goal, self._most, self._way = rows, goal, most, way
        self.last: dict[str, Any] = {}

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
