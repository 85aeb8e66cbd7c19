"""``hogwild bench``: how fast this machine trains on given data, and whether another worker pays.

Rows are printed, and go to ``--json``, as they are measured, so nothing that took minutes is lost.
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
MOST_WORKERS = 1024
HIGH_LOAD = 0.5  # other runnable processes from which figures are doubtful
SAME = 1.01  # ratio of objectives below which two runs have learned as much
#: Columns of the table, as in ``hogwild.cli.display``. A spread above a quarter says that the machine was not quiet.
COLUMNS = (
    ("method", "method", 11, "", 1),
    ("workers", "workers", 7, "d", 1),
    ("seconds", "seconds", 9, ".4g", 1),
    ("spread", "spread", 7, ".1%", 1),
    ("Mnnz/s", "nonzeros_per_second", 8, ".1f", 1e6),
    ("Mratings/s", "ratings_per_second", 10, ".2f", 1e6),
    ("speed-up", "speedup", 8, ".2f", 1),
    ("objective", "objective", 9, ".5f", 1),
    ("/ serial", "objective_ratio", 8, ".4f", 1),
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
    stream = sys.stderr if json == "-" else Screen(sys.stdout) if json else sys.stdout
    first = machine.machine_fields() | {"command": shlex.join(["hogwild", *sys.argv[1:]])}
    Display(stream, quiet).say(f"{first['cpu']}, {first['cores']} cores, load {first['load']}")
    warn(counts[-1])
    from hogwild.bench import measure

    doing = [""]
    with closing(RowsFile(json)) as rows_file:
        for sources in sets:
            display = Display(stream, quiet, COLUMNS)
            examples = sources.open(display=display)
            display.say(f"{sources.name}: an epoch of every discipline")
            given = config_options(options | {"problem": sources.problem, "host": host})
            same: dict[int, dict[str, Any]] = {}  # by the number of workers, the fastest that has learned as much
            with display.live(lambda: doing[0]):
                for row in measure(examples, counts, repeats, lambda text: doing.__setitem__(0, text), **given):
                    size = {KINDS[sources.problem].noun: len(examples), "nonzeros": examples.nnz}
                    rows_file.write(row | {"data": sources.name} | size | first)
                    display.row(row)
                    first = {}
                    fastest = same.get(row["workers"], {}).get("speedup", 0.0)
                    if (row["objective_ratio"] or math.inf) < SAME and (row["speedup"] or 0.0) > fastest:
                        same[row["workers"]] = row
            for count, row in same.items():
                if count > 1:
                    pays = f"{row['method']} is {row['speedup']:.2f} times as fast as one serial worker"
                    display.say(f"{count} workers: {pays}")
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
