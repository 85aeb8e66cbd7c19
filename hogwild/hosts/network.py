"""Virtual replicas that trade, and the network between them, whose messages take virtual time.

Events happen one at a time in the order of virtual time: a worker trains some rows, or the first of a replica's workers
begins a trade, or continues one. A trade waits either for a message or for another replica's end, so a waiting replica
is retried only at those times. The others of a group train on meanwhile; no event is shorter than a row, so what they
lose by racing within one is not seen.

A replica has one line out and one in. A message waits until the line out is free, and arrives after the latency and its
transmission time, or later if the receiver's line is still busy; a message to all is one message to each replica. The
sender goes on at once. Servers answer as soon as a request arrives; they share the lines of the replicas on whose
machines they are, and what stays on a machine takes no time.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hogwild.exchanges import replicas
from hogwild.exchanges.trade import ALL, BYE, NOTHING, PULL, PUSH, Arrays, Counts, Message, Served, Step
from hogwild.exchanges.trader import Raced
from hogwild.hosts.delays import Law
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import LINE, NO_LIMIT, ROWS, WORKERS
from hogwild.methods import Wire
from hogwild.problems.protocol import NO_GUARDS, Shared


class Replicated:
    """A task of workers that have replicas (a course of ``simulator.py``)."""

    lost = 0

    def __init__(self, job: Job, shared: Shared, scratches: list[Any], data: Any, task: Task, law: Law) -> None:
        trader = job.trader
        assert trader is not None
        self._job, self._law, self._trader = job, law, trader
        self._exchange, self._arrays = trader.exchange, trader.arrays
        self._group, count = job.group, job.workers // job.group
        self._network = Network(count, job.wire)
        self._links = [TimedLink(self._network, replica) for replica in range(count)]
        self._replicas = [replicas.take(job.flat, self._arrays, replica, task.step[0]) for replica in range(count)]
        self._raced = [self._copied(replica) for replica in self._replicas] if self._group > 1 else []
        self._traded = [0] * count  # rows of each up to its last trade
        self._limit = -(-self._exchange.period // self._group)  # rows of a leader between two looks at what is due
        quantum = min(law.quantum, self._limit)
        rest = 0 if self._limit >= NO_LIMIT // self._group else self._limit % quantum
        self._turns: list[dict[int, Callable[[], int]]] = []
        for worker, scratch in enumerate(scratches):
            replica = worker // self._group
            trained = self._raced[replica].mine if self._raced else self._replicas[replica]
            written = shared._replace(parameters=job.problem.parameters(trained))
            parts = {rows: job.part(task, worker, rows) for rows in {quantum, rest} - {0}}
            self._turns.append(
                {rows: job.problem.prepare(written, scratch, data, part, task.step) for rows, part in parts.items()}
            )
        self._quantum, self._since = quantum, [0] * job.workers  # rows since the last look at what is due
        self._times = law.times((job.seed, task.epoch, task.start))
        self._trades: list[Iterator[None] | None] = [None] * count
        self._waiting: dict[int, float] = {}  # replicas that wait, and since when
        self._trained: set[int] = set()  # workers that have done all their rows
        self._leaving: set[int] = set()  # replicas whose workers all have
        self._events: list[tuple[float, int]] = []
        # Times of each worker's event, and of the servers' next one; any other is out of date.
        self._due: list[float | None] = [None] * (job.workers + 1)
        for worker in range(job.workers):
            self._push(worker, self._seconds(worker))

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
        now, worker = heapq.heappop(self._events)
        if now == self._due[worker]:
            self._due[worker] = None
            replica, rank = divmod(worker, self._group)
            if worker < self._law.workers and rank == 0:
                network.now[replica] = max(now, network.now[replica])
            if worker == self._law.workers:
                self._serve()
            elif rank:
                self._help(worker, now)
            elif self._trades[replica] is not None:
                self._go_on(replica)
            elif replica in self._leaving:
                self._leave(replica)
            else:
                self._lead(replica)
        if not self._events:
            assert not self._waiting, "replicas wait for messages that nobody sends"
            network.meet(self._exchange.meeting(self._job.problem.size, self._arrays))
        return bool(self._events)

    def _copied(self, replica: np.ndarray) -> Raced:
        """What the workers of a group race on; no lock is needed, since events never overlap."""
        state, shrinks = self._job.state, self._exchange.shrinks
        return Raced(replica.copy(), replica, replica.copy(), NO_GUARDS, state["locks"], state["control"], shrinks)

    def _seconds(self, ticks: float) -> float:
        return ticks / self._law.workers * self._job.wire.row

    def _push(self, worker: int, when: float) -> None:
        """Schedule a worker's event at ``when``, unless it has an earlier one."""
        due = self._due[worker]
        if due is None or when < due:
            self._due[worker] = when
            heapq.heappush(self._events, (when, worker))

    def _serve(self) -> None:
        """Let a server handle the next request."""
        exchange, network = self._exchange, self._network
        assert isinstance(exchange, Served)
        network.serve(exchange, self._arrays)
        self._wake()

    def _train(self, worker: int) -> float:
        """Train the rows until a worker's next look at what is due, or one quantum of them; return their seconds."""
        limit = min(self._quantum, self._limit - self._since[worker])
        rows = self._turns[worker][limit]()
        self._since[worker] += rows
        if rows < limit:
            self._trained.add(worker)
        ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks[worker] + rows * self._law.wait
        return self._seconds(ticks)

    def _help(self, worker: int, now: float) -> None:
        """Let a worker train that does not trade."""
        now += self._train(worker)
        self._since[worker] = 0
        replica = worker // self._group
        leader = replica * self._group
        if worker not in self._trained:
            self._push(worker, now)
        if leader in self._trained and self._trades[replica] is None:
            self._push(leader, max(now, self._network.now[replica]))

    def _lead(self, replica: int) -> None:
        """Let the worker that trades a replica train, and trade if that is due."""
        network, exchange = self._network, self._exchange
        worker = replica * self._group
        if worker not in self._trained:
            network.now[replica] += self._train(worker)
        trained = worker in self._trained
        if self._trained.issuperset(range(worker, worker + self._group)):
            self._leaving.add(replica)
            self._trade(replica, exchange.end)
        elif (self._since[worker] == self._limit or trained) and self._untraded(replica) >= exchange.period:
            self._trade(replica, exchange.trade)
        if self._since[worker] == self._limit:
            self._since[worker] = 0
        if not trained or self._trades[replica] is not None:
            self._push(worker, network.now[replica])

    def _untraded(self, replica: int) -> int:
        """Rows that a replica's workers have done since its last trade."""
        done = self._job.control[WORKERS:].reshape(-1, LINE)[:, ROWS]
        return int(done.reshape(-1, self._group)[replica].sum()) - self._traded[replica]

    def _trade(self, replica: int, side: Callable[[np.ndarray, Arrays, TimedLink, int], Iterator[None]]) -> None:
        """Begin a replica's side of a trade."""
        rows, array, link = self._untraded(replica), self._replicas[replica], self._links[replica]
        self._traded[replica] += rows
        if self._raced:
            self._trades[replica] = self._raced[replica].traded(lambda: side(array, self._arrays, link, rows))
        else:
            self._trades[replica] = side(array, self._arrays, link, rows)

    def _go_on(self, replica: int) -> None:
        """Continue a trade."""
        network, trade = self._network, self._trades[replica]
        assert trade is not None
        if (since := self._waiting.pop(replica, None)) is not None:
            network.counts = network.counts.plus(Counts(waited_seconds=network.now[replica] - since))
        if next(trade, trade) is trade:
            self._trades[replica] = None
            self._push(replica * self._group, network.now[replica])
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
                self._push(waiting * self._group, max(when, network.now[waiting]))

    def _leave(self, replica: int) -> None:
        """End a replica's training; those that wait for it notice."""
        network = self._network
        network.here[replica] = False
        for waiting in self._waiting:
            self._push(waiting * self._group, max(network.now[replica], network.now[waiting]))


