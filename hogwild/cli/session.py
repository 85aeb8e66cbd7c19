"""One training run of the command line: read the data, drive the run, show and save the results.

The order of work makes errors show early: options, then paths, then the data, and only then torch. The first Ctrl-C or
SIGTERM ends the run in good order (its model is kept, the exit status is 130 or 143), the second at once. A closed
terminal does not end the run: its results are saved, and the exit status reports the error.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.cli.display import Display, Reading, training_line
from hogwild.cli.sources import (
    HOLDOUTS,
    KINDS,
    OF_ROWS,
    Sources,
    check_outputs,
    check_readable,
    check_writable,
    described,
    hold_out,
    naming,
    remarks,
)
from hogwild.config import TrainConfig
from hogwild.errors import OutputError, TrainingError, UsageError, expected_one_of
from hogwild.hosts import fork_server
from hogwild.kernels import announce
from hogwild.methods import parse_exchange
from hogwild.model_file import has_checkpoint
from hogwild.rows_file import RowsFile, Screen
from hogwild.training.stopwatch import Stopwatch, process_start

if TYPE_CHECKING:
    from hogwild.training.run import Run

    #: Reads the data and starts a run, which takes over the stopwatch's seconds; the third: whether to resume.
    Start = Callable[[Display, Stopwatch, bool], Run]

QUIT_SECONDS = 2  # for the workers to end after a second Ctrl-C
EXACT = "reproducible to the last bit"
RACE = "they race, so two runs differ"


@dataclass(frozen=True)
class TrainRequest:
    """Where data come from and results go to; ``check`` tests it before anything is read."""

    data: str
    data_named: bool = True
    test: str | None = None
    holdout: float | None = None
    holdout_by: str = "row"
    out: str | None = None
    json: str | None = None  # file for the rows of measurements
    checkpoint: str | None = None
    resume: bool = False
    quiet: bool = False
    verbose: bool = False

    def check(self, problem: str = "linear") -> None:
        """Raise an error for what cannot be read or written."""
        if self.test is not None and self.holdout is not None and problem not in OF_ROWS:
            raise UsageError("--test and --holdout both name the rows to test on: give one of them")
        if self.holdout_by not in HOLDOUTS:
            raise UsageError(f"--holdout-by {self.holdout_by}: {expected_one_of(HOLDOUTS, self.holdout_by)}")
        if self.holdout_by != "row" and self.holdout is None:
            raise UsageError(f"--holdout-by {self.holdout_by}: nothing is held out: give --holdout FRACTION too")
        check_holdout(self.holdout)
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
        inputs = [name for name in (self.data, self.test) if name is not None]
        for name in inputs:
            check_readable(name, problem)
        check_outputs({"--out": self.out, "--json": self.json}, inputs, pipes=("--json",))
        if self.checkpoint is not None:
            check_writable("--checkpoint", self.checkpoint, directory=True)

    def display(self) -> Display:
        """Return what the run prints on: standard output, unless its rows go there."""
        return Display(sys.stderr if self.json == "-" else Screen(sys.stdout), self.quiet)

    def naming(self) -> AbstractContextManager[None]:
        """Prefix the data's name to errors that the library finds in the rows (one class only, ...)."""
        return naming(self.data, self.checkpoint)


def check_holdout(fraction: float | None) -> None:
    if fraction is not None and not 0 < fraction < 1:
        raise UsageError(f"--holdout {fraction:g}: expected a fraction between 0 and 1")


def read(request: TrainRequest, sources: Sources, config: TrainConfig, display: Display) -> tuple[Any, Any, Any]:
    """Return the training data, the test data if there are some, and those that are held out to choose by."""
    problem = config.problem
    if not request.data_named:
        display.say(f"no data named: training on {request.data}, {KINDS[problem].description}")
    reading = Reading(request.data)
    with display.live(reading.line):
        examples = sources.open(problem, request.data, reading.update)
    display.say(f"{request.data}: {described(problem, examples)}")
    for line in remarks(request.data, examples, config):
        display.say(line)
    held = None
    if request.holdout is not None:
        with request.naming():
            examples, held = hold_out(problem, examples, request.holdout, config.seed, request.holdout_by)
        purpose = "test on" if request.test is None else "choose by"
        display.say(f"held out {len(held):,} {KINDS[problem].noun} to {purpose}, training on {len(examples):,}")
    if request.test is None:
        return examples, None, held
    reading = Reading(request.test)
    with display.live(reading.line):
        test = sources.open_test(problem, request.test, examples, reading.update)
    display.say(f"{request.test}: {described(problem, test)}")
    return examples, test, held


