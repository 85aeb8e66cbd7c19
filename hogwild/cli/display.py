"""The display of a training run: one line of fixed columns an epoch, and a live line below while an epoch runs.

The lines are the same on a terminal, in a file and in a pipe, so they can be compared and cut. Only the live line,
which rich draws a few times a second from ``run.progress()``, needs a terminal. Drawing costs under 1 % of one core.
"""

from __future__ import annotations

import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import typer

from hogwild.rows_file import Screen, printable, to_json

# (header, field, width, format); a column is shown if the first row has its field
COLUMNS = (
    ("epoch", "epoch", 6, "g"),
    ("objective", "objective", 10, ".6g"),
    ("held out", "held_out_loss", 10, ".6g"),
    ("test loss", "test_loss", 10, ".6g"),
    ("test acc", "test_accuracy", 8, ".4f"),
    ("test auc", "test_auc", 8, ".4f"),
    ("test rmse", "test_rmse", 10, ".6g"),
    ("test mae", "test_mae", 10, ".6g"),
    ("p@10", "test_precision_at_10", 7, ".4f"),
    ("ndcg@10", "test_ndcg_at_10", 7, ".4f"),
    ("cut value", "cut_value", 12, ".8g"),
    ("virtual ms", "virtual_milliseconds", 10, ",.2f"),
    ("MB", "megabytes", 8, ",.3f"),
    ("stale mean", "staleness_mean", 10, ".2f"),
    ("stale max", "staleness_max", 9, "d"),
    ("lost", "lost_updates", 10, "d"),
    ("Mnnz/s", "nonzeros_per_second", 7, ".1f"),
    ("samples/s", "samples_per_second", 9, ".0f"),
    ("Mupd/s", "updates_per_second", 7, ".1f"),
    ("seconds", "train_seconds", 8, ".2f"),
)
SPEEDS = ("nonzeros_per_second", "updates_per_second", "samples_per_second")  # null in the row of epoch 0
REFRESHES = 5  # per second
BAR = 20  # width of the bar of an epoch
WIDE = 200  # columns of a table in a file
LINE = 100  # columns at which a fact is wrapped
NAME = 21  # columns of its name
UNBROKEN = "\0"  # a space at which no line is broken, until lines are
ENTRIES = 40  # most that are shown of a list; JSON has all of it


