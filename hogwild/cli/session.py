"""What is around a training run of the command line: where its results go, signals, and what it says about itself.

The first Ctrl-C or SIGTERM ends the run in good order (its model is kept, the exit status is 130 or 143), the second at
once. A closed terminal does not end the run: its results are saved, and the exit status reports the error.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.cli.display import Display, training_line
from hogwild.cli.sources import KINDS, Sources, check_outputs, check_writable
from hogwild.config import TrainConfig
from hogwild.errors import OutputError, TrainingError, UsageError
from hogwild.hosts import fork_server
from hogwild.kernels import announce
from hogwild.methods import parse_exchange
from hogwild.model_file import CHECKPOINT_NAME
from hogwild.rows_file import RowsFile, Screen

if TYPE_CHECKING:
    from hogwild.training.run import Run

QUIT_SECONDS = 2  # for the workers to end after a second Ctrl-C
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXACT = "reproducible to the last bit"
RACE = "two runs differ"
SHORT = {"threads": "threads: a short run", "processes": "processes: a long run"}  # why host auto took them


@dataclass(frozen=True)
class Results:
    """Where the results of a run go."""

    out: str | None = None
    json: str | None = None  # file for the rows of measurements
    checkpoint: str | None = None
    resume: bool = False
    quiet: bool = False
    verbose: bool = False

    def check(self, sources: Sources) -> None:
        """Raise an error for what cannot be written."""
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
        if self.out == "-":
            raise UsageError("--out -: a model goes to a file: name it; --json - prints the measurements")
        kept = []
        if self.checkpoint is not None:
            check_writable("--checkpoint", self.checkpoint, directory=True)
            kept = [self.checkpoint, os.path.join(self.checkpoint, CHECKPOINT_NAME)]
        check_outputs({"--out": self.out, "--json": self.json}, [*sources.inputs, *kept], pipes=("--json",))

    def display(self) -> Display:
        """Return what the run prints on: standard output, unless its rows go there."""
        return Display(sys.stderr if self.json == "-" else Screen(sys.stdout), self.quiet)


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


@contextlib.contextmanager
def stoppable(run: Run, display: Display) -> Iterator[list[int]]:
    """Within this block the first SIGINT, SIGTERM or SIGHUP stops ``run`` in good order, and the second quits at once.

    Yields a list that has the numbers of the signals that have come.
    """
    signals: list[int] = []

    def handle(number: int, _: Any) -> None:
        signals.append(number)
        if len(signals) == 1:
            run.stop()
            tell("" if display.quiet else "\nstopping and saving; once more to quit at once\n")
            return
        closing = threading.Thread(target=run.close, daemon=True)
        closing.start()
        closing.join(QUIT_SECONDS)
        if display.is_live:
            tell("\x1b[?25h", display.stream.fileno())  # rich had hidden the cursor
        os._exit(128 + signals[0])

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}  # as under nohup
        before = {number: signal.signal(number, handle) for number in SIGNALS if number not in ignored}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell(text: str, descriptor: int = 2) -> None:
    """Write from inside a signal handler, where ``print`` is not safe, to a terminal that may be closed."""
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())


def drive(run: Run, display: Display, rows_file: RowsFile, out: str | None) -> None:
    """Follow the run to its end and save its model, even if it was stopped or failed."""
    noun = KINDS[run.config.problem].noun
    more: dict[str, Any] = {"command": shlex.join(["hogwild", *sys.argv[1:]])}  # for the first row
    failure: Exception | None = None
    try:
        with display.live(lambda: training_line(run.progress(), run.config.epochs, noun)):
            for row in run:
                rows_file.write(row | more | ({"staleness": run.staleness} if run.staleness else {}))
                if more and "rows_evaluated" in row:
                    display.say(f"while training, the objective is that of {row['rows_evaluated']:,} of the rows")
                display.row(row)
                more = {}
    except (TrainingError, OutputError, BrokenPipeError) as error:  # training failed, or an output was closed or full
        failure = error
    if out is not None and run.history:
        with run.stopwatch("saving"):
            run.model.save(out)
        if isinstance(failure, TrainingError | OutputError):
            raise type(failure)(f"{failure}; model saved to {out}") from failure
    if failure is not None:
        raise failure


# ---- what a run says about itself: before it starts, and when it has ended


def description(run: Run) -> Iterator[str]:
    """Yield what a run that is about to start minimises, and how, with defaults filled in."""
    config = run.config
    names = "loss rank penalty l2 l2_factors l1 step decay schedule order seed"
    options = config.to_json()  # those of the problem
    facts = ((name.replace("_", " "), options.get(name)) for name in names.split())
    shown = ((name, f"{value:g}" if isinstance(value, float) else value) for name, value in facts if value is not None)
    yield ", ".join(f"{name} {value}" for name, value in shown)
    workers = config.workers or 1
    exact = (
        config.discipline == "round-robin" or config.host == "simulator" or (workers == 1 and config.device == "cpu")
    )
    how = config.discipline if config.exchange == "none" else config.exchange
    if config.machines > 1:
        numbers = parse_exchange(config.exchange)[1]
        exact &= numbers.get("period", 0 if numbers else math.inf) == math.inf  # when machines trade may vary
        how += f" of {config.machines} machines{' with rows of their own' * config.own_rows}; here {config.discipline}"
    host = config.host
    if run.requested.host == "auto" and config.compiled and host in SHORT:
        host = SHORT[host]
    crowd = f"{workers} worker{'s' * (workers > 1)}" + (f" ({host})" if workers > 1 else "")
    if config.device == "cuda":
        crowd = f"{workers} CUDA streams, examples in flight: {config.in_flight or 'as many as the step allows'}"
    played = f"delay {config.delay}, one core plays them all; " if host == "simulator" else ""
    yield f"{how} on {crowd}: {played}{EXACT if exact else RACE}"
    if run.note:
        yield run.note


def summary(last: dict[str, Any], interrupted: bool, total: float, config: TrainConfig) -> Iterator[str]:
    """Yield the closing lines; ``total`` is the time in seconds since the command started."""
    figures = (
        f"{name.replace('_', ' ')} {value:.6g}"
        for name, value in last.items()
        if value is not None and (name in ("objective", "cut_value", "train_accuracy") or name.startswith("test_"))
    )
    yield f"{'interrupted' if interrupted else 'done'} after epoch {last['epoch']}: {', '.join(figures)}"
    if last.get("rows_evaluated") and not interrupted:
        yield f"objective and train metrics are those of {last['rows_evaluated']:,} rows: the data exceed the memory"
    if not interrupted and last["epoch"] < config.epochs and last["status"] == "ok":
        reached = config.target is not None and last["objective"] <= config.target
        why = "target reached" if reached else f"no progress in {config.patience} (--patience 0 trains all)"
        yield f"ended before epoch {config.epochs}: {why}"
    if last.get("verdict") not in (None, "settled"):
        yield f"not settled: {last['verdict']}"
    if last.get("kept_epoch") not in (None, last["epoch"]):
        kept = f"epoch {last['kept_epoch']}, whose held-out loss was lowest"
        yield f"the model is that of {kept} (--keep last: the last)"
    training = "to play all workers on one core" if last["host"] == "simulator" else "training"
    yield f"{last['train_seconds']:.2f} s {training}, {total:.2f} s in all"
