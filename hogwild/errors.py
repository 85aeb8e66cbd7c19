"""Errors that a user can cause or meet, each one line that says what to do.

The command line prints ``str(error)`` and exits with ``error.exit_status``; nothing else in the package
prints or exits. The classes also derive from the built-in that a library user would expect to catch.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class HogwildError(Exception):
    """Base of all errors raised on purpose; ``str(error)`` is one complete line.

    See Also
    --------
    InputError, UsageError, OutputError, TrainingError : the kinds.

    Examples
    --------
    >>> import hogwild
    >>> try:
    ...     hogwild.open_data("nowhere.svm")
    ... except hogwild.HogwildError as error:
    ...     print(error)
    nowhere.svm: ...
    """

    exit_status = 1


class InputError(HogwildError, ValueError):
    """Data, a store, a model or a checkpoint cannot be used; the message names the file, and the line if known.

    See Also
    --------
    HogwildError : the base of all errors.

    Examples
    --------
    >>> import hogwild
    >>> hogwild.load("nowhere.hogwild")
    Traceback (most recent call last):
    hogwild.errors.InputError: nowhere.hogwild: ...
    """


class NoChoice(InputError):
    """No penalty can be chosen by held-out rows of these data; training with a given one may still work."""


class UsageError(HogwildError, ValueError):
    """An option or argument is outside its valid choices; the message lists them.

    See Also
    --------
    HogwildError : the base of all errors.

    Examples
    --------
    >>> import hogwild
    >>> hogwild.TrainConfig(loss="higne")
    Traceback (most recent call last):
    hogwild.errors.UsageError: ...did you mean hinge?
    """

    exit_status = 2


class OutputError(HogwildError, OSError):
    """A file or memory segment could not be written: full disk, no permission.

    See Also
    --------
    HogwildError : the base of all errors.

    Examples
    --------
    >>> import hogwild
    >>> hogwild.LinearModel([1.0, 2.0], 0.0, "log", labels=[0, 1]).save("no/such/folder/model.hogwild")
    Traceback (most recent call last):
    hogwild.errors.OutputError: ...
    """


class TrainingError(HogwildError, RuntimeError):
    """Training had to stop: it diverged, or a worker died where the discipline cannot go on without it.

    See Also
    --------
    HogwildError : the base of all errors.

    Examples
    --------
    >>> import hogwild
    >>> rows = ([[1.0], [2.0]] * 50, [1.0, 2.0] * 50)
    >>> hogwild.train(rows, loss="squared-error", step=1e30, scale_columns=False, workers=1).finish()
    Traceback (most recent call last):
    hogwild.errors.TrainingError: ...
    """


class HogwildWarning(UserWarning):
    """Something the user should know that did not stop the work (unsorted indices, unseen features, ...).

    See Also
    --------
    HogwildError : what stops the work.

    Examples
    --------
    >>> import hogwild, warnings
    >>> warnings.simplefilter("error", hogwild.HogwildWarning)  # a script that is to stop at them
    """


@contextlib.contextmanager
def naming(name: str, *others: str | None) -> Iterator[None]:
    """Prefix the data's name to errors that are found in them, unless they name it or one of ``others``."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(tuple(each + mark for each in (name, *others) if each for mark in ":,/ ")):
            raise
        raise InputError(f"{name}: {error}") from error


def reason_of(error: BaseException) -> str:
    """Return what an error of any library says, in one line, without the file's name; of a key, that there is none."""
    if isinstance(error, KeyError):
        return f"no {error}"
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return " ".join(text.split()) or type(error).__name__


def describe(error: BaseException, libraries: tuple[str, ...] = ()) -> str:
    """One line that says what went wrong, and where: the innermost line that is in no file of the ``libraries``."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(libraries)]
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400] + where


def expected_one_of(choices: Iterable[Any], value: Any) -> str:
    """Return ``expected one of log, hinge: did you mean hinge?`` for a ``value`` that is not among the choices."""
    names = [str(choice) for choice in choices]
    return f"expected one of {', '.join(names)}{nearest(value, names)}"


def nearest(value: Any, names: Iterable[str], cutoff: float = 0.5, aliases: Mapping[str, str] | None = None) -> str:
    """Return ``: did you mean hinge?``, or an empty string if no name is similar enough.

    ``cutoff`` is the required similarity, 1 for equality; ``aliases`` maps other common spellings to the name meant.
    """
    import difflib

    meant = {name: name for name in names} | dict(aliases or {})
    close = difflib.get_close_matches(str(value).lower(), meant, n=1, cutoff=cutoff)
    return f": did you mean {meant[close[0]]}?" if close else ""