def carry_out(request: TrainRequest, config: TrainConfig, start: Start) -> int:
    """Start a run, follow it to its end, save what is asked for, and return the exit status.

    ``--verbose`` adds why its discipline was chosen, and where the time went.
    """
    watch = Stopwatch("start", process_start())
    display = request.display()
    resuming = request.resume and has_checkpoint(request.checkpoint or "")
    if request.out is None and config.host != "simulator":  # whose measurements are the result
        display.say("no --out: this model will not be kept")
    with Interrupts(display) as interrupts, prepared(config, display):
        if config.device == "cuda":
            from hogwild.cuda.backend import connect

            connect()  # before data are read, which may take minutes
        run = start(display, watch, resuming)
        with run, contextlib.closing(RowsFile(request.json, resuming)) as rows_file:
            interrupts.follow(run)
            why = f"{run.config.discipline} because {run.reason}" if run.reason and request.verbose else ""
            for line in filter(None, [*describe_run(run).split("\n"), why, run.note]):
                display.say(line)
            saved = drive(run, display, rows_file, request)
        parts = run.stopwatch.seconds
        total = sum(parts.values())
        lines = [*summary(run.history[-1], interrupts.number, total, run.config).split("\n"), *saved]
        if request.verbose:
            for part, seconds in (*parts.items(), ("in all", total)):
                lines.append(f"{part:<10} {seconds:9.2f} s {seconds / total:6.0%}")
        for line in lines:
            display.say(line)
        if not interrupts.status:
            display.finish()
        return interrupts.status


def drive(run: Run, display: Display, rows_file: RowsFile, request: TrainRequest) -> list[str]:
    """Follow the run to its end and save its model, even if it was stopped or failed; return the lines about that."""
    noun = KINDS[run.config.problem].noun
    command = {"command": shlex.join(["hogwild", *sys.argv[1:]])}  # for the first row, beside the machine's facts
    failure: Exception | None = None
    try:
        with display.live(lambda: training_line(run.progress(), run.config.epochs, noun)):
            for row in run:
                rows_file.write(row | command | ({"staleness": run.staleness} if run.staleness else {}))
                display.row(row)
                command = {}
    except (TrainingError, OutputError, BrokenPipeError) as error:  # training failed, or an output was closed or full
        failure = error
    saved = []
    with run.stopwatch("saving"):
        if request.out is not None and run.history:
            run.model.save(request.out)
            saved = [f"model saved to {request.out}"]
    if failure is None:
        return saved
    if saved and not isinstance(failure, BrokenPipeError):
        raise type(failure)(f"{failure}; {saved[0]}") from failure
    raise failure


@contextlib.contextmanager
def prepared(config: TrainConfig, display: Display) -> Iterator[None]:
    """Start the fork server early if workers will be processes for certain.

    Within the block it is announced when kernels must be compiled, which takes a noticeable time, on terminals and in
    pipes alike.
    """
    if config.host == "processes":
        fork_server.ensure_running()
    announce[:] = [lambda: display.say("compiling, once on this machine, which takes some seconds")]
    try:
        yield
    finally:
        announce.clear()


class Interrupts:
    """Turns the first SIGINT, SIGTERM or SIGHUP into ``run.stop()``, and the second into an immediate exit."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.run: Run | None = None
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def status(self) -> int:
        return 0 if self.number is None else 128 + self.number

    def follow(self, run: Run) -> None:
        """Let signals stop ``run`` from now on; if an earlier one's exception was lost (in a callback), stop it now."""
        self.run = run
        if self.number is not None:
            run.stop()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup, or in a background job
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: Any) -> None:
        if self.number is not None:
            self._quit()
        self.number = number
        if self.run is None:  # there is nothing to keep yet
            if number == signal.SIGINT:
                tell("")  # the terminal shows ^C
            raise SystemExit(128 + number)  # KeyboardInterrupt might end Python by the signal
        self.run.stop()
        if not self.display.quiet:
            tell("\nstopping and saving; once more to quit at once")

    def _quit(self) -> None:
        if self.run is not None:
            closing = threading.Thread(target=self.run.close, daemon=True)
            closing.start()
            closing.join(QUIT_SECONDS)
        if self.display.is_live:
            tell("\x1b[?25h", self.display.stream.fileno(), "")  # rich had hidden the cursor
        os._exit(self.status)


def tell(text: str, descriptor: int = 2, end: str = "\n") -> None:
    """Write from inside a signal handler, where ``print`` is not safe, to a terminal that may be closed."""
    with contextlib.suppress(OSError):
        os.write(descriptor, (text + end).encode())


# ---- what a run says about itself: before it starts, and when it has ended


