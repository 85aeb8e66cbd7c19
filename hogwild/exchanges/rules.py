"""What a server does with the change that a replica pushes.

``plain`` adds it (Downpour: Dean et al. 2012). Changes that were computed at the same time then add up: R replicas move
a weight that all of them meet R times as far as one replica alone, and this diverges once they are so late that nobody
sees it. ``scale=mean`` divides by R, which leaves a weight that only one replica meets R times too slow. ``scale=met``
divides by the number of replicas that meet a weight in a round of R pushes, counted so far.

``scaled`` divides by the push's staleness (Zhang, Gupta, Lian, Liu 2016): the updates of the shard since its sender
read it. ``soft`` applies the mean of ``soft`` pushes at a time (n-softsync, the same paper). ``elastic`` (EASGD: Zhang,
Choromanska, LeCun 2015) adds a part of the distance between a replica and the server; the replica moves as far towards
the server, in ``server.py``.

Two rules take a push for a step along a gradient g = -change / step and choose their own step. ``adagrad`` divides by
the root of the sum of g². ``revision`` (AdaptiveRevision: McMahan, Streeter 2014) knows which gradients others applied
since the sender read; where these agree with g the step has been too long, and it is revised for them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hogwild.exchanges.replicas import cuts_of
from hogwild.exchanges.trade import Arrays, Message, Spec

STALEST = 1023  # the last cell of the histogram of staleness holds all from here
TINY = np.float32(1e-10)  # below AdaGrad's root, as in the kernels


class Push(NamedTuple):
    """What a replica pushes to a shard."""

    where: np.ndarray  # (n,) int64 coordinates of the flat array
    change: np.ndarray  # (n,) float32
    sender: int
    staleness: int  # updates of the shard since the sender read it
    clock: int  # pushes to the shard, with this one
    cut: slice  # coordinates of the shard


@dataclass(frozen=True)
class Plain:
    """Add what is pushed, divided as ``scale`` says."""

    scale: str = "sum"
    soft: int = 1  # pushes in an update

    def spec(self, size: int, count: int) -> Spec:
        """Arrays of the rule, initially zero."""
        return {"met": ((size,), np.int32)} if self.scale == "met" else {}

    def kept(self) -> tuple[str, ...]:
        """Names of the arrays that a checkpoint must hold."""
        return ()

    def begin(self, arrays: Arrays) -> None:
        """Start a task."""
        if "met" in arrays:
            arrays["met"][:] = 0

    def push(self, arrays: Arrays, push: Push) -> None:
        """Apply a push."""
        change, count = push.change, len(arrays["rows"])
        if self.scale == "mean":
            change = change / np.float32(count)
        elif self.scale == "met":
            arrays["met"][push.where] += 1
            share = arrays["met"][push.where] / np.float32(push.clock)  # of the pushes that move the weight
            change = change / np.maximum(share * np.float32(count), np.float32(1))
        arrays["centre"][push.where] += change

    def read(self, arrays: Arrays, sender: int, cut: slice) -> None:
        """Note that a replica has read a shard."""

    def end(self, arrays: Arrays) -> None:
        """End a task."""


@dataclass(frozen=True)
class Scaled(Plain):
    """Divide by the staleness, if it is at least 1."""

    def push(self, arrays: Arrays, push: Push) -> None:
        arrays["centre"][push.where] += push.change / np.float32(max(push.staleness, 1))


@dataclass(frozen=True)
class Soft(Plain):
    """Collect pushes and apply the mean of ``soft`` of them at a time."""

    def spec(self, size: int, count: int) -> Spec:
        return {"sum": ((size,), np.float32)}

    def begin(self, arrays: Arrays) -> None:
        arrays["sum"][:] = 0

    def push(self, arrays: Arrays, push: Push) -> None:
        arrays["sum"][push.where] += push.change
        if push.clock % self.soft == 0:
            self._apply(arrays, push.cut, push.clock, self.soft)

    def end(self, arrays: Arrays) -> None:
        for shard, cut in enumerate(cuts_of(len(arrays["sum"]), len(arrays["clock"]))):
            clock = int(arrays["clock"][shard])
            if left := clock % self.soft:
                self._apply(arrays, cut, clock, left)

    def _apply(self, arrays: Arrays, cut: slice, clock: int, pushes: int) -> None:
        """Add the mean of the pushes of which the sum consists; nobody has read a result yet."""
        total = arrays["sum"][cut]
        moved = np.flatnonzero(total)
        arrays["centre"][cut][moved] += total[moved] / np.float32(pushes)
        arrays["version"][cut][moved] = clock
        total[:] = 0


@dataclass(frozen=True)
class AdaGrad(Plain):
    """Divide a gradient by the root of the sum of all gradients' squares."""

    rate: float = 1.0  # times the step

    def spec(self, size: int, count: int) -> Spec:
        return {"squares": ((size,), np.float32), "step": ((count,), np.float32)}

    def kept(self) -> tuple[str, ...]:
        return ("squares",)

    def begin(self, arrays: Arrays) -> None:
        pass

    def push(self, arrays: Arrays, push: Push) -> None:
        step, where = arrays["step"][push.sender], push.where
        squares = arrays["squares"][where] + (push.change / step) ** 2
        arrays["squares"][where] = squares
        arrays["centre"][where] += np.float32(self.rate) * push.change / np.sqrt(squares + TINY)


