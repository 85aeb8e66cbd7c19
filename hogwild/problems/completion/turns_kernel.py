"""Round robin for matrix completion: errors are computed side by side but rows are read and written in turn.

This works as ``linear/kernel.py`` (Langford, Smola, Zinkevich 2009): position ``t`` belongs to worker ``t mod
W``. When it comes up, that worker applies the gradient of its last position, copies the two rows of this one and passes
the turn on. So an update is ``W - 1`` late by construction, and the bits are the same for the same order and W.

Positions count ratings from the tile at which this call started. Tiles differ in length, so every worker walks through
all of them, and the first to reach the end records its position.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels.atomics import load, store
from hogwild.kernels.control import ABORT, LAST, NEXT, STOP, TURN, count
from hogwild.kernels.cycles import spin
from hogwild.kernels.locks import wait_for
from hogwild.kernels.options import JIT, called
from hogwild.kernels.steps import step_at
from hogwild.kernels.vectors import LANE, copy_row, dot, fma, move
from hogwild.problems.completion.kernel import LENGTH, SIDE, STATE, VISITED, line_at, open_tile, shrinkage
from hogwild.problems.linear.kernel import ONE, ZERO

# Further cells of a worker's state: tiles opened, the position at which the current one begins, turns taken, and the
# user and item of the last one
OPENED, BASE, TAKEN, USER, ITEM = range(STATE, STATE + 5)
TURNS_STATE = STATE + 5
BUFFER_ROWS = 2  # followed in the buffer by STEPPED, the step times the error, and STEP
STEPPED, STEP = range(2)
UNKNOWN = 1 << 62  # the end of the epoch, before any worker has reached it


@njit(**JIT)
def advance(state, data, plan, position):
    """Open the tile that holds ``position``; return False if the epoch ends before it."""
    while position >= state[BASE] + state[LENGTH]:
        number = plan.start + state[OPENED]
        if number >= plan.n_chunks:
            return False
        state[BASE] += state[LENGTH]
        open_tile(state, np.int64(plan.blocks[number]), number, data, plan)
        state[OPENED] += 1
    return True


@called
def begin_turn(control, state, plan, position, more):
    """Wait for ``position``; return the position at which the epoch ends, or -1 if the run was aborted.

    The worker that starts a tile checks the stop flag, so that all workers end at the same rating.
    """
    if not wait_for(control, TURN, position, control, ABORT):
        return -1
    last, here = load(control, LAST), state[BASE] + (0 if more else state[LENGTH])
    if here < last and (not more or (position == here and load(control, STOP) != 0)):
        last = here
        store(control, LAST, last)
        store(control, NEXT, plan.start + state[OPENED] - 1 if more else plan.n_chunks)
    return last


@lru_cache(None)
def turns(lanes, per_row, nonnegative, biased, delayed=0):
    """One worker's loop over its turns of an epoch that starts at tile ``plan.start``; as in ``kernel.epoch``."""

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, state, buffer):
        p = parameters.users
        q = parameters.items
        b_u = parameters.user_bias
        b_i = parameters.item_bias
        l2 = np.float32(plan.l2)
        budget = plan.limit
        kept = BUFFER_ROWS * LANE * len(lanes)
        position = plan.worker + state[TAKEN] * plan.workers
        e = ZERO
        bias = ZERO
        while budget > 0:
            last = begin_turn(control, state, plan, position, advance(state, data, plan, position))
            if last < 0:
                return
            if state[TAKEN] > 0:
                u, i = np.uint32(state[USER]), np.uint32(state[ITEM])
                stepped, step = buffer[kept + STEPPED], buffer[kept + STEP]
                shrink_u = shrink_i = ONE / fma(step, l2, ONE)
                if per_row:
                    shrink_u = shrinkage(data.user_rates, u, step, l2)
                    shrink_i = shrinkage(data.item_rates, i, step, l2)
                move(lanes, nonnegative, p, u, buffer, 1, stepped, shrink_u)
                move(lanes, nonnegative, q, i, buffer, 0, stepped, shrink_i)
                if biased:
                    b_u[u] = (b_u[u] - stepped) * shrink_u
                    b_i[i] = (b_i[i] - stepped) * shrink_i
            if position >= last:
                store(control, TURN, position + 1)
                return
            at = position - state[BASE]
            line, flip = line_at(state, at - at % SIDE)
            k = np.uint64(line + (at % SIDE ^ flip))
            u, i = np.uint32(data.users[k]), np.uint32(data.items[k])
            copy_row(lanes, buffer, 0, p, u)
            copy_row(lanes, buffer, 1, q, i)
            bias = b_u[u] + b_i[i] if biased else ZERO
            store(control, TURN, position + 1)
            step = step_at(plan.step, state[VISITED] + at - at % SIDE)
            e = dot(lanes, buffer, 0, buffer, 1) - data.values[k]
            e = e + bias if biased else e
            if delayed:
                spin(control, plan.delay)
            state[USER], state[ITEM] = u, i
            buffer[kept + STEPPED], buffer[kept + STEP] = step * e, step
            count(control, plan.worker, 1, 1)
            position += plan.workers
            state[TAKEN] += 1
            budget -= 1

    return run
