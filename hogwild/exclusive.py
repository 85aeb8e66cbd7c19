"""A lock on what a run writes: a second run at the same place is refused, and a kill lets go of it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hogwild.errors import UsageError


def take(descriptor: int, place: str, what: str) -> None:
    """Hold an open file or directory for this process alone, for as long as the descriptor is open.

    Raises
    ------
    UsageError
        If another one holds it: ``place``, and ``what`` is being written there.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{place}: {what} is being written there: wait for it, or name another place") from None
    except OSError:  # a file system without locks
        pass


class Held:
    """A directory that one run writes to, until it is closed or forgotten."""

    def __init__(self, directory: Path, place: str, what: str) -> None:
        self._descriptor: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            take(self._descriptor, place, what)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close
