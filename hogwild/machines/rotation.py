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

from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.errors import TrainingError
from hogwild.exchanges.trade import NOTHING, Counts, Message
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import END, NEXT, STOP
from hogwild.machines.pool import Machines
from hogwild.machines.trading import MachineLink
from hogwild.problems.protocol import part_of

USERS, ITEMS = range(2)  # sides of the problem
NEEDED = "rotation needs every machine: resume from a checkpoint, with as many as there are"


class Ring(Machines):
    """Machines with a part of one array each (see :class:`hogwild.hosts.pool.Pool`)."""

    _problem: Any  # with two sides in ``parts``, whose rows are copied out and in: problems/completion/problem.py
    _rows: tuple[list[np.ndarray], list[np.ndarray]]  # users and items of each part

    def open(self, job: Job) -> None:
        super().open(job)
        self._problem = job.problem
        self._rows = self._problem.rows_of_parts(job.data(), job.order)

    def share(self, task: Task) -> tuple[int, int]:
        self.check()
        return super().share(task)

    def check(self) -> None:
        for machine, why in [*self.cluster.reasons.items()]:
            self._ended = True  # the others hear why this machine leaves
            raise TrainingError(f"{self.cluster.name(machine)} is gone: {why}; {NEEDED}")
        super().check()

    def course(self, job: Job, task: Task) -> Iterator[None]:
        self.in_step = False  # each machine has its own part of the array
        self.link = link = MachineLink(self.cluster, self.members, self.task, 0, None, {})
        me, last = link.replica, link.replicas - 1
        chunks = job.order.n_chunks // self._problem.parts
        for turn in range(link.replicas):
            if turn:
                inbox = link.inbox[(me + 1) % link.replicas]
                while not inbox:
                    yield
                    link.receive()
                self._put(job, inbox.popleft().values, self._held(me, turn, task)[1:])
                job.control[NEXT] = chunks * turn + me
            job.control[END] = chunks * (turn + 1)
            while job.control[NEXT] < job.control[END]:  # also if they were asked to stop
                job.control[STOP] = 0
                self.work(task)
                yield
                while self._working:
                    yield
            if turn < last:
                items = self._problem.copy_out(job.flat, *self._held(me, turn, task)[1])
                link.send(Message(0, turn, 0, items), (me - 1) % link.replicas)
        if not self.cluster.leads:
            both = np.concatenate([self._problem.copy_out(job.flat, *side) for side in self._held(me, last, task)])
            sent = link.counts.plus(Counts(1, NOTHING.size + both.nbytes))  # with this note
            link.tell({"kind": "done", "done": job.done(), "sent": sent}, 0, both)
            return
        while len(self.reports) < last:  # put together what all machines have
            yield
            for note in self.cluster.take_notes("done", self.task):
                sender = self.members.index(note["sender"])
                self._put(job, note["arrays"][0], self._held(sender, last, task))
                self.reports[note["sender"]] = note

    def _held(self, machine: int, turn: int, task: Task) -> list[tuple[int, np.ndarray]]:
        """The users and the items that a machine has in a turn, each with its side of the problem."""
        users, items = self._rows
        return [(USERS, users[machine]), (ITEMS, items[part_of(machine, turn, task.epoch, self._problem.parts)])]

    def _put(self, job: Job, values: np.ndarray, sides: list[tuple[int, np.ndarray]]) -> None:
        """Set what a machine has sent of rows of both sides."""
        for side, rows in sides:
            size = self._problem.numbers * len(rows)
            self._problem.copy_in(job.flat, side, rows, values[:size])
            values = values[size:]
