"""A parameter server: replicas push what they have changed, and pull what others have; nobody waits for a round.

Downpour (Dean et al. 2012): a replica trains on its own copy, pushes its change every ``push`` rows, and pulls what has
changed every ``fetch`` rows. The server adds what arrives, or does with it what ``rule`` says. The parameters are cut
into ``shards``, each with a clock of its own, on the machines of different replicas.

Everything is a change against a base. A replica has ``w``, which it trains, and ``base``, what the server holds as
far as it knows. It pushes ``w - base``; what it pulls is assigned to the base, and added as a change to ``w``,
for ``w`` may have moved since. With one replica nothing ever comes in, so it trains as it does alone, to the last
bit. When a replica has nothing left to train it pushes until it owes nothing, and the server's parameters are the
model.

With ``bound=s`` (stale synchronous parallel: Ho et al. 2013) a pull is answered once its sender is at most s pushes
ahead of the slowest replica. Those that have ended, or whose worker died, are not waited for. With ``warm=n`` replica 0
trains its first n rows alone; the others wait after their first push.

A change is sent as indices and values or as all values of the shard, whichever is shorter, and a pull brings only what
has changed since the last one: the server keeps the clock of each parameter's last change, four bytes each. What is not
finite is sent too, for the evaluation then detects the divergence.

What a server does with a push is its rule. ``sum`` adds it, as published. Changes that were computed at the same time
then add up: R replicas move a weight that all of them meet R times as far as one replica alone, and this diverges once
they are so late that nobody sees it. ``met`` divides by the number of replicas that meet a weight in a round of R
pushes, counted so far; to divide by R would leave a weight that only one replica meets R times too slow.

``scaled`` divides by the push's staleness (Zhang, Gupta, Lian, Liu 2016): the updates of the shard since its sender
read it. ``soft`` applies the mean of ``soft`` pushes at a time (n-softsync, the same paper).

Two rules take a push for a step along a gradient g = -change / step and choose their own step. ``adagrad`` divides by
the root of the sum of g². ``revision`` (AdaptiveRevision: McMahan, Streeter 2014) knows which gradients others applied
since the sender read; where these agree with g the step has been too long, and it is revised for them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hogwild.exchanges.trade import (
    BOTH,
    BYE,
    NOTHING,
    PULL,
    PUSH,
    REPLY,
    Arrays,
    Exchange,
    Link,
    Message,
    Spec,
    Step,
    cuts_of,
    keep_sign,
    left_out,
    packed,
    replicas_spec,
)
from hogwild.kernels.control import NO_LIMIT

ROUNDS = 8  # pushes at the end of a task; two are enough for numbers that are finite
SINCE_PUSH, SINCE_PULL = range(2)
TAKING = -1  # in an answer, which may be there in part if the worker dies
STALEST = 1023  # the last cell of the histogram of staleness holds all from here
TINY = np.float32(1e-10)  # below AdaGrad's root, as in the kernels
RATE = np.float32(0.3)  # of rules adagrad and revision, times the step: the best of those measured


class Push(NamedTuple):
    """What a replica pushes to a shard."""

    where: np.ndarray  # (n,) int64 coordinates of the flat array
    change: np.ndarray  # (n,) float32
    sender: int
    staleness: int  # updates of the shard since the sender read it
    clock: int  # pushes to the shard, with this one


# ---- rules: what the server does with a push


def add(arrays: Arrays, push: Push) -> None:
    """Add what is pushed."""
    arrays["centre"][push.where] += push.change


def by_replicas(arrays: Arrays, push: Push) -> None:
    """Divide by the number of replicas that meet the weight."""
    arrays["met"][push.where] += 1
    share = arrays["met"][push.where] / np.float32(push.clock)  # of the pushes that move the weight
    replicas = np.float32(len(arrays["rows"]))
    arrays["centre"][push.where] += push.change / np.maximum(share * replicas, np.float32(1))


def scaled(arrays: Arrays, push: Push) -> None:
    """Divide by the staleness, if it is at least 1."""
    arrays["centre"][push.where] += push.change / np.float32(max(push.staleness, 1))


def collect(arrays: Arrays, push: Push) -> None:
    """Collect pushes, of which the server applies the mean of ``soft`` at a time."""
    arrays["sum"][push.where] += push.change


def adagrad(arrays: Arrays, push: Push) -> None:
    """Divide a gradient by the root of the sum of all gradients' squares."""
    step, where = arrays["step"][push.sender], push.where
    squares = arrays["squares"][where] + (push.change / step) ** 2
    arrays["squares"][where] = squares
    arrays["centre"][where] += RATE * push.change / np.sqrt(squares + TINY)


