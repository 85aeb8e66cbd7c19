"""``hogwild bench``: how fast this machine trains on given data, and whether another worker pays.

Rows go to ``--json`` as they are measured and a table is printed even if it is interrupted, so nothing that took
minutes is lost.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import warnings
from contextlib import closing
from typing import Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.display import Display
from hogwild.cli.options import Quiet, config_options, parse_numbers, takes
from hogwild.cli.sources import KINDS, Sources, check_outputs
from hogwild.errors import HogwildWarning, UsageError, expected_one_of
from hogwild.methods import REAL_HOSTS
from hogwild.rows_file import RowsFile, Screen

MEASURED = ("linear", "completion")  # problems
GENERATED = "synthetic:rcv1?rows=200000"  # more than a core's own cache holds: fitting data answer another question
HELD_OUT = 0.1
MOST_WORKERS = 1024
HIGH_LOAD = 0.5  # other runnable processes from which figures are doubtful
WIDE = 0.25  # relative spread (interquartile range over the median) from which a figure is doubtful
SAME = 1.01  # ratio of objectives below which two runs have learned as much
#: (header, field, format) of the table; a column is shown if a row has its field.
COLUMNS = (
    ("method", "method", ""),
    ("workers", "workers", ",d"),
    ("seconds", "seconds", ".4g"),
    ("spread", "spread", ".1%"),
    ("millions/s", "millions", ",.1f"),
    ("speed-up", "speedup", ".2f"),
    ("objective", "objective", ".5f"),
    ("/ serial", "objective_ratio", ".4f"),
    ("held out", "held_out", ".5f"),
    ("status", "status", ""),
)


@takes("problem loss rank penalty cache")
def bench(
    data: Annotated[list[str] | None, typer.Argument(metavar="DATA", show_default=GENERATED)] = None,
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
    repeats: Annotated[int, typer.Option(min=1, help="Rounds that count.")] = 9,
    host: Annotated[str, typer.Option(help=f"Who runs the workers: {', '.join(REAL_HOSTS)}.")] = "threads",
    json: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Write rows here as JSON lines ('-': standard output).")
    ] = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Measure how fast this machine trains on DATA, and whether more workers pay."""
    counts = parse_workers(workers)
    if host not in REAL_HOSTS:
        raise UsageError(f"--host {host}: {expected_one_of(REAL_HOSTS, host)}")
    check_outputs({"--json": json}, pipes=("--json",))
    sets = [Sources(dict(options), name) for name in data or [GENERATED]]
    for each in sets:
        if each.problem not in MEASURED:
            raise UsageError(f"--problem {each.problem}: bench measures {' and '.join(MEASURED)}")
    display = Display(sys.stderr if json == "-" else Screen(sys.stdout) if json else sys.stdout, quiet)
    first = machine.machine_fields() | {"command": shlex.join(["hogwild", *sys.argv[1:]])}
    display.say(f"{first['cpu']}, {first['cores']} cores, load {first['load']}")
    warn(counts[-1])
    from hogwild.bench import measure

    label = ["opening"]
    with closing(RowsFile(json)) as rows_file:
        for sources in sets:
            name, kind = sources.name, sources.problem
            train, test = sources.open(display=display).split(HELD_OUT)
            given = config_options(options | {"problem": kind, "host": host})
            done: list[dict[str, Any]] = []
            try:
                with display.live(lambda name=name: f"{name}: {label[0]}"):  # type: ignore[misc]
                    for row in measure(train, test, counts, repeats, lambda text: label.__setitem__(0, text), **given):
                        row |= {"data": name, KINDS[kind].noun: len(train), "nonzeros": train.nnz} | first
                        rows_file.write(row)
                        done.append(row)
                        first = {}
            finally:
                if done:
                    show(display, f"{name}: an epoch of every discipline", done)
            for count in counts[1:]:
                say_best(display, count, done)
    display.finish()


def parse_workers(text: str | None) -> tuple[int, ...]:
    """Parse ``--workers 1,2,4`` into ascending numbers."""
    if text is None:
        return machine.worker_counts(machine.physical_cores())
    return parse_numbers("--workers", text, 1, MOST_WORKERS, int, "1,2,4")


def warn(workers: int) -> None:
    """Warn of what makes measurements here and now unreliable."""
    load, cores = os.getloadavg()[0], machine.physical_cores()
    for doubtful, doubt in (
        (load > HIGH_LOAD, f"the load is {load:.2f}: figures taken beside other work are worth little"),
        (workers > cores, f"{workers} workers share {cores} cores: those rows time the scheduler"),
    ):
        if doubtful:
            warnings.warn(doubt, HogwildWarning, stacklevel=2)


def show(display: Display, title: str, rows: list[dict[str, Any]]) -> None:
    """Print the table of the rows, with the spread of each, which tells how reliable it is."""
    for row in rows:
        if row["seconds"]:
            row["spread"] = (row["seconds_q75"] - row["seconds_q25"]) / row["seconds"]
            row["millions"] = (row.get("nonzeros_per_second") or row["ratings_per_second"]) / 1e6
    columns = [column for column in COLUMNS if any(row.get(column[1]) not in (None, "ok") for row in rows)]
    cells = [
        ["-" if (value := row.get(field)) is None else format(value, form) for _, field, form in columns]
        for row in rows
    ]
    display.table(title, [(header, not form) for header, _, form in columns], cells)
    if doubtful := sum(row.get("spread", 0.0) > WIDE for row in rows):
        display.say(f"warning: {doubtful} of these rows have a spread above {WIDE:.0%}: the machine was not quiet")


def say_best(display: Display, workers: int, rows: list[dict[str, Any]]) -> None:
    """Say whether so many workers pay: the fastest of them that has learned as much as one serial worker."""
    same = [row for row in rows if row["workers"] == workers and (row.get("objective_ratio") or math.inf) < SAME]
    if same:
        best = max(same, key=lambda row: row["speedup"] or 0.0)
        display.say(f"{workers} workers: {best['method']} is {best['speedup']:.2f} times as fast as one serial worker")
