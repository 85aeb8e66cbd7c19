"""Virtual workers on one core: any number of them, interleaved by a delay law, bitwise reproducible from the seed.

What is random in a parallel run is a schedule here, so staleness and lost updates are counted, not estimated, and the
statistical effect of hundreds of workers can be seen without having them. Speed cannot be seen: ``train_seconds`` is
the real time that one core took to run all workers.

What counts as one indivisible event depends on where a discipline lets other workers in.

* ``hogwild``, ``atomic``, ``aig``: between reading a row and storing its update; ``hogwild`` also between loading and
  storing. Each of these is an event (``kernels/control.py``). Rows are handed out one by one in the epoch's order. The
  *staleness* of an update is the number of others stored between its read and its store.
* ``serial``, ``locked``, ``tiered``: nowhere within a row, so the real kernel does ``quantum`` rows of one worker after
  another, in chunks as usual, and no staleness is counted.
* ``round-robin``: the same with one row at a time: the turns are fixed, and with them the staleness, W - 1.

With an exchange the events are those of trades, and of ``quantum`` rows of a worker under any discipline
(:class:`Replicated`, :class:`Network`).

A worker of ``tiered`` has private copies, so memory grows with the number of workers.

Delay laws count time in ticks: with W workers a row takes W ticks on average, so one row is finished every tick, and
worker k starts at tick k. The laws and their parameters (``methods.DELAYS``) are:

    round-robin                 every row takes the same time: the workers take turns, the staleness is W - 1
    constant:delay=1            an update is stored after exactly ``delay`` others; the worker then waits
    random:shape=1              row times are i.i.d. Gamma: exponential for shape 1, more alike for larger shapes
    straggler:alpha=1.5         i.i.d. Pareto with tail index alpha

``window`` (any law) is the part of a row's time, just before the store, in which ``hogwild`` holds what it has loaded;
``quantum`` is the number of consecutive rows by one worker under a discipline that hides rows (locked, tiered). The
order of events depends on no weight, so a schedule is made in advance, and one heap of events serves every law.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from hogwild.exchanges.trade import ALL, BYE, NOTHING, PULL, PUSH, Arrays, Counts, Exchange, Link, Message, Step, take
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import (
    CHUNK,
    COUNT,
    EVENT_KINDS,
    FIRST,
    LOAD,
    NEXT,
    NO_LIMIT,
    PAY,
    READ,
    STOP,
    STORE,
)
from hogwild.methods import Wire, parse_delay

DRAWN = 4096  # random numbers drawn at a time
LOADS, STORES, READS = range(3)  # the order of events at the same tick

PHASED = ("hogwild", "atomic", "aig")  # disciplines that let others in within a row


class Simulator(Pool):
    """A pool of virtual workers (see :class:`hogwild.hosts.pool.Pool`); all work is done inside :meth:`wait`.

    Parameters
    ----------
    workers : int
    delay : str
        The delay law.
    """

    host = "simulator"
    shared = False
    closed = False
    job: Job | None = None

    def __init__(self, workers: int, delay: str = "round-robin") -> None:
        self.workers, self.lost = workers, 0
        self._histogram: Counter[int] = Counter()
        self.delay, self._law = delay, Law(delay, workers)
        self._parts: _Parts | None = None
        self._course: Course | None = None
        self._running = False

    def open(self, job: Job) -> None:
        self.check_free(self._running)
        self.job, self._course = job, None
        self._parts = _Parts(job)
        if self._parts.phased:
            _Events(self._parts, Task(0, 0, (0.0, 1.0, float(self._parts.problem.falling))), self._law).play(-1, [])
        else:
            job.problem.compile()

    def begin(self, task: Task) -> None:
        parts = self._parts
        assert parts is not None
        kind = Replicated if parts.job.exchange is not None else _Events if parts.phased else _Quanta
        self._course = kind(parts, task, self._law)
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
            self.job = self._course = self._parts = None
            self._running = False

    def close(self) -> None:
        self.closed = True
        if self.job is not None:
            self.release(self.job)


class Course(Protocol):
    """A task in progress."""

    lost: int = 0  # weight updates that were overwritten

    @property
    def staleness(self) -> Counter[int]:
        """Number of updates by staleness, if counted."""
        return Counter()

    @property
    def counts(self) -> Counts:
        """Counts of what was sent, and virtual seconds, so far."""

    def advance(self) -> bool:
        """Advance a little; return False when all workers stand still."""


class _Parts:
    """The memory of a job's virtual workers."""

    problem: Any  # that of linear models, which has what virtual workers need

    def __init__(self, job: Job) -> None:
        self.job = job
        self.problem = job.problem
        self.shared = job.shared()
        self.data = job.data()
        self.phased = job.exchange is None and job.problem.discipline in PHASED  # others may come in within a row
        self.scratches = self.problem.scratches(1 if self.phased else job.workers, job.order, job.tiers, job.flat)

    def prepare(self, task: Task, worker: int, limit: int = NO_LIMIT, crew: Any = None) -> Callable[[], int]:
        """Return a function that does a share of a worker's task, or of all workers', at each call."""
        part = self.job.part(task, worker, limit)._replace(crew=crew)
        return self.problem.prepare(self.shared, self.scratches[worker], self.data, part, task.step)

    def counts(self, ticks: float) -> Counts:
        """Counts with nothing sent, and ``ticks`` in virtual seconds."""
        return Counts(virtual_seconds=ticks / self.job.workers * self.job.wire.row)


