"""``hogwild inspect``: shows a model to people: its weights by name, its options, how its training went.

One dictionary of facts is made for each kind of model; ``--json`` prints all of it, and the lines are made from it, so
the two never disagree. Feature names come from the model, if it was trained on a table, or from the file that the user
gives: a table, read by the model's plan, or one name a line. Nothing here needs torch; matplotlib is imported for
``--plot`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.data.sources import check_outputs, check_readable
from hogwild.cli.display import Display, fact_lines, show
from hogwild.cli.models.predict import Model
from hogwild.cli.options import Json
from hogwild.errors import InputError, UsageError
from hogwild.rows_file import printable

if TYPE_CHECKING:
    import numpy as np

    from hogwild.problems.linear.model import LinearModel

COUNT, FEW = 10, 3  # heaviest features of each sign; with several classes, of each class
NAME = 40  # characters of a name
STEEP = 4  # ratio of largest to smallest value above which the plot's scale is logarithmic
CLASSES, ARRAYS, EPOCHS = 25, 40, 7  # lines of a list; JSON has all of it
OFF = (None, False, "", "none")  # values of options that are not shown
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
    from hogwild.model_file import load_model

    trained = load_model(model)
    kind = type(trained).__name__
    if kind != "LinearModel" and (names is not None or zero_based):
        raise UsageError(f"--{'zero-based' if names is None else 'names'} is for linear models, and {model} is none")
    fields = [*AXES, *CURVES, "test_accuracy", "test_auc", "status"]
    curve = [{name: row[name] for name in fields if row.get(name) is not None} for row in trained.history]
    if plot is not None and not any({*AXES, "objective"} <= set(row) for row in curve):
        raise UsageError(f"--plot {plot}: {model} holds no measurements of its training")
    facts = {
        "model": model,
        **FACTS[kind](trained, count, names, zero_based),
        "trained_by": f"hogwild {trained.version}",
        "data": trained.fingerprint,
        "options": {name: value for name, value in trained.config.items() if value not in OFF},
        "history": curve,
    }
    if plot is not None:
        draw(curve, plot)  # first, since a reader of the lines may stop early
    show(facts, json, lines)
    if trained.history and not json:
        typer.echo("")
        display, last = Display(), len(trained.history) - 1
        for at in sorted({round(last * step / (EPOCHS - 1)) for step in range(EPOCHS)}):
            display.row(trained.history[at])


# ---- facts of each kind of model, as JSON types


def linear_facts(model: LinearModel, count: int | None, names: str | None, zero_based: bool) -> dict[str, Any]:
    """Return labels, sizes and the heaviest features of a linear model."""
    import numpy as np

    from hogwild.data.names import heaviest

    if model.table is not None and zero_based:
        raise UsageError("--zero-based is for numbered features, and those of a table have names")
    several = len(model.coef_) > 1
    tops = [heaviest(weights, count or (FEW if several else COUNT)) for weights in model.coef_]
    named = namer(model, {int(at) for pair in tops for side in pair for at in side}, names, zero_based)
    nonzero = int(np.count_nonzero(model.coef_))
    return {
        "kind": "linear",
        "labels": model.label_texts,
        "features": model.width,
        "hash_bits": model.hash_bits,
        "nonzero": nonzero,
        "density": nonzero / max(model.coef_.size, 1),
        "intercept": model.intercept_,
        "columns": None if model.table is None else {c["name"]: c["role"] for c in model.table["columns"]},
        "heaviest": [
            {"label": label} | paired(weights, pair, named)
            for label, weights, pair in zip(model.label_texts if several else [None], model.coef_, tops)
        ],
    }


def completion_facts(model: Any, count: int | None, *_: Any) -> dict[str, Any]:
    """Return sizes and biases of a completion model."""
    from hogwild.data.names import heaviest

    sides = ("user", model.user_bias, model.user_ids), ("item", model.item_bias, model.item_ids)
    return {
        "kind": "completion",
        "users": model.shape[0],
        "items": model.shape[1],
        "rank": model.rank,
        "mean": model.mean,
        "heaviest": [
            {"label": side} | paired(biases, heaviest(biases, count or COUNT), str if ids is None else ids.names)
            for side, biases, ids in sides
        ],
    }


def cut_facts(model: Any, *_: Any) -> dict[str, Any]:
    """Return the values of a cut, and how many vertices have each label."""
    import numpy as np

    counts = np.bincount(model.labels, minlength=model.n_labels).tolist()
    names = range(model.n_labels) if model.label_ids is None else model.label_ids.names()
    return {
        "kind": "cuts",
        "vertices": len(model),
        "labels": model.n_labels,
        "cut_value": model.cut_value,
        "relaxed_value": model.objective,
        "energy": model.energy,
        "grid": model.shape,
        "vertices_by_label": {str(name): number for name, number in zip(names, counts, strict=True)},
    }


def module_facts(model: Any, *_: Any) -> dict[str, Any]:
    """Return names and shapes of a module's arrays."""
    arrays = [
        {"name": name, "shape": array.shape, "dtype": model.dtypes.get(name, str(array.dtype))}
        for name in model.names
        if (array := model.arrays.get(name)) is not None
    ]
    parameters = sum(array.size for array in model.arrays.values())
    return {"kind": "module", "parameters": parameters, "arrays": arrays, "tied": model.tied}


