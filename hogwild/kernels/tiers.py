"""Frequency-tiered replicas: private copies of the parameters, and the merges that bring them together.

A worker of discipline ``tiered`` runs the serial loop on its own copy, so that no cache line travels between cores
while it works on rows. Features are ranked by document frequency; the shared array holds them by rank, cut into
*tiers*; tier t is merged every ``intervals[t]`` rows, popular tiers often, rare ones seldom:

    delta = private - base;  shared += scale * delta;  private = base = shared

The private copy keeps the user's numbering, so that the inner loop needs no renumbered indices; the gather that this
costs at a merge stays in the worker's own cache. Where the rows are numbered by rank already, only popular features
are ranked here: their copies lie in front of the shared rest, which workers update in place, as ``hogwild`` does.
``problems/linear/tiers.py`` derives how ``scale`` and the intervals are chosen, and why they cannot diverge where one
worker does not.

Merges are plain loads and stores: if two workers merge the same coordinate within a few nanoseconds of each other, one
may lose its contribution. The intercept, which every merge of the first tier touches, is added atomically.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hogwild.kernels.atomics import compare_exchange, load, store
from hogwild.kernels.control import LINE, MERGED, WORKERS
from hogwild.kernels.options import called, inlined

QUANTUM = 4  # rows: the least distance between merges that the curvature asks for
PIECE = 64  # coordinates merged at a time: a shorter piece loses fewer updates between two workers
TINY = np.float32(1e-10)  # so that no step at all is not divided by zero
LARGE = np.float32(1e30)  # keeps one infinity from being divided by another
ZERO, ONE = np.float32(0), np.float32(1)
FLOATS = 16  # float32 in a cache line
PACK = 64  # features of equal degree that share a rate
SHARING = np.uint32(6)  # binary logarithm of that


class Tiers(NamedTuple):
    """How the coordinates are ranked and cut; read-only. The arrays are empty for other disciplines."""

    features: np.ndarray  # (ranked,) int32: the feature of each rank; empty if the problem numbers features by rank
    bounds: np.ndarray  # (tiers + 1,) int64: first rank of each tier, a multiple of a cache line; last, the end
    intervals: np.ndarray  # (tiers,) int64: most rows between two merges of a tier
    floors: np.ndarray  # (tiers,) int64: fewest rows between two merges of a tier
    patience: np.ndarray  # (tiers,) float64: see problems/linear/tiers.py
    rates: np.ndarray  # (ranked,) float32: bound on the curvature along a coordinate, per unit of the loss's
    tops: np.ndarray  # (tiers + 1,) float32: largest rate in each tier; last, the intercept's

    @property
    def in_place(self) -> bool:
        """Whether private copies lie in front of weights that workers share."""
        return bool(len(self.rates) and not len(self.features))


class Replica(NamedTuple):
    """A worker's view of the shared arrays, and its own record of them."""

    coef: np.ndarray  # shared, by rank, as in Parameters
    intercept: np.ndarray
    base_coef: np.ndarray  # own: the shared values at the last merge, by rank
    base_intercept: np.ndarray
    piece: np.ndarray  # (PIECE,) float32: what is being merged
    rows: np.ndarray  # (tiers,) int64: rows done in the epoch when each tier was last merged
    due: np.ndarray  # (tiers,) int64: most rows from then to the next merge
    grown: np.ndarray  # (tiers,) float64: sum of step times curvature of the loss when each tier was last merged
    limits: np.ndarray  # (tiers,) float64: how much that sum may grow until the next merge
    total: np.ndarray  # (tiers,) float64: the current sum, in the first element


@inlined
def share(x, workers):
    """Share of its delta that a worker adds: one where steps are small, ``1 / workers`` where they are large."""
    x = min(x, LARGE)
    return min(ONE, (ONE + x) / (workers * x + TINY))


@inlined
def feature_of(tiers, r):
    """Return the problem's number of the feature of rank ``r``."""
    return np.uint32(tiers.features[np.uint64(r)]) if len(tiers.features) else np.uint32(r)


@inlined
def merge_tier(tiers, replica, private, t, strength, workers, l1):
    """Merge tier ``t`` of the ``private`` parameters with the shared array; for one margin.

    ``strength`` is the sum over the rows since the last merge of step times the loss's curvature. Each piece is
    gathered, merged in a loop over contiguous memory without a branch, which becomes vector instructions, and
    scattered.
    """
    mine, shared, base, piece = private.coef, replica.coef, replica.base_coef, replica.piece
    end = tiers.bounds[t + 1]
    for first in range(tiers.bounds[t], end, PIECE):
        n = min(PIECE, end - first)
        for i in range(n):
            piece[np.uint64(i)] = mine[feature_of(tiers, first + i)]
        for i in range(n):
            r = np.uint64(first + i)
            new = merged(shared[r], base[r], piece[np.uint64(i)], share(strength * tiers.rates[r], workers), l1)
            shared[r] = new
            base[r] = new
            piece[np.uint64(i)] = new
        for i in range(n):
            mine[feature_of(tiers, first + i)] = piece[np.uint64(i)]


