"""One training run of the command line: read the data, drive the run, show and save the results.

The order of work makes errors show early: options, then paths, then the data, and only then torch. The first Ctrl-C or
SIGTERM ends the run in good order (its model is kept, the exit status is 130 or 143), the second at once. A closed
terminal does not end the run: its results are saved, and the exit status reports the error.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.cli.choosing import tell_choice, unasked
from hogwild.cli.data.sources import CONTAINERS, HOLDOUTS, Sources, check_outputs, check_readable, check_writable
from hogwild.cli.display import Display, Reading, training_line
from hogwild.cli.summary import describe_run, summary
from hogwild.config import TrainConfig
from hogwild.errors import HogwildError, InputError, OutputError, TrainingError, UsageError, expected_one_of
from hogwild.hosts import fork_server
from hogwild.kernels.directory import announce
from hogwild.machines.meeting import tell_failure
from hogwild.model_file import has_checkpoint
from hogwild.rows_file import RowsFile, Screen
from hogwild.training.stopwatch import Stopwatch, process_start

if TYPE_CHECKING:
    from hogwild.machines.cluster import Cluster
    from hogwild.machines.meeting import Meeting
    from hogwild.training.run import Run

    #: Reads the data and starts a run, which takes over the stopwatch's seconds; True: on from the checkpoint.
    Start = Callable[[Display, Stopwatch, bool], Run]

LABEL_FILES = (".npy", ".tsv", ".txt")  # formats that a Segmentation can write
NOT_KEPT = "no --out: this model will not be kept"
QUIT_SECONDS = 2  # for the workers to end after a second Ctrl-C


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
    l2_given: bool = True
    l2_fixed: str = ""  # why it is not chosen although nobody gave it
    histogram: str | None = None  # file for the staleness of a simulation
    segmentation: str | None = None
    plot: str | None = None
    plot_path: str | None = None
    programs: tuple[str, ...] = ()  # further files that are read

    def check(self, problem: str = "linear", chooses: bool = False) -> None:
        """Raise an error for what cannot be read or written; ``chooses``: held-out rows choose l2."""
        if self.test is not None and self.holdout is not None and problem != "linear":
            raise UsageError("--test and --holdout both name the rows to test on: give one of them")
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
        if self.plot_path is not None and not chooses:
            raise UsageError(f"--plot-path {self.plot_path}: draws the choice of l2, and there is none: give --l2 auto")
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise UsageError(f"--holdout {self.holdout:g}: expected a fraction between 0 and 1")
        if self.resume and self.checkpoint is None:
            raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
        inputs = [name for name in (self.data, self.test, *self.programs) if name is not None]
        for name in inputs:
            check_readable(name, problem)
        outputs = {
            "--out": self.out,
            "--segmentation": self.segmentation,
            "--plot": self.plot,
            "--plot-path": self.plot_path,
            "--json": self.json,
            "--histogram": self.histogram,
        }
        check_outputs(outputs, inputs, pipes=("--json", "--histogram"))
        if self.checkpoint is not None:
            check_writable("--checkpoint", self.checkpoint, directory=True)


def run_training(request: TrainRequest, sources: Sources, config: TrainConfig, meeting: Meeting | None = None) -> int:
    """Train on the rows, ratings or graph asked for, and return the exit status; errors are raised.

    With a ``meeting`` it is done together with other machines.
    """
    try:
        config.check_crowd(machine.physical_cores())
        sources.check(config.problem)
        request.check(config.problem, bool(config.l2_path))
    except HogwildError as error:
        if meeting is not None and not meeting.local:
            tell_failure(meeting, str(error))
        raise
    if config.keep == "best" and request.holdout is None:
        raise UsageError("--keep best goes by rows held out of DATA, and --test only judges: give --holdout FRACTION")
    if meeting is None:
        return lead_or_train(request, sources, config)
    from hogwild.cli.machines import gathered

    display = Display(sys.stderr if request.json == "-" else Screen(sys.stdout), request.quiet)
    with gathered(meeting, config, display.say) as (cluster, config):
        if cluster.leads:
            return lead_or_train(request, sources, config, cluster)
        return take_part(request, sources, config, cluster)


def take_part(request: TrainRequest, sources: Sources, config: TrainConfig, cluster: Cluster) -> int:
    """Do this machine's part of a run that machine 0 leads, and return the exit status."""
    from hogwild.training.run import train

    display = Display(Screen(sys.stdout), request.quiet)
    with Interrupts(display) as interrupts, announced(display):
        if needs_processes(config):
            fork_server.ensure_running()
        rows, test, held = read(request, sources, config, display)
        noun = CONTAINERS[config.problem].noun
        with display.live(lambda: "starting workers and compiling"), naming(request):
            run = train(rows, test, config=config, cluster=cluster, data=request.data, holdout=held)
        with run:
            interrupts.follow(run)
            with display.live(lambda: training_line(run.progress(), config.epochs, noun)):
                for _ in run:
                    pass
        display.say(f"machine {cluster.number}: done; the results are machine 0's")
    return interrupts.status


