"""``hogwild recommend``, ``similar`` and ``labels``: what models of ratings and cuts of graphs are asked for.

Lines of three columns, split by tabs, so that they go into any other program. None of these imports torch.
"""

from __future__ import annotations

import re
import sys
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from hogwild.cli.predict import Model, output
from hogwild.cli.shell import data
from hogwild.cli.sources import (
    CacheDir,
    Format,
    NoCache,
    Sources,
    check_apart,
    check_readable,
    check_writable,
)
from hogwild.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from hogwild.recommender import CompletionModel

BATCH = 4096  # users at a time
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", show_default="all", help="As in the data; "
                                                   "'-': one a line from standard input.")]  # fmt: skip
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many for each.")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Write here ('-': standard output).")]


def recommend(
    model: Model,
    names: Names = None,
    count: Count = 10,
    seen: Annotated[
        str | None, typer.Option(metavar="DATA", help="Leave out what users rated here.", autocompletion=data)
    ] = None,
    out: Out = "-",
    format: Format = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Recommend items to users, best first: lines of user, item and score."""
    sources = Sources(None, format=format, cache_directory=cache, no_cache=no_cache)
    trained = _open(model, seen, out)
    known = None
    if seen is not None:
        ids = {"users": trained.user_ids, "items": trained.item_ids}
        known = sources.ratings(seen, **ids, unknown="drop", values="optional")
    users = _asked(names, trained.user_ids, trained.shape[0])
    with output(out) as stream:
        for first in range(0, len(users), BATCH):
            part = users[first : first + BATCH]
            _write(stream, part, *trained.recommend(part, count, known))


def similar(model: Model, names: Names = None, count: Count = 10, out: Out = "-") -> None:
    """Find items like given ones, nearest first: lines of item, other item and cosine."""
    trained = _open(model, None, out)
    items = _asked(names, trained.item_ids, trained.shape[1])
    with output(out) as stream:
        for first in range(0, len(items), BATCH):
            part = items[first : first + BATCH]
            _write(stream, part, *trained.similar_items(part, count))


def labels(
    model: Model,
    out: Out = "-",
    plot: Annotated[str | None, typer.Option(metavar="FILE.png", help="Draw the labels of a grid here.")] = None,
) -> None:
    """Print the label of each vertex of a cut: lines of vertex and label, or an array if OUT ends in .npy."""
    check_readable(model)
    check_apart({"--out": out, "--plot": plot}, [model])
    for option, name in (("--out", out), ("--plot", plot)):
        if name not in (None, "-"):
            check_writable(option, str(name))
    from hogwild.model_file import load_model
    from hogwild.segmentation import Segmentation

    cut = load_model(model)
    if not isinstance(cut, Segmentation):
        raise InputError(f"{model}: expected a cut (train --problem cuts), got a {_kind(cut)}")
    if plot is not None:
        from hogwild.cut_picture import draw

        draw(cut, plot)
    if out.endswith(".npy"):
        cut.save_labels(out)
        return
    with output(out) as stream:
        vertices = range(len(cut)) if cut.ids is None else cut.ids.names()
        found = cut.labels if cut.label_ids is None else cut.label_ids.names(cut.labels)
        stream.write("".join(f"{vertex}\t{label}\n" for vertex, label in zip(vertices, found)).encode())


def _open(model: str, seen: str | None, out: str) -> CompletionModel:
    """The model, once it is known that the rest can be done too."""
    check_readable(model)
    if seen is not None:
        check_readable(seen, "completion")
    if out != "-":
        check_apart({"--out": out}, [model, seen])
        check_writable("--out", out)
    from hogwild.model_file import load_model
    from hogwild.recommender import CompletionModel

    trained = load_model(model)
    if not isinstance(trained, CompletionModel):
        raise InputError(f"{model}: expected a model of ratings (train --problem completion), got a {_kind(trained)}")
    return trained


def _kind(model: Any) -> str:
    """What a model is, to somebody who expected another one."""
    kinds = {"LinearModel": "linear model", "CompletionModel": "model of ratings", "Segmentation": "cut"}
    return kinds.get(type(model).__name__, "module")


def _asked(names: list[str] | None, ids: Any, size: int) -> np.ndarray:
    """Names of users or items, of the type that the model's have."""
    import numpy as np

    if names == ["-"]:
        names = [line.strip() for line in sys.stdin.read().split("\n") if line.strip()]
    elif not names:
        everyone: np.ndarray = np.arange(size) if ids is None else ids.names()
        return everyone
    if ids is not None and ids.numbers is None:
        return np.array([_text(name) for name in names], dtype=object)
    for name in names:  # as in the data: 7 is not called 007
        if not WHOLE.fullmatch(name) or not -(2**63) <= int(name) < 2**63:
            raise UsageError(f"{_shown(name)}: the model's names are whole numbers, such as 7, not 007")
    return np.array([int(name) for name in names], dtype=np.int64)


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
        raise UsageError(f"{_shown(name)}: expected a name in UTF-8") from None
    return name


def _shown(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:37] + "...")


def _write(stream: IO[bytes], asked: Any, found: Any, scores: Any) -> None:
    """A line for each that was found; what is missing has a score of -inf."""
    for name, others, values in zip(asked, found, scores):
        lines = [f"{name}\t{other}\t{value:.6g}\n" for other, value in zip(others, values) if value > -float("inf")]
        stream.write("".join(lines).encode())
