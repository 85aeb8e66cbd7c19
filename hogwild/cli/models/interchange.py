"""``hogwild export`` and ``hogwild import``: models to and from other programs' files."""

from __future__ import annotations

from typing import Annotated

import typer

from hogwild.cli.data.containers import check_readable
from hogwild.cli.data.sources import check_outputs
from hogwild.cli.display import Display
from hogwild.cli.options import Quiet
from hogwild.cli.shell import among
from hogwild.errors import UsageError
from hogwild.methods import LOSSES

FORMATS = "sklearn (by skops), vw, liblinear, npz or onnx"


def formats() -> list[str]:
    """Return the names of the formats, for shell completion."""
    from hogwild.interchange import FORMATS

    return [*FORMATS]


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FORMAT", help=f"What to write: {FORMATS}.", show_default=False, autocompletion=formats
        ),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Write it here.", show_default=False)],
    bare: Annotated[
        bool, typer.Option("--bare", help="Leave out the hashing and scaling of rows: you do it before.")
    ] = False,
    zero_based: Annotated[bool, typer.Option("--zero-based", help="vw: number features from 0, not from 1.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as a file of another program, which then predicts the same."""
    from hogwild.interchange import choose, export_model

    choose(to, {"bare": bare, "zero_based": zero_based}, "--to")
    check_readable(model)
    check_outputs({"--out": out}, [model])
    from hogwild.models import load_model

    display = Display(quiet=quiet)
    notes = export_model(load_model(model), out, to, bare=bare, zero_based=zero_based, name=model)
    for note in [f"{out}: {model} for {to}", *notes]:
        display.say(note)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A model of another program.", show_default=False)],
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="FORMAT", help=f"What it is: {FORMATS}.", show_default=False, autocompletion=formats
        ),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="MODEL", help="Write it here.", show_default=False)],
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="vw, npz: what margins mean; log gives probabilities.",
            show_default="the file's, else squared-error, or of classes hinge",
            autocompletion=among(LOSSES),
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="vw, npz: values of the classes, in the file's order.",
            show_default="the file's, else -1,1 or 1,2,...",
        ),
    ] = None,
    zero_based: Annotated[
        bool, typer.Option("--zero-based", help="vw: feature 0 there is the first here, not feature 1.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Turn a model of another program into a model file, which then predicts the same."""
    from hogwild.interchange import choose, import_model

    values = None if labels is None else numbers(labels)
    choose(source, {"loss": loss, "labels": values, "zero_based": zero_based}, "--from")
    check_readable(file)
    check_outputs({"--out": out}, [file])
    made = import_model(file, source, loss=loss, labels=values, zero_based=zero_based)
    made.save(out)
    Display(quiet=quiet).say(f"{out}: {described(made)}")


def numbers(text: str) -> list[float]:
    """Parse the numbers in ``--labels``."""
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"--labels {text}: expected numbers, as in --labels 0,1") from None


def described(model: object) -> str:
    """Describe in a line what was read."""
    from hogwild.data.rows.container import shortest
    from hogwild.problems.linear.model import LinearModel

    if not isinstance(model, LinearModel):
        return f"a {type(model).__name__}"
    labels = [shortest(label) for label in model.labels]
    shown = " ".join(labels[:10]) + (" ..." if len(labels) > 10 else "")
    what = f"labels {shown}" if labels else "real values"
    return f"{model.width:,} features, {what}, {model.loss} loss"