class _Events(Course):
    """Workers that let others in within a row, simulated one chunk of events at a time."""

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        self._parts = parts
        self._job = parts.job
        self._chunk = task.start
        window = law.window if parts.problem.discipline == "hogwild" else 0.0
        self._crew = parts.problem.crew(self._job.workers, self._job.order, loads=window > 0)
        self._schedule = DelaySchedule(law, (self._job.seed, task.epoch, task.start), window)
        self._call = parts.prepare(task, 0, crew=self._crew)

    @property
    def staleness(self) -> Counter[int]:
        return self._schedule.staleness

    @property
    def lost(self) -> int:  # type: ignore[override]
        return int(self._crew.lost[0])

    @property
    def counts(self) -> Counts:
        return self._parts.counts(self._schedule.now)

    def advance(self) -> bool:
        order: Any = self._job.order
        control = self._job.control
        chunk = self._chunk
        if chunk < order.n_chunks and control[STOP] == 0:
            self.play(chunk, self._schedule.events(min(order.chunk, order.n_rows - chunk * order.chunk)))
            self._chunk = control[NEXT] = chunk + 1
            return True
        self.play(-1, self._schedule.events(None))
        return False

    def play(self, chunk: int, events: list[int]) -> None:
        """Have the kernel do some events."""
        cells = self._crew.events
        cells[CHUNK], cells[COUNT] = chunk, len(events)
        cells[FIRST : FIRST + len(events)] = events
        self._call()


class _Quanta(Course):
    """Workers that let nobody in within a row: each does ``quantum`` rows in turn, one under ``round-robin``."""

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        job = parts.job
        self._law = law
        self._parts = parts
        self._last = 0.0
        self._quantum = 1 if parts.problem.discipline == "round-robin" else law.quantum
        self._calls = [parts.prepare(task, worker, self._quantum) for worker in range(job.workers)]
        self._times = law.times((job.seed, task.epoch, task.start))
        self._heap = [(float(worker), worker) for worker in range(job.workers)]

    @property
    def counts(self) -> Counts:
        return self._parts.counts(self._last)

    def advance(self) -> bool:
        now, worker = heapq.heappop(self._heap)
        rows = self._calls[worker]()
        self._last = max(self._last, now + rows * self._law.ticks)
        if rows == self._quantum:
            ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks
            heapq.heappush(self._heap, (now + ticks + rows * self._law.wait, worker))
        return bool(self._heap)


# ---- delay laws


