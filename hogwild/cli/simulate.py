"""``hogwild simulate``: what more workers than there are cores would do to the result, on one core.

The options are those of ``hogwild train``, taken from its signature, but for the host, which is the simulator, and with
defaults that end in seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from hogwild.cli.shell import among, data
from hogwild.cli.train import PARALLEL, RESULTS, STOPPING, begin, train
from hogwild.config import DELAYS, TrainConfig
from hogwild.errors import UsageError

DEFAULT_DATA = "synthetic:rcv1?rows=10000"
WORKERS, EPOCHS = 64, 5
# Options of problems and devices that have no simulator
OTHER_PROBLEMS = (
    "problem", "holdout_by", "terminals", "rank", "penalty", "nonnegative", "no_biases", "negatives", "segmentation",
    "plot", "device", "in_flight", "oversubscribe",
)  # fmt: skip
LAWS = ", ".join(name + ":" * bool(numbers) + ",".join(f"{key}={numbers[key][0]:g}" for key in numbers)
                 for name, numbers in DELAYS.items())  # fmt: skip

Data = Annotated[str | None, typer.Argument(metavar="DATA", help="As for train.", show_default=DEFAULT_DATA,
                                              autocompletion=data)]  # fmt: skip
Workers = Annotated[int, typer.Option("--workers", "-w", help="Virtual workers, up to 1024.",
                                      rich_help_panel=PARALLEL)]  # fmt: skip
Delay = Annotated[str, typer.Option(
    metavar="LAW", rich_help_panel=PARALLEL, autocompletion=among(DELAYS),
    help=f"How long rows take: {LAWS}; any with window=0.1 (part of a row's time in which hogwild may lose updates) "
    "and quantum=1 (rows at a time; locked, tiered).")]  # fmt: skip
Epochs = Annotated[int, typer.Option(help="Passes over the data in all.", rich_help_panel=STOPPING)]
Histogram = Annotated[str | None, typer.Option(
    metavar="FILE", help="Write how many updates were how stale here, one JSON line an epoch.",
    rich_help_panel=RESULTS)]  # fmt: skip


def _as_train(function: Callable[..., None]) -> Callable[..., None]:
    """Give ``function`` the parameters of ``train`` that make sense for it, plus its own."""
    hints = get_type_hints(train, include_extras=True)
    own = {
        "data": (Data, None), "workers": (Workers, WORKERS), "delay": (Delay, TrainConfig().delay),
        "epochs": (Epochs, EPOCHS), "histogram": (Histogram, None),
    }  # fmt: skip
    usual = {name: (hints[name], parameter.default) for name, parameter in inspect.signature(train).parameters.items()}
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, kind, default=default, annotation=annotation)
        for name, (annotation, default) in (usual | own).items()
        if name not in ("host", "exchange", *OTHER_PROBLEMS)
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


@_as_train
def simulate(*, histogram: str | None, **options: Any) -> None:
    """Train with virtual workers on one core: staleness and lost updates, counted."""
    if histogram == "-":
        raise UsageError("--histogram -: expected the name of a file")
    raise typer.Exit(begin(options | {"host": "simulator"}, DEFAULT_DATA, histogram))
