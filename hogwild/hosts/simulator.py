"""Virtual workers on one core: any number of them, interleaved by a delay law, bitwise reproducible from the seed.

What is random in a parallel run is a schedule here, so staleness and lost updates are counted, not estimated, and the
statistical effect of hundreds of workers can be seen without having them. Speed cannot be seen: ``train_seconds`` is
the real time that one core took to run all workers.

What counts as one indivisible event depends on where a discipline lets other workers in.

* ``hogwild``, ``atomic``, ``aig``: between reading a row and storing its update; ``hogwild`` also between loading and
  storing. Each of these is an event (``kernels/control.py``). Rows are handed out one by one in the epoch's order. The
  *staleness* of an update is the number of others stored between its read and its store. Problems whose kernels have no
  such events do the same with whole examples: the kernel does one in a copy of the parameters when it is read, and what
  it has changed there is stored later. If ``problem.touched`` does not say where that is, all parameters are compared,
  which takes long if they are many.
* ``serial``, ``locked``, ``tiered``: nowhere within a row, so the real kernel does ``quantum`` rows of one worker after
  another, in chunks as usual, and no staleness is counted.
* ``round-robin``: the same with one row at a time: the turns are fixed, and with them the staleness, W - 1.

With an exchange the events are those of trades, and of ``quantum`` rows of a worker under any discipline
(:class:`Replicas`, :class:`Network`).

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
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hogwild.exchanges.link import BYTES, MESSAGES, WAITED
from hogwild.exchanges.trade import ALL, BYE, NOTHING, PULL, PUSH, Arrays, Counts, Exchange, Link, Message, Step
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
NO_SHARD = SERVERS = -1  # of a message between replicas; and the last place after those of the replicas
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
        self.delay, self._law = delay, Law(delay, workers)
        self._stale: Counter[int] = Counter()  # updates of the latest task by staleness
        self._overwritten = 0  # weight updates of it that are lost
        self._virtual = 0.0  # seconds that it took the workers
        self._steps: Iterator[None] | None = None  # what is left of the task
        self._shared: Any = None  # the workers' memory
        self._data: Any = None
        self._scratches: Any = None

    def open(self, job: Job) -> None:
        self.check_free(self._steps is not None)
        problem: Any = job.problem
        self.job = job
        # Whether others may come in within a row, and whether its kernel has events
        self._phased = job.trader is None and problem.discipline in PHASED
        crewed = self._phased and problem.has_events
        self._window = self._law.window if problem.discipline == "hogwild" else 0.0
        self._shared, self._data = job.shared(), job.data()
        self._scratches = [job.scratch() for _ in range(1 if crewed else job.workers)]
        if crewed:
            self._crew_of(job, Task(0, 0, (0.0, 1.0, float(problem.falling))))[1](-1, [])
        else:
            job.compile((self._shared, self._scratches[0], self._data))

    def begin(self, task: Task) -> None:
        job = self.job
        assert job is not None
        self._stale, self._overwritten, self._virtual = Counter(), 0, 0.0
        within = self._events if job.problem.has_events else self._copies
        kind = self._replicas if job.trader is not None else within if self._phased else self._quanta
        self._steps = kind(job, task)

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while (steps := self._steps) is not None:
            self._steps = None  # if an exception (Ctrl-C) ends the step, its rows are lost but nothing hangs
            if next(steps, steps) is not steps and not self.closed:
                self._steps = steps
            if time.monotonic() > deadline:
                break
        return self._steps is None

    def measured(self) -> dict[str, Any]:
        """Staleness and lost updates of the latest task as row fields; empty before the first task."""
        updates = sum(self._stale.values())
        if not updates:
            return {}
        total = sum(stale * count for stale, count in self._stale.items())
        return {
            "staleness_mean": total / updates,
            "staleness_max": max(self._stale),
            "lost_updates": self._overwritten,
        }

    @property
    def staleness(self) -> dict[int, int]:
        return dict(sorted(self._stale.items()))

    def counts(self) -> Counts:
        """Counts of what the latest task's replicas sent, and its virtual seconds."""
        return super().counts().plus(Counts(virtual_seconds=self._virtual))

    def release(self, job: Job) -> None:
        if self.job is job:
            job.stop()
            self.job = self._steps = None
            self._shared = self._data = self._scratches = None

    def close(self) -> None:
        self.closed = True
        if self.job is not None:
            self.release(self.job)

    # ---- a task, step by step

    def _turn(self, job: Job, task: Task, worker: int, limit: int, shared: Any = None, crew: Any = None) -> Any:
        """Return a function that does a share of a worker's task, or of all of its ``crew``, at each call."""
        part = job.part(task, worker, limit)._replace(crew=crew)
        return job.problem.prepare(shared or self._shared, self._scratches[worker], self._data, part, task.step)

    def _seconds(self, job: Job, ticks: float) -> float:
        return ticks / job.workers * job.wire.row

    def _crew_of(self, job: Job, task: Task) -> tuple[Any, Callable[[int, list[int]], None]]:
        """The memory of workers that let others in within a row, and what has the kernel do some events of a chunk."""
        problem: Any = job.problem
        crew = problem.crew(job.workers, job.order, loads=self._window > 0)
        call, cells = self._turn(job, task, 0, NO_LIMIT, crew=crew), crew.events

        def play(chunk: int, events: list[int]) -> None:
            cells[CHUNK], cells[COUNT] = chunk, len(events)
            cells[FIRST : FIRST + len(events)] = events
            call()

        return crew, play

    def _events(self, job: Job, task: Task) -> Iterator[None]:
        """Workers that let others in within a row, one chunk of events at a time."""
        order: Any = job.order
        crew, play = self._crew_of(job, task)
        schedule = DelaySchedule(self._law, (job.seed, task.epoch, task.start), self._window)
        chunk = task.start
        while chunk < order.n_chunks and not job.control[STOP]:
            play(chunk, schedule.events(min(order.chunk, order.n_rows - chunk * order.chunk)))
            chunk = job.control[NEXT] = chunk + 1
            yield
        play(-1, schedule.events(None))
        self._stale, self._overwritten = schedule.staleness, int(crew.lost[0])
        self._virtual = self._seconds(job, schedule.now)

    def _copies(self, job: Job, task: Task) -> Iterator[None]:
        """Workers that let others in within an example, of problems whose kernels do whole ones: one example a step."""
        flat, copy = job.traded, job.traded.copy()  # the copy is the array but while an example is done in it
        shared = self._shared._replace(parameters=job.problem.replica(copy, job.flat))
        turns = [self._turn(job, task, worker, 1, shared) for worker in range(job.workers)]
        schedule = DelaySchedule(self._law, (job.seed, task.epoch, task.start), self._window)
        depths = np.zeros(len(flat) if self._window else 0, np.int64)  # updates that each number holds
        changes: dict[int, tuple[np.ndarray, ...]] = {}  # of each worker: where, and the numbers before and after
        loaded: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of each: what it has read again, and its depths
        while not schedule.ended:
            for event in schedule.events(1):
                worker, kind = divmod(event, EVENT_KINDS)
                if kind == READ:
                    if not turns[worker]():
                        schedule.retire(worker)
                        continue
                    where = job.problem.touched(self._scratches[worker], self._data)
                    where = np.flatnonzero(copy != flat) if where is None else where[copy[where] != flat[where]]
                    changes[worker] = where, flat[where], copy[where]
                    copy[where] = flat[where]
                elif kind == LOAD:
                    where = changes[worker][0]
                    loaded[worker] = flat[where], depths[where]
                else:
                    where, before, after = changes.pop(worker)
                    now = flat[where]
                    if self._window:
                        now, depth = loaded.pop(worker)
                        self._overwritten += int((depths[where] - depth).sum())
                        depths[where] = depth + 1
                    flat[where] = copy[where] = np.where(now == before, after, now + (after - before))
            yield
        self._stale, self._virtual = schedule.staleness, self._seconds(job, schedule.now)

    def _quanta(self, job: Job, task: Task) -> Iterator[None]:
        """Workers that let nobody in within a row: each does ``quantum`` rows in turn, one under ``round-robin``."""
        law, last = self._law, 0.0
        quantum = 1 if job.problem.discipline == "round-robin" else law.quantum
        turns = [self._turn(job, task, worker, quantum) for worker in range(job.workers)]
        times = law.times((job.seed, task.epoch, task.start))
        heap = [(float(worker), worker) for worker in range(job.workers)]
        while heap:
            now, worker = heapq.heappop(heap)
            rows = turns[worker]()
            last = max(last, now + rows * law.ticks)
            if rows == quantum:
                ticks = sum(itertools.islice(times, rows)) * law.ticks
                heapq.heappush(heap, (now + ticks + rows * law.wait, worker))
            self._virtual = self._seconds(job, last)
            yield

    def _replicas(self, job: Job, task: Task) -> Iterator[None]:
        """Workers that have replicas, one event of a replica or a server at a time."""
        trader = job.trader
        assert trader is not None
        replicas = Replicas(job, task, self._law, partial(self._turn, job, task))
        while replicas.advance():
            yield
        self._virtual = replicas.network.meet(trader.exchange.meeting(job.problem.size, trader.arrays))
        stale = enumerate(trader.arrays.get("staleness", ()))  # of pushes, if there are servers
        self._stale = +Counter({k: int(pushes) for k, pushes in stale})


