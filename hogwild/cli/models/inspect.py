"""``hogwild inspect``: shows a model to people: its weights by name, its options, how its training went.

One dictionary of facts is made for each kind of model; ``--json`` prints all of it, and the lines are made from it, so
the two never disagree. Neither needs torch; matplotlib is imported for ``--plot`` only.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from hogwild.cli.data.containers import check_readable
from hogwild.cli.data.sources import check_outputs
from hogwild.cli.models.facts import facts_of
from hogwild.cli.models.predict import Model
from hogwild.cli.options import Json
from hogwild.errors import UsageError
from hogwild.screen import printable

WIDE = 100  # characters at which a line is wrapped
NAME = 40  # characters of a name
STEEP = 4  # ratio of largest to smallest value above which the plot's scale is logarithmic
LEAD = 18  # characters of the left column
CLASSES, ARRAYS, EPOCHS = 25, 40, 7  # lines of a list; JSON has all of it
OPTIONS = (
    "loss",
    "loss_param",
    "l1",
    "l2",
    "penalty",
    "rank",
    "nonnegative",
    "negatives",
    "normalize",
    "class_weight",
    "step",
    "schedule",
    "adagrad",
    "optimizer",
    "momentum",
    "batch",
    "epochs",
    "discipline",
    "exchange",
    "workers",
    "host",
    "device",
    "order",
    "seed",
)
PENALISED = ("loss", "l1", "l2")  # not options of a cut
UNSAID: dict[str, tuple[Any, ...]] = {
    "l1": (0,),
    "normalize": ("none",),
    "exchange": ("none",),
    "device": ("cpu",),
    "negatives": (1,),
}
CURVES = {
    "objective": "objective",
    "held_out_loss": "held-out loss",
    "test_loss": "test loss",
    "test_rmse": "test RMSE",
    "cut_value": "cut value",
}
AXES = {"epoch": "epochs", "train_seconds": "seconds of training"}


def inspect(
    model: Model,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, help="How many features each way.", show_default="10; of several classes 3"
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Names of the features: the table that was trained on; for other data text with one name a line.",
        ),
    ] = None,
    zero_based: Annotated[bool, typer.Option("--zero-based", help="Number features from 0, not 1.")] = False,
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the learning curve here.")] = None,
    json: Json = False,
) -> None:
    """Show what is in a model: labels, heaviest features by name, options, learning curve."""
    check_readable(model)
    if names is not None:
        check_readable(names)
    if plot is not None:
        check_outputs({"--plot": plot}, [model, names])
    from hogwild.model_file import usable
    from hogwild.models import load_model

    trained = load_model(model)
    kind = type(trained).__name__
    if kind != "LinearModel" and (names is not None or zero_based):
        raise UsageError(f"--{'zero-based' if names is None else 'names'} is for linear models, and {model} is none")
    with usable(model):  # a file may hold any JSON among its options and measurements
        rows = list(curve(trained.history))
    if plot is not None and not any({*AXES, "objective"} <= set(row) for row in rows):
        raise UsageError(f"--plot {plot}: {model} holds no measurements of its training")
    options = chosen(trained.config)
    facts = {
        "model": model,
        **facts_of(trained, count, names, zero_based),
        "trained_by": f"hogwild {trained.version}",
        "data": trained.fingerprint,
        "options": options,
        "history": rows,
    }
    if plot is not None:
        draw(rows, plot)  # first, since a reader of the lines may stop early
    if json:
        from hogwild.json_rows import to_json

        typer.echo(to_json(facts))
    else:
        with usable(model):
            show(facts, trained.history)


def chosen(config: dict[str, Any]) -> dict[str, Any]:
    """Return the informative options, without those that are off."""
    found = {name: config.get(name) for name in OPTIONS if config.get("problem") != "cuts" or name not in PENALISED}
    return {
        name: value
        for name, value in found.items()
        if value is not None and value is not False and value not in UNSAID.get(name, ())
    }


def curve(history: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the measurements that make a learning curve; missing ones are null."""
    fields = [*AXES, *CURVES, "test_accuracy", "test_auc"]
    for row in history:
        yield {name: float(row[name]) for name in fields if row.get(name) is not None} | {"status": row.get("status")}


def show(facts: dict[str, Any], history: list[dict[str, Any]]) -> None:
    """Print the facts as lines, and a few rows of the history as shown in training."""
    from hogwild.cli.display import Display

    for line in (line for part in (about(facts), weights(facts)) for line in part):
        typer.echo(printable(line))
    if history:
        typer.echo("")
        display, last = Display(), len(history) - 1
        for at in sorted({round(last * step / (EPOCHS - 1)) for step in range(EPOCHS)}):
            display.row(history[at])


