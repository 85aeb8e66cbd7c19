"""What goes wrong around a run: killed workers, killed parents, signals."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild import machine
from hogwild.data.rows.container import Rows
from hogwild.errors import TrainingError
from hogwild.hosts.job import Job
from hogwild.kernels.control import ROWS, WORKERS
from hogwild.model_file import load_checkpoint
from hogwild.training.engine import start_pool
from scripts.campaigns import common
from tests.conftest import ROOT, descendants
from tests.runs import QUIET, long_epochs, start, toy, until, when


def kill(*pids: int, wait: bool = False) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not wait or until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))  # reaped


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """An epoch of them lasts some tenths of a second."""
    return long_epochs(tmp_path_factory.mktemp("long"), 300)


# ---- killed workers


@pytest.mark.parametrize(("discipline", "count"), [("hogwild", 2), ("tiered", 1)])
def test_lock_free_disciplines_survive_killed_workers(rows: Rows, discipline: str, count: int) -> None:
    run = start(rows, discipline=discipline, workers=2, host="processes", epochs=2)
    next(run)
    when(lambda: run.progress().rows_done > 10_000, lambda: kill(*run.engine.pool.pids[:count]))
    row = next(run)
    assert (row["status"], row["epoch"], row["workers_lost"]) == ("ok", 1, count)
    assert len(rows) - count * run.engine.job.order.chunk <= row["updates"] <= len(rows)
    assert row["objective"] < run.history[0]["objective"]
    row = next(run)
    assert (row["status"], row["workers_lost"], row["updates"]) == ("ok", count, len(rows))


def test_workers_killed_again_and_again(rows: Rows) -> None:
    """Each death after some work done: no accident too many ends the run."""

    def deaths(long: Rows) -> int:
        run = start(long, discipline="hogwild", workers=2, host="processes", epochs=1)
        next(run)
        pool, chunk, over = run.engine.pool, run.engine.job.order.chunk, threading.Event()

        def done() -> int:
            return int(run.engine.job.control[WORKERS + ROWS])

        def work() -> None:
            for lost in range(1, 5):
                before = done()
                until(lambda: over.is_set() or (0 in pool._awaited and done() > before + 2 * chunk))  # noqa: B023
                if over.is_set():
                    return
                kill(pool.pids[0])
                until(lambda: over.is_set() or pool.lost == lost)  # noqa: B023

        thread = threading.Thread(target=work)
        thread.start()
        row = next(run)
        over.set()
        thread.join()
        assert row["status"] == "ok"
        assert len(long) - 4 * chunk <= row["updates"] <= len(long)
        return int(row["workers_lost"])

    longer = (rows.select(np.tile(np.arange(len(rows)), times)) for times in (4, 16, 64))
    assert any(deaths(long) > 2 for long in longer), "no epoch was long enough for three"


def test_disciplines_that_hold_something_stop(rows: Rows, tmp_path: Path) -> None:
    """In one line that says who died, of what and what to do; with the model and the checkpoint of the epoch before."""
    rows = rows.block(0, 60_000)
    run = start(rows, discipline="locked", workers=2, host="processes", epochs=99, checkpoint=tmp_path)
    next(run), next(run)
    workers = set(run.engine.pool.pids)

    def work() -> None:
        while not run.engine.ended:  # who was killed between two epochs held nothing, and is replaced
            if run.progress().epoch and 3000 < run.progress().rows_done < len(rows) - 3000:
                crew = run.engine.pool.pids
                workers.update(crew)
                kill(*crew[1:])
            time.sleep(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    coefs = {1: run.model.coef_}
    with pytest.raises(TrainingError) as caught:
        coefs.update((row["epoch"], run.model.coef_) for row in run)
    thread.join()
    epoch, coef = max(coefs.items())
    assert re.fullmatch(
        r"worker 1 died \(killed by signal 9, Killed\), perhaps holding a lock that discipline locked waits for: "
        "resume from the last checkpoint, or choose a lock-free one",
        str(caught.value),
    )
    assert until(lambda: not common.living(workers))
    assert np.array_equal(run.model.coef_, coef)
    assert load_checkpoint(tmp_path)[1]["epoch"] == epoch
    assert list(run) == []
    options: dict[str, Any] = {"discipline": "locked", "workers": 2, "host": "processes", "epochs": epoch + 1}
    assert [row["epoch"] for row in start(rows, checkpoint=tmp_path, resume=True, **options)] == [epoch + 1]


@pytest.mark.parametrize("discipline", ["tiered", "locked"])
def test_workers_killed_between_epochs(discipline: str) -> None:
    """They held nothing: replaced, and no row is lost. Also where all are gone and nobody is left to notice."""
    rows = toy(4000)
    pool = start_pool("processes", 2)
    kill(*pool.pids, wait=True)
    run = hogwild.train(rows, discipline=discipline, pool=pool, step=0.5, epochs=4)
    assert next(run)["workers_lost"] == 2
    kill(*run.engine.pool.pids, wait=True)
    found = [next(run)]
    kill(run.engine.pool.pids[0], wait=True)
    found.append(next(run))
    kill(run.engine.pool.pids[1], wait=True)
    found += list(run)
    assert [row["updates"] for row in found] == [len(rows)] * 4
    assert [row["status"] for row in found] == ["ok"] * 4
    assert found[-1]["workers_lost"] == 6
    assert found[-1]["objective"] < 0.5
    pool.close()


class Deadly:
    """Kills the process that receives it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("(os := __import__('os')).kill(os.getpid(), 9)",)


