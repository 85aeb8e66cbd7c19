"""``hogwild train-module``, and the input of ``hogwild compare --model``: modules, data and losses in a user's file.

``FILE.py:NAME`` names a function that makes a module or data, or is a loss. The file is run once, by its path, in this
process. Its definitions are sent to the workers by value, so they run no file, and it needs neither a place in a
package nor a guard against being run twice. An error in it is one line with the file and the line number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.display import Display
from hogwild.cli.options import DATA, KEPT, REQUIRED, STOPS, config_options, row, takes
from hogwild.cli.session import EXACT, RACE, TrainRequest, carry_out, describe_workers
from hogwild.config import GOAL, PARALLEL, STEPS, TrainConfig
from hogwild.errors import HogwildError, InputError, UsageError, nearest
from hogwild.hosts import fork_server
from hogwild.methods import REAL_HOSTS
from hogwild.problems.module.options import LOSSES

if TYPE_CHECKING:
    from hogwild.problems.module.case import Posed
    from hogwild.problems.module.feed import Examples
    from hogwild.training.run import Run
    from hogwild.training.stopwatch import Stopwatch

FUNCTION = "FILE.py:NAME"
NAMED_LOSSES = LOSSES[1:]


@takes(
    "data test loss optimizer batch step momentum schedule decay power order seed discipline "
    f"exchange workers oversubscribe host device {STOPS} {KEPT}",
    ("module",),
    data=row(
        "What makes the data: (X, y) or Rows; or data as hogwild train reads them, given to the module as bags.",
        DATA,
        default=REQUIRED,
        metavar=FUNCTION,
    ),
    test=row("The same to test on after each epoch.", DATA, metavar=FUNCTION),
    loss=row(
        f"Mean loss of a batch: {', '.join(NAMED_LOSSES)}; or a function (output, target).",
        GOAL,
        default=NAMED_LOSSES[0],
        metavar=f"NAME|{FUNCTION}",
    ),
    step={"help": "First step size; 'auto': the optimizer's usual one."},
    seed={"help": "Seed of the order, of noise, and of the module's first parameters."},
    discipline={"show_default": "serial for one worker, else hogwild"},
    host=row(
        "Who runs them",
        PARALLEL,
        choices=REAL_HOSTS,
        default="auto",
        show_default="threads for one worker, else processes",
    ),
    out={"help": "Write the model's state here."},
    **{name: {"panel": STEPS} for name in ("optimizer", "batch", "momentum")},
)
def train_module(
    model: Annotated[
        str, typer.Argument(metavar="FILE.py:MODEL", help="A function of no arguments that makes the nn.Module.")
    ],
    **options: Any,
) -> None:
    """Train any PyTorch module on all cores, without locks.

    Several machines train one from Python: hogwild.train_module(..., cluster=hogwild.gather(...)).
    """
    files = {"model": model} | {name: options.pop(name) for name in ("data", "test", "loss")}
    keywords = config_options(options)
    is_named = files["loss"] in NAMED_LOSSES
    config = TrainConfig(problem="module", loss=files["loss"] if is_named else "custom", **keywords)
    config.check_crowd(machine.physical_cores())
    request = request_of(files, **options)
    request.check()
    fork_server.preload("hogwild.problems.module.problem")

    def start(display: Display, watch: Stopwatch, resuming: bool) -> Run:
        import torch

        from hogwild.problems.module.training import train_module as train

        torch.manual_seed(config.seed)  # for the module's initial parameters
        with watch("reading"):
            module, data, test = (made(files[name]) for name in ("model", "data", "test"))
        loss = files["loss"] if is_named else function_of(files["loss"])
        results: dict[str, Any] = {"checkpoint": request.checkpoint, "resume": resuming, "name": files["data"]}
        before = watch.seconds
        run = train(module, loss, data, test, **results, **keywords)
        run.stopwatch.add(before)
        return run

    raise typer.Exit(carry_out(request, config, start, lambda run: describe_module_run(run, files["loss"])))


def request_of(files: dict[str, Any], label: str = "the model", **more: Any) -> TrainRequest:
    """Return where a module, its loss and its data come from and results go to; raise for what is no function."""
    check_function(label, files["model"])
    if files["loss"] not in NAMED_LOSSES:
        check_function("--loss", files["loss"], NAMED_LOSSES)
    paths = {name: spec.rpartition(":")[0] if is_function(spec or "") else spec for name, spec in files.items()}
    programs = tuple(paths[name] for name in ("model", "loss") if files[name] not in NAMED_LOSSES)
    return TrainRequest(paths["data"], test=paths["test"], programs=programs, **more)


def describe_module_run(run: Any, loss: str) -> str:
    """Describe the run that is about to start, with defaults filled in."""
    config = run.config
    repeat = EXACT if config.workers == 1 else RACE
    if config.device == "cuda" and config.workers == 1:
        repeat = "sums in any order, so two runs differ"
    count = sum(place.size for place in run.problem.layout.places)
    return (
        f"{count:,} parameters, {loss} loss; {config.optimizer}, step {config.step:.4g}, {config.schedule} "
        f"schedule, batches of {config.batch}, {config.order} order, seed {config.seed}\n"
        f"{config.discipline} on {describe_workers(config)}: {repeat}"
    )


def read_module(
    files: dict[str, Any], holdout: float | None, seed: int, display: Display
) -> tuple[Posed, Examples | None]:
    """Return the module of a comparison with its training examples, and the test examples."""
    from hogwild.problems.module.feed import hold_out
    from hogwild.problems.module.training import pose

    data = made(files["data"])
    test = made(files["test"])
    loss = files["loss"] if files["loss"] in NAMED_LOSSES else function_of(files["loss"])
    model = function_of(files["model"])
    with blamed(files["model"]):
        posed, tested = pose(model, loss, data, test, seed)
    count = sum(parameter.numel() for parameter in posed.model.parameters())
    display.say(f"{files['data']}: {len(posed):,} examples; {files['model']}: {count:,} parameters")
    if holdout and len(posed):
        rest, tested = hold_out(posed.examples, holdout, seed)
        posed = dataclasses.replace(posed, examples=rest)
        display.say(f"held out {len(tested):,} examples to test on, training on {len(rest):,}")
    return posed, tested


# ---- definitions in a user's file


def check_function(label: str, spec: str | None, names: tuple[str, ...] = ()) -> None:
    """Raise UsageError unless ``spec`` names a function in a file; ``names`` lists other valid choices."""
    if not is_function(spec or ""):
        choices = f"{', '.join(names)} or " if names else ""
        raise UsageError(f"{label} {spec}: expected {choices}{FUNCTION}, a function in a file{nearest(spec, names)}")


def is_function(spec: str) -> bool:
    """Whether ``spec`` names a function in a file."""
    path, _, name = spec.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def made(spec: str | None) -> Any:
    """Return the function's result, or the data of that name."""
    if spec is None:
        return None
    if not is_function(spec):
        from hogwild.data.rows.source import open_data

        return open_data(spec)
    function = function_of(spec)
    with blamed(spec):
        return function()


