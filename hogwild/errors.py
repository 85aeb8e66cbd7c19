"""Every error a user can cause or meet, as one line that says what to do.

The command line prints ``str(error)`` and exits with ``error.exit_status``; nothing else in the package
prints or exits. The classes also derive from the built-in a library user would expect to catch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class HogwildError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one complete line."""

    exit_status = 1


class InputError(HogwildError, ValueError):
    """Data, a store, a model or a checkpoint that cannot be used: names the file, and the line where there is one."""


class UsageError(HogwildError, ValueError):
    """An option or argument outside its valid choices; the message lists them."""

    exit_status = 2


class OutputError(HogwildError, OSError):
    """A file or memory segment that could not be written: full disk, no permission, small ``/dev/shm``."""


class TrainingError(HogwildError, RuntimeError):
    """Training that had to stop: diverged, or a worker died where the discipline cannot go on without it."""


class HogwildWarning(UserWarning):
    """Something the user should know that did not stop the work (unsorted indices, unseen features, ...)."""


def expected_one_of(choices: Iterable[Any], value: Any) -> str:
    """``expected one of log, hinge: did you mean hinge?``, for the message about a ``value`` that is none of them."""
    names = [str(choice) for choice in choices]
    return f"expected one of {', '.join(names)}{nearest(value, names)}"


def nearest(value: Any, names: Iterable[str], cutoff: float = 0.5, aliases: Mapping[str, str] | None = None) -> str:
    """``: did you mean hinge?``, or nothing if no name is so similar.

    ``cutoff``: of 1 for the same only; ``aliases``: what else people write, and the name that is meant.
    """
    import difflib

    meant = {name: name for name in names} | dict(aliases or {})
    close = difflib.get_close_matches(str(value).lower(), meant, n=1, cutoff=cutoff)
    return f": did you mean {meant[close[0]]}?" if close else ""
