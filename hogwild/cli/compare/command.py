"""``hogwild compare``: methods on the same data, with the same objective and clock; a report and a verdict in words.

The rows go to disk cell by cell, so after Ctrl-C the same command continues. The report is then made from them alone,
by the function that ``hogwild report`` calls.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.bench import parse_workers
from hogwild.cli.compare.module import NAMED_LOSSES, check_module, read_module
from hogwild.cli.compare.report import follow
from hogwild.cli.data.sources import CONTAINERS, Sources, check_writable, chosen
from hogwild.cli.display import Display, clock
from hogwild.cli.options import (
    CACHE,
    COLUMNS,
    DEFAULT_HOLDOUT,
    LAYOUT,
    MINIMISED,
    RESULTS,
    config_options,
    flag,
    parse_numbers,
    row,
    takes,
)
from hogwild.cli.train import DEFAULT_DATA
from hogwild.cli.user_file import FUNCTION
from hogwild.config import MODULE, MOST_A_CORE, TrainConfig
from hogwild.errors import UsageError
from hogwild.methods import PROBLEMS, REAL_HOSTS
from hogwild.rows_file import Screen

if TYPE_CHECKING:
    from hogwild.compare.run.harness import Comparison
    from hogwild.compare.run.plan import ComparisonPlan

EPOCHS = {"linear": 10, "completion": 10, "cuts": 50, "module": 10}
#: The best objective seen, which stands in for the optimum, is the end of a run, so the last digits are its noise.
EPS = {"linear": "1e-1,1e-2,1e-3", "completion": "2e-1,1e-1,5e-2", "cuts": "1e-1,1e-2,1e-3", "module": "2e-1,1e-1,5e-2"}
REPLICAS = {"module": (1, 2, 4, 8, 16)}  # on a GPU; one for other problems, which runs as many programs as fit
SEEDS, OUT = 5, "comparison"
TIMEOUT = 600.0
WHAT = "What is compared"
OWN = "methods workers seeds epochs eps steps gradient_delay budget timeout oversubscribe dry_run"


@takes(
    f"{OWN} problem test holdout holdout_by terminals {LAYOUT} {CACHE} {COLUMNS} {MINIMISED} model optimizer "
    "batch momentum schedule decay power adagrad order seed host delay link device in_flight out quiet",
    PROBLEMS,
    methods=row(
        "Methods, such as hogwild,locked.",
        WHAT,
        metavar="LIST",
        show_default="all that the problem has",
    ),
    workers=row(
        "Numbers of workers, such as 1,2,4.",
        WHAT,
        "--workers",
        "-w",
        metavar="LIST",
        show_default="1, 2, 4 ... physical cores; replicas on a GPU: 1, of a module 1,2,4,8,16",
    ),
    seeds=row(
        "Repeats of everything, each with its own order of the rows.",
        WHAT,
        kind=int,
        show_default=f"{SEEDS}",
    ),
    epochs={
        "panel": WHAT,
        "help": "Passes over the data.",
        "show_default": f"{EPOCHS['linear']}; for cuts {EPOCHS['cuts']}",
    },
    eps=row(
        "Targets: shares of the way to the optimum, or to the best seen, that may be left.",
        WHAT,
        metavar="LIST",
        show_default=f"{EPS['linear']}; for completion and modules {EPS['module']}",
    ),
    steps=row(
        "Steps that every method is tuned over; one: no tuning; 'auto': around the step that is probed for.",
        WHAT,
        metavar="LIST",
        default="auto",
    ),
    gradient_delay=row(
        "Also time expensive gradients: seconds, such as 0,1e-6,1e-4, or 'paper'.", WHAT, metavar="LIST"
    ),
    budget=row(
        "Leave out seeds, workers, steps, epochs, in this order and but for what is named, until this should do.",
        WHAT,
        kind=float,
        metavar="SECONDS",
        min=1,
        show_default="no limit",
    ),
    timeout=row(
        "Time of training after which a run is stopped.",
        WHAT,
        kind=float,
        metavar="SECONDS",
        min=0.1,
        show_default=f"{TIMEOUT:g}",
    ),
    oversubscribe=flag(
        f"Also more than {MOST_A_CORE} workers a core, and methods with locks on more workers than cores.", WHAT
    ),
    dry_run=flag("List what would be run and about how long, and end.", WHAT),
    test={"help": "Data to test on."},
    holdout={
        "help": "Fraction of DATA to hold out and test on; 0: none.",
        "show_default": f"{DEFAULT_HOLDOUT} without --test",
    },
    model=row(
        f"A function of no arguments that makes the nn.Module; then --loss is {', '.join(NAMED_LOSSES)} or {FUNCTION}.",
        MODULE,
        metavar=FUNCTION,
    ),
    seed={"help": "First seed, and that of the hold-out."},
    host={"default": REAL_HOSTS[0], "show_default": True},
    delay={"help": "The simulator's delay law: see hogwild simulate."},
    link={"help": "The link between virtual replicas: see hogwild simulate."},
    out=row(
        "Directory of the results; a comparison begun there goes on.",
        RESULTS,
        "--out",
        "-o",
        metavar="DIR",
        default=OUT,
    ),
)
def compare(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=DEFAULT_DATA,
            help=f"As for train; with --model also {FUNCTION}.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Compare lock-free training with locks, turns, averaging and other programs, or a GPU's ways, on DATA."""
    raise typer.Exit(begin(given | {"data": data}))


