"""``hogwild export`` and ``hogwild import``: models to and from other programs' files."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hogwild.cli.data.sources import check_outputs, check_readable
from hogwild.cli.display import Display
from hogwild.cli.options import Quiet
from hogwild.errors import UsageError
from hogwild.methods import LOSSES


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)],
    to: Annotated[Literal["npz", "sklearn", "onnx"], typer.Option(help="What to write; sklearn is by skops.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Write it here.", show_default=False)],
    bare: Annotated[
        bool, typer.Option("--bare", help="Leave out the hashing and scaling of rows: you do it before.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as a file of another program, which then predicts the same."""
    from hogwild.interchange import export_model
    from hogwild.model_file import load_model

    check_readable(model)
    check_outputs({"--out": out}, [model])
    display = Display(quiet=quiet)
    for note in [f"{out}: {model} for {to}", *export_model(load_model(model), out, to, bare=bare)]:
        display.say(note)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A model of another program.", show_default=False)],
    source: Annotated[Literal["npz", "sklearn"], typer.Option("--from", help="What it is; sklearn is by skops.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="MODEL", help="Write it here.", show_default=False)],
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="npz: what margins mean; log gives probabilities.",
            show_default="the file's, else squared-error, or of classes hinge",
            autocompletion=lambda: [*LOSSES],
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="npz: labels of the classes, in the file's order.",
            show_default="the file's, else -1,1 or 1,2,...",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Turn a model of another program into a model file, which then predicts the same."""
    from hogwild.interchange import import_model

    try:
        values = None if labels is None else [float(word) for word in labels.replace(",", " ").split()]
    except ValueError:
        raise UsageError(f"--labels {labels}: expected numbers, as in --labels 0,1") from None
    check_readable(file)
    check_outputs({"--out": out}, [file])
    model = import_model(file, source, loss=loss, labels=values)
    model.save(out)
    Display(quiet=quiet).say(f"{out}: {model!r}")
