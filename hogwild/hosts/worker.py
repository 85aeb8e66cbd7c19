"""The program of a worker process. The fork server imports this module once, so a worker starts in milliseconds.

A worker ignores SIGINT and SIGTERM, as the server does, and ends as soon as the parent's end of its channel closes,
even in the middle of an epoch. Every message carries a number, and so does its answer, which is ``None`` or one line
that describes an error.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from hogwild.hosts.channel import Channel
from hogwild.hosts.job import Job, WorkerState
from hogwild.hosts.messages import describe, gone
from hogwild.kernels.cache import leave_warnings
from hogwild.machine import pin


def main(end: socket.socket) -> None:
    """Serve jobs and tasks until the channel closes; the first message is about the worker itself."""
    threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()
    leave_warnings()
    channel = Channel(end)
    try:
        worker, cpu, sys.path[:] = channel.receive()
        pin(cpu)
        _serve(channel, worker)
    except (EOFError, BrokenPipeError):
        pass  # the parent closed its end, or died
    os._exit(0)  # nothing needs cleaning up, and the teardown of torch and numba takes a tenth of a second


def _serve(channel: Channel, worker: int) -> None:
    desk = WorkerState(worker)
    while (received := channel.receive()) is not None:
        number, message = received
        problem = None
        try:
            desk.take(message)
            if isinstance(message, Job):
                message.problem.compile()
        except Exception as error:
            problem = describe(error)
        received = message = None  # a local reference would keep a dropped job alive
        channel.send((number, problem))


def _end_with_parent(end: socket.socket) -> None:
    gone(end, None)
    os._exit(1)
