"""What is done with a trained model: predict, evaluate, inspect, recommend, similar, labels, export.

No command here imports torch. ``predict`` and ``evaluate`` read text in batches straight from the file or from standard
input, without a cache, since it is read only once; memory holds a batch and, for ``evaluate``, one number per row and
class. ``inspect`` makes one dictionary of facts for each kind of model; ``--json`` prints all of it, and the lines are
made from it, so the two never disagree.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from hogwild.cli.display import Display, fact_lines, show
from hogwild.cli.options import CACHE, DELIMITED, Json, Quiet, takes
from hogwild.cli.sources import Sources, check_outputs, check_readable, naming
from hogwild.data.text.lines import shown_word
from hogwild.errors import InputError, UsageError
from hogwild.model_file import load_model, replacing
from hogwild.rows_file import printable

if TYPE_CHECKING:
    import numpy as np

    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.problems.linear.model import LinearModel

TABLE_LABELS = 12  # most that fit on a terminal
PAIRS = 1 << 16  # pairs whose scores are written at a time
USERS = 4096  # users whose recommendations are written at a time
SHOWN = {
    "LinearModel": "a linear model",
    "FMModel": "a factorization machine",
    "CompletionModel": "a model of ratings",
    "Segmentation": "a cut",
    "ModuleModel": "a module",
}

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


def open_model(path: str, kind: str = "", command: str = "", inputs: Iterable[str | None] = (), out: str = "-") -> Any:
    """Return the model, of ``kind`` if that is said, after checking that inputs and the output can be opened."""
    check_readable(path, model=True)
    data_names = [name for name in inputs if name not in (None, "-")]
    for name in data_names:
        if not name.startswith("synthetic:"):
            check_readable(name)
    check_outputs({"--out": out}, [path, *data_names], pipes=("--out",))
    model = load_model(path)
    if kind and type(model).__name__ != kind:
        raise InputError(f"{path}: expected {SHOWN[kind]} (train {command}), got {SHOWN[type(model).__name__]}")
    return model


def is_linear(model: Any) -> bool:
    return type(model).__name__ in ("LinearModel", "FMModel")


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


@takes(f"zero_based format {DELIMITED} {CACHE}")
def predict(
    model: Model,
    data: Data,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="OUT", help="Write predictions here ('-': standard output).")
    ] = "-",
    proba: Annotated[
        bool, typer.Option("--proba", help="Probabilities, a column for each label in ascending order.")
    ] = False,
    decision: Annotated[bool, typer.Option("--decision", help="Margins, before they become labels.")] = False,
    **options: Any,
) -> None:
    """Predict a label or value for each row of DATA, or the rating of each pair of user and item, one line each."""
    if proba and decision:
        raise UsageError("--proba and --decision ask for different outputs: give one of them")
    sources = Sources.take(options)
    trained = open_model(model, inputs=[data], out=out)
    if not is_linear(trained):
        if proba or decision:
            raise UsageError("--proba and --decision are for linear models: of ratings a score is predicted")
        pairs = pairs_of(trained, sources, data, "optional")
        with output(out) as stream:
            for first in range(0, len(pairs), PAIRS):
                part = pairs.block(first, first + PAIRS)
                stream.write(number_lines(trained.scores(part.users, part.items)))
        trained.warn_unknown(pairs.users, pairs.items)
        return
    if proba:
        trained.check_probabilities()
    lines = formatter(trained, "proba" if proba else "decision" if decision else "label")
    unknown = 0
    with output(out) as stream:
        for text, beyond in predictions(trained, features_of(trained, sources, data, labels="optional"), lines):
            stream.write(text)
            unknown += beyond
    trained.warn_unknown(unknown)


@takes(f"zero_based format {DELIMITED} {CACHE}")
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
    **options: Any,
) -> None:
    """Measure a model on DATA: accuracy, log loss, AUC and F1; errors of values or ratings; how items are ranked."""
    sources = Sources.take(options)
    trained = open_model(model, inputs=[data])
    if not is_linear(trained):
        from hogwild.problems.completion.model import evaluate_completion

        pairs = pairs_of(trained, sources, data, "required")
        excluded = None if seen is None else pairs_of(trained, sources, seen, "optional")
        show(evaluate_completion(trained, pairs, excluded), json)
        return
    if seen is not None:
        raise UsageError(f"--seen {seen}: is for models of ratings, and {model} is linear")
    from hogwild.metrics import evaluate as measure  # only linear models need it

    with naming(data, "<stdin>"):
        facts = measure(trained, features_of(trained, sources, data))
    show(facts, json, measurements)


def pairs_of(model: Any, sources: Sources, data: str, values: str) -> Ratings:
    """Return pairs of user and item, numbered as in the model; -1 if unknown to it."""
    if type(model).__name__ == "Segmentation":
        raise InputError(f"a cut has no other data to be applied to than its own, got {data}: see hogwild labels")
    if type(model).__name__ != "CompletionModel":
        raise InputError(f"a module is applied to {data} from Python: hogwild.load(path).into(module)")
    sources.check("completion")
    source: Any = sys.stdin.buffer if data == "-" else data
    ids = {"users": model.user_ids, "items": model.item_ids}
    pairs: Ratings = model.place(
        sources.open("completion", source, **ids, unknown="keep", values=values, repeats="keep")
    )
    return pairs


def features_of(model: LinearModel, sources: Sources, data: str, labels: str = "required") -> Iterator[Rows]:
    """Yield blocks of the data with the model's features, hashed if they were hashed in training.

    A store is taken as it is, so it must have been hashed in the same way. A model of a table reads tables by its plan.
    """
    from hogwild.data.rows.source import stream_data
    from hogwild.data.tables.plan import check_plan
    from hogwild.data.text.hashing import check_same

    options = sources.row_options() | {"hash_bits": model.hash_bits, "cache": sources.cache()}
    for rows in stream_data(sys.stdin.buffer if data == "-" else data, labels, model.table, **options):
        check_plan(rows.table, model.table, data)
        check_same(rows.hash_bits, model.hash_bits, data, "those of the model")
        yield rows


def predictions(
    model: LinearModel, blocks: Iterable[Rows], lines: Callable[[np.ndarray], bytes]
) -> Iterator[tuple[bytes, int]]:
    """Yield each block's output text and number of unknown features, in order, computed a few blocks ahead."""
    from hogwild.data.parallel import in_order
    from hogwild.data.rows.container import count_unknown

    margins = model.margins_of()

    def apply(rows: Rows) -> tuple[bytes, int]:
        return b"".join(margins.each(rows, lines, threads=1)), count_unknown(rows, model.width, threads=1)

    return in_order(blocks, apply)


