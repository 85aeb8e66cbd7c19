"""Sparse linear models with one margin per class: one-versus-rest in a single pass over the data, and softmax.

The loops are those of ``kernel.py`` and ``turns_kernel.py`` with vectors in place of numbers. The weights of a feature
lie together, (width, stride), so that a nonzero touches one or a few whole cache lines and the loop over classes
becomes vector instructions; the columns beyond ``classes`` stay zero. One lock guards a feature's row.

    one-versus-rest:  g_k = s * loss'(m_k, +1 if y = k else -1)        softmax:  g_k = s * (softmax(m)_k - [y = k])
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels import lanes as vectors
from hogwild.kernels.atomics import fetch_add, load, prefetch, store
from hogwild.kernels.control import ABORT, TURN, count
from hogwild.kernels.cycles import spin
from hogwild.kernels.fma import fma
from hogwild.kernels.lanes import LANES
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.loss_kernel import bend, dloss, ease
from hogwild.kernels.losses import SOFTMAX
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, WEIGHTS_AHEAD, chunk_rows, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, scale_at, shrink_a_row, squared_length, step_at
from hogwild.kernels.tiers import QUANTUM, merge_due, place_of_rate
from hogwild.problems.linear.kernel import (
    AIG,
    APART,
    ATOMIC,
    DONE,
    ELASTIC,
    L2_SCALED,
    L2_TABLE,
    LENGTH,
    LOCKED,
    NO_PENALTY,
    ONE,
    PACKED,
    PLAIN,
    SERIAL,
    TIERED,
    VISITED,
    ZERO,
    apart,
    claim,
    come_in,
    go_out,
    intercept_move,
    lock_row,
    row_factor,
    unlock_row,
    visits,
    write,
)
from hogwild.problems.linear.turns_kernel import HANDED, ROW, SOME, TAKEN, begin_turn

VECTORS = 6  # of ``stride`` elements at the start of a worker's buffer (one spare); gathered coordinates follow


@inlined
def parts(buffer, stride):
    """Margins (later slopes), bias, owed, gained and squares, and the rest of the buffer."""
    return (
        buffer[:stride],
        buffer[stride : 2 * stride],
        buffer[2 * stride : 3 * stride],
        buffer[3 * stride : 4 * stride],
        buffer[4 * stride : 5 * stride],
        buffer[VECTORS * stride :],
    )


@inlined
def dots(lanes, gathered, margins, coef, data, stride, begin, end):
    """``margins[k] = sum_j coef[indices[j], k] * values[j]``; ``stride`` is a multiple of ``lanes``.

    With ``gathered``, ``coef`` holds copies of the row's weights only, one feature after the other. There are four
    sums, so that no addition waits for the last.
    """
    for k in range(0, stride, len(lanes)):
        s0, s1, s2, s3 = vectors.nothing(lanes), vectors.nothing(lanes), vectors.nothing(lanes), vectors.nothing(lanes)
        j = begin
        while j + 4 <= end:
            s0 = add_product(lanes, gathered, s0, coef, data, stride, begin, j, k)
            s1 = add_product(lanes, gathered, s1, coef, data, stride, begin, j + 1, k)
            s2 = add_product(lanes, gathered, s2, coef, data, stride, begin, j + 2, k)
            s3 = add_product(lanes, gathered, s3, coef, data, stride, begin, j + 3, k)
            j += 4
        while j < end:
            s0 = add_product(lanes, gathered, s0, coef, data, stride, begin, j, k)
            j += 1
        vectors.store(vectors.plus(vectors.plus(s0, s1), vectors.plus(s2, s3)), margins, k)


@inlined
def add_product(lanes, gathered, total, coef, data, stride, begin, j, k):
    """Add to ``total`` the weights of entry ``j``, classes from ``k`` on, times its value."""
    i = np.uint64(j)
    place = np.uint64(j - begin) if gathered else np.uint64(np.uint32(data.indices[i]))
    return vectors.fma(data.values[i], vectors.load(lanes, coef, place * np.uint64(stride) + np.uint64(k)), total)


@inlined
def prefetch_weights(adagrad, parameters, data, stride, row):
    """Prefetch the weights of a row and their sums of squares."""
    for j in range(data.begin[row], data.end[row]):
        first = np.uint64(np.uint32(data.indices[np.uint64(j)])) * np.uint64(stride)
        for k in range(0, stride, 16):
            prefetch(parameters.coef, first + np.uint64(k))
            if adagrad:
                prefetch(parameters.coef_squares, first + np.uint64(k))


@inlined
def slopes(loss, margins, target, weight, classes, param, passive=0, step=ONE, squares=0.0, part=ZERO):
    """Replace the margins by the loss's gradient in them, and the padding by zero; return whether any is nonzero.

    The last three arguments are those of ``losses.ease``.
    """
    some = False
    label = np.int64(target)
    if loss == SOFTMAX:
        top = margins[0]
        for k in range(1, classes):
            top = max(top, margins[k])
        total = 0.0
        for k in range(classes):
            total += math.exp(np.float64(margins[k] - top))
        if passive:  # as for loss log, of the label against the class with the largest margin, which moves as well
            gap = np.float64(margins[label] - top)
            share = math.exp(gap) / total
            bent = share * (1.0 - share) if gap >= 0.0 else 1.0 / (4.0 - gap)
            weight = np.float32(weight / (1.0 + 2.0 * step * weight * (squares + part) * bent))
        for k in range(classes):
            share = math.exp(np.float64(margins[k] - top)) / total
            margins[k] = np.float32(share - (1.0 if k == label else 0.0)) * weight
        some = True
    else:
        for k in range(classes):
            y = 1.0 if k == label else -1.0
            slope = dloss(loss, margins[k], y, param)
            if passive:
                slope *= ease(passive, loss, margins[k], y, slope, param, step, squares, weight, part)
            margins[k] = np.float32(slope) * weight
            some = some or margins[k] != ZERO
    for k in range(classes, len(margins)):
        margins[k] = ZERO
    return some


@inlined
def add_bends(bent, loss, margins, target, factor, classes, param):
    """Add to ``bent`` (stride,) ``factor`` times ``losses.bend`` of each class; return the largest sum.

    For softmax, this is the diagonal of its second derivative. Each class has its own sum: few classes may bend where
    most do not.
    """
    label, top, total, largest = np.int64(target), margins[0], 0.0, ZERO
    if loss == SOFTMAX:
        for k in range(1, classes):
            top = max(top, margins[k])
        for k in range(classes):
            total += math.exp(np.float64(margins[k] - top))
    for k in range(classes):
        if loss == SOFTMAX:
            share = math.exp(np.float64(margins[k] - top)) / total
            found = share * (1.0 - share)
        else:
            y = 1.0 if k == label else -1.0
            found = bend(loss, margins[k], y, dloss(loss, margins[k], y, param), param)
        bent[k] += factor * np.float32(found)
        largest = max(largest, bent[k])
    return largest


@inlined
def write_rows(lanes, rule, penalty, adagrad, parameters, data, stride, begin, end, g, factor, step, l1, l2, own=0):
    """Update the weights of every class for every feature of a row whose gradient is ``g[k] * factor * values``."""
    if not adagrad and rule != ATOMIC and penalty != ELASTIC and penalty != APART:
        move(lanes, penalty, parameters.coef, data, stride, begin, end, g, factor, step, l2, own)
        return
    for j in range(begin, end):
        u = np.uint32(data.indices[np.uint64(j)])
        first = np.uint64(u) * np.uint64(stride)
        x = data.values[np.uint64(j)] * factor
        a = x if adagrad else step * x
        rate = data.rates[place_of_rate(u, own)] if visits(penalty) else ZERO
        pull = l2 * apart(penalty, data.rates, u)
        for k in range(stride):
            write(rule, penalty, adagrad, parameters, first + np.uint64(k), a, g[k], step, rate, l1, pull)


@inlined
def move(lanes, penalty, coef, data, stride, begin, end, g, factor, step, l2, own):
    """Do ``write_rows`` with plain stores of whole vectors, without an l1 penalty and sums of squares."""
    width = np.uint64(stride)
    for k in range(0, stride, len(lanes)):
        slope = vectors.load(lanes, g, k)
        for j in range(begin, end):
            i = np.uint64(j)
            u = np.uint32(data.indices[i])
            first = np.uint64(u) * width + np.uint64(k)
            moved = vectors.fma(-step * (data.values[i] * factor), slope, vectors.load(lanes, coef, first))
            if visits(penalty):
                rate = data.rates[place_of_rate(u, own)]
                if penalty == L2_TABLE:
                    moved = vectors.times(rate, moved)
                else:
                    moved = vectors.over(moved, fma(step * rate, l2, ONE))
            vectors.store(moved, coef, first)


@inlined
def refresh(bias, squares, parameters, adagrad):
    """Read the shared intercept (and its sums of squares)."""
    for k in range(len(bias)):
        bias[k] = load(parameters.intercept, k)
        if adagrad:
            squares[k] = load(parameters.intercept_squares, k)


@inlined
def settle(alone, adagrad, parameters, bias, owed, gained, squares):
    """Add what is owed to the shared intercept, atomically unless the worker is alone with it."""
    for k in range(len(bias)):
        if alone:
            bias[k] = bias[k] - owed[k]
            parameters.intercept[k] = bias[k]
        else:
            bias[k] = fetch_add(parameters.intercept, k, -owed[k]) - owed[k]
        if adagrad:
            squares[k] = fetch_add(parameters.intercept_squares, k, gained[k]) + gained[k]
        owed[k], gained[k] = ZERO, ZERO


@lru_cache(None)
def epoch(loss, discipline, penalty, adagrad, far, size, delayed=0, passive=0):
    """Do ``kernel.epoch``; values are always read. ``size`` is the lanes of a vector, and divides the stride."""
    lanes, rule = LANES[size], SERIAL if discipline in PLAIN else discipline
    alone = int(discipline in (SERIAL, LOCKED, TIERED))

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state, tiers, replica):
        l1, l2, part = np.float32(plan.l1), np.float32(plan.l2), np.float32(plan.intercept)
        stride, coef, step = plan.stride, parameters.coef, ZERO
        scale, shrink, begun = ONE, ONE, plan.epoch * plan.n_rows
        g, bias, owed, gained, squares, _ = parts(buffer, stride)
        owed[:], gained[:] = ZERO, ZERO
        left, done, grown, due, ripe = plan.limit, 0, 0.0, 0, 0.0
        own = np.uint32(plan.own_rates if far == PACKED else 0)
        bent, most = buffer[(VECTORS - 1) * stride : VECTORS * stride], ZERO  # tiered: curvature since the last merge
        bent[:] = ZERO
        if discipline == TIERED:
            done, grown = come_in(adagrad, tiers, replica, parameters, plan, state)
        while left > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, plan, rows):
                break
            first, visited = state[DONE], state[VISITED]
            last = min(state[LENGTH], first + left)
            unpaid, nonzeros = 0, 0
            step = step_at(plan.step, visited + first - first % STEP_EVERY)
            if penalty == L2_SCALED:
                scale = scale_at(plan, visited - begun + first * plan.workers)
                shrink = shrink_a_row(plan, step)
            refresh(bias, squares, parameters, adagrad)
            for i in range(first, last):
                row = rows[i]
                begin, end = data.begin[row], data.end[row]
                prefetch_entries(data, rows, i)
                if far:
                    prefetch_weights(adagrad, parameters, data, stride, rows[i + WEIGHTS_AHEAD])
                if i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i)
                    if penalty == L2_SCALED:
                        scale = scale_at(plan, visited - begun + i * plan.workers)
                        shrink = shrink_a_row(plan, step)
                if discipline == LOCKED:
                    if not acquire(locks, 0, control, ABORT):
                        return
                    refresh(bias, squares, parameters, adagrad)
                factor = row_factor(data.scales, row)
                dots(lanes, False, g, coef, data, stride, begin, end)
                for k in range(stride):
                    g[k] = fma(factor * scale, g[k], bias[k] - owed[k])
                weight = row_factor(data.weights, row)
                if discipline == TIERED:
                    most = add_bends(bent, loss, g, data.targets[row], step * weight, plan.classes, plan.loss_param)
                length = squared_length(data.values, begin, end, factor) if passive else 0.0
                some = slopes(
                    loss, g, data.targets[row], weight, plan.classes, plan.loss_param, passive, step, length, part
                )
                if delayed:
                    spin(control, plan.delay)
                scale = scale * shrink
                if some or visits(penalty):
                    if discipline == AIG and not lock_row(locks, data, begin, end, control):
                        return
                    reach = step / scale
                    write_rows(
                        lanes,
                        rule,
                        penalty,
                        adagrad,
                        parameters,
                        data,
                        stride,
                        begin,
                        end,
                        g,
                        factor,
                        reach,
                        l1,
                        l2,
                        own,
                    )
                    if discipline == AIG:
                        unlock_row(locks, data, begin, end)
                if part != ZERO:
                    for k in range(stride):
                        move, square = intercept_move(adagrad, squares[k], gained[k], g[k], part * step)
                        owed[k] += move
                        gained[k] += square
                    unpaid += 1
                    if unpaid >= plan.flush or i == last - 1:
                        settle(alone, adagrad, parameters, bias, owed, gained, squares)
                        unpaid = 0
                if discipline == LOCKED:
                    release(locks, 0)
                if discipline == TIERED:
                    done += 1
                    if done >= due or (grown + most >= ripe and (done + plan.worker) % QUANTUM == 0):
                        grown, most, bent[:] = grown + most, ZERO, ZERO
                        due, ripe = merge_due(adagrad, tiers, replica, parameters, control, plan, grown, done)
                        refresh(bias, squares, parameters, adagrad)
                nonzeros += end - begin
            count(control, plan.worker, last - first, nonzeros)
            state[DONE] = last
            left -= last - first
        if discipline == TIERED:
            grown += most
            go_out(
                adagrad, penalty, tiers, replica, parameters, data, control, plan, state, step, grown, done, left > 0
            )

    return run


@lru_cache(None)
def turns(loss, penalty, adagrad, size, delayed=0):
    """Do ``turns_kernel.turns`` for several classes."""
    lanes = LANES[size]

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state):
        l1, l2, part = np.float32(plan.l1), np.float32(plan.l2), np.float32(plan.intercept)
        stride, coef = plan.stride, parameters.coef
        g, bias, owed, gained, squares, gathered = parts(buffer, stride)
        owed[:], gained[:] = ZERO, ZERO
        size, in_hand, left, kept = plan.block * BLOCKS_PER_CHUNK, state[HANDED] - 1, plan.limit, (VECTORS - 1) * stride
        position = plan.start + plan.worker + state[TAKEN] * plan.workers
        pending, some, row = state[TAKEN] > 0, state[SOME] != 0, state[ROW]
        factor, step = buffer[kept], buffer[kept + 1]
        while left > 0:
            if position < plan.n_rows and position // size != in_hand:
                in_hand = position // size
                chunk_rows(rows, plan.blocks, in_hand, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
            last = begin_turn(control, position, size)
            if last < 0:
                return
            if pending and (some or penalty != NO_PENALTY):
                begin, end = data.begin[row], data.end[row]
                write_rows(
                    lanes, SERIAL, penalty, adagrad, parameters, data, stride, begin, end, g, factor, step, l1, l2
                )
            if pending and part != ZERO:
                refresh(bias, squares, parameters, adagrad)
                for k in range(stride):
                    owed[k], gained[k] = intercept_move(adagrad, squares[k], ZERO, g[k], part * step)
                settle(1, adagrad, parameters, bias, owed, gained, squares)
            if position >= last:
                store(control, TURN, position + 1)
                return
            row = rows[position % size]
            begin, end = data.begin[row], data.end[row]
            for j in range(begin, end):
                first = np.uint64(data.indices[np.uint64(j)]) * np.uint64(stride)
                for k in range(stride):
                    gathered[np.uint64((j - begin) * stride + k)] = coef[first + np.uint64(k)]
            refresh(bias, squares, parameters, adagrad)
            store(control, TURN, position + 1)
            step = step_at(plan.step, plan.epoch * plan.n_rows + position - position % size % STEP_EVERY)
            factor = row_factor(data.scales, row)
            dots(lanes, True, g, gathered, data, stride, begin, end)
            for k in range(stride):
                g[k] = fma(factor, g[k], bias[k])
            weight = row_factor(data.weights, row)
            some = slopes(loss, g, data.targets[row], weight, plan.classes, plan.loss_param)
            if delayed:
                spin(control, plan.delay)
            pending = True
            count(control, plan.worker, 1, end - begin)
            position += plan.workers
            state[TAKEN] += 1
            left -= 1
        state[HANDED], state[ROW], state[SOME] = in_hand + 1, row, some
        buffer[kept], buffer[kept + 1] = factor, step

    return run
