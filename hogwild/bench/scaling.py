"""Every discipline for 1, 2, 4 ... workers: its speed-up over one serial worker, and the resulting objective.

Each number of workers is a group of interleaved rounds that includes a serial run and the streaming rate, so every
ratio is between neighbours in time. Objectives of a group are compared after the same epochs at the same step.
Disciplines that wait (locks, turns) are refused with more workers than cores, since that would measure the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hogwild import machine
from hogwild.bench.plan import STEPS, BenchPlan, about
from hogwild.bench.rounds import Side, Timing, interleaved, ratio
from hogwild.bench.sides import Streaming, Training
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildError
from hogwild.methods import DISCIPLINES

WAITING = ("aig", "locked", "round-robin")
FAMILIES = ("rcv1", "uniform", "ctr")


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield seconds per epoch, throughput, speed-up and objective of every cell."""
    for family in FAMILIES:
        rows = plan.open(family)
        counts = plan.workers if family == "rcv1" or not plan.quick else plan.workers[-1:]
        for workers in counts:
            yield from _group(plan, family, rows, workers, baseline=workers == counts[0])


def _group(plan: BenchPlan, family: str, rows: Rows, workers: int, baseline: bool) -> Iterator[dict[str, Any]]:
    """Measure all disciplines with ``workers`` workers; serial always takes turns, but needs ``baseline`` for a row."""
    asked = [name for name in DISCIPLINES if name != "serial" or baseline]
    refused = {name: why for name in asked if (why := _refusal(plan, family, name, workers))}
    runs: dict[str, Training] = {}
    with ExitStack() as stack:
        for name in ["serial", *(name for name in asked if name != "serial" and name not in refused)]:
            plan.note(f"{family}, {workers} worker(s): starting {name}")
            try:
                options = {"discipline": name, "workers": 1 if name == "serial" else workers, "host": plan.host}
                runs[name] = stack.enter_context(Training(rows, STEPS[family], **options))
            except HogwildError as error:
                refused[name] = f"refused: {error}"
        sides: dict[str, Side] = {"streaming": Streaming(rows, workers), **runs}
        times = interleaved(sides, plan.repeats, lambda text: plan.note(f"{family}, {workers} worker(s), {text}"))
        for name in asked:
            timing = times.get(name, Timing(None, status=refused.get(name, "ok")))
            yield (
                about(plan.names[family], rows)
                | timing.fields()
                | _findings(name, timing, runs, times, rows)
                | {
                    "family": family,
                    "discipline": name,
                    "workers": 1 if name == "serial" else workers,
                    "host": plan.host,
                    "step": STEPS[family],
                }
            )


def _refusal(plan: BenchPlan, family: str, discipline: str, workers: int) -> str | None:
    """Return why a cell is not measured, or None."""
    cores = machine.physical_cores()
    if plan.quick and family == "ctr" and discipline not in ("serial", "hogwild"):
        return "skipped: --quick"
    if discipline in WAITING and workers > cores:
        return f"refused: {workers} workers of {discipline} would wait for each other on {cores} cores"
    return None


def _findings(
    name: str, timing: Timing, runs: dict[str, Training], times: dict[str, Timing], rows: Rows
) -> dict[str, Any]:
    """Return the figures that are compared."""
    run, serial = runs.get(name), runs.get("serial")
    done = run is not None and timing.seconds is not None
    objective = run.objective if run is not None and done else None
    reference = serial.objective if serial is not None else None
    return {
        "nonzeros_per_second": timing.per_second(rows.nnz),
        "speedup": ratio(times["serial"].seconds if "serial" in times else None, timing.seconds),
        "share_of_streaming": ratio(times["streaming"].seconds, timing.seconds),
        "epochs": run.epochs if run is not None else None,
        "objective": objective,
        "objective_serial": reference,
        "objective_ratio": ratio(objective, reference),
    }
