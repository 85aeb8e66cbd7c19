"""Virtual workers on one core: any number of them, interleaved by a delay law, bitwise reproducible from the seed.

What is random in a parallel run is a schedule here (``delays.py``), so staleness and lost updates are counted, not
estimated, and the statistical effect of hundreds of workers can be seen without having them. Speed cannot be seen:
``train_seconds`` is the real time that one core took to run all workers.

What counts as one indivisible event depends on where a discipline lets other workers in.

* ``hogwild``, ``atomic``, ``aig``: between reading a row and storing its update; ``hogwild`` also between loading and
  storing. Each of these is an event (``kernels/control.py``). Rows are handed out one by one in the epoch's order. The
  *staleness* of an update is the number of others stored between its read and its store.
* ``serial``, ``locked``, ``tiered``: nowhere within a row, so the real kernel does ``quantum`` rows of one worker after
  another, in chunks as usual. Staleness is 0; for ``tiered`` it is the number of rows of other workers that the
  worker's copy of the first tier lacks when a quantum begins, and merges lose nothing.
* ``round-robin``: the turns, and with them the staleness, are fixed; its kernel does one turn a call.

With an exchange the events are those of trades, and of ``quantum`` rows of a worker under any discipline
(``network.py``).

A worker of ``tiered`` has private copies, so memory grows with the number of workers.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from hogwild.errors import UsageError
from hogwild.exchanges.trade import Counts
from hogwild.exchanges.trader import compile_raced
from hogwild.hosts.delays import DelaySchedule, Law
from hogwild.hosts.job import Job, Task
from hogwild.hosts.network import Replicated
from hogwild.hosts.pool import IN_USE, Pool
from hogwild.kernels.control import CHUNK, COUNT, FIRST, LAST, NEXT, NO_LIMIT, STOP, TURN
from hogwild.problems.protocol import Simulated

PHASED = ("hogwild", "atomic", "aig")  # disciplines that let others in within a row


class Simulator(Pool):
    """A pool of virtual workers (see :class:`hogwild.hosts.pool.Pool`); all work is done inside :meth:`wait`.

    Parameters
    ----------
    workers : int
    delay : str
        The delay law: see ``delays.py``.
    """

    host, shared, closed = "simulator", False, False
    job: Job | None = None

    def __init__(self, workers: int, delay: str = "round-robin") -> None:
        self.workers, self.lost = workers, 0
        self._histogram: Counter[int] = Counter()
        self.delay, self._law = delay, Law(delay, workers)
        self._parts: _Parts | None = None
        self._course: Course | None = None
        self._running = False

    def open(self, job: Job) -> None:
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if self._running:
            raise UsageError(IN_USE)
        self.job, self._course = job, None
        self._parts = _Parts(job)
        if job.exchange is None and job.problem.discipline in PHASED:
            _Events(self._parts, Task(0, 0, (0.0, 1.0, float(self._parts.problem.falling))), self._law).play(-1, [])
        else:
            job.problem.compile()
        if job.exchange is not None and job.group > 1:
            compile_raced()

    def begin(self, task: Task) -> None:
        parts = self._parts
        assert parts is not None
        if parts.job.exchange is not None:
            self._course = Replicated(parts.job, parts.shared, parts.scratches, parts.data, task, self._law)
        elif parts.problem.discipline in PHASED:
            self._course = _Events(parts, task, self._law)
        elif parts.problem.discipline == "round-robin":
            self._course = _Turns(parts, task)
        else:
            self._course = _Quanta(parts, task, self._law)
        self._running = True
        self._histogram = Counter()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        course = self._course
        while self._running and course is not None:
            self._running = False  # if an exception (Ctrl-C) ends the step, its rows are lost but nothing hangs
            self._running = course.advance() and not self.closed
            if time.monotonic() > deadline:
                break
        if not self._running and course is not None:
            self._histogram = course.staleness
        return not self._running

    def measured(self) -> dict[str, Any]:
        """Staleness and lost updates of the latest task as row fields; empty before the first task."""
        updates = sum(self._histogram.values())
        if self._course is None or not updates:
            return {}
        total = sum(stale * count for stale, count in self._histogram.items())
        return {
            "staleness_mean": total / updates,
            "staleness_max": max(self._histogram),
            "lost_updates": self._course.lost,
        }

    @property
    def staleness(self) -> dict[int, int]:
        return dict(sorted(self._histogram.items()))

    def counts(self) -> Counts:
        """Counts of what the latest task's replicas sent, and its virtual seconds."""
        return Counts() if self._course is None else self._course.counts

    def release(self, job: Job) -> None:
        if self.job is job:
            job.stop()
            self.job, self._course, self._parts, self._running = None, None, None, False

    def close(self) -> None:
        self.closed = True
        if self.job is not None:
            self.release(self.job)


class Course(Protocol):
    """A task in progress."""

    @property
    def staleness(self) -> Counter[int]:
        """Number of updates by staleness."""

    @property
    def lost(self) -> int:
        """Number of weight updates that were overwritten."""

    @property
    def counts(self) -> Counts:
        """Counts of what was sent, and virtual seconds, so far."""

    def advance(self) -> bool:
        """Advance a little; return False when all workers stand still."""


