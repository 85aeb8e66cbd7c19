"""The program of one worker process. The fork server imports this module once, so a worker starts in milliseconds.

A worker ignores SIGINT and SIGTERM, which are for the parent to act upon, and ends by itself as soon as the parent is
gone, even in the middle of an epoch.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection

import torch.multiprocessing  # noqa: F401  (registers how tensors travel, and spares every worker the import)

from hogwild.hosts.job import Job


def main(connection: Connection, worker: int, cpu: int | None) -> None:
    """Serve jobs and tasks from ``connection`` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if cpu is not None:
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:
            pass  # the set of usable CPUs changed: run unpinned
    try:
        _serve(connection, worker)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the parent closed its end
    os._exit(0)  # nothing here needs cleaning up, and torch's and numba's teardown costs a tenth of a second


def _serve(connection: Connection, worker: int) -> None:
    while (message := connection.recv()) is not None:
        try:
            if isinstance(message, Job):
                job = message
                shared, data, scratch = job.shared(), job.data(), job.problem.scratch(job.order)
                job.problem.compile()
                connection.send("ready")
            else:
                job.work(shared, scratch, data, message, worker)
                connection.send("done")
        except Exception:
            connection.send(traceback.format_exc(limit=3))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
