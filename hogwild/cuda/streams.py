"""Workers as streams of a CUDA device: replicas that race on one parameter array in its memory.

One thread drives them all: it cuts an epoch into segments, gives each to whichever replica has the least to do, and
never more than two to one, so that a run can be stopped soon and no stream is ever idle. What is behind a segment (one
launch of a kernel, or some replays of a CUDA graph) the problem's launcher knows. Nothing waits for anything but in the
discipline ``locked``, where a chain of events lets one replica at a time go.

The parameters stay on the device from epoch to epoch; they come home when somebody asks for them, off the clock.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from hogwild.cuda.backend import Backend, Event, Stream, connect
from hogwild.cuda.loads import Load, Loads
from hogwild.cuda.problem import DeviceOrder, OnDevice
from hogwild.cuda.work import Segment
from hogwild.errors import HogwildError, TrainingError, UsageError
from hogwild.hosts.job import IN_USE, Job, Task
from hogwild.kernels.control import LINE, NEXT, NONZEROS, ROWS, STOP, WORKERS

DEPTH = 2  # segments given to a stream at a time
SHARES = 4  # segments of a load for each of several replicas, at least
MOST = 1 << 22  # examples in a segment: some 10 ms
TURNS = 1 << 14  # examples in it for each in flight, at most; one takes a microsecond or two
MINIBATCHES = 8  # in one, where examples belong together
REHEARSED = 64  # examples
MORE = 1.2  # times the examples in flight for which replicas are made anew


class Share(NamedTuple):
    """One segment as it is cut: visits ``first`` to ``last`` (exclusive) of a load, and how many chunks end in it."""

    load: Load
    first: int
    last: int
    chunks: int


class Given(NamedTuple):
    """A segment that a stream has to do."""

    event: Event
    examples: int
    number: int  # how many segments were given before


@dataclass
class Replica:
    """A worker: its stream, what launches segments on it, and those it has not come to the end of."""

    stream: Stream
    launch: Callable[[Segment], None]
    given: deque[Given]
    ready: Event | None = None  # of the load whose examples it was given last; not the load, whose memory others need


class Desk:
    """One job on the device."""

    def __init__(
        self, job: Job, problem: OnDevice, order: DeviceOrder, backend: Backend, streams: list[Stream]
    ) -> None:
        self.job, self._problem, self._order = job, problem, order
        self._device = backend.device
        self._launcher = problem.launcher(job.local, backend, len(streams))
        self._streams = streams[: self._launcher.streams]
        self._granule = self._launcher.granule()
        self._loads = Loads(self._launcher, order, backend, job.seed)
        self._locked = problem.discipline == "locked"
        self._replicas: list[Replica] = []
        self.in_flight: int | None = None
        self._shares: Iterator[Share] = iter(())
        self._next: Share | None = None
        self._chain: Event | None = None  # behind what was given last
        self._segments = 0  # given so far
        self._filled = self._dirty = False
        self._fill()
        if problem.in_flight is not None or self._granule:
            self._make(problem.in_flight or self._launcher.in_flight(0.0))
        else:
            self._launcher.in_flight(1.0)  # whatever it has to find out about the data, it does off the clock
        if not self._granule:
            self._rehearse()
        self._filled = False  # what was tried out is undone before the first epoch

    def begin(self, task: Task) -> None:
        """Take up a task."""
        if not self._filled:
            self._fill()
        if self._problem.in_flight is None and not self._granule:  # as the step falls there may be more
            scale, offset, power = task.step
            wanted = self._launcher.in_flight(scale * (max(offset, 1.0) + task.epoch * self._order.n_rows) ** -power)
            if self.in_flight is None or not self.in_flight <= wanted <= MORE * self.in_flight:
                self._make(wanted)
        self._shares = self._cut(task)
        self._next = next(self._shares, None)
        self._may_stop = True

    def go_on(self, until: float) -> bool:
        """Keep the streams at work; True when all is done, False when it is ``until`` on ``time.perf_counter``."""
        while True:
            for number, replica in enumerate(self._replicas):
                while replica.given and replica.given[0].event.done():
                    self._count(number, replica.given.popleft().examples)
            free = min(self._replicas, key=lambda replica: len(replica.given))
            more = self._next is not None and not (self._may_stop and self.job.control[STOP])
            busy = [replica for replica in self._replicas if replica.given]
            if more and len(free.given) < DEPTH:
                self._give(free)
            elif busy and time.perf_counter() < until:
                min((replica.given[0] for replica in busy), key=lambda given: given.number).event.wait()
            if not more and not busy:
                return True
            if time.perf_counter() >= until:
                return False

    def settle(self) -> None:
        """Wait until the streams stand still, wherever they are: also behind a segment that failed half-way."""
        for replica in self._replicas:
            replica.stream.record().wait()
            replica.given.clear()

    def clear(self) -> None:
        """Let go of what is in hand: a sequence that was cut off holds on to the desk itself."""
        self._shares, self._next = iter(()), None

    def pull(self) -> None:
        """Copy the parameters home, if the device has changed them."""
        if self._dirty:
            self.job.flat[:] = self._launcher.flat.cpu().numpy()
            self._dirty = False

    def _fill(self) -> None:
        """Copy the parameters to the device."""
        self._launcher.flat.copy_(torch.from_numpy(self.job.flat))
        self._filled = True

    def _make(self, in_flight: int) -> None:
        """Make the replicas, of which each has a share of the examples in flight; none is at work."""
        self._replicas.clear()
        in_flight = min(in_flight, self._launcher.room(), self._order.n_rows)  # no more can be
        share = max(in_flight // len(self._streams), 1)
        for number, stream in enumerate(self._streams):
            self._replicas.append(Replica(stream, self._launcher.replica(number, stream, share), deque()))
        self.in_flight = share * len(self._streams)

    def _rehearse(self) -> None:
        """Launch the kernel over a few examples with a step of zero, so that it is compiled off the clock."""
        stream = self._streams[0]
        launch = self._launcher.replica(0, stream, 1)
        load = next(self._loads.of(0, 0, [(0.0, 1.0, 0.0)], 0))
        assert load.ready is not None
        stream.after(load.ready)
        self._run(stream, launch, load, 0, min(REHEARSED, sum(load.lengths)))
        stream.record().wait()

    def _cut(self, task: Task) -> Iterator[Share]:
        """The segments of a task, in order."""
        loads = self._loads.of(task.epoch, task.start, (task.step, *task.further), MOST)
        load = next(loads, None)
        while load is not None:
            before = [replica.given[-1].event for replica in self._replicas if replica.given]
            shares = self._cut_load(load)
            yield from itertools.islice(shares, DEPTH * len(self._streams))  # before the host copies, for some time
            self._loads.finished(before)  # what is copied now takes the place of what was before this load
            ahead = next(loads, None)
            yield from shares
            load = ahead

    def _cut_load(self, load: Load) -> Iterator[Share]:
        chunk, ends, begin = self._order.chunk, [], 0
        for length in load.lengths:
            ends += [*range(begin + chunk, begin + length, chunk), begin + length]
            begin += length
        first = 0
        if self._granule:
            size = self._granule * (1 if self._locked else MINIBATCHES)
            for end in ends:
                for last in [*range(first + size, end, size), end]:
                    yield Share(load, first, last, int(last == end))
                    first = last
            return
        together = max(min(MOST, TURNS * (self.in_flight or 1)) // chunk, 1)
        if len(self._streams) > 1:
            together = min(together, max(-(-len(ends) // (SHARES * len(self._streams))), 1))
        for k in range(0, len(ends), together):
            some = ends[k : k + together]
            yield Share(load, first, some[-1], len(some))
            first = some[-1]

    def _give(self, replica: Replica) -> None:
        """Hand the next segment to a replica."""
        share, stream = self._next, replica.stream
        assert share is not None
        load = share.load
        if replica.ready is not load.ready:
            assert load.ready is not None
            stream.after(load.ready)
            replica.ready = load.ready
        if self._locked and self._chain is not None:
            stream.after(self._chain)
        self._dirty = True
        self._run(stream, replica.launch, load, share.first, share.last)
        self._chain = stream.record()
        self._segments += 1
        replica.given.append(Given(self._chain, share.last - share.first, self._segments))
        self.job.control[NEXT] += share.chunks
        self._may_stop = share.chunks > 0  # a run goes on at the end of a chunk
        self._next = next(self._shares, None)

    def _run(self, stream: Stream, launch: Callable[[Segment], None], load: Load, first: int, last: int) -> None:
        def work() -> None:
            assert load.rows is not None
            steps = load.steps_of(first, last, self._device)
            launch(Segment(load.data, load.rows[first:last], steps, load.visited[0] + first))

        stream.run(work)

    def _count(self, worker: int, examples: int) -> None:
        """Note what a replica has come to the end of; nonzeros by their mean, which is exact for whole epochs."""
        cells = self.job.control[WORKERS:].reshape(-1, LINE)
        cells[worker, ROWS] += examples
        done = int(cells[:, ROWS].sum())
        nonzeros = self._problem.nonzeros * done // self._order.n_rows
        cells[worker, NONZEROS] += nonzeros - int(cells[:, NONZEROS].sum())


class Streams:
    """A pool of replicas (see :class:`hogwild.hosts.job.Pool`) on a device.

    Raises
    ------
    InputError
        If there is no such device.
    """

    host, shared = "streams", False
    joins_epochs = True  # a task may be several

    def __init__(self, workers: int, backend: Backend | None = None) -> None:
        self.workers, self.lost, self.closed = workers, 0, False
        self._backend = connect() if backend is None else backend
        self.about = {"gpu": self._backend.name}  # fields of a run's first row
        self._streams = [self._backend.stream() for _ in range(workers)]
        self._desk: Desk | None = None
        self._at_work = False

    @property
    def job(self) -> Job | None:
        return None if self._desk is None else self._desk.job

    def measured(self) -> dict[str, Any]:
        """Fields of a row: the examples in hand at the same time, over all replicas."""
        return {"in_flight": None if self._desk is None else self._desk.in_flight}

    def open(self, job: Job) -> None:
        if self.closed:
            raise UsageError("the pool of workers is closed")
        if self._at_work:
            raise UsageError(IN_USE)
        if self._desk is not None:
            self.release(self._desk.job)
        problem, order = job.problem, job.order
        assert isinstance(problem, OnDevice)
        assert isinstance(order, DeviceOrder)
        with naming("setting up"):
            self._desk = Desk(job, problem, order, self._backend, self._streams)
        # weakly, so that a run that is dropped takes the device's memory with it
        job.pull = functools.partial(_pull, weakref.ref(self._desk))

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

    def release(self, job: Job) -> None:
        if self._desk is None or self._desk.job is not job:
            return
        desk, self._desk, self._at_work, job.pull = self._desk, None, False, None
        with naming("a worker failed"):
            desk.clear()
            desk.settle()
            desk.pull()

    def close(self) -> None:
        if self._desk is not None:
            self.release(self._desk.job)
        self.closed = True


def _pull(desk: weakref.ref[Desk]) -> None:
    if (found := desk()) is not None:
        found.pull()


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Make one line of what a device or a user's module raises."""
    try:
        yield
    except HogwildError:
        raise
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise TrainingError(f"device cuda: {what}: {text}") from error
