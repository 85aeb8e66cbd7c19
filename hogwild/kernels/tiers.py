"""Frequency-tiered replicas: private copies of the parameters, and the merges that bring them together.

A worker of discipline ``tiered`` runs the serial loop on a copy of its own, so that no cache line travels between cores
while rows are worked on. Features are ranked by document frequency; the shared array holds them by rank, cut into
*tiers*; tier t is merged every ``intervals[t]`` rows, popular tiers often, rare ones seldom:

    delta = private - base;  shared += scale * delta;  private = base = shared

The private copy stays in the user's numbering, so that the inner loop needs no renumbered indices; the gather that this
costs a merge stays in the worker's own cache. How ``scale`` and the intervals are chosen, and why that cannot diverge
where one worker does not, is derived in ``problems/tiers.py``.

Merges are plain loads and stores: of two workers that merge the same coordinate within the same few nanoseconds one
may lose what it brought. The intercept, which every merge of the first tier touches, is added atomically.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels.atomics import compare_exchange, load, store
from hogwild.kernels.control import LINE, MERGED, WORKERS
from hogwild.kernels.options import JIT

QUANTUM = 4  # rows: merges that the curvature asks for come every so many rows at most
PIECE = 64  # coordinates merged at a time: the shorter, the less two workers can take from each other
TINY = np.float32(1e-10)  # as in kernels/linear.py
LARGE = np.float32(1e30)  # so that no infinity is divided by another
ZERO, ONE = np.float32(0), np.float32(1)


class Tiers(NamedTuple):
    """How the coordinates are ranked and cut; read-only. Other disciplines have empty arrays here."""

    features: np.ndarray  # (ranked,) int32: the feature of each rank
    bounds: np.ndarray  # (tiers + 1,) int64: the ranks at which tiers begin, multiples of a cache line; the end
    intervals: np.ndarray  # (tiers,) int64: rows between two merges of a tier, at most
    floors: np.ndarray  # (tiers,) int64: and rows that lie between them in any case
    patience: np.ndarray  # (tiers,) float64: see problems/tiers.py
    rates: np.ndarray  # (ranked,) float32: bound of the curvature along a coordinate, per unit of the loss's
    tops: np.ndarray  # (tiers + 1,) float32: the largest rate in each tier; last, the intercept's


class Replica(NamedTuple):
    """A worker's view of what it shares, and its own record of it."""

    coef: np.ndarray  # shared, by rank: as Parameters
    intercept: np.ndarray
    coef_squares: np.ndarray
    intercept_squares: np.ndarray
    base_coef: np.ndarray  # own: the shared values as of the last merge, by rank
    base_intercept: np.ndarray
    base_coef_squares: np.ndarray
    base_intercept_squares: np.ndarray
    piece: np.ndarray  # (PIECE,) float32: what is being merged
    rows: np.ndarray  # (tiers,) int64: rows done in the epoch when each tier was merged
    due: np.ndarray  # (tiers,) int64: rows from then to the next merge, at most
    grown: np.ndarray  # (tiers,) float64: sum of step times curvature of the loss when each tier was merged
    limits: np.ndarray  # (tiers,) float64: how much that may grow until the next merge
    total: np.ndarray  # (tiers,) float64: the first is that sum


@njit(forceinline=True, **JIT)
def share(x, workers, kappa):
    """What part of its delta a worker adds: one where steps are small, kappa / workers where they are large."""
    x = min(x, LARGE)
    return min(ONE, kappa * (ONE + x) / (workers * x + TINY))


