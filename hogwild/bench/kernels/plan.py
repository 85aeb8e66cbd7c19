"""One worker's loop as a share of the memory limit: by order, against a naive loop, and without weight prefetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hogwild.bench.plan import STEPS, BenchPlan, about
from hogwild.bench.rounds import Side, interleaved, ratio
from hogwild.bench.sides import Loop, NaiveLoop, Streaming

ORDERS = ("file", "shuffled")


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Time the loop on rows whose weights fit in a core's cache, then on 2^24 weights."""
    yield from _near(plan)
    yield from _far(plan)


def _near(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    rows, step = plan.open("rcv1"), STEPS["rcv1"]
    sides: dict[str, Side] = {"streaming file": Streaming(rows, 1)}
    sides |= {f"kernel {order}": Loop(rows, step, order, far=False) for order in ORDERS}
    sides["naive fastmath twin file"] = NaiveLoop(rows, step)
    yield from _rows(plan, "rcv1", rows, sides)


def _far(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    rows, step = plan.open("ctr"), STEPS["ctr"]
    sides: dict[str, Side] = {"streaming file": Streaming(rows, 1)}
    for far, what in ((True, "with"), (False, "without")):
        for order in ORDERS:
            sides[f"kernel {what} prefetch {order}"] = Loop(rows, step, order, far)
        if not plan.quick:  # a penalty looks up a second number for each weight
            sides[f"kernel {what} prefetch, no l2 shuffled"] = Loop(rows, step, far=far, l2=0.0)
    yield from _rows(plan, "ctr", rows, sides)


def _rows(plan: BenchPlan, family: str, rows: Any, sides: dict[str, Side]) -> Iterator[dict[str, Any]]:
    times = interleaved(sides, plan.repeats, plan.note)
    wall = times["streaming file"].seconds
    for side, timing in times.items():
        loop, order = side.rsplit(" ", 1)
        yield (
            about(plan.names[family], rows)
            | timing.fields()
            | {
                "family": family,
                "loop": loop,
                "order": order,
                "workers": 1,
                "nonzeros_per_second": timing.per_second(rows.nnz),
                "share_of_streaming": ratio(wall, timing.seconds),
            }
        )
