"""Definitions in a user's file: ``FILE.py:NAME`` names a function that makes a module or data, or is a loss.

The file is run once, by its path, in this process. Its definitions are sent to the workers by value, so they run no
file, and it needs neither a place in a package nor a guard against being run twice. An error in it is one line with the
file and the line number.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.errors import HogwildError, InputError, UsageError, nearest

FUNCTION = "FILE.py:NAME"


def check_function(what: str, spec: str | None, names: tuple[str, ...] = ()) -> None:
    """Raise UsageError unless ``spec`` names a function in a file; ``names`` lists other valid choices."""
    if not is_function(spec or ""):
        choices = f"{', '.join(names)} or " if names else ""
        raise UsageError(f"{what} {spec}: expected {choices}{FUNCTION}, a function in a file{nearest(spec, names)}")


def is_function(spec: str) -> bool:
    """Whether ``spec`` names a function in a file."""
    path, _, name = spec.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def made(spec: str | None) -> Any:
    """Return the function's result, or the data of that name."""
    if spec is None:
        return None
    if not is_function(spec):
        from hogwild.data.rows.source import open_data

        return open_data(spec)
    function = found(spec)
    with blamed(spec):
        return function()


@contextlib.contextmanager
def blamed(spec: str) -> Iterator[None]:
    """Turn any exception of the user's function in the block into one line that names its file; our own errors pass."""
    try:
        yield
    except HogwildError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(where(spec.rpartition(":")[0], error)) from error


def found(spec: str) -> Any:
    """Return the function that ``spec`` names."""
    path, _, name = spec.rpartition(":")
    module = _run_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{path}: no function {name} in it: it has {', '.join(there) or 'none'}")
    return function


def _run_file(path: str) -> Any:
    """Run the file as a module, whose definitions are pickled by value."""
    from numba import cloudpickle

    place = Path(path).resolve()
    name = f"hogwild_file_{place.stem}_{abs(hash(place)):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None  # because the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))  # for modules beside it; workers have the same path
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(where(path, error)) from error
    cloudpickle.register_pickle_by_value(module)
    return module


def where(path: str, error: BaseException) -> str:
    """Describe an error in one line: file, line and message."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}"
    place = os.path.realpath(path)
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if os.path.realpath(frame.filename) == place]
    return f"{path}, line {mine[-1].lineno}: {what}" if mine else f"{path}: {what}"
