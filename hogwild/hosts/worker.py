"""The program of one worker process. The fork server imports this module once, so a worker starts in milliseconds.

A worker ignores SIGINT and SIGTERM, which are for the parent to act upon, and ends by itself as soon as the parent is
gone, even in the middle of an epoch. Every message carries a number, and so does its answer: ``None``, or one line that
says what went wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from multiprocessing.connection import Connection

import torch.multiprocessing  # noqa: F401  (registers how tensors travel, and spares every worker the import)

from hogwild.hosts.job import Desk, Job


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
    except (EOFError, OSError):
        pass  # the parent closed its end, or died while it sent something
    os._exit(0)  # nothing here needs cleaning up, and torch's and numba's teardown costs a tenth of a second


def _serve(connection: Connection, worker: int) -> None:
    desk = Desk(worker)
    while (received := connection.recv()) is not None:
        number, message = received
        problem = None
        try:
            desk.take(message)
            if isinstance(message, Job):
                message.problem.compile()
        except Exception as error:
            problem = describe(error)
        received = message = None  # or a job that is to be forgotten would live on here
        connection.send((number, problem))


def describe(error: BaseException) -> str:
    """One line: what went wrong and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400] + where


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
