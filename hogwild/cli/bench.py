"""``hogwild bench``: measures this machine, section by section, and prints a table for each.

Rows go to ``--json`` as they are measured and a section's table is printed even if it is interrupted, so nothing that
took minutes is lost.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from hogwild.bench.plan import QUICK_REPEATS, REPEATS, BenchPlan, data_names, doubling
from hogwild.bench.rounds import WIDE
from hogwild.bench.suite import ASKED_FOR, SECTIONS, chosen, conditions, doubts, section
from hogwild.cli.data.sources import check_outputs, check_readable
from hogwild.cli.display import Display
from hogwild.cli.options import Quiet, parse_numbers, takes
from hogwild.errors import HogwildError, HogwildWarning, UsageError, expected_one_of
from hogwild.json_rows import RowsFile
from hogwild.methods import REAL_HOSTS
from hogwild.screen import Screen

MOST_WORKERS = 1024
Format = Callable[[Any], str]


def _figure(form: str, scale: float = 1.0, unit: str = "") -> Format:
    return lambda value: "-" if value is None else f"{value * scale:{form}}{unit}"


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _file(value: Any) -> str:
    return os.path.basename(_text(value))


SECONDS, COUNT, TIMES, SHARE = _figure(".4g"), _figure(",.0f"), _figure(".2f", unit="x"), _figure(".1%")
MILLIONS, PLAIN = _figure(",.0f", 1e-6), _figure(".4g")
TIME: tuple[tuple[str, str, Format], ...] = (("seconds", "seconds", SECONDS), ("spread", "spread", SHARE))
SPEED = ("Mnnz/s", "nonzeros_per_second", MILLIONS)

# (header, field, format) of each section's table
COLUMNS: dict[str, tuple[tuple[str, str, Format], ...]] = {
    "streaming": (
        ("workers", "workers", COUNT),
        *TIME,
        SPEED,
        ("GB/s", "gigabytes_per_second", PLAIN),
        ("speed-up", "speedup", TIMES),
    ),
    "kernel": (
        ("data", "family", _text),
        ("loop", "loop", _text),
        ("order", "order", _text),
        *TIME,
        SPEED,
        ("of streaming", "share_of_streaming", SHARE),
    ),
    "wide": (
        ("features", "features", COUNT),
        ("kind", "kind", _text),
        ("discipline", "discipline", _text),
        ("workers", "workers", COUNT),
        ("numbering", "numbering", _text),
        *TIME,
        SPEED,
        ("objective", "objective", _figure(".5f")),
        ("faster", "faster", TIMES),
        ("of single runs", "of_single_runs", SHARE),
    ),
    "scaling": (
        ("data", "family", _text),
        ("discipline", "discipline", _text),
        ("workers", "workers", COUNT),
        *TIME,
        SPEED,
        ("speed-up", "speedup", TIMES),
        ("of streaming", "share_of_streaming", SHARE),
        ("objective", "objective", _figure(".5f")),
        ("/ serial", "objective_ratio", _figure(".4f")),
    ),
    "adds": (
        ("cells", "cells", COUNT),
        ("workers", "workers", COUNT),
        ("add", "add", _text),
        ("ns", "nanoseconds", _figure(".2f")),
        ("spread", "spread", SHARE),
        ("lost", "lost_share", _figure(".4%")),
    ),
    "merge": (
        ("coordinates", "coordinates", COUNT),
        ("workers", "workers", COUNT),
        *TIME,
        ("ns a coordinate", "nanoseconds", _figure(".2f")),
    ),
    "completion": (
        ("data", "data", _file),
        ("rank", "rank", COUNT),
        ("kind", "kind", _text),
        ("workers", "workers", COUNT),
        *TIME,
        ("M ratings/s", "ratings_per_second", MILLIONS),
        ("speed-up", "speedup", TIMES),
        ("epochs", "epochs", COUNT),
        ("held-out RMSE", "held_out_rmse", _figure(".4f")),
    ),
    "estimators": (
        ("data", "data", _file),
        ("classes", "classes", COUNT),
        ("solver", "solver", _text),
        ("n_jobs", "n_jobs", COUNT),
        *TIME,
        ("held-out loss", "held_out", _figure(".4f")),
        ("accuracy", "accuracy", SHARE),
        ("ours faster", "ours_faster", TIMES),
    ),
    "modules": (
        ("data", "data", _text),
        ("kind", "kind", _text),
        ("workers", "workers", COUNT),
        *TIME,
        ("samples/s", "samples_per_second", COUNT),
        ("ours faster", "speedup", TIMES),
        ("loss", "train_loss", _figure(".4f")),
    ),
    "parsing": (
        ("reader", "reader", _text),
        ("cores", "workers", COUNT),
        *TIME,
        ("MB/s", "megabytes_per_second", _figure(",.0f")),
        ("speed-up", "speedup", TIMES),
    ),
    "startup": (
        ("host", "host", _text),
        ("workers", "workers", COUNT),
        ("what", "what", _text),
        *TIME,
        ("of it evaluating", "evaluation_seconds", SECONDS),
    ),
    "memory": (
        ("data", "data", _text),
        ("data MB", "megabytes", _figure(",.0f")),
        ("peak MB of its own", "peak_megabytes", _figure(",.0f")),
    ),
    "against": (
        ("what", "what", _text),
        ("loss", "loss", _text),
        ("solver", "solver", _text),
        ("order", "order", _text),
        *TIME,
        ("effort", "effort", PLAIN),
        ("held-out loss", "held_out", _figure(".5f")),
        ("target", "held_out_target", _figure(".5f")),
        ("ours faster", "ours_faster", TIMES),
    ),
}


@takes("cache")
def bench(
    sections: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SECTION",
            help=f"Some of {', '.join(SECTIONS)}.",
            show_default=f"all but {' and '.join(sorted(ASKED_FOR))}",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            "-w",
            help="Numbers of workers, such as 1,2,4.",
            metavar="LIST",
            show_default="1, 2, 4 ... physical cores",
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds that count.", show_default=f"{REPEATS}, or {QUICK_REPEATS} with --quick"),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=100, help="Rows of each generated set.", show_default="beyond a core's cache")
    ] = None,
    host: Annotated[
        str,
        typer.Option(help=f"Who runs the workers: {', '.join(REAL_HOSTS)}."),
    ] = "threads",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller data and fewer rounds: within two minutes.")] = False,
    against: Annotated[bool, typer.Option("--against", help="Other programs too, where they are installed.")] = False,
    ratings: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Measure completion on these ratings too."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Measure estimators on these rows too."),
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Write rows here as JSON lines ('-': standard output).")
    ] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw speed-up against workers.")] = None,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Measure this machine: bandwidth, kernels, scaling, contention, parsing, start-up."""
    names = chosen(sections or [], against)
    counts = parse_workers(workers)
    if host not in REAL_HOSTS:
        raise UsageError(f"--host {host}: {expected_one_of(REAL_HOSTS, host)}")
    if plot is not None and "scaling" not in names:
        raise UsageError("--plot draws the section scaling: add it to the sections")
    check_outputs({"--json": json, "--plot": plot}, pipes=("--json",))
    if ratings is not None:
        check_readable(ratings, "completion")
    if data is not None:
        check_readable(data)
    kept = json is not None or plot is not None
    display = Display(sys.stderr if json == "-" else Screen(sys.stdout) if kept else sys.stdout, quiet)
    label = ["starting"]
    from hogwild.data.cache import Cache

    plan = BenchPlan(
        counts,
        repeats or (QUICK_REPEATS if quick else REPEATS),
        quick,
        against or "against" in names,
        host,
        data_names(quick, rows),
        Cache(given["cache"]),
        ratings,
        data,
        lambda text: label.__setitem__(0, text),
    )
    with contextlib.closing(RowsFile(json)) as rows_file:
        run(names, plan, display, rows_file, plot, label)
    display.finish()


