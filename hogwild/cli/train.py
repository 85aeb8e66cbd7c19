"""``hogwild train`` and ``hogwild simulate``: their options, which are the fields of ``TrainConfig``, sources, outputs.

``simulate`` has the options of ``train`` that make sense for it, with defaults that end within seconds, and those of
the simulator, which is the host. Without ``--l2`` ``train`` chooses it as by ``--l2 auto`` where that costs seconds at
most and rows enough can be held out. The rule goes by options and data alone, so the same command takes the same
penalty on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hogwild.cli.display import Display, training_line
from hogwild.cli.machines import meeting_of
from hogwild.cli.options import (
    CACHE,
    COLUMNS,
    DEFAULT_HOLDOUT,
    KEPT,
    LAYOUT,
    MINIMISED,
    READING,
    STOPS,
    config_options,
    takes,
)
from hogwild.cli.session import Interrupts, TrainRequest, carry_out, prepared, read
from hogwild.cli.sources import KINDS, Sources, chosen_problem
from hogwild.config import TrainConfig
from hogwild.errors import NoChoice, UsageError
from hogwild.methods import LABEL_LOSSES
from hogwild.problems.linear.options import LinearConfig

if TYPE_CHECKING:
    from hogwild.data.rows.container import Rows
    from hogwild.machines.cluster import Cluster
    from hogwild.training.l2_choice import L2Choice
    from hogwild.training.run import Run
    from hogwild.training.stopwatch import Stopwatch

DEFAULT_DATA = KINDS["linear"].default
SIMULATED_DATA = "synthetic:rcv1?rows=10000"
SIMULATED_WORKERS = 64
SIMULATED_EPOCHS = 5
USUAL = LinearConfig.l2
FEWEST = 50  # rows, below which those that are held out tell too little
FEWEST_OF_CLASS = 5
MOST_ENTRIES = 50_000_000  # nonzeros times classes: candidates take up to about ten seconds
MOST_PAIRS = 10_000_000  # of a rating, or an item drawn against it: candidates take some ten seconds
MOST_WEIGHTS = 1 << 22  # features times classes: candidates take 256 MiB
STEPS = "step schedule decay power adagrad order seed discipline exchange workers"
NAMES = (
    f"{READING} {MINIMISED} {STEPS} renumber host device in_flight machines meet machine job local "
    f"own_rows {STOPS} {KEPT}"
)
READS = {
    "holdout": {"help": "Fraction of DATA to hold out: the epoch is chosen by it, and l2 unless that is given."},
    "l2": {"show_default": f"auto where it takes seconds, else {USUAL:g}"},
}


class TrainCommand(TyperCommand):
    """``hogwild train``, whose help shows the options of one problem: ``hogwild train --problem cuts --help``."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if {"-h", "--help"} & {*args}:
            words = [part for word in args for part in word.split("=", 1)]
            named = words[words.index("--problem") + 1 :][:1] if "--problem" in words else []
            self.show(named[0] if named and named[0] in KINDS else "linear")
        return super().make_context(info_name, args, parent, **extra)

    def show(self, problem: str) -> None:
        """Take the options of a problem in place of those of all."""
        reads = READS if problem == "linear" else {"holdout": READS["holdout"]}
        one = typer.Typer(add_completion=False)
        one.command(context_settings=dict(self.context_settings))(
            takes(NAMES, (problem,), **reads)(lambda **options: None)
        )
        shown: list[Any] = typer.main.get_command(one).params
        self.params = [param for param in self.params if param.param_type_name == "argument"] + shown
        rare = " ".join(param.opts[0] for param in shown if param.hidden)
        others = " ".join(f"--problem {each}" for each in KINDS if each != problem)
        self.epilog = f"These are the options of problem {problem}; see also {others}. Rarely needed: {rare}."


