"""Runs a comparison: the optimum, the tuning trials, then the reported cells, with the methods in turn.

Every finished cell is written to disk at once, so an interruption costs only the current cell and the same command
resumes. Everything decided from measurements (the winners of the tuning, the report) is decided from those rows alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hogwild.machine as machine
from hogwild.compare.run.ledger import Ledger
from hogwild.compare.run.methods import find, gpu
from hogwild.compare.run.outside import OUTSIDE
from hogwild.compare.run.plan import FACTORS, ComparisonPlan
from hogwild.compare.run.problems import data_facts, optimum_of
from hogwild.compare.run.runner import Row, Runner
from hogwild.config import TrainConfig
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.model_file import package_version
from hogwild.problems.protocol import case_of
from hogwild.rows_file import plain
from hogwild.training.checkpoint import fingerprint_of, fingerprint_of_json
from hogwild.training.schedule import usual_schedule

TIMEOUT = 600.0  # seconds of training allowed for a cell
FORMAT = 2  # version of the rows: rows of another version belong to another comparison


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
    reading : float
        Seconds that it took to read the data, for the clock from the call to the model.
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
        reading: float = 0.0,
        command: str = "",
    ) -> None:
        take = case_of(base.problem).take
        rows, test = take(rows), test if test is None or base.problem == "module" else take(test)
        base = dataclasses.replace(base, loss=getattr(rows, "loss_name", base.loss))  # a module is posed with one
        if base.device != "cpu":
            raise UsageError(f"device={base.device!r}: methods say where they run: name those of that device instead")
        if base.schedule == "optimal":
            raise UsageError("schedule='optimal' sets its own step, so methods cannot be tuned alike: choose another")
        if base.loss == "perceptron":
            raise UsageError("loss='perceptron' is lowest where it starts: choose another")
        schedule = usual_schedule(base.schedule, 0, settled=True)
        varied: dict[str, Any] = {"step": None, "workers": None, "seed": 0, "discipline": "auto", "exchange": "none"}
        base = dataclasses.replace(base, schedule=schedule, **varied)
        self.runner = Runner(rows, test, base, data or str(rows.store or "memory"), timeout, in_flight, reading)
        self.plan = plan
        self.command = command
        self.gpu: str | None = None
        if any(find(name).device != "cpu" for name in plan.methods):
            with contextlib.suppress(InputError):  # each of their rows will say so
                self.gpu = gpu().name
        self.runner.case.make_evaluator()  # what is wrong with the data is raised before anything is written
        self.progress = ComparisonProgress("starting")

    @functools.cached_property
    def about(self) -> Row:
        """Everything that determines the cells and their meaning, as fields of the first row."""
        runner, plan = self.runner, self.plan
        tested = None if runner.test is None else fingerprint_of((len(runner.test),), runner.test.sample_arrays())
        return {
            "format": FORMAT,
            **runner.base.to_json(),
            **data_facts(runner.base, runner.rows, runner.test),
            "fingerprint": runner.case.fingerprint,
            "test_fingerprint": tested,
            "plan": dataclasses.asdict(plan),
            "eps": sorted(plan.eps, reverse=True),
            "epochs": plan.epochs,
            "seeds_list": list(range(plan.first_seed, plan.first_seed + plan.seeds)),
            "timeout": runner.timeout,
            "gpu": self.gpu,
            "in_flight": runner.in_flight,
            **machine.machine_fields(),
            "load": None,  # until it begins
        }

    @property
    def identity(self) -> str:
        """Return a hash of it."""
        return fingerprint_of_json(plain(self.about))

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
        plan, progress, pairs = self.plan, self.progress, self.plan.pairs()
        ledger = Ledger(out, self.identity)
        try:
            most = max((count for method, count in pairs if method.device == "cpu"), default=1)
            if most > self.runner.cores and self.runner.base.host != "simulator":
                crowd = f"{most} workers on {self.runner.cores} cores"
                warnings.warn(f"{crowd}: the scheduler decides who works, not the method", HogwildWarning, stacklevel=2)
            if not ledger.head:
                ledger.begin(self.about | self._measured() | {"comparison": self.identity, "load": load})
            began, before = time.monotonic(), len(ledger.cells)
            with self.runner:
                while todo := [each for each in plan.cells(ledger.head, ledger.cells) if each.name not in ledger.cells]:
                    trials = {name for name in ledger.cells if name.startswith("tuning")}
                    trials |= {cell.name for cell in todo if cell.phase == "tuning"}
                    progress.total = len(trials) + plan.seeds * len(pairs)
                    for cell in todo:
                        progress.label = cell.name.replace("/", " ")
                        progress.done = len(ledger.cells)
                        if progress.done > before:
                            pace = (time.monotonic() - began) / (progress.done - before)
                            progress.remaining = pace * (progress.total - progress.done)
                        ledger.add(self.runner.run(cell, plan.epochs))
        finally:
            ledger.close()

    def _measured(self) -> Row:
        """Return the rest of the first row, of phase "optimum": steps, optimum, and where and when it was begun."""
        runner, grid = self.runner, self.plan.grid
        if not grid:
            self.progress.label = "probing for a step"
            step = runner.case.config.step or runner.case.search_step()()[0]
            grid = tuple(step * factor for factor in FACTORS)
        self.progress.label = "looking for the optimum"
        began = time.perf_counter()
        optimum = optimum_of(runner.case, runner.rows, self.plan.first_seed)
        last_cache = machine.cache_bytes()
        return optimum | {
            "phase": "optimum",
            "method": "optimum",
            "cell": "optimum",
            "epoch": 0,
            "status": "ok",
            "data": runner.data,
            "train_seconds": time.perf_counter() - began,
            "step_grid": list(grid),
            "began": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "caches": machine.caches(),
            "cache_megabytes": last_cache / 1e6 if last_cache else None,
            "version_hogwild": package_version(),
            "commit": commit(),
            **{f"version_{name}": OUTSIDE[name].version() for name in self.plan.methods if find(name).outside},
            "affinity": sorted(os.sched_getaffinity(0)),
            "command": self.command,
        }


def commit() -> str | None:
    """Return the commit of the package, if it lies in a checkout, with ``-dirty`` if that was changed."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError):
        command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None
    return None
