"""The simulator's links: messages take virtual time and occupy the lines meanwhile.

A replica has one line out and one in. A message waits until the line out is free, and arrives after the latency and its
transmission time, or later if the receiver's line is still busy; a message to all is one message to each replica. The
sender goes on at once. Servers answer as soon as a request arrives; they share the lines of the replicas on whose
machines they are, and what stays on a machine takes no time.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

import numpy as np

from hogwild.exchanges.trade import ALL, BYE, NOTHING, PULL, PUSH, Arrays, Counts, Message, Served, Step
from hogwild.methods import Wire


def carried(wire: Wire, size: int, now: float, out: float, into: float) -> tuple[float, float]:
    """Carry a message of ``size`` bytes that is sent ``now`` over lines that are free from ``out`` and ``into`` on;
    return when they are free again. The latter is when it arrives.
    """
    start = max(now, out, into - wire.latency)
    busy = size / wire.bandwidth
    return start + busy, start + busy + wire.latency


def seconds_of(wire: Wire, step: Step) -> float:
    """Seconds in which replicas send each other at once what they have to before they meet."""
    return wire.latency + step.messages * step.size / wire.bandwidth


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
        lines = self._out[sender], self._in[to]
        self._out[sender], self._in[to] = carried(self.wire, message.size, now, *lines)
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
            end += seconds_of(self.wire, step)
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
