"""What is done with a trained model: predict, evaluate, inspect, recommend, similar, labels, export.

No command here imports torch. ``predict`` and ``evaluate`` read text in batches straight from the file or from standard
input, without a cache, since it is read only once; memory holds a batch and, for ``evaluate``, one number per row and
class. ``inspect`` makes one dictionary of facts, of the header of the model file and what is computed; ``--json``
prints all of it, and the lines are made from it, so the two never disagree.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.display import Display, fact_lines, show
from hogwild.cli.options import CACHE, DELIMITED, Json, Quiet, takes
from hogwild.cli.sources import Sources, check_outputs, check_readable
from hogwild.data.text.lines import shown_word
from hogwild.errors import HogwildError, InputError, UsageError, naming
from hogwild.methods import EXPORTS
from hogwild.model_file import load_model, replacing
from hogwild.rows_file import printable

if TYPE_CHECKING:
    import numpy as np

    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.problems.linear.model import LinearModel

TABLE_LABELS = 12  # most that fit on a terminal
PIECE = 1 << 14  # pairs whose scores, or users whose recommendations, are written at a time
SHOWN = {
    "LinearModel": "a linear model",
    "FMModel": "a factorization machine",
    "CompletionModel": "a model of ratings",
    "Segmentation": "a cut, whose labels hogwild labels prints",
    "ModuleModel": "a torch module, which hogwild.load opens in Python",
}
LINEAR = ("FMModel", "LinearModel")
RATINGS = "CompletionModel"
DRAWN = (".png", ".svg", ".pdf")

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="svmlight text ('-': standard input), a store, a public data "
        "set's name or synthetic:...; for a model of ratings any ratings.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", show_default="all", help="Names as in the data; '-': one a line from standard input."
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many for each.")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Write here ('-': standard output).")]
Titles = Annotated[
    str | None, typer.Option(metavar="FILE", help="Add titles of items from this table: an id and a title in each row.")
]


def opened(path: str, *kinds: str, inputs: Iterable[str | None] = (), out: str = "-") -> Any:
    """Return the model of one of the kinds, after checking that inputs and the output can be opened."""
    read = [path, *(name for name in inputs if name not in (None, "-"))]
    for name in read:
        check_readable(name)
    check_outputs({"--out": out}, read, pipes=("--out",))
    model = load_model(path)
    kind = type(model).__name__
    if kind not in (kinds or SHOWN):
        raise InputError(f"{path}: expected {SHOWN[kinds[-1]]}; got {SHOWN[kind]}")
    return model


@contextlib.contextmanager
def output(name: str) -> Iterator[IO[bytes]]:
    """Open a binary stream to standard output, or to a file that takes its name only when it is complete."""
    if name != "-" and (os.path.isfile(name) or not os.path.exists(name)):
        with replacing(name) as stream:
            yield stream
        return
    try:
        with contextlib.nullcontext(sys.stdout.buffer) if name == "-" else open(name, "wb") as stream:
            yield stream
            stream.flush()
    except OSError as error:
        error.filename = error.filename or ("standard output" if name == "-" else name)
        raise


# ---- predict and evaluate


@takes(f"zero_based {DELIMITED} {CACHE}")
def predict(
    model: Model,
    data: Data,
    out: Out = "-",
    proba: Annotated[
        bool, typer.Option("--proba", help="Probabilities, a column for each label in ascending order.")
    ] = False,
    decision: Annotated[bool, typer.Option("--decision", help="Margins, before they become labels.")] = False,
    **options: Any,
) -> None:
    """Predict a label or value for each row of DATA, or the rating of each pair of user and item, one line each.

    Where rows may have several labels, they are separated by commas; the line of a row without any is empty.
    """
    if proba and decision:
        raise UsageError("--proba and --decision ask for different outputs: give one of them")
    trained = opened(model, RATINGS, *LINEAR, inputs=[data], out=out)
    if type(trained).__name__ == RATINGS:
        if proba or decision:
            raise UsageError("--proba and --decision are for linear models: of ratings a score is predicted")
        pairs = pairs_of(trained, options, data, "optional")
        with output(out) as stream:
            for first in range(0, len(pairs), PIECE):
                part = pairs.block(first, first + PIECE)
                stream.write(number_lines(trained.scores(part.users, part.items)))
        trained.warn_unknown(pairs.users, pairs.items)
        return
    from hogwild.data.parallel import in_order
    from hogwild.data.rows.container import count_unknown

    if proba:
        trained.check_probabilities()
    margins = trained.margins_of()
    lines = formatter(trained, proba, decision)

    def apply(rows: Rows) -> tuple[bytes, int]:
        return b"".join(margins.each(rows, lines, threads=1)), count_unknown(rows, trained.width, threads=1)

    unknown = 0
    with output(out) as stream:
        for text, beyond in in_order(features_of(trained, options, data, "optional"), apply):  # a few blocks ahead
            stream.write(text)
            unknown += beyond
    trained.warn_unknown(unknown)


@takes(f"zero_based {DELIMITED} {CACHE}")
def evaluate(
    model: Model,
    data: Data,
    json: Json = False,
    seen: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Ratings trained on, which are no candidates when items are ranked (loss log or bpr).",
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the calibration curve here: PNG, SVG or PDF by the name."),
    ] = None,
    **options: Any,
) -> None:
    """Measure a model on DATA: accuracy, log loss, AUC and F1; errors of values or ratings; how items are ranked."""
    trained = opened(model, RATINGS, *LINEAR, inputs=[data, seen])
    if plot is not None:
        check_plot(plot, trained, (model, data))
    if type(trained).__name__ == RATINGS:
        from hogwild.problems.completion.model import evaluate_completion

        pairs = pairs_of(trained, dict(options), data, "required")
        excluded = None if seen is None else pairs_of(trained, options, seen, "optional")
        show(evaluate_completion(trained, pairs, excluded), json)
        return
    if seen is not None:
        raise UsageError(f"--seen needs a model of ratings; {model} is linear")
    from hogwild.metrics import evaluate as measure  # only linear models need it

    with naming(data, "<stdin>"):
        needed = "several" if trained.multilabel else "required"
        facts = measure(trained, features_of(trained, options, data, needed))
    if plot is not None:
        plot_calibration(facts["reliability"], trained.label_texts[1], plot)
    show(facts, json, measurements)


def check_plot(plot: str, model: Any, inputs: tuple[str, ...]) -> None:
    """Refuse to draw where nothing can be drawn, before anything is measured."""
    if type(model).__name__ not in LINEAR or len(model.labels) != 2 or model.multilabel:
        raise UsageError(f"--plot needs a model of two labels; {inputs[0]} is none")
    model.check_probabilities()
    if Path(plot).suffix not in DRAWN:
        raise UsageError(f"--plot {plot}: expected a name that ends in {', '.join(DRAWN)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise HogwildError("--plot needs matplotlib: pip install matplotlib")
    check_outputs({"--plot": plot}, inputs)


def plot_calibration(bins: list[dict[str, Any]], label: str, plot: str) -> None:
    """Draw the share of rows with a label against the probability that the model tells, a point for each tenth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained")
    axis = figure.subplots()
    axis.axline((0, 0), slope=1, color="gray", linestyle="dashed")
    axis.plot([each["probability"] for each in bins], [each["share"] for each in bins], marker="o")
    for each in bins:
        place = each["probability"], each["share"]
        axis.annotate(f"{each['rows']:,}", place, (6, -10), textcoords="offset points", color="gray")
    axis.set(xlabel=f"probability of {label}", ylabel=f"share of {label}", title="Calibration, with numbers of rows")
    with output(plot) as stream:
        figure.savefig(stream, format=Path(plot).suffix[1:], dpi=150)


