"""Workers as streams of a CUDA device: replicas that race on one parameter array in its memory.

All examples are copied to the device once, and an epoch is a permutation of them that depends on seed and epoch only.
One thread drives the replicas: it cuts an epoch into segments and gives each to the replica with the least to do, never
more than two to one, so that a run can be stopped soon and no stream is idle. The problem's launcher knows what a
segment is (one launch of a kernel, or some replays of a CUDA graph). Nothing waits except in the discipline ``locked``,
where a chain of events lets one replica run at a time.

F examples that all see the same parameters are one step of gradient descent on their mean loss, F times as long as the
step of one. So by default as many are in flight as make the longest step that the curvature allows, at most as many as
the device holds and a sixteenth of the data; their number grows as the step falls.

The parameters stay on the device from epoch to epoch; they are copied to the host on request, off the clock.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.config import TrainConfig
from hogwild.cuda.backend import Backend, DeviceStream, connect
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildError, InputError, TrainingError, describe
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import LINE, NEXT, NONZEROS, ROWS, STOP, WORKERS
from hogwild.problems.protocol import Problem

CHUNKS = 256  # of an epoch: where a run can be stopped and resumed
FEWEST = 1024  # examples in one, unless the run has fewer
MINIBATCHES = 8  # in one, where examples come in minibatches
DEPTH = 2  # segments queued on a stream at a time
SHARES = 4  # least segments of an epoch for each of several replicas
MOST = 1 << 24  # most examples in a segment: some 5 to 50 ms
TURNS = 1 << 14  # most examples in it for each in flight; one takes a microsecond or two
REHEARSED = 64  # examples in the launches before the clock runs
SPREAD = 16  # at most one example in so many is in flight by default
SHARE, SHARE_BESIDE_MODULES = 0.8, 0.5  # share of the free memory that data may take; replicas of a module need more
PLACE = 36  # bytes for an example's place in a permutation that torch makes: it sorts it, with a key, out of place
INT32 = 2**31 - 2**10  # kernels look a little beyond a row's end
TINY = 1e-30  # in place of zero


class Visits(NamedTuple):
    """Positions ``first`` to ``first + size`` of an epoch; ``order.visit_at`` computes which examples they are.

    The step at position v is ``scale / (since + v)**power``.
    """

    first: int
    size: int
    n: int  # examples of the epoch
    key: int  # of its order, uint32
    scale: float
    since: float = 1.0
    power: float = 0.0
    shuffled: bool = True
    together: int = 1  # neighbours that stay together

    @property
    def arguments(self) -> tuple[float, ...]:
        """Arguments of a kernel: these numbers, and the bits that a block's number has, after ``n``."""
        bits = max(self.n // self.together - 1, 0).bit_length()
        return (*self[:3], bits, *self[3:7])

    @property
    def constants(self) -> dict[str, int]:
        """Constants that a kernel is compiled for."""
        return {"SHUFFLED": self.shuffled, "TOGETHER": self.together}


class Launcher:
    """A problem on a device: parameters and examples in its memory, and what visits them.

    It is made of problem, arrays and backend by work of a stream, so it must not wait for the device. Subclasses upload
    their examples to ``data``.
    """

    data: dict[str, torch.Tensor]  # all examples
    block = 1  # neighbours that may stay together in a random order, for the sake of long reads; 1: none
    granule = 0  # examples of a minibatch; 0: there are none

    def __init__(self, problem: Any, backend: Backend) -> None:
        self.problem = problem
        self.backend = backend
        #: (size,) float32, laid out as the host's, which fills it later
        self.flat = torch.zeros(problem.size, device=backend.device)

    def room(self) -> int:
        """Examples in flight when the device is full."""
        raise NotImplementedError

    def longest_step(self) -> float:
        """Return the longest step of gradient descent on the mean loss that the curvature allows."""
        raise NotImplementedError

    def shuffle(self, epoch: Visits) -> None:
        """Prepare an epoch: where examples come in minibatches, permute them."""

    def visit(self, visits: Visits, in_flight: int) -> None:
        """Launch kernels that visit examples, with so many in flight, on the current stream."""
        raise NotImplementedError

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Visits], None]:
        """Return a function that launches a segment for one replica, which has ``in_flight`` examples in flight."""
        return partial(self.visit, in_flight=in_flight)

    def upload(self, arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """Copy examples to the device.

        Raises
        ------
        InputError
            If they do not fit.
        """
        n = max(map(len, arrays.values()))
        permuted = self.block > 1 or self.granule
        needed = sum(array.nbytes for array in arrays.values()) + (PLACE * n if permuted else 0)
        room = int((SHARE_BESIDE_MODULES if self.granule else SHARE) * self.backend.free())
        if needed > room:
            raise InputError(
                f"device cuda: the data need {needed / 1e6:,.1f} MB of the GPU's memory, which has room for "
                f"{room / 1e6:,.1f}: train on the CPU"
            )
        return {name: torch.tensor(array, device=self.backend.device) for name, array in arrays.items()}

    def permutation(self, n: int, seed: int) -> torch.Tensor:
        """Return a permutation of ``n`` examples, int32."""
        device = self.backend.device
        return torch.randperm(n, generator=torch.Generator(device).manual_seed(seed), device=device, dtype=torch.int32)


def entries_of(rows: Rows, unit: bool = False) -> dict[str, np.ndarray]:
    """``begin end indices values`` of rows for a device, without the values if all are one (``unit``)."""
    if not rows.contiguous:
        rows = rows.compact()
    base, last = (int(rows.begin[0]), int(rows.end[-1])) if len(rows) else (0, 0)
    offsets: Any = np.int32 if last - base < INT32 else np.int64
    entries = {
        "begin": (rows.begin - base).astype(offsets),
        "end": (rows.end - base).astype(offsets),
        "indices": rows.indices[base:last],
    }
    return entries if unit else entries | {"values": rows.values[base:last]}


@dataclass(frozen=True)
class OnDevice(Problem):
    """A problem in a job on a device, of which only a few methods are asked.

    Its job holds the parameters, which are copied back on request, and the counts; there are no locks, blocks or tiers.
    """

    problem: Any
    discipline: str
    in_flight: int | None  # examples in flight; None: as many as the step allows
    nonzeros: int = 0  # of all examples, for the measurements
    options: Mapping[str, Any] = field(default_factory=dict)  # further options for the launcher

    @property
    def size(self) -> int:
        return int(self.problem.size)

    def start(self, flat: np.ndarray, seed: int) -> None:
        self.problem.start(flat, seed)

    def shuffle(self, blocks: np.ndarray, order: Order, seed: int, epoch: int) -> None:
        """Do nothing: the device shuffles."""


def lay_out(
    config: TrainConfig, problem: Any, n_rows: int, arrays: dict[str, np.ndarray], nonzeros: int = 0, **options: Any
) -> Job:
    """Return the job of a run whose workers are on a device.

    ``arrays`` are those of all examples, as the launcher takes them, as are the ``options``; ``batch``: the examples of
    a minibatch, if the problem has them.
    """
    on_device = OnDevice(problem, problem.discipline, config.in_flight, nonzeros, options)  # type: ignore[abstract]
    chunk = max(-(-n_rows // CHUNKS), min(FEWEST, n_rows), 1)
    if "batch" in options:  # a segment, or one minibatch if replicas take turns at each
        chunk = options["batch"] * (1 if problem.discipline == "locked" else MINIBATCHES)
    order = Order(n_rows, 1, config.order == "shuffled", chunk)
    return Job.of(on_device, order, config.seed, config.workers or 1, arrays, shared=False)


class Queued(NamedTuple):
    """A segment queued on the stream of a worker, at whose end is the event."""

    worker: int
    event: torch.cuda.Event
    examples: int


class DeviceJob:
    """One job on the device."""

    def __init__(self, job: Job, backend: Backend, streams: list[DeviceStream]) -> None:
        problem, order = job.problem, job.order
        assert isinstance(problem, OnDevice)
        assert isinstance(order, Order)
        if order.n_rows > INT32:
            raise InputError(f"device cuda: a GPU takes {INT32:,} examples at most, got {order.n_rows:,}")
        self.job = job
        self._problem = problem
        self._order = order
        self._streams = streams
        self._launcher: Launcher
        self._on_first(lambda: self._launch(backend))
        self._replicas: list[Callable[[Visits], None]] = []  # the launch function of each stream
        self._queued: list[Queued] = []  # unfinished segments, the oldest first
        self.in_flight: int | None = None
        self._segments: deque[tuple[Visits, int]] = deque()  # those to be queued, and how many chunks each has
        self._chain: torch.cuda.Event | None = None  # after the latest segment
        self._dirty = False  # the device has changed the parameters since the last copy to the host
        self._fill()
        if problem.in_flight is not None or self._launcher.granule:
            self._make(problem.in_flight or self._launcher.room())
        else:
            self._longest_step = self._launcher.longest_step()
        if not self._launcher.granule:
            self._rehearse()
        self._filled = False  # what that changed is undone before the first epoch

    def _launch(self, backend: Backend) -> None:
        """Put problem and data on the device, where data that are visited in blocks are scattered."""
        problem, arrays = self._problem.problem, self.job.local
        launcher = backend.launcher(problem)(problem, arrays, backend, **self._problem.options)
        if launcher.block > 1 and self._order.shuffled:
            scattered = launcher.permutation(self._order.n_rows, self.job.seed)
            for name, array in launcher.data.items():
                launcher.data[name] = array[scattered]
        self._launcher = launcher

    def begin(self, task: Task) -> None:
        """Start a task."""
        if not self._filled:
            self._fill()
        scale, offset, power = task.step
        visited = task.epoch * self._order.n_rows
        if self._problem.in_flight is None and not self._launcher.granule:
            step = scale * (max(offset, 1.0) + visited) ** -power
            allowed = self._longest_step / step if step > 0 else MOST
            self._make(int(min(allowed, max(self._order.n_rows // SPREAD, 1))))
        key = int(np.random.SeedSequence((self.job.seed, task.epoch)).generate_state(1)[0])
        epoch = self._visits(key, scale, max(offset + visited, TINY), power)
        if self._launcher.granule:
            self._on_first(lambda: self._launcher.shuffle(epoch))
        self._segments = deque(self._cut(epoch, task.start))

    def go_on(self, until: float) -> bool:
        """Keep the streams busy; True when all is done, False at the time ``until`` of ``time.perf_counter``."""
        while True:
            lengths = [0] * len(self._streams)
            queued, self._queued = self._queued, []
            for segment in queued:
                if segment.event.query():
                    self._count(segment)
                else:
                    self._queued.append(segment)
                    lengths[segment.worker] += 1
            more = self._segments and not self.job.control[STOP]
            if not more and not self._queued:
                return True
            if more and min(lengths) < DEPTH:
                self._give(lengths.index(min(lengths)))
            elif time.perf_counter() < until:
                self._queued[0].event.synchronize()
            if time.perf_counter() >= until:
                return False

    def release(self) -> None:
        """Drop unfinished work, wait until the streams stand still, and drop replicas and graphs.

        Also after a segment that failed half-way. An interrupted sequence holds a reference to the desk itself.
        """
        self._segments.clear()
        for stream in self._streams:
            stream.record().synchronize()
        self._queued.clear()
        self.pull()
        self._replicas.clear()

    def pull(self) -> None:
        """Copy the parameters to the host, if the device has changed them."""
        if self._dirty:
            self.job.flat[:] = self._launcher.flat.cpu().numpy()
            self._dirty = False

    def _fill(self) -> None:
        """Copy the parameters to the device."""
        self._launcher.flat.copy_(torch.from_numpy(self.job.flat))
        self._filled = True

    def _on_first(self, work: Callable[[], None]) -> None:
        """Do work on the first stream, and wait for it."""
        self._streams[0].run(work)
        self._streams[0].record().synchronize()

    def _make(self, in_flight: int) -> None:
        """Make the replicas, each with a share of the examples in flight, while none is working."""
        self._replicas.clear()
        in_flight = min(in_flight, self._launcher.room(), self._order.n_rows)  # no more are possible
        share = max(in_flight // len(self._streams), 1)
        for number, stream in enumerate(self._streams):
            self._replicas.append(self._launcher.replica(number, stream, share))
        self.in_flight = share * len(self._streams)

    def _visits(self, key: int, scale: float, since: float = 1.0, power: float = 0.0) -> Visits:
        """All visits of an epoch."""
        n, shuffled = self._order.n_rows, self._order.shuffled
        return Visits(0, n, n, key, scale, since, power, shuffled, self._launcher.block if shuffled else 1)

    def _rehearse(self) -> None:
        """Launch what any number in flight may choose with a step of zero: compiled and loaded off the clock."""
        visits = self._visits(0, 0.0)._replace(size=min(REHEARSED, self._order.n_rows))
        for in_flight in (1, self._launcher.room()):
            launch = self._launcher.replica(0, self._streams[0], in_flight)
            self._on_first(partial(launch, visits))

    def _cut(self, epoch: Visits, start: int) -> Iterator[tuple[Visits, int]]:
        """Yield the segments of an epoch from a chunk on, in order, and how many chunks each has."""
        chunk = self._order.chunk
        n_chunks = self._order.n_chunks
        workers = len(self._streams)
        together = max(min(MOST, TURNS * (self.in_flight or 1)) // chunk, 1)
        if workers > 1:
            together = min(together, max(-(-(n_chunks - start) // (SHARES * workers)), 1))
        if self._launcher.granule:
            together = 1
        for k in range(start, n_chunks, together):
            end = min(k + together, n_chunks)
            yield epoch._replace(first=k * chunk, size=min(end * chunk, epoch.n) - k * chunk), end - k

    def _give(self, number: int) -> None:
        """Queue the next segment on a replica's stream."""
        (visits, chunks), stream = self._segments.popleft(), self._streams[number]
        if self._problem.discipline == "locked" and self._chain is not None:
            stream.after(self._chain)
        self._dirty = True
        stream.run(partial(self._replicas[number], visits))
        self._chain = stream.record()
        self._queued.append(Queued(number, self._chain, visits.size))
        self.job.control[NEXT] += chunks

    def _count(self, segment: Queued) -> None:
        """Record a replica's finished examples; nonzeros by their mean, which is exact for whole epochs."""
        worker, cells = segment.worker, self.job.control[WORKERS:].reshape(-1, LINE)
        cells[worker, ROWS] += segment.examples
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

    host = "streams"
    shared = False
    closed = False

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
        self.check_free(self._at_work)
        if self._desk is not None:
            self.release(self._desk.job)
        with naming("setting up"):
            self._desk = DeviceJob(job, self._backend, self._streams)
        reference = weakref.ref(self._desk)  # so that dropping a run frees the device's memory
        job.pull = lambda: None if (desk := reference()) is None else desk.pull()

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
        desk, self._desk = self._desk, None
        self._at_work = False
        job.pull = None
        with naming("a worker failed"):
            desk.release()

    def close(self) -> None:
        self.closed = True
        if self._desk is not None:
            self.release(self._desk.job)


@contextlib.contextmanager
def naming(stage: str) -> Iterator[None]:
    """Turn an exception of a device or a user's module into one line."""
    try:
        yield
    except HogwildError:
        raise
    except Exception as error:
        raise TrainingError(f"device cuda: {stage}: {describe(error)}") from error
