"""``hogwild report``: rebuilds the report of a comparison from its rows, on any machine, without training again.

``hogwild compare`` ends with the same report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hogwild.cli.display import Display, bar, clock
from hogwild.cli.options import Quiet
from hogwild.errors import UsageError

if TYPE_CHECKING:
    from hogwild.compare.report.page import Report
    from hogwild.compare.run.harness import Comparison, ComparisonProgress


def report(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR", show_default=False, help="What hogwild compare --out wrote; several stand side by side."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", show_default="DIR, if only one is given", help="Directory of the report."
        ),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make the report of one or more comparisons from their rows: verdict, tables, figures, a page."""
    if "" in (*directories, out):
        raise UsageError("'': expected the name of a directory")
    if out is None:
        if len(directories) > 1:
            raise UsageError(f"a report of {len(directories)} directories needs a place of its own: give --out DIR")
        out = directories[0]
    display = Display(sys.stdout, quiet)
    from hogwild.compare.report.page import write_report

    with display.live(lambda: "drawing"):
        made = write_report([Path(directory) for directory in directories], Path(out))
    show_report(display, made)
    if browse:
        import webbrowser

        webbrowser.open((Path(out) / "report.html").resolve().as_uri())


def follow(comparison: Comparison, out: str, display: Display) -> int:
    """Run the comparison, show the report, and return the exit status."""
    from hogwild.compare.report.page import write_report

    try:
        with display.live(lambda: progress_line(comparison.progress)):
            comparison.run(out)
    except KeyboardInterrupt:
        progress = comparison.progress
        display.say(f"\ninterrupted: {progress.done} of {progress.total} runs are in {out}; the same command goes on")
        return 130
    with display.live(lambda: "drawing"):
        report = write_report([Path(out)], Path(out))
    show_report(display, report)
    display.finish()
    return 0


def progress_line(progress: ComparisonProgress) -> str:
    """Return the live line of a comparison."""
    if not progress.total:
        return progress.label
    left = "" if progress.left is None else f"  about {clock(progress.left)} left"
    return f"{bar(progress.done / progress.total)} {progress.done}/{progress.total} runs{left}  {progress.label}"


def show_report(display: Display, report: Report) -> None:
    """Print the tables, then the verdict, which so stays on the screen, and the page's path."""
    if display.quiet:
        return
    for table in report.tables:
        display.table(table.title, zip(table.columns, table.texts, strict=True), table.rows)
        for line in (*table.notes, ""):
            display.say(line)
    for sentence in report.verdict:
        display.say(sentence)
    display.say("")
    for path in report.files:
        if path.name == "report.html":
            display.say(f"report: {path}")