def pairs_of(model: Any, options: dict[str, Any], data: str, values: str) -> Ratings:
    """Return pairs of user and item, numbered as in the model; -1 if unknown to it."""
    sources = Sources(options, data, "completion")
    ids = {"users": model.user_ids, "items": model.item_ids}
    source = sys.stdin.buffer if data == "-" else data
    pairs: Ratings = model.place(sources.open(source, **ids, unknown="keep", values=values, repeats="keep"))
    return pairs


def features_of(model: LinearModel, options: dict[str, Any], data: str, labels: str) -> Iterator[Rows]:
    """Yield blocks of the data with the model's features, hashed if they were hashed in training.

    A store is taken as it is, so it must have been hashed in the same way. A model of a table reads tables by its plan.
    """
    from hogwild.data.rows.source import stream_data
    from hogwild.data.tables.plan import check_plan
    from hogwild.data.text.hashing import check_same

    sources = Sources(options, data, "linear")
    reading = sources.reading() | {"hash_bits": model.hash_bits, "cache": sources.cache()}
    for rows in stream_data(sys.stdin.buffer if data == "-" else data, labels, model.table, **reading):
        check_plan(rows.table, model.table, data)
        check_same(rows.hash_bits, model.hash_bits, data, "those of the model")
        yield rows


