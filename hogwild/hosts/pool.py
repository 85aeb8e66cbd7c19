"""The interface of a host: what a run asks of its workers, of whatever kind."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

from hogwild.errors import TrainingError, UsageError
from hogwild.exchanges.trade import Counts
from hogwild.hosts.job import Job, Task


class Pool(Protocol):
    """Started workers that serve one job after another: threads, processes, or streams of a GPU.

    A pool that is dropped, or still open when the interpreter ends, closes itself. Pools inherit from this class for
    its default methods, which are those of a host that measures nothing.
    """

    host: str
    shared: bool  # whether jobs must be in shared memory
    workers: int
    lost: int  # workers that have died
    delay: str = "round-robin"  # delay law of the simulator's workers
    pids: tuple[int, ...] = ()  # of workers that are processes

    @property
    def about(self) -> dict[str, Any]:
        """Return fields that the host adds to the first row of a run."""
        return {}

    @property
    def staleness(self) -> dict[int, int]:
        """Number of updates of the latest task by staleness, if counted."""
        return {}

    def measured(self) -> dict[str, Any]:
        """Return row fields that the host measured in the latest task."""
        return {}

    def counts(self) -> Counts:
        """Counts of what the replicas sent in the latest task."""
        return Counts() if self.job is None else self.job.sent()

    def share(self, task: Task) -> tuple[int, int]:
        """Return which part of the next task's chunks is this machine's, and how many parts there are."""
        return 0, 1

    def elsewhere(self) -> tuple[int, int]:
        """Return rows and nonzeros that other machines have done of the latest task."""
        return 0, 0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint's header has to hold of other machines."""
        return {}

    def restore(self, header: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        return

    @property
    def job(self) -> Job | None:
        """The job that the workers hold."""

    @property
    def closed(self) -> bool:
        """Whether the workers were told to end, possibly by another thread or the interpreter's exit."""

    def check_free(self, working: bool) -> None:
        """Raise UsageError unless the pool can take a job; ``working``: its workers do a task."""
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if working:
            raise UsageError("the pool of workers is at work for another run: runs at the same time need a pool each")

    def open(self, job: Job) -> None:
        """Give the workers a job and wait until they are ready."""

    def begin(self, task: Task) -> None:
        """Start the workers on a task."""

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds; return True when the task is done and all workers stand still."""

    def release(self, job: Job) -> None:
        """Make the workers drop the job at once, if they hold it, and free its memory."""

    def close(self) -> None:
        """End the workers; no process is left."""


class Crew(Pool):
    """Started workers that answer numbered messages: a job, its tasks, and None to drop it."""

    _end: weakref.finalize[Any, Any]  # closes the pool; also called when it is garbage, and at the interpreter's exit

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lost = 0
        self._numbers = itertools.count()
        self._held: list[Job] = []  # at most one; not in self, for the finalizer
        self._task: Task | None = None
        self._first = 0  # number of the job's message: answers to earlier ones are from a run that was abandoned
        self._latest = 0  # and of the task's, if there is one
        self._awaited: dict[int, int] = {}  # by worker: number of the last message, if that is not answered

    @property
    def job(self) -> Job | None:
        return self._held[0] if self._held else None

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def open(self, job: Job) -> None:
        self.check_free(self._task is not None)
        job.compile()  # once, here: worker processes load the machine code from the disk cache
        self._held[:] = [job]
        self._first = self._tell(job)
        try:
            while self._awaited and not self.closed:
                self._listen(1.0)
        except KeyboardInterrupt:  # only some have received it
            self.close()
            raise

    def begin(self, task: Task) -> None:
        self._task = task
        with self._unless_closed():
            self._latest = self._tell(task)

    def wait(self, timeout: float) -> bool:
        with self._unless_closed():
            if not self._finished():
                self._listen(timeout)
        if self.closed or self._finished():
            self._task = None
            return True
        return False

    def release(self, job: Job) -> None:
        if self.job is job:
            job.abort()
            self._held.clear()
            self._task = None
            self._first = self._tell(None)
            self._awaited.clear()

    def close(self) -> None:
        self._end()

    @contextlib.contextmanager
    def _unless_closed(self) -> Iterator[None]:
        """Pass over an error of workers that another thread, or the end of the interpreter, has closed meanwhile."""
        try:
            yield
        except (OSError, ValueError, IndexError):
            if not self.closed:
                raise

    def _finished(self) -> bool:
        job = self.job
        if job is None or self._awaited:
            return job is None
        return job.finished()  # otherwise all workers died, and replacements are starting

    def _tell(self, message: Job | Task | None) -> int:
        """Send all workers a message, and return its number."""
        number = next(self._numbers)
        for worker in range(self.workers):
            self._send(worker, number, message)
        return number

    def _send(self, worker: int, number: int, message: Job | Task | None) -> None:
        self._awaited[worker] = number
        self._post(worker, (number, message))

    def _hear(self, worker: int, number: int, problem: str | None) -> None:
        """Handle the answer to a message."""
        if problem is not None and number >= self._first:
            raise TrainingError(f"worker {worker} failed: {problem}")
        if self._awaited.get(worker) == number:
            del self._awaited[worker]

    def _post(self, worker: int, message: tuple[int, Job | Task | None]) -> None:
        """Put a message into a worker's inbox."""
        raise NotImplementedError

    def _listen(self, timeout: float) -> None:
        """Wait for an answer or another event of some worker and handle it."""
        raise NotImplementedError
