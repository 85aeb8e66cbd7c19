"""A device that is none: streams are queues, worked off in a random order that events allow, on the CPU.

It is stricter than a GPU where it can be: work runs later than it is given, streams overtake one another whenever
nothing keeps them, what waits for ever is an error, and work that waits for the device inside ``run`` is one too.
"""

from __future__ import annotations

import importlib
import random
from collections import deque

import numpy as np
import torch


class Queued:
    """A stream."""

    def __init__(self, device: StandIn) -> None:
        self._device, self.queue = device, deque()

    def run(self, work) -> None:
        self.queue.append(work)

    def record(self) -> Point:
        point = Point(self._device)
        self.queue.append(point)
        return point

    def after(self, event: Point) -> None:
        assert isinstance(event, Point)
        self.queue.append(lambda: event.reached)
        self.queue[-1].__dict__["waits"] = True

    def capture(self, work):
        if not self._device.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        for _ in range(3):
            self.run(work)
        self._device.captured += 1
        return work

    def advance(self) -> bool:
        """Do the next thing, if it can be done."""
        if not self.queue:
            return False
        head = self.queue[0]
        if isinstance(head, Point):
            head.reached = True
        elif getattr(head, "waits", False):
            if not head():
                return False
        else:
            self.queue.popleft()
            self._device.inside = True
            try:
                head()
            finally:
                self._device.inside = False
            return True
        self.queue.popleft()
        return True


class Point:
    """An event."""

    def __init__(self, device: StandIn) -> None:
        self._device, self.reached = device, False

    def done(self) -> bool:
        assert not self._device.inside, "work of a stream looked at an event: it must wait for nothing"
        for _ in range(self._device.random.randrange(3)):
            self._device.advance()
        return self.reached

    def wait(self) -> None:
        assert not self._device.inside, "work of a stream waited: it must wait for nothing"
        while not self.reached:
            assert self._device.advance(), "streams wait for one another for ever"


class StandIn:
    """A backend (see ``hogwild.cuda.backend.Backend``); ``seed`` decides which stream gets on when."""

    device, name = torch.device("cpu"), "stand-in"

    def __init__(
        self, seed: int = 0, captures: bool = True, free: int = 1 << 30, programs: int = 64, triton: bool = False
    ) -> None:
        self.random, self.captures, self.captured = random.Random(seed), captures, 0
        self.streams: list[Queued] = []
        self.inside = False
        self._free, self._programs, self._triton = free, programs, triton

    def stream(self) -> Queued:
        self.streams.append(Queued(self))
        return self.streams[-1]

    def free(self) -> int:
        return self._free

    def programs(self) -> int:
        return self._programs

    def stage(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(array))

    def kernels(self, problem: str):
        """Torch's own arithmetic, or Triton's kernels in their interpreter."""
        return importlib.import_module(
            f"hogwild.cuda.{problem}.triton" if self._triton else f"tests.cuda.torch_{problem}"
        )

    def advance(self) -> bool:
        """Do one thing of one stream."""
        streams = self.streams[:]
        self.random.shuffle(streams)
        return any(stream.advance() for stream in streams)
