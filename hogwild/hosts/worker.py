"""The program of one worker process. The fork server imports this module once, so a worker starts in milliseconds.

A worker ignores SIGINT and SIGTERM, as the server does, and ends by itself as soon as the parent's end of its channel
closes, even in the middle of an epoch. Every message carries a number, and so does its answer: ``None``, or one line
that says what went wrong.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from hogwild.hosts.channel import Channel
from hogwild.hosts.fork_server import describe, gone
from hogwild.hosts.job import Desk, Job
from hogwild.kernels.cache import leave_warnings


def main(end: socket.socket) -> None:
    """Serve jobs and tasks until the channel closes; its first message is about the worker itself."""
    threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()
    leave_warnings()
    channel = Channel(end)
    try:
        worker, cpu, sys.path[:] = channel.receive()
        if cpu is not None:
            try:
                os.sched_setaffinity(0, {cpu})
            except OSError:
                pass  # the set of usable CPUs changed: run unpinned
        _serve(channel, worker)
    except (EOFError, BrokenPipeError):
        pass  # the parent closed its end, or died
    os._exit(0)  # nothing here needs cleaning up, and torch's and numba's teardown costs a tenth of a second


def _serve(channel: Channel, worker: int) -> None:
    desk = Desk(worker)
    while (received := channel.receive()) is not None:
        number, message = received
        problem = None
        try:
            desk.take(message)
            if isinstance(message, Job):
                message.problem.compile()
        except Exception as error:
            problem = describe(error)
        received = message = None  # or a job that is to be forgotten would live on here
        channel.send((number, problem))


def _end_with_parent(end: socket.socket) -> None:
    gone(end, None)
    os._exit(1)
