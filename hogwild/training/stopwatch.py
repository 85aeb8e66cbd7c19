"""Where the time of a run goes: every second belongs to one part, so the parts add up to the total.

A part that begins within another one interrupts it; ``set-up`` keeps what no other part claims.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

PARTS = ("start", "reading", "set-up", "l2", "compiling", "step", "training", "evaluation", "saving")


class Stopwatch:
    """Runs from its creation, or from ``since`` (on the clock of ``time.perf_counter``), starting with ``part``."""

    def __init__(self, part: str, since: float | None = None) -> None:
        self._part, self._last = part, time.perf_counter() if since is None else since
        self._seconds: dict[str, float] = {}

    def _turn_to(self, part: str) -> str:
        now, before, last = time.perf_counter(), self._part, self._last
        self._last = now  # first, so that another thread never finds a second counted twice
        self._seconds[before] = self._seconds.get(before, 0.0) + now - last
        self._part = part
        return before

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Within this block time belongs to ``part``."""
        before = self._turn_to(part)
        try:
            yield
        finally:
            self._turn_to(before)

    def add(self, seconds: dict[str, float]) -> None:
        """Add to the parts, or take from one what belongs to another."""
        for part, more in seconds.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + more

    def spent(self, *parts: str) -> float:
        """Seconds of these parts together so far; any thread may ask."""
        running = time.perf_counter() - self._last if self._part in parts else 0.0
        return running + sum(self._seconds.get(part, 0.0) for part in parts)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each part that took any so far, in the order of ``PARTS``."""
        self._turn_to(self._part)
        return {part: self._seconds[part] for part in PARTS if part in self._seconds}
