"""Matrix completion for implicit feedback: a rating is a choice, and items not chosen are drawn against it.

    log:  y = +1 for the rating, y = -1 for each drawn item; log(1 + exp(-y m)) of the margin  m = b_u + b_i + p_u . q_i
    bpr:  log(1 + exp(-(m_ui - m_uj))) for each drawn j  (Rendle, Freudenthaler, Gantner, Schmidt-Thieme 2009)

Items are drawn uniformly from all, as a function of (seed, epoch, rating) alone. An item that the user has chosen is
drawn again, a few times at most, and then left out. Drawn rows may lie anywhere, so tiles help half as much as in
``kernel.py``, whose loop this is. An exponential in float64 costs more than the vectors.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels.atomics import compare_exchange, load, prefetch
from hogwild.kernels.control import ABORT, count
from hogwild.kernels.cycles import spin
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.losses import LOG as LOGISTIC
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import GOLDEN, S32, generator, mix
from hogwild.kernels.steps import step_at
from hogwild.kernels.vectors import LANE, dot, fma, move_three
from hogwild.problems.completion.kernel import (
    DONE,
    FAR,
    LENGTH,
    SIDE,
    VISITED,
    add_atomic,
    claim,
    error,
    fuse_atomic,
    line_at,
    prefetch_line,
    prefetch_rows,
    projected,
    shrinkage,
    write,
)
from hogwild.problems.linear.kernel import AIG, ATOMIC, LOCKED, ONE, PLAIN, SERIAL, ZERO

LOG, BPR = 1, 2
TRIES = 8  # to draw an item that the user has not chosen


@inlined
def chosen(data, u, j):
    """Whether user ``u`` has chosen item ``j``: a binary search without branches to predict."""
    low, end = data.seen_begin[u], data.seen_begin[u + np.uint32(1)]
    size = end - low
    while size > 1:
        half = size // 2
        low += half if data.seen_items[np.uint64(low + half - 1)] < j else 0
        size -= half
    return size == 1 and data.seen_items[np.uint64(low)] == j


@inlined
def draw(data, plan, salt, k, t, u):
    """The ``t``-th item drawn against rating ``k`` of user ``u``, or -1 if none was found."""
    state = mix(salt + np.uint64(k))
    for attempt in range(t * TRIES, (t + 1) * TRIES):
        z = mix(state + np.uint64(attempt) * GOLDEN)
        j = np.int64(((z >> S32) * np.uint64(plan.n_items)) >> S32)
        if not chosen(data, u, j):
            return j
    return -1


@inlined
def write_three(lanes, discipline, nonnegative, biased, p, u, q, i, j, b_i, move, shrink_u, shrink_i, shrink_j):
    """Update a user and two items along the gradient times the step: ``move`` is that of the first item's margin."""
    if discipline == ATOMIC:
        size = np.uint64(LANE * len(lanes))
        for k in range(LANE * len(lanes)):
            x = np.uint64(u) * size + np.uint64(k)
            y, z = np.uint64(i) * size + np.uint64(k), np.uint64(j) * size + np.uint64(k)
            a = load(p, x)
            b = load(q, y)
            c = load(q, z)
            while True:
                old = load(p, x)
                new = projected(nonnegative, fma(-move, b, fma(move, c, old)) * shrink_u)
                if compare_exchange(p, x, old, new):
                    break
            fuse_atomic(q, y, -move, a, shrink_i, nonnegative)
            fuse_atomic(q, z, move, a, shrink_j, nonnegative)
        if biased:
            add_atomic(b_i, i, -move, shrink_i, False)
            add_atomic(b_i, j, move, shrink_j, False)
    else:
        move_three(lanes, nonnegative, p, u, q, i, j, move, shrink_u, shrink_i, shrink_j)
        if biased:
            b_i[i] = (b_i[i] - move) * shrink_i
            b_i[j] = (b_i[j] + move) * shrink_j


@inlined
def lock_three(locks, control, first, i, j):
    """Lock two items whose locks begin at ``first``, the lower one first, so that there is no deadlock."""
    return acquire(locks, first + min(i, j), control, ABORT) and acquire(locks, first + max(i, j), control, ABORT)


@inlined
def visit_pair(
    lanes, discipline, nonnegative, biased, delayed, parameters, locks, control, plan, u, i, y, step, shrink_u, shrink_i
):
    """A step of the loss ``log`` along item ``i``, chosen (``y`` 1) or not (-1); False if the run was aborted."""
    p = parameters.users
    q = parameters.items
    b_u = parameters.user_bias
    b_i = parameters.item_bias
    g = np.float32(dloss(LOGISTIC, error(lanes, biased, p, u, b_u, q, i, b_i, ZERO), y, 0.0))
    if delayed:
        spin(control, plan.delay)
    if discipline == AIG and not (
        acquire(locks, u, control, ABORT) and acquire(locks, plan.n_users + i, control, ABORT)
    ):
        return False
    write(lanes, discipline, nonnegative, biased, p, u, b_u, q, i, b_i, step * g, shrink_u, shrink_i)
    if discipline == AIG:
        release(locks, plan.n_users + i)
        release(locks, u)
    return True