def begin(given: dict[str, Any]) -> int:
    """Run the command with its parameters by name, and return the exit status."""
    given["problem"] = problem_of(given)
    base = make_base(given)
    plan = make_plan(given)
    sources = Sources.take(given)
    if given["device"] != "cpu":
        from hogwild.compare.run.methods import gpu

        gpu()  # before reading data, which may take minutes
    display = Display(sys.stdout if given["dry_run"] else Screen(sys.stdout), given["quiet"])
    comparison = make_comparison(given, plan, base, sources, display)
    if given["dry_run"]:
        show_plan(comparison, display)
        return 0
    return follow(comparison, given["out"], display)


def problem_of(given: dict[str, Any]) -> str:
    """Return the problem that was asked for, or the one that the data's name implies."""
    if given["model"] is None:
        if given["problem"] == "module":
            raise UsageError(f"--problem module: give the module too: --model {FUNCTION}")
        return chosen(given["problem"], given["data"] or "", given["format"])
    if given["problem"] not in (None, "module"):
        raise UsageError(f"--model {given['model']}: is for --problem module, not for {given['problem']}")
    return "module"


def make_base(given: dict[str, Any]) -> TrainConfig:
    """Return the options that all methods share; methods themselves say whether they run on a GPU."""
    left = ("workers", "epochs", "seed", "gradient_delay")  # these go to the plan
    options = config_options({name: value for name, value in given.items() if name not in left})
    if given["problem"] == "module":
        given["loss"] = given["loss"] or NAMED_LOSSES[0]
        options["loss"] = given["loss"] if given["loss"] in NAMED_LOSSES else "custom"
    config = TrainConfig(**options)
    if config.l2_path:
        raise UsageError(f"--l2 {given['l2']}: a comparison is of one objective: give one number")
    return config if config.device == "cpu" else TrainConfig(**options | {"device": "cpu", "in_flight": None})


def make_plan(given: dict[str, Any]) -> ComparisonPlan:
    """Make the plan from the options; wrong ones are reported before anything is read."""
    from hogwild.compare.run.methods import chosen, listed, usual
    from hogwild.compare.run.plan import DELAYS as PAPER
    from hogwild.compare.run.plan import ComparisonPlan

    problem, device = given["problem"], given["device"]
    asked = given["methods"]
    names = usual(problem, device) if asked is None else listed(asked)
    delays: tuple[float, ...] = ()
    if given["gradient_delay"] is not None:
        paper = given["gradient_delay"] == "paper"
        delays = PAPER if paper else parse_numbers("--gradient-delay", given["gradient_delay"], 0.0, 1.0)
    steps = () if given["steps"] == "auto" else parse_numbers("--steps", given["steps"], 0.0)
    epochs = EPOCHS[problem] if given["epochs"] is None else given["epochs"]
    eps = EPS[problem] if given["eps"] is None else given["eps"]
    workers = REPLICAS.get(problem, (1,)) if (device, given["workers"]) == ("cuda", None) else None
    return ComparisonPlan(
        SEEDS if given["seeds"] is None else given["seeds"],
        workers or parse_workers(given["workers"]),
        steps,
        epochs,
        tuple(method.name for method in chosen(names)),
        parse_numbers("--eps", eps, 0.0, 1.0)[::-1],
        given["seed"],
        delays,
        () if device == "cpu" else (machine.physical_cores(),),
    )


