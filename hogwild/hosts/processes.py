"""Workers as processes that share one parameter array through ``torch.multiprocessing``.

They come from a fork server that has torch and the kernels imported already, are started once and serve any number of
runs. A worker that dies is noticed at once: disciplines without locks go on, a replacement is started and what it had
claimed, at most a chunk, is lost; where it may have held a lock or a turn the run ends.

The one decision: a worker's death is read from a ``pidfd``, not from the fork server, which dies with its process group
when somebody sends that a SIGTERM (``timeout``, a batch system); workers and parent then still end in good order.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import util
from multiprocessing.connection import Connection, wait
from typing import Any

from hogwild.errors import TrainingError, UsageError
from hogwild.hosts.job import IN_USE, Job, Task
from hogwild.kernels.control import ABORT, LINE, ROWS, STOP, WORKERS
from hogwild.machine import one_cpu_a_core
from hogwild.problems.work import HOLDS

DEATHS_IN_A_ROW = 3  # deaths of one worker with nothing done in between: then it is no accident
GRACE = 1.0  # seconds in which workers that are told to end may do so
EXIT_PRIORITY = 10  # at exit, before multiprocessing sends SIGTERM, which workers ignore, and waits for ever

_starting = threading.Lock()


class _Worker:
    """A process and this side of its pipe."""

    def __init__(self, number: int, cpu: int | None) -> None:
        import torch.multiprocessing as multiprocessing

        context = multiprocessing.get_context("forkserver")
        from hogwild.hosts import worker

        self.number, self.cpu = number, cpu
        self.ready = self.busy = False
        self.connection: Connection
        ends: list[Connection] = []
        try:
            ends += context.Pipe()
            self.connection, theirs = ends
            self.process = context.Process(target=worker.main, args=(theirs, number, cpu), daemon=True)
            with _starting, _no_main_module():
                context.set_forkserver_preload(["hogwild.hosts.worker"])
                self.process.start()
            theirs.close()
        except BaseException as error:
            for end in ends:
                end.close()
            if isinstance(error, (OSError, EOFError, AssertionError)):  # nothing left to take, or a daemonic parent
                what = f"cannot start a worker process ({error}): try host='threads' (--host threads)"
                raise TrainingError(what) from error
            raise
        self.pid = int(self.process.pid or 0)
        self._pidfd = _open_pidfd(self.pid)

    @property
    def sentinel(self) -> int:
        """Readable once the process is gone."""
        return self.process.sentinel if self._pidfd is None else self._pidfd

    def cause(self) -> str:
        """Of its death."""
        self.process.join(GRACE)
        code = self.process.exitcode
        if code is None or code == 255:  # the fork server, which knows, is gone too
            return "cause unknown"
        return f"killed by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit status {code}"

    def send(self, message: Any) -> bool:
        """Whether it could still be reached."""
        try:
            self.connection.send(message)
        except OSError:  # it is dead: its sentinel says so in a moment
            return False
        return True

    def end(self, grace: float) -> None:
        """Wait ``grace`` seconds for it to end, then kill it."""
        self.connection.close()
        if not wait([self.sentinel], grace):
            with contextlib.suppress(ProcessLookupError):
                if self._pidfd is None:
                    os.kill(self.pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            wait([self.sentinel], GRACE)
        self.process.join(GRACE)  # the fork server has reaped it: no zombie is left
        with contextlib.suppress(ValueError):
            self.process.close()
        if self._pidfd is not None:
            os.close(self._pidfd)


class Processes:
    """A pool of worker processes (see :class:`hogwild.hosts.job.Pool`)."""

    host, shared = "processes", True

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lost = 0
        self._numbers = itertools.count()  # of messages: an answer to an earlier one is of a run that was given up
        self._job_number = self._task_number = -1
        self._task: Task | None = None
        self._deaths = [0] * workers
        self._done = [0] * workers  # rows of the epoch each had done at its last death
        self._held: list[Job] = []  # at most one; like the crew apart from self, for the finalizer
        self._crew: list[_Worker] = []
        self._end = util.Finalize(self, _end, (self._crew, self._held), exitpriority=EXIT_PRIORITY)
        try:
            for number, cpu in enumerate(_cpus(workers)):
                self._crew.append(_Worker(number, cpu))
        except BaseException:
            self.close()
            raise

    @property
    def job(self) -> Job | None:
        return self._held[0] if self._held else None

    @property
    def closed(self) -> bool:
        return not self._end.still_active()

    def open(self, job: Job) -> None:
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if self._task is not None:
            raise UsageError(IN_USE)
        job.problem.compile()  # once, here: workers find the machine code in the disk cache
        self._held.clear()
        self._listen(0.0)  # what is sent to a dead worker, descriptors of shared memory, would never be fetched
        self._held.append(job)
        self._job_number, self._task_number = next(self._numbers), -1
        self._deaths = [0] * self.workers
        try:
            for worker in self._crew:
                worker.ready = worker.busy = False
                worker.send((self._job_number, job))
            while not all(worker.ready for worker in self._crew):
                self._listen(None)
        except KeyboardInterrupt:  # maybe in the middle of a message
            self.close()
            raise

    def begin(self, task: Task) -> None:
        self._listen(0.0)  # who died while there was nothing to do held nothing
        self._task, self._task_number = task, next(self._numbers)
        self._done = [0] * self.workers
        for worker in self._crew:
            self._start(worker)

    def wait(self, timeout: float) -> bool:
        try:
            if not self._finished():
                self._listen(timeout)
        except (OSError, ValueError):  # closed by another thread
            if not self.closed:
                raise
            return True
        if self._finished():
            self._task, self._deaths = None, [0] * self.workers
            return True
        return False

    def release(self, job: Job) -> None:
        if self.job is job:
            job.control[STOP] = job.control[ABORT] = 1
            self._held.clear()
            self._task, self._task_number, self._job_number = None, -1, next(self._numbers)
            for worker in self._crew:
                worker.send((self._job_number, None))

    def close(self) -> None:
        self._end()

    def _finished(self) -> bool:
        job = self.job
        if job is None or any(worker.busy for worker in self._crew):
            return job is None
        return job.finished()  # else all workers died, and replacements are on their way

    def _start(self, worker: _Worker) -> None:
        if self._task is not None and worker.ready:
            worker.busy = worker.send((self._task_number, self._task))

    def _listen(self, timeout: float | None) -> None:
        """Wait for something to happen to some worker and act on it."""
        sources: dict[Any, _Worker] = {}
        for worker in self._crew:
            sources[worker.connection] = sources[worker.sentinel] = worker
        happened = wait(list(sources), timeout)
        for source in sorted(happened, key=lambda source: isinstance(source, int)):  # words before deaths
            worker = sources[source]
            if isinstance(source, Connection):
                with contextlib.suppress(EOFError, OSError):
                    self._hear(worker, *worker.connection.recv())
            elif worker in self._crew and not self.closed:  # else another thread closes the pool
                self._replace(worker)

    def _hear(self, worker: _Worker, number: int, problem: str | None) -> None:
        """Act on the answer to message ``number``."""
        if number not in (self._job_number, self._task_number):
            return
        if problem is not None:
            raise TrainingError(f"worker process {worker.number} failed: {problem}")
        if number == self._task_number:
            worker.busy = False
        else:
            worker.ready = True
            self._start(worker)  # a replacement joins an epoch that is under way

    def _replace(self, dead: _Worker) -> None:
        """Deal with a worker that died."""
        job, number = self.job, dead.number
        cause = dead.cause()
        self.lost += 1
        if job is not None:
            done = int(job.control[WORKERS + LINE * number + ROWS])
            self._deaths[number] = 1 if done > self._done[number] else self._deaths[number] + 1
            self._done[number] = done
            if dead.busy and job.problem.holds:
                job.control[ABORT] = 1
                locking = job.problem.discipline in HOLDS
                what = f"discipline {job.problem.discipline}" if locking else "order blocks"
                raise TrainingError(
                    f"worker {number} died ({cause}) and may have held a lock or the turn: {what} cannot go on; resume "
                    f"from the last checkpoint, or choose {'a lock-free one' if locking else 'order shuffled'}"
                )
        if self._deaths[number] >= DEATHS_IN_A_ROW:
            raise TrainingError(f"worker {number} died {DEATHS_IN_A_ROW} times in a row ({cause}): out of memory?")
        fresh = _Worker(number, dead.cpu)
        if dead not in self._crew:  # the pool was closed meanwhile
            fresh.end(0.0)
            return
        self._crew[self._crew.index(dead)] = fresh
        dead.end(0.0)
        if job is not None:
            fresh.send((self._job_number, job))


def _end(crew: list[_Worker], held: list[Job]) -> None:
    """Also called when the pool is garbage, and at the interpreter's exit."""
    for job in held:
        job.control[STOP] = job.control[ABORT] = 1
    for worker in crew:
        worker.send(None)
    while crew:
        crew.pop().end(GRACE)
    held.clear()


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # not allowed in this container: rely on the fork server


def _cpus(workers: int) -> list[int | None]:
    """One CPU of each physical core for each worker; no pinning where there are not enough cores, or for one worker."""
    cpus = one_cpu_a_core()
    # One worker alone has nobody to be kept apart from, and two such runs would share the first core.
    return [*cpus[:workers]] if 1 < workers <= len(cpus) else [None] * workers


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep multiprocessing from importing the user's main script in the worker.

    A worker needs nothing of it, and a script without ``if __name__ == "__main__"`` would start itself again.
    """
    main: dict[str, Any] = sys.modules["__main__"].__dict__
    kept: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    try:
        main["__spec__"] = None
        main.pop("__file__", None)
        yield
    finally:
        main.update(kept)