def describe_workers(config: TrainConfig, chosen: bool = False) -> str:
    """Describe the workers, with defaults filled in; ``chosen``: host "auto" has settled on one."""
    workers = config.workers or 1
    if config.device != "cuda":
        reasons = {"threads": ": a short run", "processes": ": a long run"} if chosen and config.compiled else {}
        return "1 worker" if workers == 1 else f"{workers} workers ({config.host}{reasons.get(config.host, '')})"
    streams = f"{workers} CUDA stream{'s' * (workers != 1)}"
    in_flight = f"{config.in_flight:,}" if config.in_flight else "as many as the step allows"
    return f"{streams}, examples in flight: {in_flight}"


def describe_run(run: Run) -> str:
    """Describe the run that is about to start, with defaults filled in."""
    config = run.config
    step = f"step {config.step:.4g}, " if config.step else ""  # the optimal schedule sets its own
    alone = (config.workers or 1) == 1 and config.device == "cpu"
    exact = alone or config.discipline == "round-robin" or config.host == "simulator"
    repeat = EXACT if exact else RACE
    name = config.discipline
    if config.machines > 1:
        rows = " with rows of their own" if config.own_rows else ""
        name = f"{config.exchange} of {config.machines} machines{rows}; here {name}"
        numbers = parse_exchange(config.exchange)[1]
        within = numbers.get("period", 0 if numbers else math.inf) < math.inf
        repeat = "when machines trade varies, so two runs differ" if within else repeat if alone else RACE
    elif config.exchange != "none":
        name = config.exchange
        repeat = repeat if exact else "which rows a worker gets varies, so two runs differ"
    if config.host == "simulator":
        repeat = f"delay {config.delay}, one core plays them all; {repeat}"
    goal = f"{config.loss} loss, l2 {config.l2:g}, l1 {config.l1:g}"
    if config.problem == "completion":
        goal = f"rank {config.rank}, {config.loss} loss, l2 {config.l2:g} {config.penalty}"
    elif config.problem in ("fm", "ffm"):
        goal = f"rank {config.rank}, {config.loss} loss, l2 {config.l2:g}, of factors {config.l2_factors:g}"
    elif config.problem == "cuts":
        goal = "smallest cut, relaxed to the simplex"
    workers = describe_workers(config, run.requested.host == "auto")
    return (
        f"{goal}; {step}{config.schedule} schedule, "
        f"{config.order} order, seed {config.seed}\n{name} on {workers}: {repeat}"
    )


def summary(last: dict[str, Any], interrupted: int | None, total: float, config: TrainConfig) -> str:
    """Return the closing lines on quality and speed; ``total`` is the time in seconds since the command started."""
    figures = {
        "objective": ("objective", ".6g"),
        "test_accuracy": ("test accuracy", ".4f"),
        "test_auc": ("test AUC", ".4f"),
        "test_rmse": ("test RMSE", ".4f"),
        "test_ndcg_at_10": ("test NDCG at 10", ".4f"),
        "cut_value": ("cut value", ".6g"),
        "train_accuracy": ("train accuracy", ".4f"),
    }
    parts = [f"{name} {last[field]:{form}}" for field, (name, form) in figures.items() if last.get(field) is not None]
    text = f"{'interrupted' if interrupted else 'done'} after epoch {last['epoch']}: {', '.join(parts)}"
    if not interrupted and last["epoch"] < config.epochs and last["status"] == "ok":
        reached = config.target is not None and last["objective"] <= config.target
        why = "target reached" if reached else f"no progress in {config.patience} (--patience 0 trains all)"
        text += f"\nended before epoch {config.epochs}: {why}"
    if last.get("verdict") not in (None, "settled"):
        text += f"\nnot settled: {last['verdict']}"
    if last.get("kept_epoch") not in (None, last["epoch"]):
        kept = f"epoch {last['kept_epoch']}, whose held-out loss was lowest"
        text += f"\nthe model is that of {kept} (--keep last: the last)"
    simulated = last["host"] == "simulator"
    training = "to play all workers on one core" if simulated else "training"
    text += f"\n{last['train_seconds']:.2f} s {training}, {total:.2f} s in all"
    for unit in () if simulated else ("nonzeros", "updates"):
        if rate := last.get(f"{unit}_per_second"):
            text += f", {rate / 1e6:.1f} million {unit} a second in the last epoch"
            break
    if last.get("replicas"):
        text += f"\n{last['replicas']} replicas sent {last['messages']:,} messages, {last['bytes_sent'] / 1e6:.3g} MB"
        if last["virtual_seconds"] is not None:
            text += f", in {last['virtual_seconds']:.3g} virtual seconds"
    return text