def formatter(model: LinearModel, kind: str) -> Callable[[np.ndarray], bytes]:
    """Return a function from margins to the lines of the output."""
    import numpy as np

    names = np.array([f"{label}\n".encode() for label in model.label_texts], dtype=object)

    if kind == "label" and model.labels:
        return lambda margins: b"".join(names[model.decide_classes(margins)])
    apply = {"label": model.decide, "proba": model.probabilities, "decision": lambda margins: margins}[kind]
    return lambda margins: number_lines(apply(margins))


def number_lines(values: Any) -> bytes:
    """Format numbers, (n,) or (n, columns), in the shortest form that reads back as the same float32."""
    import numpy as np

    rows = np.asarray(values, dtype=np.float32)
    lines = map(str, rows) if rows.ndim == 1 else (" ".join(map(str, row)) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def measurements(facts: dict[str, Any]) -> Iterator[str]:
    """Yield measurements as lines, with the confusion of a few labels as a table (JSON has larger ones)."""
    from hogwild.data.rows.container import shortest

    labels = [label if isinstance(label, str) else shortest(label) for label in facts.get("labels", [])]
    facts = facts | ({"f1": dict(zip(labels, facts["f1"].values()))} if labels else {})
    yield from fact_lines({name: value for name, value in facts.items() if name not in ("labels", "confusion")})
    if 0 < len(labels) <= TABLE_LABELS:
        width = max(7, *map(len, labels)) + 1
        yield "confusion (true labels down, predicted labels across)"
        for label, counts in [("", labels), *zip(labels, facts["confusion"])]:
            yield f"{label:>{width}}" + "".join(f"{count:>{width}}" for count in counts)


# ---- answers from completion models and graph cuts: lines of three or two columns, separated by tabs


@takes(f"format {DELIMITED} {CACHE}")
def recommend(
    model: Model,
    names: Names = None,
    count: Count = 10,
    seen: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Leave out what users rated here, from which new users get factors."),
    ] = None,
    out: Out = "-",
    **options: Any,
) -> None:
    """Recommend items to users, best first: lines of user, item and score."""
    trained = open_model(model, "CompletionModel", "--problem completion", [seen], out)
    rated = None
    if seen is not None:
        rated = Sources.take(options).open("completion", seen, values="optional")
    users = named(names, trained.user_ids, trained.shape[0])
    write_scores(out, users, lambda part: trained.recommend(part, count, rated))


def similar(model: Model, names: Names = None, count: Count = 10, out: Out = "-") -> None:
    """Find items like given ones, nearest first: lines of item, other item and cosine."""
    trained = open_model(model, "CompletionModel", "--problem completion", out=out)
    items = named(names, trained.item_ids, trained.shape[1])
    write_scores(out, items, lambda part: trained.similar_items(part, count))