FACTS: dict[str, Callable[..., dict[str, Any]]] = {
    "LinearModel": linear_facts,
    "CompletionModel": completion_facts,
    "Segmentation": cut_facts,
    "ModuleModel": module_facts,
}


def paired(weights: np.ndarray, positions: Iterable[np.ndarray], named: Callable[[Any], Any]) -> dict[str, Any]:
    """Return names and weights at the positions of large and of small weights."""
    sides = [[[str(named(at)), float(weights[at])] for at in side] for side in positions]
    return {"positive": sides[0], "negative": sides[1]}


def namer(model: LinearModel, wanted: set[int], names: str | None, zero_based: bool) -> Callable[[Any], str]:
    """Return a function from a feature's position to its names if there are any, else its number."""
    known = model.names
    if names is not None and model.table is not None:
        from hogwild.data.public.catalogue import located
        from hogwild.data.tables.source import feature_names

        known = feature_names(located(names), model.table, wanted)
    elif names is not None:
        known = names_in_lines(names, model.hash_bits, wanted)
    if names is not None and wanted and not known:
        raise InputError(f"{names}: has no name for any of the heaviest features")
    number = "bucket {}".format if model.hash_bits is not None else lambda at: f"feature {at + (not zero_based)}"
    return lambda at: " | ".join(known.get(int(at), [])) or number(int(at))


def names_in_lines(path: str, hash_bits: int | None, wanted: set[int]) -> dict[int, list[str]]:
    """Return names at the positions ``wanted``, from text whose first line names the first feature."""
    import numpy as np

    from hogwild.data.text.hashing import hash_indices

    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    if "\0" in text:
        raise InputError(f"{path}: expected text with one name a line")
    names = text.removesuffix("\n").split("\n")
    where = np.arange(len(names)) if hash_bits is None else hash_indices(np.arange(len(names)), hash_bits)
    known: dict[int, list[str]] = {}
    for line in np.flatnonzero(np.isin(where, list(wanted))):
        if name := names[line].strip():
            known.setdefault(int(where[line]), []).append(name)
    return known


# ---- what people see


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts: those of a number or a short list, arrays, and the heaviest features."""
    apart = ("heaviest", "history", "tied", "arrays")
    yield from fact_lines({name: value for name, value in facts.items() if name not in apart and value is not None})
    arrays, groups = facts.get("arrays", []), facts.get("heaviest", [])
    for array in arrays[:ARRAYS]:
        shape = " x ".join(map(str, array["shape"])) or "one number"
        yield f"  {array['name'][:NAME]:<{NAME}}  {shape:<16} {array['dtype']}"
    for group in groups[:CLASSES]:
        label, labels = group["label"], facts["labels"] if facts["kind"] == "linear" else []
        titles = (f"large for {label}", f"small for {label}") if label else ("raise the prediction", "lower it")
        if label is None and labels:
            titles = f"for {labels[1]}", f"for {labels[0]}"
        yield ""
        for title, side in zip(titles, (group["positive"], group["negative"])):
            yield from fact_lines({title: [f"{printable(name)[:NAME]} ({weight:.4g})" for name, weight in side]})
    if len(arrays) > ARRAYS or len(groups) > CLASSES:
        yield "and more, which --json has"


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
