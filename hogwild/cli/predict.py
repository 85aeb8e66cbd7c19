"""``hogwild predict`` and ``hogwild evaluate``: a model applied to data that need not fit in memory.

Text is read in batches straight from the file or from standard input, with no cache in between: it is looked at once.
Memory is a batch and, for ``evaluate``, one number per row and class. Neither imports torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from hogwild.cli.sources import CacheDir, Format, NoCache, Sources, Targets, ZeroBased, check_readable, check_writable
from hogwild.errors import OutputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from hogwild.model import LinearModel

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)]
Data = Annotated[str, typer.Argument(metavar="DATA", show_default=False, help="svmlight text ('-': standard input), "
                                     "a store, .npz, .mtx or synthetic:...")]  # fmt: skip


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
    zero_based: ZeroBased = False,
    format: Format = None,
    targets: Targets = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Predict a label or value for each row of DATA, one line each."""
    if proba and decision:
        raise UsageError("--proba and --decision ask for different outputs: give one of them")
    sources = Sources(None, zero_based, format, targets, cache, no_cache)
    linear = open_model(model, data)
    if proba:
        linear.check_probabilities()
    if out != "-":
        check_writable("--out", out)
    lines = formatter(linear, "proba" if proba else "decision" if decision else "label")
    with output(out) as stream:
        for margins, _ in batches(linear, data, sources):
            stream.write(lines(margins))


def evaluate(
    model: Model,
    data: Data,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    zero_based: ZeroBased = False,
    format: Format = None,
    targets: Targets = None,
    cache: CacheDir = None,
    no_cache: NoCache = False,
) -> None:
    """Measure a model on DATA: accuracy, log loss, AUC and F1, or the errors of a regression."""
    import numpy as np

    from hogwild.cli.rows import to_json
    from hogwild.metrics import evaluate as measure

    sources = Sources(None, zero_based, format, targets, cache, no_cache)
    linear = open_model(model, data)
    parts = list(batches(linear, data, sources))
    margins, truth = (np.concatenate(part) for part in zip(*parts))
    facts = measure(linear, margins, truth)
    if json:
        typer.echo(to_json(facts))
    else:
        for line in table(facts):
            typer.echo(line)


def open_model(model: str, data: str) -> LinearModel:
    """The model, once it is known that the data can be opened too."""
    check_readable(model)
    if data != "-":
        check_readable(data)
    from hogwild.model_file import load_model

    return load_model(model)


def batches(model: LinearModel, data: str, sources: Sources) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Margins and targets of DATA, batch by batch; one warning at the end for features the model does not know."""
    from hogwild.data.chunks import count_unknown

    margins, unknown = model.margins_of(), 0
    for rows in sources.stream(data):
        unknown += count_unknown(rows, model.width)
        yield margins.of(rows), rows.targets
    model.warn_unknown(unknown)


def formatter(model: LinearModel, kind: str) -> Callable[[np.ndarray], bytes]:
    """A function from margins to the lines of the output."""
    import numpy as np

    names = np.array([f"{label:g}\n".encode() for label in model.labels], dtype=object)

    def numbers(values: np.ndarray) -> bytes:
        """Lines of numbers in the shortest form that reads back as the same float32."""
        values = np.asarray(values, dtype=np.float32)
        if values.ndim == 1:
            return "".join(f"{value}\n" for value in values.astype(str)).encode()
        return "".join(" ".join(row) + "\n" for row in values.astype(str)).encode()

    if kind == "label" and model.labels:
        return lambda margins: b"".join(names[model.decide_classes(margins)])
    apply = {"label": model.decide, "proba": model.probabilities, "decision": lambda margins: margins}[kind]
    return lambda margins: numbers(apply(margins))


@contextlib.contextmanager
def output(name: str) -> Iterator[BinaryIO]:
    """A binary stream to standard output, or to a file that takes its name only when it is complete."""
    path = Path(os.path.realpath(name))  # a link stays a link
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not path.is_file():  # a pipe or device
        with open(path, "wb") as stream:
            yield stream
        return
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            yield stream
        mode = 0o666 & ~_umask() if not path.exists() else path.stat().st_mode & 0o777
        temporary.chmod(mode)
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"--out {name}: cannot write there: {error.strerror or error}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def table(facts: dict[str, object]) -> Iterator[str]:
    """Measurements as aligned lines; those of each class one below the other."""
    for name, value in facts.items():
        if isinstance(value, dict):
            for key, entry in value.items():
                yield f"{name.replace('_', ' ') + ' ' + key:<24} {_short(entry)}"
        else:
            yield f"{name.replace('_', ' '):<24} {_short(value)}"


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
