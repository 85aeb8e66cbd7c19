"""``hogwild compare``: methods on the same data, with the same objective and clock; a report and a verdict in words.

The rows go to disk cell by cell, so after Ctrl-C the same command continues. The report is then made from them alone,
as ``hogwild report`` does it on any machine, without training again.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.display import Display, bar, clock
from hogwild.cli.options import MINIMISED, RESULTS, SOURCES, Quiet, config_options, parse_numbers, takes
from hogwild.cli.sources import DEFAULT_HOLDOUT, KINDS, Sources, check_writable
from hogwild.config import DEVICES, Option, TrainConfig, choice
from hogwild.errors import UsageError, naming
from hogwild.hosts import fork_server
from hogwild.methods import REAL_HOSTS
from hogwild.rows_file import Screen

if TYPE_CHECKING:
    from hogwild.compare.run.harness import ComparisonProgress
    from hogwild.compare.run.plan import ComparisonPlan

EPOCHS, EPOCHS_OF_CUTS = 10, 50
EPS = "1e-1,1e-2,1e-3"
#: Where the best objective seen stands in for the optimum, it is the end of a run, so the last digits are its noise.
EPS_OF_SEEN = "2e-1,1e-1,5e-2"
MOST_WORKERS = 1024
WHAT = "What is compared"
OWN = "methods workers seeds epochs eps steps timeout"


@takes(
    f"{OWN} {SOURCES} {MINIMISED} schedule decay power adagrad order seed host delay link device in_flight out quiet",
    methods=Option(
        "Methods, such as hogwild,locked.",
        WHAT,
        metavar="LIST",
        usual="all that the problem has",
    ),
    workers=Option(
        "Numbers of workers, such as 1,2,4.",
        WHAT,
        names=("--workers", "-w"),
        metavar="LIST",
        usual="1, 2, 4 ... physical cores; replicas on a GPU: 1",
    ),
    seeds=Option("Repeats of everything, each with its own order of the rows.", WHAT, kind=int, default=5),
    epochs={
        "panel": WHAT,
        "help": "Passes over the data.",
        "usual": f"{EPOCHS}; for cuts {EPOCHS_OF_CUTS}",
    },
    eps=Option(
        "Targets: shares of the way to the optimum, or to the best seen, that may be left.",
        WHAT,
        metavar="LIST",
        usual=f"{EPS}; of problems whose optimum is unknown {EPS_OF_SEEN}",
    ),
    steps=Option(
        "Steps that every method is tuned over; one: no tuning; 'auto': around the step that is probed for.",
        WHAT,
        metavar="LIST",
        default="auto",
    ),
    timeout=Option(
        "Time of training after which a run is stopped.",
        WHAT,
        kind=float,
        metavar="SECONDS",
        least=0.1,
        default=600.0,
    ),
    test={"help": "Data to test on."},
    holdout={
        "help": "Fraction of DATA to hold out and test on; 0: none.",
        "usual": f"{DEFAULT_HOLDOUT} without --test",
    },
    seed={"help": "First seed, and that of the hold-out.", "default": 0, "usual": ""},
    device={"default": "cpu", "usual": ""},
    host={"default": REAL_HOSTS[0], "usual": REAL_HOSTS[0]},
    delay={"help": "The simulator's delay law: see hogwild simulate."},
    link={"help": "The link between virtual replicas: see hogwild simulate."},
    out=Option(
        "Directory of the results; a comparison begun there goes on.",
        RESULTS,
        names=("--out", "-o"),
        metavar="DIR",
        default="comparison",
    ),
)
def compare(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=KINDS["linear"].default,
            help="As for train.",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Compare lock-free training with locks, turns, averaging and other programs, or a GPU's ways, on DATA."""
    from hogwild.compare.run.harness import Comparison
    from hogwild.compare.run.methods import gpu

    choice("device", options["device"], DEVICES)
    display = Display(Screen(sys.stdout), options["quiet"])
    sources = Sources(options, data)
    sources.hold_out()
    if sources.holdout and sources.test:
        raise UsageError("--test and --holdout both name the rows to test on: give one of them")
    options["problem"] = sources.problem
    base = base_config(options)
    plan = make_plan(options)
    if options["device"] != "cpu":
        gpu()  # before reading data, which may take minutes
    check_writable("--out", options["out"], directory=True)
    if base.host == "processes":
        fork_server.ensure_running()
    began = time.perf_counter()
    examples, test, held = sources.read(display, plan.first_seed)
    with naming(sources.name):
        comparison = Comparison(
            examples,
            held if test is None else test,
            plan,
            base,
            data=sources.name,
            timeout=options["timeout"],
            in_flight=options["in_flight"],
            reading=time.perf_counter() - began,
            command=shlex.join(["hogwild", *sys.argv[1:]]),
        )
    try:
        with display.live(lambda: progress_line(comparison.progress)):
            comparison.run(options["out"])
    except KeyboardInterrupt:
        done, total = comparison.progress.done, comparison.progress.total
        display.say("", f"interrupted: {done} of {total} runs are in {options['out']}; the same command goes on")
        raise typer.Exit(130) from None
    show_report([options["out"]], options["out"], display)
    display.finish()