def about(facts: dict[str, Any]) -> Iterator[str]:
    """Yield lines for facts that are one number or a short list."""
    for name, value in facts.items():
        if name in ("heaviest", "history", "tied") or value is None or (name == "intercept" and len(value) > 1):
            continue
        if name == "arrays":
            for array in value[:ARRAYS]:
                shape = " x ".join(map(str, array["shape"])) or "one number"
                yield f"  {array['name'][:NAME]:<{NAME}}  {shape:<16} {array['dtype']}"
            yield from more(len(value), ARRAYS, "arrays, which --json has")
            continue
        yield from textwrap.wrap(
            short(name, value), WIDE, initial_indent=f"{name.replace('_', ' '):<{LEAD}}", subsequent_indent=" " * LEAD
        )


def short(name: str, value: Any) -> str:
    """Format one fact as text."""
    if isinstance(value, dict):
        text = [f"{key.replace('_', ' ')} {short('', entry)}" for key, entry in value.items()][:CLASSES]
        return ", ".join([*text, *more(len(value), CLASSES, "")])
    if hasattr(value, "__len__") and not isinstance(value, str):
        return ", ".join([*(short("", entry) for entry in value[:CLASSES]), *more(len(value), CLASSES, "")])
    if name == "density":
        return f"{value:.2%} of the weights are not zero"
    if isinstance(value, (int, str)):
        return f"{value:,}" if name and isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.6g}"


def more(count: int, most: int, what: str) -> list[str]:
    """Return the last line of a list that was cut off."""
    return [f"and {count - most:,} more {what}".rstrip()] if count > most else []


def weights(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the heaviest features, positive beside negative; with several classes a block of two lines each."""
    groups = facts.get("heaviest", [])
    several = facts["kind"] == "linear" and len(groups) > 1
    for group in groups[:CLASSES]:
        if several:
            yield ""
            yield f"{group['label']}  (intercept {group['intercept']:.4g})"
            for sign, side in (("+", "positive"), ("-", "negative")):
                text = ", ".join(f"{name[:NAME]} ({weight:.4g})" for name, weight in group[side]) or "none"
                yield from textwrap.wrap(text, WIDE, initial_indent=f"  {sign}  ", subsequent_indent="     ")
        else:
            yield from beside(headings(facts, group["label"]), group["positive"], group["negative"])
    yield from more(len(groups), CLASSES, "classes, which --json has")


def headings(facts: dict[str, Any], side: str | None) -> tuple[str, str]:
    """Return what positive and negative weights indicate."""
    if side is not None:
        return f"{side}s with the largest biases", "with the smallest"
    labels = facts["labels"]
    return (f"for {labels[1]}", f"for {labels[0]}") if labels else ("raise the prediction", "lower it")


def beside(titles: tuple[str, str], left: list[Any], right: list[Any]) -> Iterator[str]:
    """Yield two lists of names and weights, side by side."""
    columns = [[f"{weight:>12.5g}  {printable(name)[:NAME]}" for name, weight in side] for side in (left, right)]
    wide = max(map(len, [titles[0] + " " * LEAD, *columns[0]])) + 2
    yield ""
    yield f"{titles[0]:>{len(titles[0]) + 14}}".ljust(wide) + " " * 14 + titles[1]
    for one, other in itertools.zip_longest(*columns, fillvalue=""):
        yield (one.ljust(wide) + other).rstrip()


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the learning curve as a PNG file, against epochs and against seconds."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg by default
    from matplotlib.ticker import MaxNLocator

    from hogwild.model_file import save_figure

    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    panels = figure.subplots(1, len(AXES), sharey=True)
    panels[0].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    for panel, (axis, title) in zip(panels, AXES.items(), strict=True):
        values = []
        for field, label in CURVES.items():
            points = [(row[axis], row[field]) for row in rows if axis in row and field in row]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
            values += [value for _, value in points]
        if values and min(values) > 0 and max(values) > STEEP * min(values):
            panel.set_yscale("log")
            for which in (panel.yaxis.set_major_formatter, panel.yaxis.set_minor_formatter):
                which("{x:g}")
        panel.set_xlabel(title)
        panel.grid(alpha=0.3, which="both")
        panel.tick_params(axis="y", which="minor", labelsize="x-small")
    panels[0].legend(fontsize="small")
    save_figure(figure, path)
