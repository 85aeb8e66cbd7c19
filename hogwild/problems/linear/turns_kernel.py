"""Round robin: workers compute gradients side by side but read and write in turn (Langford, Smola, Zinkevich 2009).

Position ``t`` of the epoch belongs to worker ``t mod W``. When ``t`` comes up that worker applies the gradient of its
position ``t - W``, copies the coordinates of row ``t`` and passes the turn on; it computes the new gradient during the
others' turns. So row ``t`` sees exactly the updates of rows up to ``t - W``: a delay of ``W - 1`` by construction,
bitwise reproducible for a given order and W. After the last position come ``W`` turns that only apply gradients.

Positions, not claims, determine the order, so every worker builds every chunk. A call returns after ``plan.limit``
turns, and the next one continues from ``state`` and ``buffer``: the simulator makes one call per turn.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels.atomics import load, store
from hogwild.kernels.control import ABORT, LAST, NEXT, STOP, TURN, count
from hogwild.kernels.cycles import spin
from hogwild.kernels.fma import fma
from hogwild.kernels.locks import wait_for
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, chunk_rows
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.problems.linear.kernel import (
    NO_PENALTY,
    SERIAL,
    U1,
    U2,
    U3,
    ZERO,
    intercept_move,
    row_factor,
    write_row,
)

# Cells of a worker's state: the current chunk plus one, turns taken, the row of the last turn, whether it moves weights
HANDED, TAKEN, ROW, SOME = range(4)


@inlined
def begin_turn(control, position, chunk_size):
    """Wait for ``position``; return the position at which the epoch ends, or -1 if the run was aborted.

    The worker that starts a chunk checks the stop flag, so that all workers end at the same row.
    """
    if not wait_for(control, TURN, position, control, ABORT):
        return -1
    if position % chunk_size == 0 and load(control, STOP) != 0 and position < load(control, LAST):
        store(control, LAST, position)
        store(control, NEXT, position // chunk_size)
    return load(control, LAST)


@inlined
def gather(buffer, coef, indices, begin, end):
    """Copy a row's coordinates into ``buffer``."""
    for j in range(begin, end):
        buffer[np.uint64(j - begin)] = coef[np.uint32(indices[np.uint64(j)])]


@inlined
def dot_gathered(buffer, values, begin, end):
    """Do ``dot`` over coordinates copied into ``buffer`` before, adding in the same order."""
    s0, s1, s2, s3 = ZERO, ZERO, ZERO, ZERO
    j = begin
    while j + 4 <= end:
        k, b = np.uint64(j), np.uint64(j - begin)
        s0 = fma(buffer[b], values[k], s0)
        s1 = fma(buffer[b + U1], values[k + U1], s1)
        s2 = fma(buffer[b + U2], values[k + U2], s2)
        s3 = fma(buffer[b + U3], values[k + U3], s3)
        j += 4
    while j < end:
        s0 = fma(buffer[np.uint64(j - begin)], values[np.uint64(j)], s0)
        j += 1
    return (s0 + s1) + (s2 + s3)


@lru_cache(None)
def turns(loss, penalty, adagrad, delayed=0):
    """One worker's loop over its turns of an epoch that starts at chunk ``control[NEXT]`` (LAST and TURN set).

    ``delayed`` is as in ``kernel.epoch``; the delay runs during the others' turns.
    """

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state):
        l1, l2, part = np.float32(plan.l1), np.float32(plan.l2), np.float32(plan.intercept)
        intercept, intercept_squares = parameters.intercept, parameters.intercept_squares
        size, in_hand, left, kept = plan.block * BLOCKS_PER_CHUNK, state[HANDED] - 1, plan.limit, len(buffer) - 3
        position = plan.start + plan.worker + state[TAKEN] * plan.workers
        pending, row, bias, squares = state[TAKEN] > 0, state[ROW], ZERO, ZERO
        g, factor, step = buffer[kept], buffer[kept + 1], buffer[kept + 2]
        while left > 0:
            if position < plan.n_rows and position // size != in_hand:
                in_hand = position // size
                chunk_rows(rows, plan.blocks, in_hand, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
            last = begin_turn(control, position, size)
            if last < 0:
                return
            if pending and (g != ZERO or penalty != NO_PENALTY):
                begin, end = data.begin[row], data.end[row]
                write_row(SERIAL, penalty, adagrad, parameters, data, begin, end, g * factor, step, l1, l2)
            if pending and part != ZERO:
                if adagrad:
                    squares = intercept_squares[0]
                move, square = intercept_move(adagrad, squares, ZERO, g, part * step)
                intercept[0] = intercept[0] - move
                if adagrad:
                    intercept_squares[0] = squares + square
            if position >= last:
                store(control, TURN, position + 1)
                return
            row = rows[position % size]
            begin, end = data.begin[row], data.end[row]
            gather(buffer, parameters.coef, data.indices, begin, end)
            bias = intercept[0]
            store(control, TURN, position + 1)
            step = step_at(plan.step, plan.epoch * plan.n_rows + position - position % size % STEP_EVERY)
            factor = row_factor(data.scales, row)
            margin = fma(factor, dot_gathered(buffer, data.values, begin, end), bias)
            slope = dloss(loss, margin, data.targets[row], plan.loss_param)
            g = np.float32(slope) * row_factor(data.weights, row)
            if delayed:
                spin(control, plan.delay)
            pending = True
            count(control, plan.worker, 1, end - begin)
            position += plan.workers
            state[TAKEN] += 1
            left -= 1
        state[HANDED], state[ROW] = in_hand + 1, row
        buffer[kept], buffer[kept + 1], buffer[kept + 2] = g, factor, step

    return run