def formatter(model: LinearModel, proba: bool, decision: bool) -> Callable[[np.ndarray], bytes]:
    """Return a function from margins to the lines of the output."""
    import numpy as np

    from hogwild.serving.scorer import likeliest

    if decision:
        return number_lines
    if proba:
        return lambda margins: number_lines(model.probabilities(margins))
    if not model.labels:
        return lambda margins: number_lines(model.decide(margins))
    if model.multilabel:
        texts = np.array(model.label_texts, dtype=object)
        return lambda margins: "".join(f"{','.join(texts[row > 0])}\n" for row in margins).encode()
    names = np.array([f"{label}\n".encode() for label in model.label_texts], dtype=object)
    return lambda margins: b"".join(names[likeliest(margins)])


def number_lines(values: Any) -> bytes:
    """Format numbers, (n,) or (n, columns), in the shortest form that reads back as the same float32."""
    import numpy as np

    rows = np.asarray(values, dtype=np.float32)
    lines = map(str, rows) if rows.ndim == 1 else (" ".join(map(str, row)) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def measurements(facts: dict[str, Any]) -> Iterator[str]:
    """Yield measurements as lines, with the confusion of a few labels as a table."""
    from hogwild.data.rows.container import shortest

    labels = [label if isinstance(label, str) else shortest(label) for label in facts.pop("labels", [])]
    confusion, bins = facts.pop("confusion", []), facts.pop("reliability", [])
    if labels:
        facts["f1"] = dict(zip(labels, facts["f1"].values()))
    if labels and not confusion and len(labels) > TABLE_LABELS:  # --json has those of many labels
        del facts["f1"]
    yield from fact_lines(facts)
    if bins:
        yield f"reliability (probability of {labels[1]} from, rows, its mean, share of {labels[1]})"
    for each in bins:
        yield f"{each['from']:>8.1f}{each['rows']:>12,}{each['probability']:>10.4f}{each['share']:>10.4f}"
    if 0 < len(labels) <= TABLE_LABELS and confusion:
        width = max(7, *map(len, labels)) + 1
        yield "confusion (true labels down, predicted labels across)"
        for label, counts in [("", labels), *zip(labels, confusion)]:
            yield f"{label:>{width}}" + "".join(f"{count:>{width}}" for count in counts)


# ---- answers from completion models and graph cuts: lines of three or two columns, separated by tabs


@takes(f"{DELIMITED} {CACHE}")
def recommend(
    model: Model,
    names: Names = None,
    count: Count = 10,
    seen: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Leave out what users rated here, from which new users get factors."),
    ] = None,
    titles: Titles = None,
    out: Out = "-",
    **options: Any,
) -> None:
    """Recommend items to users, best first: lines of user, item and score, and the item's title."""
    trained = opened(model, RATINGS, inputs=[seen, titles], out=out)
    titled = titles_of(trained, titles)
    rated = None if seen is None else Sources(options, seen, "completion").open(values="optional")
    users = named(names, trained.user_ids, trained.shape[0])
    write_scores(out, users, lambda part: trained.recommend(part, count, rated), titled)


def similar(model: Model, names: Names = None, count: Count = 10, titles: Titles = None, out: Out = "-") -> None:
    """Find items like given ones, nearest first: lines of item, other item and cosine, and the other's title."""
    trained = opened(model, RATINGS, inputs=[titles], out=out)
    titled = titles_of(trained, titles)
    items = named(names, trained.item_ids, trained.shape[1])
    write_scores(out, items, lambda part: trained.similar_items(part, count), titled)


