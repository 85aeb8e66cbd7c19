"""One training run of the command line: read the data, drive the run, show and keep what comes out.

The order is chosen so that mistakes show early: options, then paths, then the data, and only then torch. The first
Ctrl-C or SIGTERM ends the run in good order (its model is kept, the exit status is 130 or 143), the second at once.
A screen that is gone ends nothing: the run goes on, its results are saved, and the exit status tells.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.cli.containers import CONTAINERS, HOLDOUTS
from hogwild.cli.display import Display, Reading, training_line
from hogwild.cli.sources import Sources, check_apart, check_readable, check_writable
from hogwild.config import TrainConfig, usual_host
from hogwild.errors import InputError, OutputError, TrainingError, UsageError, expected_one_of
from hogwild.hosts import fork_server
from hogwild.json_rows import RowsFile
from hogwild.kernels.directory import announce
from hogwild.model_file import has_checkpoint
from hogwild.screen import Screen
from hogwild.stopwatch import Stopwatch, process_start

if TYPE_CHECKING:
    from hogwild.training import Run

LABEL_FILES = (".npy", ".tsv", ".txt")  # that a Segmentation can write
EXACT, RACE = "reproducible to the last bit", "they race, so two runs differ"
NOT_KEPT = "no --out: this model will not be kept"
QUIT_SECONDS = 2  # that a second Ctrl-C grants to end the workers


@dataclass(frozen=True)
class Request:
    """Where data come from and results go to; checked by ``check`` before anything is read."""

    data: str
    data_named: bool
    test: str | None
    holdout: float | None
    out: str | None
    rows: str | None
    checkpoint: str | None
    resume: bool
    quiet: bool
    histogram: str | None = None  # of a simulation
    holdout_by: str = "row"
    segmentation: str | None = None
    plot: str | None = None
    verbose: bool = False

    def check(self, problem: str = "linear") -> None:
        if self.holdout_by not in HOLDOUTS:
            raise UsageError(f"--holdout-by {self.holdout_by}: {expected_one_of(HOLDOUTS, self.holdout_by)}")
        if self.holdout_by != "row" and self.holdout is None:
            raise UsageError(f"--holdout-by {self.holdout_by}: nothing is held out: give --holdout FRACTION too")
        for option, name in (("--segmentation", self.segmentation), ("--plot", self.plot)):
            if name is not None and problem != "cuts":
                raise UsageError(f"{option} {name}: is for --problem cuts, not for {problem}")
        if self.segmentation is not None and not self.segmentation.endswith(LABEL_FILES):
            endings = ", ".join(LABEL_FILES)
            raise UsageError(f"--segmentation {self.segmentation}: expected a name that ends in {endings}")
        if self.plot is not None and not self.plot.endswith(".png"):
            raise UsageError(f"--plot {self.plot}: expected a name that ends in .png")
        if self.test is not None and self.holdout is not None:
            raise UsageError("--test and --holdout both name the rows to test on: give one of them")
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise UsageError(f"--holdout {self.holdout:g}: expected a fraction between 0 and 1")
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
        for name in (self.data, self.test):
            if name is not None:
                check_readable(name, problem)
        outputs = {"--out": self.out, "--segmentation": self.segmentation, "--plot": self.plot}
        check_apart(outputs | {"--json": self.rows, "--histogram": self.histogram}, [self.data, self.test])
        for option, name in outputs.items():
            if name is not None:
                check_writable(option, name, regular=True)
        if self.rows not in (None, "-"):
            check_writable("--json", self.rows)
        if self.histogram is not None:
            check_writable("--histogram", self.histogram)
        if self.checkpoint is not None:
            check_writable("--checkpoint", self.checkpoint, directory=True)


def run_training(request: Request, sources: Sources, config: TrainConfig) -> int:
    """Train as asked and return the exit status; errors are raised."""
    watch = Stopwatch("start", process_start())
    config.check_crowd(machine.physical_cores())
    sources.check(config.problem)
    request.check(config.problem)
    display = screen_of(request.rows, request.quiet)
    going_on = request.resume and has_checkpoint(request.checkpoint or "")
    if request.out is request.segmentation is None and config.host != "simulator":  # whose measurements are the result
        display.say(NOT_KEPT)
    with Interrupts(display) as interrupts, announced(display):
        if config.device == "cuda":
            find_device()
        if needs_processes(config):
            fork_server.ensure_running()
        with watch("reading"):
            rows, test = read(request, sources, config, display)
        from hogwild.training import train

        if request.resume and not going_on:
            display.say(f"no checkpoint in {request.checkpoint} yet: starting from the beginning")
        options: dict[str, Any] = {"checkpoint": request.checkpoint, "resume": going_on, "data": request.data}
        with display.live(lambda: "starting workers and compiling"), naming(request):
            before = watch.seconds
            run = train(rows, test, config=config, **options)
        histogram = RowsFile(request.histogram, going_on, "--histogram")
        with contextlib.closing(histogram), run, contextlib.closing(RowsFile(request.rows, going_on)) as rows_file:
            run.stopwatch.add(before)
            interrupts.follow(run)
            for line in describe_run(run.config, run.reason).split("\n"):
                display.say(line)
            outputs = Outputs(request.out, request.segmentation, request.plot)
            saved = drive(run, display, rows_file, outputs, histogram)
        return close(run, display, saved, interrupts, request.verbose)


def screen_of(rows: str | None, quiet: bool) -> Display:
    """Where lines for people go: to standard output, unless that is asked for the rows."""
    return Display(sys.stderr if rows == "-" else Screen(sys.stdout), quiet)


def close(run: Run, display: Display, saved: list[str], interrupts: Interrupts, verbose: bool = False) -> int:
    """Say how the run ended and where its results are; the exit status."""
    parts = run.stopwatch.seconds
    lines = summary(run.history[-1], interrupts.number, sum(parts.values())).split("\n")
    for line in (*lines, *saved, *(table_of(parts) if verbose else ())):
        display.say(line)
    if not interrupts.status:
        display.finish()
    return interrupts.status


@dataclass(frozen=True)
class Outputs:
    """Files that are made of a model."""

    model: str | None
    segmentation: str | None = None
    plot: str | None = None

    def save(self, model: Any) -> list[str]:
        """Write them, and a line for each."""
        lines = []
        if self.model is not None:
            model.save(self.model)
            lines.append(f"model saved to {self.model}")
        if self.segmentation is not None:
            model.save_labels(self.segmentation)
            lines.append(f"labels of the vertices saved to {self.segmentation}")
        if self.plot is not None:
            from hogwild.cut_picture import draw

            draw(model, self.plot)
            lines.append(f"picture saved to {self.plot}")
        return lines


def drive(
    run: Run, display: Display, rows_file: RowsFile, outputs: Outputs, histogram: RowsFile | None = None
) -> list[str]:
    """Follow the run to its end, then save the outputs, also of a run that was stopped or failed; a line for each."""
    noun = CONTAINERS[run.config.problem].noun if run.config.problem in CONTAINERS else "samples"
    command = {"command": shlex.join(["hogwild", *sys.argv[1:]])}  # for the first row, beside the machine's facts
    try:
        with display.live(lambda: training_line(run.progress(), run.config.epochs, noun)):
            for row in run:
                rows_file.write(row | command)
                display.row(row)
                command = {}
                if run.staleness and histogram is not None:
                    about = {name: row[name] for name in ("run", "discipline", "workers", "seed", "epoch")}
                    histogram.write(about | {"delay": run.config.delay, "staleness": run.staleness})
    except (TrainingError, OutputError, BrokenPipeError) as error:  # rows, or a checkpoint, that nobody takes
        with run.stopwatch("saving"):
            saved = outputs.save(run.model) if run.history else []
        if not saved or isinstance(error, BrokenPipeError):
            raise
        raise type(error)(f"{error}; {', '.join(saved)}") from error
    with run.stopwatch("saving"):
        return outputs.save(run.model)


@contextlib.contextmanager
def naming(request: Request) -> Iterator[None]:
    """Put the data's name before errors that the library finds in the rows it is given (one class only, ...)."""
    try:
        yield
    except InputError as error:
        if request.checkpoint is not None and str(error).startswith(request.checkpoint):
            raise
        raise InputError(f"{request.data}: {error}") from error


