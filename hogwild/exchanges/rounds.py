"""Rounds of averaging: how the mean of the replicas' changes comes about.

In two steps (:func:`direct`): every replica sends each other one a slice of its own change, for that one to average;
then every replica sends all others the mean of its slice. Each of R replicas sends 2 (R - 1) messages and 2 (R - 1) / R
models: as many bytes as a ring, in two steps instead of 2 (R - 1). Nobody waits for a replica that has ended its
training; its slice then stays unchanged.

By an all-reduce (:func:`summed`) of the changes times their weights, and of the weights where coordinates differ in
them, which doubles the bytes. There every replica has to take part until all have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np

from hogwild.exchanges.allreduce import all_reduce, give_up
from hogwild.exchanges.replicas import cuts_of, partial_mean, weighted_mean
from hogwild.exchanges.trade import ALL, EMPTY, Arrays, Link, Message, collect, found, send

SHARE, MEAN = range(2)  # kinds of messages of a direct round, in their order
Weight = int | np.ndarray  # of a replica, or of each of its coordinates
Means = list[tuple[slice, np.ndarray]]  # slices of the model, and how each is to change


class Part(NamedTuple):
    """What a replica brings into a round."""

    link: Link
    clock: int  # of the round
    mean: str  # rows, moved, adagrad
    owed: np.ndarray  # (n,) float32: its change
    rows: int  # that made it; 0: it has no part in the mean
    sums: np.ndarray | None  # (n,) float32: for mean adagrad
    drawn: list[int]  # replicas that have a part in the mean
    step: Callable[[np.ndarray, slice], np.ndarray]  # a slice's change of the model, given its mean change


def next_round(arrays: Arrays, link: Link) -> tuple[int, bool]:
    """The clock of a replica's next round, and whether others have begun it.

    The replacement of a dead worker joins the others' current round.
    """
    link.receive()
    latest = max((message.clock for queue in link.inbox for message in queue), default=0)
    clock = int(arrays["clock"][link.replica])
    return max(clock + 1, latest), latest > clock


def direct(part: Part) -> Generator[None, None, Means]:
    """Take part in a round of two steps."""
    link = part.link
    me = part.link.replica
    rows = part.rows
    cuts = cuts_of(len(part.owed), link.replicas)
    for other in np.flatnonzero(link.here()) if me in part.drawn else ():
        if other != me:
            values = _values(part, cuts[other]) if rows else EMPTY  # if none, nobody waits
            yield from send(link, int(other), Message(SHARE, part.clock, rows, values))
    yield from collect(link, SHARE, part.clock, part.drawn)
    messages = [message for _, message in found(link, SHARE, part.clock) if message.rows]
    if rows:
        messages.insert(0, Message(SHARE, part.clock, rows, _values(part, cuts[me])))
    length = cuts[me].stop - cuts[me].start
    mean = np.zeros(length, np.float32)
    mean_of(
        part.mean, mean, [(m.values[:length], m.values[length:] if part.sums is not None else m.rows) for m in messages]
    )
    if messages:
        mean = part.step(mean, cuts[me])
    if link.replicas > 1:
        yield from send(link, ALL, Message(MEAN, part.clock, rows, mean))
    yield from collect(link, MEAN, part.clock)
    return [(cuts[me], mean), *((cuts[sender], message.values) for sender, message in found(link, MEAN, part.clock))]


def _values(part: Part, cut: slice) -> np.ndarray:
    return part.owed[cut] if part.sums is None else np.concatenate((part.owed[cut], part.sums[cut]))


def summed(part: Part, by: str, ended: bool) -> Generator[None, None, tuple[Means, float]]:
    """Take part in a round by an all-reduce; ``ended``: without training on.

    Returns the change of the model, if the round could be completed, and how many replicas train on.
    """
    link, owed = part.link, part.owed
    if link.replaced:  # others may have sent its predecessor what they will not send again
        link.replaced = False
        yield from give_up(link, part.clock)
        return [], 1.0
    weight: Weight = part.rows
    if part.mean == "moved":
        weight = part.rows * (owed != 0)
    elif part.sums is not None:
        weight = part.sums if part.rows else np.zeros_like(owed)
    with np.errstate(all="ignore"):
        differing = [] if isinstance(weight, int) else [weight]
        sent = np.concatenate([owed * weight, *differing, [part.rows, not ended]], dtype=np.float32)
        total = yield from all_reduce(by, sent, link, part.clock)
        if total is None:
            return [], 1.0
        if total[-2] == 0:  # nobody has trained
            return [], float(total[-1])
        mean, weights = total[: len(owed)], total[len(owed) : -2] if differing else total[-2]
        np.divide(mean, weights, out=mean, where=weights != 0)
    return [(slice(None), part.step(mean, slice(None)))], float(total[-1])


def mean_of(kind: str, out: np.ndarray, shares: Sequence[tuple[np.ndarray, Weight]]) -> None:
    """Set ``out`` (n,) float32 to a mean of parts (n,) with weights; it holds the value of what did not move."""
    parts, weights = [part for part, _ in shares], [weight for _, weight in shares]
    if kind != "rows":
        partial_mean(out, parts, weights)
    elif parts:
        weighted_mean(out, parts, np.array(weights))
