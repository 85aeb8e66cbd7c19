"""Graph cuts relaxed to the simplex: the loop that every worker runs over edges, for two labels and for more.

Each vertex has a row ``x_v`` of the simplex, and an edge of weight w costs ``w/2 ||x_u - x_v||_1`` (Recht, Re, Wright,
Niu 2011, section 2.5; the relaxation of Calinescu, Karloff, Rabani 2000). One update is

    m   = clip(x_v - x_u, -w (r_u + r_v), w (r_u + r_v)) / (r_u + r_v)        r_v = step / weighted degree of v
    x_u <- P(x_u + r_u m),   x_v <- P(x_v - r_v m)                            P: projection onto the simplex

The clip is essential. Without it this is the paper's subgradient, w times a sign, which overshoots the point where two
neighbours are equal. With it the move ends at the edge's own minimum (a proximal step; Bertsekas 2011), so steps can be
large and need no tuning: after 20 epochs at the same steps the relaxed value is 1.5 to 8 times nearer to its minimum,
at no more cost. Dividing by the degree (Pock, Chambolle 2011) makes the step a pure number, whatever the scale of the
weights.

With many labels, a vertex may be joined to many terminals, whose pulls nearly cancel; one by one they would make it
oscillate. Such a bundle of edges is one update, ``x_u <- P(x_u + 2 r_u t)`` with the weight ``t_a`` to label a: its
cost ``sum_a t_a (1 - x_u[a])`` is linear, so that is its proximal step too.

Two labels are one number, ``p = x_v[1]``, and P a clip to [0, 1]: the same relaxation in a fifth of the time, and the
weight may differ by direction. Terminals are pinned: they have rate zero and are never written. ``u`` is never a
terminal (``problem.py`` turns edges round), and if ``v`` is one the second store goes to ``u`` again: selecting the
address of a store costs nothing, whereas a branch that is taken every other time halves the speed.

A projection is not an addition: it rewrites a row, so there is no ``atomic`` for more than two labels, and rows written
by two workers at once may leave the simplex until the next edge, or the end, projects them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels.atomics import compare_exchange, load, prefetch
from hogwild.kernels.control import ABORT
from hogwild.kernels.locks import acquire, pass_turn, release, take_turn
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.kernels.vectors import fma
from hogwild.problems.linear.kernel import AIG, ATOMIC, DONE, LENGTH, LOCKED, ROUND_ROBIN, VISITED, claim, count

ZERO, ONE = np.float32(0), np.float32(1)
TINY = np.float32(1e-30)  # least divisor, when the step has fallen to nothing
ENDS_AHEAD, EDGE_AHEAD = 4, 8  # how many edges ahead vertices, and the edges' own arrays, are prefetched


class Parameters(NamedTuple):
    """The view of the one shared float32 array."""

    x: np.ndarray  # (n,) the share of label 1, or (n * stride,) the shares of all labels


class Data(NamedTuple):
    """Read-only arrays of the edges, none of which begins at a terminal; see ``problem.py``."""

    u: np.ndarray  # (m,) int32
    v: np.ndarray  # (m,) int32
    forward: np.ndarray  # (m,) float32: weight from u to v
    backward: np.ndarray  # (m,) float32: weight from v to u
    rates: np.ndarray  # (n,) float32: 1 / weighted degree; 0 for terminals
    bundle: np.ndarray  # (m,) int32: row of ``weights`` that the edge stands for, or -1; empty for two labels
    weights: np.ndarray  # (bundles * labels,) float32: weights of the edges from one vertex to each label's terminals


class Plan(NamedTuple):
    """The work of one worker in one epoch."""

    blocks: np.ndarray  # (n_blocks,) int32
    n_rows: int
    block: int
    shuffled: int
    n_chunks: int
    start: int  # first edge of this call: nonzero when an epoch is resumed
    seed: int
    epoch: int
    step: tuple[float, float, float]  # step(t) = scale / (offset + t)**power, t = edges visited before
    worker: int
    workers: int
    labels: int
    stride: int  # labels rounded up: numbers of a vertex in memory
    limit: int  # edges after which the call returns; it is then called again


@njit(**JIT)
def project(row, n):
    """Move ``row[:n]`` to the nearest point of the simplex, in place, exactly: ``max(row - tau, 0)`` (Michelot 1986).

    ``tau`` makes the positive entries sum to one; each pass drops those below it, and it only grows.
    """
    kept, tau = n + 1, np.float32(-np.inf)
    while True:
        s0 = ZERO
        s1 = ZERO
        s2 = ZERO
        s3 = ZERO
        c0 = 0
        c1 = 0
        c2 = 0
        c3 = 0
        k = 0
        while k + 4 <= n:
            a = row[k]
            b = row[k + 1]
            c = row[k + 2]
            d = row[k + 3]
            s0, c0 = s0 + (a if a > tau else ZERO), c0 + (a > tau)
            s1, c1 = s1 + (b if b > tau else ZERO), c1 + (b > tau)
            s2, c2 = s2 + (c if c > tau else ZERO), c2 + (c > tau)
            s3, c3 = s3 + (d if d > tau else ZERO), c3 + (d > tau)
            k += 4
        while k < n:
            a = row[k]
            s0, c0 = s0 + (a if a > tau else ZERO), c0 + (a > tau)
            k += 1
        positive = c0 + c1 + c2 + c3
        if positive >= kept:
            break
        kept, tau = positive, ((s0 + s1) + (s2 + s3) - ONE) / np.float32(positive)
    for k in range(n):
        row[k] = max(row[k] - tau, ZERO)


@inlined
def pull(two, x, data, e, u, v, pulls, labels, stride, total):
    """Return the edge's pull on its ends for rates that sum to ``total``; for more labels it goes to ``pulls``."""
    whole = max(total, TINY)
    up, down = data.forward[e] * total, -data.backward[e] * total
    if two:
        return min(max(x[v] - x[u], down), up) / whole
    if data.bundle[e] >= 0:
        first = np.int64(data.bundle[e]) * labels
        for k in range(labels):
            pulls[k] = data.weights[first + k] + data.weights[first + k]
        return ZERO
    a, b = np.int64(u) * stride, np.int64(v) * stride
    share = ONE / whole
    for k in range(labels):
        pulls[k] = min(max(x[b + k] - x[a + k], down), up) * share
    return ZERO


