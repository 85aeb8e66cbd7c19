"""``hogwild predict`` and ``hogwild evaluate``: a model applied to data that need not fit in memory.

Text is read in batches straight from the file or from standard input, without a cache, since it is read only once.
Memory holds a batch and, for ``evaluate``, one number per row and class. Neither command imports torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from hogwild.cli.data.sources import Sources, check_outputs, check_readable
from hogwild.cli.display import fact_lines, show
from hogwild.cli.options import CACHE, DELIMITED, Json, takes
from hogwild.errors import InputError, OutputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from hogwild.data.ratings.container import Ratings
    from hogwild.data.rows.container import Rows
    from hogwild.problems.linear.model import LinearModel

TABLE_LABELS = 12  # most that fit on a terminal
PAIRS = 1 << 16  # pairs whose scores are written at a time

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="svmlight text ('-': standard input), a store, .npz, a public data "
        "set's name or synthetic:...; for a model of ratings any ratings.",
    ),
]


@takes(f"zero_based format targets {DELIMITED} {CACHE}")
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
    **given: Any,
) -> None:
    """Predict a label or value for each row of DATA, or the rating of each pair of user and item, one line each."""
    if proba and decision:
        raise UsageError("--proba and --decision ask for different outputs: give one of them")
    sources = Sources.take(given)
    linear = open_model(model, data)
    if not is_linear(linear):
        if proba or decision:
            raise UsageError("--proba and --decision are for linear models: of ratings a score is predicted")
        pairs = pairs_of(linear, sources, data, "optional")
        check_outputs({"--out": out}, [model, data], pipes=("--out",))
        with output(out) as stream:
            for first in range(0, len(pairs), PAIRS):
                part = pairs.block(first, first + PAIRS)
                stream.write(number_lines(linear.scores(part.users, part.items)))
        linear.warn_unknown(pairs.users, pairs.items)
        return
    if proba:
        linear.check_probabilities()
    check_outputs({"--out": out}, [model, data], pipes=("--out",))
    lines = formatter(linear, "proba" if proba else "decision" if decision else "label")
    unknown = 0
    with output(out) as stream:
        for text, beyond in predictions(linear, features_of(linear, sources, data, labels="optional"), lines):
            stream.write(text)
            unknown += beyond
    linear.warn_unknown(unknown)


@takes(f"zero_based format targets {DELIMITED} {CACHE}")
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
    **given: Any,
) -> None:
    """Measure a model on DATA: accuracy, log loss, AUC and F1; errors of values or ratings; how items are ranked."""
    sources = Sources.take(given)
    linear = open_model(model, data)
    if not is_linear(linear):
        from hogwild.problems.completion.model import evaluate_completion

        pairs = pairs_of(linear, sources, data, "required")
        known = None if seen is None else pairs_of(linear, sources, seen, "optional")
        show(evaluate_completion(linear, pairs, known), json)
        return
    if seen is not None:
        raise UsageError(f"--seen {seen}: is for models of ratings, and {model} is linear")
    from hogwild.metrics import evaluate as measure  # only linear models need it

    try:
        facts = measure(linear, features_of(linear, sources, data))
    except InputError as error:
        if str(error).startswith((data, "<stdin>")):
            raise
        raise InputError(f"{data}: {error}") from error
    show(facts, json, measurements)


def open_model(model: str, data: str) -> Any:
    """Return the model, after checking that the data can be opened too."""
    check_readable(model)
    if data != "-" and not data.startswith("synthetic:"):
        check_readable(data)
    from hogwild.model_file import load_model

    trained = load_model(model)
    if data.startswith("synthetic:"):
        check_readable(data, "linear" if is_linear(trained) else "completion")
    return trained


def is_linear(model: Any) -> TypeGuard[LinearModel]:
    """Whether the model is linear; others are for ratings or cuts."""
    from hogwild.problems.linear.model import LinearModel

    return isinstance(model, LinearModel)


def pairs_of(model: Any, sources: Sources, data: str, values: str) -> Ratings:
    """Return pairs of user and item, numbered as in the model; -1 if unknown to it."""
    from hogwild.problems.completion.model import CompletionModel

    if not isinstance(model, CompletionModel):
        if type(model).__name__ != "Segmentation":
            raise InputError(f"a module is applied to {data} from Python: hogwild.load(path).into(module)")
        raise InputError(f"a cut has no other data to be applied to than its own, got {data}: see hogwild labels")
    sources.check("completion")
    source: Any = sys.stdin.buffer if data == "-" else data
    ids = {"users": model.user_ids, "items": model.item_ids}
    placed: Ratings = model.place(sources.ratings(source, **ids, unknown="keep", values=values, repeats="keep"))
    return placed


def features_of(model: LinearModel, sources: Sources, data: str, labels: str = "required") -> Iterator[Rows]:
    """Yield blocks of the data with the model's features, hashed if they were hashed in training.

    A store is taken as it is, so it must have been hashed in the same way. A model of a table reads tables by its plan.
    """
    from hogwild.data.tables.plan import check_plan
    from hogwild.data.text.hashing import check_same

    for rows in dataclasses.replace(sources, hash_bits=model.hash_bits, plan=model.table).stream(data, labels):
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


@contextlib.contextmanager
def output(name: str) -> Iterator[IO[bytes]]:
    """Open a binary stream to standard output, or to a file that takes its name only when it is complete."""
    if name == "-" or (os.path.exists(name) and not os.path.isfile(name)):  # a pipe or device
        try:
            with contextlib.nullcontext(sys.stdout.buffer) if name == "-" else open(name, "wb") as stream:
                yield stream
                stream.flush()
        except OSError as error:
            error.filename = error.filename or ("standard output" if name == "-" else name)
            raise
        return
    path, temporary = Path(os.path.realpath(name)), None  # a link stays a link
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            yield stream
        if path.exists():
            mode = path.stat().st_mode & 0o777
        else:
            mask = os.umask(0)  # the only way to read it
            os.umask(mask)
            mode = 0o666 & ~mask
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"--out {name}: cannot write there: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
