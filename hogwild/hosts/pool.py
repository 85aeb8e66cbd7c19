"""The interface of a host: what a run asks of its workers, of whatever kind."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Protocol

from hogwild.errors import UsageError
from hogwild.exchanges.trade import Counts
from hogwild.hosts.job import Job, Task


class Pool(Protocol):
    """Started workers that serve one job after another: ``threads.Threads``, ``processes.Processes``, ``cuda.Streams``.

    A pool that is dropped, or still open when the interpreter ends, closes itself. Pools inherit from this class for
    its default methods, which are those of a host that measures nothing.
    """

    host: str
    shared: bool  # whether jobs must be in shared memory
    workers: int
    lost: int  # workers that have died
    delay: str = "round-robin"  # delay law of the simulator's workers

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
    """Started workers that answer numbered messages: a job, its tasks, and None to drop it.

    An answer to another number than the latest is from a run that was abandoned.
    """

    _end: weakref.finalize[Any, Any]  # closes the pool; also called when it is garbage, and at the interpreter's exit

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lost = 0
        self._numbers = itertools.count()
        self._held: list[Job] = []  # at most one; not in self, for the finalizer

    @property
    def job(self) -> Job | None:
        return self._held[0] if self._held else None

    @property
    def closed(self) -> bool:
        return not self._end.alive

    def close(self) -> None:
        self._end()
