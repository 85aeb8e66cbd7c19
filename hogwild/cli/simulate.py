"""``hogwild simulate``: the effect of more workers than there are cores on the result, on one core.

The options are those of ``hogwild train`` that make sense for it, with defaults that end within seconds, and those of
the simulator, which is the host.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hogwild.cli.options import CACHE, COLUMNS, KEPT, LAYOUT, RESULTS, STOPS, row, takes
from hogwild.cli.train import begin
from hogwild.errors import UsageError

DEFAULT_DATA = "synthetic:rcv1?rows=10000"
WORKERS, EPOCHS = 64, 5


@takes(
    f"test holdout {LAYOUT} {CACHE} {COLUMNS} loss loss_param l1 l2 normalize class_weight no_intercept "
    "no_scale_columns step schedule decay power adagrad order seed discipline exchange workers delay link "
    f"{STOPS} {KEPT} histogram",
    ("linear",),
    workers={
        "help": "Virtual workers, up to 1024.",
        "names": ("--workers", "-w"),
        "default": WORKERS,
        "show_default": True,
    },
    epochs={"default": EPOCHS, "show_default": True},
    histogram=row("Write the histogram of staleness here, one JSON line an epoch.", RESULTS, metavar="FILE"),
)
def simulate(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="As for train.", show_default=DEFAULT_DATA),
    ] = None,
    **given: Any,
) -> None:
    """Train with virtual workers on one core: staleness and lost updates, counted."""
    histogram = given.pop("histogram")
    if histogram == "-":
        raise UsageError("--histogram -: expected the name of a file")
    raise typer.Exit(begin(given | {"data": data, "host": "simulator"}, DEFAULT_DATA, histogram))
