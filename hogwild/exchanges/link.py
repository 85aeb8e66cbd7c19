"""How the replicas of a job trade on one machine: one worker trains each, and runs the scheme between its rows.

All state lies in memory that the workers share, so the replacement of a worker that died goes on with its replica.

Each replica appends its messages to its own log. Only its owner writes to a log, and every other replica reads it with
its own cursor, so nothing is locked. Bytes that all training replicas have read may be overwritten. A message exists
once the owner has advanced the mark of what is written, so a message whose writer dies halfway was never sent. Cursors
are shared too, so a replacement goes on reading where the dead worker stopped.

A server is no process of its own: who asks it does its work, holding the lock of its shard, whose cell has the owner's
number. Nobody waits inside a call; the lock of a worker that died is freed by the parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from hogwild.exchanges.trade import ALL, BYE, HEADER, PULL, PUSH, Arrays, Counts, Exchange, Link, Message, Spec, begin
from hogwild.hosts.memory import Block
from hogwild.kernels.control import ABORT, LINE, ROWS, WORKERS
from hogwild.kernels.locks import release, try_acquire

SHORTEST, LONGEST = 2e-5, 1e-3  # seconds that a replica sleeps while it waits for others
START = 8 * HEADER
MESSAGES, BYTES, WAITED = range(3)  # columns of counts


class Trader:
    """The replicas of a job: their scheme, and the memory of both the scheme and the links, initially zero."""

    def __init__(self, exchange: Exchange, size: int, replicas: int, shared: bool) -> None:
        if exchange.shards:
            compile_locks()  # once, here, and not by all workers at once
        links = DirectLink.spec(replicas, exchange.room(size, replicas), exchange.shards)
        self.exchange = exchange
        self.memory = Block(exchange.spec(size, replicas) | links, shared)

    @property
    def arrays(self) -> Arrays:
        return self.memory.arrays

    # ---- in the parent, while the workers stand still

    def begin(self, flat: np.ndarray) -> None:
        """Start a task with all replicas present and no message in transit."""
        begin(self.exchange, flat, self.arrays)
        self.arrays["here"][:] = 1

    def meet(self, flat: np.ndarray, rows: np.ndarray) -> None:
        """End a task in which each replica did ``rows`` (replicas,); ``flat`` becomes the model."""
        for step in self.exchange.meeting(len(flat), self.arrays):
            self.arrays["counts"][: step.senders, [MESSAGES, BYTES]] += step.messages, step.messages * step.size
        self.exchange.meet(flat, self.arrays, rows)
        counts = self.arrays["left_out"][rows > 0]
        if len(counts) and counts.all():  # each replica that has trained: the run has diverged
            flat[:] = np.nan

    def kept(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint must hold, by their names there."""
        return {f"exchange_{name}": self.arrays[name] for name in self.exchange.kept()}

    def sent(self) -> Counts:
        """Counts of what the replicas have sent in this task, and how long they waited."""
        messages, sent, waited = self.arrays["counts"].sum(axis=0)
        torn, left_out = (int(self.arrays[name].sum()) for name in ("torn", "left_out"))
        return Counts(int(messages), int(sent), float(waited), shards_torn=torn, deltas_left_out=left_out)

    def bury(self, replica: int) -> None:
        """Free the locks that a replica's worker held when it died, so that nobody waits for it.

        What it was adding to such a shard may be there in part.
        """
        locked = self.arrays["locks"] == replica + 1
        self.arrays["torn"][locked] += 1
        self.arrays["locks"][locked] = 0
        self.exchange.lost(self.arrays, replica)

    # ---- in a worker

    def train(self, replica: int, w: np.ndarray, turn: Callable[[], int], control: np.ndarray) -> None:
        """Train and trade a replica to the end of a task; each ``turn`` does at most a period of rows."""
        exchange, arrays = self.exchange, self.arrays
        link = DirectLink(exchange, arrays, replica)

        def untraded() -> int:
            """Rows since this was last asked, by the present worker of the replica or one that died."""
            done = int(control[WORKERS + LINE * replica + ROWS])
            rows = done - int(arrays["asked"][replica])
            arrays["asked"][replica] = done
            return rows

        def drive(trade: Iterator[None]) -> bool:
            """Run a trade, sleeping while it waits; return False if the run is over."""
            pause = SHORTEST
            for _ in trade:
                if control[ABORT]:
                    return False
                before = time.perf_counter()
                time.sleep(pause)
                pause = min(2 * pause, LONGEST)
                arrays["counts"][replica, WAITED] += time.perf_counter() - before
            return True

        while turn() >= exchange.period:
            if not drive(exchange.trade(w, arrays, link, untraded())):
                return
        if drive(exchange.end(w, arrays, link, untraded())):
            link.leave()