def find_device() -> None:
    """Raise InputError where there is no GPU, before data are read that may take minutes."""
    from hogwild.cuda.backend import connect

    connect()


@contextlib.contextmanager
def announced(display: Display) -> Iterator[None]:
    """Say so when kernels must be compiled, which a person waits for, on terminals and in pipes alike."""
    announce[:] = [lambda: display.say("compiling, once on this machine, which takes some seconds")]
    try:
        yield
    finally:
        announce.clear()


def needs_processes(config: TrainConfig) -> bool:
    """Whether workers will be processes, as far as can be told before the data are read."""
    alone = config.discipline == "serial" and config.exchange == "none"
    workers = config.workers or (1 if alone else machine.physical_cores())
    return usual_host(config.host, workers) == "processes"


def read(request: Request, sources: Sources, config: TrainConfig, display: Display) -> tuple[Any, Any]:
    """The data to train and, if asked for, to test on."""
    container = CONTAINERS[config.problem]
    if not request.data_named:
        display.say(f"no data named: training on {request.data}, {container.what}")
    reading = Reading(request.data)
    with display.live(reading.line):
        examples = container.open(sources, request.data, reading.update)
    display.say(f"{request.data}: {container.facts(examples)}")
    if request.plot is not None and len(examples.shape or ()) not in (2, 3):
        raise UsageError(f"--plot {request.plot}: {request.data} is no grid of two or three dimensions")
    for line in container.notes(request.data, examples, config):
        display.say(line)
    if request.holdout is not None:
        rest, test = container.hold_out(examples, request.holdout, config.seed, request.holdout_by)
        display.say(f"held out {len(test):,} {container.noun} to test on, training on {len(rest):,}")
        return rest, test
    if request.test is None:
        return examples, None
    reading = Reading(request.test)
    with display.live(reading.line):
        test = container.open_test(sources, request.test, examples, reading.update)
    display.say(f"{request.test}: {container.facts(test)}")
    return examples, test