def make_comparison(
    given: dict[str, Any], plan: ComparisonPlan, base: TrainConfig, sources: Sources, display: Display
) -> Comparison:
    """Read the data and make the comparison."""
    from hogwild.cli.session import TrainRequest, naming, read

    named = given["data"] is not None
    holdout = given["holdout"]
    if holdout is not None and given["test"] is not None:
        raise UsageError("--test and --holdout both name the rows to test on: give one of them")
    if holdout is None and given["test"] is None and base.problem != "cuts":
        holdout = DEFAULT_HOLDOUT
    if base.problem == "module":
        check_module(given, sources, holdout)
        make_ready(given, base)
        return pose(given, plan, base, sources, *read_module(given, holdout, plan.first_seed, display))
    data = given["data"] if named else CONTAINERS[base.problem].default
    request = TrainRequest(data, named, given["test"], holdout or None, given["holdout_by"], quiet=given["quiet"])
    sources.check(base.problem)
    request.check(base.problem)
    make_ready(given, base)
    rows, test, held = read(request, sources, dataclasses.replace(base, seed=plan.first_seed), display)
    test = held if test is None else test
    given["data"] = data
    with naming(request):
        return pose(given, plan, base, sources, rows, test)


def make_ready(given: dict[str, Any], base: TrainConfig) -> None:
    """Prepare the runs before the data are read, once the data are known to exist."""
    from hogwild.hosts import fork_server

    if given["dry_run"]:
        return
    check_writable("--out", given["out"], directory=True)
    if base.host == "processes":
        fork_server.ensure_running()


def pose(
    given: dict[str, Any], plan: ComparisonPlan, base: TrainConfig, sources: Sources, rows: Any, test: Any
) -> Comparison:
    """Make the comparison on these data."""
    from hogwild.compare.run.harness import Comparison

    cache = sources.cache()
    fields = {"seeds": "seeds", "workers": "workers", "steps": "grid", "epochs": "epochs"}
    named = [field for option, field in fields.items() if given[option] not in (None, "auto")]
    return Comparison(
        rows,
        test,
        plan,
        base,
        data=given["data"],
        cache=None if cache is None else Path(cache.directory),
        budget=given["budget"],
        timeout=given["timeout"] or TIMEOUT,
        in_flight=given["in_flight"],
        command=shlex.join(["hogwild", *sys.argv[1:]]),
        named=named,
    )


def show_plan(comparison: Comparison, display: Display) -> None:
    """Print what would be run, and roughly how long it would take."""
    with display.live(lambda: "measuring what an epoch costs"):
        cells, seconds, left_out = comparison.rehearsed()
    plan = comparison.plan
    for phase, what in (("tuning", "trials of a step"), ("reported", "runs"), ("delay", "epochs of slow gradients")):
        found = [cell for cell in cells if cell.phase == phase]
        if not found:
            continue
        display.say(f"{len(found)} {what}:")
        for method, count in plan.pairs():
            mine = [cell for cell in found if (cell.method, cell.workers) == (method.name, count)]
            reason = comparison.refusal(method, count)
            note = "" if reason is None else f"  refused: {reason}"
            display.say(f"  {method.name:<20} {count:>4} worker{'s' * (count > 1):<1}  {len(mine):>4}{note}")
    steps = ", ".join(f"{step:g}" for step in plan.grid)
    display.say(f"{plan.epochs} epochs each, steps {steps}; targets {', '.join(f'{value:g}' for value in plan.eps)}")
    for sentence in left_out:
        display.say(f"left out for the budget: {sentence}")
    display.say(f"about {clock(seconds)} in all; where a method's best step is not serial's it runs at both")
