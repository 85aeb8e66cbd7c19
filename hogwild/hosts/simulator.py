"""Virtual workers on one core: any number of them, interleaved by a delay law, the same bits for the same seed.

Everything that is random in a parallel run is a schedule here (``hosts/delays.py``), so staleness and lost updates are
counted, not estimated, and what hundreds of workers would do to the statistics shows before one has them. What it
cannot show is speed: ``train_seconds`` is the real time that one core took to play all workers.

The one decision: how much is one indivisible event depends on where a discipline lets others in.

* ``hogwild``, ``atomic``, ``aig``: between reading a row and storing its update; ``hogwild`` also between loading and
  storing. Each of these is an event (``kernels/simulated.py``). Rows are handed out one by one in the epoch's order.
  *Staleness* of an update: others that were stored between its read and its store.
* ``serial``, ``locked``, ``tiered``: nowhere within a row, so the workers' own kernel does ``quantum`` rows of one
  worker after the other, in chunks as in life. Staleness is 0; for ``tiered`` it is how many rows of other workers the
  worker's copy of the first tier does not hold yet when a quantum begins, and merges lose nothing.
* ``round-robin``: the turns are given, and the staleness with them; its kernel does one turn a call.

A worker of ``tiered`` has its private copies, so that memory grows with the number of workers.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hogwild.errors import UsageError
from hogwild.hosts.delays import Law, Schedule
from hogwild.hosts.job import IN_USE, Job, Task
from hogwild.kernels.control import LAST, LINE, NEXT, ROWS, STOP, TURN, WORKERS
from hogwild.kernels.linear import BEGUN
from hogwild.kernels.simulated import CHUNK, COUNT, FIRST, Crew
from hogwild.problems.work import NO_LIMIT, OrderSlice

PHASED = ("hogwild", "atomic", "aig")  # disciplines that let others in within a row


class Simulator:
    """A pool of virtual workers (see :class:`hogwild.hosts.job.Pool`); all work is done inside :meth:`wait`.

    Parameters
    ----------
    workers : int
    delay : str
        The delay law: see ``hosts/delays.py``.

    Attributes
    ----------
    histogram : Counter
        Of the latest task: how many updates (rows, for ``tiered``) were how stale.
    """

    host, shared = "simulator", False

    def __init__(self, workers: int, delay: str = "round-robin") -> None:
        self.workers, self.lost, self.closed = workers, 0, False
        self.job: Job | None = None
        self.histogram: Counter[int] = Counter()
        self.delay, self._law = delay, Law(delay, workers)
        self._parts: _Parts | None = None
        self._course: Course | None = None
        self._running = False

    def open(self, job: Job) -> None:
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if self._running:
            raise UsageError(IN_USE)
        if job.problem.discipline not in PHASED:
            job.problem.compile()
        self.job, self._course = job, None
        self._parts = _Parts(job, self._law)
        falling: bool = job.problem.falling  # type: ignore[attr-defined]  # only linear problems come here
        self._make(Task(0, 0, (0.0, 1.0, float(falling)))).compile()

    def begin(self, task: Task) -> None:
        self._course, self._running = self._make(task), True
        self.histogram = Counter()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        course = self._course
        while self._running and course is not None:
            self._running = False  # should an exception (Ctrl-C) end the step, its rows are lost but nothing hangs
            self._running = course.advance() and not self.closed
            if time.monotonic() > deadline:
                break
        if not self._running and course is not None:
            self.histogram = course.staleness
        return not self._running

    def measured(self) -> dict[str, Any]:
        """Staleness and lost updates of the latest task, as fields of a row; none before it."""
        updates = sum(self.histogram.values())
        if self._course is None or not updates:
            return {}
        total = sum(stale * count for stale, count in self.histogram.items())
        return {
            "staleness_mean": total / updates, "staleness_max": max(self.histogram), "lost_updates": self._course.lost,
        }  # fmt: skip

    def release(self, job: Job) -> None:
        if self.job is job:
            job.stop()
            self.job, self._course, self._parts, self._running = None, None, None, False

    def close(self) -> None:
        self.closed = True
        if self.job is not None:
            self.release(self.job)

    def _make(self, task: Task) -> Course:
        assert self._parts is not None
        discipline = self._parts.job.problem.discipline
        if discipline in PHASED:
            return _Events(self._parts, task, self._law)
        return (_Turns if discipline == "round-robin" else _Quanta)(self._parts, task, self._law)


class Course(Protocol):
    """A task under way."""

    @property
    def staleness(self) -> Counter[int]:
        """How many updates were how stale."""

    @property
    def lost(self) -> int:
        """Updates of single weights that were overwritten."""

    def compile(self) -> None:
        """Compile the kernel, if that is not done."""

    def advance(self) -> bool:
        """Go on a little; False when all workers stand still."""


class _Parts:
    """The memory of a job's virtual workers."""

    def __init__(self, job: Job, law: Law) -> None:
        self.job, self.shared, self.data = job, job.shared(), job.data()
        discipline = job.problem.discipline
        scratch = job.scratch()
        self.scratches = [scratch]
        self.crew: Crew | None = None
        if discipline in PHASED:
            self.crew = make_crew(job, law.window if discipline == "hogwild" else 0.0)
        else:  # the table of l2 factors is the same for all
            self.scratches += [job.scratch()._replace(table=scratch.table) for _ in range(1, job.workers)]

    def prepare(self, task: Task, worker: int, limit: int = NO_LIMIT) -> Callable[[], Any]:
        """What :meth:`LinearProblem.work` is to do for a worker, or for the crew, again and again."""
        job, scratch = self.job, self.scratches[worker]
        scratch.state[:] = 0
        part = OrderSlice(
            job.order, job.state["blocks"], job.seed, task.epoch, task.start, worker, job.workers, limit, self.crew
        )
        return job.problem.prepare(self.shared, scratch, self.data, part, task.step)


