"""``hogwild recommend``, ``similar`` and ``labels``: answers from completion models and graph cuts.

Output lines have three columns, separated by tabs, which other programs read easily. No command here imports torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.data.sources import Sources, check_outputs, check_readable
from hogwild.cli.models.predict import Model, output
from hogwild.cli.options import CACHE, DELIMITED, takes
from hogwild.data.text.tokens import shown_word
from hogwild.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from hogwild.problems.completion.model import CompletionModel

BATCH = 4096  # users at a time
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME", show_default="all", help="Names as in the data; '-': one a line from standard input."
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many for each.")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Write here ('-': standard output).")]


@takes(f"format {DELIMITED} {CACHE}")
def recommend(
    model: Model,
    names: Names = None,
    count: Count = 10,
    seen: Annotated[str | None, typer.Option(metavar="DATA", help="Leave out what users rated here.")] = None,
    out: Out = "-",
    **given: Any,
) -> None:
    """Recommend items to users, best first: lines of user, item and score."""
    trained = _open(model, seen, out)
    rated = None
    if seen is not None:
        ids = {"users": trained.user_ids, "items": trained.item_ids}
        rated = Sources.take(given).ratings(seen, **ids, unknown="drop", values="optional")
    users = _asked(names, trained.user_ids, trained.shape[0])
    _write(out, users, lambda part: trained.recommend(part, count, rated))


def similar(model: Model, names: Names = None, count: Count = 10, out: Out = "-") -> None:
    """Find items like given ones, nearest first: lines of item, other item and cosine."""
    trained = _open(model, None, out)
    items = _asked(names, trained.item_ids, trained.shape[1])
    _write(out, items, lambda part: trained.similar_items(part, count))


def labels(
    model: Model,
    out: Out = "-",
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the labels of a grid here.")] = None,
) -> None:
    """Print the label of each vertex of a cut: lines of vertex and label, or an array if OUT ends in .npy."""
    check_readable(model)
    check_outputs({"--out": out, "--plot": plot}, [model], pipes=("--out", "--plot"))
    from hogwild.model_file import load_model
    from hogwild.problems.cuts.model import Segmentation

    cut = load_model(model)
    if not isinstance(cut, Segmentation):
        raise InputError(f"{model}: expected a cut (train --problem cuts), got a {_kind(cut)}")
    if plot is not None:
        from hogwild.problems.cuts.picture import draw

        draw(cut, plot)
    if out.endswith(".npy"):
        cut.save_labels(out)
        return
    with output(out) as stream:
        vertices = range(len(cut)) if cut.ids is None else cut.ids.names()
        labels = cut.labels if cut.label_ids is None else cut.label_ids.names(cut.labels)
        stream.write("".join(f"{vertex}\t{label}\n" for vertex, label in zip(vertices, labels)).encode())


def _open(model: str, seen: str | None, out: str) -> CompletionModel:
    """Return the model, after checking that the rest can be opened too."""
    check_readable(model)
    if seen is not None:
        check_readable(seen, "completion")
    check_outputs({"--out": out}, [model, seen], pipes=("--out",))
    from hogwild.model_file import load_model
    from hogwild.problems.completion.model import CompletionModel

    trained = load_model(model)
    if not isinstance(trained, CompletionModel):
        raise InputError(f"{model}: expected a model of ratings (train --problem completion), got a {_kind(trained)}")
    return trained


def _kind(model: Any) -> str:
    """Describe a model's kind, for the message that another one was expected."""
    kinds = {"LinearModel": "linear model", "CompletionModel": "model of ratings", "Segmentation": "cut"}
    return kinds.get(type(model).__name__, "module")


def _asked(names: list[str] | None, ids: Any, size: int) -> np.ndarray:
    """Return names of users or items, converted to the type of the model's names."""
    import numpy as np

    if names == ["-"]:
        names = [line.strip() for line in sys.stdin.read().split("\n") if line.strip()]
    elif not names:
        everyone: np.ndarray = np.arange(size) if ids is None else ids.names()
        return everyone
    if ids is not None and ids.numbers is None:
        for name in names:
            if any("\ud800" <= character <= "\udfff" for character in name):  # bytes that are not UTF-8
                raise UsageError(f"{shown_word(name)}: expected a name in UTF-8")
        return np.array(names, dtype=object)
    for name in names:  # as in the data: 7 does not match 007
        if not WHOLE.fullmatch(name) or not -(2**63) <= int(name) < 2**63:
            raise UsageError(f"{shown_word(name)}: the model's names are whole numbers, such as 7, not 007")
    return np.array([int(name) for name in names], dtype=np.int64)


def _write(out: str, names: np.ndarray, function: Callable[[np.ndarray], Any]) -> None:
    """Write a line for each result of ``function`` for the names; a missing one has a score of -inf."""
    with output(out) as stream:
        for first in range(0, len(names), BATCH):
            part = names[first : first + BATCH]
            for name, others, scores in zip(part, *function(part)):
                for other, score in zip(others, scores):
                    if score > -float("inf"):
                        stream.write(f"{name}\t{other}\t{score:.6g}\n".encode())
