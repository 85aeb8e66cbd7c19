"""``hogwild train-module``: a module, its data and its loss, each made by a function in a file of the user's.

The one decision: the file is run once, by its path, in this process. What it defines reaches the workers by value, so
they run no file, and it needs neither a place in a package nor a guard against being run twice. A mistake in it is one
line that names the file and the line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from hogwild.cli.display import Display
from hogwild.cli.sources import check_apart, check_readable, check_writable
from hogwild.cli.train import (
    GOAL,
    PARALLEL,
    RESULTS,
    STEPS,
    STOPPING,
    Device,
    EvaluateEvery,
    one_of,
    option,
    parse_step,
)
from hogwild.config import LAUNCHES, OPTIMIZERS, PROBLEMS, REAL_HOSTS, STATES, TrainConfig
from hogwild.errors import HogwildError, InputError, UsageError

ABOUT, DEFAULTS = PROBLEMS["module"], TrainConfig(problem="module")
FUNCTION = "FILE.py:NAME"


def train_module(
    model: Annotated[str, typer.Argument(metavar="FILE.py:MODEL", help="A function of no arguments that makes the "
                                         "nn.Module.")],
    data: Annotated[str, option("Data", "What makes the data: (X, y), a Dataset, a DataLoader, Rows; or data as "
                                "hogwild train reads them, given to the module as bags.", metavar=FUNCTION)],
    test: Annotated[str | None, option("Data", "The same to test on after each epoch.", metavar=FUNCTION)] = None,
    loss: Annotated[str, option(GOAL, f"{one_of('Mean loss of a batch', ABOUT['loss'][1:])[:-1]}; or a function "
                                "(output, target).", metavar=f"NAME|{FUNCTION}")] = "cross-entropy",
    optimizer: Annotated[str, option(STEPS, one_of("Rule of the updates", OPTIMIZERS))] = OPTIMIZERS[0],
    state: Annotated[str, option(STEPS, one_of("Whose its state is, each worker's or all workers'", STATES))
                     ] = STATES[0],
    batch: Annotated[int, option(STEPS, "Examples in a minibatch.")] = ABOUT["defaults"]["batch"],
    step: Annotated[str, option(STEPS, "First step size ('auto': the optimizer's usual one).")] = "auto",
    momentum: Annotated[float, option(STEPS, "Of optimizer momentum.")] = ABOUT["defaults"]["momentum"],
    beta1: Annotated[float, option(STEPS, "Of optimizer adam.")] = ABOUT["defaults"]["betas"][0],
    beta2: Annotated[float, option(STEPS, "Of optimizer adam.")] = ABOUT["defaults"]["betas"][1],
    schedule: Annotated[str, option(STEPS, one_of("How it falls", ABOUT["schedule"]))
                        ] = ABOUT["defaults"]["schedule"],
    decay: Annotated[float | None, option(STEPS, "Factor of the schedule.", show_default="the schedule's own")] = None,
    power: Annotated[float | None, option(STEPS, "Power of 'inverse'.", show_default="the schedule's own")] = None,
    order: Annotated[str, option(STEPS, one_of("Order of the examples", ABOUT["order"]))] = DEFAULTS.order,
    seed: Annotated[int, option(STEPS, "Seed of the order, of noise, and of the module's first parameters.")] = 0,
    average: Annotated[bool, option(STEPS, "Average the parameters of the last epochs.", "--average")] = False,
    discipline: Annotated[str, option(PARALLEL, one_of("How an update reaches a shared weight", ABOUT["discipline"]),
                                       show_default="serial for one worker, else hogwild")] = DEFAULTS.discipline,
    workers: Annotated[int | None, option(PARALLEL, "Number of workers; on a GPU, of replicas on streams.", "--workers",
                                           "--replicas", "-w", show_default="physical cores; 1 on a GPU")] = None,
    host: Annotated[str | None, option(PARALLEL, one_of("Who runs them", REAL_HOSTS),
                                        show_default="threads for one worker, else processes")] = None,
    device: Device = DEFAULTS.device,
    launch: Annotated[str, option(PARALLEL, one_of("How a step reaches a GPU", LAUNCHES))] = LAUNCHES[0],
    evaluate_every: EvaluateEvery = DEFAULTS.evaluate_every,
    epochs: Annotated[int, option(STOPPING, "Passes over the data in all.")] = ABOUT["defaults"]["epochs"],
    patience: Annotated[int | None, option(STOPPING, "Stop after so many epochs without progress.")] = None,
    tol: Annotated[float, option(STOPPING, "Relative fall of the objective that is progress.")] = DEFAULTS.tol,
    target: Annotated[float | None, option(STOPPING, "Stop at or below this objective.")] = None,
    out: Annotated[str | None, option(RESULTS, "Write the model's state here.", "--out", "-o", metavar="MODEL")] = None,
    json: Annotated[str | None, option(RESULTS, "Write measurements here as JSON lines ('-': standard output).",
                                        metavar="ROWS")] = None,
    checkpoint: Annotated[str | None, option(RESULTS, "Save the state here after each epoch.", metavar="DIR")] = None,
    resume: Annotated[bool, option(RESULTS, "Go on from the checkpoint.", "--resume")] = False,
    quiet: Annotated[bool, option(RESULTS, "Print only warnings and errors.", "--quiet", "-q")] = False,
) -> None:  # fmt: skip
    """Train any PyTorch module on all cores, without locks."""
    given = dict(locals())
    given["betas"], given["step"] = (given.pop("beta1"), given.pop("beta2")), parse_step(step)
    raise typer.Exit(begin(given))


def begin(given: dict[str, Any]) -> int:
    """Do what was asked, by the parameters' names, and return the exit status."""
    from hogwild.cli.session import Interrupts, drive, find_device, start_fork_server, summary
    from hogwild.json_rows import RowsFile
    from hogwild.model_file import has_checkpoint

    files = {name: given.pop(name) for name in ("model", "data", "test", "loss")}
    results = {name: given.pop(name) for name in ("out", "json", "checkpoint", "resume", "quiet")}
    host = given.pop("host")
    named = files["loss"] in ABOUT["loss"][1:]
    options = given | ({} if host is None else {"host": host})
    TrainConfig(problem="module", loss=files["loss"] if named else "custom", **options)  # checks them
    _check(files, results, named)
    display = Display(sys.stderr if results["json"] == "-" else sys.stdout, results["quiet"])
    going_on = results["resume"] and has_checkpoint(results["checkpoint"])
    with Interrupts(display) as interrupts:
        if given["device"] == "cuda":
            find_device()
        elif host == "processes" or (host is None and given["workers"] != 1 and given["discipline"] != "serial"):
            start_fork_server()
        from hogwild.module_training import train_module as train

        made = {name: _made(files[name]) for name in ("model", "data", "test")}
        loss = files["loss"] if named else _found(files["loss"])
        run = train(
            made["model"], loss, made["data"], made["test"], checkpoint=results["checkpoint"], resume=going_on,
            name=files["data"], **options,
        )  # fmt: skip
        with run, contextlib.closing(RowsFile(results["json"], going_on)) as rows_file:
            interrupts.follow(run)
            display.say(_describe(run.config, files["loss"], run.problem.layout))  # type: ignore[attr-defined]
            drive(run, display, rows_file, results["out"])
        display.say(summary(run.history[-1], results["out"], interrupts.number))
        return interrupts.status


