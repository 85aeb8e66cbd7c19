"""The link of a replica that is a machine, for one task.

The exchange numbers the task's members from 0, whoever has died before. A frame says whether its sender's workers had
done their share when it was sent; since frames of one sender arrive in order, everybody sees the same.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hogwild.exchanges.trade import ALL, Counts, Message
from hogwild.machines.cluster import Cluster
from hogwild.machines.frames import TRADE, Frame

ROOM = 64 << 20  # bytes that may be queued for a machine


class MachineLink:
    """See :class:`hogwild.exchanges.trade.Link`."""

    replaced = False  # a machine that has died is not replaced within a task

    def __init__(self, cluster: Cluster, members: list[int], task: int, room: int) -> None:
        self._cluster, self._members, self._task = cluster, members, task
        self._room = max(ROOM, room)
        self.replica, self.replicas = members.index(cluster.number), len(members)
        self.inbox: list[deque[Message]] = [deque() for _ in members]
        self.asked: dict[int, int] = {}
        self.ended = False  # whether this machine's workers have done their share
        self._ended_by = np.full(len(members), np.iinfo(np.int64).max)  # the first round of each after its share
        self._messages = self._bytes = 0
        self.waited_seconds = 0.0

    @property
    def counts(self) -> Counts:
        """Counts of what this machine has sent."""
        return Counts(self._messages, self._bytes, self.waited_seconds)

    def all_ended(self, clock: int) -> bool:
        """Whether all that are still there had done their share when they took part in the round of that clock."""
        alive = self._cluster.alive[self._members]
        others = np.arange(self.replicas) != self.replica
        return bool((self._ended_by[alive & others] <= clock).all())

    def post(self, to: int, message: Message) -> bool:
        receivers = [k for k in range(self.replicas) if k != self.replica] if to == ALL else [to]
        receivers = [self._members[k] for k in receivers if self._cluster.alive[self._members[k]]]
        if any(self._cluster.waiting(machine) > self._room for machine in receivers):
            return False
        message = message._replace(values=message.values.copy(), indices=message.indices.copy())
        for machine in receivers:
            self._cluster.send(machine, Frame(TRADE, self._task, int(self.ended), message))
            self._messages, self._bytes = self._messages + 1, self._bytes + message.size
        return True

    def receive(self) -> None:
        for machine, frame in self._cluster.trades(self._task):
            if machine not in self._members:
                continue
            sender = self._members.index(machine)
            if frame.ended:
                self._ended_by[sender] = min(self._ended_by[sender], frame.message.clock)
            self.inbox[sender].append(frame.message)

    def here(self) -> np.ndarray:
        here: np.ndarray = self._cluster.alive[self._members].copy()
        return here

    def ask(self, shard: int, request: Message) -> int:
        raise NotImplementedError  # exchanges with servers are refused

    def answer(self, ticket: int) -> Message | None:
        raise NotImplementedError