class Law:
    """A delay law for a number of workers that it suffices for; ``text`` is written as in ``TrainConfig.delay``."""

    def __init__(self, text: str, workers: int) -> None:
        self.text, self.workers = text, workers
        self.name, self.numbers = parse_delay(text)
        self.window, self.quantum = self.numbers["window"], int(self.numbers["quantum"])
        self.ticks = float(workers)  # mean ticks per row
        self.wait = 0.0  # ticks from a store to the worker's next row
        if self.name == "constant":
            self.ticks = self.numbers["delay"] + 1
            self.wait = workers - self.ticks

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
        self._law = law
        self._times = law.times(seed)
        self._window = window
        self._stored, self._begun = 0, [0] * law.workers
        self.now = 0.0  # ticks
        self.staleness: Counter[int] = Counter()
        self._heap = [(float(worker), READS, worker) for worker in range(law.workers)]

    def events(self, rows: int | None) -> list[int]:
        """Return the events until ``rows`` more rows are read; with None, until every worker has ended."""
        events: list[int] = []
        while self._heap if rows is None else rows:
            now, rank, worker = heapq.heappop(self._heap)
            first = worker * EVENT_KINDS
            if rank == LOADS:
                events.append(first + LOAD)
            elif rank == STORES:
                events.append(first + STORE)
                self.now = now
                self.staleness[self._stored - self._begun[worker]] += 1
                self._stored += 1
                heapq.heappush(self._heap, (now + self._law.wait, READS, worker))
            elif rows is None:
                events.append(first + PAY)
            else:
                events.append(first + READ)
                self._begun[worker] = self._stored
                ticks = next(self._times) * self._law.ticks
                heapq.heappush(self._heap, (now + ticks, STORES, worker))
                if self._window:
                    heapq.heappush(self._heap, (now + ticks * (1 - self._window), LOADS, worker))
                rows -= 1
        return events


# ---- replicas that trade, and the network between them