def labels(
    model: Model,
    out: Out = "-",
) -> None:
    """Print the label of each vertex of a cut: lines of vertex and label, or an array if OUT ends in .npy."""
    cut = open_model(model, "Segmentation", "--problem cuts", out=out)
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
        raise UsageError(f"{', '.join(map(shown_word, names))}: the model's names are whole numbers") from None


def write_scores(out: str, names: np.ndarray, function: Callable[[np.ndarray], Any]) -> None:
    """Write a line for each result of ``function`` for the names; a missing one has a score of -inf."""
    with output(out) as stream:
        for first in range(0, len(names), USERS):
            part = names[first : first + USERS]
            for name, others, scores in zip(part, *function(part)):
                for other, score in zip(others, scores):
                    if score > -float("inf"):
                        stream.write(f"{name}\t{other}\t{score:.6g}\n".encode())


# ---- inspect

COUNT = 10  # heaviest features of each sign
MOST_PAIRS = 1000  # strongest pairs of features, those of one column included
FEW = 3  # the same with several classes, of each class
NAME_WIDTH = 40  # characters of a name
MOST_CLASSES = 25  # shown on a terminal; JSON has all of them
MOST_ARRAYS = 40
OFF = (None, False, "", "none")  # values of options that are not shown
CURVE = (
    "epoch",
    "train_seconds",
    "objective",
    "held_out_loss",
    "test_loss",
    "test_rmse",
    "cut_value",
    "test_accuracy",
    "test_auc",
    "status",
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
    trained = open_model(model, inputs=[names])
    if not is_linear(trained) and names is not None:
        raise UsageError(f"--names is for linear models, and {model} is none")
    facts = {
        "model": model,
        **FACTS[type(trained).__name__](trained, count, names),
        "trained_by": f"hogwild {trained.version}",
        "data": trained.fingerprint,
        "options": {name: value for name, value in trained.config.items() if value not in OFF},
        "history": [{name: row[name] for name in CURVE if row.get(name) is not None} for row in trained.history],
    }
    show(facts, json, model_lines)


def linear_facts(model: LinearModel, count: int | None, names: str | None) -> dict[str, Any]:
    """Return labels, sizes and the heaviest features of a linear model."""
    import numpy as np

    several = len(model.coef_) > 1
    tops = [heaviest(weights, count or (FEW if several else COUNT)) for weights in model.coef_]
    name_of = namer(model, {int(at) for pair in tops for side in pair for at in side}, names)
    nonzero = int(np.count_nonzero(model.coef_))
    return {
        "kind": "linear",
        "labels": model.label_texts,
        "features": model.width,
        "hash_bits": model.hash_bits,
        "nonzero": nonzero,
        "density": nonzero / max(model.coef_.size, 1),
        "intercept": model.intercept_,
        "columns": None if model.table is None else used_columns(model.table),
        "heaviest": [
            {"label": label} | paired(weights, pair, name_of)
            for label, weights, pair in zip(model.label_texts if several else [None], model.coef_, tops)
        ],
    }


def heaviest(
    weights: np.ndarray,  # (width,) float32
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the ``count`` largest weights above zero, largest first, and of the smallest below it."""
    import numpy as np

    above, below = np.flatnonzero(weights > 0), np.flatnonzero(weights < 0)
    above, below = (at[np.argsort(-np.abs(weights[at]), kind="stable")[:count]] for at in (above, below))
    return above, below


def fm_facts(model: Any, count: int | None, names: str | None) -> dict[str, Any]:
    """Return what a linear model has, the rank, and the pairs of features with the largest products of factors."""
    pairs = model.strongest_pairs(MOST_PAIRS)
    name_of = namer(model, {at for pair in pairs for at in pair[:2]}, names)
    named = [(name_of(i), name_of(j), value) for i, j, value in pairs]
    apart = [each for each in named if "=" not in each[0] or each[0].split("=")[0] != each[1].split("=")[0]]
    facts = linear_facts(model, count, names)
    return facts | {"kind": "fm", "rank": model.rank, "pairs": [list(each) for each in apart[: count or COUNT]]}


def completion_facts(model: Any, count: int | None, *_: Any) -> dict[str, Any]:
    """Return sizes and biases of a completion model."""
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
        {"name": name, "shape": array.shape, "dtype": str(array.dtype)}
        for name in model.names
        if (array := model.arrays.get(name)) is not None
    ]
    parameters = sum(array.size for array in model.arrays.values())
    return {"kind": "module", "parameters": parameters, "arrays": arrays, "tied": model.tied}


FACTS: dict[str, Callable[..., dict[str, Any]]] = {
    "LinearModel": linear_facts,
    "FMModel": fm_facts,
    "CompletionModel": completion_facts,
    "Segmentation": cut_facts,
    "ModuleModel": module_facts,
}


def used_columns(table: dict[str, Any]) -> dict[str, str]:
    """Return what each column of a table's plan is used as, and the crosses."""
    return {c["name"]: c["role"] for c in table["columns"]} | dict.fromkeys(table.get("crosses", ()), "cross")


def paired(weights: np.ndarray, positions: Iterable[np.ndarray], name_of: Callable[[Any], Any]) -> dict[str, Any]:
    """Return names and weights at the positions of large and of small weights."""
    sides = [[[str(name_of(at)), float(weights[at])] for at in side] for side in positions]
    return {"positive": sides[0], "negative": sides[1]}


def namer(model: LinearModel, positions: set[int], file: str | None) -> Callable[[Any], str]:
    """Return a function from a feature's position to its names if there are any, else its number.

    A model of a table has the names of its columns; a file has the others, as a table like the one it was trained on,
    or as text with one name a line.
    """
    names: dict[int, list[str]] = {}
    if model.table is not None:
        from hogwild.data.tables.plan import TablePlan

        names = TablePlan.from_json(model.table).known_names()
    if file is not None:
        if model.table is not None:
            from hogwild.data.public.catalogue import located
            from hogwild.data.tables.source import feature_names

            names = feature_names(located(file), model.table, positions)
        else:
            names = names_in_lines(file, model.hash_bits, positions)
        if positions and not names:
            raise InputError(f"{file}: has no name for any of the heaviest features")
    number = "bucket {}".format if model.hash_bits is not None else lambda at: f"feature {at + 1}"
    return lambda at: " | ".join(names.get(int(at), [])) or number(int(at))


def names_in_lines(path: str, hash_bits: int | None, positions: set[int]) -> dict[int, list[str]]:
    """Return names at ``positions``, from text whose first line names the first feature."""
    import numpy as np

    from hogwild.data.text.hashing import hash_indices

    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    if "\0" in text:
        raise InputError(f"{path}: expected text with one name a line")
    lines = text.removesuffix("\n").split("\n")
    features = np.arange(len(lines)) if hash_bits is None else hash_indices(np.arange(len(lines)), hash_bits)
    names: dict[int, list[str]] = {}
    for line in np.flatnonzero(np.isin(features, list(positions))):
        if name := lines[line].strip():
            names.setdefault(int(features[line]), []).append(name)
    return names


def model_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts: those of a number or a short list, arrays, and the heaviest features."""
    apart = ("heaviest", "history", "tied", "arrays", "pairs")
    yield from fact_lines({name: value for name, value in facts.items() if name not in apart and value is not None})
    yield from fact_lines({"in the end": facts["history"][-1]} if facts["history"] else {})
    arrays = facts.get("arrays", [])
    groups = facts.get("heaviest", [])
    if pairs := facts.get("pairs"):
        yield from fact_lines(
            {"strongest pairs": [f"{printable(f'{a} x {b}')[:NAME_WIDTH]} ({v:.4g})" for a, b, v in pairs]}
        )
    for array in arrays[:MOST_ARRAYS]:
        shape = " x ".join(map(str, array["shape"])) or "one number"
        yield f"  {array['name'][:NAME_WIDTH]:<{NAME_WIDTH}}  {shape:<16} {array['dtype']}"
    for group in groups[:MOST_CLASSES]:
        label = group["label"]
        titles = (f"large for {label}", f"small for {label}") if label else ("raise the prediction", "lower it")
        if label is None and facts["labels"]:
            titles = f"for {facts['labels'][1]}", f"for {facts['labels'][0]}"
        yield ""
        for title, side in zip(titles, (group["positive"], group["negative"])):
            yield from fact_lines({title: [f"{printable(name)[:NAME_WIDTH]} ({weight:.4g})" for name, weight in side]})
    if any(name.startswith("bucket ") for group in groups for name, _ in group["positive"]):
        yield "buckets of hashed features: --names TABLE, or a file of names, tells whose they are"
    if len(arrays) > MOST_ARRAYS or len(groups) > MOST_CLASSES:
        yield "and more, which --json has"


# ---- export


def export(
    model: Model,
    to: Annotated[Literal["npz", "onnx"], typer.Option(help="What to write.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Write it here.", show_default=False)],
    bare: Annotated[
        bool, typer.Option("--bare", help="Leave out the hashing and scaling of rows: you do it before.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as a file that other programs read: NumPy's arrays, or an ONNX graph that predicts the same."""
    from hogwild.interchange import export_model

    check_readable(model, model=True)
    check_outputs({"--out": out}, [model])
    export_model(load_model(model), out, to, bare=bare)
    Display(quiet=quiet).say(f"{out}: {model} for {to}")