def _check(files: dict[str, str | None], results: dict[str, Any], named: bool) -> None:
    """Raise for names that cannot be read or written, before anything is."""
    if results["resume"] and results["checkpoint"] is None:
        raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
    functions = {"the model": files["model"]} | ({} if named else {"--loss": files["loss"]})
    for what, spec in functions.items():
        if not _is_function(spec or ""):
            choices = f"{', '.join(ABOUT['loss'][1:])} or " if what == "--loss" else ""
            raise UsageError(f"{what} {spec}: expected {choices}{FUNCTION}, a function in a file")
    names = [spec.rpartition(":")[0] if _is_function(spec) else spec for spec in files.values() if spec]
    for name in names:
        if name not in ABOUT["loss"]:
            check_readable(name)
    check_apart({"--out": results["out"], "--json": results["json"]}, names)
    if results["out"] is not None:
        check_writable("--out", results["out"], regular=True)
    if results["json"] not in (None, "-"):
        check_writable("--json", results["json"])
    if results["checkpoint"] is not None:
        check_writable("--checkpoint", results["checkpoint"], directory=True)


def _describe(config: TrainConfig, loss: str, layout: Any) -> str:
    """What is about to run, defaults filled in."""
    workers = config.workers or 1
    who = "1 worker" if workers == 1 else f"{workers} workers ({config.host})"
    repeat = "reproducible to the last bit" if workers == 1 else "they race, so two runs differ"
    state = f", state {config.state}" if workers > 1 and config.optimizer != "sgd" else ""
    count = sum(place.size for place in layout.places)
    return (
        f"{count:,} parameters, {loss} loss; {config.optimizer}{state}, step {config.step:.4g}, {config.schedule} "
        f"schedule, batches of {config.batch}, {config.order} order, seed {config.seed}\n"
        f"{config.discipline} on {who}: {repeat}"
    )


def _is_function(spec: str) -> bool:
    path, _, name = spec.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def _made(spec: str | None) -> Any:
    """What the function makes, or the data of that name."""
    if spec is None:
        return None
    if not _is_function(spec):
        from hogwild.data.source import open_data

        return open_data(spec)
    function = _found(spec)
    try:
        return function()
    except HogwildError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(_where(spec.rpartition(":")[0], error)) from error


def _found(spec: str) -> Any:
    """The function of that name in that file."""
    path, _, name = spec.rpartition(":")
    module = _run_file(path)
    found = getattr(module, name, None)
    if not callable(found):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise InputError(f"{path}: no function {name} in it: it has {', '.join(there) or 'none'}")
    return found


def _run_file(path: str) -> Any:
    """The module that the file is; what is defined there is pickled by value."""
    from numba import cloudpickle

    place = Path(path).resolve()
    name = f"hogwild_file_{place.stem}_{abs(hash(place)):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None  # for a name that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))  # the modules beside it; workers have the same path
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(_where(path, error)) from error
    cloudpickle.register_pickle_by_value(module)
    return module


def _where(path: str, error: BaseException) -> str:
    """One line: file and line, and what went wrong there."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: SyntaxError: {error.msg}"
    place = os.path.realpath(path)
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if os.path.realpath(frame.filename) == place]
    return f"{path}, line {mine[-1].lineno}: {what}" if mine else f"{path}: {what}"
