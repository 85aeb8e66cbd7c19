"""The facts of a model that ``hogwild inspect`` shows: one dictionary for each kind of model, of JSON types.

Feature names come from the model, if it was trained on a table, or from the file that the user gives: a table, read by
the model's plan, or one name a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from hogwild.problems.linear.model import LinearModel

COUNT, FEW = 10, 3  # heaviest features of each sign; with several classes, of each class


def facts_of(model: Any, count: int | None, names: str | None, zero_based: bool) -> dict[str, Any]:
    """Return the facts of a model of any kind; ``names`` and ``zero_based`` are for linear models."""
    return OF[type(model).__name__](model, count, names, zero_based)


def of_linear(model: LinearModel, count: int | None, names: str | None, zero_based: bool) -> dict[str, Any]:
    """Return labels, sizes and the heaviest features of a linear model."""
    import numpy as np

    from hogwild.data.names import heaviest

    if model.table is not None and zero_based:
        raise UsageError("--zero-based is for numbered features, and those of a table have names")
    several = len(model.coef_) > 1
    tops = [heaviest(weights, count or (FEW if several else COUNT)) for weights in model.coef_]
    named = namer(model, {int(at) for pair in tops for side in pair for at in side}, names, zero_based)
    nonzero = int(np.count_nonzero(model.coef_))
    facts = {
        "kind": "linear",
        "labels": model.label_texts,
        "features": model.width,
        "hash_bits": model.hash_bits,
        "nonzero": nonzero,
        "density": nonzero / max(model.coef_.size, 1),
        "intercept": model.intercept_,
        "columns": None if model.table is None else {c["name"]: c["role"] for c in model.table["columns"]},
    }
    facts["heaviest"] = [
        {"label": label, "intercept": bias} | paired(weights, pair, named)
        for label, bias, weights, pair in zip(
            model.label_texts if several else [None], model.intercept_, model.coef_, tops, strict=True
        )
    ]
    return facts


def of_completion(model: Any, count: int | None, *_: Any) -> dict[str, Any]:
    """Return sizes and biases of a completion model."""
    from hogwild.data.names import heaviest

    facts = {
        "kind": "completion",
        "users": model.shape[0],
        "items": model.shape[1],
        "rank": model.rank,
        "mean": model.mean,
    }
    facts["heaviest"] = [
        {"label": side} | paired(biases, heaviest(biases, count or COUNT), str if ids is None else ids.names)
        for side, biases, ids in (("user", model.user_bias, model.user_ids), ("item", model.item_bias, model.item_ids))
    ]
    return facts


def of_cut(model: Any, *_: Any) -> dict[str, Any]:
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


def of_module(model: Any, *_: Any) -> dict[str, Any]:
    """Return names and shapes of a module's arrays."""
    arrays = [
        {"name": name, "shape": array.shape, "dtype": model.dtypes.get(name, str(array.dtype))}
        for name in model.names
        if (array := model.arrays.get(name)) is not None
    ]
    return {
        "kind": "module",
        "parameters": sum(a.size for a in model.arrays.values()),
        "arrays": arrays,
        "tied": model.tied,
    }


OF: dict[str, Callable[..., dict[str, Any]]] = {
    "LinearModel": of_linear,
    "CompletionModel": of_completion,
    "Segmentation": of_cut,
    "ModuleModel": of_module,
}


def paired(weights: np.ndarray, positions: Iterable[np.ndarray], named: Callable[[Any], Any]) -> dict[str, Any]:
    """Return names and weights at two lists of positions."""
    sides = ([[str(named(at)), float(weights[at])] for at in side] for side in positions)
    return dict(zip(("positive", "negative"), sides, strict=True))


def namer(model: LinearModel, wanted: set[int], names: str | None, zero_based: bool) -> Callable[[Any], str]:
    """Return a function from a feature's position to its names if there are any, else its number."""
    found = model.names
    if names is not None and model.table is not None:
        from hogwild.data.public.catalogue import located
        from hogwild.data.tables.source import feature_names

        found = feature_names(located(names), model.table, wanted)
    elif names is not None:
        found = names_in_lines(names, model.hash_bits, wanted)
    if names is not None and wanted and not found:
        raise InputError(f"{names}: has no name for any of the heaviest features")
    number = "bucket {}".format if model.hash_bits is not None else lambda at: f"feature {at + (not zero_based)}"
    return lambda at: " | ".join(found.get(int(at), [])) or number(int(at))


def names_in_lines(path: str, hash_bits: int | None, wanted: set[int]) -> dict[int, list[str]]:
    """Return names at the positions ``wanted``, from text whose first line names the first feature."""
    import numpy as np

    from hogwild.data.text.hashing import hash_indices

    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    if "\0" in text:
        raise InputError(f"{path}: expected text with one name a line")
    lines = text.removesuffix("\n").split("\n")
    where = np.arange(len(lines)) if hash_bits is None else hash_indices(np.arange(len(lines)), hash_bits)
    found: dict[int, list[str]] = {}
    for line in np.flatnonzero(np.isin(where, list(wanted))):
        if name := lines[line].strip():
            found.setdefault(int(where[line]), []).append(name)
    return found
