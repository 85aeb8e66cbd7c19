"""A device that is none: streams are queues, worked off in a random order that events allow, on the CPU.

It is stricter than a GPU where it can be: work runs later than it is given, streams overtake one another whenever
nothing keeps them, what waits for ever is an error, and work that waits for the device inside ``run`` is one too.
"""

from __future__ import annotations

import random
from collections import deque

import torch

from hogwild.cuda.backend import LAUNCHERS, Lane
from hogwild.methods import located
from tests.cuda import completion_twin, linear_twin, order_twin


def visit_rows(launcher, visits, in_flight):
    """Rows in batches that all see the same weights: the worst case of a device with as many in flight."""
    problem, flat = launcher.problem, launcher.flat.numpy()
    arrays = {"weights": (), "scales": ()} | launcher.of_rows
    twin = linear_twin.twin_of(problem, launcher.rows, arrays, flat)
    rows, steps = order_twin.rows(visits), order_twin.steps(visits)
    for first in range(0, len(rows), in_flight):
        batch = rows[first : first + in_flight]
        for update in zip(batch, [twin.gradient(row) for row in batch], steps[first:]):
            twin.apply(*update)
    for part, numbers in linear_twin.pairs(problem, flat, twin):
        part[:, : problem.classes] = numbers


def visit_ratings(launcher, visits, in_flight):
    """The same of ratings."""
    arrays = {name: array.numpy() for name, array in launcher.data.items()}
    arrays |= dict(zip(("user_rates", "item_rates"), (rates.numpy() for rates in launcher.rates)))
    flat = launcher.flat.numpy()
    twin = completion_twin.Twin(launcher.problem, flat, arrays, True)
    twin.run(order_twin.rows(visits), order_twin.steps(visits), in_flight, 1)
    flat[:] = twin.flat()


class Queue(deque):
    """What a stream has before it, and the workspace of the graphs captured on it."""

    workspace = 0


class Graph:
    """A captured graph: without it, its stream's workspace is gone, as on a GPU."""

    def __init__(self, queue: Queue, work) -> None:
        self._queue, self.work = queue, work
        self._workspace = queue.workspace

    def replay(self) -> None:
        assert self._queue.workspace == self._workspace, "another graph of the stream was destroyed"
        self.work()

    def __del__(self) -> None:
        self._queue.workspace += 1


class Queued:
    """A stream."""

    def __init__(self, device: StandIn) -> None:
        self._device, self._lane, self.queue = device, Lane(), Queue()
        device.queues.append(self.queue)

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
        return self._lane.keep(Graph(self.queue, work))


class Point:
    """An event."""

    def __init__(self, device: StandIn) -> None:
        self._device, self.reached = device, False

    def query(self) -> bool:
        assert not self._device.inside, "work of a stream looked at an event: it must wait for nothing"
        for _ in range(self._device.random.randrange(3)):
            self._device.advance()
        return self.reached

    def synchronize(self) -> None:
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
        self.queues: list[Queue] = []
        self.inside = False
        self._free, self._programs, self._triton = free, programs, triton

    def stream(self) -> Queued:
        return Queued(self)

    def free(self) -> int:
        return self._free

    def programs(self) -> int:
        return self._programs

    def launcher(self, problem):
        """The launcher whose kernels Triton interprets, or slow twins of theirs."""
        kind = located(LAUNCHERS[type(problem).__name__])
        twin = {"LinearLauncher": visit_rows, "CompletionLauncher": visit_ratings}.get(kind.__name__)
        return kind if self._triton or twin is None else type("Twin", (kind,), {"visit": twin})

    def advance(self) -> bool:
        """Do one thing of one stream."""
        queues = [queue for queue in self.queues if queue]
        self.random.shuffle(queues)
        return any(map(self._next, queues))

    def _next(self, queue: Queue) -> bool:
        """Do the next thing of one stream, if it can be done."""
        if not queue:
            return False
        head = queue[0]
        if getattr(head, "waits", False) and not head():
            return False
        queue.popleft()
        if isinstance(head, Point):
            head.reached = True
        elif not getattr(head, "waits", False):
            self.inside = True
            try:
                head()
            finally:
                self.inside = False
        return True
