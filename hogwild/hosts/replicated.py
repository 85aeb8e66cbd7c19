"""Virtual replicas that trade: each trains until its next trade, and a waiting one continues when messages arrive.

Events happen one at a time in the order of virtual time: a worker trains some rows, or the first of a replica's workers
begins a trade, or continues one. A trade waits either for a message or for another replica's end, so a waiting replica
is retried only at those times. The others of a group train on meanwhile; no event is shorter than a row, so what they
lose by racing within one is not seen.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hogwild.exchanges.late import Late, looks, overlaps
from hogwild.exchanges.trade import Counts, Served
from hogwild.hosts.delays import Law
from hogwild.hosts.job import Job, Task
from hogwild.hosts.timed import Network, TimedLink
from hogwild.kernels.control import NO_LIMIT
from hogwild.problems.work import Shared


class Replicated:
    """A task of workers that have replicas (a course of ``simulator.py``)."""

    lost = 0

    def __init__(self, job: Job, shared: Shared, scratches: list[Any], data: Any, task: Task, law: Law) -> None:
        assert job.exchange is not None
        self._job, self._law, self._exchange, self._arrays = job, law, job.exchange, job.arrays("exchange")
        self._group, count = job.group, job.workers // job.group
        self._network = Network(count, job.wire)
        self._links = [TimedLink(self._network, replica) for replica in range(count)]
        self._raced = [job.replica(replica, task.step[0]) for replica in range(count)]
        self._counted = [job.counted(replica) for replica in range(count)]
        self._limit = looks(self._exchange, job.group) if job.group > 1 else self._exchange.period
        quantum = min(law.quantum, self._limit)
        rest = 0 if self._limit >= NO_LIMIT // job.group else self._limit % quantum
        self._turns: list[dict[int, Callable[[], int]]] = []
        for worker, scratch in enumerate(scratches):
            own = job.seen(shared, self._raced[worker // job.group])
            parts = {rows: job.part(task, worker, rows) for rows in {quantum, rest} - {0}}
            self._turns.append(
                {rows: job.problem.prepare(own, scratch, data, part, task.step) for rows, part in parts.items()}
            )
        self._quantum, self._since = quantum, [0] * job.workers  # rows since the last look at what is due
        self._times = law.times((job.seed, task.epoch, task.start))
        self._trades: list[Iterator[None] | None] = [None] * count
        self._late = [Late() for _ in range(count)]
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
        return self._network.counts.plus(Counts(virtual_seconds=max(self._network.now))).plus(self._job.left_out())

    def compile(self) -> None:
        """Do nothing: the pool has compiled the kernel."""

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
        asked = min(self._quantum, self._limit - self._since[worker])
        rows = self._turns[worker][asked]()
        self._since[worker] += rows
        if rows < asked:
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
        network, exchange, late = self._network, self._exchange, self._late[replica]
        worker, ours = replica * self._group, self._raced[replica].ours
        if worker not in self._trained:
            network.now[replica] += self._train(worker)
        trained, link, counted = worker in self._trained, self._links[replica], self._counted[replica]
        if self._trained.issuperset(range(worker, worker + self._group)):
            self._leaving.add(replica)
            rest = counted.untraded()
            end = self._raced[replica].traded(lambda: exchange.end(ours, self._arrays, link, rest))
            self._trades[replica] = late.complete(end)
        elif (self._since[worker] == self._limit or trained) and (rows := counted.untraded()) >= exchange.period:
            counted.traded[0] += rows
            trade = self._raced[replica].traded(lambda: exchange.trade(ours, self._arrays, link, rows))
            self._trades[replica] = late.begin(trade) if overlaps(exchange) else trade
        elif late.under_way:
            late.go_on()
            self._wake()
        if self._since[worker] == self._limit:
            self._since[worker] = 0
        if not trained or self._trades[replica] is not None:
            self._push(worker, network.now[replica])

    def _go_on(self, replica: int) -> None:
        """Begin a trade, or continue it."""
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
