"""Workers as threads of this process: for notebooks, library calls and plain scripts.

The kernels release the GIL, so threads race on the parameter array exactly as processes do; nothing is copied and there
is nothing to guard with ``if __name__ == "__main__"``. What processes have over them is survival: a killed thread is a
killed program.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from hogwild.errors import TrainingError
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import ABORT


class Threads:
    """A pool of worker threads (see :class:`hogwild.hosts.job.Pool`)."""

    shared = False

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.lost = 0
        self._job: Job | None = None
        self._inboxes: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(workers)]
        self._outbox: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._busy = 0
        self._threads = [
            threading.Thread(target=_serve, args=(k, inbox, self._outbox), name=f"hogwild-{k}", daemon=True)
            for k, inbox in enumerate(self._inboxes)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, job: Job) -> None:
        job.problem.compile()
        self._job = job
        for inbox in self._inboxes:
            inbox.put(job)

    def begin(self, task: Task) -> None:
        self._busy = self.workers
        for inbox in self._inboxes:
            inbox.put(task)

    def wait(self, timeout: float) -> bool:
        while self._busy:
            try:
                error = self._outbox.get(timeout=timeout)
            except queue.Empty:
                return False
            self._busy -= 1
            if error is not None:
                assert self._job is not None
                self._job.control[ABORT] = 1
                raise TrainingError(f"a worker thread failed: {type(error).__name__}: {error}") from error
        return True

    def close(self) -> None:
        if self._job is not None:
            self._job.stop()
            self._job.control[ABORT] = 1
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=10)


def _serve(worker: int, inbox: queue.SimpleQueue[Any], outbox: queue.SimpleQueue[BaseException | None]) -> None:
    job: Job | None = None
    while (message := inbox.get()) is not None:
        if isinstance(message, Job):
            job = message
            shared, data, scratch = job.shared(), job.data(), job.problem.scratch(job.order)
            continue
        try:
            assert job is not None
            job.work(shared, scratch, data, message, worker)
            outbox.put(None)
        except BaseException as error:
            outbox.put(error)
