"""``hogwild train``: its options, which are ``TrainConfig``'s fields and what to do with data and results."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from hogwild.cli.containers import CONTAINERS, HOLDOUTS, chosen
from hogwild.cli.sources import CacheDir, Features, Format, HashBits, NoCache, Sources, Targets, ZeroBased
from hogwild.config import (
    DEVICES,
    DISCIPLINES,
    EXCHANGES,
    HOSTS,
    LOSSES,
    NORMALIZE,
    ORDERS,
    PENALTIES,
    SCHEDULES,
    TrainConfig,
)
from hogwild.errors import UsageError

DEFAULT_DATA = CONTAINERS["linear"].default
DEFAULT_HOLDOUT = 0.2
DEFAULTS, RATED = TrainConfig(), TrainConfig(problem="completion")


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def one_of(what: str, choices: tuple[str, ...]) -> str:
    return f"{what}: {', '.join(choices)}."


COMPLETION, CUTS = "Matrix completion", "Graph cuts"
GOAL, STEPS, PARALLEL, STOPPING, RESULTS = "What is minimised", "Steps", "Workers", "When to stop", "Results"

# What hogwild compare asks in the same words
Problem = Annotated[str | None, option(GOAL, one_of("What is trained", tuple(CONTAINERS)),
    show_default="linear, or what DATA's name says")]  # fmt: skip
Loss = Annotated[str | None, option(GOAL, one_of("Loss", LOSSES), show_default=DEFAULTS.loss)]
LossParam = Annotated[float | None, option(GOAL, "Huber's threshold or the half-width of an insensitive tube.",
    show_default="the loss's own")]  # fmt: skip
L1 = Annotated[float, option(GOAL, "L1 penalty.", "--l1")]
L2 = Annotated[float | None, option(GOAL, "L2 penalty.", "--l2", show_default=f"{DEFAULTS.l2:g}")]
Normalize = Annotated[str, option(GOAL, one_of("Scale each row", NORMALIZE))]
ClassWeight = Annotated[str | None, option(GOAL, "'balanced' weighs the classes equally.")]
NoIntercept = Annotated[bool, option(GOAL, "Fit no intercept.", "--no-intercept")]
Schedule = Annotated[str | None, option(STEPS, one_of("How it falls", SCHEDULES), show_default=DEFAULTS.schedule)]
Decay = Annotated[float | None, option(STEPS, "Factor of the schedule.", show_default="the schedule's own")]
Power = Annotated[float | None, option(STEPS, "Power of 'inverse'.", show_default="the schedule's own")]
Adagrad = Annotated[bool, option(STEPS, "A step of its own for each feature (AdaGrad).", "--adagrad")]
OrderOfRows = Annotated[str, option(STEPS, one_of("Order of the rows", ORDERS))]
Device = Annotated[str, option(PARALLEL, one_of("Where", DEVICES))]
InFlight = Annotated[int | None, option(PARALLEL, "Examples in hand at the same time on a GPU.",
    show_default="as many as the step allows")]  # fmt: skip
EvaluateEvery = Annotated[int, option(STOPPING, "Epochs from one row of measurements to the next.")]
HoldoutBy = Annotated[str, option("Data", one_of("Ratings are held out by", HOLDOUTS))]
Terminals = Annotated[str | None, option("Data", "Vertices of known label of a graph, 'vertex label' a line.",
    metavar="FILE")]  # fmt: skip
Rank = Annotated[int | None, option(COMPLETION, "Numbers in a factor.", show_default=f"{RATED.rank}")]
Penalty = Annotated[str | None, option(COMPLETION, one_of("L2 penalty", PENALTIES), show_default=RATED.penalty)]
Nonnegative = Annotated[bool, option(COMPLETION, "Factors at or above zero.", "--nonnegative")]
NoBiases = Annotated[bool, option(COMPLETION, "No number for each user and item beside the factors.", "--no-biases")]
Negatives = Annotated[int | None, option(COMPLETION, "Items drawn a rating under loss log or bpr.",
    show_default=f"{RATED.negatives}")]  # fmt: skip


def train(
    data: Annotated[str | None, typer.Argument(metavar="[DATA]",
        help=f"svmlight text (.gz .bz2 .xz), a store, .npz, .mtx or synthetic:...; ratings or a graph for other "
        f"problems. Default: {DEFAULT_DATA}.")] = None,
    problem: Problem = None,
    test: Annotated[str | None, option("Data", "Data to test on after each epoch.")] = None,
    holdout: Annotated[float | None, option("Data", "Fraction of DATA to hold out and test on.")] = None,
    holdout_by: HoldoutBy = HOLDOUTS[0],
    terminals: Terminals = None,
    features: Features = None,
    zero_based: ZeroBased = False,
    format: Format = None,
    targets: Targets = None,
    hash_bits: HashBits = None,
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
    step: Annotated[str, option(STEPS, "First step size, or 'auto' to probe for one.")] = "auto",
    schedule: Schedule = None,
    decay: Decay = None,
    power: Power = None,
    adagrad: Adagrad = False,
    order: OrderOfRows = DEFAULTS.order,
    seed: Annotated[int, option(STEPS, "Seed of the order and of the hold-out.")] = DEFAULTS.seed,
    average: Annotated[bool, option(STEPS, "Average the weights of the last epochs.", "--average")] = False,
    discipline: Annotated[str, option(PARALLEL, one_of("How an update reaches a shared weight", DISCIPLINES),
                                       show_default="serial for one worker, else by the data")] = DEFAULTS.discipline,
    exchange: Annotated[str, option(PARALLEL, one_of("What workers with replicas do with them", EXCHANGES))
                        ] = DEFAULTS.exchange,
    workers: Annotated[int | None, option(PARALLEL, "Number of workers; on a GPU, of streams.", "--workers",
                                           "--replicas", "-w", show_default="physical cores; 1 on a GPU")] = None,
    host: Annotated[str, option(PARALLEL, one_of("Who runs them", HOSTS))] = DEFAULTS.host,
    device: Device = DEFAULTS.device,
    in_flight: InFlight = None,
    evaluate_every: EvaluateEvery = DEFAULTS.evaluate_every,
    epochs: Annotated[int | None, option(STOPPING, "Passes over the data in all.",
                                          show_default=f"{DEFAULTS.epochs}")] = None,
    patience: Annotated[int | None, option(STOPPING, "Stop after so many epochs without progress.")] = None,
    tol: Annotated[float, option(STOPPING, "Relative fall of the objective that is progress.")] = DEFAULTS.tol,
    target: Annotated[float | None, option(STOPPING, "Stop at or below this objective.")] = None,
    out: Annotated[str | None, option(RESULTS, "Write the model here.", "--out", "-o", metavar="MODEL")] = None,
    json: Annotated[str | None, option(RESULTS, "Write measurements here as JSON lines ('-': standard output).",
                                        metavar="ROWS")] = None,
    segmentation: Annotated[str | None, option(CUTS, "Write the labels of the vertices here.",
                                                metavar="FILE.npy")] = None,
    plot: Annotated[str | None, option(CUTS, "Draw the labels of a grid here.", metavar="FILE.png")] = None,
    checkpoint: Annotated[str | None, option(RESULTS, "Save the state here after each epoch.", metavar="DIR")] = None,
    resume: Annotated[bool, option(RESULTS, "Go on from the checkpoint.", "--resume")] = False,
    quiet: Annotated[bool, option(RESULTS, "Print only warnings and errors.", "--quiet", "-q")] = False,
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
