"""``hogwild compare``: methods on the same data, by the same objective and clock; a report and a verdict in words.

``--suite paper`` runs the paper's experiments instead, on stand-ins for its data, by its protocol.

The rows go to disk cell by cell, so the same command goes on after Ctrl-C. The report is then made from them alone, by
what ``hogwild report`` calls.
"""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli import shell
from hogwild.cli.bench import parse_workers
from hogwild.cli.compare_module import NAMED_LOSSES, check_module, read_module
from hogwild.cli.compare_suite import SUITES, begin_suite, follow
from hogwild.cli.containers import CONTAINERS, HOLDOUTS, chosen
from hogwild.cli.display import Display, clock
from hogwild.cli.sources import (
    CacheDir,
    Categorical,
    Features,
    Format,
    HashBits,
    Ignore,
    Label,
    NoCache,
    Numeric,
    Sources,
    Targets,
    Text,
    Weight,
    ZeroBased,
    check_writable,
)  # fmt: skip
from hogwild.cli.train import (
    DEFAULT_DATA,
    DEFAULT_HOLDOUT,
    DEFAULTS,
    L1,
    L2,
    PARALLEL,
    RESULTS,
    STEPS,
    Adagrad,
    ClassWeight,
    Decay,
    Device,
    HoldoutBy,
    InFlight,
    Loss,
    LossParam,
    Negatives,
    NoBiases,
    NoIntercept,
    Nonnegative,
    Normalize,
    OrderOfRows,
    Penalty,
    Power,
    Problem,
    Rank,
    Schedule,
    Terminals,
    choice,
    option,
)
from hogwild.cli.user_file import FUNCTION
from hogwild.config import DELAYS, HOSTS, MOST_A_CORE, OPTIMIZERS, PROBLEMS, STATES, TrainConfig
from hogwild.errors import UsageError
from hogwild.screen import Screen

if TYPE_CHECKING:
    from hogwild.compare.harness import Comparison
    from hogwild.compare.plan import Plan

EPOCHS = {"linear": 10, "completion": 10, "cuts": 50, "module": 10}
#: The best objective seen, for want of an optimum, is the end of a run: the last of the way to it is its noise.
EPS = {"linear": "1e-1,1e-2,1e-3", "completion": "2e-1,1e-1,5e-2", "cuts": "1e-1,1e-2,1e-3",
       "module": "2e-1,1e-1,5e-2"}  # fmt: skip
REPLICAS = {"module": (1, 2, 4, 8, 16)}  # on a GPU; of other problems one, which is as many programs as it holds
SEEDS, OUT = 5, "comparison"
USUAL = PROBLEMS["module"]["defaults"]
TIMEOUT, SUITE_TIMEOUT, SCALE = 600.0, 60.0, 0.01
WHAT, SUITE, MODULE = "What is compared", "The paper's experiments", "Torch modules"


