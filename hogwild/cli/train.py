"""``hogwild train`` and ``hogwild simulate``: their options, which are the fields of ``TrainConfig``, sources, outputs.

``simulate`` has the options of ``train`` that make sense for it, with defaults that end within seconds, and those of
the simulator, which is the host. Without ``--l2`` ``train`` chooses it as by ``--l2 auto`` where that costs seconds at
most and rows enough can be held out. The rule goes by options and data alone, so the same command takes the same
penalty on any machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hogwild.cli.display import Display
from hogwild.cli.options import (
    CACHE,
    KEPT,
    LAYOUT,
    MINIMISED,
    SOURCES,
    STOPS,
    config_options,
    takes,
)
from hogwild.cli.session import Results, description, drive, prepared, stoppable, summary
from hogwild.cli.sources import COLUMNS, KINDS, OF_ROWS, Sources, check_size
from hogwild.config import TrainConfig
from hogwild.errors import NoChoice, UsageError, naming
from hogwild.machines.meeting import Meeting
from hogwild.methods import LABEL_LOSSES
from hogwild.model_file import has_checkpoint
from hogwild.problems.linear.options import FEW_LABELS, LinearConfig
from hogwild.rows_file import RowsFile
from hogwild.training.stopwatch import Stopwatch

if TYPE_CHECKING:
    from hogwild.machines.cluster import Cluster
    from hogwild.training.l2_choice import L2Choice
    from hogwild.training.run import Run

NUMBERS = {"linear": 3, "cuts": 1}  # numbers of 16 bytes for each feature, or label of a vertex; else rank and one
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
    f"{SOURCES} {MINIMISED} {STEPS} renumber host device in_flight machines meet machine job own_rows {STOPS} {KEPT}"
)
READS = {
    "holdout": {"help": "Fraction of DATA to hold out: the epoch is chosen by it, and l2 unless that is given."},
    "l2": {"usual": f"auto where it takes seconds, else {USUAL:g}"},
}


class TrainCommand(TyperCommand):
    """``hogwild train``, whose help shows the options of one problem: ``hogwild train --problem cuts --help``."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if {"-h", "--help"} & {*args}:
            named = re.search(r"--problem[ =](\w+)", " ".join(args))
            self.show(named[1] if named and named[1] in KINDS else "linear")
        return super().make_context(info_name, args, parent, **extra)

    def show(self, problem: str) -> None:
        """Take the options of a problem in place of those of all."""
        reads = READS if problem == "linear" else {"holdout": READS["holdout"]}
        one = typer.Typer(add_completion=False)
        one.command()(takes(NAMES, (problem,), **reads)(lambda **options: None))
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
            show_default=KINDS["linear"].default,
            help="svmlight text (.gz .bz2 .xz), a store, a public data set's name (hogwild data list) or "
            "synthetic:...; ratings or a graph for other problems.",
        ),
    ] = None,
    **options: Any,
) -> None:
    """Train a sparse model on DATA with all cores: linear, with factors, or of ratings, or a cut of a graph."""
    raise typer.Exit(begin(data, options))