def parse_workers(text: str | None) -> tuple[int, ...]:
    """Parse ``--workers 1,2,4`` into ascending numbers."""
    if text is None:
        from hogwild import machine

        return doubling(machine.physical_cores())
    return parse_numbers("--workers", text, 1, MOST_WORKERS, int, "1,2,4")


def run(
    names: list[str], plan: BenchPlan, display: Display, rows_file: RowsFile, plot: str | None, label: list[str]
) -> None:
    """Run the sections; whatever ends them, the measurements are shown, kept and drawn."""
    facts = conditions()
    display.say(f"{facts['cpu']}, {facts['cores']} cores (CPUs {facts['affinity']}), load {facts['load']}")
    for doubt in doubts(plan):
        warnings.warn(doubt, HogwildWarning, stacklevel=2)
    first: dict[str, Any] = facts | {"command": shlex.join(["hogwild", *sys.argv[1:]])}
    done: list[dict[str, Any]] = []
    try:
        for name in names:
            with shown(display, name, done), display.live(lambda name=name: f"{name}: {label[0]}"):  # type: ignore[misc]
                for row in follow(name, plan):
                    rows_file.write(row | first)
                    done.append(row)
                    first = {}
    finally:
        if plot is not None and any(row["section"] == "scaling" for row in done):
            from hogwild.bench.plot import draw

            draw(done, plot)
            display.say(f"speed-up drawn in {plot}")


def follow(name: str, plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield the rows of a section; one that cannot be measured ends with a row that gives the reason."""
    try:
        yield from section(name, plan)
    except HogwildError as error:
        yield {"section": name, "status": f"failed: {error}"}


@contextlib.contextmanager
def shown(display: Display, name: str, done: list[dict[str, Any]]) -> Iterator[None]:
    """Print the table of the rows measured inside the block."""
    before = len(done)
    try:
        yield
    finally:
        if rows := done[before:]:
            show(display, f"{name}: {SECTIONS[name]}", COLUMNS[name], rows)


def show(
    display: Display, title: str, columns: tuple[tuple[str, str, Format], ...], rows: list[dict[str, Any]]
) -> None:
    """Print one table, with the reasons of rows that have no figures."""
    notes = ["" if (note := row.get("status", "ok")) == "ok" else str(note) for row in rows]
    cells = [[form((row | {"spread": spread(row)}).get(field)) for _, field, form in columns] for row in rows]
    heads = [(header, form is _text) for header, _, form in columns]
    if any(notes):
        heads.append(("status", True))
        cells = [[*line, note] for line, note in zip(cells, notes, strict=True)]
    display.table(title, heads, cells)
    if doubtful := sum((spread(row) or 0.0) > WIDE for row in rows):
        display.say(f"warning: {doubtful} of these rows have a spread above {WIDE:.0%}: the machine was not quiet")


def spread(row: dict[str, Any]) -> float | None:
    """Interquartile range over the median, which tells how reliable a figure is."""
    if not row.get("seconds") or row.get("seconds_q25") is None:
        return None
    return (row["seconds_q75"] - row["seconds_q25"]) / row["seconds"]
