"""How whole replicas trade: the interface between a scheme, the arrays it keeps and the link that carries its messages.

A replica is one flat array and the workers that train it. A scheme (:class:`Exchange`) is straight-line code: ``trade``
is a generator that yields where it has to wait. A thread or process pauses at a yield, and the simulator goes on to the
time of the next event. All mutable state lies in arrays, shared if workers are processes, so a worker that dies leaves
its replica, and its position, to its replacement.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

ALL = -1  # receiver: every other replica
HEADER = 8  # int64 before the values of a message
EMPTY = np.empty(0, np.float32)
NO_INDICES = np.empty(0, np.int32)
LINE_FLOATS = 16  # float32 in a cache line: every replica starts on one
PUSH, PULL, BOTH, BYE, REPLY = range(5)  # requests to a server, of which PUSH and BYE have no answer, and its answer

Arrays = Mapping[str, np.ndarray]
Spec = dict[str, tuple[tuple[int, ...], Any]]  # names to (shape, type)


class Message(NamedTuple):
    """A message from one replica to another."""

    kind: int  # defined by the scheme
    clock: int  # of the sender, or of the round
    rows: int  # done since the last message of this kind
    values: np.ndarray = EMPTY  # (n,) float32, or uint8 if the scheme encodes them
    indices: np.ndarray = NO_INDICES  # (m,) int32; empty if the values are those of all coordinates, or encoded

    @property
    def size(self) -> int:
        """Bytes sent, including the header."""
        return 8 * HEADER + self.values.nbytes + self.indices.nbytes


class Step(NamedTuple):
    """Messages that replicas send each other at once when a task ends."""

    messages: int  # of each sender
    size: int  # bytes of each
    senders: int  # how many replicas send: the first ones


class Counts(NamedTuple):
    """Totals over all replicas of what was sent and how long they waited."""

    messages: int = 0
    bytes_sent: int = 0
    waited_seconds: float = 0.0
    virtual_seconds: float = 0.0  # by the simulator's workers
    shards_torn: int = 0  # whose lock was held by a worker that died: a push may be there in part
    deltas_left_out: int = 0  # because they were not finite

    def plus(self, *others: Counts) -> Counts:
        """The sum of all."""
        return Counts(*map(sum, zip(self, *others)))


def round_of(size: int, count: int) -> list[Step]:
    """Every replica sends each other a slice of its own, and then the mean of its slice."""
    return [] if count == 1 else [Step(count - 1, 8 * HEADER + 4 * -(-size // count), count)] * 2


def round_room(size: int, count: int) -> int:
    """Bytes that a replica has in transit in such a round: shares for all others, and a mean."""
    return 2 * count * (8 * HEADER + 4 * LINE_FLOATS) + 2 * 4 * size


NOTHING = Message(REPLY, 0, 0)  # the answer to a request that has none


class Link:
    """The connection of one replica to the others. No call waits.

    Messages of one sender arrive in the order in which they were sent.

    Attributes
    ----------
    inbox : list of deque
        By sender: messages that have arrived and are not used yet.
    replaced : bool
        Whether an earlier worker of the replica has died in this task.
    """

    replaced = False

    def __init__(self, replica: int, replicas: int) -> None:
        self.replica = replica
        self.replicas = replicas
        self.inbox: list[deque[Message]] = [deque() for _ in range(replicas)]
        self._answers: dict[int, Message] = {}  # by shard

    def post(self, to: int, message: Message) -> bool:
        """Send to a replica, or to ``ALL``; return False if there is no room: receive what has arrived, and retry."""
        raise NotImplementedError

    def ask(self, shard: int, request: Message) -> None:
        """Send a request to the server of a shard, once :meth:`answer` has returned the answer to the last one."""
        raise NotImplementedError

    def answer(self, shard: int) -> Message | None:
        """Return the answer of a shard, ``NOTHING`` to a request that has none, or None if it is not there yet."""
        self.receive()
        return self._answers.pop(shard, None)

    def receive(self) -> None:
        """Put messages that have arrived into the inbox."""
        raise NotImplementedError

    def here(self) -> np.ndarray:
        """Which replicas still train, (replicas,) bool; nobody waits for the others."""
        raise NotImplementedError


class Exchange(Protocol):
    """A scheme, with frozen options. The defaults are those of one that keeps nothing and sends nothing itself."""

    @property
    def period(self) -> int:
        """Rows of a replica between two trades, or ``NO_LIMIT`` if it never trades within a task."""

    @property
    def shrinks(self) -> bool:
        """Whether there is an l1 penalty."""

    #: Number of servers; that of a shard runs on the machine of replica ``shard % replicas``
    shards: int = 0

    def spec(self, size: int, replicas: int) -> Spec:
        """Arrays that the scheme keeps, initially zero, including :func:`replicas_spec`."""

    def room(self, size: int, replicas: int) -> int:
        """Most bytes of messages that a replica may have in transit."""
        return 0

    def kept(self) -> tuple[str, ...]:
        """Names of the arrays that a checkpoint must hold."""
        return ()

    def begin(self, flat: np.ndarray, arrays: Arrays) -> None:
        """Prepare a task; :func:`begin` calls it."""

    def trade(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        """Run one replica's side of a trade, after ``rows`` more of its rows."""

    def end(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        """Run one replica's side of the end of a task, once it has nothing left to train, ``rows`` rows after its last
        trade; then it leaves. It may wait only for replicas that are :meth:`Link.here`; they may still be training.
        """

    def meeting(self, size: int, arrays: Arrays) -> list[Step]:
        """Messages that replicas must send before all can :meth:`meet`. On one machine the parent reads the replicas
        instead, but the messages are still counted.
        """
        return []

    def meet(self, flat: np.ndarray, arrays: Arrays, rows: np.ndarray) -> None:
        """End a task in which the replicas did ``rows`` (replicas,) int64 and set ``flat`` to the model. The parent
        calls it while the workers stand still.
        """

    # ---- of schemes with servers

    def serve(self, shard: int, arrays: Arrays, sender: int, request: Message) -> Message | None:
        """Handle a request and return its answer. None: what was pushed is taken, but the answer has to wait; the link
        asks again, with kind ``PULL``, when something has changed. Calls for the same shard never overlap.
        """

    def lost(self, arrays: Arrays, replica: int) -> None:
        """Note that the worker of a replica has died; its replacement may ask again."""


def packed(message: Message, values: np.ndarray, where: np.ndarray) -> Message:
    """Put the values at some coordinates of a shard into a message, or all of them if that is shorter."""
    if 2 * len(where) >= len(values):
        return message._replace(values=values.copy())
    return message._replace(values=values[where], indices=where.astype(np.int32))


def send(link: Link, to: int, message: Message) -> Iterator[None]:
    """Send a message as soon as there is room."""
    while not link.post(to, message):
        link.receive()  # when all logs are full, receiving makes room for the others
        yield


def collect(link: Link, kind: int, clock: int, senders: Iterable[int] | None = None) -> Iterator[None]:
    """Wait until the inbox of each other replica, or of ``senders``, begins with its message of this kind and clock, or
    until none can come because its sender has ended its training or has sent a later one.

    Messages of one sender come in order, so earlier ones at the front are out of date and dropped.
    """
    wanted, waiting = (clock, kind), set(range(link.replicas) if senders is None else senders) - {link.replica}
    while True:
        here = link.here()  # before receiving: all messages of a replica that has ended have arrived
        link.receive()
        for sender in [*waiting]:
            queue = link.inbox[sender]
            while queue and (queue[0].clock, queue[0].kind) < wanted:
                queue.popleft()
            if queue or not here[sender]:
                waiting.remove(sender)
        if not waiting:
            return
        yield


def collected(link: Link, kind: int, clock: int) -> Iterator[tuple[int, Message]]:
    """Yield the senders and messages that :func:`collect` has waited for."""
    for sender, queue in enumerate(link.inbox):
        if queue and (queue[0].clock, queue[0].kind) == (clock, kind):
            yield sender, queue.popleft()


# ---- replicas, in memory that the workers share: the replacement of a dead worker continues its replica, a checkpoint
# can hold it, and the parent reads all of them when the workers stand still


def replicas_spec(size: int, replicas: int) -> Spec:
    """Replicas, the rows each has done since they were equal, whether its worker has begun, and how many of its changes
    were left out in this task; initially zero.
    """
    return {
        "replicas": ((replicas, -(-size // LINE_FLOATS) * LINE_FLOATS), np.float32),
        "rows": ((replicas,), np.int64),
        "begun": ((replicas,), np.int64),
        "left_out": ((replicas,), np.int64),
    }


def take(flat: np.ndarray, arrays: Arrays, replica: int, step: float = 0.0) -> np.ndarray:
    """Return a replica, (size,) float32; it is first set to ``flat`` if no worker has begun it in this task. A scheme
    that has an array ``step`` finds there the ``step`` with which the task begins.
    """
    if "step" in arrays:
        arrays["step"][replica] = step
    w: np.ndarray = arrays["replicas"][replica, : len(flat)]
    if not arrays["begun"][replica]:
        w[:] = flat
        if "base" in arrays:
            arrays["base"][replica, : len(flat)] = flat
        arrays["begun"][replica] = 1  # last: a worker that dies before this has not begun
    return w


def begin(exchange: Exchange, flat: np.ndarray, arrays: Arrays) -> None:
    """Start a task, while the workers stand still: what is counted of one, and not kept, is zero."""
    exchange.begin(flat, arrays)
    for name in arrays.keys() - exchange.kept():
        if arrays[name].dtype not in (np.float32, np.uint8):
            arrays[name][:] = 0


def left_out(w: np.ndarray, arrays: Arrays, replica: int) -> bool:
    """Whether a replica (n,) float32 is not finite, so that the others leave its change out, which is counted. With one
    replica nobody would be spared.
    """
    if len(arrays["rows"]) == 1 or np.isfinite(w).all():
        return False
    arrays["left_out"][replica] += 1
    return True


def catch_up(w: np.ndarray, base: np.ndarray, latest: np.ndarray) -> None:
    """Add to a replica (n,) what it has missed, from its ``base`` to the ``latest`` one, and set its base to that."""
    if (missed := latest - base).any():
        w[:] = np.where(w == base, latest, w + missed)
    base[:] = latest


def keep_sign(new: np.ndarray, old: np.ndarray, w: np.ndarray, now: np.ndarray) -> None:
    """Set to zero what is ``new`` (n,) on the other side of zero than ``old``, though neither ``w`` nor the others'
    value ``now`` is: with an l1 penalty each of them has shrunk it (as ``merged`` of ``kernels/tiers.py``).
    """
    with np.errstate(all="ignore"):
        new[(w * old >= 0) & (now * old >= 0) & (new * old < 0)] = 0


def cuts_of(size: int, parts: int) -> list[slice]:
    """Slices that begin on cache lines and whose lengths differ by at most one line."""
    ends = [min(-(-size // LINE_FLOATS) * k // parts * LINE_FLOATS, size) for k in range(parts + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]
