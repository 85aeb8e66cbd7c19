"""Virtual replicas that trade: each trains until its next trade, and a waiting one continues when messages arrive.

Events happen one at a time in the order of virtual time: a replica trains some rows, begins a trade, or continues one.
A trade waits either for a message or for another replica's end, so a waiting replica is retried only at those times.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hogwild.exchanges.late import Late, overlaps
from hogwild.exchanges.replicas import take
from hogwild.exchanges.trade import Counts, Served
from hogwild.hosts.delays import Law
from hogwild.hosts.job import Job, Task
from hogwild.hosts.timed import Network, TimedLink
from hogwild.kernels.control import NO_LIMIT
from hogwild.problems.work import Shared


class Replicated:
    """A task in which every worker has a replica (a course of ``simulator.py``)."""

    lost = 0

    def __init__(self, job: Job, shared: Shared, scratches: list[Any], data: Any, task: Task, law: Law) -> None:
        assert job.exchange is not None
        self._job, self._law, self._exchange, self._arrays = job, law, job.exchange, job.arrays("exchange")
        self._network = Network(job.workers, job.wire)
        self._links = [TimedLink(self._network, replica) for replica in range(job.workers)]
        self._mine = [take(job.flat, self._arrays, replica, task.step[0]) for replica in range(job.workers)]
        quantum = min(law.quantum, self._exchange.period)
        rest = 0 if self._exchange.period == NO_LIMIT else self._exchange.period % quantum
        self._turns: list[dict[int, Callable[[], int]]] = []
        for replica, (mine, scratch) in enumerate(zip(self._mine, scratches)):
            own = shared._replace(parameters=job.problem.parameters(mine))
            parts = {rows: job.part(task, replica, rows) for rows in {quantum, rest} - {0}}
            self._turns.append(
                {rows: job.problem.prepare(own, scratch, data, part, task.step) for rows, part in parts.items()}
            )
        self._quantum, self._since = quantum, [0] * job.workers  # rows since the last trade
        self._times = law.times((job.seed, task.epoch, task.start))
        self._trades: list[Iterator[None] | None] = [None] * job.workers
        self._late = [Late() for _ in range(job.workers)]
        self._waiting: dict[int, float] = {}  # replicas that wait, and since when
        self._leaving: set[int] = set()  # replicas that have done all their rows
        self._events: list[tuple[float, int]] = []
        # Times of each replica's event, and of the servers' next one; any other is out of date.
        self._due: list[float | None] = [None] * (job.workers + 1)
        for replica in range(job.workers):
            self._push(replica, self._seconds(replica))

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
        now, replica = heapq.heappop(self._events)
        if now == self._due[replica]:
            self._due[replica] = None
            if replica < self._law.workers:
                network.now[replica] = max(now, network.now[replica])
            if replica == self._law.workers:
                self._serve()
            elif self._trades[replica] is not None:
                self._go_on(replica)
            elif replica in self._leaving:
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
        exchange, network = self._exchange, self._network
        assert isinstance(exchange, Served)
        network.serve(exchange, self._arrays)
        self._wake()

    def _train(self, replica: int) -> None:
        """Train the rows until the replica's next trade, or one quantum of them."""
        period, network = self._exchange.period, self._network
        asked = min(self._quantum, period - self._since[replica])
        rows = self._turns[replica][asked]()
        ticks = sum(itertools.islice(self._times, rows)) * self._law.ticks[replica] + rows * self._law.wait
        network.now[replica] += self._seconds(ticks)
        self._since[replica] += rows
        about = self._mine[replica], self._arrays, self._links[replica], self._since[replica]
        if rows < asked:
            self._leaving.add(replica)
            self._trades[replica] = self._late[replica].complete(self._exchange.end(*about))
        elif self._since[replica] == period:
            trade = self._exchange.trade(*about)
            self._trades[replica] = self._late[replica].begin(trade) if overlaps(self._exchange) else trade
            self._since[replica] = 0
        elif self._late[replica].under_way:
            self._late[replica].go_on()
            self._wake()
        self._push(replica, network.now[replica])

    def _go_on(self, replica: int) -> None:
        """Begin a trade, or continue it."""
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
