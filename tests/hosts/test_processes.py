"""Pools of processes: starting from any kind of script, ending in every way, workers that die or fail."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hogwild.hosts.processes as module
from hogwild import machine
from hogwild.errors import TrainingError
from hogwild.hosts import fork_server
from hogwild.hosts.job import Task
from hogwild.hosts.processes import Processes
from hogwild.kernels.control import ABORT, STOP
from tests.runs import limited, until

TASK = Task(0, 0, (0.1, 1.0, 0.0))


def gone(pids: list[int]) -> bool:
    """Whether they have ended; an orphan of a killed fork server may wait to be reaped by whoever adopts it."""
    return not any(state(pid) not in ("", "Z") for pid in pids)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def pids(pool: Processes) -> list[int]:
    return [*pool.pids]


@pytest.fixture
def pool() -> Iterator[Processes]:
    with contextlib.closing(Processes(2)) as pool:
        yield pool


def test_a_failing_worker_is_one_line(pool: Processes, make_job: Callable, run_epoch: Callable) -> None:
    job = make_job(pool)
    pool.open(job)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, "not a step"))  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"worker \d failed: \w+Error: .* \(\w+\.py, line \d+\)") as caught:
        until(lambda: pool.wait(0.1))
    assert "\n" not in str(caught.value)
    pool.release(job)
    fresh = make_job(pool)  # the same workers serve the next run
    pool.open(fresh)
    assert run_epoch(pool, fresh).any()
    assert pool.lost == 0


def test_release_stops_the_workers_and_frees_the_memory(pool: Processes, make_job: Callable) -> None:
    job = make_job(pool)
    pool.open(job)
    control = job.control

    def mapped() -> bool:
        return any("memfd:hogwild-arrays" in Path(f"/proc/{pid}/maps").read_text() for pid in pids(pool))

    assert mapped()
    pool.release(job)
    assert control[STOP] == control[ABORT] == 1
    assert until(lambda: not mapped())


def test_workers_leave_signals_to_the_parent(pool: Processes, make_job: Callable, run_epoch: Callable) -> None:
    job = make_job(pool)
    pool.open(job)
    for pid in pids(pool):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert run_epoch(pool, job).any()
    assert pool.lost == 0


def test_the_fork_server_may_die(pool: Processes, make_job: Callable, run_epoch: Callable) -> None:
    """As it does when its process group is sent a SIGTERM: the workers are not taken for dead, and still end."""
    job, started = make_job(pool, "locked"), pids(pool)
    pool.open(job)
    os.kill(fork_server.pid(), signal.SIGKILL)  # type: ignore[arg-type]
    assert run_epoch(pool, job).any()
    assert pool.lost == 0
    os.kill(started[0], signal.SIGKILL)  # replaced, from a new fork server
    assert multiprocessing.connection.wait([pool._crew[0].channel.fileno()], 30)
    assert run_epoch(pool, job).any()
    assert until(lambda: pool.wait(0.1) and pool.lost == 1)
    started = pids(pool)
    pool.close()
    assert until(lambda: gone(started))


def test_workers_of_a_closed_pool_end_by_themselves(
    pool: Processes, make_job: Callable, run_epoch: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits until they are killed."""
    job = make_job(pool)
    pool.open(job)
    run_epoch(pool, job)
    workers = [*pool._crew]
    monkeypatch.setattr(module, "GRACE", 60.0)  # of a busy machine
    pool.close()
    assert [worker.ended.status for worker in workers] == [0, 0]


def test_a_worker_that_does_not_answer_is_killed(make_job: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.2)
    with contextlib.closing(Processes(2)) as pool:
        pool.open(make_job(pool))
        started = pids(pool)
        os.kill(started[1], signal.SIGSTOP)
    assert until(lambda: gone(started))


def test_no_descriptors_left() -> None:
    Processes(1).close()  # the fork server is there
    gc.collect()  # what other tests left open is not closed meanwhile
    few = len(os.listdir("/proc/self/fd")) + 8
    with (
        limited(resource.RLIMIT_NOFILE, few),
        pytest.raises(TrainingError, match=r"^cannot start a worker process \(.*Too many open files.*\): try .*$"),
    ):
        Processes(9)


def test_a_job_that_cannot_be_sent_ends_the_run(pool: Processes, make_job: Callable) -> None:
    """Else the workers, which live, would be waited for without end."""

    def refuse(message: object) -> None:
        raise OSError(24, "Too many open files")

    pool._crew[1].channel.send = refuse  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match=r"cannot send worker process 1 its work \(.*Too many open files\): try"):
        pool.open(make_job(pool))


def test_errors_of_starting_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    fork_server.stop()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(TrainingError, match=r"cannot start a worker process \(.*unavailable\): try .*--host threads"):
        Processes(1)


def test_a_worker_computes_on_one_thread(pool: Processes, make_job: Callable, run_epoch: Callable) -> None:
    """No pool of BLAS or OpenMP threads beside it: its own thread, and the one that waits for the parent's death."""
    job = make_job(pool)
    pool.open(job)
    run_epoch(pool, job)
    for pid in pids(pool):
        assert len(os.listdir(f"/proc/{pid}/task")) == 2
        affinity = os.sched_getaffinity(pid)
        assert len(affinity) == 1 if machine.physical_cores() > 1 else affinity == os.sched_getaffinity(0)


def test_a_pool_that_another_thread_closes_ends_the_task(pool: Processes, make_job: Callable) -> None:
    pool.open(make_job(pool))
    pool.close()
    pool.begin(Task(0, 0, (0.1, 1.0, 0.0)))
    assert pool.wait(0.0)


SCRIPT = """
import sys, threading, time
import numpy as np
import hogwild
print("started")
X = np.random.default_rng(0).standard_normal((400, 5))
run = hogwild.train((X, np.sign(X[:, 0])), host="HOST", workers=2, step=0.1, epochs=10**6, patience=0)
print(next(run)["epoch"], next(run)["epoch"], run.model.width)
run.itself = run
"""
ENDINGS = {
    "in an error": "raise ValueError('mine')",
    "while workers work": "threading.Thread(target=run.finish, daemon=True).start()\ntime.sleep(0.1)",
}


@pytest.mark.parametrize(
    ("how", "host"),
    [("in an error", "processes"), ("while workers work", "processes"), ("while workers work", "threads")],
)
def test_any_script_will_do_and_ends_though_it_leaves_its_run_open(how: str, host: str, tmp_path: Path) -> None:
    """No `if __name__ == "__main__"`, for lack of which multiprocessing would start it again."""
    script = tmp_path / "plain_script.py"
    script.write_text(f"{SCRIPT.replace('HOST', host)}{ENDINGS[how]}\n")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert result.stdout == "started\n0 1 5\n", result.stderr
    assert result.returncode == (1 if how == "in an error" else 0), result.stderr
    assert result.stderr.count("Traceback") == (how == "in an error"), result.stderr