@contextlib.contextmanager
def blamed(spec: str) -> Iterator[None]:
    """Turn any exception of the user's code in the block into one line that names its file; our own errors pass."""
    try:
        yield
    except HogwildError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(place_of(spec.rpartition(":")[0], error)) from error


def function_of(spec: str) -> Any:
    """Return the function that ``spec`` names; its file is run as a module, which is pickled by value."""
    from numba import cloudpickle

    path, _, name = spec.rpartition(":")
    file = Path(path).resolve()
    module_name = f"hogwild_file_{file.stem}_{abs(hash(file)):x}"
    if module_name not in sys.modules:
        module_spec = importlib.util.spec_from_file_location(module_name, file)
        assert module_spec is not None  # because the name ends in .py
        assert module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[module_name] = module
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))  # for modules beside it; workers have the same path
        try:
            with blamed(spec):
                module_spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
        cloudpickle.register_pickle_by_value(module)
    members = vars(sys.modules[module_name])
    if not callable(members.get(name)):
        names = [key for key, value in members.items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{path}: no function {name} in it: it has {', '.join(names) or 'none'}")
    return members[name]


def place_of(path: str, error: BaseException) -> str:
    """Describe an error in one line: file, line and message."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}"
    file = os.path.realpath(path)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if os.path.realpath(frame.filename) == file]
    return f"{path}{f', line {lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"
