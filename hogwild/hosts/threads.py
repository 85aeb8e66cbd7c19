"""Workers as threads of this process: for notebooks, library calls and plain scripts.

The kernels release the GIL, so threads race on the parameter array exactly as processes do. Nothing is copied, and no
``if __name__ == "__main__"`` is needed. Processes have one advantage, survival: a killed thread is a killed
program. Each worker pins itself to a core, as processes do: the scheduler may wake two on the same one, and an epoch
of milliseconds ends before it has moved them apart.
"""

from __future__ import annotations

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
        self._number = self._awaited = 0  # the latest message, and how many have not answered it
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(workers)]
        self._outbox: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
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

    def open(self, job: Job) -> None:
        self.check_free(self._awaited > 0)
        job.problem.compile()
        self._held[:] = [job]
        self._send(job)
        while not self.wait(1.0):
            pass

    def begin(self, task: Task) -> None:
        self._send(task)

    def wait(self, timeout: float) -> bool:
        while self._awaited:
            try:
                number, problem = self._outbox.get(timeout=timeout)
            except queue.Empty:
                return self.closed
            if number != self._number:
                continue
            self._awaited -= 1
            if problem is not None:
                raise TrainingError(f"a worker thread failed: {problem}")
        return True

    def release(self, job: Job) -> None:
        if self.job is job:
            job.abort()
            self._held.clear()
            self._send(None)
            self._awaited = 0

    def _send(self, message: Job | Task | None) -> None:
        self._number, self._awaited = next(self._numbers), self.workers
        for inbox in self._inboxes:
            inbox.put((self._number, message))


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
    work_for(worker, inbox.get, outbox.put)