def titles_of(model: Any, table: str | None) -> Callable[[Any], str]:
    """Return what follows an item's score in its line: nothing, or its title in a table."""
    if table is None:
        return lambda item: ""
    from hogwild.data.ratings.features import read_titles

    titles = read_titles(table, model.item_ids, model.shape[1])
    return lambda item: f"\t{printable(titles[item])}"


def labels(model: Model, out: Out = "-") -> None:
    """Print the label of each vertex of a cut: lines of vertex and label, or an array if OUT ends in .npy."""
    cut = opened(model, "Segmentation", out=out)
    if out.endswith(".npy"):
        cut.save_labels(out)
        return
    with output(out) as stream:
        stream.write(cut.label_lines())


def named(names: list[str] | None, ids: Any, size: int) -> np.ndarray:
    """Return names of users or items, converted to the type of the model's names."""
    import numpy as np

    if names == ["-"]:
        names = [line.strip() for line in sys.stdin.read().split("\n") if line.strip()]
    elif not names:
        everyone: np.ndarray = np.arange(size) if ids is None else ids.names()
        return everyone
    if ids is not None and not ids.whole:
        return np.array(names, dtype=object)
    try:
        return np.array(names, dtype=np.int64)
    except (ValueError, OverflowError):
        shown = ", ".join(map(shown_word, names))
        raise InputError(f"names need to be whole numbers, as in the ratings trained on; got {shown}") from None


def write_scores(
    out: str, names: np.ndarray, function: Callable[[np.ndarray], Any], title: Callable[[Any], str]
) -> None:
    """Write a line for each result of ``function`` for the names; a missing one has a score of -inf."""
    with output(out) as stream:
        for first in range(0, len(names), PIECE):
            part = names[first : first + PIECE]
            for name, others, scores in zip(part, *function(part)):
                for other, score in zip(others, scores):
                    if score > -float("inf"):
                        stream.write(f"{name}\t{other}\t{score:.6g}{title(other)}\n".encode())


# ---- inspect

COUNT = 10  # heaviest features of each sign
FEW = 3  # the same with several classes, of each class
NAME_WIDTH = 40  # characters of a name
MOST = 25  # classes, or arrays, shown on a terminal; JSON has all of them
OFF = (None, False, "", "none")  # values of options that are not shown
CURVE = (
    "epoch train_seconds objective held_out_loss test_loss test_rmse cut_value test_accuracy test_auc status".split()
)


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
    json: Json = False,
) -> None:
    """Show what is in a model: labels, heaviest features by name, options, the last measurements."""
    trained = opened(model, inputs=[names])
    kind = type(trained).__name__
    if kind not in LINEAR and names is not None:
        raise UsageError(f"--names needs a linear model; {model} is none")
    arrays, facts = trained.to_file()
    table = facts.pop("table", None)
    facts["config"] = {name: value for name, value in facts["config"].items() if value not in OFF}
    if kind in LINEAR:
        facts |= linear_facts(trained, count, names)
        facts |= {"columns": {column["name"]: column["role"] for column in table["columns"]}} if table else {}
    elif kind == RATINGS:
        facts["heaviest"] = [
            named_group(side, heaviest(biases, count or COUNT), str if ids is None else ids.names)
            for side, biases, ids in (
                ("user", trained.user_bias, trained.user_ids),
                ("item", trained.item_bias, trained.item_ids),
            )
        ]
    shapes = {name: " x ".join(map(str, array.shape)) for name, array in arrays.items()}
    facts["arrays"] = {name: f"{shape} {arrays[name].dtype}" for name, shape in shapes.items()}
    show({"model": model, **facts}, json, model_lines)


def linear_facts(model: LinearModel, count: int | None, names: str | None) -> dict[str, Any]:
    """Return the labels and the heaviest features of a linear model or a factorization machine."""
    import numpy as np

    several = len(model.coef_) > 1
    groups = [heaviest(weights, count or (FEW if several else COUNT)) for weights in model.coef_]
    pairs = model.strongest_pairs(count or COUNT) if hasattr(model, "strongest_pairs") else []
    shown = {at for group in groups for side in group.values() for at, _ in side}
    name_of = namer(model, shown | {at for pair in pairs for at in pair[:2]}, names)
    nonzero = int(np.count_nonzero(model.coef_))
    labels = model.label_texts if several else [None]
    return {
        "labels": model.label_texts,
        "nonzero": nonzero,
        "density": nonzero / max(model.coef_.size, 1),
        "heaviest": [named_group(label, group, name_of) for label, group in zip(labels, groups)],
        "pairs": [[name_of(one), name_of(other), weight] for one, other, weight in pairs],
    }


