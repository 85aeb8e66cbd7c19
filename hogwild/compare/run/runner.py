"""Runs one cell, sampled: train to the next evaluation, stop the clock, evaluate, continue; each run gives all points.

Our own methods go through :class:`hogwild.training.run.Run`, whose clock runs only while workers run. Other programs
are driven from here, by the same clock and judged by the same objective, so that a method takes a few lines and has no
influence on fairness. However a cell ends (diverged, timed out, a worker killed), its rows stay and say so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.compare.reference.outside import OUTSIDE, Solver, timed
from hogwild.compare.run.methods import find, gpu
from hogwild.compare.run.plan import Cell
from hogwild.config import TrainConfig
from hogwild.errors import HogwildError, HogwildWarning, UsageError
from hogwild.hosts.pool import Pool
from hogwild.methods import REAL_HOSTS
from hogwild.problems.protocol import Case, case_of
from hogwild.training.engine import start_pool
from hogwild.training.keep import has_diverged
from hogwild.training.run import Run

Row = dict[str, Any]
FAILURES = (HogwildError, ValueError, ArithmeticError, MemoryError)  # these end a cell, and the others continue


@dataclasses.dataclass(frozen=True)
class ComparedData:
    """The data, of any problem, and the objective that all cells share."""

    rows: Any
    test: Any
    base: TrainConfig
    data: str
    timeout: float  # seconds of training after which a cell is stopped
    in_flight: int | None = None  # examples, for methods on a GPU

    @functools.cached_property
    def case(self) -> Case:
        """The case that evaluates every solution: it judges our own runs too, and is made once for all cells."""
        numbering = {"renumber": "never"} if hasattr(self.base, "renumber") else {}
        config = self.base.replace(workers=1, discipline="serial", keep="last", **numbering)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HogwildWarning)  # the first run gives the warnings
            case = case_of(config.problem)(config, self.rows, self.test)
            case.make_evaluator()
        return case

    def config(self, cell: Cell, epochs: int) -> TrainConfig:
        """Return the options of a cell's run, of all epochs: a method is judged by what it trained."""
        method = find(cell.method)
        config = method.config(self.base, cell.workers, cell.step, cell.seed, self.in_flight)
        return dataclasses.replace(config, epochs=epochs, keep="last", patience=0)


class Pools(contextlib.ExitStack):
    """Started worker pools, one for each host and number of workers, so that a cell does not pay for starting one."""

    def __init__(self, host: str, delay: str = "round-robin") -> None:
        super().__init__()
        self.host, self.delay = host, delay
        self._pools: dict[tuple[str, int], Pool] = {}

    def of(self, workers: int, host: str | None = None) -> Pool:
        """Return the pool of that many workers on a host (default: the usual), started if absent or a worker died."""
        host = host or self.host
        key = REAL_HOSTS[0] if host == "auto" else host, workers  # "auto" is one host for all, even with one worker
        if key not in self._pools or self._pools[key].closed:
            self._pools[key] = start_pool(*key, self.delay)
            self.callback(self._pools[key].close)
        return self._pools[key]


def run_cell(cell: Cell, task: ComparedData, epochs: int, pools: Pools) -> list[Row]:
    """Return all rows of one cell; only errors that end the whole comparison are raised."""
    method = find(cell.method)
    load = round(os.getloadavg()[0], 2)
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):  # diverged rows say so
            warnings.simplefilter("ignore", HogwildWarning)  # the comparison has warned once
            if method.outside:
                rows = _follow(_outside(cell, task, epochs), task.timeout)
            else:
                config = task.config(cell, epochs)
                rows = _ours(config, task, pools.of(config.workers or 1, config.host))
                rows[0] |= {} if method.device == "cpu" else {"gpu": gpu().name}
                rows[0] |= {"batch": config.batch} if config.problem == "module" else {}
    except FAILURES as error:  # before its first row
        return [refused(cell, task, f"refused: {error}" if isinstance(error, UsageError) else _failed(error))]
    rows[0]["load"] = load
    return [row | _cell_fields(cell, len(rows)) for row in rows]