@takes(NAMES, **READS)
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=DEFAULT_DATA,
            help="svmlight text (.gz .bz2 .xz), a store, a public data set's name (hogwild data list) or "
            "synthetic:...; ratings or a graph for other problems.",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Train a sparse model on DATA with all cores: linear, with factors, or of ratings, or a cut of a graph."""
    problem = options["problem"] = chosen_problem(options["problem"], data or "", options["format"])
    if data is None and not KINDS[problem].default:
        raise UsageError(f"--problem {problem} needs DATA: a table, or libffm's text")
    raise typer.Exit(begin(data, options, KINDS[problem].default))


@takes(
    f"test holdout {LAYOUT} {CACHE} {COLUMNS} loss loss_param l1 l2 normalize class_weight no_intercept "
    f"no_scale_columns {STEPS} delay link {STOPS} {KEPT}",
    ("linear",),
    workers={
        "help": "Virtual workers, up to 1024.",
        "names": ("--workers", "-w"),
        "default": SIMULATED_WORKERS,
        "show_default": True,
    },
    epochs={"default": SIMULATED_EPOCHS, "show_default": True},
    json={"help": "Write measurements, and counts of staleness, here as JSON lines ('-': standard output)."},
)
def simulate(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="As for train.", show_default=SIMULATED_DATA),
    ] = None,
    **options: Any,
) -> None:
    """Train with virtual workers on one core: staleness and lost updates, counted."""
    raise typer.Exit(begin(data, options | {"host": "simulator", "problem": "linear"}, SIMULATED_DATA))


def begin(data: str | None, options: dict[str, Any], default_data: str) -> int:
    """Run a command with its options by name, and return the exit status."""
    meeting = meeting_of(options)
    unasked = options["l2"] is None and meeting is None
    named = config_options(options)
    config = TrainConfig(**named)
    unasked &= config.problem == "linear" or (config.problem == "completion" and config.loss != "squared-error")
    choosing = TrainConfig(**named | {"l2": "auto"}) if unasked and config.host != "simulator" else None
    sources = Sources.take(options)
    if data is None and options["holdout"] is options["test"] is None and config.problem != "cuts":
        options["holdout"] = DEFAULT_HOLDOUT
    data_named = data is not None  # an empty name is an error: see check()
    request = TrainRequest(default_data if data is None else data, data_named, **options)
    sources.check(config.problem)
    request.check(config.problem)
    if config.keep == "best" and request.holdout is None:
        raise UsageError("--keep best goes by rows held out of DATA, and --test only judges: give --holdout FRACTION")
    if meeting is None:
        return lead_or_train(request, sources, config, choosing)
    from hogwild.cli.machines import gathered

    with gathered(meeting, config, request.display().say) as (cluster, config):
        if cluster.leads:
            return lead_or_train(request, sources, config, None, cluster)
        return take_part(request, sources, config, cluster)


def lead_or_train(
    request: TrainRequest,
    sources: Sources,
    config: TrainConfig,
    choosing: TrainConfig | None,
    cluster: Cluster | None = None,
) -> int:
    """Train on this machine, or lead the others of a cluster, and return the exit status.

    ``choosing``: nobody gave a penalty, so one is chosen where that takes seconds.
    """

    def start(display: Display, watch: Stopwatch, resuming: bool) -> Run:
        if cluster is not None:
            cluster.say = display.say
        with watch("reading"):
            rows, test, held = read(request, sources, config, display)
        from hogwild.training.run import train

        if request.resume and not resuming:
            display.say(f"no checkpoint in {request.checkpoint} yet: starting from the beginning")
        options: dict[str, Any] = {"checkpoint": request.checkpoint, "resume": resuming, "data": request.data}
        options |= {"cluster": cluster, "holdout": held}
        before = watch.seconds

        def begin(config: TrainConfig) -> Run:
            doing = ["choosing l2" if config.l2_path else "starting workers and compiling"]

            def report(text: str) -> None:
                doing[0] = f"choosing l2: {text}"

            with display.live(lambda: doing[0]):
                return train(rows, test, config=config, report=report if display.is_live else None, **options)

        with request.naming():
            try:
                if choosing is not None and (reason := why_fixed(config, rows, held, resuming)):
                    raise NoChoice(reason)
                run = begin(choosing or config)
            except NoChoice as error:
                if choosing is None:
                    raise
                display.say(f"l2 {config.l2:g}, not chosen by held-out rows: {error}")
                run = begin(config)
        run.stopwatch.add(before)
        if run.chosen is not None:
            for line in lines_of_choice(run.chosen, config.l2, choosing is None):
                display.say(line)
            if run.config.epochs != config.epochs:
                display.say(f"epochs {run.config.epochs}, chosen with it, of at most {config.epochs}")
        if config.own_rows:
            display.say(f"all {config.machines} machines: {run.progress().rows_total:,} rows to train on")
        return run

    return carry_out(request, config, start)


def take_part(request: TrainRequest, sources: Sources, config: TrainConfig, cluster: Cluster) -> int:
    """Do this machine's part of a run that machine 0 leads, and return the exit status."""
    from hogwild.training.run import train

    display = request.display()
    with Interrupts(display) as interrupts, prepared(config, display):
        rows, test, held = read(request, sources, config, display)
        with display.live(lambda: "starting workers and compiling"), request.naming():
            run = train(rows, test, config=config, cluster=cluster, data=request.data, holdout=held)
        with run:
            interrupts.follow(run)
            with display.live(lambda: training_line(run.progress(), config.epochs, KINDS[config.problem].noun)):
                for _ in run:
                    pass
        display.say(f"machine {cluster.number}: done; the results are machine 0's")
    return interrupts.status


