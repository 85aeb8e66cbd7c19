"""The command line: one file per group of commands; each parses its options, calls the library and prints.

Nothing heavy is imported before a command needs it, so ``--help`` and wrong options answer at once, and errors in the
user's files show before torch is loaded. Errors are raised; ``__main__.py`` turns them into a line and a status.
"""

from __future__ import annotations

from typing import Annotated

import typer

import hogwild
from hogwild.cli import compare, data, models, train

app = typer.Typer(
    name="hogwild",
    help="Train sparse models on every core at once, without locks.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=train.TrainCommand)(train.train)
for command in (
    train.simulate,
    models.predict,
    models.evaluate,
    models.inspect,
    models.recommend,
    models.similar,
    models.labels,
    data.convert,
    data.info,
    compare.compare,
    compare.report,
    models.export,
):
    app.command()(command)
app.add_typer(data.data, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hogwild {hogwild.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def hogwild_(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train sparse models on every core at once, without locks."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
