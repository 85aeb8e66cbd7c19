"""The examples of a module, as arrays or sparse rows, and the assembly of minibatches from them.

Arrays are shared with the workers and never pickled. A minibatch of arrays is one ``take`` of each; one of sparse rows
is ``(indices, offsets, per_sample_weights)``, the arguments of ``nn.EmbeddingBag``. A Dataset, which would be read item
by item, is refused: 100 examples of two tensors take as long to fetch and stack as a small network takes to learn from
them. A ``TensorDataset`` is taken apart into its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

from hogwild.data.mapped import Mapped, entries_of
from hogwild.data.rows.container import Rows, held_out_ids
from hogwild.data.rows.source import open_data
from hogwild.errors import InputError, UsageError
from hogwild.problems.module import kernel as modules

SAMPLED = 4096  # rows that the fingerprint reads


class Batch(NamedTuple):
    """One minibatch, as the module and the loss take it."""

    inputs: tuple[torch.Tensor, ...]
    target: torch.Tensor
    nonzeros: int  # stored entries of sparse rows, else 0


Feed = Callable[[np.ndarray], Batch]  # takes row numbers


@dataclass(frozen=True)
class Examples:
    """Inputs and targets: dense arrays with a row for each example, or sparse rows as bags of features."""

    inputs: tuple[np.ndarray, ...] | Rows
    target: np.ndarray
    labels: np.ndarray | None = None  # of Rows, which the targets number

    def __len__(self) -> int:
        return len(self.target)

    @property
    def store(self) -> Path | None:
        return self.inputs.store if isinstance(self.inputs, Rows) else None

    def lay_out(self, shared: bool) -> tuple[dict[str, np.ndarray], dict[str, Mapped]]:
        """The arrays by name, and those of them that other processes find in files."""
        arrays, mapped = {"target": self.target}, dict[str, Mapped]()
        if isinstance(self.inputs, Rows):
            entries, mapped = entries_of(self.inputs, shared)
            return entries | arrays, mapped
        return {f"input{k}": array for k, array in enumerate(self.inputs)} | arrays, mapped

    def sample_arrays(self) -> list[np.ndarray]:
        """Arrays for the data's fingerprint."""
        if isinstance(self.inputs, Rows):
            ids = self.inputs.spread(1 << 20, SAMPLED)
            some = self.inputs.select(ids).compact()
            return [some.begin, some.indices, some.values, self.target[ids]]
        ids = np.linspace(0, len(self) - 1, min(len(self), SAMPLED)).astype(np.int64)
        return [array[ids] for array in (*self.inputs, self.target)]

    def select(self, ids: np.ndarray) -> Examples:
        """The examples ``ids``, in that order."""
        rows = self.inputs
        inputs = rows.select(ids) if isinstance(rows, Rows) else tuple(array[ids] for array in rows)
        return replace(self, inputs=inputs, target=self.target[ids])

    def split(self, fraction: float, seed: int = 0) -> tuple[Examples, Examples]:
        """Examples to train on and to test on, as ``Rows.split``."""
        rest, held = held_out_ids(len(self), fraction, seed, "examples")
        return self.select(rest), self.select(held)


def take_data(data: Any, loss: str, train: Examples | None = None) -> Examples:
    """Convert the user's data to ``Examples``; number the classes if ``loss`` wants that and Rows have labels.

    For test data, ``train`` says which label has which number.

    Raises
    ------
    UsageError, InputError
        If it is not data, or cannot be trained on.
    """
    if isinstance(data, str | Path):
        data = open_data(data)
    if isinstance(data, Rows):
        return Examples(data, *_numbered(data.targets, loss, None if train is None else train.labels))
    if isinstance(data, TensorDataset):
        data = data.tensors
    if not isinstance(data, tuple | list) or len(data) < 2:
        raise UsageError(f"data needs (X, y) or Rows; got {type(data).__name__}: stack a Dataset by default_collate")
    target = _array("y", data[-1])
    if target.ndim == 0:
        raise InputError("y: expected a target for each example, got a single number")
    if target.dtype.kind != "f":
        target = target.astype(np.int64)
    rows = Rows.from_scipy(data[0], np.zeros(len(target), np.float32)) if hasattr(data[0], "tocsr") else data[0]
    if isinstance(rows, Rows):
        return Examples(rows, target)
    names = ["X"] if len(data) == 2 else [f"X[{k}]" for k in range(len(data) - 1)]
    inputs = tuple(_array(name, part) for name, part in zip(names, data[:-1]))
    for name, array in zip(names, inputs):
        if array.ndim == 0 or len(array) != len(target):
            raise InputError(f"{name}: expected a row for each of {len(target)} targets, got shape {array.shape}")
    return Examples(inputs, target)


def _array(name: str, values: Any) -> np.ndarray:
    """A contiguous array of float32, or of integers, in a type that torch has."""
    try:
        array = np.asarray(values.detach().numpy() if isinstance(values, torch.Tensor) else values)
    except (ValueError, TypeError) as error:  # lists of several lengths, tensors that NumPy has no type for
        raise InputError(f"{name}: cannot be made an array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} needs numbers; got dtype {array.dtype}")
    if array.dtype.kind == "f":
        array = array.astype(np.float32, copy=False)
    elif array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return np.ascontiguousarray(array)


def _numbered(targets: np.ndarray, loss: str, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Targets of Rows, all float32; for a loss over classes, replaced by their numbers, in the labels' order."""
    if loss not in ("cross-entropy", "bce"):
        return targets, None
    labels = np.unique(targets) if labels is None else labels
    if loss == "bce" and len(labels) > 2:
        raise InputError(f"loss 'bce' is for two labels, the rows have {len(labels)}")
    classes = np.searchsorted(labels, targets)
    strange = labels[np.minimum(classes, len(labels) - 1)] != targets
    if strange.any():
        raise InputError(f"row {int(np.argmax(strange))} has the label {targets[strange][0]:g}, unknown in training")
    return classes.astype(np.int64 if loss == "cross-entropy" else np.float32), labels


# ---- minibatches


def feed_of(arrays: Mapping[str, np.ndarray]) -> Feed:
    """Function that assembles minibatches from the arrays that ``lay_out`` returned.

    Of sparse rows the module is given ``(indices, offsets, per_sample_weights)``.
    """
    target = arrays["target"]

    def of_arrays(chosen: np.ndarray) -> Batch:
        inputs = tuple(torch.from_numpy(array.take(chosen, axis=0)) for array in dense)
        return Batch(inputs, torch.from_numpy(target.take(chosen, axis=0)), 0)

    def of_rows(chosen: np.ndarray) -> Batch:
        begin, end = arrays["begin"], arrays["end"]
        nonzeros = int((end[chosen] - begin[chosen]).sum())
        entries, weights = np.empty(nonzeros, np.int64), np.empty(nonzeros, np.float32)
        begins = np.empty(len(chosen) + 1, np.int64)
        modules.gather(begin, end, arrays["indices"], arrays["values"], chosen, entries, weights, begins)
        inputs = tuple(torch.from_numpy(array) for array in (entries, begins[:-1], weights))
        return Batch(inputs, torch.from_numpy(target.take(chosen, axis=0)), nonzeros)

    dense = [array for name, array in arrays.items() if name.startswith("input")]
    return of_arrays if dense else of_rows
