"""The sides of rounds on a GPU and beside it: runs timed by their own clocks, and their examples in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from hogwild import machine
from hogwild.bench.gpu.sizes import DISCIPLINES
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, Timing, interleaved, ratio
from hogwild.bench.sides import Running
from hogwild.errors import HogwildError, HogwildWarning
from hogwild.training.train import train

CPU = "CPU"
USUAL, BETWEEN, FULL = "usual", "between", "full"  # numbers of examples in flight
APART = 4  # ratio from which an intermediate number is measured as well
NOTHING = 1e-30  # a step at which no number in flight does harm

Row = dict[str, Any]
Ways = dict[str, dict[str, Any]]  # options of each run, by its name


def ways(plan: BenchPlan, title: str, data: Any, **options: Any) -> Ways:
    """Return a run on all cores, and on the device each discipline with each number in flight that suits ``data``."""
    found: Ways = {CPU: {"workers": machine.physical_cores(), "host": plan.host}}
    for discipline in DISCIPLINES:
        plan.note(f"{title}: how many {discipline} has in hand")
        for name, number in in_hand(data, **options, discipline=discipline).items():
            found[f"{discipline}, {name}"] = {"device": "cuda", "discipline": discipline, "in_flight": number}
    return found


def in_hand(data: Any, step: float, **options: Any) -> dict[str, int | None]:
    """Return numbers of examples in flight by name; None: the launcher's own choice.

    They are taken from two runs over these data, which may be a sample: one with the step, one with almost none.
    """
    usual, full = _taken(data, step, **options), _taken(data, NOTHING, **options | {"discipline": "atomic"})
    found: dict[str, int | None] = {USUAL: None}
    if full >= APART * usual:
        found[BETWEEN] = round((full * usual) ** 0.5)
    if full > usual:
        found[FULL] = full
    return found


def _taken(data: Any, step: float, **options: Any) -> int:
    with train(data, device="cuda", step=step, schedule="constant", epochs=1, **options) as run:
        *_, last = run
    return int(last["in_flight"])


def race(
    starts: Mapping[str, Callable[[], Running]], loss: str, rounds: int, note: Callable[[str], None],
    others: Mapping[str, Side] | None = None,
) -> tuple[dict[str, Row], dict[str, Timing]]:  # fmt: skip
    """Start all runs, time them in turns, and yield each one's last row, then the timings of ``others``.

    Parameters
    ----------
    starts : mapping
        Functions that start each run.
    loss : str
        Field of a row of measurements to report as ``loss``.
    """
    runs: dict[str, Running] = {}
    refused: dict[str, Timing] = {}
    with ExitStack() as stack:
        for name, start in starts.items():
            note(f"starting {name}")
            try:
                runs[name] = start()
            except (HogwildError, HogwildWarning) as error:
                refused[name] = Timing(None, status=f"failed: {error}")
            else:
                stack.callback(runs[name].run.close)
        times = interleaved({**(others or {}), **runs}, rounds, note)
    return {name: _said(runs.get(name), (times | refused)[name], loss) for name in starts}, times


def _said(side: Running | None, timing: Timing, loss: str) -> Row:
    """Return a run's last row, if the run is sound."""
    if side is None:
        return timing.fields()
    run, last = side.run, side.run.history[-1]
    if timing.seconds is not None and last["status"] != "ok":
        timing = Timing(None, status=f"failed: {last['status']}")
    return timing.fields() | {
        "in_flight": last["in_flight"], "epochs": last["epoch"], "step": run.config.step, "kind": run.config.discipline,
        "workers": run.config.workers, "device": run.config.device,
        "loss": None if timing.seconds is None else last[loss],
    }  # fmt: skip


def worse(loss: float | None, rival: float | None) -> float | None:
    """Return by what fraction one loss exceeds another."""
    found = ratio(loss, rival)
    return None if found is None else found - 1
