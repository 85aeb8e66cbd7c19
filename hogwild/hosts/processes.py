"""Workers as processes that share one parameter array through ``torch.multiprocessing``.

They come from a fork server that has torch and the kernels imported already, are started once and serve any number of
runs. A worker that dies is noticed at once through its sentinel: disciplines without locks go on, a replacement is
started and what it had claimed, at most a chunk, is lost; where it may have held a lock or a turn the run ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from hogwild.errors import TrainingError
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import ABORT, NEXT, STOP

HOLDS = ("aig", "locked", "round-robin")  # disciplines in which a dead worker may hold what others wait for
DEATHS_IN_A_ROW = 3  # deaths of one worker with nothing done in between: then it is no accident


class _Worker:
    """A process and this side of its pipe."""

    def __init__(self, number: int, cpu: int | None) -> None:
        import torch.multiprocessing as multiprocessing

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["hogwild.hosts.worker"])
        from hogwild.hosts import worker

        self.number, self.cpu = number, cpu
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker.main, args=(theirs, number, cpu), daemon=True)
        with _no_main_module():
            self.process.start()
        theirs.close()
        self.ready = self.busy = False


class Processes:
    """A pool of worker processes (see :class:`hogwild.hosts.job.Pool`)."""

    shared = True

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lost = 0
        self._job: Job | None = None
        self._task: Task | None = None
        self._deaths = [0] * workers
        self._pool = [_Worker(number, cpu) for number, cpu in enumerate(_cpus(workers))]

    def open(self, job: Job) -> None:
        job.problem.compile()  # once, here: workers find the machine code in the disk cache
        self._job, self._task, self.lost = job, None, 0
        for worker in self._pool:
            self._send(worker, job)
        while not all(worker.ready for worker in self._pool):
            self._listen(None)

    def begin(self, task: Task) -> None:
        self._task = task
        for worker in self._pool:
            self._start(worker)

    def wait(self, timeout: float) -> bool:
        assert self._job is not None
        if not self._finished():
            self._listen(timeout)
        if self._finished():
            self._task = None
            return True
        return False

    def close(self) -> None:
        if self._job is not None:
            self._job.control[STOP] = self._job.control[ABORT] = 1
        for worker in self._pool:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
            worker.connection.close()
        for worker in self._pool:
            worker.process.join(timeout=1.0)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        self._pool = []

    def _finished(self) -> bool:
        assert self._job is not None
        if any(worker.busy for worker in self._pool):
            return False
        control = self._job.control
        everything = self._job.problem.discipline in HOLDS or control[NEXT] >= self._job.order.n_chunks
        return bool(everything or control[STOP])  # else all workers died, and replacements are on their way

    def _start(self, worker: _Worker) -> None:
        if self._task is not None and worker.ready:
            worker.busy = self._send(worker, self._task)

    def _send(self, worker: _Worker, message: Any) -> bool:
        try:
            worker.connection.send(message)
        except OSError:  # it is dead: its sentinel says so in a moment
            return False
        return True

    def _listen(self, timeout: float | None) -> None:
        """Wait for something to happen to some worker and act on it."""
        sources: dict[Any, _Worker] = {}
        for worker in self._pool:
            sources[worker.connection] = sources[worker.process.sentinel] = worker
        happened = wait(list(sources), timeout)
        for source in sorted(happened, key=lambda source: isinstance(source, int)):  # words before deaths
            worker = sources[source]
            if isinstance(source, Connection):
                with contextlib.suppress(EOFError, OSError):
                    self._hear(worker, worker.connection.recv())
            elif worker in self._pool:
                self._replace(worker)

    def _hear(self, worker: _Worker, message: str) -> None:
        if message == "ready":
            worker.ready = True
            self._start(worker)  # a replacement joins an epoch that is under way
        elif message == "done":
            worker.busy = False
            self._deaths[worker.number] = 0
        else:
            raise TrainingError("a worker process failed: " + " ".join(message.split())[-400:])

    def _replace(self, dead: _Worker) -> None:
        """Deal with a worker that died."""
        assert self._job is not None
        dead.process.join()
        code = dead.process.exitcode
        cause = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        discipline = self._job.problem.discipline
        self.lost += 1
        self._deaths[dead.number] += 1
        if dead.busy and discipline in HOLDS:
            self._job.control[ABORT] = 1
            raise TrainingError(
                f"worker {dead.number} died ({cause}) and may have held a lock: discipline {discipline} cannot go on; "
                "resume from the last checkpoint, or choose a lock-free discipline"
            )
        if self._deaths[dead.number] >= DEATHS_IN_A_ROW:
            raise TrainingError(f"worker {dead.number} died {DEATHS_IN_A_ROW} times in a row ({cause}): out of memory?")
        dead.connection.close()
        dead.process.close()
        fresh = _Worker(dead.number, dead.cpu)
        self._pool[self._pool.index(dead)] = fresh
        self._send(fresh, self._job)


def _cpus(workers: int) -> list[int | None]:
    """One CPU of each physical core for each worker, or no pinning where there are not enough cores."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.setdefault(siblings.read_text(), cpu)
        except OSError:
            cores[str(cpu)] = cpu
    return list(cores.values())[:workers] if workers <= len(cores) else [None] * workers  # type: ignore[return-value]


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep multiprocessing from importing the user's main script in the worker.

    A worker needs nothing of it, and a script without ``if __name__ == "__main__"`` would start itself again.
    """
    main = sys.modules["__main__"]
    kept = {name: main.__dict__[name] for name in ("__spec__", "__file__") if name in main.__dict__}
    try:
        main.__dict__.update(dict.fromkeys(kept))
        main.__dict__.pop("__file__", None)
        yield
    finally:
        main.__dict__.update(kept)
