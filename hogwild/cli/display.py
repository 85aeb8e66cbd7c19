"""The display of a training run: one line of fixed columns an epoch, and a live line below while an epoch runs.

The lines are the same on a terminal, in a file and in a pipe, so they can be compared and cut. Only the live line,
which rich draws a few times a second from ``run.progress()``, needs a terminal. Drawing costs under 1 % of one core.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import typer

from hogwild.rows_file import Screen, printable, to_json

Column = tuple[str, str, int, str, float]  # header, field, width, format, unit
#: Columns of a training run; one is shown if the first row has its field.
COLUMNS: tuple[Column, ...] = (
    ("epoch", "epoch", 6, "g", 1),
    ("objective", "objective", 10, ".6g", 1),
    ("held out", "held_out_loss", 10, ".6g", 1),
    ("test loss", "test_loss", 10, ".6g", 1),
    ("test acc", "test_accuracy", 8, ".4f", 1),
    ("test auc", "test_auc", 8, ".4f", 1),
    ("micro F1", "test_f1_micro", 8, ".4f", 1),
    ("macro F1", "test_f1_macro", 8, ".4f", 1),
    ("test rmse", "test_rmse", 10, ".6g", 1),
    ("test mae", "test_mae", 10, ".6g", 1),
    ("p@10", "test_precision_at_10", 7, ".4f", 1),
    ("ndcg@10", "test_ndcg_at_10", 7, ".4f", 1),
    ("cut value", "cut_value", 12, ".8g", 1),
    ("virtual s", "virtual_seconds", 10, ".4g", 1),
    ("MB sent", "bytes_sent", 8, ",.3f", 1e6),
    ("stale mean", "staleness_mean", 10, ".2f", 1),
    ("stale max", "staleness_max", 9, "d", 1),
    ("lost", "lost_updates", 10, "d", 1),
    ("Mnnz/s", "nonzeros_per_second", 7, ".1f", 1e6),
    ("Mupd/s", "updates_per_second", 7, ".1f", 1e6),
    ("seconds", "train_seconds", 8, ".2f", 1),
)
SPEEDS = ("nonzeros_per_second", "updates_per_second")  # null in the row of epoch 0, as what the simulator counts
COUNTED = ("staleness_mean", "staleness_max", "lost_updates")
REFRESHES = 5  # per second
BAR = 20  # width of the bar of an epoch
LINE = 100  # columns at which a fact is wrapped
NAME = 21  # columns of its name
ENTRIES = 40  # most that are shown of a list; JSON has all of it


class Display:
    """Prints to ``stream``; draws the live line if that is a terminal; prints nothing at all if ``quiet``.

    A command whose results are kept elsewhere passes a :class:`Screen`, and calls :meth:`finish` once they are saved.
    """

    def __init__(self, stream: TextIO | Screen | None = None, quiet: bool = False) -> None:
        self.stream = cast("TextIO", stream or sys.stdout)
        self.quiet = quiet
        self._shown: list[Column] = []
        self._live: Any = None

    @property
    def is_live(self) -> bool:
        return not self.quiet and self.stream.isatty()

    def say(self, *lines: str) -> None:
        """Print lines, above the live line if there is one."""
        for line in map(printable, () if self.quiet else lines):
            if self._live is not None:
                from rich.text import Text

                self._live.console.print(Text(line), soft_wrap=True)
            else:
                print(f"{line}\n", end="", file=self.stream, flush=True)  # in one write: threads may say something too

    def finish(self) -> None:
        """Raise the error that kept lines from being shown, if there was one."""
        if isinstance(self.stream, Screen):
            self.stream.settle()

    def row(self, row: dict[str, Any]) -> None:
        """Print the line of one row, and before the first the headers."""
        if not self._shown:
            simulated = row.get("host") == "simulator"  # whose own speed is not that of the workers it plays
            shown = {name for name, value in row.items() if value is not None}
            shown = shown - {"train_seconds"} | {*COUNTED} if simulated else shown | {*SPEEDS} & row.keys()
            self._shown = [column for column in COLUMNS if column[1] in shown]
            self.say("  ".join(f"{header:>{width}}" for header, _, width, *_ in self._shown))
        cells = [
            f"{'-':>{width}}"
            if (value := row.get(field)) is None or value != value  # NaN
            else f"{value / unit if unit > 1 else value:>{width}{form}}"
            for _, field, width, form, unit in self._shown
        ]
        cells += [row["status"]] * (row.get("status", "ok") != "ok")
        if row.get("workers_lost"):
            cells.append(f"{row['workers_lost']} worker(s) lost")
        self.say("  ".join(cells))

    def table(self, title: str, columns: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; ``columns`` are names, and whether they hold words, which stand at the left, or figures."""
        names, words = zip(*columns)
        cells = [names, *([printable(cell) for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        self.say(title)
        for line in cells:
            parts = (f"{cell:{'<' if text else '>'}{width}}" for cell, text, width in zip(line, words, widths))
            self.say("  ".join(parts).rstrip())
        self.say("")

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

        self._live = Live(
            get_renderable=renderable,
            console=Console(file=self.stream, highlight=False),
            refresh_per_second=REFRESHES,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),  # so that warnings print above the line, not through it
        )
        try:
            with self._live:
                yield
        finally:
            self._live = None


def bar(fraction: float) -> str:
    full = round(min(max(fraction, 0.0), 1.0) * BAR)
    return "━" * full + "╌" * (BAR - full)


def clock(seconds: float) -> str:
    """Format ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def training_line(progress: Any, epochs: int, noun: str = "rows") -> str:
    """Return the live line of a run: examples done, elapsed and remaining time of this epoch."""
    done, total, seconds = progress.rows_done, progress.rows_total, progress.seconds
    share = done / total if total else 0.0
    rest = "evaluating" if share >= 1 else f"{clock(seconds / share - seconds)} left" if share else ""
    line = f"epoch {min(progress.epoch + 1, epochs)}/{epochs} {bar(share)} {done:,}/{total:,} {noun}"
    return f"{line}  {clock(seconds)} elapsed  {rest}".rstrip()


class Reading:
    """The live line while data are read, generated or fetched; ``update`` is the reader's progress callback."""

    def __init__(self, name: str = "", verb: str = "") -> None:
        self.name = name
        self.verb = verb or ("generating" if name.startswith("synthetic:") else "reading")
        self.share = 0.0
        self.done = 0  # bytes of a source whose end nobody knows
        self.start = time.monotonic()

    def update(self, done: int, total: int | None) -> None:
        self.share = done / total if total else 0.0
        self.done = 0 if total else done

    def step(self, name: str, done: int, total: int | None) -> None:
        """Go on with the next file."""
        if name != self.name:
            self.name, self.start = name, time.monotonic()
        self.update(done, total)

    def line(self) -> str:
        part = f" {bar(self.share)} {self.share:.0%}" if self.share else ""
        part = f" {self.done / 1e6:,.0f} MB" if self.done else part
        return f"{self.verb} {self.name}{part}  {clock(time.monotonic() - self.start)} elapsed"


def show(facts: dict[str, Any], as_json: bool, lines: Callable[[dict[str, Any]], Iterable[str]] | None = None) -> None:
    """Print facts as one JSON object, or as the lines that are made of them."""
    for line in [to_json(facts)] if as_json else (lines or fact_lines)(facts):
        typer.echo(printable(line))


def fact_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield each fact, wrapped beside its name; titles with blanks may hold a user's names, and stay as they are."""
    for name, value in facts.items():
        title = name if " " in name else name.replace("_", " ")
        yield from textwrap.wrap(
            fact_text(value),
            LINE,
            initial_indent=f"{title:<{NAME - 1}} ",
            subsequent_indent=" " * NAME,
            break_long_words=False,
            break_on_hyphens=False,
        )


def fact_text(value: Any) -> str:
    """Format a number, a text, or a list or dictionary of them."""
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, dict):
        value = [f"{key} {fact_text(entry)}" for key, entry in value.items()]
    if isinstance(value, list | tuple):
        rest = [f"and {len(value) - ENTRIES:,} more"] * (len(value) > ENTRIES)
        return ", ".join(map(fact_text, [*value[:ENTRIES], *rest])) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.6g}"
    return "-" if value is None else str(value)
