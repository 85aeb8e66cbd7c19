"""Runs a comparison: a rehearsal, the optimum, the trials of every step, then the cells that are reported, in turns.

Every finished cell is on disk at once, so an interruption costs the cell at hand and the same command goes on where it
was. What is decided from measurements (the winners of the tuning, the report) is decided from those rows alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hogwild.machine as machine
from hogwild.compare.about import describe_all, rehearse
from hogwild.compare.ledger import Ledger
from hogwild.compare.methods import METHODS, Method, gpu
from hogwild.compare.plan import FACTORS, FEWEST_SEEDS, Cell, Plan, Prices, delay_rows, fit
from hogwild.compare.runner import Judge, Pools, Row, Task, refused, run_cell
from hogwild.compare.subjects import SUBJECTS
from hogwild.compare.targets import lowest
from hogwild.compare.tuning import best_step
from hogwild.config import TrainConfig
from hogwild.errors import HogwildWarning, InputError, UsageError

EXTENSIONS = 6  # steps, or one more, by which a grid grows that was not asked for
TIMEOUT = 600.0  # seconds of training that a cell is given
FORMAT = 1  # of the rows: another one is another comparison


@dataclass
class Progress:
    """How far a comparison is, readable at any time from any thread."""

    label: str
    done: int = 0  # cells
    total: int = 0
    left: float | None = None  # seconds, about


class Comparison:
    """Methods compared on the same data, by the same objective and the same clock.

    Parameters
    ----------
    rows, test : Rows or (X, y); Ratings; Graph; Posed, Examples
        To train and to test on, as for :func:`hogwild.training.train`; the latter may be None. For problem "module"
        what :func:`hogwild.module_training.pose` makes.
    plan : Plan
    base : TrainConfig
        What is minimised, and the host of workers on the CPU. Its step, epochs, workers, discipline, exchange and seed
        are the plan's, and where a run is on a GPU its method says.
    data : str
        Name of the data in the results.
    cache : path, optional
        Where optima are kept.
    budget : float, optional
        Seconds; see :func:`hogwild.compare.plan.fit`. Once they are gone, only three seeds are still completed.
    named : sequence of str
        Fields of the plan that the budget leaves alone.
    timeout : float
        Seconds of training after which a cell is stopped.
    in_flight : int, optional
        Of methods on a GPU: examples in hand at the same time, as in ``TrainConfig``.
    command : str
        For the report.

    Raises
    ------
    InputError, UsageError
        If the data and the options do not go together.
    """

    def __init__(
        self, rows: Any, test: Any, plan: Plan, base: TrainConfig, *,
        data: str = "", cache: Path | None = None, budget: float | None = None, timeout: float = TIMEOUT,
        in_flight: int | None = None, command: str = "", named: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.subject = SUBJECTS[base.problem]
        base, rows, test = self.subject.take(base, rows, test)
        self.subject.check(base)
        if base.device != "cpu":
            raise UsageError(f"device={base.device!r}: methods say where they run: name those of that device instead")
        if base.schedule == "optimal":
            raise UsageError("schedule='optimal' sets its own step, so methods cannot be tuned alike: choose another")
        base = dataclasses.replace(base, step=None, workers=None, discipline="auto", exchange="none", seed=0)
        self.task = Task(rows, test, base, data or (str(rows.store) if rows.store else "memory"), timeout, in_flight)
        self.plan, self.asked, self.cache, self.budget, self.named = plan, plan, cache, budget, tuple(named)
        self.command, self.cores, self.gpu = command, machine.physical_cores(), _gpu(plan)
        self.judge = Judge(self.task)
        self.progress = Progress("starting")
        self._say: Callable[[Progress], None] = lambda progress: None
        self._prices: Prices | None = None  # not known yet
        self._expected = self._guessed = self._spent = 0.0

    @property
    def identity(self) -> str:
        """A hash of everything that decides which cells there are and what they mean."""
        task = self.task
        asked = self.asked.to_json() | {
            "format": FORMAT, "base": task.base.to_json(), "rows": self.subject.fingerprint(task.rows),
            "test": None if task.test is None else self.subject.fingerprint(task.test), "timeout": task.timeout,
            "gpu": self.gpu, "in_flight": task.in_flight,
            "budget": self.budget, "named": self.named, "cpu": machine.cpu_model(), "cores": self.cores,
            **machine.versions(),
        }  # fmt: skip
        return hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=12).hexdigest()

    def run(self, out: str | Path, note: Callable[[Progress], None] = lambda progress: None) -> None:
        """Run every cell that ``out`` does not hold yet; results are in its ``rows.jsonl``.

        Raises
        ------
        UsageError
            If the directory holds another comparison.
        OutputError
            If it cannot be written.
        """
        self._say = note
        load = round(os.getloadavg()[0], 2)  # before there is any of our own
        ledger = Ledger(out, self.identity)
        try:
            with Pools(self.task.base.host, self.task.base.delay) as pools:
                self._prepare(ledger, pools, load)
                for cell in self._cells(ledger, pools):
                    ledger.add(self._do(cell, pools))
        finally:
            ledger.close()

    def rehearsed(self) -> tuple[list[Cell], float, list[str]]:
        """``(cells, seconds, left out)``: what :meth:`run` would do, the steps of trials still unknown."""
        with Pools(self.task.base.host, self.task.base.delay) as pools:
            left_out = self._size(pools)
            prices = self._rehearsed(pools)
        cells = self.plan.tuning() + self.plan.reported({}) + self.plan.delayed(self.plan.grid[0])
        return cells, prices.plan(self.plan, len(self.task.rows)), left_out

    # ---- before the first cell

    def _size(self, pools: Pools) -> list[str]:
        """Find the grid and what things cost here, and fit the plan into the budget; returns what was left out."""
        if not self.plan.grid:
            self._note("probing for a step")
            step = self.subject.first_step(self.task.base, self.task.rows)
            self.plan = dataclasses.replace(self.plan, grid=tuple(step * factor for factor in FACTORS))
        self.plan, left_out = fit(self.plan, self._rehearsed(pools), len(self.task.rows), self.budget, self.named)
        return left_out

    def _rehearsed(self, pools: Pools) -> Prices:
        """What things cost; found out when it is first needed."""
        if self._prices is None:
            self._note("rehearsing")
            self._prices = rehearse(self.task, min(self.plan.grid), pools)
        return self._prices

    def _prepare(self, ledger: Ledger, pools: Pools, load: float) -> None:
        if ledger.about is not None:  # the grid and the cuts of the first time
            self.plan = Plan.from_json(ledger.about["plan"])
        left_out = self._size(pools) if ledger.about is None else ledger.about["left_out"]
        if (most := self.plan.crews()[-1]) > self.cores and self.task.base.host != "simulator":
            crowd = f"{most} workers on {self.cores} cores"
            warnings.warn(f"{crowd}: the scheduler decides who works, not the method", HogwildWarning, stacklevel=3)
        if ledger.about is None:
            self._note("looking for the optimum")
            facts = {"comparison": self.identity, "command": self.command, "left_out": left_out, "load": load}
            facts |= {} if self.gpu is None else {"gpu": self.gpu}
            about = self.task, self.plan, self.judge, pools, self.cache
            ledger.begin(describe_all(*about, lambda text: self._note(f"the optimum: {text}"), facts))

    # ---- the cells

    def _cells(self, ledger: Ledger, pools: Pools) -> Iterator[Cell]:
        """All missing cells in the order in which they are run; the reported ones once the trials are done."""
        plan, began = self.plan, time.monotonic()
        trials = plan.tuning()
        yield from self._missing(trials, trials + plan.reported({}) + plan.delayed(1.0), ledger, pools)
        while not self.asked.grid:  # nobody's best step is to lie outside of the grid
            more = plan.further(self._winners(ledger), tried := self._tried(ledger))
            late = self.budget is not None and time.monotonic() - began > self.budget / 2
            if not more or late or len(tried) >= len(plan.grid) + EXTENSIONS:
                break
            trials = trials + more
            yield from self._missing(more, trials + plan.reported({}) + plan.delayed(1.0), ledger, pools)
        winners = self._winners(ledger)
        reported, delayed = plan.reported(winners), plan.delayed(winners.get(("serial", 1), plan.grid[0]))
        for cell in self._missing(reported + delayed, trials + reported + delayed, ledger, pools):
            late = self.budget is not None and time.monotonic() - began > self.budget and "seeds" not in self.named
            if late and cell.phase == "reported" and cell.seed - plan.first_seed >= FEWEST_SEEDS:
                ledger.add([refused(cell, self.task, f"left out: the {self.budget:g} s were used up")])
                continue
            yield cell

    def _missing(
        self, cells: list[Cell], all_cells: list[Cell], ledger: Ledger, pools: Pools
    ) -> Iterator[Cell]:  # fmt: skip
        """Those of ``cells`` that are not finished, with the progress kept."""
        missing = [cell for cell in cells if cell.name not in ledger.cells]
        if not missing:
            return
        cost, rows = self._rehearsed(pools), len(self.task.rows)
        prices = {cell.name: cost.cell(cell, self.plan.epochs, rows) for cell in all_cells}
        for cell in missing:
            left = [name for name in prices if name not in ledger.cells]
            self._expected = sum(prices[name] for name in left)
            self.progress.done, self.progress.total = len(prices) - len(left), len(prices)
            self._note(cell.name.replace("/", " "))
            began = time.monotonic()
            yield cell
            self._spent += time.monotonic() - began
            self._guessed += prices[cell.name]

    def _note(self, label: str) -> None:
        scale = self._spent / self._guessed if self._guessed else 1.0
        self.progress.label, self.progress.left = label, self._expected * scale if self._expected else None
        self._say(self.progress)

    def _do(self, cell: Cell, pools: Pools) -> list[Row]:
        """The rows of one cell."""
        method, task = METHODS[cell.method], self.task
        reason = self.refusal(method, cell.workers)
        if reason is not None:
            return [refused(cell, task, f"refused: {reason}")]
        if cell.phase == "delay":
            return _delayed(cell, task, pools, self.judge)
        return run_cell(cell, task, self.plan.epochs, pools, self.judge)

    def refusal(self, method: Method, workers: int) -> str | None:
        """Why a method cannot be run here on so many workers, in one sentence; None if it can."""
        task = self.task
        return method.refusal(task.base, task.rows, workers, self.cores, task.in_flight)

    @staticmethod
    def _tried(ledger: Ledger) -> list[float]:
        """The steps that there are trials of."""
        return sorted({found[0]["cell_step"] for found in ledger.cells.values() if found[0]["phase"] == "tuning"})

    def _winners(self, ledger: Ledger) -> dict[tuple[str, int], float]:
        """The best step of every method and number of workers, from the trials."""
        assert ledger.about is not None
        trials: dict[tuple[str, int], dict[float, list[Row]]] = {}
        for found in ledger.cells.values():
            first = found[0]
            if first["phase"] == "tuning" and not first["status"].startswith("refused"):
                trials.setdefault((first["method"], first["workers"]), {})[first["cell_step"]] = found
        start, optimum = ledger.about["start_objective"], ledger.about["objective"]
        if optimum is None:  # nobody knows it: the best of the trials stands for it
            rows = [row for steps in trials.values() for found in steps.values() for row in found]
            optimum = lowest(rows, start)
        about = optimum, start, self.plan.eps
        return {key: best_step(steps, *about) for key, steps in trials.items()}


def _delayed(cell: Cell, task: Task, pools: Pools, judge: Judge) -> list[Row]:
    """One row: the second of two epochs, of as many rows as the delay allows."""
    together = task.base.batch or 1
    n = delay_rows(cell.gradient_delay, cell.workers, len(task.rows), together)
    rows = task.rows  # where they are sorted by label, the first n may all be alike
    if n < len(rows):
        rows = SUBJECTS[task.base.problem].sample(rows, n)
    part = dataclasses.replace(task, rows=rows, test=None)
    found = run_cell(cell, part, 2, pools, judge)
    last = found[-1]
    seconds = last["train_seconds"] - found[-2]["train_seconds"] if len(found) == 3 else None
    return [last | {"cell_rows": 1, "delay_rows": -(-n // together), "epoch_seconds": seconds}]


def _gpu(plan: Plan) -> str | None:
    """The name of the GPU that methods of the plan are for; None if there are no such methods, or there is none."""
    if not any(METHODS[name].device != "cpu" for name in plan.methods):
        return None
    try:
        return gpu().name
    except InputError:  # every one of them will say so
        return None