def revision(arrays: Arrays, push: Push) -> None:
    """AdaptiveRevision: algorithm 4 of the paper, with ``RATE`` times the step for alpha."""
    step, where = arrays["step"][push.sender], push.where
    g = -push.change / step
    others = arrays["gradients"][where] - arrays["seen"][push.sender, where]
    before, z = arrays["most"][where], arrays["z"][where] + g * (g + 2 * others)
    most = np.maximum(before, z)
    alpha = RATE * step
    rate = alpha / np.sqrt(1 + most)
    arrays["centre"][where] += (alpha / np.sqrt(1 + before) - rate) * others - rate * g
    arrays["z"][where], arrays["most"][where] = z, most
    arrays["gradients"][where] += g


#: Each rule, its arrays of the model's size and their types, and whether these outlast a task.
RULES: dict[str, tuple[Callable[[Arrays, Push], None], dict[str, Any], bool]] = {
    "met": (by_replicas, {"met": np.int32}, False),
    "sum": (add, {}, False),
    "scaled": (scaled, {}, False),
    "soft": (collect, {"sum": np.float32}, False),
    "adagrad": (adagrad, {"squares": np.float32}, True),
    "revision": (revision, dict.fromkeys(("gradients", "z", "most"), np.float32), True),  # z and its maximum, less 1
}