@njit(forceinline=True, **JIT)
def merge_tier(tiers, replica, parameters, t, strength, workers, kappa, l1):
    """Bring tier ``t`` of the private ``parameters`` and the shared array together; one margin, no AdaGrad.

    ``strength``: sum over the rows since the last merge of step times the loss's curvature. Piece by piece: gather,
    then a loop over contiguous memory without a branch, which becomes vector instructions, then scatter.
    """
    private, shared, base, piece = parameters.coef, replica.coef, replica.base_coef, replica.piece
    end = tiers.bounds[t + 1]
    for first in range(tiers.bounds[t], end, PIECE):
        n = min(PIECE, end - first)
        for i in range(n):
            piece[np.uint64(i)] = private[np.uint32(tiers.features[np.uint64(first + i)])]
        for i in range(n):
            r = np.uint64(first + i)
            mine, old, now = piece[np.uint64(i)], base[r], shared[r]
            new = merged(now, old, mine, share(strength * tiers.rates[r], workers, kappa), l1)
            shared[r] = new
            base[r] = new
            piece[np.uint64(i)] = new
        for i in range(n):
            private[np.uint32(tiers.features[np.uint64(first + i)])] = piece[np.uint64(i)]


@njit(forceinline=True, **JIT)
def merge_rows(adagrad, stride, tiers, replica, parameters, t, strength, workers, kappa, l1):
    """``merge_tier`` for any number of classes, and with AdaGrad, whose sums of squares are added up whole."""
    private, shared, base = parameters.coef, replica.coef, replica.base_coef
    width = np.uint64(stride)
    for r in range(tiers.bounds[t], tiers.bounds[t + 1]):
        p, q = np.uint64(r) * width, np.uint64(np.uint32(tiers.features[r])) * width
        x = strength * tiers.rates[r]
        scale = share(x, workers, kappa)
        for _ in range(stride):
            if adagrad:
                others = replica.coef_squares[p] - replica.base_coef_squares[p]
                squares = parameters.coef_squares[q] + others
                scale = share(x / np.sqrt(squares + TINY), workers, kappa)
                replica.coef_squares[p] = squares
                replica.base_coef_squares[p] = squares
                parameters.coef_squares[q] = squares
            new = merged(shared[p], base[p], private[q], scale, l1)
            shared[p] = new
            base[p] = new
            private[q] = new
            p += np.uint64(1)
            q += np.uint64(1)


@njit(forceinline=True, **JIT)
def merged(now, old, mine, scale, l1):
    """The shared value ``now`` with a worker's part, ``mine - old``; equal to ``mine`` if nobody else moved it.

    With an l1 penalty a weight passes zero only if the worker's own copy did, or what several workers shrank at once
    would come out on the other side.
    """
    new = mine + (now - old) if scale == ONE else now + scale * (mine - old)
    return ZERO if l1 and mine * old >= ZERO and now * old >= ZERO and new * old < ZERO else new


@njit(forceinline=True, **JIT)
def add_delta(shared, k, mine, old, scale):
    """``merged`` into a shared cell that every worker wants, losing nothing; returns what it became."""
    while True:
        now = load(shared, k)
        new = merged(now, old, mine, scale, False)
        if compare_exchange(shared, k, now, new):
            return new


@njit(forceinline=True, **JIT)
def merge_intercept(adagrad, stride, tiers, replica, parameters, strength, workers, kappa):
    """As ``merge_tier``, with atomic additions."""
    x = strength * tiers.tops[len(tiers.tops) - 1]
    for k in range(stride):
        scale = share(x, workers, kappa)
        if adagrad:
            mine, old = parameters.intercept_squares[k], replica.base_intercept_squares[k]
            squares = add_delta(replica.intercept_squares, k, mine, old, ONE)
            scale = share(x / np.sqrt(squares + TINY), workers, kappa)
            replica.base_intercept_squares[k] = squares
            parameters.intercept_squares[k] = squares
        new = add_delta(replica.intercept, k, parameters.intercept[k], replica.base_intercept[k], scale)
        replica.base_intercept[k] = new
        parameters.intercept[k] = new


