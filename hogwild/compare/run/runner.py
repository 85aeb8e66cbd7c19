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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.compare.run.methods import find
from hogwild.compare.run.outside import OUTSIDE
from hogwild.compare.run.plan import Cell, Row
from hogwild.config import TrainConfig
from hogwild.errors import HogwildError, HogwildWarning, InputError, UsageError, reason_of
from hogwild.hosts.pool import Pool
from hogwild.methods import REAL_HOSTS
from hogwild.problems.protocol import Case, case_of
from hogwild.training.engine import start_pool
from hogwild.training.keep import has_diverged
from hogwild.training.run import Run

FAILURES = (
    HogwildError,
    ValueError,
    ArithmeticError,
    MemoryError,
    TimeoutError,
)  # these end a cell, and the others continue
SHORTEST = 1e-6  # seconds: what is subtracted from the clock varies by more, and zero has no logarithm


@dataclasses.dataclass
class Runner(contextlib.ExitStack):
    """What all cells share: the data, of any problem, the objective, the judge, and started worker pools."""

    rows: Any
    test: Any
    base: TrainConfig
    data: str
    timeout: float  # seconds of training after which a cell is stopped
    in_flight: int | None = None  # examples, for methods on a GPU
    reading: float = 0.0  # seconds that it took to read the data

    def __post_init__(self) -> None:
        super().__init__()
        self.cores = machine.physical_cores()
        self.pools: dict[tuple[str, int], tuple[Pool, float]] = {}  # and the seconds that it took to start
        self.compiling: dict[tuple[str, int], float] = {}  # seconds, of a method: what its first cell took

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
        config = find(cell.method).config(self.base, cell.workers, cell.step, cell.seed, self.in_flight)
        return dataclasses.replace(config, epochs=epochs, keep="last", patience=0)

    def run(self, cell: Cell, epochs: int) -> list[Row]:
        """Return all rows of one cell; only errors that end the whole comparison are raised."""
        method = find(cell.method)
        load = round(os.getloadavg()[0], 2)
        rows: list[Row] = []
        try:
            with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):  # diverged rows say so
                warnings.simplefilter("ignore", HogwildWarning)  # the comparison has warned once
                if reason := method.refusal(self.base, self.rows, cell.workers, self.cores):
                    raise UsageError(reason)
                config = self.config(cell, epochs)
                rows = self.follow(self._evaluations(cell, config)) if method.outside else self._ours(cell, config)
        except FAILURES as error:  # before its first row
            status = f"refused: {error}" if isinstance(error, InputError | UsageError) else self._fate(error)
            facts = {"data": self.data, "device": method.device, "seed": cell.seed, "step": cell.step}
            rows = [facts | {"epoch": 0, "objective": None, "train_seconds": None, "status": status}]
        rows[0]["load"] = load
        facts = {
            "phase": cell.phase,
            "method": cell.method,
            "kind": method.kind,
            "cell": cell.name,
            "workers": cell.workers,
            "cell_step": cell.step,
            "cell_rows": len(rows),
        }
        return [row | facts for row in rows]

    def _pool(self, workers: int, host: str) -> tuple[Pool, float]:
        """Return the pool of that many workers on a host, started if absent or a worker died, and the seconds that it
        took to start, which are not training.
        """
        key = REAL_HOSTS[0] if host == "auto" else host, workers  # "auto" is one host for all, even with one worker
        if key not in self.pools or self.pools[key][0].closed:
            began = time.perf_counter()
            pool = start_pool(*key, self.base.delay)
            self.pools[key] = pool, time.perf_counter() - began
            self.callback(pool.close)
        return self.pools[key]

    def _ours(self, cell: Cell, config: TrainConfig) -> list[Row]:
        """Run our own trainer; its clock is stopped while it evaluates."""
        pool, starting = self._pool(config.workers or 1, config.host)
        made: Run[Any] = Run(self.rows, self.test, config, None, False, pool, self.data, self.case)
        with made as run, self._alarm(run):
            compiling = run.stopwatch.spent("compiling")
            first = self.compiling.setdefault((cell.method, cell.workers), compiling)
            history = self.follow(run, pool.pids)
            if run.staleness:  # counts of the last epoch's updates by staleness
                history[-1]["staleness"] = run.staleness
        for row in history:
            row["once_seconds"] = self.reading + starting + first - compiling  # the last is in its set-up
        return history

    @contextlib.contextmanager
    def _alarm(self, run: Run[Any]) -> Iterator[None]:
        """Stop the run within an epoch when training has taken too long; evaluation does not count."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(min(self.timeout, 0.2)):
                if run.engine.train_seconds > self.timeout:
                    run.stop()
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _evaluations(self, cell: Cell, config: TrainConfig) -> Iterator[Row]:
        """Yield rows of another program's solver, driven from one evaluation to the next."""
        entry = OUTSIDE[cell.method]
        reading = self.reading if entry.text(self.rows) is None else 0.0  # it reads its text itself
        began = time.perf_counter()
        solver = entry(self.rows, config)
        setup = time.perf_counter() - began
        solver.untimed, solver.limit = solver.idle(), self.timeout
        start = np.zeros(self.case.problem.size, np.float32)
        self.case.problem.start(start, cell.seed)
        done, total, spent = 0, 0.0, 0.0
        for epoch in (0, *entry.epochs(config.epochs)):
            if epoch:
                resumed = time.perf_counter()
                solver.advance(epoch)
                spent = max(time.perf_counter() - resumed - solver.untimed, SHORTEST)
                # a solver that starts anew has done all epochs; then seconds must never fall
                total = max(spent, total) if entry.restarts else total + spent
            passes = max(epoch if entry.restarts else epoch - done, 1)
            done = epoch
            solution = solver.solution() if epoch else self.case.solution(start)
            yield {
                "data": self.data,
                **{name: getattr(config, name) for name in "problem loss l1 l2 seed step exchange device".split()},
                "discipline": "outside",
                "host": "outside",
                "epoch": epoch,
                "train_seconds": total,
                "wall_seconds": time.perf_counter() - began,
                "setup_seconds": setup + solver.untimed,
                "once_seconds": reading,
                "own_objective": entry.own_objective or None,
                "restarts": entry.restarts or None,
                **self.case.evaluate(solution),
                **self.case.speed(len(self.rows), self.rows.nnz, spent / passes),
                "status": "ok",
                **({} if solver.peak is None else {"peak_memory_mb": solver.peak}),
            }

    def follow(self, rows: Iterator[Row], workers: Sequence[int] = ()) -> list[Row]:
        """Return rows until they end, diverge, fail or take too long; ``workers`` are ids of their processes."""
        history: list[Row] = []
        measured = reset_peak()
        try:
            for row in rows:
                history.append(row)
                value = math.nan if row["objective"] is None else row["objective"]
                going = row["status"] == "ok"  # "interrupted": by the alarm, or a KeyboardInterrupt follows
                if going and has_diverged(value, [each["objective"] for each in history[:2]]):
                    row["status"] = "diverged"
                    break
                if row["status"] in ("ok", "interrupted") and row["train_seconds"] > self.timeout:
                    row["status"] = self._fate(TimeoutError())
                    if going:
                        break
        except FAILURES as error:
            if not history:
                raise
            if history[-1]["status"] == "ok":
                history[-1]["status"] = self._fate(error)
        if measured:
            theirs = sum(
                machine.memory_of(pid, "smaps_rollup", "Pss_Anon") for pid in workers
            )  # what they do not share
            history[-1].setdefault("peak_memory_mb", machine.memory_of("self", "status", "VmHWM") + theirs)
        return history

    def _fate(self, error: BaseException) -> str:
        """Return how a cell ended, for its status."""
        if isinstance(error, TimeoutError):
            return f"timed out after {self.timeout:g} s"
        return f"failed: {reason_of(error)}"


def reset_peak() -> bool:
    """Let the peak of this process's memory begin anew; return whether the system can."""
    with contextlib.suppress(OSError):
        return bool(Path("/proc/self/clear_refs").write_text("5"))
    return False
