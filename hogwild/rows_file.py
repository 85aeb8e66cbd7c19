"""Where a run's output goes: rows of measurements to a file, as JSON lines, and messages to a screen.

Every line of the file is a row and every row is valid JSON: NaN and infinities, which JSON lacks, become null. A row is
flushed when it is written, so a killed run leaves all its rows; resuming cuts off a last line that was left incomplete.
A second run is refused where a first one writes; the lock ends with the process.

A closed terminal, ``| head`` or a full disk under a log must not cost an hour of training. So a :class:`Screen` keeps
its first error and writes nothing more, and the program raises the error once its results are saved. Where the output
itself is the result (``hogwild predict model rows | head``), :class:`Output` raises at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from hogwild.errors import OutputError, UsageError


def to_json(row: dict[str, Any]) -> str:
    """Return one row as one line of JSON, without the newline."""
    return json.dumps(plain(row), allow_nan=False)


def plain(value: Any, nan: bool = False) -> Any:
    """Convert NumPy values and paths to JSON types; numbers that are not finite become null, unless ``nan``."""
    if hasattr(value, "tolist"):  # a NumPy array or scalar
        value = value.tolist()
    if isinstance(value, float) and not nan and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {_key(name): plain(entry, nan) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry, nan) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _key(name: Any) -> str:
    """Return a dict's key as text; numeric keys are labels."""
    if not isinstance(name, float):
        return str(name)
    from hogwild.data.rows.container import shortest

    return shortest(name)


def lock_file(descriptor: int, place: str, occupant: str) -> None:
    """Lock an open file or directory for this process, for as long as the descriptor is open.

    Raises
    ------
    UsageError
        If another process holds it; the message says that ``occupant`` is being written at ``place``.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{place}: {occupant} is being written there: wait for it, or name another place") from None
    except OSError:  # the file system has no locks
        pass


def lock_directory(directory: Path, place: str, occupant: str) -> int:
    """Lock a directory, as :func:`lock_file` does, until the descriptor that is returned is closed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lock_file(descriptor, place, occupant)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class RowsFile:
    """Where an option such as ``--json`` sends rows: a file, standard output for "-", nowhere for None."""

    def __init__(self, name: str | None, append: bool = False, option: str = "--json") -> None:
        self._place = f"{option} {name}"
        self._file: TextIO | None = None
        if name == "-":
            self._file = sys.stdout
        elif name is not None:
            with self._named():
                self._file = open(name, "a", encoding="utf-8")
                if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):  # not a pipe or /dev/null, which runs may share
                    lock_file(self._file.fileno(), self._place, "another run")
                    self._file.truncate(Path(name).read_bytes().rfind(b"\n") + 1 if append else 0)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Close the file at any error, and say which it is."""
        try:
            yield
        except BaseException as error:
            with contextlib.suppress(OSError):  # what is still buffered cannot be written either
                self._closed()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise OutputError(f"{self._place}: {error.strerror or error}") from None
            raise

    def _closed(self) -> None:
        file, self._file = self._file, None
        if file is not None and file is not sys.stdout:
            file.close()

    def write(self, *rows: dict[str, Any]) -> None:
        """Write rows at once."""
        if self._file is not None:
            with self._named():
                self._file.write("".join(to_json(row) + "\n" for row in rows))
                self._file.flush()

    def close(self) -> None:
        with self._named():
            self._closed()


class Output:
    """A text stream whose errors name it, as a file's errors do."""

    def __init__(self, stream: TextIO | Output, called: str = "standard output") -> None:
        self.stream = cast("TextIO", stream)
        self.called = called

    def write(self, text: str) -> int:
        """Write ``text`` and return its length."""
        self._do(lambda: self.stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._do(self.stream.flush)

    def _do(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except OSError as error:
            error.filename = error.filename or self.called
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Screen(Output):
    """A stream that people watch; writing to it never raises.

    Attributes
    ----------
    failure : OSError or None
        The first error, after which nothing more is written.
    """

    failure: OSError | None = None

    def _do(self, action: Callable[[], Any]) -> None:
        try:
            if self.failure is None:
                super()._do(action)
        except OSError as error:
            self.failure = error

    def settle(self) -> None:
        """Raise the first error, if there was one."""
        if self.failure is not None:
            raise self.failure


def printable(text: str) -> str:
    """Escape control characters and undecodable bytes in ``text``, so that names and replies cannot move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
