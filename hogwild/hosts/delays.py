"""Delay laws: when each virtual worker reads a row and stores its update, and how stale the update is by then.

Time is counted in ticks: with W workers a row takes W ticks on average, so that one row is finished every tick, and
worker k starts at tick k. The laws, and the numbers that go with them (``config.DELAYS``):

    round-robin                 every row takes the same time: the workers come in turn, the staleness is W - 1
    constant:delay=1            an update is stored when exactly so many others have been; the worker then waits
    random:shape=1              row times are i.i.d. Gamma: exponential, and the more alike the larger the shape
    straggler:alpha=1.5,slow=0,factor=10
                                i.i.d. Pareto with tail index alpha; the last ``slow`` workers take ``factor`` times
                                as long

``window`` (any law) is the part of a row's time, just before the store, in which ``hogwild`` holds what it has loaded;
``quantum`` is how many rows a worker does in one go whose discipline hides nothing in between (locked, tiered).

Which event comes when depends on no weight, so a schedule is made in advance, and one heap of events serves every law.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from hogwild.config import parse_delay
from hogwild.errors import UsageError
from hogwild.kernels.simulated import END, KINDS, LOAD, READ, STORE

DRAWN = 4096  # random numbers at a time
LOADS, STORES, READS = range(3)  # what comes first at the same tick


class Law:
    """A delay law for a number of workers; ``text`` as for ``TrainConfig.delay``.

    Raises
    ------
    UsageError
        If there is no such law, or it needs more workers.
    """

    def __init__(self, text: str, workers: int) -> None:
        self.text, self.workers = text, workers
        self.name, self.numbers = parse_delay(text)
        self.window, self.quantum = self.numbers["window"], int(self.numbers["quantum"])
        slow = int(self.numbers.get("slow", 0))
        self.ticks = [float(workers)] * workers  # of a row of each worker, on average
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
        """What part of their usual time rows take, one after the other: of mean one."""
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


class Schedule:
    """The events of one epoch in the order of time, as codes of ``kernels/simulated.py``.

    Attributes
    ----------
    staleness : Counter
        How many updates were how stale: others that were stored between the update's READ and its STORE.
    """

    def __init__(self, law: Law, seed: tuple[int, ...], window: float) -> None:
        self._law, self._times, self._window = law, law.times(seed), window
        self._stored, self._begun = 0, [0] * law.workers
        self.staleness: Counter[int] = Counter()
        self._heap = [(float(worker), READS, worker) for worker in range(law.workers)]

    def read(self, rows: int) -> list[int]:
        """The events until so many more rows are read."""
        found: list[int] = []
        while rows:
            now, rank, worker = heapq.heappop(self._heap)
            if rank == READS:
                found.append(worker * KINDS + READ)
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
        """The events until every update is stored and every worker has come to its end."""
        found: list[int] = []
        while self._heap:
            now, rank, worker = heapq.heappop(self._heap)
            if rank == READS:
                found.append(worker * KINDS + END)
            else:
                self._finish(now, rank, worker, found)
        return found

    def _finish(self, now: float, rank: int, worker: int, found: list[int]) -> None:
        if rank == LOADS:
            found.append(worker * KINDS + LOAD)
            return
        found.append(worker * KINDS + STORE)
        self.staleness[self._stored - self._begun[worker]] += 1
        self._stored += 1
        heapq.heappush(self._heap, (now + self._law.wait, READS, worker))