# ---- the penalty that is chosen


def why_fixed(config: TrainConfig, rows: Rows, held: Rows | None, resuming: bool) -> str:
    """Why l2 is not chosen for these rows unless somebody asks for it; "" if it is."""
    import numpy as np

    if config.target is not None:
        return "--target is a value of one objective"
    if resuming:
        return ""  # it was chosen, or not, when the run began
    if config.problem == "completion":
        pairs = len(rows) * (1 + config.negatives)
        few = pairs <= MOST_PAIRS
        return "" if few else f"it takes long for {pairs:,} ratings and items drawn against them, above {MOST_PAIRS:,}"
    many = len(rows) + (0 if held is None else len(held))
    if many < FEWEST:
        return f"{many} rows are too few to hold some out, below {FEWEST}"
    classes = 1
    if config.loss in LABEL_LOSSES and rows.nnz <= MOST_ENTRIES:
        labels, counts = np.unique(rows.targets, return_counts=True)
        if counts.min() < FEWEST_OF_CLASS:
            return f"a class has fewer than {FEWEST_OF_CLASS} rows"
        classes = 1 if len(labels) <= 2 else len(labels)
    for count, most, noun in ((rows.nnz, MOST_ENTRIES, "nonzeros"), (rows.width, MOST_WEIGHTS, "weights")):
        if count * classes > most:
            times = "" if classes == 1 else f" times {classes} classes"
            return f"it takes long for {count:,} {noun}{times}, above {most:,}"
    return ""


def lines_of_choice(chosen: L2Choice, default: float, all_candidates: bool) -> Iterator[str]:
    """Yield what was chosen, and before it a line for each candidate if somebody asked for the choice."""
    metric = chosen.metric.removeprefix("held_out_").replace("_", " ")
    path = chosen.path
    if all_candidates:
        how = f"side by side, {chosen.epochs} epochs" if chosen.epochs else "each fitted to its optimum"
        how = how if chosen.name == "l2" else "in short runs"
        yield f"choosing {chosen.name}: {len(path)} values {how}"
        yield f"{chosen.name:>10}  {'step':>9}  {f'held-out {metric}':>14}  {'epochs':>6}"
        for each in path:
            step = f"{each['step']:.4g}" if each["step"] is not None else "schedule's" if chosen.epochs else "exact"
            worth = "diverged" if each["held_out_loss"] is None else f"{each[chosen.metric]:.5g}"
            note = "  chosen" if each["l2"] == chosen.l2 else "  the default" if each["l2"] == default else ""
            yield f"{each['l2']:>10.2g}  {step:>9}  {worth:>14}  {each.get('best_epoch', each['epochs']):>6}{note}"
    total = chosen.rows + chosen.held_out
    held_out = f"{chosen.held_out:,} rows held out of {total:,}" + " before the fit on all" * chosen.refitted
    if chosen.folds > 1:
        again = f", {chosen.rounds} times over" if chosen.rounds > 1 else ""
        held_out = f"{chosen.folds} parts of {total:,} rows, each held out once{again}"
    usual = chosen.value(default)
    against = "" if chosen.l2 == default or usual is None else f", {default:g} has {usual:.5g}"
    if chosen.normalize != "none":
        yield f"normalize {chosen.normalize}: the held-out {metric} is lower (--normalize none: rows as they are)"
    yield (
        f"{chosen.name} {chosen.l2:g}, chosen of {len(path)} from {path[0]['l2']:g} to {path[-1]['l2']:g}: "
        f"{metric} {chosen.value(chosen.l2):.5g} on {held_out}{against} ({chosen.seconds:.2f} s)"
    )