def lead_or_train(request: TrainRequest, sources: Sources, config: TrainConfig, cluster: Cluster | None = None) -> int:
    """Train on this machine, or lead the others of a cluster, and return the exit status."""

    def start(display: Display, watch: Stopwatch, going_on: bool) -> Run:
        with watch("reading"):
            rows, test, held = read(request, sources, config, display)
        from hogwild.training.run import train

        if request.resume and not going_on:
            display.say(f"no checkpoint in {request.checkpoint} yet: starting from the beginning")
        options: dict[str, Any] = {"checkpoint": request.checkpoint, "resume": going_on, "data": request.data}
        options |= {"cluster": cluster, "holdout": held}
        before = watch.seconds

        def begin(config: TrainConfig) -> Run:
            doing = "choosing l2" if config.l2_path else "starting workers and compiling"
            with display.live(lambda: doing):
                return train(rows, test, config=config, **options)

        asked = request.l2_given or going_on
        with naming(request):
            run = begin(config) if asked else unasked(config, request.l2_fixed, rows, held, begin, display.say)
        run.stopwatch.add(before)
        tell_choice(run.chosen, request.l2_given, request.plot_path, display.say)
        if config.own_rows:
            display.say(f"all {config.machines} machines: {run.progress().rows_total:,} rows to train on")
        return run

    return carry_out(
        request, config, start, lambda run: describe_run(run.config, run.reason, run.note, run.requested.host)
    )


def carry_out(request: TrainRequest, config: TrainConfig, start: Start, describe: Callable[[Run], str]) -> int:
    """Start a run, follow it to its end, save what is asked for, and return the exit status."""
    watch = Stopwatch("start", process_start())
    display = Display(sys.stderr if request.json == "-" else Screen(sys.stdout), request.quiet)
    going_on = request.resume and has_checkpoint(request.checkpoint or "")
    if request.out is request.segmentation is None and config.host != "simulator":  # whose measurements are the result
        display.say(NOT_KEPT)
    with Interrupts(display) as interrupts, announced(display):
        if config.device == "cuda":
            from hogwild.cuda.backend import connect

            connect()  # before data are read, which may take minutes
        if needs_processes(config):
            fork_server.ensure_running()
        run = start(display, watch, going_on)
        histogram = RowsFile(request.histogram, going_on, "--histogram")
        with contextlib.closing(histogram), run, contextlib.closing(RowsFile(request.json, going_on)) as rows_file:
            interrupts.follow(run)
            for line in describe(run).split("\n"):
                display.say(line)
            saved = drive(run, display, rows_file, request, histogram)
        parts = run.stopwatch.seconds
        total = sum(parts.values())
        lines = [*summary(run.history[-1], interrupts.number, total).split("\n"), *saved]
        if request.verbose:
            for part, seconds in (*parts.items(), ("in all", total)):
                lines.append(f"{part:<10} {seconds:9.2f} s {seconds / total:6.0%}")
        for line in lines:
            display.say(line)
        if not interrupts.status:
            display.finish()
        return interrupts.status


