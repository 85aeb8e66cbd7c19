"""``hogwild bench``: how fast this machine trains on given data, with how many workers, and beside other programs.

Rows go to ``--json`` as they are measured and a section's table is printed even if it is interrupted, so nothing that
took minutes is lost.
"""

from __future__ import annotations

import itertools
import math
import shlex
import sys
import warnings
from contextlib import closing
from typing import Annotated, Any

import typer

from hogwild import machine
from hogwild.bench.rounds import QUICK_REPEATS, REPEATS, BenchPlan, Row
from hogwild.cli.display import Display
from hogwild.cli.options import Quiet, config_options, parse_numbers, takes
from hogwild.cli.sources import check_outputs, check_readable, chosen_problem
from hogwild.errors import HogwildWarning, UsageError, expected_one_of
from hogwild.methods import REAL_HOSTS
from hogwild.rows_file import RowsFile, Screen

MOST_WORKERS = 1024
WIDE = 0.25  # relative spread (interquartile range over the median) from which a figure is doubtful
SAME = 1.01  # ratio of objectives below which two runs have learned as much
#: (header, field, format) of the tables; a column is shown if a row has its field.
COLUMNS = (
    ("loss", "loss", ""),
    ("method", "method", ""),
    ("workers", "workers", ",d"),
    ("seconds", "seconds", ".4g"),
    ("spread", "spread", ".1%"),
    ("Mnnz/s", "millions", ",.0f"),
    ("M ratings/s", "millions of ratings", ",.1f"),
    ("speed-up", "speedup", ".2f"),
    ("objective", "objective", ".5f"),
    ("/ serial", "objective_ratio", ".4f"),
    ("effort", "effort", ",d"),
    ("held out", "held_out", ".5f"),
    ("target", "held_out_target", ".5f"),
    ("ours faster", "ours_faster", ".2f"),
)
MEASURED = ("linear", "completion")  # problems


@takes("problem loss rank cache")
def bench(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", show_default="generated text, clicks and ratings"),
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
    host: Annotated[
        str,
        typer.Option(help=f"Who runs the workers: {', '.join(REAL_HOSTS)}."),
    ] = "threads",
    quick: Annotated[bool, typer.Option("--quick", help="Smaller generated data and fewer rounds.")] = False,
    against: Annotated[bool, typer.Option("--against", help="Other programs too, where they are installed.")] = False,
    json: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Write rows here as JSON lines ('-': standard output).")
    ] = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Measure how fast this machine trains on DATA, whether more workers pay, and other programs beside it."""
    counts = parse_workers(workers)
    if host not in REAL_HOSTS:
        raise UsageError(f"--host {host}: {expected_one_of(REAL_HOSTS, host)}")
    check_outputs({"--json": json}, pipes=("--json",))
    from hogwild.bench.suite import GENERATED, SECTIONS, conditions, doubts, measure
    from hogwild.data.cache import Cache

    problem = options.pop("problem")
    sets = [(chosen_problem(problem, name), name) for name in data or GENERATED[quick]]
    for problem, name in sets:
        if problem not in MEASURED:
            raise UsageError(f"--problem {problem}: bench measures {' and '.join(MEASURED)}")
        check_readable(name, problem)
    display = Display(sys.stderr if json == "-" else Screen(sys.stdout) if json else sys.stdout, quiet)
    label = ["starting"]
    plan = BenchPlan(
        counts,
        repeats or (QUICK_REPEATS if quick else REPEATS),
        quick,
        against,
        host,
        {name: value for name, value in config_options(options).items() if value is not None},
        lambda text: label.__setitem__(0, text),
    )
    facts = conditions()
    display.say(f"{facts['cpu']}, {facts['cores']} cores (CPUs {facts['affinity']}), load {facts['load']}")
    for doubt in doubts(plan):
        warnings.warn(doubt, HogwildWarning, stacklevel=2)
    first = facts | {"command": shlex.join(["hogwild", *sys.argv[1:]])}
    with closing(RowsFile(json)) as rows_file:
        rows = measure(plan, sets, Cache(options["cache"]))
        for (name, section), group in itertools.groupby(rows, lambda row: (row["data"], row["section"])):
            done: list[Row] = []
            try:
                with display.live(lambda name=name: f"{name}: {label[0]}"):  # type: ignore[misc]
                    for row in group:
                        rows_file.write(row | first)
                        done.append(row)
                        first = {}
            finally:
                show(display, f"{name}: {SECTIONS[section]}", done)
                for count in counts[1:] if section == "scaling" else ():
                    say_best(display, count, done)
    display.finish()


def parse_workers(text: str | None) -> tuple[int, ...]:
    """Parse ``--workers 1,2,4`` into ascending numbers."""
    if text is None:
        return machine.worker_counts(machine.physical_cores())
    return parse_numbers("--workers", text, 1, MOST_WORKERS, int, "1,2,4")


def show(display: Display, title: str, rows: list[Row]) -> None:
    """Print one table, with the reasons of rows that have no figures."""
    full = [row | derived(row) for row in rows]
    columns = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in full)]
    cells = [
        ["-" if (value := row.get(field)) is None else format(value, form) for _, field, form in columns]
        for row in full
    ]
    heads = [(header, not form) for header, _, form in columns]
    if any(row["status"] != "ok" for row in rows):
        heads.append(("status", True))
        cells = [[*line, row["status"]] for line, row in zip(cells, rows, strict=True)]
    display.table(title, heads, cells)
    if doubtful := sum((row["spread"] or 0.0) > WIDE for row in full):
        display.say(f"warning: {doubtful} of these rows have a spread above {WIDE:.0%}: the machine was not quiet")


def say_best(display: Display, workers: int, rows: list[Row]) -> None:
    """Say whether so many workers pay: the fastest of them that has learned as much as one serial worker."""
    same = [
        row
        for row in rows
        if row["workers"] == workers and row.get("speedup") and (row.get("objective_ratio") or math.inf) < SAME
    ]
    if same:
        best = max(same, key=lambda row: row["speedup"])
        display.say(f"{workers} workers: {best['method']} is {best['speedup']:.2f} times as fast as one serial worker")


def derived(row: Row) -> Row:
    """Return what is shown of a row beside its fields: its spread, which tells how reliable it is, and rates."""
    spread = (row["seconds_q75"] - row["seconds_q25"]) / row["seconds"] if row.get("seconds") else None
    rates = {"millions": "nonzeros_per_second", "millions of ratings": "ratings_per_second"}
    return {"spread": spread} | {name: row[rate] / 1e6 for name, rate in rates.items() if row.get(rate)}