# ---- delay laws


class Law:
    """A delay law, written as in ``TrainConfig.delay``, for a number of workers that it suffices for."""

    def __init__(self, text: str, workers: int) -> None:
        self.workers = workers
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

    @property
    def ended(self) -> bool:
        """Whether all workers have."""
        return not self._heap

    def retire(self, worker: int) -> None:
        """Let a worker end: it found no row to read."""
        self._heap = [each for each in self._heap if each[2] != worker]
        heapq.heapify(self._heap)

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


class Replicas:
    """Replicas in the course of a task.

    Events happen one at a time in the order of virtual time: a worker trains some rows, or begins a trade, or continues
    one. A trade waits either for a message or for another replica's end, so a waiting replica is retried only at those
    times.
    """

    def __init__(self, job: Job, task: Task, law: Law, turn: Callable[..., Callable[[], int]]) -> None:
        """``turn(worker, rows, shared)`` returns what trains so many rows of a worker's replica."""
        trader, count = job.trader, job.workers
        assert trader is not None
        self._exchange, self._arrays, period = trader.exchange, trader.arrays, trader.exchange.period
        self._law, self._times = law, law.times((job.seed, task.epoch, task.start))
        self._quantum = min(law.quantum, period)
        lengths = {self._quantum} | ({period % self._quantum} - {0} if period < NO_LIMIT else set())  # of one event
        self.network = Network(job.wire, self._arrays["counts"])
        self._waiting: dict[int, float] = {}  # replicas that wait, and since when
        self._due = [replica / count * job.wire.row for replica in range(count)]  # the time of each one's next event
        self._due.append(math.inf)  # and of the servers'
        self._lives = []
        for replica in range(count):
            w, shared = job.replica(job.shared(), task, replica)
            self._lives.append(self._life(replica, w, {rows: turn(replica, rows, shared) for rows in lengths}))

    def advance(self) -> bool:
        """Do the next event; return False if there is none."""
        network, due = self.network, self._due
        now = min(due)
        if now == math.inf:
            assert not self._waiting, "replicas wait for messages that nobody sends"
            return False
        replica = due.index(now)
        due[replica] = math.inf
        if replica == len(self._lives):
            network.serve(self._exchange, self._arrays)
        else:
            network.now[replica] = max(now, network.now[replica])
            if (since := self._waiting.pop(replica, None)) is not None:
                network.counts[replica, WAITED] += network.now[replica] - since
            waits = next(self._lives[replica], None)
            if waits:
                self._waiting[replica] = network.now[replica]
            elif waits is not None:
                due[replica] = network.now[replica]
            else:  # it has ended, and who waits notices
                for waiting in self._waiting:
                    self._retry(waiting, network.now[replica])
        due[-1] = min(due[-1], network.next_arrival(SERVERS))
        for waiting in self._waiting:
            if (when := network.next_arrival(waiting)) < due[waiting]:
                self._retry(waiting, when)
        return True

    def _retry(self, replica: int, when: float) -> None:
        self._due[replica] = min(self._due[replica], max(when, self.network.now[replica]))

    def _life(self, replica: int, w: np.ndarray, turns: dict[int, Callable[[], int]]) -> Iterator[bool]:
        """Train a replica to the end of the task, and trade it; yield after each event whether it has to wait."""
        network, exchange, law = self.network, self._exchange, self._law
        link = TimedLink(network, replica)
        since, rows, limit = 0, 0, 0  # rows since the last trade, and those of an event
        while rows == limit:
            limit = min(self._quantum, exchange.period - since)
            rows = turns[limit]()
            since += rows
            ticks = sum(itertools.islice(self._times, rows)) * law.ticks + rows * law.wait
            network.now[replica] += ticks / law.workers * network.wire.row
            yield False
            if rows < limit or since == exchange.period:
                side = exchange.end if rows < limit else exchange.trade
                for _ in side(w, self._arrays, link, since):
                    yield True
                since = 0
                yield False
        network.here[replica] = False


