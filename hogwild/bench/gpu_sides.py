"""What takes turns on a GPU and beside it: runs by their own clocks, and how many examples they have in hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from hogwild import machine
from hogwild.bench.gpu_targets import DISCIPLINES
from hogwild.bench.plan import Plan
from hogwild.bench.rounds import Side, Timing, interleaved, ratio
from hogwild.bench.sides import Training
from hogwild.bench.targets import Row
from hogwild.errors import HogwildError, HogwildWarning
from hogwild.training import Run, train

CPU = "CPU"
USUAL, BETWEEN, FULL = "usual", "between", "full"  # numbers of examples in hand
APART = 4  # times: from then on the number between two is measured as well
NOTHING = 1e-30  # a step at which no number in hand does harm

Ways = dict[str, dict[str, Any]]  # options of a run, by its name


class Going:
    """One more row of a run at each call; seconds of one of its epochs."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._last = next(run)

    def __call__(self) -> float:
        before, self._last = self._last, next(self.run)
        seconds: float = self._last["train_seconds"] - before["train_seconds"]
        return seconds / (self._last["epoch"] - before["epoch"])


class Trained(Training):
    """The same of a run of :func:`hogwild.train`."""

    def __init__(self, data: Any, step: float, epochs: int, **options: Any) -> None:
        super().__init__(data, step, evaluate_every=epochs, **options)
        self._every = epochs

    def __call__(self) -> float:
        return super().__call__() / self._every


def ways(plan: Plan, title: str, data: Any, **options: Any) -> Ways:
    """A run on all cores, and those on the device: of each discipline with each number in hand that ``data`` tell."""
    found: Ways = {CPU: {"workers": machine.physical_cores(), "host": plan.host}}
    for discipline in DISCIPLINES:
        plan.note(f"{title}: how many {discipline} has in hand")
        for name, number in in_hand(data, **options, discipline=discipline).items():
            found[f"{discipline}, {name}"] = {"device": "cuda", "discipline": discipline, "in_flight": number}
    return found


def in_hand(data: Any, step: float, **options: Any) -> dict[str, int | None]:
    """How many examples to have in hand, by name; None: what the launcher takes by itself.

    Runs over these data, which may be a sample, tell: one with the step, and one with a step of next to nothing.
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
    starts: Mapping[str, Callable[[], Going | Trained]], loss: str, rounds: int, note: Callable[[str], None],
    others: Mapping[str, Side] | None = None,
) -> tuple[dict[str, Row], dict[str, Timing]]:  # fmt: skip
    """Start all runs, let them take turns, and say what each one's last row does; and the timings of ``others`` too.

    Parameters
    ----------
    starts : mapping
        What starts each.
    loss : str
        Field of a row of measurements that is the row's ``loss`` here.
    """
    runs: dict[str, Going | Trained] = {}
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


def _said(side: Going | Trained | None, timing: Timing, loss: str) -> Row:
    """A run's last row, if the run is sound."""
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
    """By how much one loss is above another, as a share of it."""
    found = ratio(loss, rival)
    return None if found is None else found - 1
