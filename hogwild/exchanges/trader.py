"""How the replicas of a job trade: one worker trains each, and runs the scheme's generators between its rows.

All state lies in memory that the workers share, so that the replacement of a worker that died goes on with its replica.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from hogwild.exchanges.link import DirectLink, compile_locks, serving
from hogwild.exchanges.trade import Arrays, Counts, Exchange, Spec, begin
from hogwild.kernels.control import ABORT, LINE, ROWS, WORKERS

SHORTEST, LONGEST = 2e-5, 1e-3  # seconds that a replica sleeps while it waits for others


class Trader:
    """The replicas of a job.

    Parameters
    ----------
    exchange : Exchange
    arrays, links : mapping
        The arrays of :meth:`specs`.
    """

    def __init__(self, exchange: Exchange, arrays: Arrays, links: Arrays, control: np.ndarray) -> None:
        self.exchange, self._control = exchange, control
        self.arrays, self.links = arrays, links

    @staticmethod
    def specs(exchange: Exchange, size: int, count: int) -> tuple[Spec, Spec]:
        """The arrays of ``count`` replicas of a model, and of their links, initially zero."""
        if exchange.shards:
            compile_locks()  # once, here, and not by all workers at once
        links = DirectLink.spec(count, exchange.room(size, count), exchange.shards)
        return exchange.spec(size, count), links

    # ---- in the parent, while the workers stand still

    def begin(self, flat: np.ndarray) -> None:
        """Start a task."""
        DirectLink.reset(self.links)
        begin(self.exchange, flat, self.arrays)

    def meet(self, flat: np.ndarray, rows: np.ndarray) -> None:
        """End a task in which each replica did ``rows`` (replicas,); ``flat`` becomes the model."""
        for step in self.exchange.meeting(len(flat), self.arrays):
            DirectLink.count(self.links, step)
        self.exchange.meet(flat, self.arrays, rows)
        counts = self.arrays["left_out"][rows > 0]
        if len(counts) and counts.all():  # each replica that has trained: the run has diverged
            flat[:] = np.nan

    def kept(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint must hold, by their names there."""
        return {f"exchange_{name}": self.arrays[name] for name in self.exchange.kept()}

    def sent(self) -> Counts:
        """Counts of what the replicas have sent in this task, and how long they waited."""
        return DirectLink.counted(self.links).plus(self.left_out())

    def left_out(self) -> Counts:
        """How many changes of replicas have been left out in this task."""
        return Counts(deltas_left_out=int(self.arrays["left_out"].sum()))

    def bury(self, replica: int) -> None:
        """Free what a replica's worker held when it died, so that nobody waits for it."""
        DirectLink.free(self.links, replica)
        self.exchange.lost(self.arrays, replica)

    # ---- in a worker

    def train(self, replica: int, w: np.ndarray, turn: Callable[[], int]) -> None:
        """Train and trade a replica to the end of a task; each ``turn`` does at most a period of rows."""
        exchange, link = self.exchange, DirectLink(self.links, replica, serving(self.exchange, self.arrays))
        while turn() >= exchange.period:
            if not self._drive(exchange.trade(w, self.arrays, link, self._untraded(replica)), link):
                return
        if self._drive(exchange.end(w, self.arrays, link, self._untraded(replica)), link):
            link.leave()

    def _untraded(self, replica: int) -> int:
        """Rows of a replica since this was last asked, by its present worker or one that died."""
        done, traded = int(self._control[WORKERS + LINE * replica + ROWS]), self.links["traded"]
        rows = done - int(traded[replica])
        traded[replica] = done
        return rows

    def _drive(self, trade: Iterator[None], link: DirectLink) -> bool:
        """Run a trade, sleeping while it waits; return False if the run is over."""
        pause = SHORTEST
        for _ in trade:
            if self._control[ABORT]:
                return False
            before = time.perf_counter()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST)
            link.waited(time.perf_counter() - before)
        return True
