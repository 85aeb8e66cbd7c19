"""Writes the reference pages from the code before Sphinx reads its sources: a page a command, a list of public names.

Nothing here is a list of commands, options or names: the commands are those of the program (``hogwild.cli.app``), and
the names are those of ``hogwild.__all__``. The pages lie in ``docs/reference/``, which git ignores. A page is only
written when it has changed, so that a second build is quick.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import hogwild
from hogwild.cli import app as program
from hogwild.cli.sources import KINDS

#: Public functions that are reached by the name of their module, and are used in the guide.
BEYOND = (
    "hogwild.problems.linear.options.LinearConfig",
    "hogwild.problems.fm.options.FMConfig",
    "hogwild.problems.fm.options.FFMConfig",
    "hogwild.problems.completion.options.CompletionConfig",
    "hogwild.problems.cuts.options.CutsConfig",
    "hogwild.problems.module.options.ModuleConfig",
    "hogwild.training.engine.start_pool",
    "hogwild.interchange.export_model",
    "hogwild.data.text.hashing.hash_rows",
)


def write(app: Any, _: Any = None) -> None:
    """Write all generated pages below the sources' folder ``reference``."""
    place = Path(app.srcdir) / "reference"
    pages = {"api.rst": api_page()}
    commands = list(walk(typer.main.get_command(program), "hogwild"))
    for name, command in commands:
        pages[f"commands/{page_of(name)}.rst"] = command_page(name, command)
    pages["commands/index.rst"] = command_index(commands)
    (place / "commands").mkdir(parents=True, exist_ok=True)
    for old in (place / "commands").glob("*.rst"):  # of a command that is gone
        if f"commands/{old.name}" not in pages:
            old.unlink()
    for name, text in pages.items():
        if not (place / name).exists() or (place / name).read_text() != text:
            (place / name).write_text(text)


# ---- commands


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """``(full name, command)`` of a command and of all that it holds."""
    if hasattr(command, "show"):  # the options of each problem
        for problem in KINDS:
            shown = copy.copy(command)
            shown.show(problem)
            yield name if problem == "linear" else f"{name} --problem {problem}", shown
    else:
        yield name, command
    for each, below in getattr(command, "commands", {}).items():
        yield from walk(below, f"{name} {each}")


def page_of(name: str) -> str:
    """File name, without its ending, of a command's page."""
    return name.replace(" ", "-")


def heading(text: str, mark: str) -> list[str]:
    return [text, mark * len(text), ""]


def plain(text: str) -> str:
    """Text in which reStructuredText sees no markup."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))


def paragraphs(text: str) -> list[str]:
    """A command's help as paragraphs; indented lines stay as they are, as examples."""
    lines = []
    for part in inspect.cleandoc(text.replace("\b", "")).split("\n\n"):
        if part.startswith(" "):
            lines += ["::", "", *("    " + line for line in part.splitlines()), ""]
        else:
            lines += [plain(part), ""]
    return lines


def command_page(name: str, command: Any) -> str:
    """The page of one command: its help, its arguments and its options in the groups that ``--help`` shows."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f".. program:: {name}", "", *heading(name, "="), *paragraphs(command.help or "")]
    lines += [".. code-block:: text", "", f"    {usage}", ""]
    for each in getattr(command, "commands", {}):
        lines.append(f"* :doc:`{name} {each} <{page_of(f'{name} {each}')}>`")
    lines.append("")
    groups: dict[str, list[list[str]]] = {}
    for parameter in command.get_params(context):
        parameter.hidden = False  # the help leaves what is rarely needed to this page
        record = parameter.get_help_record(context)
        if record is None:
            continue
        usual = "Options" if parameter.param_type_name == "option" else "Arguments"
        group = getattr(parameter, "rich_help_panel", None) or usual
        entry = [f".. option:: {record[0].replace(' / ', ', ')}", "", f"    {plain(record[1])}", ""]
        groups.setdefault(group, []).append(entry)
    for group, entries in groups.items():
        lines += heading(group, "-")
        for entry in entries:
            lines += entry
    return "\n".join(lines)


def command_index(commands: list[tuple[str, Any]]) -> str:
    """A table of the commands with the first sentence of each one's help."""
    lines = heading("Commands", "=")
    lines += ["Every command with its options, as ``--help`` shows them. This page is made from the program.", ""]
    lines += [".. list-table::", "   :widths: 30 70", ""]
    for name, command in commands:
        first = re.split(r"(?<=[.:])\s", " ".join((command.help or "").split()))[0].rstrip(":")
        lines += [f"   * - :doc:`{name} <{page_of(name)}>`", f"     - {plain(first)}"]
    lines += ["", ".. toctree::", "   :hidden:", ""]
    lines += [f"   {page_of(name)}" for name, _ in commands]
    return "\n".join([*lines, ""])


# ---- names


def api_page() -> str:
    """The public names in groups, with a page each."""
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors and warnings": []}
    others = []
    for name in hogwild.__all__:
        value = getattr(hogwild, name)
        if inspect.isclass(value):
            groups["Errors and warnings" if issubclass(value, Exception) else "Classes"].append(f"hogwild.{name}")
        elif callable(value):
            groups["Functions"].append(f"hogwild.{name}")
        else:
            others.append(name)
    groups["By the name of their module"] = list(BEYOND)
    lines = heading("Python", "=")
    lines += ["All public names of the package. This page is made from ``hogwild.__all__``; every name has a page.", ""]
    for title, names in groups.items():
        lines += [*heading(title, "-"), ".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        lines += [f"   {name}" for name in names] + [""]
    lines += heading("Values", "-")
    for name in others:
        lines += [f".. py:data:: hogwild.{name}", "", "   The package's version, a string.", ""]
    return "\n".join(lines)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx: the pages must be there before the environment looks for documents."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True}