class Arrival(NamedTuple):
    """A message to a replica, or to the server of a shard."""

    sender: int
    message: Message
    shard: int  # whose request or answer it is


class Network:
    """Messages in transit between replicas; times are in virtual seconds.

    A replica has one line out and one in. A message waits until the line out is free, and arrives after the latency and
    its transmission time, or later if the receiver's line is still busy; a message to all is one message to each
    replica. The sender goes on at once. Servers answer as soon as a request arrives; they share the lines of the
    replicas on whose machines they are, and what stays on a machine takes no time.
    """

    def __init__(self, wire: Wire, counts: np.ndarray) -> None:  # of messages and bytes, (replicas, 3)
        replicas = len(counts)
        self.wire, self.here = wire, np.ones(replicas, bool)
        self.now = [0.0] * replicas  # time of each replica
        self.counts = counts
        self._out, self._in = [0.0] * replicas, [0.0] * replicas  # when the lines are free
        # For each replica, and for the servers: a heap of (time, number, arrival)
        self._arriving: list[list[tuple[float, int, Arrival]]] = [[] for _ in range(replicas + 1)]
        self._kept: list[Arrival] = []  # requests whose answers have to wait
        self._sent, self._latest = 0, 0.0

    def send(self, sender: int, to: int, message: Message, shard: int = NO_SHARD, asks: bool = False) -> None:
        """Schedule the arrival of a message, which may be one that ``asks`` the server of a shard there."""
        self._carry(sender, to, message, self.now[sender], SERVERS if asks else to, shard)

    def serve(self, served: Exchange, arrays: Arrays) -> None:
        """Handle the next request, and those that had to wait until something changed."""
        now, _, request = heapq.heappop(self._arriving[SERVERS])
        self._latest = now
        waiting, self._kept = [request, *self._kept], []
        for sender, message, shard in waiting:
            reply = served.serve(shard, arrays, sender, message)
            if reply is None:
                self._kept.append(Arrival(sender, message._replace(kind=PULL), shard))
            elif message.kind not in (PUSH, BYE):
                self._carry(shard % len(self.now), sender, reply, now, sender, shard)

    def _carry(self, sender: int, to: int, message: Message, now: float, queue: int, shard: int) -> None:
        """Occupy the lines with a message that is sent now, and queue it for the time when it arrives."""
        when = now
        self._sent += 1
        if sender != to:
            start = max(now, self._out[sender], self._in[to] - self.wire.latency)
            busy = message.size / self.wire.bandwidth
            self._out[sender] = start + busy
            self._in[to] = when = start + busy + self.wire.latency
            self.counts[sender, [MESSAGES, BYTES]] += 1, message.size
        heapq.heappush(self._arriving[queue], (when, self._sent, Arrival(sender, message, shard)))

    def next_arrival(self, to: int) -> float:
        """Time at which the next message for a replica or the servers arrives."""
        return self._arriving[to][0][0] if self._arriving[to] else math.inf

    def arrived(self, to: int) -> Arrival | None:
        """Return the next message that has arrived by the replica's time."""
        return None if self.next_arrival(to) > self.now[to] else heapq.heappop(self._arriving[to])[2]

    def senders(self, to: int) -> list[int]:
        """Replicas whose messages to a replica have not been received."""
        return [arrival.sender for _, _, arrival in self._arriving[to] if arrival.shard == NO_SHARD]

    def meet(self, steps: list[Step]) -> float:
        """Return the time at which replicas have sent at once, in steps, and waited for each other."""
        end = max(*self.now, self._latest)
        for step in steps:
            end += self.wire.latency + step.messages * step.size / self.wire.bandwidth
        return end


class TimedLink(Link):
    """A replica's link."""

    def __init__(self, network: Network, replica: int) -> None:
        super().__init__(replica, len(network.now))
        self._network = network

    def post(self, to: int, message: Message) -> bool:
        # A message in transit must not change.
        message = message._replace(values=message.values.copy(), indices=message.indices.copy())
        for receiver in np.flatnonzero(self._network.here).tolist() if to == ALL else [to]:
            if receiver != self.replica:
                self._network.send(self.replica, receiver, message)
        return True

    def ask(self, shard: int, request: Message) -> None:
        self._network.send(self.replica, shard % self.replicas, request, shard, asks=True)
        if request.kind in (PUSH, BYE):
            self._answers[shard] = NOTHING

    def receive(self) -> None:
        while (arrival := self._network.arrived(self.replica)) is not None:
            sender, message, shard = arrival
            if shard == NO_SHARD:
                self.inbox[sender].append(message)
            else:
                self._answers[shard] = message

    def here(self) -> np.ndarray:
        here = self._network.here.copy()
        here[self._network.senders(self.replica)] = True  # what they sent before they ended is still to come
        return here