class DirectLink(Link):
    """A replica's link."""

    def __init__(self, exchange: Exchange, arrays: Arrays, replica: int) -> None:
        super().__init__(replica, len(arrays["here"]))
        self._exchange, self._arrays = exchange, arrays
        self._open = dict[int, Message]()  # the request to each shard that is not answered
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
            "log": ((replicas, room), np.uint8),
            "written": ((replicas,), np.int64),
            "read": ((replicas, replicas), np.int64),  # [reader, writer]
            "counts": ((replicas, 3), np.float64),
            "asked": ((replicas,), np.int64),  # rows of each up to its last trade
            "locks": ((shards,), np.int32),
            "torn": ((shards,), np.int64),
        }

    def leave(self) -> None:
        """End the replica's training in this task."""
        self._arrays["here"][self.replica] = 0

    def here(self) -> np.ndarray:
        return self._arrays["here"] != 0

    def post(self, to: int, message: Message) -> bool:
        written, others = self._arrays["written"], self.here()
        others[self.replica] = False
        start = int(written[self.replica])
        least = self._arrays["read"][others, self.replica].min(initial=start)
        values, indices = message.values, message.indices
        if start + message.size - least > len(self._log):
            return False
        # Receiver, kind, clock, rows, bytes of indices and of values, whether these are encoded
        cells = to, message.kind, message.clock, message.rows, indices.nbytes, values.nbytes, values.dtype == np.uint8
        for part in (np.array([*cells, 0], np.int64), indices, values):
            self._put(start, np.ascontiguousarray(part).view(np.uint8))
            start += part.nbytes
        written[self.replica] = start
        receivers = int(others.sum()) if to == ALL else 1
        self._counts[[MESSAGES, BYTES]] += receivers, receivers * message.size
        return True

    def ask(self, shard: int, request: Message) -> None:
        self._open[shard] = request
        self._count(shard, request)

    def answer(self, shard: int) -> Message | None:
        """Serve the request, unless another worker is serving one for the same shard."""
        request = self._open[shard]
        if not try_acquire(self._arrays["locks"], shard, self.replica + 1):
            return None
        reply = self._exchange.serve(shard, self._arrays, self.replica, request)
        release(self._arrays["locks"], shard)
        if reply is None:
            self._open[shard] = request._replace(kind=PULL)
        elif request.kind not in (PUSH, BYE):
            self._count(shard, reply)
        return reply

    def _count(self, shard: int, message: Message) -> None:
        if shard % self.replicas != self.replica:  # otherwise the server is on the replica's own machine
            self._counts[[MESSAGES, BYTES]] += 1, message.size

    def receive(self) -> None:
        arrays, me = self._arrays, self.replica
        for sender, queue in enumerate(self.inbox):
            while sender != me and arrays["read"][me, sender] < arrays["written"][sender]:
                start, log = int(arrays["read"][me, sender]), arrays["log"][sender]
                to, kind, clock, rows, entries, length, coded, _ = _get(log, start, START).view(np.int64).tolist()
                start += START
                if to in (me, ALL):
                    indices = _get(log, start, entries).view(np.int32)
                    values = _get(log, start + entries, length).view(np.uint8 if coded else np.float32)
                    queue.append(Message(kind, clock, rows, values, indices))
                arrays["read"][me, sender] = start + entries + length

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


def _get(log: np.ndarray, start: int, size: int) -> np.ndarray:
    """Copy bytes of a log, which wraps around at its end."""
    first = start % len(log)
    return np.concatenate((log[first : first + size], log[: max(first + size - len(log), 0)]))
