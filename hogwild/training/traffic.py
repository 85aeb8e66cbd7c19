"""Whether several machines can train sooner than one: the bytes that exchanges send, and the time that a link takes.

Bytes a machine sends for each nonzero it works on decide: the rate of the link over them is the most nonzeros that a
machine can work on in a second. How many weights a window of rows moves follows from the degrees of the features: one
of degree d among N rows is in none of n random rows with probability about (1 - d/N)^n. Values are float32, indices
int32, so a message has four bytes a weight, or eight for each that has moved, whichever is less; gossip sends one
weight in a hundred, in about nine bits.

Times of an epoch are estimates of the time alone. The work is divided evenly, averaging and pushes are waited for, and
gossip is sent while machines train. How many epochs an exchange needs is not in them; averaging needs more than one
machine does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.methods import Wire
from hogwild.training.run import Run

WINDOWS = tuple(10**power for power in range(2, 8))  # rows of a machine from one trade to the next
GOSSIP = 1000  # rows between messages of gossip
SHARE = 0.01  # share of the weights in such a message
BITS = 9.1  # bits of an entry in it
MOST_SPARSE = 0.5  # share of the weights beyond which a message holds all of them
WORTH = 1.25  # times as fast as one machine: less is lost again, since averaging takes more epochs
SOONER = 0.9  # times the seconds of averaging once an epoch: only then is another exchange named
EPOCHS, START = 20, 10.0  # of a usual training; seconds until several machines have started and read their data
MEASURED = 5_000_000  # nonzeros of a timed epoch


@dataclass(frozen=True)
class Traffic:
    """What one exchange sends, and how long its epochs take."""

    exchange: str  # as for --exchange
    moved: float  # share of the weights that move from one trade to the next
    bytes: float  # that a machine sends one way in an epoch of its rows, to one other
    per_nonzero: float  # of them, for each nonzero that the machine works on
    most: float  # nonzeros a second of a machine that the link can feed
    seconds: float  # of an epoch on all machines


@dataclass(frozen=True)
class SharedWork:
    """Data, the machines they are divided among, and the link between these.

    Attributes
    ----------
    width : int
        Numbers in the model.
    rows, nnz : int
    seconds : float
        Of an epoch on one machine.
    machines : int
    wire : Wire
    """

    width: int
    rows: int
    nnz: int
    seconds: float
    machines: int
    wire: Wire

    @property
    def own(self) -> float:
        """Rows of one machine in an epoch."""
        return self.rows / self.machines


class DegreeCounts(NamedTuple):
    """In how many rows features occur: each number once, as thousands of features are alike."""

    rows: np.ndarray  # (n,) how many
    features: np.ndarray  # (n,) how many features occur in as many

    @classmethod
    def of(cls, degrees: np.ndarray) -> DegreeCounts:
        """Count the ``degrees`` (features,)."""
        return cls(*np.unique(degrees, return_counts=True))


def traffic(load: SharedWork, degrees: DegreeCounts) -> list[Traffic]:
    """Return what each exchange sends: averaging an epoch, then by periods, pushes of what has moved, gossip.

    Parameters
    ----------
    load : SharedWork
    degrees : DegreeCounts
    """
    exchanges = [_averaging(load, "averaging", load.own, degrees)]
    for window in reversed(WINDOWS):
        if window < load.own and moved(degrees, load.rows, window) < MOST_SPARSE:
            exchanges.append(_pushes(load, window, degrees))
        elif window < load.own:
            exchanges.append(_averaging(load, f"averaging:period={window}", window, degrees))
    return [*exchanges, _gossip(load, degrees)]


def moved(degrees: DegreeCounts, rows: int, window: float) -> float:
    """Share of the weights that ``window`` random ones of ``rows`` rows move."""
    if not rows or not len(degrees.rows):
        return 0.0
    with np.errstate(divide="ignore"):  # who is in all rows moves for certain
        missed = np.exp(window * np.log1p(-np.minimum(degrees.rows / rows, 1.0)))
    return float(1.0 - np.average(missed, weights=degrees.features))


def verdict(load: SharedWork, exchanges: Sequence[Traffic]) -> str:
    """Return one sentence: whether more machines can pay, and by which exchange."""
    once = exchanges[0]
    soonest = min(exchanges, key=lambda each: each.seconds)
    best = soonest if soonest.seconds < SOONER * once.seconds else once
    gain, others = load.seconds / best.seconds, load.machines - 1
    epoch = f"an epoch takes about {_time(best.seconds)} on {load.machines} machines with --exchange {best.exchange}"
    than = f"{_time(load.seconds)} on one"
    if gain < WORTH:
        return f"More machines cannot pay over this link: {epoch} against {than}."
    saved = EPOCHS * (load.seconds - best.seconds)
    if saved < START:
        return (
            f"More machines do not pay for so few data: {epoch} against {than}, so {EPOCHS} epochs save "
            f"{_time(saved)}, less than it takes to start {others} more."
        )
    return f"More machines can pay: {epoch} against {than}, {gain:.1f} times as fast."


class TimedEpoch(NamedTuple):
    """A timed epoch."""

    seconds: float  # of all rows
    width: int  # numbers in the model
    how: str  # part of a sentence that says what was timed


def timed_epoch(rows: Rows, loss: str) -> TimedEpoch:
    """Time an epoch on all cores of this machine, or one of evenly spaced rows if there are many nonzeros."""
    picked = rows.spread(MEASURED)
    sample = rows if len(picked) == len(rows) else rows.select(picked).compact()
    config = TrainConfig(loss=loss, step=1e-6, epochs=3, host="threads", schedule="constant")
    run: Run[Any] = Run(sample, None, config, None, False, None, "")
    seconds = [row["train_seconds"] for row in run]
    width = run.problem.size
    workers = run.config.workers
    epoch = min(after - before for before, after in itertools.pairwise(seconds))
    some = "" if sample is rows else f" of {len(sample):,} rows"
    threads = "one thread" if workers == 1 else f"{workers} threads"
    how = f"the shortest of {len(seconds) - 1} epochs{some} with {threads}"
    return TimedEpoch(epoch * rows.nnz / max(sample.nnz, 1), width, how)


def _averaging(load: SharedWork, name: str, window: float, degrees: DegreeCounts) -> Traffic:
    """All weights in two steps of a round: 2 (P - 1) / P of the model out of each machine, and as much in."""
    size = 4.0 * load.width
    times = 2 * (load.machines - 1) / load.machines
    return _rounds(load, name, window, degrees, size, 2 * load.wire.latency + times * size / load.wire.bandwidth)


def _pushes(load: SharedWork, window: int, degrees: DegreeCounts) -> Traffic:
    """What has moved, to a server whose line takes the messages of all machines in, and as many answers out."""
    size = 8.0 * load.width * moved(degrees, load.rows, window)
    wait = 2 * load.wire.latency + load.machines * size / load.wire.bandwidth
    return _rounds(load, f"server:push={window}", window, degrees, size, wait)


def _rounds(load: SharedWork, name: str, window: float, degrees: DegreeCounts, size: float, wait: float) -> Traffic:
    per_nonzero = size * load.rows / (window * load.nnz) if load.nnz else math.inf
    rounds = load.own / window
    return Traffic(
        name,
        moved(degrees, load.rows, window),
        rounds * size,
        per_nonzero,
        load.wire.bandwidth / per_nonzero if per_nonzero else math.inf,
        load.seconds / load.machines + rounds * wait,
    )


def _gossip(load: SharedWork, degrees: DegreeCounts) -> Traffic:
    """A hundredth of the weights to all others while machines train, and what they still owe when the epoch ends."""
    size = SHARE * load.width * BITS / 8
    messages = _rounds(load, f"gossip:period={GOSSIP}", GOSSIP, degrees, size, 0.0)
    others, whole = load.machines - 1, moved(degrees, load.rows, load.own)
    rest = load.width * min(4.0, whole * (4.0 + BITS / 8)) * others / load.wire.bandwidth + load.wire.latency
    sending = others * messages.bytes / load.wire.bandwidth
    return dataclasses.replace(messages, seconds=max(load.seconds / load.machines, sending) + rest)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"
