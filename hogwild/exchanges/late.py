"""Trades that go on while their replica trains (option ``late``).

A trade adds what has come in to the replica, and subtracts what it had sent, so the rows done meanwhile are kept: that
is overlapped local SGD. The next trade begins when this one is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from hogwild.exchanges.trade import Exchange


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
