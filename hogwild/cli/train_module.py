"""``hogwild train-module``: a module, its data and its loss, each made by a function in a file of the user's.

How the file is run: see ``user_file.py``.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.shell import among
from hogwild.cli.sources import check_apart, check_readable, check_writable
from hogwild.cli.train import (
    GOAL,
    PARALLEL,
    RESULTS,
    STEPS,
    STOPPING,
    Decay,
    Device,
    EvaluateEvery,
    Oversubscribe,
    Power,
    choice,
    option,
    parse_step,
)
from hogwild.cli.user_file import FUNCTION, check_function, found, is_function, made
from hogwild.config import LAUNCHES, OPTIMIZERS, PROBLEMS, REAL_HOSTS, STATES, TrainConfig
from hogwild.errors import UsageError

ABOUT, DEFAULTS = PROBLEMS["module"], TrainConfig(problem="module")
NAMED_LOSSES = ABOUT["loss"][1:]


def train_module(
    model: Annotated[str, typer.Argument(metavar="FILE.py:MODEL", help="A function of no arguments that makes the "
                                         "nn.Module.")],
    data: Annotated[str, option("Data", "What makes the data: (X, y), a Dataset, a DataLoader, Rows; or data as "
                                "hogwild train reads them, given to the module as bags.", metavar=FUNCTION)],
    test: Annotated[str | None, option("Data", "The same to test on after each epoch.", metavar=FUNCTION)] = None,
    loss: Annotated[str, option(GOAL, f"Mean loss of a batch: {', '.join(NAMED_LOSSES)}; or a function (output, "
                                "target).", autocompletion=among(NAMED_LOSSES), metavar=f"NAME|{FUNCTION}")
                    ] = NAMED_LOSSES[0],
    optimizer: Annotated[str, choice(STEPS, "Rule of the updates", OPTIMIZERS)] = OPTIMIZERS[0],
    state: Annotated[str, choice(STEPS, "Whose its state is, each worker's or all workers'", STATES)] = STATES[0],
    batch: Annotated[int, option(STEPS, "Examples in a minibatch.")] = ABOUT["defaults"]["batch"],
    step: Annotated[str, option(STEPS, "First step size ('auto': the optimizer's usual one).")] = "auto",
    momentum: Annotated[float, option(STEPS, "Of optimizer momentum.")] = ABOUT["defaults"]["momentum"],
    beta1: Annotated[float, option(STEPS, "Of optimizer adam.")] = ABOUT["defaults"]["betas"][0],
    beta2: Annotated[float, option(STEPS, "Of optimizer adam.")] = ABOUT["defaults"]["betas"][1],
    schedule: Annotated[str, choice(STEPS, "How the step falls", ABOUT["schedule"])] = ABOUT["defaults"]["schedule"],
    decay: Decay = None,
    power: Power = None,
    order: Annotated[str, choice(STEPS, "Order of the examples", ABOUT["order"])] = DEFAULTS.order,
    seed: Annotated[int, option(STEPS, "Seed of the order, of noise, and of the module's first parameters.")] = 0,
    average: Annotated[bool, option(STEPS, "Average the parameters of the last epochs.", "--average")] = False,
    discipline: Annotated[str, choice(PARALLEL, "How an update reaches a shared weight", ABOUT["discipline"],
                                       show_default="serial for one worker, else hogwild")] = DEFAULTS.discipline,
    workers: Annotated[int | None, option(PARALLEL, "Number of workers; on a GPU, of replicas on streams.", "--workers",
                                           "--replicas", "-w", show_default="physical cores; 1 on a GPU")] = None,
    oversubscribe: Oversubscribe = DEFAULTS.oversubscribe,
    host: Annotated[str | None, choice(PARALLEL, "Who runs them", REAL_HOSTS,
                                        show_default="threads for one worker, else processes")] = None,
    device: Device = DEFAULTS.device,
    launch: Annotated[str, choice(PARALLEL, "How a step reaches a GPU", LAUNCHES)] = LAUNCHES[0],
    evaluate_every: EvaluateEvery = DEFAULTS.evaluate_every,
    epochs: Annotated[int, option(STOPPING, "Passes over the data in all.")] = ABOUT["defaults"]["epochs"],
    patience: Annotated[int | None, option(STOPPING, "Stop after so many epochs without progress.",
                                            show_default="never")] = None,
    tol: Annotated[float, option(STOPPING, "Relative fall of the objective that is progress.")] = DEFAULTS.tol,
    target: Annotated[float | None, option(STOPPING, "Stop at or below this objective.",
                                            show_default="never")] = None,
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
    from hogwild.cli.session import NOT_KEPT, Interrupts, Outputs, close, drive, find_device, screen_of
    from hogwild.hosts import fork_server
    from hogwild.json_rows import RowsFile
    from hogwild.model_file import has_checkpoint
    from hogwild.stopwatch import Stopwatch, process_start

    watch = Stopwatch("start", process_start())

    files = {name: given.pop(name) for name in ("model", "data", "test", "loss")}
    results = {name: given.pop(name) for name in ("out", "json", "checkpoint", "resume", "quiet")}
    host = given.pop("host")
    named = files["loss"] in NAMED_LOSSES
    options = given | ({} if host is None else {"host": host})
    TrainConfig(problem="module", loss=files["loss"] if named else "custom", **options).check_crowd(
        machine.physical_cores()
    )
    _check(files, results, named)
    display = screen_of(results["json"], results["quiet"])
    going_on = results["resume"] and has_checkpoint(results["checkpoint"])
    if results["out"] is None:
        display.say(NOT_KEPT)
    with Interrupts(display) as interrupts:
        if given["device"] == "cuda":
            find_device()
        elif host == "processes" or (host is None and given["workers"] != 1 and given["discipline"] != "serial"):
            fork_server.preload("hogwild.problems.module")
            fork_server.ensure_running()
        import torch

        from hogwild.module_training import train_module as train

        torch.manual_seed(given["seed"])  # of the module's first parameters
        parts = {name: made(files[name]) for name in ("model", "data", "test")}
        loss = files["loss"] if named else found(files["loss"])
        before = watch.seconds
        run = train(
            parts["model"], loss, parts["data"], parts["test"], checkpoint=results["checkpoint"], resume=going_on,
            name=files["data"], **options,
        )  # fmt: skip
        with run, contextlib.closing(RowsFile(results["json"], going_on)) as rows_file:
            run.stopwatch.add(before)
            interrupts.follow(run)
            for line in _describe(run.config, files["loss"], run.problem.layout).split("\n"):  # type: ignore[attr-defined]
                display.say(line)
            saved = drive(run, display, rows_file, Outputs(results["out"]))
        return close(run, display, saved, interrupts)


def _check(files: dict[str, str | None], results: dict[str, Any], named: bool) -> None:
    """Raise for names that cannot be read or written, before anything is."""
    if results["resume"] and results["checkpoint"] is None:
        raise UsageError("--resume goes on from a checkpoint: name its directory with --checkpoint DIR")
    check_function("the model", files["model"])
    if not named:
        check_function("--loss", files["loss"], NAMED_LOSSES)
    names = [spec.rpartition(":")[0] if is_function(spec) else spec for spec in files.values() if spec]
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
    from hogwild.cli.session import EXACT, RACE, workers_of

    workers = config.workers or 1
    repeat = EXACT if workers == 1 else RACE
    if config.device == "cuda" and (workers == 1 or config.launch == "vmap"):
        repeat = "sums in any order, so two runs differ"
    state = f", state {config.state}" if workers > 1 and config.optimizer != "sgd" else ""
    count = sum(place.size for place in layout.places)
    return (
        f"{count:,} parameters, {loss} loss; {config.optimizer}{state}, step {config.step:.4g}, {config.schedule} "
        f"schedule, batches of {config.batch}, {config.order} order, seed {config.seed}\n"
        f"{config.discipline} on {workers_of(config)}: {repeat}"
    )
