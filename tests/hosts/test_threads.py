"""Pools of threads: they serve, fail in one sentence, never hang, and go when nobody holds them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hogwild.errors import TrainingError
from hogwild.hosts import threads
from hogwild.hosts.job import Job, Task
from hogwild.hosts.threads import Threads
from hogwild.problems.protocol import Shared
from tests.runs import living, until


@pytest.fixture
def alive() -> Callable[[], set[threading.Thread]]:
    """The threads that there are since the test began."""
    before = living()
    return lambda: living() - before


def test_workers_have_a_core_each_and_the_caller_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[tuple[str, set[int]]] = []
    monkeypatch.setattr(threads, "cpus_of", lambda workers: [*range(5, 5 + workers)])
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, cpus: pinned.append((threading.current_thread().name, cpus))
    )
    pool = Threads(2)
    until(lambda: len(pinned) == 2)
    pool.close()
    assert sorted(pinned) == [("hogwild-0", {5}), ("hogwild-1", {6})]


def test_a_failing_worker_is_one_sentence(
    make_job: Callable, run_epoch: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Job, *_: object) -> None:
        raise MemoryError("no more")

    pool = Threads(2)
    job = make_job(pool)
    pool.open(job)
    job.begin_epoch(0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Job, "work", fail)
        pool.begin(Task(0, 0, (0.1, 1.0, 0.0)))
        with pytest.raises(TrainingError, match=r"worker \d failed: MemoryError: no more"):
            until(lambda: pool.wait(0.1))
    pool.release(job)  # what a run does that ends; the pool serves the next one
    fresh = make_job(pool)
    pool.open(fresh)
    assert run_epoch(pool, fresh).any()
    pool.close()


@pytest.mark.parametrize("discipline", ["locked", "round-robin"])
def test_a_worker_that_fails_does_not_keep_the_others_waiting(
    make_job: Callable, monkeypatch: pytest.MonkeyPatch, discipline: str, alive: Callable
) -> None:
    work = Job.work

    def fail(self: Job, shared: Shared, *rest: Any) -> None:
        if rest[-1] == 1:
            shared.locks[:] = 1  # as if it had gone with all locks in its hands
            raise MemoryError("no more")
        work(self, shared, *rest)

    pool = Threads(2)
    job = make_job(pool, discipline)
    pool.open(job)
    job.begin_epoch(0, 0)
    monkeypatch.setattr(Job, "work", fail)
    pool.begin(Task(0, 0, (0.1, 1.0, 0.0)))
    with pytest.raises(TrainingError, match="MemoryError: no more"):
        until(lambda: pool.wait(0.1))
    before = time.monotonic()
    pool.close()
    assert time.monotonic() - before < 10
    assert not alive()


def test_too_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(TrainingError, match=r"cannot start 5 worker threads: can't start new thread"):
        Threads(5)
    assert not any(thread.is_alive() for thread in started)
