"""Rotation, for completion: users stay on their machine, and blocks of items go round a ring of machines.

Users and items are cut into as many parts as there are machines, and an epoch has as many turns. In each turn machine p
works on the ratings of its users for the items that it holds; then it passes these, with their biases, to machine
p - 1 and takes those of machine p + 1 (Gemulla, Nijkamp, Haas, Sismanis 2011). No two machines ever hold the same item,
so nothing is averaged: with one worker a machine, P machines are to the last bit one machine that works on the same
tiles in the same order. An epoch begins with the items with which the last one has ended.

In an epoch a machine passes on (P - 1) / P of all items, however many ratings there are. At its end all others send
machine 0, which evaluates, their users and the items that they hold.

All need each other: a machine that is gone ends the run. A run that is asked to stop completes the epoch, since in the
middle of one machines are in different turns.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hogwild.errors import TrainingError
from hogwild.exchanges.trade import NOTHING, Counts, Message
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import ABORT, END, NEXT, STOP
from hogwild.machines.cluster import Cluster
from hogwild.machines.pool import Machines
from hogwild.machines.trading import MachineLink
from hogwild.problems.protocol import part_of

USERS, ITEMS = range(2)  # sides of the problem
NEEDED = "rotation needs every machine: resume from a checkpoint, with as many as there are"


class Ring(Machines):
    """Machines with a part of one array each (see :class:`hogwild.hosts.pool.Pool`)."""

    _problem: Any  # with two sides in ``parts``, whose rows are copied out and in: problems/completion/problem.py
    _rows: tuple[list[np.ndarray], list[np.ndarray]]  # users and items of each part
    _link: MachineLink

    def __init__(self, inner: Pool, cluster: Cluster) -> None:
        super().__init__(inner, cluster)
        self._task = Task(0, 0, (0.0, 0.0, 0.0))
        self._turn = 0
        self._working = self._over = self._failed = False

    def open(self, job: Job) -> None:
        super().open(job)
        self._problem = job.problem
        self._rows = self._problem.rows_of_parts(job.data(), job.order)

    @property
    def in_step(self) -> bool:
        """Whether all machines have the same array: no, each has its own part of it."""
        return False

    def own_counts(self) -> Counts:
        return self._link.counts

    def share(self, task: Task) -> tuple[int, int]:
        self._require_all()
        return super().share(task)

    def begin(self, task: Task) -> None:
        job = self._job()
        self._join(job)
        self._link = MachineLink(self.cluster, self._members, self._number, 0)
        self.reports = {}
        self._task = task
        self._turn = 0
        self._over = False
        self._go()

    def wait(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not self._over:
            seen, rest = self.cluster.news, max(until - time.monotonic(), 0.0)
            if self._working:
                if not self.inner.wait(rest):
                    if self.cluster.reasons:
                        self._job().stop()
                    return False
                if self.inner.closed or self.inner.job is None or self._job().control[ABORT]:
                    return True
            self._require_all()
            if self._working:
                self._worked()
            elif not self._taken():
                if not rest:
                    return False
                before = time.perf_counter()
                self.cluster.wait_for_news(seen, rest)
                self._link.waited_seconds += time.perf_counter() - before
        return True

    def _end(self) -> None:
        self._ended = self._ended or self._failed  # then the others hear why this machine leaves
        super()._end()

    # ---- a turn

    def _job(self) -> Job:
        job = self.inner.job
        assert job is not None
        return job

    def _items(self) -> int:
        """The part of the items that this machine has in this turn."""
        return int(part_of(self._link.replica, self._turn, self._task.epoch, self._problem.parts))

    def _go(self) -> None:
        """Have the workers do this turn, or the rest of it."""
        job = self._job()
        job.control[END] = job.order.n_chunks // self._problem.parts * (self._turn + 1)
        job.control[STOP] = 0
        self._working = True
        self.inner.begin(self._task)

    def _worked(self) -> None:
        """Go on when the workers stand still: with this turn if they were asked to stop, else pass the items on."""
        job, link = self._job(), self._link
        if job.control[NEXT] < job.control[END]:
            self._go()
            return
        self._working = False
        if self._turn + 1 < link.replicas:
            items = self._problem.copy_out(job.flat, ITEMS, self._rows[ITEMS][self._items()])
            link.send(Message(0, self._turn, 0, items), self._beside(-1))
        elif not self.cluster.leads:
            sides = (USERS, self._rows[USERS][link.replica]), (ITEMS, self._rows[ITEMS][self._items()])
            both = np.concatenate([self._problem.copy_out(job.flat, *side) for side in sides])
            rows, nonzeros = job.done()
            sent = link.counts.plus(Counts(1, NOTHING.size + both.nbytes))  # with this note
            link.tell({"kind": "done", "rows": rows, "nonzeros": nonzeros, "sent": [*sent]}, 0, both)

    def _taken(self) -> bool:
        """Take what the machine waits for, if it has come."""
        self._link.receive()
        if self._turn + 1 < self._link.replicas:
            return self._next_items()
        if self.cluster.leads:
            return self._brought_home()
        self._over = True
        return True

    def _next_items(self) -> bool:
        link, job = self._link, self._job()
        if not (inbox := link.inbox[self._beside(1)]):
            return False
        self._turn += 1
        self._put(self._beside(1), inbox.popleft().values, [(ITEMS, self._rows[ITEMS][self._items()])])
        job.control[NEXT] = job.order.n_chunks // self._problem.parts * self._turn + link.replica
        self._go()
        return True

    def _brought_home(self) -> bool:
        """Put together what all machines have (on machine 0)."""
        for note in self.cluster.take_notes("done", self._number):
            sender = self._members.index(note["sender"])
            items = int(part_of(sender, self._turn, self._task.epoch, self._problem.parts))
            sides = [(USERS, self._rows[USERS][sender]), (ITEMS, self._rows[ITEMS][items])]
            self._put(sender, note["array"].view(np.float32), sides)
            self.reports[note["sender"]] = note
        self._over = len(self.reports) == self._link.replicas - 1
        return self._over

    def _put(self, sender: int, values: np.ndarray, sides: list[tuple[int, np.ndarray]]) -> None:
        """Set what a machine has sent of rows of both sides."""
        flat, each = self._job().flat, self._problem.numbers
        wanted = each * sum(len(rows) for _, rows in sides)
        if len(values) != wanted:
            name = self.cluster.name(self._members[sender])
            raise TrainingError(f"{name} sent a block of {len(values):,} numbers, expected {wanted:,}")
        for side, rows in sides:
            self._problem.copy_in(flat, side, rows, values[: each * len(rows)])
            values = values[each * len(rows) :]

    def _beside(self, step: int) -> int:
        """The replica before (-1) or after (1) this one in the ring."""
        return (self._link.replica + step) % self._link.replicas

    def _require_all(self) -> None:
        """Raise TrainingError if a machine is gone."""
        for machine, why in [*self.cluster.reasons.items()]:
            self._failed = True
            raise TrainingError(f"{self.cluster.name(machine)} is gone: {why}; {NEEDED}")