class Display:
    """Prints to ``stream``; draws the live line if that is a terminal; prints nothing at all if ``quiet``.

    A command whose results are kept elsewhere passes a :class:`Screen`, and calls :meth:`finish` once they are saved.
    """

    def __init__(self, stream: TextIO | Screen | None = None, quiet: bool = False) -> None:
        self.stream = cast("TextIO", stream or sys.stdout)
        self.quiet = quiet
        self.columns: list[tuple[str, str, int, str]] = []
        self._live: Any = None
        self._spent: dict[str, float] = {}  # virtual milliseconds and megabytes of the run so far

    @property
    def is_live(self) -> bool:
        return not self.quiet and self.stream.isatty()

    def say(self, line: str) -> None:
        """Print one line, above the live line if there is one."""
        if self.quiet:
            return
        line = printable(line)
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line), soft_wrap=True)
        else:
            print(f"{line}\n", end="", file=self.stream, flush=True)  # in one write: threads may say something at once

    def finish(self) -> None:
        """Raise the error that kept lines from being shown, if there was one."""
        if isinstance(self.stream, Screen):
            self.stream.settle()

    def row(self, row: dict[str, Any]) -> None:
        """Print the line of one epoch, and before the first the headers."""
        simulated = row.get("host") == "simulator"
        if simulated and row.get("replicas"):
            now = {"milliseconds": 1e3 * (row["virtual_seconds"] or 0), "megabytes": 1e-6 * (row["bytes_sent"] or 0)}
            spent = {name: value - self._spent.get(name, 0) for name, value in now.items()}
            row = row | {"virtual_milliseconds": spent["milliseconds"], "megabytes": spent["megabytes"]}
            self._spent = now
        if not self.columns:
            always = {name for name in (*SPEEDS, "train_seconds") if name in row}
            if simulated and (row.get("replicas") or 0) < row["workers"]:  # several workers race
                always |= {"staleness_mean", "staleness_max", "lost_updates"}
            hidden = {*SPEEDS, "train_seconds"} if simulated else set()  # the simulator's own speed is not theirs
            shown = {name for name, value in row.items() if value is not None} | always
            self.columns = [column for column in COLUMNS if column[1] in shown - hidden]
            self.say("  ".join(f"{header:>{width}}" for header, _, width, _ in self.columns))
        line = "  ".join(_cell(row.get(field), width, form) for _, field, width, form in self.columns)
        notes = [] if row.get("status", "ok") == "ok" else [str(row["status"])]
        if row.get("workers_lost"):
            notes.append(f"{row['workers_lost']} worker(s) lost")
        self.say("  ".join([line, *notes]))

    def table(self, title: str, columns: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; ``columns`` are names, and whether they hold words, which stand at the left, or figures."""
        if self.quiet:
            return
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        shown = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name, is_text in columns:
            shown.add_column(Text(name), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
        for row in rows:
            shown.add_row(*(Text(printable(cell)) for cell in row))
        console = Console(file=self.stream, highlight=False, markup=False)
        if not console.is_terminal:
            console.width = WIDE  # in a file lines are not wrapped
        with console.capture() as text:  # rich itself would end silently, as a failure, at a closed pipe
            console.print(shown)
        print(text.get(), end="", file=self.stream, flush=True)

    @contextmanager
    def live(self, draw: Callable[[], str]) -> Iterator[None]:
        """Show ``draw()``, refreshed from a thread, while the block runs."""
        if not self.is_live:
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        def renderable() -> Text:
            try:
                return Text(printable(draw()), overflow="crop", no_wrap=True)
            except Exception:  # a display must never end a run
                return Text("")

        console = Console(file=self.stream, highlight=False)
        live = Live(
            get_renderable=renderable,
            console=console,
            refresh_per_second=REFRESHES,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),  # so that warnings print above the line, not through it
        )
        with live:
            self._live = live
            try:
                yield
            finally:
                self._live = None


def _cell(value: Any, width: int, form: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return f"{'-':>{width}}"
    if form == ".1f":
        value = value / 1e6
    return f"{value:{width}{form}}"


def bar(fraction: float) -> str:
    full = round(min(max(fraction, 0.0), 1.0) * BAR)
    return "━" * full + "╌" * (BAR - full)


def clock(seconds: float) -> str:
    """Format ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def training_line(progress: Any, epochs: int, noun: str = "rows") -> str:
    """Return the live line of a run: examples done, speed, elapsed and remaining time of this epoch."""
    done, total = progress.rows_done, progress.rows_total
    seconds = progress.seconds
    share = done / total if total else 0.0
    line = f"epoch {min(progress.epoch + 1, epochs)}/{epochs} {bar(share)} {done:,}/{total:,} {noun}"
    if seconds > 0:
        work, unit = (progress.nonzeros, "Mnnz/s") if noun == "rows" else (done, f"M {noun}/s")
        speed = f"{work / seconds / 1e6:.1f} {unit}"
        line += f"  {speed}  {clock(seconds)} elapsed"
    if share >= 1:
        line += "  evaluating"
    elif share > 0:
        line += f"  {clock(seconds / share - seconds)} left"
    return line


class Reading:
    """The live line while data are read, generated or fetched; ``update`` is the reader's progress callback."""

    def __init__(self, name: str = "", verb: str = "") -> None:
        self.name = name
        self.verb = verb or ("generating" if name.startswith("synthetic:") else "reading")
        self.first = self.done = self.total = 0  # bytes, or rows that are generated
        self.start = time.monotonic()

    def update(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total or 0

    def step(self, name: str, done: int, total: int | None) -> None:
        """Go on with the next file, a resumed download of which begins with ``done`` bytes."""
        if name != self.name:
            self.name, self.first = name, done
            self.start = time.monotonic()
        self.update(done, total)

    def line(self) -> str:
        seconds = time.monotonic() - self.start
        times = f"{clock(seconds)} elapsed"
        if self.verb != "generating":  # whose progress is counted in rows
            times = f"{(self.done - self.first) / max(seconds, 1e-3) / 1e6:.0f} MB/s  {times}"
        if not self.total:
            return f"{self.verb} {self.name}  {times}"
        return f"{self.verb} {self.name} {bar(self.done / self.total)} {self.done / self.total:.0%}  {times}"


def show(facts: dict[str, Any], as_json: bool, lines: Callable[[dict[str, Any]], Iterable[str]] | None = None) -> None:
    """Print facts as one JSON object, or as the lines that are made of them."""
    for line in [to_json(facts)] if as_json else (lines or fact_lines)(facts):
        typer.echo(printable(line))


def fact_lines(facts: dict[str, Any], name_width: int = NAME, width: int = LINE) -> Iterator[str]:
    """Yield each fact, wrapped beside its name; titles with blanks may hold a user's names, and stay as they are."""
    for name, value in facts.items():
        title = name if " " in name else name.replace("_", " ")
        for line in textwrap.wrap(
            fact_text(value),
            width,
            initial_indent=f"{title:<{name_width - 1}} ",
            subsequent_indent=" " * name_width,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            yield line.replace(UNBROKEN, " ")


def fact_text(value: Any) -> str:
    """Format a number, a text, or a list or dictionary of them, in whose entries no line is broken."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, dict):
        value = [f"{key} {fact_text(entry)}" for key, entry in value.items()]
    if hasattr(value, "__len__") and not isinstance(value, str):
        rest = [f"and {len(value) - ENTRIES:,} more"] if len(value) > ENTRIES else []
        return ", ".join(fact_text(entry).replace(" ", UNBROKEN) for entry in [*value[:ENTRIES], *rest]) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return "-" if value is None else str(value)
