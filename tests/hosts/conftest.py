"""A small job for pools of workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.problems.linear.problem import LinearProblem
from hogwild.training.workers import job_of
from tests.runs import toy

STEP = (0.1, 1.0, 0.0)


@pytest.fixture
def make_job() -> Callable[..., Job]:
    def make(pool: Pool, discipline: str = "atomic", n: int = 500) -> Job:
        rows = toy(n)
        problem = LinearProblem.of(TrainConfig(workers=pool.workers, discipline=discipline), rows, discipline)
        arrays = problem.row_arrays(rows, None)
        return job_of(problem, Order.of(n), 0, pool.workers, rows, arrays, pool.shared)

    return make


@pytest.fixture
def run_epoch() -> Callable[[Pool, Job], np.ndarray]:
    """One epoch from zero; the parameters after it."""

    def run(pool: Pool, job: Job) -> np.ndarray:
        job.flat[:] = 0
        job.begin_epoch(0, 0)
        pool.begin(Task(0, 0, STEP))
        while not pool.wait(0.1):
            pass
        assert job.done()[0] == job.order.n_rows
        return job.flat.copy()

    return run
