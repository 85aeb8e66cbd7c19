"""``hogwild train-module``: a module, its data and its loss, each made by a function in a user's file.

See ``user_file.py`` for how the file is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild import machine
from hogwild.cli.options import DATA, KEPT, REQUIRED, STOPS, config_options, row, takes
from hogwild.cli.user_file import FUNCTION, check_function, found, is_function, made
from hogwild.config import GOAL, PARALLEL, STEPS, TrainConfig
from hogwild.methods import REAL_HOSTS
from hogwild.problems.module.options import LOSSES

if TYPE_CHECKING:
    from hogwild.cli.display import Display
    from hogwild.cli.session import TrainRequest
    from hogwild.training.run import Run
    from hogwild.training.stopwatch import Stopwatch

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
    **given: Any,
) -> None:
    """Train any PyTorch module on all cores, without locks.

    Several machines train one from Python: hogwild.train_module(..., cluster=hogwild.gather(...)).
    """
    raise typer.Exit(begin(given | {"model": model}))


def begin(given: dict[str, Any]) -> int:
    """Run the command with its parameters by name, and return the exit status."""
    from hogwild.cli.session import carry_out
    from hogwild.hosts import fork_server

    files = {name: given.pop(name) for name in ("model", "data", "test", "loss")}
    options = config_options(given)
    named = files["loss"] in NAMED_LOSSES
    config = TrainConfig(problem="module", loss=files["loss"] if named else "custom", **options)
    config.check_crowd(machine.physical_cores())
    request = request_of(files, **given)
    request.check()
    fork_server.preload("hogwild.problems.module.problem")

    def start(display: Display, watch: Stopwatch, going_on: bool) -> Run:
        import torch

        from hogwild.problems.module.training import train_module as train

        torch.manual_seed(config.seed)  # for the module's initial parameters
        with watch("reading"):
            model, data, test = (made(files[name]) for name in ("model", "data", "test"))
        loss = files["loss"] if named else found(files["loss"])
        results: dict[str, Any] = {"checkpoint": request.checkpoint, "resume": going_on, "name": files["data"]}
        before = watch.seconds
        run = train(model, loss, data, test, **results, **options)
        run.stopwatch.add(before)
        return run

    return carry_out(request, config, start, lambda run: _describe(run.config, files["loss"], run.problem.layout))  # type: ignore[attr-defined]


def request_of(files: dict[str, Any], what: str = "the model", **more: Any) -> TrainRequest:
    """Return where a module, its loss and its data come from and results go to; raise for what is no function."""
    from hogwild.cli.session import TrainRequest

    check_function(what, files["model"])
    if files["loss"] not in NAMED_LOSSES:
        check_function("--loss", files["loss"], NAMED_LOSSES)
    paths = {name: spec.rpartition(":")[0] if is_function(spec or "") else spec for name, spec in files.items()}
    programs = tuple(paths[name] for name in ("model", "loss") if files[name] not in NAMED_LOSSES)
    return TrainRequest(paths["data"], test=paths["test"], programs=programs, **more)


def _describe(config: TrainConfig, loss: str, layout: Any) -> str:
    """Describe the run that is about to start, with defaults filled in."""
    from hogwild.cli.summary import EXACT, RACE, workers_of

    workers = config.workers or 1
    repeat = EXACT if workers == 1 else RACE
    if config.device == "cuda" and workers == 1:
        repeat = "sums in any order, so two runs differ"
    count = sum(place.size for place in layout.places)
    return (
        f"{count:,} parameters, {loss} loss; {config.optimizer}, step {config.step:.4g}, {config.schedule} "
        f"schedule, batches of {config.batch}, {config.order} order, seed {config.seed}\n"
        f"{config.discipline} on {workers_of(config)}: {repeat}"
    )