class Replicated(Course):
    """A task of workers that have replicas.

    Events happen one at a time in the order of virtual time: a worker trains some rows, or begins a trade, or continues
    one. A trade waits either for a message or for another replica's end, so a waiting replica is retried only at those
    times.
    """

    def __init__(self, parts: _Parts, task: Task, law: Law) -> None:
        job, trader = parts.job, parts.job.trader
        assert trader is not None
        self._job = job
        self._law = law
        self._trader = trader
        self._exchange, self._arrays = trader.exchange, trader.arrays
        count = job.workers
        self._network = Network(count, job.wire)
        self._links = [TimedLink(self._network, replica) for replica in range(count)]
        self._replicas = [take(job.flat, self._arrays, replica, task.step[0]) for replica in range(count)]
        period = self._exchange.period
        self._quantum = min(law.quantum, period)
        rest = 0 if period == NO_LIMIT else period % self._quantum
        self._turns: list[dict[int, Callable[[], int]]] = []
        for worker, scratch in enumerate(parts.scratches):
            shared = parts.shared._replace(parameters=job.problem.parameters(self._replicas[worker]))
            slices = {rows: job.part(task, worker, rows) for rows in {self._quantum, rest} - {0}}
            self._turns.append(
                {
                    rows: job.problem.prepare(shared, scratch, parts.data, part, task.step)
                    for rows, part in slices.items()
                }
            )
        self._since = [0] * count  # rows of each since its last trade
        self._times = law.times((job.seed, task.epoch, task.start))
        self._trades: list[Iterator[None] | None] = [None] * count
        self._waiting: dict[int, float] = {}  # replicas that wait, and since when
        self._trained: set[int] = set()  # replicas that have done all their rows
        self._events: list[tuple[float, int]] = []
        # Times of each replica's event, and of the servers' next one; any other is out of date.
        self._due: list[float | None] = [None] * (count + 1)
        for replica in range(count):
            self._push(replica, self._seconds(replica))

    @property
    def staleness(self) -> Counter[int]:
        """Number of pushes to servers by staleness, if there are servers."""
        cells = self._arrays.get("staleness", ())
        return +Counter({stale: int(pushes) for stale, pushes in enumerate(cells)})

    @property
    def counts(self) -> Counts:
        """Counts of what was sent and how long replicas waited, with the final meeting if it has taken place."""
        return self._network.counts.plus(Counts(virtual_seconds=max(self._network.now))).plus(self._trader.left_out())

    def advance(self) -> bool:
        network = self._network
        now, replica = heapq.heappop(self._events)
        if now == self._due[replica]:
            self._due[replica] = None
            if replica < self._law.workers:
                network.now[replica] = max(now, network.now[replica])
            if replica == self._law.workers:
                self._serve()
            elif self._trades[replica] is not None:
                self._go_on(replica)
            elif replica in self._trained:
                self._leave(replica)
            else:
                self._train(replica)
        if not self._events:
            assert not self._waiting, "replicas wait for messages that nobody sends"
            network.meet(self._exchange.meeting(self._job.problem.size, self._arrays))
        return bool(self._events)

    def _seconds(self, ticks: float) -> float:
        return ticks / self._law.workers * self._job.wire.row

    def _push(self, replica: int, when: float) -> None:
        """Schedule a replica's event at ``when``, unless it has an earlier one."""
        due = self._due[replica]
        if due is None or when < due:
            self._due[replica] = when
            heapq.heappush(self._events, (when, replica))

    def _serve(self) -> None:
        """Let a server handle the next request."""
        self._network.serve(self._exchange, self._arrays)
        self._wake()

    def _train(self, replica: int) -> None:
        """Train a quantum of rows, or those until the next trade, and begin the trade if it is due."""
        network, exchange = self._network, self._exchange
        limit = min(self._quantum, exchange.period - self._since[replica])
        rows = self._turns[replica][limit]()
        self._since[replica] += rows
        ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks + rows * self._law.wait
        network.now[replica] += self._seconds(ticks)
        side = None
        if rows < limit:
            self._trained.add(replica)
            side = exchange.end
        elif self._since[replica] == exchange.period:
            side = exchange.trade
        if side is not None:
            since, self._since[replica] = self._since[replica], 0
            self._trades[replica] = side(self._replicas[replica], self._arrays, self._links[replica], since)
        self._push(replica, network.now[replica])

    def _go_on(self, replica: int) -> None:
        """Continue a trade."""
        network, trade = self._network, self._trades[replica]
        assert trade is not None
        if (since := self._waiting.pop(replica, None)) is not None:
            network.counts = network.counts.plus(Counts(waited_seconds=network.now[replica] - since))
        if next(trade, trade) is trade:
            self._trades[replica] = None
            self._push(replica, network.now[replica])
        else:
            self._waiting[replica] = network.now[replica]
        self._wake()

    def _wake(self) -> None:
        """Schedule events of servers and of waiting replicas, which may have been sent something."""
        network = self._network
        if (when := network.next_request()) is not None:
            self._push(self._law.workers, when)
        for waiting in self._waiting:
            if (when := network.next_arrival(waiting)) is not None:
                self._push(waiting, max(when, network.now[waiting]))

    def _leave(self, replica: int) -> None:
        """End a replica's training; those that wait for it notice."""
        network = self._network
        network.here[replica] = False
        for waiting in self._waiting:
            self._push(waiting, max(network.now[replica], network.now[waiting]))


class Request(NamedTuple):
    """A request to the server of a shard."""

    shard: int
    sender: int
    ticket: int
    message: Message