@inlined
def visit_three(
    lanes,
    discipline,
    nonnegative,
    biased,
    delayed,
    parameters,
    locks,
    control,
    plan,
    u,
    i,
    j,
    step,
    shrink_u,
    shrink_i,
    shrink_j,
):
    """A step of the loss ``bpr`` along a chosen and a drawn item; return False if the run was aborted."""
    p = parameters.users
    q = parameters.items
    b_i = parameters.item_bias
    margin = dot(lanes, p, u, q, i) - dot(lanes, p, u, q, j)
    if biased:
        margin = margin + (b_i[i] - b_i[j])
    g = np.float32(dloss(LOGISTIC, margin, ONE, 0.0))
    if delayed:
        spin(control, plan.delay)
    if discipline == AIG and not (acquire(locks, u, control, ABORT) and lock_three(locks, control, plan.n_users, i, j)):
        return False
    write_three(lanes, discipline, nonnegative, biased, p, u, q, i, j, b_i, step * g, shrink_u, shrink_i, shrink_j)
    if discipline == AIG:
        release(locks, plan.n_users + j)
        release(locks, plan.n_users + i)
        release(locks, u)
    return True


@lru_cache(None)
def epoch(lanes, loss, discipline, per_row, nonnegative, biased, delayed=0):
    """One worker's loop over the tiles it claims, as ``kernel.epoch``, which has the tiered and fenced loops.

    A penalty per row is counted once, at the rating itself, and not for the items drawn against it.
    """
    rule = discipline if discipline == AIG else SERIAL if discipline in PLAIN else discipline

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, state, own):
        users = data.users
        items = data.items
        end = plan.n_rows - 1
        l2 = np.float32(plan.l2)
        budget = plan.limit
        salt = generator(plan.seed, plan.epoch, len(plan.blocks))
        while budget > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, data, plan):
                break
            first, last = state[DONE], min(state[LENGTH], state[DONE] + budget)
            here, flip = line_at(state, first - first % SIDE)
            at = first
            while at < last:
                stop = min(last, at - at % SIDE + SIDE)
                step = step_at(plan.step, state[VISITED] + at - at % SIDE)
                shrink = ONE if per_row else ONE / fma(step, l2, ONE)
                there, next_flip = line_at(state, min(stop, state[LENGTH] - 1))
                prefetch_line(data, line_at(state, min(stop + FAR * SIDE, state[LENGTH] - 1))[0])
                for j in range(at % SIDE, at % SIDE + stop - at):
                    ahead = np.uint64(min(there + (j ^ next_flip), end))
                    prefetch_rows(lanes, biased, parameters, np.uint32(users[ahead]), np.uint32(items[ahead]))
                    prefetch(data.seen_begin, np.uint32(users[ahead]))
                    k = np.uint64(here + (j ^ flip))
                    u, i = np.uint32(users[k]), np.uint32(items[k])
                    if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                        return
                    shrink_u = shrink_i = shrink
                    if per_row:
                        shrink_u = shrinkage(data.user_rates, u, step, l2)
                        shrink_i = shrinkage(data.item_rates, i, step, l2)
                    if loss == LOG and not visit_pair(
                        lanes,
                        rule,
                        nonnegative,
                        biased,
                        delayed,
                        parameters,
                        locks,
                        control,
                        plan,
                        u,
                        i,
                        ONE,
                        step,
                        shrink_u,
                        shrink_i,
                    ):
                        return
                    for t in range(plan.negatives):
                        drawn = draw(data, plan, salt, k, t, u)
                        if drawn < 0:
                            continue
                        if loss == LOG and not visit_pair(
                            lanes,
                            rule,
                            nonnegative,
                            biased,
                            delayed,
                            parameters,
                            locks,
                            control,
                            plan,
                            u,
                            np.uint32(drawn),
                            -ONE,
                            step,
                            shrink,
                            shrink,
                        ):
                            return
                        if loss == BPR and not visit_three(
                            lanes,
                            rule,
                            nonnegative,
                            biased,
                            delayed,
                            parameters,
                            locks,
                            control,
                            plan,
                            u,
                            i,
                            np.uint32(drawn),
                            step,
                            shrink_u,
                            shrink_i,
                            shrink,
                        ):
                            return
                        if per_row:
                            shrink_u = shrink_i = ONE
                    if discipline == LOCKED:
                        release(locks, 0)
                at = stop
                here = there
                flip = next_flip
            count(control, plan.worker, last - first, last - first)
            state[DONE] = last
            budget -= last - first

    return run
