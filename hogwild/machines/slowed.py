"""A slower network than there is, so that its effect on machines that train together can be tried.

The model is that of the simulator's links (``hosts/timed.py``), by the clock: a machine has one line out and one in. A
message leaves when the line out has carried its bytes, and arrives after the latency, or later if the line in is still
busy with others. Large messages are carried in pieces, so that the machines hear of each other all the while.
"""

from __future__ import annotations

import threading
import time

from hogwild.methods import Wire

SHORTEST = 1e-4  # seconds; shorter waits are made up for by the next, since a sleep takes as long


class Lines:
    """A machine's two lines, which all its connections share; times are of ``time.monotonic``."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._out = self._in = 0.0  # when they are free
        self._lock = threading.Lock()

    def out(self, size: int, now: float) -> float:
        """Occupy the line out with so many bytes; return when they have left."""
        with self._lock:
            self._out = max(self._out, now) + size / self.wire.bandwidth
            return self._out

    def into(self, size: int, now: float) -> float:
        """Occupy the line in with bytes that have left ``now``; return when they arrive."""
        with self._lock:
            self._in = max(now + self.wire.latency, self._in + size / self.wire.bandwidth)
            return self._in

    def carry(self, size: int) -> None:
        """Wait until so many bytes have left."""
        now = time.monotonic()
        if (rest := self.out(size, now) - now) > SHORTEST:
            time.sleep(rest)
