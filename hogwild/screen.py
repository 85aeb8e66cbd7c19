"""Standard output and error: their errors say whose they are, and a screen that is gone ends no work.

A terminal that is closed, ``| head`` or a full disk under a log are no reason to lose an hour of training. So the first
error of a :class:`Screen` is kept, nothing more is written to it, and the program raises the error once its results are
saved. Where the output itself is the result (``hogwild predict model rows | head``), :class:`Output` raises it at once.
"""

from __future__ import annotations

from typing import Any, TextIO, cast


class Output:
    """A text stream whose errors name it, as those of a file do."""

    def __init__(self, stream: TextIO | Output, called: str = "standard output") -> None:
        self.stream, self.called = cast("TextIO", stream), called

    def write(self, text: str) -> int:
        """Write ``text``; its length."""
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
        """Say whose error it is."""
        error.filename = error.filename or self.called
        raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Screen(Output):
    """What people watch: it never raises while it is written to.

    Attributes
    ----------
    failure : OSError or None
        What first went wrong.
    """

    failure: OSError | None = None

    def write(self, text: str) -> int:
        """Write ``text`` if that is still possible; its length."""
        return super().write(text) if self.failure is None else len(text)

    def flush(self) -> None:
        """Flush the stream if that is still possible."""
        if self.failure is None:
            super().flush()

    def fail(self, error: OSError) -> None:
        """Keep the error."""
        error.filename = error.filename or self.called
        self.failure = error

    def settle(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.failure is not None:
            raise self.failure


def printable(text: str) -> str:
    """``text`` with control characters, and bytes that are no text, as escapes: names and replies move no cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
