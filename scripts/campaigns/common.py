"""What the campaigns share: options, a count of what was tried and found, and a look for what is left behind."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hogwild.hosts import fork_server

GONE = 5.0  # seconds in which what a program started has to be gone


class Campaign:
    """How long to go on, what was tried, and what was found."""

    def __init__(self, what: str, arguments: list[str], count: int) -> None:
        parser = argparse.ArgumentParser(prog=f"scripts/campaign {what}")
        parser.add_argument("--minutes", type=float, help="go on for so long, whatever the count")
        parser.add_argument("--count", type=int, default=count, help=f"how many (default {count})")
        parser.add_argument("--seed", type=int, default=0, help="what is tried, and when, hangs on it (default 0)")
        self.asked = parser.parse_args(arguments)
        self.what = what
        self.random = random.Random(self.asked.seed)
        self.tried: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.found: list[str] = []
        self._began = time.monotonic()
        # a shell's job in the background ignores it, and so would all programs that the campaign starts
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def rounds(self) -> Iterator[int]:
        """Numbers, until there were enough."""
        number = 0
        while self._more(number):
            yield number
            number += 1

    def _more(self, number: int) -> bool:
        minutes = self.asked.minutes
        return sum(self.tried.values()) < self.asked.count if minutes is None else self._seconds() < 60 * minutes

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def problem(self, line: str) -> None:
        """Note that something was found, and say it at once."""
        self.found.append(line)
        print(f"FOUND {line}", flush=True)

    def close(self) -> int:
        """Say how it went; the exit status."""
        for title, counts in (("tried", self.tried), ("ended", self.ended)):
            print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
        print(
            f"{self.what}: {sum(self.tried.values())} in {self._seconds():.0f} s with seed {self.asked.seed}, "
            f"{len(self.found)} found"
        )
        sys.stdout.flush()
        return 1 if self.found else 0


def descendants(root: int | None = None) -> set[int]:
    """All living processes below this one, but for the fork server; the tests ask before and after each of them."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb", buffering=0) as file:
                    state, parent = file.read(4096).rpartition(b")")[2].split()[:2]
            except OSError:
                continue  # ended between the two lines
            if state not in b"ZX":
                children.setdefault(int(parent), []).append(int(entry))
    found, queue = set(), [os.getpid() if root is None else root]
    while queue:
        below = children.get(queue.pop(), [])
        found.update(below)
        queue += below
    return found - {fork_server.pid()}


def living(pids: set[int]) -> set[int]:
    """Those that are not gone."""
    found = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.add(pid)
        except OSError:
            pass
    return found


def segments() -> set[str]:
    """Shared memory that has a name."""
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def segments_of(pids: set[int]) -> set[str]:
    """Segments that torch made in one of these processes and left."""
    return {name for name in segments() if any(name.startswith(f"torch_{pid}_") for pid in pids)}


def wait_until(condition: object, seconds: float = GONE) -> bool:
    """Whether ``condition`` came to hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
