"""Delay laws: when each virtual worker reads a row and stores its update, and how stale the update is by then.

Time is counted in ticks: with W workers a row takes W ticks on average, so one row is finished every tick, and worker
k starts at tick k. The laws and their parameters (``methods.DELAYS``) are:

    round-robin                 every row takes the same time: the workers take turns, the staleness is W - 1
    constant:delay=1            an update is stored after exactly ``delay`` others; the worker then waits
    random:shape=1              row times are i.i.d. Gamma: exponential for shape 1, more alike for larger shapes
    straggler:alpha=1.5,slow=0,factor=10
                                i.i.d. Pareto with tail index alpha; the last ``slow`` workers take ``factor`` times
                                as long

``window`` (any law) is the part of a row's time, just before the store, in which ``hogwild`` holds what it has loaded;
``quantum`` is the number of consecutive rows by one worker under a discipline that hides rows (locked, tiered).

The order of events depends on no weight, so a schedule is made in advance, and one heap of events serves every law.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from hogwild.errors import UsageError
from hogwild.kernels.control import EVENT_KINDS, LOAD, PAY, READ, STORE
from hogwild.methods import parse_delay

DRAWN = 4096  # random numbers drawn at a time
LOADS, STORES, READS = range(3)  # the order of events at the same tick


class Law:
    """A delay law for a number of workers; ``text`` is written as in ``TrainConfig.delay``.

    Raises
    ------
    UsageError
        If the law is unknown or needs more workers.
    """

    def __init__(self, text: str, workers: int) -> None:
        self.text, self.workers = text, workers
        self.name, self.numbers = parse_delay(text)
        self.window, self.quantum = self.numbers["window"], int(self.numbers["quantum"])
        slow = int(self.numbers.get("slow", 0))
        self.ticks = [float(workers)] * workers  # mean ticks per row of each worker
        for worker in range(max(workers - slow, 0), workers):
            self.ticks[worker] *= self.numbers["factor"]
        self.wait = 0.0  # ticks from a store to the worker's next row
        if self.name == "constant":
            busy = self.numbers["delay"] + 1
            self.wait = workers - busy
            self.ticks = [busy] * workers
        if self.wait < 0:
            raise UsageError(f"delay={text!r} needs workers={int(busy)} or more, got workers={workers}")

    def times(self, seed: tuple[int, ...]) -> Iterator[float]:
        """Yield the relative time of each row, with mean one."""
        if self.name not in ("random", "straggler"):
            return itertools.repeat(1.0)
        return self._drawn(np.random.default_rng(seed))

    def _drawn(self, rng: np.random.Generator) -> Iterator[float]:
        while True:
            if self.name == "random":
                shape = self.numbers["shape"]
                yield from (rng.standard_gamma(shape, DRAWN) / shape).tolist()
            else:
                alpha = self.numbers["alpha"]
                yield from ((rng.pareto(alpha, DRAWN) + 1) * (alpha - 1) / alpha).tolist()


class DelaySchedule:
    """The events of one epoch in time order, as codes of ``kernels/control.py``.

    Attributes
    ----------
    staleness : Counter
        Number of updates by staleness: how many others were stored between the update's READ and its STORE.
    """

    def __init__(self, law: Law, seed: tuple[int, ...], window: float) -> None:
        self._law, self._times, self._window = law, law.times(seed), window
        self._stored, self._begun = 0, [0] * law.workers
        self.now = 0.0  # ticks
        self.staleness: Counter[int] = Counter()
        self._heap = [(float(worker), READS, worker) for worker in range(law.workers)]

    def read(self, rows: int) -> list[int]:
        """Return the events until ``rows`` more rows are read."""
        found: list[int] = []
        while rows:
            now, rank, worker = heapq.heappop(self._heap)
            if rank == READS:
                found.append(worker * EVENT_KINDS + READ)
                self._begun[worker] = self._stored
                ticks = next(self._times) * self._law.ticks[worker]
                heapq.heappush(self._heap, (now + ticks, STORES, worker))
                if self._window:
                    heapq.heappush(self._heap, (now + ticks * (1 - self._window), LOADS, worker))
                rows -= 1
            else:
                self._finish(now, rank, worker, found)
        return found

    def end(self) -> list[int]:
        """Return the events until every update is stored and every worker has ended."""
        found: list[int] = []
        while self._heap:
            now, rank, worker = heapq.heappop(self._heap)
            if rank == READS:
                found.append(worker * EVENT_KINDS + PAY)
            else:
                self._finish(now, rank, worker, found)
        return found

    def _finish(self, now: float, rank: int, worker: int, found: list[int]) -> None:
        if rank == LOADS:
            found.append(worker * EVENT_KINDS + LOAD)
            return
        found.append(worker * EVENT_KINDS + STORE)
        self.now = now
        self.staleness[self._stored - self._begun[worker]] += 1
        self._stored += 1
        heapq.heappush(self._heap, (now + self._law.wait, READS, worker))