class _Parts:
    """The memory of a job's virtual workers."""

    def __init__(self, job: Job) -> None:
        assert isinstance(job.problem, Simulated)
        self.job, self.problem, self.shared, self.data = job, job.problem, job.shared(), job.data()
        by_events = job.exchange is None and job.problem.discipline in PHASED
        self.scratches = job.problem.scratches(1 if by_events else job.workers, job.order, job.tiers, job.flat)

    def prepare(self, task: Task, worker: int, limit: int = NO_LIMIT, crew: Any = None) -> Callable[[], int]:
        """Return a function that does a share of a worker's task, or of all workers', at each call."""
        part = self.job.part(task, worker, limit)._replace(crew=crew)
        return self.problem.prepare(self.shared, self.scratches[worker], self.data, part, task.step)

    def counts(self, ticks: float) -> Counts:
        """Counts with nothing sent, and ``ticks`` in virtual seconds."""
        return Counts(virtual_seconds=ticks / self.job.workers * self.job.wire.row)


class _Events:
    """Workers that let others in within a row, simulated one chunk of events at a time."""

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        self._parts, self._job, self._chunk = parts, parts.job, task.start
        window = law.window if parts.problem.discipline == "hogwild" else 0.0
        self._crew = parts.problem.crew(self._job.workers, self._job.order, loads=window > 0)
        self._schedule = DelaySchedule(law, (self._job.seed, task.epoch, task.start), window)
        self._call = parts.prepare(task, 0, crew=self._crew)

    @property
    def staleness(self) -> Counter[int]:
        return self._schedule.staleness

    @property
    def lost(self) -> int:
        return int(self._crew.lost[0])

    @property
    def counts(self) -> Counts:
        return self._parts.counts(self._schedule.now)

    def advance(self) -> bool:
        order, control, chunk = self._job.order, self._job.control, self._chunk  # type: Any, Any, int
        if chunk < order.n_chunks and control[STOP] == 0:
            self.play(chunk, self._schedule.read(min(order.chunk, order.n_rows - chunk * order.chunk)))
            self._chunk = control[NEXT] = chunk + 1
            return True
        self.play(-1, self._schedule.end())
        return False

    def play(self, chunk: int, events: list[int]) -> None:
        """Have the kernel do some events."""
        cells = self._crew.events
        cells[CHUNK], cells[COUNT] = chunk, len(events)
        cells[FIRST : FIRST + len(events)] = events
        self._call()


class _Quanta:
    """Workers that let nobody in within a row: each does ``quantum`` rows in turn."""

    lost = 0

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        job, workers = parts.job, parts.job.workers
        self._law, self._parts, self._last = law, parts, 0.0
        self._calls = [parts.prepare(task, worker, law.quantum) for worker in range(workers)]
        self._times = law.times((job.seed, task.epoch, task.start))
        self._heap = [(float(worker), worker) for worker in range(workers)]
        self._copies = _Copies(workers) if job.problem.discipline == "tiered" else None
        self.staleness: Counter[int] = Counter()

    @property
    def counts(self) -> Counts:
        return self._parts.counts(self._last)

    def advance(self) -> bool:
        now, worker = heapq.heappop(self._heap)
        problem, scratch, copies = self._parts.problem, self._parts.scratches[worker], self._copies
        stale = 0 if copies is None else copies.staleness(worker, fresh=not problem.copied(scratch)[0])
        rows = self._calls[worker]()
        if rows:
            self.staleness[stale] += rows
        if copies is not None:
            copies.did(worker, rows, merged=problem.copied(scratch)[1])
        self._last = max(self._last, now + rows * self._law.ticks[worker])
        if rows == self._law.quantum:
            ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks[worker]
            heapq.heappush(self._heap, (now + ticks + rows * self._law.wait, worker))
        return bool(self._heap)


class _Copies:
    """Rows done by each worker, and how many of them each worker's copy of the first tier holds."""

    def __init__(self, workers: int) -> None:
        self._done, self._merged = [0] * workers, [0] * workers  # of each worker: all rows, and those merged
        self._known = [0] * workers  # rows of others that its copy holds
        self._all_done = self._all_merged = 0

    def staleness(self, worker: int, fresh: bool) -> int:
        """Rows of others that the worker's copy lacks; ``fresh``: the copy is about to be made."""
        if fresh:
            self._known[worker] = self._all_merged - self._merged[worker]
        return self._all_done - self._done[worker] - self._known[worker]

    def did(self, worker: int, rows: int, merged: int) -> None:
        """Record that the worker did ``rows`` rows; ``merged`` is how many it had done at its last merge."""
        self._done[worker] += rows
        self._all_done += rows
        if merged != self._merged[worker]:
            self._all_merged += merged - self._merged[worker]
            self._merged[worker] = merged
            self._known[worker] = self._all_merged - merged


class _Turns:
    """Workers that take turns, one turn a call."""

    lost = 0

    def __init__(self, parts: _Parts, task: Task) -> None:
        order: Any = parts.job.order
        self._parts, self._job, self._start = parts, parts.job, task.start * order.chunk
        self._calls = [parts.prepare(task, worker, limit=1) for worker in range(parts.job.workers)]

    @property
    def staleness(self) -> Counter[int]:
        """The fixed staleness W - 1, or less where an epoch begins."""
        rows, delay = int(self._job.control[LAST]) - self._start, self._job.workers - 1
        counts = Counter(range(min(rows, delay)))
        counts[delay] += max(rows - delay, 0)
        return +counts

    @property
    def counts(self) -> Counts:
        turns = int(self._job.control[TURN]) - self._start
        return self._parts.counts(turns)  # one row is finished every tick

    def advance(self) -> bool:
        turn = int(self._job.control[TURN]) - self._start
        self._calls[turn % len(self._calls)]()
        return not self._job.finished()
