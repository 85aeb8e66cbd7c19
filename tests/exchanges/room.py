"""Replicas in one process, which change, trade and end when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.exchanges import make_exchange
from hogwild.exchanges.link import DirectLink, Trader
from hogwild.exchanges.trade import Exchange, take


class Room:
    """Replicas of ``size`` weights, over links in memory. ``start``: a number, or the weights."""

    def __init__(
        self, exchange: str | Exchange, count: int, size: int = 64, start: Any = 0.0, step: float = 1.0, **options: Any
    ) -> None:
        made = make_exchange(exchange, **options) if isinstance(exchange, str) else exchange
        assert made is not None
        self.exchange: Any = made
        self.count = count
        self.trader = Trader(made, size, count, shared=False)
        self.arrays = self.trader.arrays
        self.flat = np.full(size, start, np.float32)
        self.begin(step)

    def begin(self, step: float = 1.0) -> None:
        """Begin a task."""
        self.trader.begin(self.flat)
        self.w = [take(self.flat, self.arrays, replica, step) for replica in range(self.count)]
        self.link = [self.connect(replica) for replica in range(self.count)]

    def connect(self, replica: int) -> DirectLink:
        return DirectLink(self.exchange, self.arrays, replica)

    def trading(self, replica: int, rows: int = 1) -> Iterator[None]:
        """A trade, to go on with by hand."""
        trade: Iterator[None] = self.exchange.trade(self.w[replica], self.arrays, self.link[replica], rows)
        return trade

    def trade(self, *replicas: int, rows: int = 1) -> None:
        """Let these replicas trade, in turns, or all."""
        self._drive({replica: self.trading(replica, rows) for replica in replicas or range(self.count)})

    def end(self, *replicas: int) -> None:
        """Let these replicas end the task, in turns, or all."""

        def ending(replica: int) -> Iterator[None]:
            yield from self.exchange.end(self.w[replica], self.arrays, self.link[replica], 0)
            self.link[replica].leave()

        self._drive({replica: ending(replica) for replica in replicas or range(self.count)})

    def _drive(self, going: dict[int, Iterator[None]]) -> None:
        for _ in range(1000):
            going = {replica: each for replica, each in going.items() if next(each, "over") != "over"}
        assert not going, f"replicas {[*going]} wait"

    def meet(self, *rows: int) -> np.ndarray:
        """The model, of replicas that did so many ``rows``, or one each."""
        self.exchange.meet(self.flat, self.arrays, np.array(rows or [1] * self.count))
        return self.flat

    def base(self, replica: int = 0) -> np.ndarray:
        base: np.ndarray = self.arrays["base"][replica, : len(self.flat)]
        return base
