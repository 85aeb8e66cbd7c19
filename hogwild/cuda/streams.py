"""Workers as streams of a CUDA device: replicas that race on one parameter array in its memory.

One thread drives them all: it cuts an epoch into segments and gives each to the replica with the least to do, never
more than two to one, so that a run can be stopped soon and no stream is idle. The problem's launcher knows what a
segment is (one launch of a kernel, or some replays of a CUDA graph). Nothing waits except in the discipline ``locked``,
where a chain of events lets one replica run at a time.

The parameters stay on the device from epoch to epoch; they are copied to the host on request, off the clock.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.cuda import trial
from hogwild.cuda.backend import Backend, DeviceStream, connect
from hogwild.cuda.loads import Load, Loads
from hogwild.cuda.problem import DeviceOrder, OnDevice
from hogwild.cuda.work import Segment
from hogwild.errors import HogwildError, TrainingError, UsageError
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import IN_USE, Pool
from hogwild.kernels.control import LINE, NEXT, NONZEROS, ROWS, STOP, WORKERS

DEPTH = 2  # segments queued on a stream at a time
SHARES = 4  # least segments of a load for each of several replicas
MOST = 1 << 24  # most examples in a segment: some 5 to 50 ms
TURNS = 1 << 14  # most examples in it for each in flight; one takes a microsecond or two
REHEARSED = 64  # examples in the launches before the clock runs
MORE = 1.2  # growth of the examples in flight at which replicas are made anew


class Share(NamedTuple):
    """One segment: visits ``first`` to ``last`` (exclusive) of a load, and how many chunks end in it."""

    load: Load
    first: int
    last: int
    chunks: int


class Given(NamedTuple):
    """A segment queued on the stream of a worker, at whose end is the event."""

    worker: int
    event: torch.cuda.Event
    examples: int


class DeviceJob:
    """One job on the device."""

    def __init__(self, job: Job, backend: Backend, streams: list[DeviceStream]) -> None:
        problem, order = job.problem, job.order
        assert isinstance(problem, OnDevice)
        assert isinstance(order, DeviceOrder)
        self.job, self._problem, self._order = job, problem, order
        self._launcher, self._streams = problem.launcher(job.local, backend), streams
        self._granule = self._launcher.granule
        self._loads = Loads(self._launcher, order, backend, job.seed)
        self._locked = problem.discipline == "locked"
        self._replicas: list[Callable[[Segment], None]] = []  # the launch function of each stream
        self._given: list[Given] = []  # unfinished segments, the oldest first
        self.in_flight: int | None = None
        self._shares: Iterator[Share] = iter(())
        self._next: Share | None = None
        self._chain: torch.cuda.Event | None = None  # after the latest segment
        self._filled = self._dirty = False
        self._fill()
        self._trials, self._found = 0, (1, 1.0)  # the number in flight that the latest trial found, and its step
        if problem.in_flight is not None or self._granule:
            self._make(problem.in_flight or self._launcher.room())
        else:
            self._launcher.judge(job.flat)  # so that it inspects the data off the clock
        if not self._granule:
            self._rehearse()
        self._filled = False  # what that changed is undone before the first epoch

    def begin(self, task: Task) -> None:
        """Start a task."""
        if not self._filled:
            self._fill()
        if self._problem.in_flight is None and not self._granule:  # as the step falls there may be more
            scale, offset, power = task.step
            step = scale * (max(offset, 1.0) + task.epoch * self._order.n_rows) ** -power
            if self._trials < self._launcher.trials:
                self._trials, self._found = self._trials + 1, (self._try(step), step)
            found, first = self._found
            wanted = int(min(found * first / step, MOST)) if step > 0.0 else MOST
            if self.in_flight is None or not self.in_flight <= wanted <= MORE * self.in_flight:
                self._make(max(wanted, 1))
        self._shares = self._cut(task)
        self._next = next(self._shares, None)

    def go_on(self, until: float) -> bool:
        """Keep the streams busy; True when all is done, False at the time ``until`` of ``time.perf_counter``."""
        while True:
            queued, given, self._given = [0] * len(self._streams), self._given, []
            for one in given:
                if one.event.query():
                    self._count(one)
                else:
                    self._given.append(one)
                    queued[one.worker] += 1
            more = self._next is not None and not self.job.control[STOP]
            if not more and not self._given:
                return True
            if more and min(queued) < DEPTH:
                self._give(queued.index(min(queued)))
            elif time.perf_counter() < until:
                self._given[0].event.synchronize()
            if time.perf_counter() >= until:
                return False

    def release(self) -> None:
        """Drop unfinished work, wait until the streams stand still, and drop replicas and graphs.

        Also after a segment that failed half-way. An interrupted sequence holds a reference to the desk itself.
        """
        self._shares, self._next = iter(()), None
        for stream in self._streams:
            stream.record().synchronize()
        self._given.clear()
        self.pull()
        self._replicas.clear()
        self._loads.close()

    def pull(self) -> None:
        """Copy the parameters to the host, if the device has changed them."""
        if self._dirty:
            self.job.flat[:] = self._launcher.flat.cpu().numpy()
            self._dirty = False

    def sums(self) -> np.ndarray | None:
        """The evaluator's sums over all examples; None if the device has not all, or cannot make them."""
        return None if self._loads.whole is None else self._launcher.sums(self._loads.whole)

    def _fill(self) -> None:
        """Copy the parameters to the device."""
        self._launcher.flat.copy_(torch.from_numpy(self.job.flat))
        self._filled = True

    def _make(self, in_flight: int) -> None:
        """Make the replicas, each with a share of the examples in flight, while none is working."""
        self._replicas.clear()
        in_flight = min(in_flight, self._launcher.room(), self._order.n_rows)  # no more are possible
        share = max(in_flight // len(self._streams), 1)
        for number, stream in enumerate(self._streams):
            self._replicas.append(self._launcher.replica(number, stream, share))
        self.in_flight = share * len(self._streams)

    def _rehearse(self) -> None:
        """Launch what any number in flight may choose with a step of zero: compiled and loaded off the clock."""
        load = next(self._loads.of(0, 0, [(0.0, 1.0, 0.0)]))
        for in_flight in (1, self._launcher.room()):
            self._visit(load, in_flight, min(REHEARSED, load.visits.n))

    def _visit(self, load: Load, in_flight: int, visits: int) -> None:
        """Make the first visits of an epoch, or of several, on the first stream, with so many in flight."""
        stream, n = self._streams[0], load.visits.n
        launch = self._launcher.replica(0, stream, in_flight)
        for first in range(0, visits, n):
            self._run(stream, launch, Share(load, 0, min(visits - first, n), 0))
        stream.record().synchronize()

    def _try(self, step: float) -> int:
        """Choose the number of examples in flight at this step, and leave the parameters as they were."""
        self.pull()
        most = max(min(self._launcher.room(), self._order.n_rows // trial.FEWEST), 1)
        load = next(self._loads.of(0, 0, [(step, 1.0, 0.0)]))

        def loss_after(in_flight: int) -> float:
            self._fill()
            self._visit(load, in_flight, trial.TURNS * most)
            return self._launcher.judge(self._launcher.flat.cpu().numpy())

        found = trial.most_in_flight(loss_after, self._launcher.judge(self.job.flat), most)
        self._fill()
        return found

    def _cut(self, task: Task) -> Iterator[Share]:
        """Yield the segments of a task, in order."""
        loads = self._loads.of(task.epoch, task.start, [task.step])
        load = next(loads, None)
        while load is not None:
            before = {given.worker: given.event for given in self._given}  # the last of each
            shares = self._cut_load(load)
            yield from itertools.islice(shares, DEPTH * len(self._streams))  # before the host spends time on copying
            self._loads.finished(before.values())  # the next copy replaces what came before this load
            ahead = next(loads, None)
            yield from shares
            load = ahead

    def _cut_load(self, load: Load) -> Iterator[Share]:
        chunk, n, first = self._order.chunk, load.visits.n, load.visits.first
        ends = [
            min(begin + at, begin + n)
            for begin in range(0, load.epochs * n, n)
            for at in range(chunk, n + chunk, chunk)
        ]
        ends = ends[bisect.bisect_right(ends, first) :]
        together = max(min(MOST, TURNS * (self.in_flight or 1)) // chunk, 1)
        if len(self._streams) > 1:
            together = min(together, max(-(-len(ends) // (SHARES * len(self._streams))), 1))
        together = 1 if self._granule else together
        for k in range(0, len(ends), together):
            some = ends[k : k + together]
            yield Share(load, first, some[-1], len(some))
            first = some[-1]

    def _give(self, number: int) -> None:
        """Queue the next segment on a replica's stream."""
        assert self._next is not None
        share, stream = self._next, self._streams[number]
        if self._locked and self._chain is not None:
            stream.after(self._chain)
        self._dirty = True
        self._run(stream, self._replicas[number], share)
        self._chain = stream.record()
        self._given.append(Given(number, self._chain, share.last - share.first))
        self.job.control[NEXT] += share.chunks
        self._next = next(self._shares, None)

    @staticmethod
    def _run(stream: DeviceStream, launch: Callable[[Segment], None], share: Share) -> None:
        """Queue visits on a stream, to wait for the data unless they are there to stay."""
        load, first, last, _ = share
        if load.ready is not None:
            stream.after(load.ready)
        stream.run(lambda: launch(load.segment(first, last)))

    def _count(self, given: Given) -> None:
        """Record a replica's finished examples; nonzeros by their mean, which is exact for whole epochs."""
        worker, cells = given.worker, self.job.control[WORKERS:].reshape(-1, LINE)
        cells[worker, ROWS] += given.examples
        done = int(cells[:, ROWS].sum())
        nonzeros = self._problem.nonzeros * done // self._order.n_rows
        cells[worker, NONZEROS] += nonzeros - int(cells[:, NONZEROS].sum())


class Streams(Pool):
    """A pool of replicas (see :class:`hogwild.hosts.pool.Pool`) on a device.

    Raises
    ------
    InputError
        If there is no such device.
    """

    host, shared, closed = "streams", False, False

    def __init__(self, workers: int, backend: Backend | None = None) -> None:
        self.workers, self.lost = workers, 0
        self._backend = connect() if backend is None else backend
        self._streams = [self._backend.stream() for _ in range(workers)]
        self._desk: DeviceJob | None = None
        self._at_work = False

    @property
    def about(self) -> dict[str, Any]:
        return {"gpu": self._backend.name}

    @property
    def job(self) -> Job | None:
        return None if self._desk is None else self._desk.job

    def measured(self) -> dict[str, Any]:
        """Return row fields: the examples in flight over all replicas."""
        return {"in_flight": None if self._desk is None else self._desk.in_flight}

    def open(self, job: Job) -> None:
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if self._at_work:
            raise UsageError(IN_USE)
        if self._desk is not None:
            self.release(self._desk.job)
        with naming("setting up"):
            self._desk = DeviceJob(job, self._backend, self._streams)
        known = weakref.ref(self._desk)  # so that dropping a run frees the device's memory
        job.pull = lambda: None if (desk := known()) is None else desk.pull()

    def begin(self, task: Task) -> None:
        assert self._desk is not None
        self._at_work = True
        with naming("a worker failed"):
            self._desk.begin(task)

    def wait(self, timeout: float) -> bool:
        if self._at_work and self._desk is not None:
            with naming("a worker failed"):
                self._at_work = not self._desk.go_on(time.perf_counter() + timeout)
        return not self._at_work

    def sums(self) -> np.ndarray | None:
        with naming("evaluation"):
            return None if self._desk is None else self._desk.sums()

    def release(self, job: Job) -> None:
        if self._desk is None or self._desk.job is not job:
            return
        desk, self._desk, self._at_work, job.pull = self._desk, None, False, None
        with naming("a worker failed"):
            desk.release()

    def close(self) -> None:
        self.closed = True
        try:
            if self._desk is not None:
                self.release(self._desk.job)
        finally:
            for stream in self._streams:
                stream.close()


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn an exception of a device or a user's module into one line."""
    try:
        yield
    except HogwildError:
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise TrainingError(f"device cuda: {what}: {text}") from error
