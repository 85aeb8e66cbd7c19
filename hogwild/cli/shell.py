"""What a shell is offered beyond commands and options: choices, data sets by name, methods; and how it asks.

The shell's script, which ``hogwild --show-completion`` prints, runs the program with ``_HOGWILD_COMPLETE`` set; typer
answers. Where nothing is offered the shell goes on with files. Nothing heavy is imported: an answer must come while a
finger is on the key.
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

from hogwild.config import PROBLEMS

VARIABLE = "_HOGWILD_COMPLETE"


def answer(command: Any) -> int:
    """Print what the line that the shell shows in the environment can go on with; the exit status."""
    before, status = _whole_words(os.environ), 0
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            command.main([], "hogwild")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except Exception:  # an error message would stand in the middle of the line that is being typed
            status = 1
    for line in shown.getvalue().splitlines():
        typer.echo(line.removeprefix(before))
    return status


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Put words together that bash took apart at ``:`` and ``=``; what it has already of the last one."""
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
    """Completes one of a few names."""
    return lambda: [name for name in names if name is not None]


def of_problem(option: str) -> Callable[[typer.Context], list[str]]:
    """Completes a choice that hangs on the problem: that of ``--problem``, or that the data's name tells of."""

    def complete(context: typer.Context) -> list[str]:
        from hogwild.cli.containers import problem_of

        given = context.params
        name = given.get("data") or next(iter(context.args), "")  # where it stays while an option lacks its value
        problem = given.get("problem") or problem_of(name, given.get("format"))
        if given.get("model"):  # of hogwild compare
            problem = "module"
        return [name for name in PROBLEMS.get(problem, {}).get(option, ()) if name != "custom"]

    return complete


def methods(incomplete: str) -> list[str]:
    """Completes the last of a list of methods."""
    from hogwild.compare.methods import METHODS

    before = incomplete[: incomplete.rfind(",") + 1]
    return [before + name for name in METHODS]


def data_sets(incomplete: str) -> list[str]:
    """Completes the name of a data set of the catalogue; of one that is complete also its parts."""
    from hogwild.data.catalogue import cards

    known = cards().values()
    parts = [card.title_of(role) for card in known if incomplete.startswith(card.name) for role in card.roles]
    return [*(card.name for card in known), *parts]


def data(incomplete: str) -> list[str]:
    """Completes data: a data set, or generated data; with files of that name, which the shell would then leave out."""
    from hogwild.data.graph_synthetic import FAMILIES as GRAPHS
    from hogwild.data.rating_synthetic import FAMILIES as RATINGS
    from hogwild.data.synthetic import FAMILIES, PREFIX

    generated = [PREFIX + family for family in (*FAMILIES, *RATINGS, *GRAPHS)]
    found = [name for name in [*data_sets(incomplete), *generated] if name.startswith(incomplete)]
    here = sorted(glob.glob(glob.escape(incomplete) + "*")) if found else []
    return found + [f"{name}{os.sep * os.path.isdir(name)}" for name in here if shlex.quote(name) == name]
