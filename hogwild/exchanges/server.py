"""A parameter server: replicas push what they have changed, and pull what others have; nobody waits for a round.

Downpour (Dean et al. 2012): a replica trains on its own copy, pushes its change every ``push`` rows, and pulls what has
changed every ``fetch`` rows. The server adds what arrives, or does with it what ``rule`` says (``rules.py``). The
parameters are cut into ``shards``, each with a clock of its own, on the machines of different replicas.

Everything is a change against a base. A replica has ``mine``, which it trains, and ``base``, what the server holds as
far as it knows. It pushes ``mine - base``; what it pulls is assigned to the base, and added as a change to ``mine``,
for ``mine`` may have moved since. With one replica nothing ever comes in, so it trains as it does alone, to the last
bit. When a replica has nothing left to train it pushes until it owes nothing, and the server's parameters are the
model.

With ``bound=s`` (stale synchronous parallel: Ho et al. 2013) a pull is answered once its sender is at most s pushes
ahead of the slowest replica. Those that have ended, or whose worker died, are not waited for. With ``warm=n`` replica 0
trains its first n rows alone; the others wait after their first push.

A change is sent as indices and values or as all values of the shard, whichever is shorter, and a pull brings only what
has changed since the last one: the server keeps the clock of each parameter's last change, four bytes each. What is not
finite is sent too, for the evaluation then detects the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hogwild.exchanges import replicas
from hogwild.exchanges.replicas import cuts_of
from hogwild.exchanges.rules import STALEST, Plain, apply, make_rule
from hogwild.exchanges.trade import BOTH, BYE, NOTHING, PULL, PUSH, REPLY, Arrays, Link, Message, Spec, Step, packed
from hogwild.kernels.control import NO_LIMIT

ROUNDS = 8  # pushes at the end of a task; two are enough for numbers that are finite
SINCE_PUSH, SINCE_PULL = range(2)


@dataclass(frozen=True)
class Server:
    """A parameter server, hosted by the replicas."""

    push: int = 1000  # rows of a replica between two pushes
    fetch: int = NO_LIMIT  # rows between two pulls; the default is as many as between pushes
    shards: int = 1
    warm: int = 0  # rows that replica 0 trains alone
    bound: int = NO_LIMIT
    rule: str = "plain"
    scale: str = "met"
    soft: int = 1
    alpha: float = math.inf  # of rule elastic; the default is 0.9 divided by the number of replicas
    rate: float = 1.0  # of rules adagrad and revision: their rate, as a multiple of the step
    shrinks: bool = False  # there is an l1 penalty

    @cached_property
    def _rule(self) -> Plain:
        return make_rule(self.rule, self.scale, self.soft, self.rate)

    @property
    def _fetch(self) -> int:
        return self.push if self.fetch == NO_LIMIT else self.fetch

    @property
    def period(self) -> int:
        return math.gcd(self.push, self._fetch)

    @property
    def _sums(self) -> bool:
        """Whether the server adds exactly what is pushed, so that the sender knows the result."""
        return self.rule == "plain" and self.scale == "sum"

    def spec(self, size: int, count: int) -> Spec:
        arrays = replicas.spec(size, count)
        return (
            self._rule.spec(size, count)
            | arrays
            | {
                "base": arrays["replicas"],
                "centre": ((size,), np.float32),  # the server's parameters
                "version": ((size,), np.int32),  # clock of the last change
                "clock": ((self.shards,), np.int64),  # pushes to the shard
                "known": ((count, self.shards), np.int64),  # the clock that a replica's base is of
                "pushes": ((count, self.shards), np.int64),  # of each replica
                "resting": ((count,), np.int64),  # nobody waits for those that have ended or died
                "taking": ((count, self.shards), np.int64),  # whether a replica is taking in an answer
                "since": ((count, 2), np.int64),  # rows since the last push and the last pull
                "warmed": ((self.shards,), np.int64),  # rows of replica 0
                "staleness": ((STALEST + 1,), np.int64),  # pushes by their staleness
            }
        )

    def room(self, size: int, count: int) -> int:
        return 0

    def kept(self) -> tuple[str, ...]:
        own = ("replicas", "begun") if self.rule == "elastic" else ()
        return own + self._rule.kept() + (("warmed",) if self.warm else ())

    def begin(self, flat: np.ndarray, arrays: Arrays) -> None:
        for name in ("version", "clock", "known", "pushes", "resting", "taking", "since", "staleness"):
            arrays[name][:] = 0
        arrays["centre"][:] = flat
        if self.rule == "elastic":
            arrays["base"][:, : len(flat)] = flat
        else:  # the replicas' contents are out of date
            arrays["begun"][:] = 0
        self._rule.begin(arrays)

    # ---- a replica's side

    def trade(self, mine: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        since = arrays["since"][link.replica]
        since += rows
        self._mend(mine, arrays, link.replica)
        pushes, pulls = since[SINCE_PUSH] >= self.push, since[SINCE_PULL] >= self._fetch
        if pushes and replicas.left_out(mine, arrays, link.replica):  # it goes on from what it knows of the server
            mine[:] = arrays["base"][link.replica, : len(mine)]
        if self.rule == "elastic":
            if pushes:
                yield from self._pull_together(mine, arrays, link)
        elif pushes or pulls:
            self._ask(BOTH if pushes and pulls else PUSH if pushes else PULL, mine, arrays, link)
        if pulls:
            since[SINCE_PULL] = 0
        yield from self._settle(mine, arrays, link)

    def end(self, mine: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        arrays["since"][link.replica] += rows
        self._mend(mine, arrays, link.replica)
        base = arrays["base"][link.replica, : len(mine)]
        if replicas.left_out(mine, arrays, link.replica):
            mine[:] = base
        for _ in range(ROUNDS):
            self._ask(BYE, base if self.rule == "elastic" else mine, arrays, link)
            yield from self._settle(mine, arrays, link)
            if self.rule == "elastic" or not np.any(mine != base):
                break

    def _mend(self, mine: np.ndarray, arrays: Arrays, me: int) -> None:
        """Let a replica whose worker died while it took in an answer forget what it owes of the shard, and read all."""
        for shard in np.flatnonzero(arrays["taking"][me]):
            cut = cuts_of(len(mine), self.shards)[shard]
            mine[cut] = arrays["base"][me, cut]
            arrays["known"][me, shard] = -1
            arrays["taking"][me, shard] = 0

    def _ask(self, kind: int, goal: np.ndarray, arrays: Arrays, link: Link) -> None:
        """Send a request to each shard, with what is missing to ``goal`` unless it is a ``PULL``."""
        me = link.replica
        known, since = arrays["known"][me], arrays["since"][me]
        for shard, cut in enumerate(cuts_of(len(goal), self.shards)):
            request = Message(kind, int(known[shard]), 0)
            if kind != PULL:
                base = arrays["base"][me, cut]
                with np.errstate(all="ignore"):
                    owed = goal[cut] - base
                    where = np.flatnonzero(owed)
                    base[where] += owed[where]
                request = packed(request._replace(rows=int(since[SINCE_PUSH])), owed, where)
            link.ask(shard, request)
        if kind != PULL:
            since[SINCE_PUSH] = 0

    def _settle(self, mine: np.ndarray, arrays: Arrays, link: Link) -> Iterator[None]:
        """Wait for answers and take them in."""
        for ticket, shard in [*link.asked.items()]:
            while (reply := link.answer(ticket)) is None:
                yield
            if reply is not NOTHING:
                self._take(mine, arrays, link.replica, shard, reply)

    def _take(self, mine: np.ndarray, arrays: Arrays, me: int, shard: int, reply: Message) -> None:
        """Take in what the server holds."""
        cut = cuts_of(len(mine), self.shards)[shard]
        base, own = arrays["base"][me, cut], mine[cut]
        arrays["taking"][me, shard] = 1
        if len(reply.values):
            where = reply.indices if len(reply.indices) else slice(None)
            with np.errstate(all="ignore"):
                before = base[where].copy()
                base[where] = reply.values
                if self.rule != "elastic":
                    mine_before = own[where].copy() if self.shrinks else None
                    replicas.subtract(own, where, before - reply.values)  # -0.0 stays where nothing has changed
                    if mine_before is not None:
                        now = own[where].copy()
                        moved = now.copy()
                        replicas.keep_sign(moved, before, mine_before, reply.values)
                        passed = np.flatnonzero((moved == 0) & (now != 0))
                        own[passed if isinstance(where, slice) else where[passed]] = 0
        arrays["known"][me, shard] = reply.clock
        arrays["taking"][me, shard] = 0

    def _pull_together(self, mine: np.ndarray, arrays: Arrays, link: Link) -> Iterator[None]:
        """Move the replica and the server towards each other (rule elastic)."""
        self._ask(PULL, mine, arrays, link)
        yield from self._settle(mine, arrays, link)
        base = arrays["base"][link.replica, : len(mine)]
        alpha = np.float32(0.9 / link.replicas if math.isinf(self.alpha) else self.alpha)
        with np.errstate(all="ignore"):
            move = alpha * (mine - base)
            mine -= move
            self._ask(PUSH, base + move, arrays, link)

    # ---- a server's side

    def serve(self, shard: int, arrays: Arrays, sender: int, request: Message) -> Message | None:
        cut = cuts_of(len(arrays["centre"]), self.shards)[shard]
        version, before = arrays["version"][cut], None
        arrays["resting"][sender] = request.kind == BYE
        if request.kind != PULL:
            if self._sums:  # the sender knows its own change, so it is sent only what others have changed
                before = version > request.clock
            if request.rows or len(request.values):
                others = self.shrinks and len(arrays["rows"]) > 1 and version > request.clock
                held = arrays["centre"][cut].copy() if self.shrinks else None
                apply(self._rule, arrays, shard, cut, sender, request)
                if held is not None:  # where others have moved it too, none of them may have meant to pass zero
                    arrays["centre"][cut][(arrays["centre"][cut] * held < 0) & others] = 0
        if request.kind in (PUSH, BYE):
            return NOTHING
        pushes, resting = arrays["pushes"][:, shard], arrays["resting"] != 0
        if pushes[sender] - pushes[~resting].min() > self.bound:
            return None
        if sender and arrays["warmed"][shard] < self.warm and not resting[0]:
            return None
        self._rule.read(arrays, sender, cut)
        changed = np.flatnonzero(version > request.clock if before is None else before)
        return packed(Message(REPLY, int(arrays["clock"][shard]), 0), arrays["centre"][cut], changed)

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
        self._rule.end(arrays)
        flat[:] = arrays["centre"]