@inlined
def move_row(x, v, rate, pulls, row, labels, stride):
    """Set ``x_v <- P(x_v + rate * pulls)``, by way of ``row``, so that others see only projected numbers."""
    a = np.int64(v) * stride
    for k in range(labels):
        row[k] = fma(rate, pulls[k], x[a + k])
    project(row, labels)
    for k in range(labels):
        x[a + k] = row[k]


@inlined
def add_clipped(x, v, change):
    """Set ``x[v] <- clip(x[v] + change)``, losing no other worker's update."""
    while True:
        old = load(x, v)
        if compare_exchange(x, v, old, min(max(old + change, ZERO), ONE)):
            break


@inlined
def land(discipline, two, x, u, v, rate_u, rate_v, m, pulls, row, labels, stride):
    """Move both ends of an edge as the discipline requires, but never a terminal."""
    if not two:
        move_row(x, u, rate_u, pulls, row, labels, stride)
        if rate_v != ZERO:
            move_row(x, v, -rate_v, pulls, row, labels, stride)
    elif discipline == ATOMIC:
        add_clipped(x, u, rate_u * m)
        if rate_v != ZERO:
            add_clipped(x, v, -(rate_v * m))
    else:
        new_u = min(max(x[u] + rate_u * m, ZERO), ONE)
        new_v = min(max(x[v] - rate_v * m, ZERO), ONE)
        pinned = rate_v == ZERO
        where = u if pinned else v
        value = new_u if pinned else new_v
        x[u] = new_u
        x[where] = value


@inlined
def lock_ends(locks, u, v, rate_v, control):
    """Take the locks of both ends, in ascending order so that two workers cannot wait for each other."""
    if rate_v == ZERO:
        return acquire(locks, u, control, ABORT)
    return acquire(locks, min(u, v), control, ABORT) and acquire(locks, max(u, v), control, ABORT)


@inlined
def unlock_ends(locks, u, v, rate_v):
    release(locks, u)
    if rate_v != ZERO:
        release(locks, v)


@inlined
def prefetch_edge(x, data, rows, i, stride):
    """Prefetch data for edges a little ahead of ``rows[i]``; ``rows`` is padded, so nothing is out of range."""
    e = np.uint64(rows[i + EDGE_AHEAD])
    prefetch(data.u, e)
    prefetch(data.v, e)
    prefetch(data.forward, e)
    prefetch(data.backward, e)
    e = np.uint64(rows[i + ENDS_AHEAD])
    for end in (data.u[e], data.v[e]):
        prefetch(data.rates, np.uint32(end))
        for k in range(0, stride, 16):
            prefetch(x, np.int64(end) * stride + k)


@lru_cache(None)
def epoch(discipline, two, far):
    """One worker's loop over the chunks it claims; the discipline's code is from DISCIPLINES, other arguments 0 or 1.

    ``two``: a vertex is one number. ``far``: all vertices outgrow the cache, so those of edges ahead are prefetched.
    """

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state):
        x = parameters.x
        labels = plan.labels
        stride = plan.stride
        pulls, row = buffer[:stride], buffer[stride : 2 * stride]
        budget, step = plan.limit, ZERO
        while budget > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, plan, rows):
                if discipline == ROUND_ROBIN and take_turn(control, plan.worker):
                    pass_turn(control, plan.worker, plan.workers, True)
                break
            first, visited = state[DONE], state[VISITED]
            last = min(state[LENGTH], first + budget)
            step = step_at(plan.step, visited + first - first % STEP_EVERY)
            for i in range(first, last):
                e = np.uint64(rows[i])
                u, v = np.uint32(data.u[e]), np.uint32(data.v[e])
                if far:
                    prefetch_edge(x, data, rows, i, stride)
                if i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i)
                if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                    return
                rate_u, rate_v = step * data.rates[u], step * data.rates[v]
                m = pull(two, x, data, e, u, v, pulls, labels, stride, rate_u + rate_v)
                if discipline == AIG and not lock_ends(locks, u, v, rate_v, control):
                    return
                if discipline == ROUND_ROBIN and not take_turn(control, plan.worker):
                    return
                land(discipline, two, x, u, v, rate_u, rate_v, m, pulls, row, labels, stride)
                if discipline == AIG:
                    unlock_ends(locks, u, v, rate_v)
                if discipline == LOCKED:
                    release(locks, 0)
                if discipline == ROUND_ROBIN:
                    pass_turn(control, plan.worker, plan.workers, False)
            count(control, plan.worker, last - first, 2 * (last - first))
            state[DONE] = last
            budget -= last - first

    return run
