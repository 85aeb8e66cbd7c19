"""The link of a replica that is a machine, for one task.

The exchange numbers the task's members from 0, whoever has died before. A frame says whether its sender's workers had
done their share when it was sent; since frames of one sender arrive in order, everybody sees the same. A machine that
has died and come back since the task began is not here: it takes part from the next task on.

All shards of a server lie on machine 0, which serves requests as it receives them, in the order of each sender.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hogwild.exchanges.link import Serve
from hogwild.exchanges.trade import ALL, BYE, NOTHING, PUSH, Counts, Message
from hogwild.machines.cluster import Cluster
from hogwild.machines.frames import TRADE, Frame

ROOM = 64 << 20  # bytes that may be queued for a machine


class MachineLink:
    """See :class:`hogwild.exchanges.trade.Link`.

    Parameters
    ----------
    cluster : Cluster
    members : list of int
        The machines that take part in the task, in ascending order.
    task : int
        Its number.
    room : int
        Bytes that may be queued for a machine; more can be posted when it has taken some.
    serve : callable, optional
        What the server does with a request, for a scheme that has one; machine 0 calls it.
    """

    replaced = False  # a machine that has died is not replaced within a task

    def __init__(self, cluster: Cluster, members: list[int], task: int, room: int, serve: Serve | None = None) -> None:
        self._cluster, self._members, self._task, self._room, self._serve = cluster, members, task, room, serve
        self._came = cluster.came[members]  # a copy
        self.replica, self.replicas = members.index(cluster.number), len(members)
        self.inbox: list[deque[Message]] = [deque() for _ in members]
        self.asked: dict[int, int] = {}
        self._tickets, self._unanswered = 0, deque[int]()
        self._answers: dict[int, Message] = {}
        self.ended = False  # whether this machine's workers have done their share
        self._ended_by = np.full(len(members), np.iinfo(np.int64).max)  # the first round of each after its share
        self._messages = self._bytes = 0
        self.waited_seconds = 0.0

    @property
    def serves(self) -> bool:
        """Whether other machines ask this one."""
        return self._serve is not None and self._cluster.leads

    @property
    def counts(self) -> Counts:
        """Counts of what this machine has sent."""
        return Counts(self._messages, self._bytes, self.waited_seconds)

    def all_ended(self, clock: int) -> bool:
        """Whether all that are still there had done their share when they took part in the round of that clock."""
        others = np.arange(self.replicas) != self.replica
        return bool((self._ended_by[self.here() & others] <= clock).all())

    def here(self) -> np.ndarray:
        here: np.ndarray = self._cluster.alive[self._members] & (self._cluster.came[self._members] == self._came)
        return here

    def post(self, to: int, message: Message) -> bool:
        receivers = self._receivers(to)
        if any(self._cluster.waiting(machine) > self._room for machine in receivers):
            return False
        message = message._replace(values=message.values.copy(), indices=message.indices.copy())
        self.send(Frame(TRADE, self._task, int(self.ended), message), to)
        return True

    def send(self, frame: Frame, to: int = ALL) -> None:
        """Send a frame, whose arrays must not be written to afterwards, and count it."""
        for machine in self._receivers(to):
            self._cluster.send(machine, frame)
            self._messages, self._bytes = self._messages + 1, self._bytes + frame.message.size

    def _receivers(self, to: int) -> list[int]:
        here = self.here()
        return [self._members[k] for k in np.flatnonzero(here) if k != self.replica and to in (k, ALL)]

    def receive(self) -> None:
        for machine, frame in self._cluster.trades(self._task):
            if machine not in self._members:
                continue
            sender = self._members.index(machine)
            if frame.ended:
                self._ended_by[sender] = min(self._ended_by[sender], frame.message.clock)
            if self.serves:
                self._answer(sender, frame.message)
            elif self._serve is not None:
                if self._unanswered:
                    self._answers[self._unanswered.popleft()] = frame.message
            else:
                self.inbox[sender].append(frame.message)

    def _answer(self, sender: int, request: Message) -> None:
        """Serve a request of another machine."""
        assert self._serve is not None
        reply = self._serve(request.step, sender, request)
        if request.kind not in (PUSH, BYE):
            assert reply is not None  # rules that have answers wait are refused between machines
            self.send(Frame(TRADE, self._task, message=reply), sender)

    def ask(self, shard: int, request: Message) -> int:
        assert self._serve is not None
        self._tickets += 1
        self.asked[self._tickets] = shard
        if self.serves:
            reply = self._serve(shard, self.replica, request)
            assert reply is not None
            self._answers[self._tickets] = reply
        else:
            self.send(Frame(TRADE, self._task, message=request._replace(step=shard)), 0)
            if request.kind in (PUSH, BYE):
                self._answers[self._tickets] = NOTHING
            else:
                self._unanswered.append(self._tickets)
        return self._tickets

    def answer(self, ticket: int) -> Message | None:
        self.receive()
        if ticket not in self._answers or (not self.serves and self._cluster.waiting(self._members[0]) > self._room):
            return None
        del self.asked[ticket]
        return self._answers.pop(ticket)
