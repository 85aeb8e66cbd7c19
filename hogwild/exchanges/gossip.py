"""Gossip: every replica sends all others the few weights that moved most, each by a fixed amount (Strom 2015).

A replica owes the others what it has learned and not sent, ``w - base``. In a trade, every weight that owes more
than ``tau`` is sent as plus or minus ``tau``, one sign and the code of its index, 9 bits at a density of 1 % instead of
64; the rest stays owed and is sent when enough has come together. What arrives is added, whenever it arrives. No
server, no rounds: nobody ever waits but for room in a log.

``tau=0`` finds tau at each trade, such that one weight in a hundred is sent: a fixed tau sends nearly everything at
first and nearly nothing in the end. A replica sees its own steps at once.

At the end of a task, every replica sends all it owes and waits for the others'. With ``home=0`` it goes on owing that
in the next task, and the parent adds it up for the measurements only: where a model is wide, the last message of an
epoch is longer than all before it. The sum of what was sent is kept apart from the weights at the start of the task. It
is exact, as every ``tau`` has only three bits, so it is the same in all replicas though deltas arrive in another order:
in the end replicas are equal to the last bit. A delta that is not finite is left out.

Costs: three arrays more a replica, each message to each of the others, and steps that are added
up, not averaged: with many replicas they have to be smaller. ``period`` is how stale the others' steps become.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hogwild.exchanges import deltas_kernel
from hogwild.exchanges.trade import (
    ALL,
    HEADER,
    Arrays,
    Exchange,
    Link,
    Message,
    Spec,
    catch_up,
    keep_sign,
    left_out,
    packed,
    replicas_spec,
    send,
)

SOME, LAST = range(2)  # kinds of messages
LOG = 1 << 18  # bytes of messages that a replica may be ahead of the others
MOST_BITS = 30  # of a gap that the code does not write in unary
SAMPLE = 1 << 14  # weights by which tau is found
DENSITY = 0.01  # share of the weights that a message holds
FEWEST = 64  # entries: their code is as long as the header of a message


@dataclass(frozen=True)
class Gossip(Exchange):
    """Send what exceeds ``tau`` to all others after each ``period`` rows."""

    period: int = 250
    tau: float = 0.0
    home: int = 1
    shrinks: bool = False  # there is an l1 penalty

    def spec(self, size: int, count: int) -> Spec:
        arrays = replicas_spec(size, count)
        if count > 1:
            compile_kernels()
            arrays |= dict.fromkeys(("base", "moved"), arrays["replicas"])
            arrays |= {"start": ((size,), np.float32), "trades": ((count,), np.int64), "ended": ((count,), np.int64)}
        return arrays

    def room(self, size: int, count: int) -> int:
        return 0 if count == 1 else 2 * (8 * HEADER + 4 * size + 64) + LOG

    def kept(self) -> tuple[str, ...]:
        return () if self.home else ("replicas", "begun", "base", "moved", "start", "trades")

    def begin(self, flat: np.ndarray, arrays: Arrays) -> None:
        if "start" not in arrays:
            return
        if self.home or not arrays["begun"].any():
            arrays["start"][:] = flat
        else:
            _catch_up(arrays)

    def trade(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        if link.replicas == 1:
            return
        state = _open(w, arrays, link.replica)
        self._take_in(state, link)
        payload = pack_signs(state, np.float32(self.tau))
        yield from send(link, ALL, Message(SOME, int(arrays["trades"][link.replica]), rows, payload))

    def end(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        me = link.replica
        if link.replicas == 1 or arrays["ended"][me]:
            return
        state = _open(w, arrays, me)
        self._take_in(state, link)
        owed = dict[int, np.ndarray]()
        last = Message(LAST, int(arrays["trades"][me]), rows)
        if left_out(w, arrays, me):  # it goes on from what all know
            w[:] = state.base
        if self.home:
            with np.errstate(all="ignore"):
                owed[me] = w - state.base
            last = packed(last, owed[me], np.flatnonzero(owed[me]))  # NaN is not zero
        yield from send(link, ALL, last)
        while True:
            here = link.here()  # before receiving: all messages of a replica that has ended have arrived
            self._take_in(state, link)
            if all(link.inbox[other] for other in np.flatnonzero(here) if other != me):
                break
            yield
        if not self.home:
            arrays["ended"][me] = 1 + sum(map(bool, link.inbox))
            return
        owed |= {sender: whole(queue[0], len(w)) for sender, queue in enumerate(link.inbox) if queue}
        _bring_home(w, state.base, [owed[replica] for replica in sorted(owed)])  # the same order in all replicas
        arrays["ended"][me] = len(owed)  # how many of them it has heard

    def meet(self, flat: np.ndarray, arrays: Arrays, rows: np.ndarray) -> None:
        all_of, ended = arrays["replicas"][:, : len(flat)], arrays.get("ended")
        if ended is None or (self.home and ended.any()):
            flat[:] = all_of[0 if ended is None else int(np.argmax(ended))]
            return
        heard, begun = _heard(arrays), arrays["begun"] != 0
        owed = []
        for replica in np.flatnonzero(begun).tolist():
            if not left_out(all_of[replica], arrays, replica):
                owed.append(all_of[replica] - arrays["base"][replica, : len(flat)])
        _bring_home(flat, arrays["base"][heard, : len(flat)] if arrays["trades"][heard] else arrays["start"], owed)

    def _take_in(self, state: ReplicaState, link: Link) -> None:
        """Add what has arrived from other replicas that still train."""
        before = (state.w.copy(), state.base.copy()) if self.shrinks else None
        link.receive()
        for queue in link.inbox:
            while queue and queue[0].kind == SOME:
                absorb(state, queue.popleft().values)
        if before is not None:
            w, base = before
            keep_sign(state.w, base, w, state.base)


def whole(message: Message, size: int) -> np.ndarray:
    """Return the change (size,) float32 of all weights in a message that was :func:`packed`."""
    if len(message.values) == size:
        return message.values
    change = np.zeros(size, np.float32)
    change[message.indices] = message.values
    return change


def _bring_home(out: np.ndarray, base: np.ndarray, owed: list[np.ndarray]) -> None:
    """Set ``out`` to what all know and the mean of what replicas owe, of each weight over those that owe any of it."""
    total, count = np.zeros_like(base), np.zeros(len(base), np.float32)
    with np.errstate(all="ignore"):
        for each in owed:
            total += each
            count += each != 0
        np.divide(total, count, out=total, where=count > 1)
        np.add(base, total, out=out)


def _heard(arrays: Arrays) -> int:
    """A replica that has heard all others; if there is none, one that has traded."""
    return int(np.argmax(2 * arrays["ended"] + (arrays["trades"] > 0)))


def _catch_up(arrays: Arrays) -> None:
    """Let replicas whose workers died hear what they have missed, or begin."""
    heard, base = _heard(arrays), arrays["base"]
    for replica in np.flatnonzero(arrays["ended"] == 0) if arrays["trades"][heard] else ():
        if not arrays["begun"][replica]:
            arrays["replicas"][replica] = base[replica] = base[heard]
        catch_up(arrays["replicas"][replica], base[replica], base[heard])
        arrays["moved"][replica] = arrays["moved"][heard]
        arrays["begun"][replica] = arrays["trades"][replica] = 1


def _open(w: np.ndarray, arrays: Arrays, me: int) -> ReplicaState:
    """Return a replica's arrays, which it clears at its first trade in a task."""
    moved = arrays["moved"][me, : len(w)]
    if not arrays["trades"][me]:
        moved[:] = 0
    arrays["trades"][me] += 1
    return ReplicaState(w, arrays["base"][me, : len(w)], moved, arrays["start"])