@dataclass(frozen=True)
class Revision(AdaGrad):
    """AdaptiveRevision: algorithm 4 of the paper, with ``rate`` times the step for alpha."""

    def spec(self, size: int, count: int) -> Spec:
        one: Spec = dict.fromkeys(("gradients", "z", "most"), ((size,), np.float32))  # z and its maximum, less 1
        return one | {"seen": ((count, size), np.float32), "step": ((count,), np.float32)}

    def kept(self) -> tuple[str, ...]:
        return ("gradients", "z", "most")

    def begin(self, arrays: Arrays) -> None:
        arrays["seen"][:] = arrays["gradients"]

    def push(self, arrays: Arrays, push: Push) -> None:
        step, where = arrays["step"][push.sender], push.where
        g = -push.change / step
        others = arrays["gradients"][where] - arrays["seen"][push.sender, where]
        before, z = arrays["most"][where], arrays["z"][where] + g * (g + 2 * others)
        most = np.maximum(before, z)
        alpha = np.float32(self.rate) * step
        rate = alpha / np.sqrt(1 + most)
        arrays["centre"][where] += (alpha / np.sqrt(1 + before) - rate) * others - rate * g
        arrays["z"][where], arrays["most"][where] = z, most
        arrays["gradients"][where] += g

    def read(self, arrays: Arrays, sender: int, cut: slice) -> None:
        arrays["seen"][sender, cut] = arrays["gradients"][cut]


def apply(rule: Plain, arrays: Arrays, shard: int, cut: slice, sender: int, request: Message) -> None:
    """Take in a push to a shard."""
    where, change = request.indices, request.values
    if not len(where):
        where = np.flatnonzero(change)
        change = change[where]
    clock = int(arrays["clock"][shard]) + 1
    staleness = (clock - 1) // rule.soft - request.clock // rule.soft
    push = Push(where.astype(np.int64) + cut.start, change, sender, staleness, clock, cut)
    if request.rows:  # otherwise it is only what rounding has left
        arrays["staleness"][min(staleness, STALEST)] += 1
    # Before the change, so that others will read all of it even if the sender dies in the middle.
    arrays["version"][push.where] = arrays["clock"][shard] = clock
    with np.errstate(all="ignore"):
        rule.push(arrays, push)
    arrays["pushes"][sender, shard] += 1
    if sender == 0:
        arrays["warmed"][shard] += request.rows


def make_rule(rule: str, scale: str, soft: int, rate: float) -> Plain:
    """Return a rule by its name. Replicas do most of ``elastic``: what they push is just added."""
    if rule in ("adagrad", "revision"):
        return (AdaGrad if rule == "adagrad" else Revision)(rate=rate)
    if rule == "soft":
        return Soft(soft=soft)
    return Plain(scale) if rule == "plain" else Scaled() if rule == "scaled" else Plain()
