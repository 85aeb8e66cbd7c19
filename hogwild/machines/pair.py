"""The connection of two machines: a gloo group of two, with a thread that sends and one that receives.

What gloo asks for: operations of a group come in one order from one thread each way; a wait takes its own time limit,
since a timeout closes all connections of the group; ``is_completed()`` of a receive stays false until it is waited for,
so nothing is polled. An end that is killed is noticed at once, since the connection breaks. One that is stopped, or
whose cable is cut, is noticed by its silence: every machine says something each second (``BEAT``), and the cluster
gives up who has said nothing for ten. A receive that was given up stays in its thread, which ends with the process.
"""

from __future__ import annotations

import ctypes
import datetime
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from hogwild.errors import TrainingError, reason_of
from hogwild.exchanges.trade import EMPTY, Message
from hogwild.machines.frames import BEAT, BYE, CELLS, MOST_TEXT, Frame, frame_of, header_of, payload_size

BEAT_SECONDS = 1.0
PIECE = 4 << 20  # bytes sent at a time, so that a large payload is heard of all the while
DAY = datetime.timedelta(days=1)  # a wait without an end: who is silent is given up by the cluster
LEAVING_SECONDS = 3.0


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
    run : int
        Number of the run, in every frame.
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
        run: int,
        deliver: Callable[[Frame], None],
        lost: Callable[[str], None],
        beat: Callable[[], tuple[int, int]],
    ) -> None:
        self._group, self._rank, self._run = group, rank, run
        self._deliver, self._lost, self._beat = deliver, lost, beat
        self.most = MOST_TEXT  # bytes of a payload; more once the model's size is known
        self.heard = time.monotonic()
        self.waiting_bytes = 0
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock, self._ended, self._said, self._kept = threading.Lock(), False, False, False
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
        except TrainingError as error:  # a frame that makes no sense
            self._end(str(error))
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
            self._put(header_of(self._run, frame))
            parts = [np.ascontiguousarray(part).view(np.uint8) for part in (message.values, message.indices)]
            self._put(np.concatenate(parts) if all(map(len, parts)) else max(parts, key=len))  # as it is received
            with self._lock:
                self.waiting_bytes -= size if frame.kind != BEAT else 0

    def _receive(self) -> None:
        header = np.empty(CELLS, np.int64)
        while True:
            self._get(header)
            size = payload_size(header, self._run, self.most)
            payload = np.empty(size, np.uint8) if size else EMPTY.view(np.uint8)
            self._get(payload)
            frame = frame_of(header, payload)
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