@njit(forceinline=True, **JIT)
def merge_due(adagrad, tiers, replica, parameters, control, plan, grown, rows, everything):
    """Merge the tiers whose time has come (``everything``: all that changed) and say when the next one's will.

    ``rows`` have been done in this epoch, and ``grown`` is the sum over them of step times the loss's curvature; so are
    the two numbers returned, of which either is enough.
    """
    next_rows, next_grown = np.int64(1 << 62), np.inf
    for t in range(len(tiers.intervals)):
        age, strength = rows - replica.rows[t], grown - replica.grown[t]
        ripe = strength >= replica.limits[t]
        if age >= replica.due[t] or (ripe and age >= tiers.floors[t]) or (everything and age > 0):
            merge(adagrad, tiers, replica, parameters, control, plan, t, strength)
            replica.rows[t], replica.grown[t], replica.due[t] = rows, grown, tiers.intervals[t]
            ripe = False
        if ripe:
            next_rows = min(next_rows, replica.rows[t] + tiers.floors[t])
        else:
            next_rows = min(next_rows, replica.rows[t] + replica.due[t])
            next_grown = min(next_grown, replica.grown[t] + replica.limits[t])
    return next_rows, next_grown


@njit(forceinline=True, **JIT)
def merge(adagrad, tiers, replica, parameters, control, plan, t, strength):
    """Merge tier ``t``, with the first also the intercept, and count the coordinates."""
    kappa, workers, strength = np.float32(plan.kappa), np.float32(plan.workers), np.float32(strength)
    l1 = plan.l1 > 0
    if adagrad or plan.stride > 1:
        merge_rows(adagrad, plan.stride, tiers, replica, parameters, t, strength, workers, kappa, l1)
    else:
        merge_tier(tiers, replica, parameters, t, strength, workers, kappa, l1)
    if t == 0:
        merge_intercept(adagrad, plan.stride, tiers, replica, parameters, strength, workers, kappa)
    cell = WORKERS + LINE * plan.worker + MERGED
    store(control, cell, load(control, cell) + tiers.bounds[t + 1] - tiers.bounds[t])


@njit(**JIT)
def fetch_all(adagrad, tiers, replica, parameters, plan):
    """Begin an epoch: copy the shared array, and set the first merges out of phase with other workers'."""
    width = np.uint64(plan.stride)
    for r in range(tiers.bounds[0], tiers.bounds[len(tiers.bounds) - 1]):
        p, q = np.uint64(r) * width, np.uint64(np.uint32(tiers.features[r])) * width
        for _ in range(plan.stride):
            now = replica.coef[p]  # read once: others may be merging
            replica.base_coef[p] = now
            parameters.coef[q] = now
            if adagrad:
                now = replica.coef_squares[p]
                replica.base_coef_squares[p] = now
                parameters.coef_squares[q] = now
            p += np.uint64(1)
            q += np.uint64(1)
    for k in range(plan.stride):
        replica.base_intercept[k] = load(replica.intercept, k)
        parameters.intercept[k] = replica.base_intercept[k]
        if adagrad:
            replica.base_intercept_squares[k] = load(replica.intercept_squares, k)
            parameters.intercept_squares[k] = replica.base_intercept_squares[k]
    for t in range(len(tiers.intervals)):
        replica.rows[t], replica.total[t] = 0, 0.0
        replica.due[t] = max(tiers.intervals[t] // plan.workers * (plan.worker + 1), 1)
        replica.limits[t] = tiers.patience[t] / max((plan.workers - 1) * np.float64(tiers.tops[t]), 1e-30)
        replica.grown[t] = -replica.limits[t] * (plan.workers - 1 - plan.worker) / plan.workers


@njit(**JIT)
def drop_small(adagrad, tiers, replica, rates, plan, step):
    """Zero what the l1 penalty of one more visit would; at the end of an epoch, and only with several workers.

    One worker shrinks a weight again at every visit. Of several, each shrinks a copy that is mostly zero already, and
    the sum of what is left over would be many small weights where there should be few.
    """
    width = np.uint64(plan.stride)
    for r in range(tiers.bounds[0], tiers.bounds[len(tiers.bounds) - 1]):
        pull = step * np.float32(plan.l1) * rates[np.uint32(tiers.features[r])]
        for k in range(plan.stride):
            p = np.uint64(r) * width + np.uint64(k)
            reach = pull / np.sqrt(replica.coef_squares[p] + TINY) if adagrad else pull
            if abs(replica.coef[p]) <= reach:
                replica.coef[p] = ZERO
