"""Averaging: every replica trains on its own rows, and the model is the replicas' mean, weighted by rows done.

``averaging`` (iterative parameter mixing): at the start of an epoch each replica is a copy of the shared array; it is
trained on the chunks that its worker claims, and at the end of the epoch the replicas' mean becomes the shared array.
Chunks are dealt out as to any workers, so the parts of an epoch are disjoint, random, and different each time. A plain
mean would favour the rows of a slow worker, hence the weights. With ``period=n`` (local SGD: Stich 2019) the replicas
are also averaged after every n rows of each: the mean of their changes is added to every replica and to
its base, which all replicas have in common.

``mean=moved``: the mean of a coordinate is over the replicas that moved it. Over all of them (``rows``), a feature that
one of R replicas has met would go a part of its way only (FedSubAvg: Ding et al. 2022). That a replica has moved a
coordinate is seen by its difference from the base. To count visits instead would tell apart what was met and left where
it was, which is rare, and would take a byte a weight on the line.

``outer``, ``momentum``: the mean change is taken as a gradient for a step with Nesterov's momentum (DiLoCo: Douillard
et al. 2023). ``threshold``: a round takes place when some replica is further from the last mean than that, in squares
(Kamp et al. 2018); then replicas also last from epoch to epoch, and the mean at its end is for the measurements.
``share``: in each round but an epoch's first only this share of the replicas, drawn anew, has trained (federated
averaging: McMahan et al. 2017), and the others have waited.

``one-shot-averaging``: the replicas start alike and never communicate. For the measurements of an epoch the shared
array is set to their mean, which does not flow back. With one epoch this is SimuParallelSGD (Zinkevich, Weimer,
Smola, Li 2010): one communication. More epochs extend it: a worker claims other rows in each epoch, so in time it sees
every row, as every thread does in figure 5(b) of Niu et al. (2011).

In a round by default (:func:`direct`) every replica sends each other one a slice of its own change, for that one to
average, and then sends all others the mean of its slice. Each of R replicas sends 2 (R - 1) messages and 2 (R - 1) / R
models: as many bytes as a ring, in two steps instead of 2 (R - 1). Nobody waits for a replica that has ended its
training; its slice then stays unchanged. By an all-reduce (:func:`summed`) replicas sum the changes times their
weights, and the weights where coordinates differ in them, which doubles the bytes; every replica has to take part until
all have ended.

Costs: replicas take R times the model's memory, bases and messages three times more if there is a period; an epoch
takes a copy by every worker and a mean by the parent (a few nanoseconds per weight and worker), all on the clock. A
mean is zero only where all replicas are, so ``l1`` leaves fewer exact zeros than with one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hogwild.exchanges.allreduce import all_reduce, give_up
from hogwild.exchanges.trade import (
    ALL,
    EMPTY,
    HEADER,
    LINE_FLOATS,
    Arrays,
    Exchange,
    Link,
    Message,
    Spec,
    Step,
    catch_up,
    collect,
    collected,
    cuts_of,
    keep_sign,
    left_out,
    replicas_spec,
    round_of,
    round_room,
    send,
    take,
)
from hogwild.kernels.control import NO_LIMIT

SHARE, MEAN = range(2)  # kinds of messages of a direct round, in their order
Means = list[tuple[slice, np.ndarray]]  # slices of the model, and how each is to change
Change = Callable[[np.ndarray, slice], np.ndarray]  # of a slice of the model, given the replicas' mean change
PIECE = 1 << 15  # weights averaged at a time, to stay in the cache


@dataclass(frozen=True)
class Averaging(Exchange):
    """Average replicas after each ``period`` rows, if that is less than an epoch, and after an epoch."""

    period: int = NO_LIMIT
    mean: str = "rows"
    by: str = "direct"
    outer: float = 1.0
    momentum: float = 0.0
    threshold: float = 0.0
    share: float = 1.0
    one_shot: bool = False  # never reset the replicas to their mean
    shrinks: bool = False  # there is an l1 penalty

    @property
    def _plain(self) -> bool:
        """Whether the mean itself is the next model."""
        return self.outer == 1.0 and self.momentum == 0.0

    @property
    def _lasting(self) -> bool:
        """Whether replicas last from epoch to epoch."""
        return self.one_shot or self.threshold > 0

    def spec(self, size: int, count: int) -> Spec:
        arrays, ints = replicas_spec(size, count), ((count,), np.int64)
        if self.period < NO_LIMIT or self.by != "direct":
            # "clock": of the last round; "traded", "passed": rows that were averaged, and rows since
            arrays |= {"base": arrays["replicas"], "clock": ints, "traded": ints, "passed": ints}
        if self.momentum:
            arrays["velocity"] = ((count, size), np.float32)  # each replica's counts in its own slice
        return arrays

    def room(self, size: int, count: int) -> int:
        if count == 1 or (self.period == NO_LIMIT and self.by == "direct"):
            return 0
        if self.by != "direct":
            one = (count.bit_length() + 1) * 4 * (2 * size + LINE_FLOATS) + 2 * count * 8 * HEADER
        else:
            one = round_room(size, count)
        return 2 * one  # no replica is more than a round ahead of one that has not read all of the last round

    def kept(self) -> tuple[str, ...]:
        names = ["velocity"] * bool(self.momentum) + ["replicas", "rows", "begun"] * self._lasting
        return (*names, *("base", "clock", "traded", "passed") * (self.threshold > 0))

    def begin(self, flat: np.ndarray, arrays: Arrays) -> None:
        if self.threshold > 0:  # who ended early has missed rounds
            base = arrays["base"]
            for replica in np.flatnonzero(arrays["begun"]):
                catch_up(arrays["replicas"][replica], base[replica], base[_newest(arrays)])
            arrays["clock"][:] = arrays["clock"].max()

    def trade(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        if link.replicas == 1 and self._plain:
            return
        me = link.replica
        passed = arrays["passed"]
        base = arrays["base"][link.replica, : len(w)]
        passed[me] += rows
        this, begun = next_round(arrays, link)
        if not begun and self.threshold > 0 and np.square(w - base).sum() < self.threshold:
            return
        while True:
            yield from self._round(w, arrays, link, this)
            this, here = this + 1, link.here()
            here[me] = False
            if me in self._drawn(this, link.replicas) or not here.any():
                return

    def end(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        if self.by == "direct" or link.replicas == 1:
            return  # the meeting takes in what is left
        arrays["passed"][link.replica] += rows
        while link.here().all():  # a round needs everybody, until all have ended
            if (yield from self._round(w, arrays, link, next_round(arrays, link)[0], ended=True)) == 0:
                return

    def _drawn(self, clock: int, count: int) -> list[int]:
        """Replicas that have trained before a round."""
        if self.share == 1.0 or clock == 1:
            return [*range(count)]
        drawn = np.random.default_rng((clock, count)).permutation(count)
        return [int(replica) for replica in drawn[: max(round(self.share * count), 1)]]

    def _round(
        self, w: np.ndarray, arrays: Arrays, link: Link, this: int, ended: bool = False
    ) -> Generator[None, None, float]:
        """Take part in a round; return how many replicas train on (1 if that is not known)."""
        me = link.replica
        drawn = self._drawn(this, link.replicas)
        arrays["clock"][me] = this
        rows = int(arrays["passed"][me]) if me in drawn else 0
        base = arrays["base"][me, : len(w)]
        if rows and left_out(w, arrays, me):  # it goes on from the last mean
            w[:] = base
            arrays["passed"][me] = 0
            rows = 0
        moved = bool(rows) and self.mean == "moved"
        before = w.copy() if moved else w
        owed = before - base if rows else np.zeros_like(w)

        def step(mean: np.ndarray, cut: slice) -> np.ndarray:
            return self._stepped(mean, arrays["velocity"][me, cut] if self.momentum else None)

        if self.by == "direct":
            means, training = (yield from direct(link, this, self.mean, owed, rows, drawn, step)), 1.0
        else:
            means, training = yield from summed(link, this, self.by, self.mean, owed, rows, step, ended)
        with np.errstate(all="ignore"):
            for cut, values in means:
                now, change = w[cut], values - owed[cut]
                was, old = now.copy(), base[cut].copy()
                base[cut] += values
                now += change  # in place, weight by weight: workers that race on it lose next to nothing
                still = (now == before[cut] + change) if moved else False
                if self.shrinks:
                    keep_sign(now, old, was, base[cut])
                np.copyto(now, base[cut], where=still)  # equal, or rounding would count as a move
        if means:
            arrays["traded"][me] += rows
            arrays["passed"][me] -= rows
        return training

    def _stepped(self, mean: np.ndarray, velocity: np.ndarray | None) -> np.ndarray:
        """The change of the model, given the mean change of the replicas."""
        if velocity is not None:
            velocity *= np.float32(self.momentum)
            velocity += mean
            mean = mean + np.float32(self.momentum) * velocity
        return mean if self.outer == 1.0 else np.float32(self.outer) * mean

    def meeting(self, size: int, arrays: Arrays) -> list[Step]:
        if self.by != "direct" or self.threshold > 0 or (self.one_shot and arrays["rows"].any()):
            return []  # rounds have done it, or the mean is for the measurements only
        return round_of(size, len(arrays["rows"]))

    def meet(self, flat: np.ndarray, arrays: Arrays, rows: np.ndarray) -> None:
        begun = arrays["begun"]
        for replica in np.flatnonzero(begun == 0) if self._lasting else ():  # such as those that died too early
            take(flat, arrays, int(replica))
        arrays["rows"][:] += rows
        done = arrays["rows"]
        if not done.sum():
            return
        size, every = len(flat), arrays["replicas"][:, : len(flat)]
        rounds = "clock" in arrays and bool(arrays["clock"].any())
        since = done - arrays["traded"] if rounds else done
        trained = np.flatnonzero((since > 0) & (begun != 0)).tolist()
        those = [r for r in trained if not left_out(every[r], arrays, r)] or trained
        bases = arrays["base"][:, :size] if "base" in arrays else np.broadcast_to(flat.copy(), (len(done), size))
        base = bases[_newest(arrays) if rounds else those[0]]
        with np.errstate(all="ignore"):
            flat[:] = 0 if rounds else base  # what has changed, or replicas as they are, for a single one's last bit
            parts = [every[r] - bases[r] if rounds else every[r] for r in those]
            mean_of(self.mean, flat, parts, [int(since[r]) for r in those])
            if self._plain or self._lasting or not len(those):
                flat[:] = base + flat if rounds else flat
                return
            cuts, velocity = cuts_of(size, len(done)), arrays.get("velocity")
            if velocity is not None:
                velocity[:] = np.concatenate([velocity[owner, cut] for owner, cut in enumerate(cuts)])
            change = self._stepped(flat - (0 if rounds else base), None if velocity is None else velocity[0])
            flat[:] = base + change
            if velocity is not None:
                velocity[:] = velocity[0]


def _newest(arrays: Arrays) -> int:
    """A replica that has taken part in the latest round."""
    return int(np.argmax(np.where(arrays["begun"], arrays["clock"], -1)))


# ---- rounds


def next_round(arrays: Arrays, link: Link) -> tuple[int, bool]:
    """The clock of a replica's next round, and whether others have begun it.

    The replacement of a dead worker joins the others' current round.
    """
    link.receive()
    latest = max((message.clock for queue in link.inbox for message in queue), default=0)
    clock = int(arrays["clock"][link.replica])
    return max(clock + 1, latest), latest > clock


def direct(
    link: Link,
    clock: int,  # of the round
    mean: str,  # rows, moved
    owed: np.ndarray,  # (n,) float32: the replica's change
    rows: int,  # that made it; 0: it has no part in the mean
    drawn: Sequence[int],  # replicas that have a part in the mean
    step: Change,
) -> Generator[None, None, Means]:
    """Take part in a round of two steps."""
    me = link.replica
    cuts = cuts_of(len(owed), link.replicas)
    for other in np.flatnonzero(link.here()).tolist() if me in drawn else ():
        if other != me:
            yield from send(link, other, Message(SHARE, clock, rows, owed[cuts[other]] if rows else EMPTY))
    yield from collect(link, SHARE, clock, drawn)
    shares = [(message.values, message.rows) for _, message in collected(link, SHARE, clock) if message.rows]
    if rows:
        shares.insert(0, (owed[cuts[me]], rows))
    change = np.zeros(cuts[me].stop - cuts[me].start, np.float32)
    if shares:
        mean_of(mean, change, *zip(*shares))
        change = step(change, cuts[me])
    if link.replicas > 1:
        yield from send(link, ALL, Message(MEAN, clock, rows, change))
    yield from collect(link, MEAN, clock)
    others = [(cuts[sender], message.values) for sender, message in collected(link, MEAN, clock)]
    return [(cuts[me], change), *others]


def summed(
    link: Link,
    clock: int,
    by: str,
    mean: str,
    owed: np.ndarray,
    rows: int,
    step: Change,
    ended: bool,  # without training on
) -> Generator[None, None, tuple[Means, float]]:
    """Take part in a round by an all-reduce.

    Returns the change of the model, if the round could be completed, and how many replicas train on.
    """
    if link.replaced:  # others may have sent its predecessor what they will not send again
        link.replaced = False
        yield from give_up(link, clock)
        return [], 1.0
    weight = rows * (owed != 0) if mean == "moved" else rows
    with np.errstate(all="ignore"):
        differing = [] if isinstance(weight, int) else [weight]
        sent = np.concatenate([owed * weight, *differing, [rows, not ended]], dtype=np.float32)
        total = yield from all_reduce(by, sent, link, clock)
        if total is None:
            return [], 1.0
        if total[-2] == 0:  # nobody has trained
            return [], float(total[-1])
        change, weights = total[: len(owed)], total[len(owed) : -2] if differing else total[-2]
        np.divide(change, weights, out=change, where=weights != 0)
    return [(slice(None), step(change, slice(None)))], float(total[-1])


def mean_of(kind: str, out: np.ndarray, parts: list[np.ndarray], weights: Sequence[int]) -> None:
    """Set ``out`` (n,) float32 to the mean of ``parts`` (n,), with positive ``weights``, summed in float64.

    ``moved``: the mean of each coordinate is over the parts that differ from ``out`` there. One in which no part
    differs stays as it is.
    """
    moved = kind == "moved"
    shares = np.array(weights) / (1 if moved else np.sum(weights))
    with np.errstate(all="ignore"):  # the evaluation detects divergence
        for first in range(0, len(out) if parts else 0, PIECE):
            piece = out[first : first + PIECE]
            mean, total = np.full(len(piece), -0.0), np.float64(0)  # a sum of minus zeros is one
            for part, share in zip(parts, shares):
                here = part[first : first + len(piece)]
                share = share * (here != piece) if moved else share
                mean += np.multiply(here, share, dtype=np.float64)
                total = total + share
            if moved:
                np.divide(mean, total, out=mean, where=total != 0)
            np.copyto(piece, mean, where=total != 0, casting="same_kind")