def compare(
    data: Annotated[str | None, typer.Argument(metavar="DATA", show_default=DEFAULT_DATA,
        autocompletion=shell.data, help=f"As for train; with --model also {FUNCTION}.")] = None,
    methods: Annotated[str | None, option(WHAT, "Methods, such as hogwild,locked.", metavar="LIST",
        autocompletion=shell.methods, show_default="all that the problem has")] = None,
    workers: Annotated[str | None, option(WHAT, "Numbers of workers, such as 1,2,4.", "--workers", "-w",
                                           metavar="LIST", show_default="1, 2, 4 ... physical cores; replicas on a "
                                           "GPU: 1, of a module 1,2,4,8,16")] = None,
    seeds: Annotated[int | None, option(WHAT, "Repeats of everything, each with its own order of the rows.",
                                         show_default=f"{SEEDS}; of a suite 1")] = None,
    epochs: Annotated[int | None, option(WHAT, "Passes over the data.", show_default=f"{EPOCHS['linear']}; of cuts "
                                          f"{EPOCHS['cuts']}, of a suite 20")] = None,
    eps: Annotated[str | None, option(WHAT, "Targets: shares of the way to the optimum, or to the best seen, that may "
                                       "be left.", metavar="LIST", show_default=f"{EPS['linear']}; of completion and "
                                       f"modules {EPS['module']}")] = None,
    steps: Annotated[str, option(WHAT, "Steps that every method is tuned over; one: no tuning; 'auto': around the "
                                  "step that is probed for.", metavar="LIST")] = "auto",
    gradient_delay: Annotated[str | None, option(WHAT, "Also time expensive gradients: seconds, such as 0,1e-6,1e-4, "
                                                  "or 'paper'.", metavar="LIST")] = None,
    budget: Annotated[float | None, option(WHAT, "Leave out seeds, workers, steps, epochs, in this order and but for "
                                            "what is named, until this should do.", metavar="SECONDS", min=1,
                                            show_default="no limit")] = None,
    timeout: Annotated[float | None, option(WHAT, "Time of training after which a run is stopped.", min=0.1,
                                             metavar="SECONDS", show_default=f"{TIMEOUT:g}; of a suite "
                                             f"{SUITE_TIMEOUT:g}")] = None,
    oversubscribe: Annotated[bool, option(WHAT, f"Also more than {MOST_A_CORE} workers a core, and methods with locks "
                                           "on more workers than cores.", "--oversubscribe")] = DEFAULTS.oversubscribe,
    dry_run: Annotated[bool, option(WHAT, "List what would be run and about how long, and end.", "--dry-run")] = False,
    suite: Annotated[str | None, option(SUITE, "'paper': the table of the Hogwild paper, on generated data.",
                                         autocompletion=shell.among(SUITES))] = None,
    scale: Annotated[float | None, option(SUITE, "Share of the paper's sizes.", show_default=f"{SCALE:g}")] = None,
    problem: Problem = None,
    test: Annotated[str | None, option("Data", "Data to test on.", autocompletion=shell.data)] = None,
    holdout: Annotated[float | None, option("Data", "Fraction of DATA to hold out and test on; 0: none.",
                                             show_default=f"{DEFAULT_HOLDOUT} without --test")] = None,
    holdout_by: HoldoutBy = HOLDOUTS[0],
    terminals: Terminals = None,
    features: Features = None, zero_based: ZeroBased = False, format: Format = None, targets: Targets = None,
    hash_bits: HashBits = None, cache: CacheDir = None, no_cache: NoCache = False,
    label: Label = None, categorical: Categorical = None, numeric: Numeric = None, text: Text = None,
    ignore: Ignore = None, weight: Weight = None,
    loss: Loss = None,
    loss_param: LossParam = None,
    l1: L1 = DEFAULTS.l1,
    l2: L2 = None,
    normalize: Normalize = DEFAULTS.normalize,
    class_weight: ClassWeight = None,
    no_intercept: NoIntercept = False,
    rank: Rank = None,
    penalty: Penalty = None,
    nonnegative: Nonnegative = False,
    no_biases: NoBiases = False,
    negatives: Negatives = None,
    model: Annotated[str | None, option(MODULE, "A function of no arguments that makes the nn.Module; then --loss is "
                                         f"{', '.join(NAMED_LOSSES)} or {FUNCTION}.", metavar=FUNCTION)] = None,
    optimizer: Annotated[str | None, choice(MODULE, "Rule of the updates", OPTIMIZERS,
                                             show_default=USUAL["optimizer"])] = None,
    state: Annotated[str | None, choice(MODULE, "Whose its state is, each worker's or all workers'", STATES,
                                         show_default=USUAL["state"])] = None,
    batch: Annotated[int | None, option(MODULE, "Examples in a minibatch.", show_default=f"{USUAL['batch']}")] = None,
    momentum: Annotated[float | None, option(MODULE, "Of optimizer momentum.",
                                              show_default=f"{USUAL['momentum']}")] = None,
    beta1: Annotated[float | None, option(MODULE, "Of optimizer adam.", show_default=f"{USUAL['betas'][0]}")] = None,
    beta2: Annotated[float | None, option(MODULE, "Of optimizer adam.", show_default=f"{USUAL['betas'][1]}")] = None,
    schedule: Schedule = None,
    decay: Decay = None,
    power: Power = None,
    adagrad: Adagrad = False,
    order: OrderOfRows = DEFAULTS.order,
    seed: Annotated[int, option(STEPS, "First seed, and that of the hold-out.")] = DEFAULTS.seed,
    host: Annotated[str, choice(PARALLEL, "Who runs the workers", HOSTS)] = DEFAULTS.host,
    delay: Annotated[str, option(PARALLEL, "The simulator's delay law: see hogwild simulate.",
                                  autocompletion=shell.among(DELAYS),
                                  metavar="LAW")] = DEFAULTS.delay,
    device: Device = DEFAULTS.device,
    in_flight: InFlight = None,
    out: Annotated[str, option(RESULTS, "Directory of the results; of the same comparison, it goes on.", "--out", "-o",
                                metavar="DIR")] = OUT,
    quiet: Annotated[bool, option(RESULTS, "Print only warnings and errors.", "--quiet", "-q")] = False,
) -> None:  # fmt: skip
    """Compare lock-free training with locks, turns, averaging and other programs, or a GPU's ways, on DATA."""
    raise typer.Exit(begin(dict(locals())))


