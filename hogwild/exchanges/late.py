"""Trades that go on while their replica trains: with option ``late``, or because a group of workers races on it.

``late``: a trade adds what has come in to the replica, and subtracts what it had sent, so the rows done meanwhile are
kept: that is overlapped local SGD. The next trade begins when this one is complete.

A group (:class:`Raced`): the first of its workers trades and the others train on. What the scheme reads and writes is a
copy of the replica, so that a scheme need not know of them; before and after a trade, each of the copy and the
replica gets what the other has gained since the last time, as tiers do (``kernels/tiers.py``). That costs two more
arrays a replica, and two passes over them a trade, of which the others notice nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.exchanges.direct import DirectLink
from hogwild.exchanges.trade import Arrays, Exchange
from hogwild.kernels.control import ABORT

SHORTEST, LONGEST = 2e-5, 1e-3  # seconds that a replica sleeps while it waits for others
LOOKS = 4  # times within a period that a replica goes on with a late trade


@runtime_checkable
class Overlapping(Protocol):
    """A scheme that has the option."""

    @property
    def late(self) -> int:
        """1: replicas train on while they trade."""


def overlaps(exchange: Exchange) -> bool:
    """Whether replicas train on while they trade."""
    return isinstance(exchange, Overlapping) and exchange.late > 0


class Late:
    """The trade of one replica that is under way."""

    def __init__(self) -> None:
        self._trade: Iterator[None] | None = None

    @property
    def under_way(self) -> bool:
        return self._trade is not None

    def begin(self, trade: Iterator[None]) -> Iterator[None]:
        """Complete the trade before this one, and begin this one."""
        yield from self.complete(iter(()))
        self._trade = trade
        self.go_on()

    def go_on(self) -> None:
        """Go on with the trade as far as messages have arrived."""
        if self._trade is not None and next(self._trade, self) is self:
            self._trade = None

    def complete(self, further: Iterator[None]) -> Iterator[None]:
        """Wait until the trade is complete, and then do what is ``further`` to do."""
        if self._trade is not None:
            yield from self._trade
            self._trade = None
        yield from further


class Raced(NamedTuple):
    """A replica on which workers race, and the copy of it that is traded; all lie in memory that they share, so that
    the replacement of a worker that died goes on. Of a single worker they are the same array.
    """

    mine: np.ndarray  # (n,) float32
    ours: np.ndarray  # (n,) float32: the copy
    anchor: np.ndarray  # (n,) float32: what both were when they were last equal
    guards: np.ndarray  # (n,) int32: which lock protects a number, or -1; empty if none is needed
    locks: np.ndarray  # int32
    control: np.ndarray  # int64
    shrinks: bool = False  # there is an l1 penalty

    def begin(self) -> None:
        """Start a task, before any worker of the group does."""
        self.mine[:] = self.anchor[:] = self.ours

    def traded(self, trade: Callable[[], Iterator[None]]) -> Iterator[None]:
        """Make a trade of the copy, for which workers do not stop, and bring the result to where they race."""
        return trade() if self.mine is self.ours else self._traded(trade)

    def _traded(self, trade: Callable[[], Iterator[None]]) -> Iterator[None]:
        bring_together(*self)
        yield from trade()
        bring_together(*self)


def compile_raced() -> None:
    """Compile what brings copies together, or load it from the disk cache."""
    bring_together(*np.zeros((3, 1), np.float32), *np.zeros((2, 1), np.int32), np.zeros(1, np.int64), False)


def looks(exchange: Exchange, group: int) -> int:
    """Rows of the worker that trades a replica of ``group`` workers, from one look at what is due to the next."""
    return -(-exchange.period // (group * (LOOKS if overlaps(exchange) else 1)))


def until(reached: Callable[[], bool], control: np.ndarray, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Sleep, going on with something, until a state is reached; return False if the run is over."""
    pause = SHORTEST
    while not reached():
        if control[ABORT] or not go_on():
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)
    return True


class Counted(NamedTuple):
    """Rows of a replica in a task."""

    rows: np.ndarray  # (group,) int64: done by each of its workers
    traded: np.ndarray  # (1,) int64: by all of them before the last trade

    def untraded(self) -> int:
        """Rows since the last trade."""
        return int(self.rows.sum()) - int(self.traded[0])


class Trader(NamedTuple):
    """The first worker of a replica, which trades it."""

    exchange: Exchange
    arrays: Arrays
    link: DirectLink
    raced: Raced
    counted: Counted
    alone: Callable[[], bool]  # whether the other workers have nothing left to do

    def train(self, turn: Callable[[], int], limit: int) -> None:
        """Train and trade to the end of a task, with calls of at most ``limit`` rows."""
        exchange, raced, late = self.exchange, self.raced, Late()

        def go_on() -> bool:
            """Trade if it is due; return False if the run is over."""
            if (rows := self.counted.untraded()) < exchange.period:
                late.go_on()
                return True
            self.counted.traded[0] += rows
            trade = raced.traded(lambda: exchange.trade(raced.ours, self.arrays, self.link, rows))
            return self._drive(late.begin(trade) if overlaps(exchange) else trade)

        while turn() >= limit:
            if not go_on():
                return
        if not until(self.alone, raced.control, go_on):
            return
        rest = self.counted.untraded()
        end = raced.traded(lambda: exchange.end(raced.ours, self.arrays, self.link, rest))
        if self._drive(late.complete(end)):
            self.link.leave()

    def _drive(self, trade: Iterator[None]) -> bool:
        """Run a trade, sleeping while it waits; return False if the run is over."""
        pause = SHORTEST
        for _ in trade:
            if self.raced.control[ABORT]:
                return False
            before = time.perf_counter()
            time.sleep(min(pause, self.link.look()))
            pause = min(2 * pause, LONGEST)
            self.link.waited(time.perf_counter() - before)
        return True