class Network:
    """Messages in transit between replicas; times are in virtual seconds.

    A replica has one line out and one in. A message waits until the line out is free, and arrives after the latency and
    its transmission time, or later if the receiver's line is still busy; a message to all is one message to each
    replica. The sender goes on at once. Servers answer as soon as a request arrives; they share the lines of the
    replicas on whose machines they are, and what stays on a machine takes no time.
    """

    def __init__(self, replicas: int, wire: Wire) -> None:
        self.wire, self.here = wire, np.ones(replicas, bool)
        self.now = [0.0] * replicas  # time of each replica
        self.counts = Counts()
        self._out, self._in = [0.0] * replicas, [0.0] * replicas  # when the lines are free
        # Heaps of (time, number, sender, message, ticket), and of (time, number, request)
        self._arriving: list[list[tuple[float, int, int, Message, int]]] = [[] for _ in range(replicas)]
        self._requests: list[tuple[float, int, Request]] = []
        self._kept: list[Request] = []  # their answers have to wait
        self._sent, self._latest = 0, 0.0

    def send(self, sender: int, to: int, message: Message) -> None:
        """Schedule the arrival of a message."""
        when = self._carry(sender, to, message, self.now[sender])
        heapq.heappush(self._arriving[to], (when, self._sent, sender, message, 0))

    def ask(self, request: Request) -> None:
        """Schedule the arrival of a request."""
        owner = request.shard % len(self.now)
        when = self._carry(request.sender, owner, request.message, self.now[request.sender])
        heapq.heappush(self._requests, (when, self._sent, request))

    def next_request(self) -> float | None:
        """Time at which the next request arrives at its server."""
        return self._requests[0][0] if self._requests else None

    def serve(self, served: Exchange, arrays: Arrays) -> None:
        """Handle the next request, and those that had to wait until something changed."""
        now, _, request = heapq.heappop(self._requests)
        self._latest = now
        waiting, self._kept = [request, *self._kept], []
        for shard, sender, ticket, message in waiting:
            reply = served.serve(shard, arrays, sender, message)
            if reply is None:
                self._kept.append(Request(shard, sender, ticket, message._replace(kind=PULL)))
            elif message.kind not in (PUSH, BYE):
                owner = shard % len(self.now)
                when = self._carry(owner, sender, reply, now)
                heapq.heappush(self._arriving[sender], (when, self._sent, owner, reply, ticket))

    def _carry(self, sender: int, to: int, message: Message, now: float) -> float:
        """Occupy the lines with a message that is sent now; return when it arrives."""
        self._sent += 1
        if sender == to:
            return now
        start = max(now, self._out[sender], self._in[to] - self.wire.latency)
        busy = message.size / self.wire.bandwidth
        self._out[sender] = start + busy
        self._in[to] = start + busy + self.wire.latency
        self.counts = self.counts.plus(Counts(1, message.size))
        return self._in[to]

    def next_arrival(self, to: int) -> float | None:
        """Time at which a replica's next message arrives."""
        return self._arriving[to][0][0] if self._arriving[to] else None

    def arrived(self, to: int) -> tuple[int, Message, int] | None:
        """Return sender, message and ticket (0: none) of the next message that has arrived by the replica's time."""
        heap = self._arriving[to]
        if not heap or heap[0][0] > self.now[to]:
            return None
        return heapq.heappop(heap)[2:]

    def senders(self, to: int) -> list[int]:
        """Replicas whose messages to a replica have not been received."""
        return [sender for _, _, sender, _, ticket in self._arriving[to] if not ticket]

    def meet(self, steps: list[Step]) -> None:
        """Let replicas send at once, in steps, and wait for each other."""
        end = max(*self.now, self._latest)
        for step in steps:
            end += self.wire.latency + step.messages * step.size / self.wire.bandwidth
            messages = step.messages * step.senders
            self.counts = self.counts.plus(Counts(messages, messages * step.size))
        self.now = [end] * len(self.now)


class TimedLink(Link):
    """A replica's link."""

    def __init__(self, network: Network, replica: int) -> None:
        super().__init__(replica, len(network.now))
        self._network = network

    def post(self, to: int, message: Message) -> bool:
        network = self._network
        receivers = np.flatnonzero(network.here) if to == ALL else [to]
        # A message in transit must not change.
        message = message._replace(values=message.values.copy(), indices=message.indices.copy())
        for receiver in receivers:
            if receiver != self.replica:
                network.send(self.replica, int(receiver), message)
        return True

    def _request(self, ticket: int, shard: int, request: Message) -> None:
        self._network.ask(Request(shard, self.replica, ticket, request))
        if request.kind in (PUSH, BYE):
            self._answers[ticket] = NOTHING

    def receive(self) -> None:
        while (arrival := self._network.arrived(self.replica)) is not None:
            sender, message, ticket = arrival
            if ticket:
                self._answers[ticket] = message
            else:
                self.inbox[sender].append(message)

    def here(self) -> np.ndarray:
        here = self._network.here.copy()
        here[self._network.senders(self.replica)] = True  # what they sent before they ended is still to come
        return here
