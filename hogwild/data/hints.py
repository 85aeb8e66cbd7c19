"""Hints for a table without names and for a file name that does not exist.

Only the ends of error messages are made here, after an error, so a run without errors pays nothing.
"""

from __future__ import annotations

import os

from hogwild.data.beside import beside
from hogwild.data.public.catalogue import near
from hogwild.data.text.delimited import is_number


def of_columns(names: list[str]) -> str:
    """Return a hint if the first line of a table holds numbers and no names."""
    return "; a line of names belongs above" if all(map(is_number, names)) else ""


def missing(name: str) -> str:
    """Return ``: did you mean data.gz?`` for a missing file, or say which of its directories is missing."""
    if name == "-":
        return ": standard input is /dev/stdin"
    folder, base = os.path.split(name)
    if folder and not os.path.isdir(folder):
        while not os.path.exists(parent := os.path.dirname(folder) or os.curdir):
            folder = parent
        return f": there is no directory {folder}{beside(*os.path.split(folder))}"
    return beside(folder, base) or ("" if folder else near(base))
