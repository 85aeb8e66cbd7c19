"""The connection of two machines: a gloo group of two, with a thread that sends and one that receives.

They send frames: a header of ten int64, and then as many bytes as it says, an array of numbers or JSON. Nothing is
unpickled.

What gloo asks for: operations of a group come in one order from one thread each way; a wait takes its own time limit,
since a timeout closes all connections of the group; ``is_completed()`` of a receive stays false until it is waited for,
so nothing is polled. An end that is killed is noticed at once, since the connection breaks. One that is stopped, or
whose cable is cut, is noticed by its silence: every machine says something each second (``BEAT``), and the cluster
gives up who has said nothing for ten. A receive that was given up stays in its thread, which ends with the process.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from hogwild.errors import TrainingError, reason_of
from hogwild.exchanges.trade import EMPTY, NO_INDICES, Message

CELLS = 10  # of a header
MOST_TEXT = 1 << 20  # bytes of JSON
BEAT, TEXT, TRADE, MODEL, PIECE, BYE = range(6)
NOTHING = Message(0, 0, 0)
BEAT_SECONDS = 1.0
PIECE = 4 << 20  # bytes sent at a time, so that a large payload is heard of all the while
DAY = datetime.timedelta(days=1)  # a wait without an end: who is silent is given up by the cluster
LEAVING_SECONDS = 3.0


class Frame(NamedTuple):
    """A message of an exchange, a model, a text, or a piece of an array, and the task that it belongs to."""

    kind: int  # BEAT, TEXT, TRADE, MODEL, PIECE, BYE
    task: int = 0  # counted by machine 0 from 1; of a piece: the number of its array
    ended: int = 0  # whether the sender's workers have done their share of the task
    message: Message = NOTHING  # of a beat: rows done, and nonzeros as ``step``

    def header(self) -> np.ndarray:
        """The header (CELLS,) int64; the values and then the indices of the message follow."""
        m = self.message
        sizes = m.indices.nbytes, m.values.nbytes, m.values.dtype == np.uint8
        return np.array([self.kind, self.task, self.ended, m.kind, m.clock, m.rows, m.step, *sizes], np.int64)

    @classmethod
    def of(cls, header: np.ndarray, payload: np.ndarray) -> Frame:
        """The frame of a header and the bytes (n,) uint8 that follow it."""
        kind, task, ended, about, clock, rows, step, _, size, coded = (int(cell) for cell in header)
        values = payload[:size] if coded else payload[:size].view(np.float32)
        indices = payload[size:].view(np.int32)
        message = Message(about, clock, rows, values if size else EMPTY, indices if len(indices) else NO_INDICES, step)
        return cls(kind, task, ended, message)


def text_frame(content: dict[str, Any]) -> Frame:
    """Return a frame that carries a dict as JSON."""
    return Frame(TEXT, message=Message(0, 0, 0, np.frombuffer(json.dumps(content).encode(), np.uint8).copy()))


def text_of(frame: Frame) -> dict[str, Any]:
    """Return the dict that a frame carries."""
    content: dict[str, Any] = json.loads(frame.message.values.tobytes())
    return content


def connect(store: Any, name: str, rank: int, address: str, seconds: float) -> Any:
    """Return the gloo group of two with this name; ``rank`` is 0 or 1, ``address`` that of this machine.

    Raises
    ------
    TrainingError
        If the other one has not come after ``seconds``.
    """
    options = ProcessGroupGloo._Options()
    options._timeout = datetime.timedelta(seconds=seconds)
    options._devices = [ProcessGroupGloo.create_device(hostname=address, lazy_init=False)]
    try:
        return ProcessGroupGloo(PrefixStore(name, store), rank, 2, options)
    except RuntimeError as error:
        raise TrainingError(reason_of(error)) from None


class Pair:
    """A connection to another machine.

    Parameters
    ----------
    group : ProcessGroupGloo
        A group of two.
    rank : int
        This end's rank in it.
    deliver : callable
        Called with every frame that arrives, but beats' only for their counts; in the receiving thread.
    lost : callable
        Called once with the reason when the connection has ended.
    beat : callable
        Returns rows and nonzeros that this machine has done of its task.
    """

    def __init__(
        self,
        group: Any,
        rank: int,
        deliver: Callable[[Frame], None],
        lost: Callable[[str], None],
        beat: Callable[[], tuple[int, int]],
    ) -> None:
        self._group, self._rank = group, rank
        self._deliver = deliver
        self._lost = lost
        self._beat = beat
        self.heard = time.monotonic()
        self.waiting_bytes = 0
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._said = False
        self._kept = False
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name="hogwild-machine", daemon=True)
            for work in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, frame: Frame) -> None:
        """Queue a frame; its arrays must not be written to afterwards."""
        with self._lock:
            self.waiting_bytes += frame.message.size
        self._frames.put(frame)

    def leave(self, why: str) -> None:
        """Send what is queued and a last frame that says why, and wait shortly until the other end has answered."""
        self._say_goodbye(why)
        until = time.monotonic() + LEAVING_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in self._threads):
            self._abandon()

    def give_up(self, why: str) -> None:
        """End the connection; nothing is sent or received any more."""
        self._end(why)
        self._abandon()
        threading.Thread(target=self._group.abort, daemon=True).start()  # which waits for a peer that is stopped

    def _say_goodbye(self, why: str) -> None:
        with self._lock:
            first, self._said = not self._said, True
        if first:
            self.send(Frame(BYE, message=Message(0, 0, 0, np.array([*why.encode()[:MOST_TEXT]], np.uint8))))
            self._frames.put(None)

    def _abandon(self) -> None:
        """Leave the group in memory for good: its end would wake threads that wait in it while the interpreter ends."""
        if not self._kept:
            self._kept = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def _end(self, why: str) -> None:
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._say_goodbye("so has this one")
            self._lost(why)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            gone = "closed" in str(error) or "reset" in str(error).lower() or "abort" in str(error).lower()
            self._end("the connection is closed" if gone else reason_of(error))

    def _send(self) -> None:
        due = time.monotonic()
        while True:
            rest = due - time.monotonic()
            if rest <= 0:  # also while there is much else to send
                due += BEAT_SECONDS - rest
                rows, nonzeros = self._beat()
                frame: Frame | None = Frame(BEAT, message=Message(0, 0, rows, step=nonzeros))
            else:
                try:
                    frame = self._frames.get(timeout=rest)
                except queue.Empty:
                    continue
            if frame is None:
                return
            message, size = frame.message, frame.message.size
            self._put(frame.header())
            parts = [np.ascontiguousarray(part).view(np.uint8) for part in (message.values, message.indices)]
            self._put(np.concatenate(parts) if all(map(len, parts)) else max(parts, key=len))  # as it is received
            with self._lock:
                self.waiting_bytes -= size if frame.kind != BEAT else 0

    def _receive(self) -> None:
        header = np.empty(CELLS, np.int64)
        while True:
            self._get(header)
            payload = np.empty(int(header[7:9].sum()), np.uint8)
            self._get(payload)
            frame = Frame.of(header, payload)
            if frame.kind == BYE:
                self._end(frame.message.values.tobytes().decode(errors="replace"))
                return
            self._deliver(frame)

    def _put(self, array: np.ndarray) -> None:
        for first in range(0, len(array), PIECE):
            piece = torch.from_numpy(array[first : first + PIECE])
            self._group.send([piece], 1 - self._rank, 0).wait(DAY)

    def _get(self, array: np.ndarray) -> None:
        for first in range(0, len(array), PIECE):
            self._group.recv([torch.from_numpy(array[first : first + PIECE])], 1 - self._rank, 0).wait(DAY)
            self.heard = time.monotonic()
