"""Workers as threads of this process: for notebooks, library calls and plain scripts.

The kernels release the GIL, so threads race on the parameter array exactly as processes do. Nothing is copied, and no
``if __name__ == "__main__"`` is needed. Processes have one advantage, survival: a killed thread is a killed
program. Each worker pins itself to a core, as processes do: the scheduler may wake two on the same one, and an epoch
of milliseconds ends before it has moved them apart.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from typing import Any

from hogwild.errors import TrainingError
from hogwild.hosts.job import Job, Task, work_for
from hogwild.hosts.pool import Crew
from hogwild.machine import cpus_of, pin


class Threads(Crew):
    """A pool of worker threads (see :class:`hogwild.hosts.pool.Pool`)."""

    host, shared = "threads", False

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(workers)]
        self._outbox: queue.SimpleQueue[tuple[int, int, str | None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, _end, self._threads, self._inboxes, self._held)
        try:
            for k, (inbox, cpu) in enumerate(zip(self._inboxes, cpus_of(workers), strict=True)):
                thread = threading.Thread(
                    target=_serve, args=(k, cpu, inbox, self._outbox), name=f"hogwild-{k}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:  # too many
            self.close()
            raise TrainingError(f"cannot start {workers} worker threads: {error}") from error

    def _post(self, worker: int, message: tuple[int, Job | Task | None]) -> None:
        self._inboxes[worker].put(message)

    def _listen(self, timeout: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._hear(*self._outbox.get(timeout=timeout))


def _end(threads: list[threading.Thread], inboxes: list[queue.SimpleQueue[Any]], held: list[Job]) -> None:
    """Close the pool, at the latest before the interpreter frees the arrays under the kernels."""
    for job in held:
        job.abort()
    for inbox in inboxes:
        inbox.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=10)
    held.clear()


def _serve(worker: int, cpu: int | None, inbox: queue.SimpleQueue[Any], outbox: queue.SimpleQueue[Any]) -> None:
    pin(cpu)
    work_for(worker, inbox.get, lambda answer: outbox.put((worker, *answer)))