def make_crew(job: Job, window: float) -> Crew:
    """The memory of a job's virtual workers in events; those of a chunk fit in it."""
    p, order, workers = job.problem, job.order, job.workers  # type: Any, Any, int
    entries = p.longest if window else 0
    return Crew(
        np.zeros(FIRST + 3 * (order.chunk + workers), dtype=np.int64),
        np.zeros((workers, 3), dtype=np.int64),
        np.zeros(workers, dtype=np.float32),
        np.zeros((workers, 5, p.stride), dtype=np.float32),
        np.zeros((workers, entries * p.stride), dtype=np.float32),
        np.zeros((workers, entries * p.stride if p.adagrad else 0), dtype=np.float32),
        np.zeros((workers, entries), dtype=np.int64),
        np.zeros(p.width if window else 0, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


class _Events:
    """Workers that let others in within a row: a chunk of events at a time."""

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        assert parts.crew is not None
        self._job, self._crew, self._chunk = parts.job, parts.crew, task.start
        window = law.window if self._job.problem.discipline == "hogwild" else 0.0
        self._schedule = Schedule(law, (self._job.seed, task.epoch, task.start), window)
        self._call = parts.prepare(task, 0)
        for array in (self._crew.numbers, self._crew.vectors, self._crew.depths, self._crew.lost):
            array[...] = 0

    @property
    def staleness(self) -> Counter[int]:
        return self._schedule.staleness

    @property
    def lost(self) -> int:
        return int(self._crew.lost[0])

    def compile(self) -> None:
        self._do(-1, [])

    def advance(self) -> bool:
        order, control, chunk = self._job.order, self._job.control, self._chunk  # type: Any, Any, int
        if chunk < order.n_chunks and control[STOP] == 0:
            self._do(chunk, self._schedule.read(min(order.chunk, order.n_rows - chunk * order.chunk)))
            self._chunk = control[NEXT] = chunk + 1
            return True
        self._do(-1, self._schedule.end())
        return False

    def _do(self, chunk: int, events: list[int]) -> None:
        cells = self._crew.events
        cells[CHUNK], cells[COUNT] = chunk, len(events)
        cells[FIRST : FIRST + len(events)] = events
        self._call()


class _Quanta:
    """Workers that let nobody in within a row: ``quantum`` rows of one, then of another."""

    lost = 0

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        job, workers = parts.job, parts.job.workers
        self._law, self._control, self._scratches = law, job.control, parts.scratches
        self._calls = [parts.prepare(task, worker, law.quantum) for worker in range(workers)]
        self._times = law.times((job.seed, task.epoch, task.start))
        self._heap = [(float(worker), worker) for worker in range(workers)]
        self._copies = _Copies(workers) if job.problem.discipline == "tiered" else None
        self.staleness: Counter[int] = Counter()

    def compile(self) -> None:
        pass  # open() has

    def advance(self) -> bool:
        now, worker = heapq.heappop(self._heap)
        cell, state = WORKERS + LINE * worker + ROWS, self._scratches[worker].state
        before, copies = int(self._control[cell]), self._copies
        stale = 0 if copies is None else copies.staleness(worker, fresh=state[BEGUN] == 0)
        self._calls[worker]()
        rows = int(self._control[cell]) - before
        if rows:
            self.staleness[stale] += rows
        if copies is not None:
            copies.did(worker, rows, merged=int(self._scratches[worker].counts[0, 0]))
        if rows == self._law.quantum:
            ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks[worker]
            heapq.heappush(self._heap, (now + ticks + rows * self._law.wait, worker))
        return bool(self._heap)


class _Copies:
    """How many rows the workers have done, and how many of them each one's copy of the first tier holds."""

    def __init__(self, workers: int) -> None:
        self._done, self._merged = [0] * workers, [0] * workers  # of each worker: rows, and those that all can see
        self._known = [0] * workers  # rows of others that its copy holds
        self._all_done = self._all_merged = 0

    def staleness(self, worker: int, fresh: bool) -> int:
        """Rows of others that the worker's copy does not hold; ``fresh``: it is about to make that copy."""
        if fresh:
            self._known[worker] = self._all_merged - self._merged[worker]
        return self._all_done - self._done[worker] - self._known[worker]

    def did(self, worker: int, rows: int, merged: int) -> None:
        """It has done so many rows; ``merged``: how many it had done when it merged last."""
        self._done[worker] += rows
        self._all_done += rows
        if merged != self._merged[worker]:
            self._all_merged += merged - self._merged[worker]
            self._merged[worker] = merged
            self._known[worker] = self._all_merged - merged


class _Turns:
    """Workers in turn: one turn a call."""

    lost = 0

    def __init__(self, parts: _Parts, task: Task, _: Law) -> None:
        order: Any = parts.job.order
        self._job, self._start = parts.job, task.start * order.chunk
        self._calls = [parts.prepare(task, worker, limit=1) for worker in range(parts.job.workers)]

    @property
    def staleness(self) -> Counter[int]:
        """The turns leave no choice: W - 1, and less only where an epoch begins."""
        rows, delay = int(self._job.control[LAST]) - self._start, self._job.workers - 1
        counts = Counter(range(min(rows, delay)))
        counts[delay] += max(rows - delay, 0)
        return +counts

    def compile(self) -> None:
        pass  # open() has

    def advance(self) -> bool:
        turn = int(self._job.control[TURN]) - self._start
        self._calls[turn % len(self._calls)]()
        return not self._job.finished()
