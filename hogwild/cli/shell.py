"""Shell completion beyond commands and options: choices, data sets by name, methods; and the shell's interface.

The shell's script, which ``hogwild --show-completion`` prints, runs the program with ``_HOGWILD_COMPLETE`` set; typer
answers. Without suggestions the shell completes files. Nothing heavy is imported, since an answer must come within a
keystroke.
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import shlex
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import typer

VARIABLE = "_HOGWILD_COMPLETE"


def answer(command: Any) -> int:
    """Print completions of the line that the shell passes in the environment; return the exit status."""
    before, status = _whole_words(os.environ), 0
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            command.main([], "hogwild")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except Exception:  # an error message would appear in the middle of the line being typed
            status = 1
    for line in shown.getvalue().splitlines():
        typer.echo(line.removeprefix(before))
    return status


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Rejoin words that bash split at ``:`` and ``=``; return the part of the last one that bash already has."""
    if "COMP_WORDS" not in environment or not environment.get("COMP_CWORD", "").isdecimal():
        return ""
    count = int(environment["COMP_CWORD"]) + 1
    words = [*environment["COMP_WORDS"].split("\n"), ""][:count]
    whole: list[str] = []
    for word, previous in zip(words, ["", *words]):
        if whole and any(re.fullmatch("[:=]+", part) for part in (word, previous)):
            whole[-1] += word
        else:
            whole.append(word)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(whole), str(len(whole) - 1)
    last = "" if re.fullmatch("[:=]+", words[-1]) else words[-1]
    return re.sub("^-[^=]*=", "", whole[-1].removesuffix(last))  # a value is answered without its option


def among(names: Iterable[str | None]) -> Callable[[], list[str]]:
    """Return a completer of a few names."""
    return lambda: [name for name in names if name is not None]


def methods(incomplete: str) -> list[str]:
    """Complete the last name in a list of methods."""
    from hogwild.compare.run.methods import METHODS

    before = incomplete[: incomplete.rfind(",") + 1]
    return [before + name for name in METHODS]


def data_sets(incomplete: str) -> list[str]:
    """Complete the name of a data set of the catalogue; after a complete name also its parts."""
    from hogwild.data.public.catalogue import cards

    known = cards().values()
    parts = [card.title_of(role) for card in known if incomplete.startswith(card.name) for role in card.roles]
    return [*(card.name for card in known), *parts]


def data(incomplete: str) -> list[str]:
    """Complete data sets and generated data, and matching files, which the shell would then leave out."""
    from hogwild.data.graphs.synthetic import FAMILIES as GRAPHS
    from hogwild.data.ratings.synthetic import FAMILIES as RATINGS
    from hogwild.data.rows.synthetic import FAMILIES
    from hogwild.data.synthetic import PREFIX

    generated = [PREFIX + family for family in (*FAMILIES, *RATINGS, *GRAPHS)]
    found = [name for name in [*data_sets(incomplete), *generated] if name.startswith(incomplete)]
    here = sorted(glob.glob(glob.escape(incomplete) + "*")) if found else []
    return found + [f"{name}{os.sep * os.path.isdir(name)}" for name in here if shlex.quote(name) == name]
