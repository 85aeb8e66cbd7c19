"""The artificial delay of a gradient: as long as asked, where asked, over at once when told to stop, same results."""

from __future__ import annotations

import time

import numba
import numpy as np
import pytest

from hogwild.data.order import Order
from hogwild.errors import UsageError
from hogwild.hosts.job import Task
from hogwild.hosts.threads import Threads
from hogwild.kernels import cycles
from hogwild.kernels.control import STOP, cells
from tests.kernels.harness import CONSTANT, FALLING, bits, job_and_rows, run_epoch

# The delay stands outside what losses, penalties and writes differ in, and each case is a kernel to compile
CASES = [("plain", "serial"), ("plain", "round-robin")]
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="Python is too slow, and has one worker only")


def job_for(kind, discipline, workers=1, delay=0.0, n=200, **more):
    return job_and_rows(kind, discipline, workers, n, gradient_delay=delay, **more)[0]


def seconds_of(job):
    """An epoch of all workers, each a thread that is there already."""
    pool = Threads(job.workers)
    pool.open(job)
    job.begin_epoch(0, 0)
    start = time.perf_counter()
    pool.begin(Task(0, 0, CONSTANT))
    while not pool.wait(1.0):
        pass
    found = time.perf_counter() - start
    pool.close()
    assert job.done()[0] == job.order.n_rows
    return found


# ---- the spin


@pytest.mark.parametrize("seconds", [1e-6, 2e-3])
def test_as_long_as_asked(seconds):
    control, ticks = np.zeros(cells(1), np.int64), cycles.ticks_in(seconds)
    cycles.spin(control, 1)  # compiled
    found = []
    for _ in range(200):  # the shortest is one that no other program interrupted
        start = time.perf_counter()
        cycles.spin(control, ticks)
        found.append(time.perf_counter() - start)
    assert min(found) >= seconds * (1 - 1e-3)
    assert min(found) < 1.5 * seconds + 1e-4


def test_not_once_the_workers_are_to_stop():
    control, ticks = np.zeros(cells(1), np.int64), cycles.ticks_in(10.0)
    cycles.spin(control, 1)  # compiled
    control[STOP] = 1
    start = time.perf_counter()
    cycles.spin(control, ticks)
    assert time.perf_counter() - start < 5


@needs_jit
def test_other_processors(monkeypatch):
    monkeypatch.setattr(cycles.platform, "machine", lambda: "riscv64")
    cycles._ticks_per_second.cache_clear()
    with pytest.raises(UsageError, match="gradient_delay needs .* this is riscv64: use 0"):
        cycles.ticks_in(0.5)


# ---- in the kernels


@np.errstate(over="ignore")
@pytest.mark.parametrize(("kind", "discipline"), CASES)
def test_results_are_the_same(kind, discipline):
    jobs = [job_for(kind, discipline, delay=delay) for delay in (0.0, 2e-6)]
    for job in jobs:
        for epoch in range(2):
            run_epoch(job, epoch, FALLING)
    assert jobs[1].problem.delay > jobs[0].problem.delay == 0
    assert bits(jobs[0]) == bits(jobs[1])


@needs_jit
def test_inside_the_lock():
    """So that several workers under one lock are not faster than one."""
    n, delay = 500, 2e-4
    found = [seconds_of(job_for("multi-class", "locked", 2, delay, n)) for _ in range(3)]
    assert min(found) >= 0.95 * n * delay


@needs_jit
def test_stopped_at_once_and_resumed():
    """A chunk would last ten seconds; told to stop, the worker finishes it in no time, and nothing is lost."""
    n = 3000
    order = Order(n, 16, True)
    whole, job = (job_for("plain", "serial", delay=delay, n=n, order=order) for delay in (0.0, 1e-2))
    run_epoch(whole, 0, FALLING)
    began = []

    def stop_soon():
        time.sleep(0.05)
        began.append(time.perf_counter())
        job.stop()

    assert job.order.chunk == 1024
    start = 0
    while start < job.order.n_chunks:
        run_epoch(job, 0, FALLING, start, meanwhile=stop_soon)
        assert time.perf_counter() - began[-1] < 5
        end = job.problem.position(job.control, job.order)
        assert job.done()[0] == min(end * job.order.chunk, n) - start * job.order.chunk
        start = end
    assert bits(job) == bits(whole)
