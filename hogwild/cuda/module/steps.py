"""Segments on one stream, run by replaying one captured step on fixed memory.

A graph reads and writes the addresses that it was captured with. So minibatches are put into the same memory again and
again, a few at a time, with the step of each; a number beside them selects the next, and a replay increments it. All of
that is queued on one stream, in order, so nothing is overwritten before it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hogwild.cuda.backend import WARM_UP, Backend
from hogwild.cuda.module.feed import Data, given
from hogwild.cuda.work import Segment, Visits

MOST = 8  # minibatches assembled at a time: a segment's
ROOM = 1 << 25  # most bytes for them per replica, unless one alone needs more


class DeviceSteps:
    """Runs segments on one stream by replaying one captured step, where a capture is possible."""

    def __init__(self, make: Callable[[], Any], feed: Any, backend: Backend) -> None:
        self._make, self._feed, self._backend = make, feed, backend
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
            inputs, target = self._feed.one(segment.data, segment.rows[done : done + count])
            self._set_steps(segment.visits, done, 1)
            self._replica.step(inputs, target, self._steps[0])
            done += count
        self._replica.leave()

    # ---- run on the stream beforehand

    def begin(self) -> None:
        """Make the replica, whose memory all belongs to the stream."""
        self._replica = self._make()
        self._steps = torch.zeros(1, device=self._backend.device)

    def prepare(self) -> None:
        """Allocate and fill the memory that a graph reads, and copy what the step will write."""
        device, rows = self._backend.device, self._replica.rows
        one = sum(part.nbytes for part in self._feed.blank(1, rows, torch.device("meta")))
        count = min(ROOM // max(one, 1), MOST)
        count = count if count >= WARM_UP else 1  # else the steps before a capture would run past the last minibatch
        self._parts = self._feed.blank(count, rows, device)
        self._steps = torch.zeros(count, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        some = {name: self._backend.stage(array).to(device) for name, array in self._feed.part(0, rows).items()}
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
        self._replica.step(*given(parts), step)
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
        self._feed.fill(data, rows, self._parts)
        self._at.zero_()
