"""One training run of the command line: follow it, show and save the results.

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild.cli.display import Display, training_line
from hogwild.cli.sources import KINDS, Sources, check_outputs, check_writable
from hogwild.config import TrainConfig
from hogwild.errors import OutputError, TrainingError, UsageError
from hogwild.hosts import fork_server
from hogwild.kernels import announce
from hogwild.methods import parse_exchange
from hogwild.model_file import has_checkpoint
from hogwild.rows_file import RowsFile, Screen
from hogwild.training.stopwatch import Stopwatch, process_start

if TYPE_CHECKING:
    from hogwild.training.run import Run

    #: Reads the data and starts a run, which takes over the stopwatch's seconds; the last: whether to resume.
    Start = Callable[[Display, Stopwatch, bool], Run]

QUIT_SECONDS = 2  # for the workers to end after a second Ctrl-C
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
        check_outputs({"--out": self.out, "--json": self.json}, sources.inputs, pipes=("--json",))
        if self.checkpoint is not None:
            check_writable("--checkpoint", self.checkpoint, directory=True)

    def display(self) -> Display:
        """Return what the run prints on: standard output, unless its rows go there."""
        return Display(sys.stderr if self.json == "-" else Screen(sys.stdout), self.quiet)


def carry_out(results: Results, config: TrainConfig, start: Start) -> int:
    """Start a run, follow it to its end, save what is asked for, and return the exit status.

    ``--verbose`` adds why its discipline was chosen, and where the time went.
    """
    watch = Stopwatch("start", process_start())
    display = results.display()
    resuming = results.resume and has_checkpoint(results.checkpoint or "")
    if results.resume and not resuming:
        display.say(f"no checkpoint in {results.checkpoint} yet: starting from the beginning")
    if results.out is None and config.host != "simulator":  # whose measurements are the result
        display.say("no --out: this model will not be kept")
    with Interrupts(display) as interrupts, prepared(config, display):
        if config.device == "cuda":
            from hogwild.cuda.backend import connect

            connect()  # before data are read, which may take minutes
        run = start(display, watch, resuming)
        with run, contextlib.closing(RowsFile(results.json, resuming)) as rows_file:
            interrupts.follow(run)
            display.say(*description(run))
            if results.verbose and run.reason:
                display.say(f"{run.config.discipline} because {run.reason}")
            drive(run, display, rows_file, results.out)
        seconds = run.stopwatch.seconds
        total = sum(seconds.values())
        display.say(*summary(run.history[-1], bool(interrupts.status), total, run.config))
        if results.out is not None:
            display.say(f"model saved to {results.out}")
        for part, spent in (*seconds.items(), ("in all", total)) if results.verbose else ():
            display.say(f"{part:<10} {spent:9.2f} s {spent / total:6.0%}")
        if not interrupts.status:
            display.finish()
        return interrupts.status


def drive(run: Run, display: Display, rows_file: RowsFile, out: str | None) -> None:
    """Follow the run to its end and save its model, even if it was stopped or failed."""
    noun = KINDS[run.config.problem].noun
    more: dict[str, Any] = {"command": shlex.join(["hogwild", *sys.argv[1:]])}  # for the first row
    failure: Exception | None = None
    try:
        with display.live(lambda: training_line(run.progress(), run.config.epochs, noun)):
            for row in run:
                rows_file.write(row | more | ({"staleness": run.staleness} if run.staleness else {}))
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


def description(run: Run) -> Iterator[str]:
    """Yield what a run that is about to start minimises, and how, with defaults filled in."""
    config = run.config
    names = "loss rank penalty l2 l2_factors l1 step schedule order seed"
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