class Request(NamedTuple):
    """A request to the server of a shard."""

    shard: int
    sender: int
    ticket: int
    message: Message


class Network:
    """Messages in transit between replicas; times are in virtual seconds."""

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

    def serve(self, served: Served, arrays: Arrays) -> None:
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


class TimedLink:
    """A replica's link (see :class:`hogwild.exchanges.trade.Link`)."""

    replaced = False  # nobody dies here

    def __init__(self, network: Network, replica: int) -> None:
        self._network, self.replica, self.replicas = network, replica, len(network.now)
        self.inbox: list[deque[Message]] = [deque() for _ in range(self.replicas)]
        self.asked, self._answers, self._tickets = dict[int, int](), dict[int, Message](), 0

    def post(self, to: int, message: Message) -> bool:
        network = self._network
        receivers = np.flatnonzero(network.here) if to == ALL else [to]
        # A message in transit must not change.
        message = message._replace(values=message.values.copy(), indices=message.indices.copy())
        for receiver in receivers:
            if receiver != self.replica:
                network.send(self.replica, int(receiver), message)
        return True

    def ask(self, shard: int, request: Message) -> int:
        self._tickets += 1
        self._network.ask(Request(shard, self.replica, self._tickets, request))
        self.asked[self._tickets] = shard
        if request.kind in (PUSH, BYE):
            self._answers[self._tickets] = NOTHING
        return self._tickets

    def answer(self, ticket: int) -> Message | None:
        self.receive()
        if ticket in self._answers:
            del self.asked[ticket]
        return self._answers.pop(ticket, None)

    def receive(self) -> None:
        while (found := self._network.arrived(self.replica)) is not None:
            sender, message, ticket = found
            if ticket:
                self._answers[ticket] = message
            else:
                self.inbox[sender].append(message)

    def here(self) -> np.ndarray:
        here = self._network.here.copy()
        here[self._network.senders(self.replica)] = True  # what they sent before they ended is still to come
        return here
