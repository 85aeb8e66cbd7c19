"""The link of replicas on one machine: each appends its messages to its own log in shared memory.

Only its owner writes to a log, and every other replica reads it with its own cursor, so nothing is locked. Bytes that
all training replicas have read may be overwritten. A message exists once the owner has advanced the mark of what is
written, so a message whose writer dies halfway was never sent. Cursors lie in shared memory too, so the replacement of
a dead worker goes on reading where that one stopped.

A server is no process of its own: who asks it does its work, holding the lock of its shard, whose cell has the owner's
number. Nobody waits inside a call; the lock of a worker that died is freed by the parent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hogwild.exchanges.trade import (
    ALL,
    BYE,
    HEADER,
    PULL,
    PUSH,
    Arrays,
    Counts,
    Exchange,
    Link,
    Message,
    Spec,
    Step,
)
from hogwild.kernels.locks import release, try_acquire

TO, KIND, CLOCK, ROWS, ENTRIES, LENGTH, CODED = range(7)  # cells of a header; CODED: values are bytes
START = 8 * HEADER
MESSAGES, BYTES, WAITED = range(3)  # columns of counts
Serve = Callable[[int, int, Message], Message | None]  # of a shard, a sender and its request


class DirectLink(Link):
    """A replica's link."""

    def __init__(self, arrays: Arrays, replica: int, serve: Serve | None = None) -> None:
        super().__init__(replica, len(arrays["here"]))
        self._serve = serve
        self._open = dict[int, Message]()  # requests that are not answered, by ticket
        self._arrays = arrays
        self._log, self._counts = arrays["log"][replica], arrays["counts"][replica]
        self.replaced = bool(arrays["links"][replica])
        arrays["links"][replica] += 1
        if not arrays["here"][replica]:  # its worker died after it had ended: messages may be overwritten
            arrays["read"][replica], arrays["here"][replica] = arrays["written"], 1

    @staticmethod
    def spec(replicas: int, room: int, shards: int = 0) -> Spec:
        """Arrays of all links, initially zero."""
        return {
            "here": ((replicas,), np.int64),
            "links": ((replicas,), np.int64),  # how many have been made in this task, one for each worker
            "log": ((replicas, -(-room // 8) * 8), np.uint8),
            "written": ((replicas,), np.int64),
            "read": ((replicas, replicas), np.int64),  # [reader, writer]
            "counts": ((replicas, 3), np.float64),
            "traded": ((replicas,), np.int64),  # rows of each up to its last trade
            "locks": ((shards,), np.int32),
            "torn": ((shards,), np.int64),
        }

    @staticmethod
    def reset(arrays: Arrays) -> None:
        """Start a task with all replicas present and no message in transit (while the workers stand still)."""
        for name in arrays.keys() - {"log"}:
            arrays[name][:] = name == "here"

    @staticmethod
    def free(arrays: Arrays, replica: int) -> None:
        """Free the locks that a dead worker held. What it was adding to such a shard may be there in part."""
        locked = arrays["locks"] == replica + 1
        arrays["torn"][locked] += 1
        arrays["locks"][locked] = 0

    @staticmethod
    def count(arrays: Arrays, step: Step) -> None:
        """Count messages that replicas send by other means than their links."""
        arrays["counts"][: step.senders, [MESSAGES, BYTES]] += step.messages, step.messages * step.size

    @staticmethod
    def counted(arrays: Arrays) -> Counts:
        """Return the counts of all replicas in this task."""
        messages, sent, waited = arrays["counts"].sum(axis=0)
        return Counts(int(messages), int(sent), float(waited), shards_torn=int(arrays["torn"].sum()))

    def waited(self, seconds: float) -> None:
        """Add time in which the replica could not go on."""
        self._counts[WAITED] += seconds

    def leave(self) -> None:
        """End the replica's training in this task."""
        self._arrays["here"][self.replica] = 0

    def here(self) -> np.ndarray:
        return self._arrays["here"] != 0

    def post(self, to: int, message: Message) -> bool:
        written, others = self._arrays["written"], self._arrays["here"] != 0
        others[self.replica] = False
        start = int(written[self.replica])
        least = self._arrays["read"][others, self.replica].min(initial=start)
        values, indices = message.values, message.indices
        length = START + _padded(values.nbytes) + _padded(indices.nbytes)
        if start + length - least > len(self._log):
            return False
        cells = to, message.kind, message.clock, message.rows, indices.nbytes, values.nbytes, values.dtype == np.uint8
        header = np.array([*cells, 0], np.int64)
        self._put(start, header.view(np.uint8))
        start += START
        self._put(start, np.ascontiguousarray(indices).view(np.uint8))
        self._put(start + _padded(indices.nbytes), np.ascontiguousarray(values).view(np.uint8))
        written[self.replica] += length
        receivers = int(others.sum()) if to == ALL else 1
        self._counts[MESSAGES] += receivers
        self._counts[BYTES] += receivers * message.size
        return True

    def _request(self, ticket: int, shard: int, request: Message) -> None:
        self._open[ticket] = request
        self._sent(shard, request)
        self._try(ticket)

    def answer(self, ticket: int) -> Message | None:
        if ticket in self._open:
            self._try(ticket)
        return super().answer(ticket)

    def _try(self, ticket: int) -> None:
        """Serve a request, unless another worker is serving one for the same shard."""
        assert self._serve is not None
        shard, request = self.requests[ticket], self._open[ticket]
        if not try_acquire(self._arrays["locks"], shard, self.replica + 1):
            return
        reply = self._serve(shard, self.replica, request)
        release(self._arrays["locks"], shard)
        if reply is None:
            self._open[ticket] = request._replace(kind=PULL)
            return
        if request.kind not in (PUSH, BYE):
            self._sent(shard, reply)
        del self._open[ticket]
        self._answers[ticket] = reply

    def _sent(self, shard: int, message: Message) -> None:
        if shard % self.replicas != self.replica:  # otherwise the server is on the replica's own machine
            self._counts[MESSAGES] += 1
            self._counts[BYTES] += message.size

    def receive(self) -> None:
        arrays, me = self._arrays, self.replica
        for sender, queue in enumerate(self.inbox):
            while sender != me and arrays["read"][me, sender] < arrays["written"][sender]:
                start, log = int(arrays["read"][me, sender]), arrays["log"][sender]
                header = _get(log, start, START).view(np.int64)
                at = start + START
                entries = int(header[ENTRIES])
                length = int(header[LENGTH])
                if header[TO] in (me, ALL):
                    indices = _get(log, at, entries).view(np.int32)
                    values = _get(log, at + _padded(entries), length).view(np.uint8 if header[CODED] else np.float32)
                    kind, clock, rows = (int(header[cell]) for cell in (KIND, CLOCK, ROWS))
                    queue.append(Message(kind, clock, rows, values, indices))
                arrays["read"][me, sender] = at + _padded(entries) + _padded(length)

    def _put(self, start: int, data: np.ndarray) -> None:
        first = start % len(self._log)
        head = min(len(data), len(self._log) - first)
        self._log[first : first + head] = data[:head]
        self._log[: len(data) - head] = data[head:]


def compile_locks() -> None:
    """Compile what locks shards, or load it from the disk cache."""
    lock = np.zeros(1, np.int32)
    try_acquire(lock, 0, 1)
    release(lock, 0)


def serving(exchange: Exchange, arrays: Arrays) -> Serve | None:
    """Return the function by which a link does the work of servers, if the scheme has any."""
    if not exchange.shards:
        return None
    return lambda shard, sender, request: exchange.serve(shard, arrays, sender, request)


def _padded(size: int) -> int:
    """Bytes that ``size`` bytes take in a log, where everything begins at a multiple of eight."""
    return -(-size // 8) * 8


def _get(log: np.ndarray, start: int, size: int) -> np.ndarray:
    """Copy bytes of a log, which wraps around at its end."""
    first = start % len(log)
    return np.concatenate((log[first : first + size], log[: max(first + size - len(log), 0)]))