def base_config(options: dict[str, Any]) -> TrainConfig:
    """Return the options that all methods share; methods themselves say whether they run on a GPU."""
    of_plan = ("workers", "epochs", "seed", "device", "in_flight")
    keywords = config_options({name: value for name, value in options.items() if name not in of_plan})
    if options["problem"] == "completion":
        keywords.setdefault("penalty", "per-rating")  # which cornac has too
    config = TrainConfig(**keywords)
    if config.l2_path:
        option = "--l2-factors" if options["problem"] in ("fm", "ffm") else "--l2"
        raise UsageError(f"{option}: a comparison is of one objective: give one number")
    return config


def make_plan(options: dict[str, Any]) -> ComparisonPlan:
    """Make the plan from the options; wrong ones are reported before anything is read."""
    from hogwild.compare.run.methods import chosen, listed, usual
    from hogwild.compare.run.plan import ComparisonPlan

    problem, device = options["problem"], options["device"]
    names = usual(problem, device) if options["methods"] is None else listed(options["methods"])
    eps = options["eps"] or (EPS if problem == "linear" else EPS_OF_SEEN)
    workers = machine.worker_counts(machine.physical_cores()) if device == "cpu" else (1,)
    if options["workers"] is not None:
        workers = parse_numbers("--workers", options["workers"], int, MOST_WORKERS, "1,2,4")
    return ComparisonPlan(
        options["seeds"],
        workers,
        () if options["steps"] == "auto" else parse_numbers("--steps", options["steps"]),
        (EPOCHS_OF_CUTS if problem == "cuts" else EPOCHS) if options["epochs"] is None else options["epochs"],
        tuple(method.name for method in chosen(names)),
        parse_numbers("--eps", eps, high=1.0)[::-1],
        options["seed"],
        () if device == "cpu" else (machine.physical_cores(),),
    )


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
    quiet: Quiet = False,
) -> None:
    """Make the report of one or more comparisons from their rows: verdict, tables, figures, a page."""
    if out is None:
        if len(directories) > 1:
            raise UsageError(f"a report of {len(directories)} directories needs a place of its own: give --out DIR")
        out = directories[0]
    show_report(directories, out, Display(sys.stdout, quiet))


def progress_line(progress: ComparisonProgress) -> str:
    """Return the live line of a comparison."""
    if not progress.total:
        return progress.label
    rest = "" if progress.remaining is None else f"  about {clock(progress.remaining)} left"
    return f"{bar(progress.done / progress.total)} {progress.done}/{progress.total} runs{rest}  {progress.label}"


def show_report(directories: list[str], out: str, display: Display) -> None:
    """Write the report; print its tables, then the verdict, which so stays on the screen, and the page's path."""
    from hogwild.compare.report.page import write_report

    with display.live(lambda: "drawing"):
        report = write_report([Path(directory) for directory in directories], Path(out))
    for table in report.tables:
        display.table(table.title, zip(table.columns, table.texts, strict=True), table.rows)
        for line in (*table.notes, ""):
            display.say(line)
    for sentence in (*report.verdict, ""):
        display.say(sentence)
    for path in report.files:
        if path.name == "report.html":
            display.say(f"report: {path}")