def workers_of(config: TrainConfig) -> str:
    """Who works, defaults filled in."""
    workers = config.workers or 1
    if config.device != "cuda":
        return "1 worker" if workers == 1 else f"{workers} workers ({config.host})"
    if config.launch == "vmap":
        return f"a stack of {workers} minibatches (vmap)"
    streams = f"{workers} CUDA stream{'s' * (workers != 1)}"
    if config.problem == "module":
        return f"{streams} ({config.launch})"
    many = f"{config.in_flight:,}" if config.in_flight else "as many as the step allows"
    return f"{streams}, examples in flight: {many}"


def describe_run(config: TrainConfig, reason: str = "") -> str:
    """What is about to run, defaults filled in."""
    step = f"step {config.step:.4g}, " if config.step else ""  # the optimal schedule sets its own
    alone = (config.workers or 1) == 1 and config.device == "cpu"
    exact = alone or config.discipline == "round-robin" or config.host == "simulator"
    repeat = EXACT if exact else RACE
    name = config.discipline
    if config.exchange != "none":
        name = config.exchange
        repeat = repeat if exact else "which rows a worker gets varies, so two runs differ"
    if config.host == "simulator":
        repeat = f"delay {config.delay}, one core plays them all; {repeat}"
    goal = {
        "linear": f"{config.loss} loss, l2 {config.l2:g}, l1 {config.l1:g}",
        "completion": f"rank {config.rank}, {config.loss} loss, l2 {config.l2:g} {config.penalty}",
        "cuts": "smallest cut, relaxed to the simplex",
    }[config.problem]
    return (
        f"{goal}; {step}{config.schedule} schedule, "
        f"{config.order} order, seed {config.seed}\n{name} on {workers_of(config)}: {repeat}"
        + (f"\n{config.discipline} because {reason}" if reason else "")
    )


def table_of(parts: dict[str, float]) -> Iterator[str]:
    """Where the time went, a line a part: seconds, and shares of the whole."""
    total = sum(parts.values())
    for part, seconds in (*parts.items(), ("in all", total)):
        yield f"{part:<10} {seconds:9.2f} s {seconds / total:6.0%}"


def summary(last: dict[str, Any], interrupted: int | None, total: float) -> str:
    """The closing lines: how good, and how fast; ``total`` seconds have passed since Enter."""
    parts = [f"objective {last['objective']:.6g}"]
    names = {"test_accuracy": "test accuracy", "test_auc": "test AUC", "test_rmse": "test RMSE"}
    names |= {"test_ndcg_at_10": "test NDCG at 10"}
    parts += [f"{name} {last[field]:.4f}" for field, name in names.items() if last.get(field) is not None]
    parts += [f"cut value {last['cut_value']:.6g}"] if last.get("cut_value") is not None else []
    parts += [f"train accuracy {last['train_accuracy']:.4f}"] if last.get("train_accuracy") is not None else []
    line = f"{'interrupted' if interrupted else 'done'} after epoch {last['epoch']}: {', '.join(parts)}"
    training = "to play all workers on one core" if last["host"] == "simulator" else "training"
    times = f"{last['train_seconds']:.2f} s {training}, {total:.2f} s in all"
    if last.get("nonzeros_per_second"):
        times += f", {last['nonzeros_per_second'] / 1e6:.1f} million nonzeros a second in the last epoch"
    elif last.get("updates_per_second"):
        times += f", {last['updates_per_second'] / 1e6:.1f} million updates a second in the last epoch"
    return f"{line}\n{times}"


class Interrupts:
    """Turns the first SIGINT, SIGTERM or SIGHUP into ``run.stop()``, and the second into an exit at once."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.run: Run | None = None
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def status(self) -> int:
        return 0 if self.number is None else 128 + self.number

    def follow(self, run: Run) -> None:
        """From now on a signal stops ``run``; one whose exception got lost before (in a callback) does so now."""
        self.run = run
        if self.number is not None:
            run.stop()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as set by nohup, or for a background job
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: Any) -> None:
        if self.number is not None:
            self._quit()
        self.number = number
        if self.run is None:  # nothing to keep yet
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
    """Write from inside a signal handler, where ``print`` is not safe, and to a terminal that may be gone."""
    with contextlib.suppress(OSError):
        os.write(descriptor, (text + end).encode())
