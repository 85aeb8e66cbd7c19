"""The link of a replica that is a machine: messages of an exchange, as notes between clusters.

Machine 0 holds all the parameters of a server. Shards on all machines would spread the traffic, 2 (P - 1) messages a
push on its one line, but every machine would then be one whose death ends the run; as it is only machine 0 is, which
leads anyway, and its checkpoint holds all there is. Use few machines and long pushes, or gossip, if its line is too
slow.
"""

from __future__ import annotations

import numpy as np

from hogwild.exchanges.trade import ALL, BYE, NOTHING, PUSH, Arrays, Counts, Exchange, Link, Message
from hogwild.machines.cluster import Cluster, Note


class MachineLink(Link):
    """The link of a replica that is a machine, for one task; a machine that has died is not replaced within it.

    The exchange numbers the task's members from 0, whoever has died before. A machine that has died and come back since
    the task began is not here: it takes part from the next task on.

    All shards of a server lie on machine 0, which serves requests as it receives them, in the order of each sender.

    Parameters
    ----------
    cluster : Cluster
    members : list of int
        The machines that take part in the task, in ascending order.
    task : int
        Its number.
    room : int
        Bytes that may be queued for a machine; more can be posted when it has taken some.
    exchange, arrays : Exchange, mapping
        The scheme and its arrays, if it may have servers.
    """

    def __init__(
        self,
        cluster: Cluster,
        members: list[int],
        task: int,
        room: int,
        exchange: Exchange | None,
        arrays: Arrays,
    ) -> None:
        super().__init__(members.index(cluster.number), len(members))
        self._cluster = cluster
        self._members = members
        self._task = task
        self._room = room
        self._exchange, self._arrays = exchange, arrays
        self._arrivals = cluster.arrivals[members]  # a copy
        self.counts = Counts()  # of what this machine has sent, and how long it has waited

    def here(self) -> np.ndarray:
        cluster, members = self._cluster, self._members
        here: np.ndarray = cluster.alive[members] & (cluster.arrivals[members] == self._arrivals)
        return here

    def post(self, to: int, message: Message) -> bool:
        if any(self._cluster.waiting(machine) > self._room for machine in self._receivers(to)):
            return False
        self.send(message, to)
        return True

    def send(self, message: Message, to: int, shard: int | None = None) -> None:
        """Send a message, whether or not there is room, or a request to the server of a shard, or its answer."""
        *numbers, values, indices = message
        self.tell({"kind": "trade", "message": [*map(int, numbers)], "shard": shard}, to, values, indices)

    def tell(self, note: Note, to: int = ALL, *arrays: np.ndarray) -> None:
        """Send a note about the task, and count it as a message."""
        receivers = self._receivers(to)
        self._cluster.tell(note | {"task": self._task}, receivers, *arrays)
        size = NOTHING.size + sum(array.nbytes for array in arrays)
        self.counts = self.counts.plus(Counts(len(receivers), len(receivers) * size))

    def _receivers(self, to: int) -> list[int]:
        here = self.here()
        return [self._members[k] for k in np.flatnonzero(here) if k != self.replica and to in (k, ALL)]

    def receive(self) -> None:
        for note in self._cluster.take_notes("trade", self._task):
            if note["sender"] not in self._members:
                continue
            sender = self._members.index(note["sender"])
            message = Message(*note["message"], *note["arrays"])
            shard = note["shard"]
            if shard is None:
                self.inbox[sender].append(message)
            elif not self._cluster.leads:
                self._answers[shard] = message
            elif (reply := self._serve(shard, sender, message)) is not NOTHING:
                self.send(reply, sender, shard)

    def _serve(self, shard: int, sender: int, request: Message) -> Message:
        assert self._exchange is not None
        reply = self._exchange.serve(shard, self._arrays, sender, request)
        assert reply is not None  # rules that have answers wait are refused between machines
        return reply

    def ask(self, shard: int, request: Message) -> None:
        if self._cluster.leads:
            self._answers[shard] = self._serve(shard, self.replica, request)
            return
        self.send(request, 0, shard)
        if request.kind in (PUSH, BYE):
            self._answers[shard] = NOTHING

    def answer(self, shard: int) -> Message | None:
        if not self._cluster.leads and self._cluster.waiting(self._members[0]) > self._room:
            self.receive()
            return None
        return super().answer(shard)
