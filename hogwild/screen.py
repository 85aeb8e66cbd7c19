"""Standard output and error: their errors name the stream, and a closed terminal does not end the work.

A closed terminal, ``| head`` or a full disk under a log must not cost an hour of training. So a :class:`Screen` keeps
its first error and writes nothing more, and the program raises the error once its results are saved. Where the output
itself is the result (``hogwild predict model rows | head``), :class:`Output` raises at once.
"""

from __future__ import annotations

from typing import Any, TextIO, cast


class Output:
    """A text stream whose errors name it, as a file's errors do."""

    def __init__(self, stream: TextIO | Output, called: str = "standard output") -> None:
        self.stream, self.called = cast("TextIO", stream), called

    def write(self, text: str) -> int:
        """Write ``text`` and return its length."""
        try:
            self.stream.write(text)
        except OSError as error:
            self.fail(error)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self.stream.flush()
        except OSError as error:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Raise the error with the stream's name in it."""
        error.filename = error.filename or self.called
        raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Screen(Output):
    """A stream that people watch; writing to it never raises.

    Attributes
    ----------
    failure : OSError or None
        The first error.
    """

    failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write ``text`` if still possible and return its length."""
        return super().write(text) if self.failure is None else len(text)

    def flush(self) -> None:
        """Flush the stream if still possible."""
        if self.failure is None:
            super().flush()

    def fail(self, error: OSError) -> None:
        """Keep the error."""
        error.filename = error.filename or self.called
        self.failure = error

    def settle(self) -> None:
        """Raise the first error, if there was one."""
        if self.failure is not None:
            raise self.failure


def printable(text: str) -> str:
    """Escape control characters and undecodable bytes in ``text``, so that names and replies cannot move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
