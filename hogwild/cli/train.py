"""``hogwild train``: its options, which are ``TrainConfig``'s fields and what to do with data and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from hogwild.cli import shell
from hogwild.cli.containers import CONTAINERS, HOLDOUTS, chosen
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
)
from hogwild.config import (
    CLASS_WEIGHT,
    DEVICES,
    DISCIPLINES,
    EXCHANGES,
    HOSTS,
    LOSSES,
    MOST_A_CORE,
    NORMALIZE,
    ORDERS,
    PENALTIES,
    PROBLEMS,
    SCHEDULES,
    TrainConfig,
)
from hogwild.errors import UsageError

DEFAULT_DATA = CONTAINERS["linear"].default
DEFAULT_HOLDOUT = 0.2
DEFAULTS, RATED = TrainConfig(), TrainConfig(problem="completion")


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def choice(panel: str, what: str, choices: Iterable[str], *names: str, **more: Any) -> Any:
    """An option of a few names, which its help lists and a shell completes."""
    choices = tuple(choices)
    completes = {"autocompletion": shell.among(choices)} | more
    return option(panel, f"{what}: {', '.join(choices)}.", *names, **completes)


COMPLETION, CUTS = "Matrix completion", "Graph cuts"
GOAL, STEPS, PARALLEL, STOPPING, RESULTS = "What is minimised", "Steps", "Workers", "When to stop", "Results"

# What hogwild compare asks in the same words
Problem = Annotated[str | None, choice(GOAL, "What is trained", CONTAINERS,
    show_default="what DATA's name says, else linear")]  # fmt: skip
Loss = Annotated[str | None, option(
    GOAL, f"Of linear: {', '.join(LOSSES)}. Of completion: {', '.join(PROBLEMS['completion']['loss'])}.",
    show_default=f"{DEFAULTS.loss}; of completion {RATED.loss}",
    autocompletion=shell.of_problem("loss"))]  # fmt: skip
LossParam = Annotated[float | None, option(GOAL, "Huber's threshold or the half-width of an insensitive tube.",
    show_default="the loss's own")]  # fmt: skip
L1 = Annotated[float, option(GOAL, "L1 penalty.", "--l1")]
L2 = Annotated[
    float | None, option(GOAL, "L2 penalty.", "--l2", show_default=f"{DEFAULTS.l2:g}; of completion {RATED.l2:g}")
]
Normalize = Annotated[str, choice(GOAL, "Scale each row", NORMALIZE)]
ClassWeight = Annotated[str | None, option(GOAL, "'balanced' weighs the classes equally.",
    show_default="all rows alike", autocompletion=shell.among(CLASS_WEIGHT))]  # fmt: skip
NoIntercept = Annotated[bool, option(GOAL, "Fit no intercept.", "--no-intercept")]
Schedule = Annotated[str | None, choice(STEPS, "How the step falls", SCHEDULES, show_default=DEFAULTS.schedule,
    autocompletion=shell.of_problem("schedule"))]  # fmt: skip
Decay = Annotated[float | None, option(STEPS, "Factor of schedule epoch or round.", show_default="the schedule's own")]
Power = Annotated[float | None, option(STEPS, "Power of schedule inverse.", show_default="the schedule's own")]
Adagrad = Annotated[bool, option(STEPS, "A step of its own for each feature (AdaGrad).", "--adagrad")]
OrderOfRows = Annotated[str, option(
    STEPS, f"Order of the rows: {', '.join(PROBLEMS['linear']['order'])}; of completion also {ORDERS[-1]}.",
    autocompletion=shell.of_problem("order"))]  # fmt: skip
Oversubscribe = Annotated[bool, option(PARALLEL, f"Allow more than {MOST_A_CORE} workers a core.", "--oversubscribe")]
Device = Annotated[str, choice(PARALLEL, "What they run on", DEVICES)]
InFlight = Annotated[int | None, option(PARALLEL, "Examples in hand at the same time on a GPU.",
    show_default="as many as the step allows")]  # fmt: skip
EvaluateEvery = Annotated[int, option(STOPPING, "Epochs from one row of measurements to the next.")]
HoldoutBy = Annotated[str, choice("Data", "Ratings are held out by", HOLDOUTS)]
Terminals = Annotated[str | None, option("Data", "Vertices of known label of a graph, 'vertex label' a line.",
    metavar="FILE")]  # fmt: skip
Rank = Annotated[int | None, option(COMPLETION, "Numbers in a factor.", show_default=f"{RATED.rank}")]
Penalty = Annotated[str | None, choice(COMPLETION, "L2 penalty", PENALTIES, show_default=RATED.penalty)]
Nonnegative = Annotated[bool, option(COMPLETION, "Factors at or above zero.", "--nonnegative")]
NoBiases = Annotated[bool, option(COMPLETION, "No number for each user and item beside the factors.", "--no-biases")]
Negatives = Annotated[int | None, option(COMPLETION, "Items drawn for each rating under loss log or bpr.",
    show_default=f"{RATED.negatives}")]  # fmt: skip


def train(
    data: Annotated[str | None, typer.Argument(metavar="DATA", show_default=DEFAULT_DATA,
        autocompletion=shell.data,
        help="svmlight text (.gz .bz2 .xz), a store, .npz, .mtx, a public data set's name (hogwild data list) or "
        "synthetic:...; ratings or a graph for other problems.")] = None,
    problem: Problem = None,
    test: Annotated[str | None, option("Data", "Data to test on after each epoch.",
        autocompletion=shell.data)] = None,
    holdout: Annotated[float | None, option("Data", "Fraction of DATA to hold out and test on.",
        show_default=f"none; {DEFAULT_HOLDOUT} if no DATA is named")] = None,
    holdout_by: HoldoutBy = HOLDOUTS[0],
    terminals: Terminals = None,
    features: Features = None,
    zero_based: ZeroBased = False,
    format: Format = None,
    targets: Targets = None,
    hash_bits: HashBits = None,
    label: Label = None,
    categorical: Categorical = None,
    numeric: Numeric = None,
    text: Text = None,
    ignore: Ignore = None,
    weight: Weight = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
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
    step: Annotated[str, option(STEPS, "First step size; 'auto' probes for one, or is "
        f"{RATED.step:g} of completion and {PROBLEMS['cuts']['defaults']['step']:g} of cuts.")] = "auto",
    schedule: Schedule = None,
    decay: Decay = None,
    power: Power = None,
    adagrad: Adagrad = False,
    order: OrderOfRows = DEFAULTS.order,
    seed: Annotated[int, option(STEPS, "Seed of the order and of the hold-out.")] = DEFAULTS.seed,
    average: Annotated[bool, option(STEPS, "Average the weights of the last epochs.", "--average")] = False,
    discipline: Annotated[str, choice(PARALLEL, "How an update reaches a shared weight", DISCIPLINES,
                                       autocompletion=shell.of_problem("discipline"),
                                       show_default="serial for one worker, else by the data")] = DEFAULTS.discipline,
    exchange: Annotated[str, choice(PARALLEL, "What workers with replicas do with them", EXCHANGES)
                        ] = DEFAULTS.exchange,
    workers: Annotated[int | None, option(PARALLEL, "Number of workers; on a GPU, of streams.", "--workers",
                                           "--replicas", "-w", show_default="physical cores; 1 on a GPU")] = None,
    oversubscribe: Oversubscribe = DEFAULTS.oversubscribe,
    host: Annotated[str, choice(PARALLEL, "Who runs them", HOSTS,
                                show_default="processes; one worker works in the program itself")] = "auto",
    device: Device = DEFAULTS.device,
    in_flight: InFlight = None,
    evaluate_every: EvaluateEvery = DEFAULTS.evaluate_every,
    epochs: Annotated[int | None, option(STOPPING, "Passes over the data in all.",
                                          show_default=f"{DEFAULTS.epochs}; of cuts "
                                          f"{PROBLEMS['cuts']['defaults']['epochs']}")] = None,
    patience: Annotated[int | None, option(STOPPING, "Stop after so many epochs without progress.",
                                            show_default="never")] = None,
    tol: Annotated[float, option(STOPPING, "Relative fall of the objective that is progress.")] = DEFAULTS.tol,
    target: Annotated[float | None, option(STOPPING, "Stop at or below this objective.",
                                            show_default="never")] = None,
    out: Annotated[str | None, option(RESULTS, "Write the model here.", "--out", "-o", metavar="MODEL")] = None,
    json: Annotated[str | None, option(RESULTS, "Write measurements here as JSON lines ('-': standard output).",
                                        metavar="ROWS")] = None,
    segmentation: Annotated[str | None, option(CUTS, "Write the labels of the vertices here.",
                                                metavar="FILE.npy")] = None,
    plot: Annotated[str | None, option(CUTS, "Draw the labels of a grid here.", metavar="FILE.png")] = None,
    checkpoint: Annotated[str | None, option(RESULTS, "Save the state here after each epoch.", metavar="DIR")] = None,
    resume: Annotated[bool, option(RESULTS, "Go on from the checkpoint.", "--resume")] = False,
    quiet: Annotated[bool, option(RESULTS, "Print only warnings and errors.", "--quiet", "-q")] = False,
    verbose: Annotated[bool, option(RESULTS, "Say in the end where the time went.", "--verbose", "-v")] = False,
) -> None:  # fmt: skip
    """Train a sparse model on DATA with all cores: linear, or of ratings, or a cut of a graph."""
    raise typer.Exit(begin(dict(locals())))


def begin(options: dict[str, Any], default_data: str | None = None, histogram: str | None = None) -> int:
    """Do what ``train`` or ``simulate`` was asked, by its parameters' names, and return the exit status."""
    from hogwild.cli.session import Request, run_training

    given = dict(options)
    step, intercept = parse_step(given.pop("step")), not given.pop("no_intercept")
    given["biases"] = not given.pop("no_biases", False)
    given["problem"] = chosen(given.pop("problem", None), given["data"] or "", given.get("format"))
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    config = TrainConfig(step=step, intercept=intercept, **{name: given.pop(name) for name in fields & set(given)})
    sources = Sources.take(given)
    named = given["data"] is not None
    if not named:
        default_data = default_data or CONTAINERS[config.problem].default
        given["data"] = default_data  # an empty name is a mistake, and check() says so
        if given["holdout"] is None and given["test"] is None and config.problem != "cuts":
            given["holdout"] = DEFAULT_HOLDOUT
    request = Request(data_named=named, rows=given.pop("json"), histogram=histogram, **given)
    return run_training(request, sources, config)


def parse_step(text: str) -> float | None:
    """``--step``: None for "auto", else its number (``TrainConfig`` checks the range)."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"--step {text}: expected a number or 'auto'") from None
