"""Minibatches assembled on the device from a part's arrays by row numbers.

Those of dense inputs have one size, so they are put where a captured step reads them. Only the device knows how many
entries a minibatch of sparse rows has: their number is asked for, which waits for the stream, and steps run eagerly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import dtype_of

Data = Mapping[str, torch.Tensor]
Given = tuple[tuple[torch.Tensor, ...], torch.Tensor]  # the module's inputs, the loss's target


class DeviceArrayFeed:
    """Feed of dense inputs and targets, in arrays with a row for each example."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = {name: array for name, array in arrays.items() if name.startswith("input")}
        self._arrays["target"] = arrays["target"]

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Return the arrays of these examples."""
        return {name: array[first:last] for name, array in self._arrays.items()}

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes of :meth:`part`."""
        return sum(array[first:last].nbytes for array in self._arrays.values())

    def blank(self, count: int, rows: int, device: torch.device) -> list[torch.Tensor]:
        """Allocate ``count`` minibatches, to be filled."""
        arrays = self._arrays.values()
        return [torch.empty(count, rows, *array.shape[1:], dtype=dtype_of(array), device=device) for array in arrays]

    def fill(self, data: Data, rows: torch.Tensor, parts: list[torch.Tensor]) -> None:
        """Fill the first minibatches; ``rows`` are (minibatches, rows of each)."""
        flat = rows.flatten()
        for name, part in zip(self._arrays, parts):
            torch.index_select(data[name], 0, flat, out=part[: len(rows)].flatten(0, 1))

    def one(self, data: Data, rows: torch.Tensor) -> Given:
        """Return a minibatch of these rows, as the module takes it."""
        return given([data[name].index_select(0, rows) for name in self._arrays])


class DeviceSparseFeed:
    """Feed of sparse rows: the module is given ``(indices, offsets, per_sample_weights)``."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._begin, self._end, self._target = arrays["begin"], arrays["end"], arrays["target"]
        self._indices, self._values = arrays["indices"], arrays["values"]

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        """Return these rows, stored consecutively, wherever they lie."""
        begin, end = (np.asarray(array[first:last], np.int64) for array in (self._begin, self._end))
        lengths = end - begin
        ends = np.cumsum(lengths)
        if (begin[1:] == end[:-1]).all():
            entries: Any = slice(begin[0], end[-1]) if len(begin) else slice(0, 0)
        else:
            entries = np.repeat(begin - (ends - lengths), lengths) + np.arange(lengths.sum())
        return {
            "begin": ends - lengths, "end": ends, "indices": self._indices[entries], "values": self._values[entries],
            "target": self._target[first:last],
        }  # fmt: skip

    def bytes_of(self, first: int, last: int) -> int:
        """Bytes of :meth:`part`."""
        entries = int((self._end[first:last] - self._begin[first:last]).sum())
        each = self._indices.itemsize + self._values.itemsize
        return entries * each + (last - first) * 16 + self._target[first:last].nbytes

    def one(self, data: Data, rows: torch.Tensor) -> Given:
        """Return a minibatch of these rows; waits for the number of its entries."""
        begins = data["begin"].index_select(0, rows)
        lengths = data["end"].index_select(0, rows) - begins
        offsets = lengths.cumsum(0) - lengths
        total = int(lengths.sum())
        at = torch.repeat_interleave(begins - offsets, lengths, output_size=total)
        at += torch.arange(total, device=rows.device)
        indices = data["indices"].index_select(0, at).long()
        return given([indices, offsets, data["values"].index_select(0, at), data["target"].index_select(0, rows)])


def given(parts: list[torch.Tensor]) -> Given:
    """Return one minibatch as the module takes it."""
    return tuple(parts[:-1]), parts[-1]
