"""Runs a comparison: the optimum, the tuning trials, then the reported cells, with the methods in turn.

Every finished cell is written to disk at once, so an interruption costs only the current cell and the same command
resumes. Everything decided from measurements (the winners of the tuning, the report) is decided from those rows alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hogwild.machine as machine
from hogwild.compare.report.results import best_step, lowest
from hogwild.compare.run.ledger import Ledger
from hogwild.compare.run.methods import find, gpu
from hogwild.compare.run.plan import FACTORS, Cell, ComparisonPlan
from hogwild.compare.run.problems import SUBJECTS
from hogwild.compare.run.runner import ComparedData, Pools, Row, refused, run_cell
from hogwild.config import TrainConfig
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.model_file import package_version

EXTENSIONS = 6  # most steps, or one more, by which a grid that was not asked for grows
TIMEOUT = 600.0  # seconds of training allowed for a cell
FORMAT = 1  # version of the rows: rows of another version belong to another comparison


@dataclass
class ComparisonProgress:
    """Progress of a comparison, readable at any time from any thread."""

    label: str
    done: int = 0  # cells
    total: int = 0
    remaining: float | None = None  # seconds, estimated


class Comparison:
    """Compares methods on the same data, by the same objective and the same clock.

    Parameters
    ----------
    rows, test : Rows or (X, y); Ratings; Graph; Posed, Examples
        Training and test data, as for :func:`hogwild.training.run.train`; the latter may be None. For problem "module",
        the result of :func:`hogwild.problems.module.training.pose`.
    plan : ComparisonPlan
    base : TrainConfig
        The objective, the host of workers on the CPU and the link between virtual replicas. Its step, epochs, workers,
        discipline, exchange and seed come from the plan, and for a run on a GPU the method says where it runs.
    data : str
        Name of the data in the results.
    timeout : float
        Seconds of training after which a cell is stopped.
    in_flight : int, optional
        For methods on a GPU: examples processed at the same time, as in ``TrainConfig``.
    command : str
        Command line, for the report.

    Raises
    ------
    InputError, UsageError
        If the data and the options do not fit together.
    """

    def __init__(
        self,
        rows: Any,
        test: Any,
        plan: ComparisonPlan,
        base: TrainConfig,
        *,
        data: str = "",
        timeout: float = TIMEOUT,
        in_flight: int | None = None,
        command: str = "",
    ) -> None:
        self.subject = SUBJECTS[base.problem]
        base, rows, test = self.subject.take(base, rows, test)
        if base.device != "cpu":
            raise UsageError(f"device={base.device!r}: methods say where they run: name those of that device instead")
        if base.schedule == "optimal":
            raise UsageError("schedule='optimal' sets its own step, so methods cannot be tuned alike: choose another")
        base = dataclasses.replace(base, step=None, workers=None, seed=0, discipline="auto", exchange="none")
        self.task = ComparedData(
            rows, test, base, data or (str(rows.store) if rows.store else "memory"), timeout, in_flight
        )
        self.plan = plan
        self.requested = plan  # before the grid is known
        self.command = command
        self.cores = machine.physical_cores()
        self.gpu = _gpu(plan)
        self.task.case.make_evaluator()  # what is wrong with the data is raised before anything is written
        self.pools = Pools(base.host, base.delay)
        self.progress = ComparisonProgress("starting")
        self._spent: list[float] = []  # seconds of every cell of this run

    @property
    def identity(self) -> str:
        """Return a hash of everything that determines the cells and their meaning."""
        task = self.task
        identity = dataclasses.asdict(self.requested) | {
            "format": FORMAT,
            "base": task.base.to_json(),
            "rows": self.subject.fingerprint(task.rows),
            "test": None if task.test is None else self.subject.fingerprint(task.test),
            "timeout": task.timeout,
            "gpu": self.gpu,
            "in_flight": task.in_flight,
            "cpu": machine.cpu_model(),
            "cores": self.cores,
            **machine.versions(),
        }
        return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=12).hexdigest()

    def run(self, out: str | Path) -> None:
        """Run every cell that ``out`` does not hold yet; results are in its ``rows.jsonl``.

        Raises
        ------
        UsageError
            If the directory holds another comparison.
        OutputError
            If it cannot be written.
        """
        load = round(os.getloadavg()[0], 2)  # before this process adds any
        ledger = Ledger(out, self.identity)
        try:
            with self.pools:
                self._prepare(ledger, load)
                for cell in self._cells(ledger):
                    ledger.add(self._do(cell))
        finally:
            ledger.close()

    # ---- before the first cell

    def _prepare(self, ledger: Ledger, load: float) -> None:
        if ledger.head is not None:  # keep the grid of the first run
            self.plan = dataclasses.replace(self.plan, grid=tuple(ledger.head["step_grid"]))
        elif not self.plan.grid:
            self.progress.label = "probing for a step"
            case = self.task.case
            step = case.config.step or case.search_step()()[0]
            self.plan = dataclasses.replace(self.plan, grid=tuple(step * factor for factor in FACTORS))
        if (most := self.plan.most_workers) > self.cores and self.task.base.host != "simulator":
            crowd = f"{most} workers on {self.cores} cores"
            warnings.warn(f"{crowd}: the scheduler decides who works, not the method", HogwildWarning, stacklevel=3)
        if ledger.head is None:
            self.progress.label = "looking for the optimum"
            ledger.begin(self._describe() | {"comparison": self.identity, "load": load})

    def _describe(self) -> Row:
        """Return the row of phase "optimum"."""
        task = self.task
        plan = self.plan
        base = task.base
        optimum = self.subject.optimum(dataclasses.replace(base, seed=plan.first_seed), task.rows, task.case)
        last_cache = machine.cache_bytes()
        return {
            "phase": "optimum",
            "method": "optimum",
            "cell": "optimum",
            "epoch": 0,
            "status": "ok",
            "data": task.data,
            "objective": optimum.objective,
            "start_objective": optimum.start,
            "optimum_how": optimum.how,
            "optimum_gap": optimum.gap,
            "optimum_seen": optimum.objective is None,
            "problem": base.problem,
            "train_seconds": optimum.seconds,
            **self.subject.facts(base, task.rows, task.test),
            "fingerprint": self.subject.fingerprint(task.rows),
            "schedule": base.schedule,
            "order": base.order,
            "host": base.host,
            "link": base.link,
            "device": "cpu" if self.gpu is None else "cuda",
            **({} if self.gpu is None else {"gpu": self.gpu}),
            "eps": sorted(plan.eps, reverse=True),
            "epochs": plan.epochs,
            "step_grid": list(plan.grid),
            "seeds_list": list(range(plan.first_seed, plan.first_seed + plan.seeds)),
            "plan": dataclasses.asdict(plan),
            "began": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "caches": machine.caches(),
            "cache_megabytes": last_cache / 1e6 if last_cache else None,
            "version_hogwild": package_version(),
            **machine.machine_fields(),
            "affinity": sorted(os.sched_getaffinity(0)),
            "command": self.command,
        }

    # ---- the cells

    def _cells(self, ledger: Ledger) -> Iterator[Cell]:
        """Yield all missing cells in the order they are run; the reported ones once the trials are done."""
        plan = self.plan
        trials = plan.tuning()
        yield from self._missing(trials, trials + plan.reported({}), ledger)
        while not self.requested.grid:  # no method's best step may lie outside of the grid
            steps = sorted({rows[0]["cell_step"] for rows in ledger.cells.values() if rows[0]["phase"] == "tuning"})
            more = plan.further(self._winners(ledger), steps)
            if not more or len(steps) >= len(plan.grid) + EXTENSIONS:
                break
            trials = trials + more
            yield from self._missing(more, trials + plan.reported({}), ledger)
        winners = self._winners(ledger)
        rest = plan.reported(winners)
        yield from self._missing(rest, trials + rest, ledger)

    def _missing(self, cells: list[Cell], all_cells: list[Cell], ledger: Ledger) -> Iterator[Cell]:
        """Yield the unfinished ones of ``cells``, updating the progress."""
        for cell in [cell for cell in cells if cell.name not in ledger.cells]:
            self.progress.total = len(all_cells)
            self.progress.done = sum(each.name in ledger.cells for each in all_cells)
            if self._spent:
                self.progress.remaining = statistics.mean(self._spent) * (self.progress.total - self.progress.done)
            self.progress.label = cell.name.replace("/", " ")
            began = time.monotonic()
            yield cell
            self._spent.append(time.monotonic() - began)

    def _do(self, cell: Cell) -> list[Row]:
        task = self.task
        reason = find(cell.method).refusal(task.base, task.rows, cell.workers, self.cores, task.in_flight)
        if reason is not None:
            return [refused(cell, task, f"refused: {reason}")]
        return run_cell(cell, task, self.plan.epochs, self.pools)

    def _winners(self, ledger: Ledger) -> dict[tuple[str, int], float]:
        """Return the best step of every method and number of workers, from the trials."""
        assert ledger.head is not None
        trials: dict[tuple[str, int], dict[float, list[Row]]] = {}
        for rows in ledger.cells.values():
            first = rows[0]
            if first["phase"] == "tuning" and not first["status"].startswith("refused"):
                trials.setdefault((first["method"], first["workers"]), {})[first["cell_step"]] = rows
        start = ledger.head["start_objective"]
        optimum = ledger.head["objective"]
        if optimum is None:  # if it is unknown, the best of the trials replaces it
            optimum = lowest((row for steps in trials.values() for rows in steps.values() for row in rows), start)
        return {key: best_step(steps, optimum, start, self.plan.eps) for key, steps in trials.items()}


def _gpu(plan: ComparisonPlan) -> str | None:
    """Return the name of the GPU that methods of the plan use; None without such methods or without a GPU."""
    if not any(find(name).device != "cpu" for name in plan.methods):
        return None
    try:
        return gpu().name
    except InputError:  # each of their rows will say so
        return None
