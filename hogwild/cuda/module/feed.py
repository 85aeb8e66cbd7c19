"""Minibatches assembled on the device from a part's arrays by row numbers, without waiting.

Sparse rows make that hard: only the device knows how many entries a minibatch has, but memory is allocated, and graphs
are captured, by size. So a minibatch is padded to the largest possible size. The padding repeats the features of the
entries with a weight of zero: it adds nothing to a sum, and touches no other rows. If padding would be most of the
minibatch, or the module sees a difference, the number of entries is asked for, which waits for the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import dtype_of

LOOSE = 16  # most padded entries, as a multiple of the usual number
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
        return [_blank(array, count, rows, device) for array in self._arrays.values()]

    def fill(self, data: Data, rows: torch.Tensor, parts: list[torch.Tensor]) -> None:
        """Fill the first minibatches; ``rows`` are (minibatches, rows of each)."""
        flat = rows.flatten()
        for name, part in zip(self._arrays, parts):
            torch.index_select(data[name], 0, flat, out=part[: len(rows)].flatten(0, 1))

    def one(self, data: Data, rows: torch.Tensor, whole: bool) -> Given:
        """Return a minibatch of these rows."""
        return self.given([data[name].index_select(0, rows) for name in self._arrays])

    def given(self, parts: list[torch.Tensor]) -> Given:
        """Return one minibatch as the module takes it."""
        return tuple(parts[:-1]), parts[-1]


class DeviceSparseFeed:
    """Feed of sparse rows: the module is given ``(indices, offsets, per_sample_weights)``."""

    def __init__(self, arrays: Mapping[str, np.ndarray], rows: int) -> None:
        self._begin, self._end, self._target = arrays["begin"], arrays["end"], arrays["target"]
        self._indices, self._values = arrays["indices"], arrays["values"]
        lengths = self._end - self._begin
        rows = min(rows, len(lengths))
        self.longest = np.argpartition(lengths, len(lengths) - rows)[len(lengths) - rows :]  # those of one minibatch
        self.room: int | None = max(int(lengths[self.longest].sum()), 1)  # entries to pad to; None: no padding
        self.uneven = self.room > LOOSE * max(float(lengths.mean()) * rows, 1.0)
        self.empties = int((lengths == 0).sum())

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        return self.select(slice(first, last))

    def select(self, rows: Any) -> dict[str, np.ndarray]:
        """Return these rows, stored consecutively, wherever they lie."""
        begin, end = (np.asarray(array[rows], np.int64) for array in (self._begin, self._end))
        lengths = end - begin
        ends = np.cumsum(lengths)
        if (begin[1:] == end[:-1]).all():
            entries: Any = slice(begin[0], end[-1]) if len(begin) else slice(0, 0)
        else:
            entries = np.repeat(begin - (ends - lengths), lengths) + np.arange(lengths.sum())
        return {
            "begin": ends - lengths, "end": ends, "indices": self._indices[entries], "values": self._values[entries],
            "target": self._target[rows],
        }  # fmt: skip

    def bytes_of(self, first: int, last: int) -> int:
        entries = int((self._end[first:last] - self._begin[first:last]).sum())
        each = self._indices.itemsize + self._values.itemsize
        return entries * each + (last - first) * 16 + self._target[first:last].nbytes

    def blank(self, count: int, rows: int, device: torch.device) -> list[torch.Tensor]:
        assert self.room is not None
        return [
            torch.empty(count, self.room, dtype=torch.int64, device=device),
            torch.empty(count, rows, dtype=torch.int64, device=device),
            torch.empty(count, self.room, dtype=torch.float32, device=device),
            _blank(self._target, count, rows, device),
        ]

    def fill(self, data: Data, rows: torch.Tensor, parts: list[torch.Tensor]) -> None:
        assert self.room is not None
        for part, found in zip(parts, filled(data, rows, self.room)):
            part[: len(rows)].copy_(found)

    def one(self, data: Data, rows: torch.Tensor, whole: bool) -> Given:
        if whole and self.room is not None:
            return self.given([part[0] for part in filled(data, rows[None], self.room)])
        return self.given(exact(data, rows))

    def given(self, parts: list[torch.Tensor]) -> Given:
        return tuple(parts[:-1]), parts[-1]


def filled(data: Data, rows: torch.Tensor, room: int) -> list[torch.Tensor]:
    """Minibatches of ``rows`` (count, b) padded to ``room`` entries: indices, offsets, weights, targets."""
    flat, (count, b) = rows.flatten(), rows.shape
    begins = data["begin"].index_select(0, flat).view(count, b)
    lengths = data["end"].index_select(0, flat).view(count, b) - begins
    ends = lengths.cumsum(1)
    offsets, totals = ends - lengths, ends[:, -1:]
    place = torch.arange(room, device=rows.device).expand(count, room)
    entry = place.remainder(totals.clamp(min=1))  # the padding starts again at the first entry
    bag = torch.searchsorted(ends, entry, right=True).clamp_(max=b - 1)
    at = (begins.gather(1, bag) + entry - offsets.gather(1, bag)).clamp_(0, max(len(data["indices"]) - 1, 0)).flatten()
    if not len(data["indices"]):
        nothing = torch.zeros_like(place, dtype=torch.int64)
        return [nothing, offsets, nothing.float(), _targets(data, rows)]
    indices = data["indices"].index_select(0, at).view(count, room).long()
    weights = data["values"].index_select(0, at).view(count, room) * (place < totals)
    return [indices, offsets, weights, _targets(data, rows)]


def exact(data: Data, rows: torch.Tensor) -> list[torch.Tensor]:
    """One minibatch without padding; waits for the number of its entries."""
    begins = data["begin"].index_select(0, rows)
    lengths = data["end"].index_select(0, rows) - begins
    offsets = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    at = torch.repeat_interleave(begins - offsets, lengths, output_size=total)
    at += torch.arange(total, device=rows.device)
    indices = data["indices"].index_select(0, at).long()
    return [indices, offsets, data["values"].index_select(0, at), data["target"].index_select(0, rows)]


def _blank(array: np.ndarray, count: int, rows: int, device: torch.device) -> torch.Tensor:
    return torch.empty(count, rows, *array.shape[1:], dtype=dtype_of(array), device=device)


def _targets(data: Data, rows: torch.Tensor) -> torch.Tensor:
    return data["target"].index_select(0, rows.flatten()).unflatten(0, rows.shape)
