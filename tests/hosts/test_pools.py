"""What every host must do: serve one job after another, refuse two at a time, drop a job at once, and end."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hogwild.errors import UsageError
from hogwild.hosts.job import Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import STOP
from hogwild.training.engine import start_pool
from tests.runs import until

TASK = Task(0, 0, (0.1, 1.0, 0.0))


@pytest.fixture(params=["threads", "processes", "simulator"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with contextlib.closing(start_pool(request.param, 2)) as pool:
        assert (pool.host, pool.workers, pool.lost, pool.job) == (request.param, 2, 0, None)
        yield pool


def test_one_job_after_another(pool: Pool, make_job: Callable, run_epoch: Callable) -> None:
    for discipline in ("round-robin", "locked", "round-robin"):
        job = make_job(pool, discipline)
        pool.open(job)
        assert pool.job is job
        first = run_epoch(pool, job)
        assert first.any()
        if discipline == "round-robin":
            np.testing.assert_array_equal(run_epoch(pool, job), first)
    pool.close()
    pool.close()
    assert pool.closed
    with pytest.raises(UsageError, match="closed"):
        pool.open(job)


def test_two_runs_at_the_same_time_are_refused(pool: Pool, make_job: Callable, run_epoch: Callable) -> None:
    job, other = make_job(pool), make_job(pool)
    pool.open(job)
    job.begin_epoch(0, 0)
    pool.begin(TASK)
    with pytest.raises(UsageError, match="a pool each"):
        pool.open(other)
    assert until(lambda: pool.wait(0.1))
    pool.open(other)
    assert run_epoch(pool, other).any()


def test_release_stops_the_workers_and_frees_the_job(pool: Pool, make_job: Callable) -> None:
    job = make_job(pool)
    pool.open(job)
    control, reference = job.control, weakref.ref(job)
    pool.release(make_job(pool))  # another's: nothing happens
    assert pool.job is job
    pool.release(job)
    assert control[STOP] == 1
    assert pool.job is None
    del job
    assert until(lambda: gc.collect() is not None and reference() is None)
