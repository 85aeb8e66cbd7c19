"""Segments on one stream, run by replaying one captured step on fixed memory.

A graph reads and writes the addresses that it was captured with. So minibatches are put into the same memory again and
again, a few at a time, with the step of each; a number beside them selects the next, and a replay increments it. All of
that is queued on one stream, in order, so nothing is overwritten before it is read.

Only the device knows how many entries a minibatch of sparse rows has: their number is asked for, which waits for the
stream, and steps run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hogwild.cuda.backend import WARM_UP, Backend
from hogwild.cuda.work import Segment, Visits

MOST = 8  # minibatches assembled at a time: a segment's
ROOM = 1 << 25  # most bytes for them per replica, unless one alone needs more


Data = Mapping[str, torch.Tensor]  # a part's arrays, the target last


def of_arrays(data: Data, rows: torch.Tensor) -> list[torch.Tensor]:
    """A minibatch of these rows: the module's inputs, and the loss's target."""
    return [array.index_select(0, rows) for array in data.values()]


def of_rows(data: Data, rows: torch.Tensor) -> list[torch.Tensor]:
    """The same of sparse rows, whose inputs are ``indices, offsets, per_sample_weights``."""
    begins = data["begin"].index_select(0, rows)
    lengths = data["end"].index_select(0, rows) - begins
    offsets = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    at = torch.repeat_interleave(begins - offsets, lengths, output_size=total)
    at += torch.arange(total, device=rows.device)
    indices = data["indices"].index_select(0, at).long()
    return [indices, offsets, data["values"].index_select(0, at), data["target"].index_select(0, rows)]


class DeviceSteps:
    """Runs segments on one stream by replaying one captured step, where a capture is possible."""

    def __init__(
        self, make: Callable[[], Any], minibatch: Callable[[Data, torch.Tensor], list[torch.Tensor]], backend: Backend
    ) -> None:
        self._make, self._minibatch, self._backend = make, minibatch, backend
        self.replay: Callable[[], None] | None = None
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []  # arrays that a step writes, and their copies

    def __call__(self, segment: Segment) -> None:
        self._replica.enter()
        assert segment.rows is not None
        m, done = len(segment.rows), 0
        if self.replay is not None:
            rows = self._replica.rows
            while m - done >= rows:
                count = min(len(self._steps), (m - done) // rows)
                self._fill(segment.data, segment.rows[done : done + count * rows].view(count, rows))
                self._set_steps(segment.visits, done, count)
                for _ in range(count):
                    self.replay()
                done += count * rows
        while done < m:
            count = min(m - done, self._replica.rows)
            parts = self._minibatch(segment.data, segment.rows[done : done + count])
            self._set_steps(segment.visits, done, 1)
            self._replica.step(parts, self._steps[0])
            done += count
        self._replica.leave()

    # ---- run on the stream beforehand

    def begin(self) -> None:
        """Make the replica, whose memory all belongs to the stream."""
        self._replica = self._make()
        self._steps = torch.zeros(1, device=self._backend.device)

    def prepare(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Allocate the memory that a graph reads, fill it with one minibatch, and copy what the step will write."""
        device, rows = self._backend.device, self._replica.rows
        count = min(ROOM // max(sum(array.nbytes for array in arrays.values()), 1), MOST)
        count = count if count >= WARM_UP else 1  # else the steps before a capture would run past the last minibatch
        some = {name: self._backend.stage(array).to(device) for name, array in arrays.items()}
        self._parts = [part.new_empty((count, *part.shape)) for part in some.values()]
        self._steps = torch.zeros(count, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._fill(some, torch.arange(rows, dtype=torch.int32, device=device).repeat(count, 1))
        self._before = [(array, array.clone()) for array in self._replica.writes]
        self._replica.enter()

    def next(self) -> None:
        """Run one step on the next minibatch in the graph's memory."""
        if len(self._steps) == 1:
            parts, step = [part[0] for part in self._parts], self._steps[0]
        else:
            parts = [part.index_select(0, self._at)[0] for part in self._parts]
            step = self._steps.index_select(0, self._at)[0]
        self._replica.step(parts, step)
        if len(self._steps) > 1:
            self._at.add_(1)

    def restore(self) -> None:
        """Restore what the step has written."""
        for array, before in self._before:
            array.copy_(before)
        self._before = []

    def _set_steps(self, visits: Visits, done: int, count: int) -> None:
        """Set the steps of the next minibatches, ``done`` visits after the first one."""
        steps = self._steps[:count]
        if visits.power == 0.0:
            steps.fill_(visits.scale)
        else:
            times = torch.arange(count, dtype=torch.float64, device=steps.device) * self._replica.rows
            steps.copy_(visits.scale * (visits.since + visits.first + done + times) ** -visits.power)

    def _fill(self, data: Data, rows: torch.Tensor) -> None:
        """Fill the first minibatches; ``rows`` are (minibatches, rows of each)."""
        flat = rows.flatten()
        for array, part in zip(data.values(), self._parts):
            torch.index_select(array, 0, flat, out=part[: len(rows)].flatten(0, 1))
        self._at.zero_()
