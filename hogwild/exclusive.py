"""A lock on a run's output: a second run at the same place is refused, and the lock ends with the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hogwild.errors import UsageError


def take(descriptor: int, place: str, what: str) -> None:
    """Lock an open file or directory for this process, for as long as the descriptor is open.

    Raises
    ------
    UsageError
        If another process holds it; the message names ``place`` and ``what`` is being written there.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{place}: {what} is being written there: wait for it, or name another place") from None
    except OSError:  # the file system has no locks
        pass


class Held:
    """A directory locked for one run, until it is closed or garbage-collected."""

    def __init__(self, directory: Path, place: str, what: str) -> None:
        self._descriptor: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            take(self._descriptor, place, what)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close