def _cell_fields(cell: Cell, rows: int) -> Row:
    """Return the fields that every row has about its cell, and the number of rows."""
    return {
        "phase": cell.phase,
        "method": cell.method,
        "kind": find(cell.method).kind,
        "cell": cell.name,
        "workers": cell.workers,
        "cell_step": cell.step,
        "cell_rows": rows,
    }


def refused(cell: Cell, task: ComparedData, reason: str) -> Row:
    """Return the row that represents a cell that was not run."""
    return _cell_fields(cell, 1) | {
        "data": task.data,
        "device": find(cell.method).device,
        "seed": cell.seed,
        "step": cell.step,
        "epoch": 0,
        "objective": None,
        "train_seconds": None,
        "status": reason,
    }


def _failed(error: BaseException) -> str:
    return f"failed: {' '.join(str(error).split()) or type(error).__name__}"


def _ours(config: TrainConfig, task: ComparedData, pool: Pool) -> list[Row]:
    """Run our own trainer; its clock is stopped while it evaluates."""
    made: Run[Any] = Run(task.rows, task.test, config, None, False, pool, task.data, task.case)
    with made as run, _alarm(run, task.timeout):
        history = _follow(run, task.timeout)
        if run.staleness:  # counts of the last epoch's updates by staleness
            history[-1]["staleness"] = run.staleness
        return history


@contextlib.contextmanager
def _alarm(run: Run, seconds: float) -> Iterator[None]:
    """Stop the run within an epoch when training has taken too long; evaluation does not count."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(seconds, 0.2)):
            if run.engine.clock.seconds > seconds:
                run.stop()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _outside(cell: Cell, task: ComparedData, epochs: int) -> Iterator[Row]:
    """Yield rows of another program's solver, driven from one evaluation to the next."""
    entry, began = OUTSIDE[cell.method], time.perf_counter()
    config = task.config(cell, epochs)
    solver: Solver = entry.make(task.rows, config)
    setup = time.perf_counter() - began
    order = config.order if entry.order == "shuffled" else entry.order

    def row(epoch: int, seconds: float, solution: tuple[np.ndarray, ...], of_epoch: float | None) -> Row:
        speed = task.case.speed(len(task.rows), task.rows.nnz, of_epoch or 0.0)
        return {
            "run": cell.name,
            "data": task.data,
            **{name: getattr(config, name) for name in "problem loss l1 l2 seed step exchange device".split()},
            "discipline": "outside",
            "order": order,
            "host": "outside",
            "schedule": config.schedule if cell.step else "its own",
            "epoch": epoch,
            "train_seconds": seconds,
            "wall_seconds": time.perf_counter() - began,
            "setup_seconds": setup,
            **task.case.evaluate(solution),
            **speed,
            "status": "ok",
        }

    start = np.zeros(task.case.problem.size, np.float32)
    task.case.problem.start(start, cell.seed)
    yield row(0, 0.0, task.case.solution(start), None)
    total = 0.0
    done = 0
    for epoch in entry.epochs(epochs):
        spent = timed(solver, epoch)
        passes = epoch if solver.seconds_replace else epoch - done
        total = max(spent, total) if solver.seconds_replace else total + spent  # separate runs: seconds never fall
        done = epoch
        yield row(epoch, total, solver.solution(), spent / passes)


def _follow(rows: Iterator[Row], timeout: float) -> list[Row]:
    """Return rows until they end, diverge, fail or take too long."""
    history: list[Row] = []
    try:
        for row in rows:
            history.append(row)
            value = math.nan if row["objective"] is None else row["objective"]
            going = row["status"] == "ok"  # "interrupted": by the alarm, or a KeyboardInterrupt follows
            if going and has_diverged(value, [each["objective"] for each in history[:2]]):
                row["status"] = "diverged"
                break
            if row["status"] in ("ok", "interrupted") and row["train_seconds"] > timeout:
                row["status"] = f"timed out after {timeout:g} s"
                if going:
                    break
    except FAILURES as error:
        if not history:
            raise
        if history[-1]["status"] == "ok":
            history[-1]["status"] = _failed(error)
    return history
