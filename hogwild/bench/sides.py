"""The sides of a round: a training run timed by its own clock, or one worker's loop on a job laid out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import time
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from hogwild.bench.kernels import steps_kernel as bench
from hogwild.bench.plan import L2
from hogwild.bench.rounds import together
from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning
from hogwild.hosts.job import Task, WorkerState
from hogwild.problems.linear import kernel as linear
from hogwild.problems.linear.layout import job_of
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.run import Run
from hogwild.training.train import train

ENDLESS = 10**6  # epochs


class Running:
    """A side that continues a run to its next row; returns the seconds of an epoch by the run's own clock.

    Attributes
    ----------
    last : dict
        The latest row.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.last = run, next(run)

    def __call__(self) -> float:
        before, self.last = self.last, next(self.run)
        seconds: float = self.last["train_seconds"] - before["train_seconds"]
        return seconds / (self.last["epoch"] - before["epoch"])

    @property
    def objective(self) -> float:
        """The objective after the epochs so far."""
        found: float = self.last["objective"]
        return found

    def close(self) -> None:
        self.run.close()


class Training(Running):
    """A side for a run of :func:`hogwild.train`, which it starts."""

    def __init__(self, rows: Any, step: float, **options: Any) -> None:
        given: dict[str, Any] = {"l2": L2, "schedule": "constant", "epochs": ENDLESS, "step": step} | options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HogwildWarning)  # more workers than cores: the caller warns once
            run = train(rows, **given)
        super().__init__(run)

    @property
    def epochs(self) -> int:
        return round(self.last["epoch"])

    def __enter__(self) -> Training:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class Together:
    """A side of several runs at the same time; its seconds are those of the slowest one."""

    def __init__(self, runs: Sequence[Running]) -> None:
        self._runs = runs

    def __call__(self) -> float:
        found: list[float] = []
        together([lambda run=run: found.append(run()) for run in self._runs])  # type: ignore[misc]
        return max(found)

    @property
    def objective(self) -> float:
        return self._runs[0].objective


class Loop:
    """A side that runs the one-worker kernel over an epoch, with options that ``train`` chooses by itself.

    ``far`` says whether the kernel prefetches weights. There is no evaluation and no pool, only the loop.
    """

    def __init__(self, rows: Rows, step: float, order: str = "shuffled", far: bool | None = None, l2: float = L2):
        config = TrainConfig(l2=l2, discipline="serial", workers=1, order=order)
        problem = LinearProblem.of(config, rows, "serial")
        if far is not None:
            problem = dataclasses.replace(problem, far=far)
        problem.compile()
        cut = Order.of(len(rows), order == "shuffled", 8 * rows.nnz / max(len(rows), 1))
        self._job = job_of(problem, cut, 0, 1, rows, problem.row_arrays(rows, None), shared=False)
        self._desk = WorkerState(0)
        self._desk.take(self._job)
        self._step, self._epoch = step, 0

    def __call__(self) -> float:
        task = Task(self._epoch, 0, (self._step, 1.0, 0.0))
        self._epoch += 1
        start = time.perf_counter()
        self._job.begin_epoch(task.epoch, 0)
        began = time.perf_counter() - start
        return began + together([lambda: self._desk.take(task)])

    @property
    def coef(self) -> np.ndarray:
        """The current weights, (width,) float32."""
        return self._job.problem.parameters(self._job.flat).coef


class NaiveLoop:
    """A side that runs an epoch in file order by ``steps_kernel.naive_epoch``: same arrays, penalty and intercept."""

    def __init__(self, rows: Rows, step: float) -> None:
        problem = LinearProblem.of(TrainConfig(l2=L2, discipline="serial", workers=1), rows, "serial")
        arrays = problem.row_arrays(rows, None)
        self._step, self._part = np.float32(step), np.float32(problem.intercept)
        self._rates, self._shrink = arrays["rates"], np.empty(rows.width, np.float32)
        self.coef, self._intercept = np.zeros(rows.width, np.float32), np.zeros(1, np.float32)
        self._data = rows.begin, rows.end, rows.indices, rows.values, arrays["targets"]

    def __call__(self) -> float:
        return together([self._epoch])

    def _epoch(self) -> None:
        linear.shrink_table(self._shrink, self._rates, self._step, np.float32(L2))  # once an epoch, as in training
        bench.naive_epoch(self.coef, self._intercept, *self._data, self._shrink, self._step, self._part)


class Streaming:
    """A side in which ``workers`` threads read shares of the entries of ``rows``, and do nothing with them."""

    def __init__(self, rows: Rows, workers: int) -> None:
        bits = rows.values.view(np.int32)
        cuts = [len(bits) * k // workers for k in range(workers + 1)]
        self._shares = [(rows.indices[a:b], bits[a:b]) for a, b in itertools.pairwise(cuts)]
        bench.stream(rows.indices[:0], bits[:0])  # compiled before any clock runs

    def __call__(self) -> float:
        return together([lambda share=share: bench.stream(*share) for share in self._shares])  # type: ignore[misc]
