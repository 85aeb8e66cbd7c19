"""What ``hogwild compare --model`` reads: a module, its data and its loss, as functions of a user's file.

``FILE.py:NAME`` names a function that makes a module or data, or is a loss. The file is run once, by its path, in this
process. Workers receive its definitions pickled by value and never run the file, so it needs no package and no
``__main__`` guard. An error in it is one line with file and line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hogwild.cli.display import Display
from hogwild.cli.sources import DEFAULT_HOLDOUT, check_holdout, check_readable
from hogwild.errors import HogwildError, InputError, UsageError, nearest
from hogwild.problems.module.options import LOSSES

if TYPE_CHECKING:
    from hogwild.problems.module.case import Posed
    from hogwild.problems.module.feed import Examples

FUNCTION = "FILE.py:NAME"
NAMED_LOSSES = LOSSES[1:]


def is_function(spec: str) -> bool:
    """Whether ``spec`` names a function in a file."""
    path, _, name = spec.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def check_module(data: str | None, options: dict[str, Any]) -> str:
    """Return the name of the data of a module, after checking that the data, module and loss files can be read."""
    options["loss"] = options["loss"] or NAMED_LOSSES[0]
    model, loss = options["model"], options["loss"]
    if data is None:
        raise UsageError(f"a module is compared on data of its own: hogwild compare {FUNCTION} --model {FUNCTION}")
    if options["format"]:
        raise UsageError("--format does not go with --model")
    if not is_function(model):
        raise UsageError(f"--model {model}: expected {FUNCTION}, a function in a file")
    if loss not in NAMED_LOSSES and not is_function(loss):
        names = ", ".join(NAMED_LOSSES)
        raise UsageError(f"--loss {loss}: expected {names} or {FUNCTION}{nearest(loss, NAMED_LOSSES)}")
    check_holdout(options["holdout"])
    for spec in {model, loss, data, options["test"]} - {None, *NAMED_LOSSES}:
        check_readable(spec.rpartition(":")[0] if is_function(spec) else spec)
    return data


def read_module(data: str, options: dict[str, Any], seed: int, display: Display) -> tuple[Posed, Examples | None]:
    """Return the module of a comparison with its training examples, and the test examples."""
    from hogwild.problems.module.training import pose

    model, loss, test, holdout = (options[name] for name in ("model", "loss", "test", "holdout"))
    loss = loss if loss in NAMED_LOSSES else function_of(loss)
    examples, tested = made(data), None if test is None else made(test)
    module = function_of(model)
    with blamed(model):
        posed, tested = pose(module, loss, examples, tested, seed)
    count = sum(parameter.numel() for parameter in posed.model.parameters())
    display.say(f"{data}: {len(posed):,} examples; {model}: {count:,} parameters")
    if holdout is None and test is None:
        holdout = DEFAULT_HOLDOUT
    if holdout and len(posed):
        rest, tested = posed.examples.split(holdout, seed)
        posed = dataclasses.replace(posed, examples=rest)
        display.say(f"held out {len(tested):,} examples to test on, training on {len(rest):,}")
    return posed, tested


def made(spec: str) -> Any:
    """Return the function's result, or the name of data."""
    if not is_function(spec):
        return spec
    function = function_of(spec)
    with blamed(spec):
        return function()


def function_of(spec: str) -> Any:
    """Return the function that ``spec`` names."""
    path, _, name = spec.rpartition(":")
    with blamed(spec):
        members = members_of(path)
    if not callable(members.get(name)):
        names = [key for key, value in members.items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{path}: no function {name} in it: it has {', '.join(names) or 'none'}")
    return members[name]


@functools.cache
def members_of(path: str) -> dict[str, Any]:
    """Run a file; return what it defines."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # for modules beside it; workers have the same path
    return runpy.run_path(path, run_name="hogwild_file")


@contextlib.contextmanager
def blamed(spec: str) -> Iterator[None]:
    """Turn any exception of the user's code into one line with its file and line number; our own errors pass."""
    try:
        yield
    except HogwildError:
        raise
    except SyntaxError as error:
        raise InputError(f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}") from error
    except (Exception, SystemExit) as error:
        path = spec.rpartition(":")[0]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == os.path.realpath(path)]
        place = f"{path}, line {lines[-1]}" if lines else path
        raise InputError(f"{place}: {type(error).__name__}: {error}") from error