def test_workers_that_die_before_they_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "__getstate__", lambda job: {"deadly": Deadly()})
    with (
        contextlib.closing(start_pool("processes", 2)) as pool,
        pytest.raises(TrainingError, match=r"worker \d died 3 times in a row \(killed by signal 9, .*memory\?"),
    ):
        hogwild.train(toy(), pool=pool, step=0.5)


# ---- killed parents

PARENT = """
import os, sys
from pathlib import Path
from tests.runs import long_epochs, start
run = start(long_epochs(Path(sys.argv[1]), 300), discipline="hogwild", host="processes", workers=2, epochs=100)
next(run)
print(*run.engine.pool.pids, flush=True)
run.finish()
"""


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python process; what is left of it at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, **options}
        started.append(subprocess.Popen([sys.executable, *map(str, arguments)], **settings))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_killed_parent_leaves_nothing(spawn: Callable, tmp_path: Path) -> None:
    """What ``no_leaks`` looks for, and sooner."""
    process = spawn("-c", PARENT, tmp_path)
    workers = {int(pid) for pid in process.stdout.readline().split()}
    assert len(workers) == 2
    time.sleep(0.1)  # inside an epoch
    process.kill()
    process.wait()
    assert until(lambda: not common.living(workers))


SAVING = """
import sys
import hogwild
from tests.runs import QUIET, toy
run = hogwild.train(toy(width=80_000), checkpoint=sys.argv[1], resume=True, epochs=10**6, **QUIET)
for row in run:
    print(row["epoch"], flush=True)
"""


def test_killed_while_saving(spawn: Callable, tmp_path: Path) -> None:
    """A run on threads is one process: whenever it is killed, the checkpoint is complete, and nothing else is left."""
    epoch = -1
    for delay in (0.011, 0.023):
        process = spawn("-c", SAVING, tmp_path)
        while int(process.stdout.readline()) < epoch + 5:
            pass
        time.sleep(delay)
        process.kill()
        process.communicate()
        arrays, state = load_checkpoint(tmp_path)
        assert state["epoch"] >= epoch + 4
        assert np.isfinite(arrays["flat"]).all()
        epoch = state["epoch"]
    run = hogwild.train(toy(width=80_000), checkpoint=tmp_path, resume=True, epochs=epoch + 1, **QUIET)
    assert [row["epoch"] for row in run] == [epoch + 1]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]  # the half-written one went, too


def test_a_signal_while_many_workers_start(spawn: Callable) -> None:
    before, workers = descendants(), min(64, 8 * machine.physical_cores())
    options = f"--host processes --workers {workers} --l2 1e-5 --step 0.1 --epochs 1000000 --quiet".split()
    process = spawn("-m", "hogwild", "train", "synthetic:uniform?rows=2000", *options)
    assert until(lambda: len(descendants() - before) > 4 or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    assert until(lambda: descendants() <= before, 20.0)
    assert process.wait() == 128 + signal.SIGTERM
    assert "Traceback" not in process.stderr.read()