def begin(given: dict[str, Any]) -> int:
    """Do what was asked, by the parameters' names, and return the exit status."""
    if given["suite"] is not None:
        return begin_suite(given, inspect.signature(compare).parameters)
    if given["scale"] is not None:
        raise UsageError(f"--scale {given['scale']:g}: is for --suite {SUITES[0]}")
    given["problem"] = problem_of(given)
    base = make_base(given)
    plan = make_plan(given)
    sources = Sources.take(given)
    if given["device"] != "cpu":
        from hogwild.compare.methods import gpu

        gpu()  # before data are read that may take minutes
    display = Display(sys.stdout if given["dry_run"] else Screen(sys.stdout), given["quiet"])
    comparison = make_comparison(given, plan, base, sources, display)
    if given["dry_run"]:
        show_plan(comparison, display)
        return 0
    return follow(comparison, given["out"], display)


def problem_of(given: dict[str, Any]) -> str:
    """The problem that was asked for, or that the data's name tells of."""
    if given["model"] is None:
        if given["problem"] == "module":
            raise UsageError(f"--problem module: give the module too: --model {FUNCTION}")
        return chosen(given["problem"], given["data"] or "", given["format"])
    if given["problem"] not in (None, "module"):
        raise UsageError(f"--model {given['model']}: is for --problem module, not for {given['problem']}")
    return "module"


def make_base(given: dict[str, Any]) -> TrainConfig:
    """What all methods have in common; they say themselves which of them are on a GPU."""
    left = {"workers", "epochs", "seed", "gradient_delay"}  # to the plan
    fields = {field.name for field in dataclasses.fields(TrainConfig)} - left
    options = {name: given[name] for name in fields & set(given)}
    options |= {"intercept": not given["no_intercept"], "biases": not given["no_biases"]}
    betas = given["beta1"], given["beta2"]
    if betas != (None, None):
        options["betas"] = tuple(usual if beta is None else beta for beta, usual in zip(betas, USUAL["betas"]))
    if given["problem"] == "module":
        given["loss"] = given["loss"] or NAMED_LOSSES[0]
        options["loss"] = given["loss"] if given["loss"] in NAMED_LOSSES else "custom"
    config = TrainConfig(**options)
    return config if config.device == "cpu" else TrainConfig(**options | {"device": "cpu", "in_flight": None})