@dataclass(frozen=True)
class Server(Exchange):
    """A parameter server, hosted by the replicas."""

    push: int = 1000  # rows of a replica between two pushes
    fetch: int = NO_LIMIT  # rows between two pulls; the default is as many as between pushes
    shards: int = 1
    warm: int = 0  # rows that replica 0 trains alone
    bound: int = NO_LIMIT
    rule: str = "met"
    soft: int = 1
    shrinks: bool = False  # there is an l1 penalty

    @property
    def _fetch(self) -> int:
        return self.push if self.fetch == NO_LIMIT else self.fetch

    @property
    def period(self) -> int:
        return math.gcd(self.push, self._fetch)

    def spec(self, size: int, count: int) -> Spec:
        arrays, (_, of_rule, _) = replicas_spec(size, count), RULES[self.rule]
        if self.rule == "revision":
            arrays["seen"] = ((count, size), np.float32)  # the gradients' sums that each replica has read
        return arrays | {
            **{name: ((size,), kind) for name, kind in of_rule.items()},
            "base": arrays["replicas"],
            "step": ((count,), np.float32),  # of each replica
            "centre": ((size,), np.float32),  # the server's parameters
            "version": ((size,), np.int32),  # clock of the last change
            "clock": ((self.shards,), np.int64),  # pushes to the shard
            "known": ((count, self.shards), np.int64),  # the clock that a replica's base is of, or TAKING
            "pushes": ((count, self.shards), np.int64),  # of each replica
            "resting": ((count,), np.int64),  # nobody waits for those that have ended or died
            "since": ((count, 2), np.int64),  # rows since the last push and the last pull
            "warmed": ((self.shards,), np.int64),  # rows of replica 0
            "staleness": ((STALEST + 1,), np.int64),  # pushes by their staleness
        }

    def kept(self) -> tuple[str, ...]:
        _, of_rule, lasting = RULES[self.rule]
        return (*(of_rule if lasting else ()), *["warmed"] * (self.warm > 0))

    def begin(self, flat: np.ndarray, arrays: Arrays) -> None:
        arrays["centre"][:] = flat
        if self.rule == "revision":
            arrays["seen"][:] = arrays["gradients"]

    # ---- a replica's side

    def trade(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        since = arrays["since"][link.replica]
        since += rows
        self._mend(w, arrays, link.replica)
        pushes, pulls = since[SINCE_PUSH] >= self.push, since[SINCE_PULL] >= self._fetch
        if pushes and left_out(w, arrays, link.replica):  # it goes on from what it knows of the server
            w[:] = arrays["base"][link.replica, : len(w)]
        if pulls:
            since[SINCE_PULL] = 0
        if pushes or pulls:
            yield from self._ask(BOTH if pushes and pulls else PUSH if pushes else PULL, w, arrays, link)

    def end(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        arrays["since"][link.replica] += rows
        self._mend(w, arrays, link.replica)
        base = arrays["base"][link.replica, : len(w)]
        if left_out(w, arrays, link.replica):
            w[:] = base
        for _ in range(ROUNDS):
            yield from self._ask(BYE, w, arrays, link)
            if not np.any(w != base):
                break

    def _mend(self, w: np.ndarray, arrays: Arrays, me: int) -> None:
        """Let a replica whose worker died while it took in an answer forget what it owes of the shard, and read all."""
        for shard in np.flatnonzero(arrays["known"][me] == TAKING):
            cut = cuts_of(len(w), self.shards)[shard]
            w[cut] = arrays["base"][me, cut]
            arrays["known"][me, shard] = 0

    def _ask(self, kind: int, w: np.ndarray, arrays: Arrays, link: Link) -> Iterator[None]:
        """Send a request to each shard, with what the replica owes unless it is a ``PULL``; take in the answers."""
        me = link.replica
        clocks, since = arrays["known"][me], arrays["since"][me]
        for shard, cut in enumerate(cuts_of(len(w), self.shards)):
            request = Message(kind, int(clocks[shard]), 0)
            if kind != PULL:
                base = arrays["base"][me, cut]
                with np.errstate(all="ignore"):
                    owed = w[cut] - base
                    where = np.flatnonzero(owed)
                    base[where] += owed[where]
                request = packed(request._replace(rows=int(since[SINCE_PUSH])), owed, where)
            link.ask(shard, request)
        if kind != PULL:
            since[SINCE_PUSH] = 0
        for shard in range(self.shards):
            while (reply := link.answer(shard)) is None:
                yield
            if reply is not NOTHING:
                self._take(w, arrays, link.replica, shard, reply)

    def _take(self, w: np.ndarray, arrays: Arrays, me: int, shard: int, reply: Message) -> None:
        """Take in what the server holds."""
        cut = cuts_of(len(w), self.shards)[shard]
        base, weights = arrays["base"][me, cut], w[cut]
        arrays["known"][me, shard] = TAKING
        if len(reply.values):
            where = reply.indices if len(reply.indices) else slice(None)
            with np.errstate(all="ignore"):
                before = base[where].copy()
                base[where] = reply.values
                w_before = weights[where].copy() if self.shrinks else None
                change = before - reply.values  # subtracted: -0.0 stays where nothing has changed
                if isinstance(where, slice):  # in place, weight by weight: workers that race on it lose next to nothing
                    weights -= change
                else:
                    np.subtract.at(weights, where.astype(np.intp, copy=False), change)
                if w_before is not None:
                    now = weights[where].copy()
                    moved = now.copy()
                    keep_sign(moved, before, w_before, reply.values)
                    passed = np.flatnonzero((moved == 0) & (now != 0))
                    weights[passed if isinstance(where, slice) else where[passed]] = 0
        arrays["known"][me, shard] = reply.clock

    # ---- a server's side

    def serve(self, shard: int, arrays: Arrays, sender: int, request: Message) -> Message | None:
        cut = cuts_of(len(arrays["centre"]), self.shards)[shard]
        version, before = arrays["version"][cut], None
        arrays["resting"][sender] = request.kind == BYE
        if request.kind != PULL:
            if self.rule == "sum":  # the sender knows its own change, so it is sent only what others have changed
                before = version > request.clock
            if request.rows or len(request.values):
                others = self.shrinks and len(arrays["rows"]) > 1 and version > request.clock
                unchanged = arrays["centre"][cut].copy() if self.shrinks else None
                self._apply(arrays, shard, cut, sender, request)
                if unchanged is not None:  # where others have moved it too, none of them may have meant to pass zero
                    arrays["centre"][cut][(arrays["centre"][cut] * unchanged < 0) & others] = 0
        if request.kind in (PUSH, BYE):
            return NOTHING
        pushes, resting = arrays["pushes"][:, shard], arrays["resting"] != 0
        warming = arrays["warmed"][shard] < self.warm
        if pushes[sender] - pushes[~resting].min() > self.bound and (sender or not warming):
            return None  # a bound does not hold up replica 0 while the others wait for it
        if sender and warming and not resting[0]:
            return None
        if self.rule == "revision":
            arrays["seen"][sender, cut] = arrays["gradients"][cut]
        changed = np.flatnonzero(version > request.clock if before is None else before)
        return packed(Message(REPLY, int(arrays["clock"][shard]), 0), arrays["centre"][cut], changed)

    def _apply(self, arrays: Arrays, shard: int, cut: slice, sender: int, request: Message) -> None:
        """Take in a push to a shard."""
        where, change = request.indices, request.values
        if not len(where):
            where = np.flatnonzero(change)
            change = change[where]
        clock = int(arrays["clock"][shard]) + 1
        staleness = (clock - 1) // self.soft - request.clock // self.soft
        push = Push(where.astype(np.int64) + cut.start, change, sender, staleness, clock)
        if request.rows:  # otherwise it is only what rounding has left
            arrays["staleness"][min(staleness, STALEST)] += 1
        # Before the change, so that others will read all of it even if the sender dies in the middle.
        arrays["version"][push.where] = arrays["clock"][shard] = clock
        with np.errstate(all="ignore"):
            RULES[self.rule][0](arrays, push)
        if self.rule == "soft" and clock % self.soft == 0:
            self._settle_sum(arrays, cut, clock, self.soft)
        arrays["pushes"][sender, shard] += 1
        if sender == 0:
            arrays["warmed"][shard] += request.rows

    def _settle_sum(self, arrays: Arrays, cut: slice, clock: int, pushes: int) -> None:
        """Add the mean of the pushes that are collected; nobody has read a result yet."""
        total = arrays["sum"][cut]
        moved = np.flatnonzero(total)
        with np.errstate(all="ignore"):
            arrays["centre"][cut][moved] += total[moved] / np.float32(pushes)
        arrays["version"][cut][moved] = clock
        total[:] = 0

    def lost(self, arrays: Arrays, replica: int) -> None:
        arrays["resting"][replica] = 1

    # ---- the end of a task

    def meeting(self, size: int, arrays: Arrays) -> list[Step]:
        """Each server sends its shard to all other replicas."""
        count = len(arrays["rows"])
        all_have, more = divmod(self.shards, count)
        shard = NOTHING.size + 4 * -(-size // self.shards)
        steps = [Step(all_have * (count - 1), shard, count), Step(count - 1, shard, more)]
        return [step for step in steps if step.messages and step.senders]

    def meet(self, flat: np.ndarray, arrays: Arrays, rows: np.ndarray) -> None:
        for shard, cut in enumerate(cuts_of(len(flat), self.shards) if self.rule == "soft" else ()):
            clock = int(arrays["clock"][shard])
            if pushes := clock % self.soft:
                self._settle_sum(arrays, cut, clock, pushes)
        flat[:] = arrays["centre"]
