"""Links that real workers feel: on one machine, messages take the time that a network would.

The model is that of the simulator's links (``timed.py``), by the machine's clock. Who sends occupies its own line out
and the receiver's line in, and writes into the header when the message arrives. It lies in the sender's log until then,
so one in transit survives both its sender and its receiver. The lines are of all replicas, hence a lock; who finds it
taken tries again.

As in ``direct.py`` who asks a server does its work, but only once the request has arrived, and it has the answer once
that has travelled back. A replica that asks and trains on does both when it next looks, so a push may be applied later
than it arrives, never sooner. Where replicas share cores, so do their messages: a receiver that does not run when a
message arrives receives it later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hogwild.exchanges.direct import START, DirectLink, Serve
from hogwild.exchanges.trade import BYE, HEADER, NOTHING, PUSH, Arrays, Message, Spec
from hogwild.hosts.timed import carried
from hogwild.kernels.locks import release, try_acquire
from hogwild.methods import Wire

OUT, IN = range(2)  # a replica's lines


@dataclass
class Trip:
    """A request on its way to a server, and its answer on the way back; times are in nanoseconds."""

    shard: int
    request: Message
    due: int | None = None  # when it arrives; None: the lines were locked; 0: it is there, and has to wait
    reply: Message | None = None
    back: int | None = None  # when the answer arrives


class Slowed(DirectLink):
    """A replica's link (see :class:`hogwild.exchanges.trade.Link`)."""

    def __init__(self, arrays: Arrays, replica: int, serve: Serve | None = None, wire: Wire | None = None) -> None:
        super().__init__(arrays, replica, serve)
        self._wire, self._header = wire or Wire(), START + 8 * self.replicas
        self._next = math.inf  # when the first message that lies in a log arrives
        self._trips, self._answers = dict[int, Trip](), dict[int, Message]()

    @staticmethod
    def spec(replicas: int, room: int, shards: int = 0) -> Spec:
        most = room // START + 1  # messages, for a header is the least that one takes
        return DirectLink.spec(replicas, room + most * 8 * replicas if room else 0, shards) | {
            "lines": ((replicas, 2), np.float64),  # when they are free
            "turn": ((1,), np.int32),  # the lock of the lines
        }

    @staticmethod
    def reset(arrays: Arrays) -> None:
        DirectLink.reset(arrays)
        arrays["lines"][:] = arrays["turn"][:] = 0

    @staticmethod
    def free(arrays: Arrays, replica: int) -> None:
        DirectLink.free(arrays, replica)
        if arrays["turn"][0] == replica + 1:
            release(arrays["turn"], 0)

    def here(self) -> np.ndarray:
        here = super().here()  # first: who has ended sends no more
        return here | (self._arrays["read"][self.replica] < self._arrays["written"])

    def look(self) -> float:
        dues = [due for trip in self._trips.values() if (due := trip.due if trip.reply is None else trip.back)]
        rest = 1e-9 * (min(self._next, *dues, math.inf) - time.monotonic_ns())
        return max(min(rest, self._wire.latency or math.inf), 0.0)  # what is sent meanwhile takes the latency

    def receive(self) -> None:
        self._next = math.inf
        super().receive()

    def _arrived(self, header: np.ndarray) -> bool:
        due = int(header[HEADER + self.replica])
        if due > time.monotonic_ns():
            self._next = min(self._next, due)
            return False
        return True

    def _due(self, receivers: Sequence[int] | np.ndarray, size: int) -> Sequence[int] | None:
        if not try_acquire(self._arrays["turn"], 0, self.replica + 1):
            return None
        dues = [0] * self.replicas
        for receiver in receivers:
            dues[receiver] = self._carry(self.replica, int(receiver), size)
        release(self._arrays["turn"], 0)
        return dues

    def _carry(self, sender: int, to: int, size: int) -> int:
        """Occupy the lines with a message that is sent now; return when it arrives."""
        if sender == to:
            return time.monotonic_ns()
        lines = self._arrays["lines"]
        free = carried(self._wire, size, time.monotonic(), float(lines[sender, OUT]), float(lines[to, IN]))
        lines[sender, OUT], lines[to, IN] = free
        return math.ceil(1e9 * free[1])

    # ---- requests to servers

    def ask(self, shard: int, request: Message) -> int:
        self._tickets += 1
        self.asked[self._tickets], self._trips[self._tickets] = shard, Trip(shard, request)
        self._sent(shard, request)
        if request.kind == PUSH:  # nobody waits until it has arrived
            self._answers[self._tickets] = NOTHING
        self._go_on()
        return self._tickets

    def answer(self, ticket: int) -> Message | None:
        self._go_on()
        if ticket in self._answers:
            del self.asked[ticket]
        return self._answers.pop(ticket, None)

    def _go_on(self) -> None:
        """Send requests, serve those that have arrived, in the order that they were made in, and receive answers."""
        for trip in self._trips.values():
            if trip.due is None:
                trip.due = self._travel(self.replica, trip.shard % self.replicas, trip.request)
            if trip.due is None:
                break
        unserved = set[int]()
        for ticket, trip in [*self._trips.items()]:
            if trip.reply is None and trip.shard not in unserved:
                self._visit(trip)
            if trip.reply is None:
                unserved.add(trip.shard)
            elif self._returned(trip):
                del self._trips[ticket]
                if trip.request.kind != PUSH:
                    self._answers[ticket] = trip.reply

    def _visit(self, trip: Trip) -> None:
        """Serve a request if it has arrived."""
        if trip.due is not None and trip.due <= time.monotonic_ns():
            trip.request, trip.reply = self._served(trip.shard, trip.request)
            trip.due = 0

    def _returned(self, trip: Trip) -> bool:
        """Whether the answer of a server has arrived, if there is one."""
        assert trip.reply is not None
        if trip.request.kind in (PUSH, BYE):
            return True
        if trip.back is None:
            trip.back = self._travel(trip.shard % self.replicas, self.replica, trip.reply)
        return trip.back is not None and trip.back <= time.monotonic_ns()

    def _travel(self, sender: int, to: int, message: Message) -> int | None:
        """When a request or an answer that is sent now arrives; None if the lines are locked."""
        if not try_acquire(self._arrays["turn"], 0, self.replica + 1):
            return None
        due = self._carry(sender, to, message.size)
        release(self._arrays["turn"], 0)
        return due
