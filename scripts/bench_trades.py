"""What a trade of gossip costs a core, and what a server costs a replica that is alone: medians, as lines of text.

    python scripts/bench_trades.py [--repeats 31]

In a trade a replica absorbs the other's message, scans what it owes, packs a hundredth of the weights, and posts them
to a log in memory. The second figure is the seconds of an epoch with ``server:push=10000`` and one worker over those
of serial training, epoch by epoch in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import hogwild
from hogwild.exchanges import replicas
from hogwild.exchanges.gossip import Gossip
from hogwild.exchanges.link import DirectLink
from hogwild.hosts.memory import Block


def median(work: Callable[[], float], repeats: int) -> float:
    work()
    return statistics.median(work() for _ in range(repeats))


def trade(size: int) -> Callable[[], float]:
    """Return a function that lets two replicas trade, and returns the CPU seconds of each."""
    gossip, rng = Gossip(period=1000), np.random.default_rng(0)
    arrays = Block(gossip.spec(size, 2), shared=False).arrays
    links = Block(DirectLink.spec(2, gossip.room(size, 2)), shared=False).arrays
    flat = np.zeros(size, np.float32)
    gossip.begin(flat, arrays)
    DirectLink.reset(links)
    here = [DirectLink(links, replica) for replica in range(2)]
    mine = [replicas.take(flat, arrays, replica) for replica in range(2)]

    def once() -> float:
        for each in mine:
            each[rng.integers(size, size=size // 3)] += np.float32(rng.standard_normal())
        began = time.process_time()
        for replica in range(2):
            list(gossip.trade(mine[replica], arrays, here[replica], 1000))
        return (time.process_time() - began) / 2

    return once


def alone(repeats: int) -> float:
    """Return how many times as long an epoch takes with a server, for a single replica."""
    rows = hogwild.open_data("synthetic:rcv1?rows=200000")
    runs = [
        hogwild.train(rows, workers=1, exchange=exchange, host="threads", step=1.0, epochs=repeats + 1)
        for exchange in ("none", "server:push=10000")
    ]
    seconds: list[list[float]] = [[], []]
    for pair in zip(*runs):
        for each, row in zip(seconds, pair):
            each.append(row["train_seconds"])
    mine, theirs = (statistics.median(np.diff(each)[1:]) for each in seconds)
    print(f"an epoch of {len(rows):,} rows: {1e3 * mine:.1f} ms serial, {1e3 * theirs:.1f} ms with a server")
    return theirs / mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=31)
    given = parser.parse_args()
    for size in (47_000, 1 << 24):
        print(f"a trade of {size:,} weights: {1e3 * median(trade(size), given.repeats):.3g} ms")
    print(f"one replica with a server takes {alone(given.repeats):.3f} times as long as serial")


if __name__ == "__main__":
    main()
