"""Consensus ADMM: replicas that differ are pulled together by prices instead of being set equal (Boyd et al. 2011).

Each replica minimises its own rows' loss plus ``rho/2 ||x - z + u||^2``, where ``z`` is common to all and ``u`` is its
own sum of all ``x - z`` so far, the price of its disagreement. A trade is one iteration:

    x <- x + pull (z - u - x)        what the rows since the last trade did, pulled back
    z <- mean of x + u               of all replicas, in two steps as in ``averaging.py``
    u <- u + x - z

The pull is one implicit step on the quadratic term: ``rho = pull / ((1 - pull) rows step)``. At a fixed
point each replica's price cancels its drift. The prices sum to zero, so the gradients do too: ``z`` is the optimum over
all rows, though every replica has only some of them. The penalty is part of every row's loss, so ``z``
is a plain mean.

Prices outlive the epoch, after which every replica begins at ``z``; a resumed run begins with prices of zero. Rows are
reshuffled in each epoch, so replicas disagree little and plain averaging is faster. Use this to compare, or where
replicas keep different rows. It takes three more arrays a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hogwild.exchanges.averaging import direct, mean_of, next_round
from hogwild.exchanges.trade import (
    Arrays,
    Exchange,
    Link,
    Spec,
    Step,
    left_out,
    replicas_spec,
    round_of,
    round_room,
)
from hogwild.kernels.control import NO_LIMIT


@dataclass(frozen=True)
class Consensus(Exchange):
    """One iteration after each ``period`` rows and at the end of an epoch."""

    period: int = NO_LIMIT
    pull: float = 0.5
    shrinks: bool = False  # there is an l1 penalty; the mean of replicas passes zero only where one of them does

    def spec(self, size: int, count: int) -> Spec:
        arrays = replicas_spec(size, count)
        if count > 1:
            arrays |= dict.fromkeys(("base", "price"), arrays["replicas"]) | {"clock": ((count,), np.int64)}
        return arrays  # the base is z

    def room(self, size: int, count: int) -> int:
        if self.period == NO_LIMIT or count == 1:
            return 0
        return 2 * round_room(size, count)

    def trade(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        if link.replicas == 1:
            return
        me, size = link.replica, len(w)
        base, price = arrays["base"][me, :size], arrays["price"][me, :size]
        this = arrays["clock"][me] = next_round(arrays, link)[0]
        lost = left_out(w, arrays, me)
        if lost:  # this replica restarts from the common model
            w[:], price[:] = base, 0
        with np.errstate(all="ignore"):
            w += np.float32(self.pull) * (base - price - w)
            wish = w + price
        everybody = range(link.replicas)
        means = yield from direct(link, this, "rows", wish, int(not lost), everybody, lambda mean, cut: mean)
        with np.errstate(all="ignore"):
            for cut, values in means:
                base[cut] = values
                price[cut] = wish[cut] - values

    def end(self, w: np.ndarray, arrays: Arrays, link: Link, rows: int) -> Iterator[None]:
        if link.replicas > 1 and rows:
            me, size = link.replica, len(w)
            with np.errstate(all="ignore"):
                w += np.float32(self.pull) * (arrays["base"][me, :size] - arrays["price"][me, :size] - w)
        return iter(())  # the meeting is the last iteration

    def meeting(self, size: int, arrays: Arrays) -> list[Step]:
        return round_of(size, len(arrays["rows"]))

    def meet(self, flat: np.ndarray, arrays: Arrays, rows: np.ndarray) -> None:
        those, size = np.flatnonzero(arrays["begun"]).tolist(), len(flat)
        if not those:
            return
        w = arrays["replicas"][:, :size]
        those = [replica for replica in those if not left_out(w[replica], arrays, replica)] or those
        if "price" not in arrays:
            flat[:] = w[0]
            return
        prices = arrays["price"][:, :size]
        with np.errstate(all="ignore"):
            for replica in those:
                prices[replica] += w[replica]
            mean_of("rows", flat, [prices[replica] for replica in those], [1] * len(those))
            for replica in those:
                prices[replica] -= flat