@takes(
    f"problem test holdout {LAYOUT} {CACHE} {COLUMNS} loss loss_param l1 l2 l2_factors normalize class_weight "
    f"no_intercept no_scale_columns rank {STEPS} delay link {STOPS} {KEPT}",
    OF_ROWS,
    problem={"choices": OF_ROWS, "usual": "linear"},
    workers={
        "help": "Virtual workers, up to 1024.",
        "names": ("--workers", "-w"),
        "default": SIMULATED_WORKERS,
        "usual": "",
    },
    epochs={"default": SIMULATED_EPOCHS, "usual": ""},
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
    options |= {"host": "simulator", "problem": options["problem"] or "linear"}
    raise typer.Exit(begin(data, options, SIMULATED_DATA if options["problem"] == "linear" else ""))


def begin(data: str | None, options: dict[str, Any], default: str = "") -> int:
    """Run a command with its options by name, and return the exit status: options and paths are checked here."""
    meeting = meeting_of(options)
    by_default = options["l2"] is None and meeting is None and options["host"] != "simulator"
    sources = Sources(options, data, default=default)
    if not sources.named:
        sources.hold_out()
    named = config_options(options) | {"problem": sources.problem}
    config = TrainConfig(**named)
    by_default &= config.problem in ("linear", "completion")
    choosing = TrainConfig(**named | {"l2": "auto"}) if by_default else None
    results = Results(**options)
    results.check(sources)
    if not sources.holdout and config.keep == "best":
        raise UsageError("--keep best needs rows held out of DATA: add --holdout FRACTION (--test only judges)")
    if sources.holdout and sources.test and config.problem == "completion":
        raise UsageError("--test and --holdout both name the rows to test on: give one of them")
    display = results.display()
    if meeting is None:
        return carry_out(results, display, sources, config, choosing)
    from hogwild.machines.cluster import Cluster

    display.say(f"{meeting.machines} machines meet at {meeting.address}")
    with Cluster.of(meeting, config.common()) as cluster:
        cluster.say = display.say
        return carry_out(results, display, sources, config, None, cluster)


def meeting_of(options: dict[str, Any]) -> Meeting | None:
    """Take the options about where machines meet, and return that; None for a single machine.

    Raises
    ------
    UsageError
        If they do not go together.
    """
    meet, number = options.pop("meet", None), options.pop("machine", None)
    machines = options.get("machines") or 1
    if machines > 1:
        if meet is None:
            raise UsageError(f"--machines {machines}: say where they meet, --meet HOST:PORT of machine 0")
        return Meeting(meet, machines, number)
    if os.environ.get("WORLD_SIZE", "") not in ("", "1"):  # else each of these processes would train alone
        raise UsageError("torchrun needs --machines P --meet HOST:PORT, at a port of their own")
    for option, value in (("--meet", meet), ("--machine", number)):
        if value is not None:
            raise UsageError(f"{option} is for several machines: give --machines P too")
    return None


def carry_out(
    results: Results,
    display: Display,
    sources: Sources,
    config: TrainConfig,
    choosing: TrainConfig | None,
    cluster: Cluster | None = None,
) -> int:
    """Read the data, train, show the run and save what is asked for; return the exit status.

    ``choosing``: nobody gave a penalty, so one is chosen where that takes seconds. Of a ``cluster`` machine 0 has the
    results; the others do their part of the run.
    """
    watch = Stopwatch("start", time.perf_counter() - time.process_time())
    follows = cluster is not None and not cluster.leads
    resuming = results.resume and has_checkpoint(results.checkpoint or "")
    if results.resume and not resuming and not follows:
        display.say(f"no checkpoint in {results.checkpoint} yet: starting from the beginning")
    if results.out is None and config.host != "simulator" and not follows:  # whose measurements are the result
        display.say("no --out: this model will not be kept")
    with prepared(config, display):
        if config.device == "cuda":
            from hogwild.cuda.backend import connect

            connect()  # before data are read, which may take minutes
        with watch("reading"):
            rows, test, held = sources.read(display, config.seed)
            if getattr(rows, "table", None) is not None:
                from hogwild.data.tables.plan import TablePlan

                display.say(*TablePlan.from_json(rows.table).lines())
            check_size(sources.name, rows, NUMBERS.get(config.problem) or config.rank + 1)
        from hogwild.training.run import train

        before, doing = watch.seconds, [""]

        def report(text: str) -> None:
            doing[0] = f"choosing l2: {text}"

        def start(config: TrainConfig) -> Run:
            doing[0] = "choosing l2" if config.l2_path else "starting workers and compiling"
            with display.live(lambda: doing[0]):
                return train(
                    rows,
                    test,
                    config=config,
                    checkpoint=results.checkpoint,
                    resume=resuming,
                    data=sources.name,
                    cluster=cluster,
                    holdout=held,
                    report=report if display.is_live else None,
                )

        with naming(sources.name, results.checkpoint):
            try:
                if choosing is not None and (reason := why_fixed(config, rows, held, resuming)):
                    raise NoChoice(reason)
                run = start(choosing or config)
            except NoChoice as error:
                if choosing is None:
                    raise
                display.say(f"l2 {config.l2:g}, not chosen by held-out rows: {error}")
                run = start(config)
        run.stopwatch.add(before)
        rows_file = RowsFile(None if follows else results.json, resuming)
        with run, contextlib.closing(rows_file), stoppable(run, display) as signals:
            if cluster is not None and follows:
                drive(run, display, rows_file, None)
                display.say(f"machine {cluster.number}: done; the results are machine 0's")
            else:
                if run.chosen is not None:
                    display.say(*lines_of_choice(run.chosen, choosing is None))
                if config.problem == "completion" and run.config.rank != config.rank:
                    display.say("rank 0: held-out ratings are predicted best by biases alone")
                if run.config.epochs != config.epochs:
                    display.say(f"epochs {run.config.epochs}, chosen with l2 (at most {config.epochs})")
                show(run, display, rows_file, results, signals)
        return 128 + signals[0] if signals else 0


def show(run: Run, display: Display, rows_file: RowsFile, results: Results, signals: list[int]) -> None:
    """Follow a run and say what it does; ``--verbose`` adds why its discipline was chosen, and where the time went."""
    if run.config.own_rows:
        display.say(f"all {run.config.machines} machines: {run.progress().rows_total:,} rows to train on")
    display.say(*description(run))
    if results.verbose and run.reason:
        display.say(f"{run.config.discipline} because {run.reason}")
    drive(run, display, rows_file, results.out)
    seconds = run.stopwatch.seconds
    total = sum(seconds.values())
    display.say(*summary(run.history[-1], bool(signals), total, run.config))
    if results.out is not None:
        display.say(f"model saved to {results.out}")
    for part, spent in (*seconds.items(), ("in all", total)) if results.verbose else ():
        display.say(f"{part:<10} {spent:9.2f} s {spent / total:6.0%}")
    if not signals:
        display.finish()


# ---- the penalty that is chosen


def why_fixed(config: TrainConfig, rows: Any, held: Any, resuming: bool) -> str:
    """Why l2 is not chosen for these rows unless somebody asks for it; "" if it is."""
    import numpy as np

    if config.target is not None:
        return "--target is a value of one objective"
    if resuming:
        return ""  # it was chosen, or not, when the run began
    if config.problem == "completion":
        drawn = config.negatives if config.ranks else 0
        noun = "ratings and items drawn against them" if drawn else "ratings"
        sizes = [(len(rows) * (1 + drawn), MOST_PAIRS, noun)]
        few = FEWEST
    else:
        classes = 1
        if rows.labels is not None:
            classes = min(len(rows.labels.names), FEW_LABELS)
        elif config.loss in LABEL_LOSSES and rows.nnz <= MOST_ENTRIES:
            labels, counts = np.unique(rows.targets, return_counts=True)
            if counts.min() < FEWEST_OF_CLASS:
                return f"a class has fewer than {FEWEST_OF_CLASS} rows"
            classes = 1 if len(labels) <= 2 else len(labels)
        noun = "classes" if rows.labels is None else "labels"
        times = "" if classes == 1 else f" times {classes} {noun}"
        sizes = [
            (rows.nnz * classes, MOST_ENTRIES, f"nonzeros{times}"),
            (rows.width * classes, MOST_WEIGHTS, "weights"),
        ]
        few = len(rows) + (0 if held is None else len(held))
    if few < FEWEST:
        return f"{few} rows are too few to hold some out, below {FEWEST}"
    return next((f"it takes long for {n:,} {noun}, above {most:,}" for n, most, noun in sizes if n > most), "")


def lines_of_choice(chosen: L2Choice, all_candidates: bool) -> Iterator[str]:
    """Yield what was chosen, and before it a line for each candidate if somebody asked for the choice."""
    metric = chosen.metric.removeprefix("held_out_").replace("_", " ")
    path = chosen.path
    if all_candidates:
        yield f"{chosen.name:>10}  {'step':>9}  {f'held-out {metric}':>14}  {'epochs':>6}"
        for each in path:
            step = "-" if each["step"] is None else f"{each['step']:.4g}"
            worth = "diverged" if each["held_out_loss"] is None else f"{each[chosen.metric]:.5g}"
            alone = "  biases alone" if each.get("rank") == 0 else ""
            yield f"{each['l2']:>10.2g}  {step:>9}  {worth:>14}  {each.get('best_epoch', each['epochs']):>6}{alone}"
    if chosen.normalize != "none":
        yield f"normalize {chosen.normalize}: the held-out {metric} is lower (--normalize none: rows as they are)"
    tried = [each["l2"] for each in path]
    total = chosen.rows + chosen.held_out
    held_out = f"{chosen.held_out:,} rows held out of {total:,}" + " before the fit on all" * chosen.refitted
    if chosen.folds > 1:
        held_out = f"{chosen.folds} parts of {total:,} rows, each held out once"
    yield (
        f"{chosen.name} {chosen.l2:g}, chosen of {len(path)} from {min(tried):g} to {max(tried):g}: "
        f"{metric} {chosen.value(chosen.l2):.5g} on {held_out} ({chosen.seconds:.2f} s)"
    )