@inlined
def merge_lines(stride, tiers, replica, private, t, strength, workers, l1):
    """Do ``merge_tier`` for several classes."""
    mine, shared, base = private.coef, replica.coef, replica.base_coef
    width = np.uint64(stride)
    for r in range(tiers.bounds[t], tiers.bounds[t + 1]):
        scale = share(strength * tiers.rates[r], workers)
        p, q = np.uint64(r) * width, np.uint64(feature_of(tiers, r)) * width  # once: a store might change it
        for _ in range(stride):
            new = merged(shared[p], base[p], mine[q], scale, l1)
            shared[p] = new
            base[p] = new
            mine[q] = new
            p += np.uint64(1)
            q += np.uint64(1)


@inlined
def merged(now, old, mine, scale, l1):
    """The shared value ``now`` plus a worker's part, ``mine - old``; equal to ``mine`` if nobody else moved it.

    With an l1 penalty a weight crosses zero only if the worker's own copy did; otherwise the shrinkage of several
    workers at once could carry it to the other side.
    """
    new = mine + (now - old) if scale == ONE else now + scale * (mine - old)
    return ZERO if l1 and mine * old >= ZERO and now * old >= ZERO and new * old < ZERO else new


@inlined
def merge_intercept(stride, tiers, replica, private, strength, workers):
    """Merge the intercept as ``merge_tier`` does, but by atomic additions: every worker updates it."""
    scale = share(strength * tiers.tops[len(tiers.tops) - 1], workers)
    for k in range(stride):
        while True:
            now = load(replica.intercept, k)
            new = merged(now, replica.base_intercept[k], private.intercept[k], scale, False)
            if compare_exchange(replica.intercept, k, now, new):
                break
        replica.base_intercept[k] = new
        private.intercept[k] = new


@inlined
def merge_due(tiers, replica, private, control, plan, grown, rows):
    """Merge the tiers that are due and return when the next ones are.

    ``rows`` is the number of rows done in this epoch, and ``grown`` the sum over them of step times the loss's
    curvature. The two numbers returned are in the same units; the next merge is due when either is reached.
    """
    next_rows, next_grown = np.int64(1 << 62), np.inf
    for t in range(len(tiers.intervals)):
        age, strength = rows - replica.rows[t], grown - replica.grown[t]
        ripe = strength >= replica.limits[t]
        if age >= replica.due[t] or (ripe and age >= tiers.floors[t]):
            merge(tiers, replica, private, control, plan, t, np.float32(strength))
            replica.rows[t] = rows
            replica.grown[t] = grown
            replica.due[t] = tiers.intervals[t]
            ripe = False
        if ripe:
            next_rows = min(next_rows, replica.rows[t] + tiers.floors[t])
        else:
            next_rows = min(next_rows, replica.rows[t] + replica.due[t])
            next_grown = min(next_grown, replica.grown[t] + replica.limits[t])
    return next_rows, next_grown


@inlined
def merge(tiers, replica, private, control, plan, t, strength):
    """Merge tier ``t``, and with the first tier the intercept, and count the coordinates."""
    workers, l1 = np.float32(plan.workers), plan.l1 > 0
    if plan.stride > 1:
        merge_lines(plan.stride, tiers, replica, private, t, strength, workers, l1)
    else:
        merge_tier(tiers, replica, private, t, strength, workers, l1)
    if t == 0:
        merge_intercept(plan.stride, tiers, replica, private, strength, workers)
    cell = WORKERS + LINE * plan.worker + MERGED
    store(control, cell, load(control, cell) + tiers.bounds[t + 1] - tiers.bounds[t])


@called
def fetch_all(tiers, replica, private, plan):
    """Begin an epoch: copy the shared array, and stagger the first merges against those of other workers."""
    width = np.uint64(plan.stride)
    for r in range(tiers.bounds[0], tiers.bounds[len(tiers.bounds) - 1]):
        p, q = np.uint64(r) * width, np.uint64(feature_of(tiers, r)) * width
        for _ in range(plan.stride):
            now = replica.coef[p]  # read once: others may be merging
            replica.base_coef[p] = now
            private.coef[q] = now
            p += np.uint64(1)
            q += np.uint64(1)
    for k in range(plan.stride):
        replica.base_intercept[k] = load(replica.intercept, k)
        private.intercept[k] = replica.base_intercept[k]
    rank = plan.worker % plan.workers  # among those that share the array
    for t in range(len(tiers.intervals)):
        replica.rows[t], replica.total[t] = 0, 0.0
        replica.due[t] = max(tiers.intervals[t] // plan.workers * (rank + 1), 1)
        replica.limits[t] = tiers.patience[t] / max((plan.workers - 1) * np.float64(tiers.tops[t]), 1e-30)
        replica.grown[t] = -replica.limits[t] * (plan.workers - 1 - rank) / plan.workers


@inlined
def place_of_rate(u, popular):
    """Return the place of feature ``u`` in rates: the first ``own`` features have one each, 64 others one; 0: all."""
    return popular + ((u - popular) >> SHARING) if popular and u >= popular else u


def no_tiers() -> Tiers:
    """What disciplines without tiers have in their place."""
    return as_tiers([], [0], [], [], [], [], [])


def as_tiers(*parts: Any) -> Tiers:
    """The arrays as kernels want them: of one type each, read-only."""
    types = np.int32, np.int64, np.int64, np.int64, np.float64, np.float32, np.float32
    arrays = [np.array(part, dtype=dtype) for part, dtype in zip(parts, types, strict=True)]
    for array in arrays:
        array.flags.writeable = False
    return Tiers(*arrays)