def heaviest(weights: np.ndarray, count: int) -> dict[str, list[tuple[int, float]]]:
    """Return place and weight of the ``count`` largest above zero, largest first, and of the smallest below it."""
    import numpy as np

    sides = {}
    for side, values in {"positive": weights, "negative": -weights}.items():
        places = np.argsort(-values, kind="stable")[:count].tolist()
        sides[side] = [(at, float(weights[at])) for at in places if values[at] > 0]
    return sides


def named_group(
    label: str | None, sides: dict[str, list[tuple[int, float]]], name_of: Callable[[int], Any]
) -> dict[str, Any]:
    """Return the heaviest weights of a label, or of all, with names in place of their places."""
    named = {side: [[str(name_of(at)), weight] for at, weight in entries] for side, entries in sides.items()}
    return {"label": label} | named


def namer(model: LinearModel, places: set[int], file: str | None) -> Callable[[int], str]:
    """Return a function from a feature's place to its names if there are any, else its number.

    A model of a table has the names of its columns; a file has the others, as a table like the one it was trained on,
    or as text with one name a line.
    """
    names: dict[int, list[str]] = {}
    if model.table is not None:
        from hogwild.data.public.catalogue import located
        from hogwild.data.tables.plan import TablePlan
        from hogwild.data.tables.source import feature_names

        known = TablePlan.from_json(model.table).known_names
        names = known() if file is None else feature_names(located(file), model.table, places)
    elif file is not None:
        if model.hash_bits is not None:
            raise UsageError(f"--names {file}: features are hashed, so only the table that was trained on has names")
        lines = Path(file).read_text(encoding="utf-8", errors="surrogateescape").split("\n")
        names = {at: [line.strip()] for at, line in enumerate(lines) if line.strip()}
    number = "bucket {}".format if model.hash_bits is not None else lambda at: f"feature {at + 1}"
    return lambda at: " | ".join(names.get(at, [])) or number(at)


def model_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts, arrays, and the heaviest features."""
    arrays, history, groups, pairs = (facts.pop(name, []) for name in ("arrays", "history", "heaviest", "pairs"))
    last = {name: history[-1][name] for name in CURVE if history[-1].get(name) is not None} if history else {}
    yield from fact_lines(facts | {"in the end": last})
    yield from fact_lines({f"array {name}": arrays[name] for name in [*arrays][:MOST]})
    for group in groups[:MOST]:
        label = group["label"]
        titles = (f"large for {label}", f"small for {label}") if label else ("raise the prediction", "lower it")
        if label is None and facts["labels"]:
            titles = f"for {facts['labels'][1]}", f"for {facts['labels'][0]}"
        yield ""
        for title, side in zip(titles, (group["positive"], group["negative"])):
            yield from fact_lines({title: [f"{printable(name)[:NAME_WIDTH]} ({weight:.4g})" for name, weight in side]})
    if pairs:
        names = (printable(f"{one} * {other}")[:NAME_WIDTH] for one, other, _ in pairs)
        yield from fact_lines({"strongest pairs": [f"{name} ({pair[2]:.4g})" for name, pair in zip(names, pairs)]})
    if len(arrays) > MOST or len(groups) > MOST:
        yield "and more, which --json has"


# ---- export


def export(
    model: Model,
    to: Annotated[
        str,
        typer.Option(metavar="FORMAT", help=f"One of {', '.join(EXPORTS)}.", autocompletion=lambda: EXPORTS),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Write it here.", show_default=False)],
    quiet: Quiet = False,
) -> None:
    """Write a model for other programs: NumPy's arrays, a file of Python that answers by them, or an ONNX graph."""
    from hogwild.interchange import export_model

    trained, how = opened(model, out=out), ""
    if to == "python":
        check_outputs({"--out": str(Path(out).with_suffix(".npz"))}, [model])
        how = f': from {Path(out).stem} import load; load("{Path(out).stem}.npz")'
    export_model(trained, out, to)
    Display(quiet=quiet).say(f"{out}: {model} for {to}{how}")
