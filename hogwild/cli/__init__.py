"""The command line: one file per group of commands; each parses its options, calls the library and prints.

Nothing heavy is imported before a command needs it, so ``--help`` and wrong options answer at once, and errors in the
user's files show before torch is loaded. Errors are raised; ``__main__.py`` turns them into a line and a status.
"""

from __future__ import annotations

from typing import Annotated

import typer

import hogwild
from hogwild.cli import bench, machines, simulate, train, train_module, warm_up
from hogwild.cli.compare import command as compare
from hogwild.cli.compare import report
from hogwild.cli.data import catalogue
from hogwild.cli.data import commands as data
from hogwild.cli.models import inspect, interchange, predict, recommend

app = typer.Typer(
    name="hogwild",
    help="Train sparse models on every core at once, without locks.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=train.TrainCommand)(train.train)
training = train_module.train_module, simulate.simulate, predict.predict, predict.evaluate
models = inspect.inspect, recommend.recommend, recommend.similar, recommend.labels
for command in (*training, *models, data.convert, data.info, bench.bench, compare.compare, report.report):
    app.command()(command)
app.command()(interchange.export)
app.command("import")(interchange.import_)
app.command("warm-up")(warm_up.warm_up)
app.add_typer(data.cache, name="cache")
app.add_typer(catalogue.data, name="data")
app.add_typer(machines.cluster_app, name="cluster")


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