def save(request: TrainRequest, model: Any) -> list[str]:
    """Write the files that are made from a model, and return a line for each."""
    lines = []
    if request.out is not None:
        model.save(request.out)
        lines.append(f"model saved to {request.out}")
    if request.segmentation is not None:
        model.save_labels(request.segmentation)
        lines.append(f"labels of the vertices saved to {request.segmentation}")
    if request.plot is not None:
        from hogwild.problems.cuts.picture import draw

        draw(model, request.plot)
        lines.append(f"picture saved to {request.plot}")
    return lines


def drive(run: Run, display: Display, rows_file: RowsFile, request: TrainRequest, histogram: RowsFile) -> list[str]:
    """Follow the run to its end and save its outputs, even if it was stopped or failed; return a line for each."""
    noun = CONTAINERS[run.config.problem].noun if run.config.problem in CONTAINERS else "samples"
    command = {"command": shlex.join(["hogwild", *sys.argv[1:]])}  # for the first row, beside the machine's facts
    try:
        with display.live(lambda: training_line(run.progress(), run.config.epochs, noun)):
            for row in run:
                rows_file.write(row | command)
                display.row(row)
                command = {}
                if run.staleness:
                    about = {name: row[name] for name in ("run", "discipline", "workers", "seed", "epoch")}
                    histogram.write(about | {"delay": run.config.delay, "staleness": run.staleness})
    except (TrainingError, OutputError, BrokenPipeError) as error:  # nobody accepts the rows, or a checkpoint
        with run.stopwatch("saving"):
            saved = save(request, run.model) if run.history else []
        if not saved or isinstance(error, BrokenPipeError):
            raise
        raise type(error)(f"{error}; {', '.join(saved)}") from error
    with run.stopwatch("saving"):
        return save(request, run.model)


@contextlib.contextmanager
def naming(request: TrainRequest) -> Iterator[None]:
    """Prefix the data's name to errors that the library finds in the rows (one class only, ...)."""
    try:
        yield
    except InputError as error:
        if request.checkpoint is not None and str(error).startswith(request.checkpoint):
            raise
        raise InputError(f"{request.data}: {error}") from error


@contextlib.contextmanager
def announced(display: Display) -> Iterator[None]:
    """Announce when kernels must be compiled, which takes a noticeable time, on terminals and in pipes alike."""
    announce[:] = [lambda: display.say("compiling, once on this machine, which takes some seconds")]
    try:
        yield
    finally:
        announce.clear()


def needs_processes(config: TrainConfig) -> bool:
    """Whether workers will be processes for certain, which is known before the data are read."""
    return config.host == "processes"


def read(request: TrainRequest, sources: Sources, config: TrainConfig, display: Display) -> tuple[Any, Any, Any]:
    """Return the training data, the test data if there are some, and those that are held out to choose by."""
    container = CONTAINERS[config.problem]
    if not request.data_named:
        display.say(f"no data named: training on {request.data}, {container.what}")
    reading = Reading(request.data)
    with display.live(reading.line):
        examples = container.open(sources, request.data, reading.update)
    display.say(f"{request.data}: {container.facts(examples)}")
    if request.plot is not None and len(examples.shape or ()) != 2:
        raise UsageError(f"--plot {request.plot}: {request.data} is no grid of two dimensions")
    for line in container.notes(request.data, examples, config):
        display.say(line)
    held = None
    if request.holdout is not None:
        examples, held = container.hold_out(examples, request.holdout, config.seed, request.holdout_by)
        what = "test on" if request.test is None else "choose by"
        display.say(f"held out {len(held):,} {container.noun} to {what}, training on {len(examples):,}")
    if request.test is None:
        return examples, None, held
    reading = Reading(request.test)
    with display.live(reading.line):
        test = container.open_test(sources, request.test, examples, reading.update)
    display.say(f"{request.test}: {container.facts(test)}")
    return examples, test, held


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