def make_plan(given: dict[str, Any]) -> Plan:
    """The plan of the options; those that are wrong are reported before anything is read."""
    from hogwild.compare.methods import chosen, usual
    from hogwild.compare.plan import DELAYS as PAPER
    from hogwild.compare.plan import Plan

    problem, device = given["problem"], given["device"]
    asked = given["methods"]
    names = usual(problem, device) if asked is None else [name.strip() for name in asked.split(",")]
    delays: tuple[float, ...] = ()
    if given["gradient_delay"] is not None:
        paper = given["gradient_delay"] == "paper"
        delays = PAPER if paper else parse_numbers("--gradient-delay", given["gradient_delay"], 0.0, 1.0)
    steps = () if given["steps"] == "auto" else parse_numbers("--steps", given["steps"], 0.0)
    epochs = EPOCHS[problem] if given["epochs"] is None else given["epochs"]
    eps = EPS[problem] if given["eps"] is None else given["eps"]
    workers = REPLICAS.get(problem, (1,)) if (device, given["workers"]) == ("cuda", None) else None
    return Plan(
        SEEDS if given["seeds"] is None else given["seeds"], workers or parse_workers(given["workers"]), steps, epochs,
        tuple(method.name for method in chosen(names)), parse_numbers("--eps", eps, 0.0, 1.0)[::-1],
        given["seed"], delays, () if device == "cpu" else (machine.physical_cores(),),
    )  # fmt: skip


def parse_numbers(option: str, text: str, low: float, high: float = float("inf")) -> tuple[float, ...]:
    """Ascending numbers of a list such as ``1e-1,1e-2``."""
    try:
        numbers = sorted({float(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not low <= numbers[0] <= numbers[-1] <= high or numbers[-1] == float("inf"):
        bounds = f"from {low:g} to {high:g}" if high < float("inf") else f"above {low:g}"
        raise UsageError(f"{option} {text}: expected numbers {bounds}, such as 0.1,0.01")
    return tuple(numbers)


def make_comparison(
    given: dict[str, Any], plan: Plan, base: TrainConfig, sources: Sources, display: Display
) -> Comparison:
    """Read the data and pose the comparison."""
    from hogwild.cli.session import Request, naming, read

    named = given["data"] is not None
    holdout = given["holdout"]
    if holdout is None and given["test"] is None and base.problem != "cuts":
        holdout = DEFAULT_HOLDOUT
    if base.problem == "module":
        check_module(given, sources, holdout)
        make_ready(given, base)
        return pose(given, plan, base, sources, *read_module(given, holdout, plan.first_seed, display))
    data = given["data"] if named else CONTAINERS[base.problem].default
    request = Request(
        data, named, given["test"], holdout or None, None, None, None, False, given["quiet"],
        holdout_by=given["holdout_by"],
    )  # fmt: skip
    sources.check(base.problem)
    request.check(base.problem)
    make_ready(given, base)
    rows, test = read(request, sources, dataclasses.replace(base, seed=plan.first_seed), display)
    given["data"] = data
    with naming(request):
        return pose(given, plan, base, sources, rows, test)


def make_ready(given: dict[str, Any], base: TrainConfig) -> None:
    """What is done for the runs before the data are read, once it is known that they are there."""
    from hogwild.hosts import fork_server

    if given["dry_run"]:
        return
    check_writable("--out", given["out"], directory=True)
    if base.host == "processes":
        fork_server.ensure_running()


def pose(given: dict[str, Any], plan: Plan, base: TrainConfig, sources: Sources, rows: Any, test: Any) -> Comparison:
    """The comparison on these data."""
    from hogwild.compare.harness import Comparison

    cache = sources.cache()
    fields = {"seeds": "seeds", "workers": "workers", "steps": "grid", "epochs": "epochs"}
    named = [field for option, field in fields.items() if given[option] not in (None, "auto")]
    return Comparison(
        rows, test, plan, base, data=given["data"], cache=None if cache is None else Path(cache.directory),
        budget=given["budget"], timeout=given["timeout"] or TIMEOUT,
        in_flight=given["in_flight"], command=shlex.join(["hogwild", *sys.argv[1:]]), named=named,
    )  # fmt: skip


def show_plan(comparison: Comparison, display: Display) -> None:
    """What would be run, and about how long."""
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
