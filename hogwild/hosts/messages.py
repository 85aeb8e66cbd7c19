"""What the fork server, its workers and the parent say to each other beside jobs and tasks."""

from __future__ import annotations

import os
import select
import socket
import traceback
from typing import NamedTuple

WHOLE = b"+"  # before a message that has no part in a file of its own


class Began(NamedTuple):
    """The first word about a worker: its process."""

    pid: int


class Ended(NamedTuple):
    """The last word about a worker: its exit status, negative for a signal; or why there is no process."""

    status: int | None
    reason: str = ""


def describe(error: BaseException) -> str:
    """One line: what went wrong and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400] + where


def gone(end: socket.socket, milliseconds: int | None) -> bool:
    """Whether the other end is closed; wait for that so long, or (None) for ever."""
    looking = select.poll()
    looking.register(end, 0)
    return bool(looking.poll(milliseconds))
