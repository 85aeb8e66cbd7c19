"""Checks of single options (one of some choices, a number within a range), and what an option says about itself.

An :class:`Option` is what a field of ``TrainConfig`` carries, so that its help text, its range and its name on the
command line stand once.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

from hogwild.errors import UsageError, expected_one_of

LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Option:
    """What ``--help``, the reference and the check of one option are made from."""

    help: str  # one sentence, without a full stop where choices follow
    panel: str = ""  # group of the command line's help; empty for an option that Python only has
    more: str = ""  # further sentences for the reference, in reStructuredText
    choices: tuple[Any, ...] = ()  # empty: any value, or those that ``methods.PROBLEMS`` gives for the problem
    least: float | None = None  # of a number; None: it is not checked
    most: float = math.inf
    strict: bool = False  # whether the least number itself is refused
    usual: str = ""  # what None, or "auto", means, for the help
    names: tuple[str, ...] = ()  # on the command line, if they are more than the field's with hyphens
    metavar: str | None = None
    without: str = ""  # help of the flag --no-NAME, which turns off what is on by default
    owners: tuple[str, ...] = ()  # problems that have the option; empty: all


def option(default: Any, help: str, panel: str = "", **more: Any) -> Any:
    """Return a dataclass field with an :class:`Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help, panel, **more)})


def entry(name: str, kind: str, usual: Any, text: str) -> str:
    """Return what a docstring says of an option, in NumPy's style."""
    text = textwrap.fill(text, 110, break_on_hyphens=False, break_long_words=False).replace("\n", "\n    ")
    return f"{name} : {kind}, default {usual}\n    {text}".rstrip()


def check_field(field: dataclasses.Field[Any], value: Any, choices: tuple[Any, ...]) -> None:
    """Raise UsageError unless ``value`` has the field's type and is within its range, or among ``choices``, if any."""
    kind, _, rest = str(field.type).partition(" | ")
    about: Option = field.metadata["option"]
    if choices and not (value is None and rest):
        first = () if field.default is None or field.default in choices else (field.default,)
        choice(field.name, value, (*first, *choices))
    elif kind == "bool" and not isinstance(value, bool):
        raise UsageError(f"{field.name}={value!r}: expected True or False")
    elif about.least is not None and kind == "int":
        whole(field.name, value, int(about.least), None if about.most == math.inf else int(about.most), bool(rest))
    elif about.least is not None and kind == "float":
        number(field.name, value, about.least, about.most, bool(rest), about.strict)


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise UsageError(f"{name}={value!r}: {expected_one_of(choices, value)}")


def number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    optional: bool = False,
    strict: bool = False,
    below: float = math.inf,
) -> None:
    """Refuse a ``value`` that is not from ``low`` to ``high``, above ``low`` if ``strict``, and less than ``below``."""
    if value is None and optional:
        return
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
    if not ok or not low <= value <= high or (strict and value == low) or value >= below:
        raise UsageError(
            f"{name}={value!r}: expected a finite number"
            + (f" {'above' if strict else 'of at least'} {low:g}" if low > -math.inf else "")
            + (f" and at most {high:g}" if high < math.inf else "")
            + (f" and below {below:g}" if below < math.inf else "")
            + (", or None" if optional else "")
        )


def whole(name: str, value: Any, low: int, high: int | None = None, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        raise UsageError(
            f"{name}={value!r}: expected a whole number from {low}"
            + (f" to {high}" if high else "")
            + (", or None" if optional else "")
        )


def flag(name: str, value: Any) -> None:
    if not isinstance(value, int) or value not in (0, 1):
        raise UsageError(f"{name}={value!r}: expected True or False")