@lru_cache(None)
def compile_kernels() -> None:
    """Compile the kernels in the parent, before workers start, by a trade."""
    state = ReplicaState(*np.zeros((4, 64), np.float32))
    state.w[:9] = np.arange(9)
    absorb(state, pack_signs(state, np.float32(0)))


# ---- which entries are sent, and how: their count, the code's parameter, and ascending indices in a Golomb-Rice code.
# All parts are multiples of four bytes.


class ReplicaState(NamedTuple):
    """One replica's arrays, (size,) float32."""

    w: np.ndarray
    base: np.ndarray  # start + moved; w - base is owed
    moved: np.ndarray  # the sum of what it has sent and received
    start: np.ndarray  # the model at the start of the task


def parameter(count: int, size: int) -> int:
    """The lowest bits of a gap to write as they are, if ``count`` random ones of ``size`` weights are sent."""
    return min(max(round(math.log2(math.log(2) * size / max(count, 1))), 0), MOST_BITS)


def pack_entries(entries: np.ndarray, size: int) -> np.ndarray:
    """Pack ascending entries (n,) uint32, indices below ``size`` with a sign in the highest bit.

    Returns
    -------
    ndarray, uint32
    """
    count, k = len(entries), parameter(len(entries), size)
    words = np.empty(2 + (size >> k) // 32 + count * (k + 2) // 32 + 3, np.uint32)
    words[:2] = count, k
    return words[: 2 + deltas_kernel.rice_encode(entries, k, words[2:])]


def unpack_entries(data: np.ndarray) -> np.ndarray:
    """Return the entries that :func:`pack_entries` packed at the beginning of ``data`` (uint32)."""
    count, k = int(data[0]), int(data[1])
    entries = np.empty(count, np.uint32)
    words = np.append(data[2:], np.uint32(0))  # the decoder reads one ahead
    deltas_kernel.rice_decode(words, k, entries)
    return entries


def pack_signs(state: ReplicaState, tau: np.float32) -> np.ndarray:
    """Take plus or minus ``tau`` from each weight that owes more, and pack that, (n,) uint8.

    ``tau`` is rounded to three bits, so that sums of many are exact. A ``tau`` of 0 stands for the one that a share
    ``DENSITY`` of the weights exceeds, or half of those that owe anything, if these are fewer.
    """
    size = len(state.w)
    if not tau:
        stride = max(size // SAMPLE, 1) | 1  # odd: weights may lie in rows of even length
        counts = np.empty(deltas_kernel.BINS, np.int64)
        share = max(DENSITY, FEWEST / size)
        tau = np.float32(deltas_kernel.magnitude(state.w, state.base, stride, share, counts))
    bins = tau.view(np.int32) + (1 << deltas_kernel.SHIFT - 1) >> deltas_kernel.SHIFT
    tau = np.int32(bins << deltas_kernel.SHIFT).view(np.float32)
    entries = np.empty(size, np.uint32)
    count = deltas_kernel.quantised(*state, tau, entries) if tau else 0
    code = pack_entries(entries[:count], size)
    return np.concatenate((tau.reshape(1).view(np.uint32), code)).view(np.uint8)


def absorb(state: ReplicaState, code: np.ndarray) -> None:
    """Add the plus and minus tau that another replica packed."""
    data = code.view(np.uint32)
    entries = unpack_entries(data[1:])
    deltas_kernel.absorb_signs(*state, entries, len(entries), data[:1].view(np.float32)[0])
