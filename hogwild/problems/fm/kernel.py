"""Factorization machines: the SGD loop that every worker runs.

A row goes by ``lines_kernel.py``, which explains it, or by ``tiles_kernel.py``. Chunks, locks and the shared intercept
are those of ``problems/linear/kernel.py``. All stores are plain, so updates of two workers to one line may mix; a
compare-and-exchange of a whole line does not exist.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.control import ABORT, count
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.options import JIT
from hogwild.kernels.order import WEIGHTS_AHEAD, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.kernels.vectors import LANES
from hogwild.problems.fm.lines_kernel import margin_of, margin_of_fields, move
from hogwild.problems.fm.tiles_kernel import BLOCK, lay_out, margin_of_tiles, move_tiles
from hogwild.problems.linear.kernel import (
    AIG,
    DONE,
    LENGTH,
    LOCKED,
    MARGIN,
    SERIAL,
    STATE,
    VISITED,
    claim,
    lock_row,
    owe,
    prefetch_weights,
    refresh,
    row_factor,
    settle,
    unlock_row,
    workspace,
)

ZERO = np.float32(0)


@lru_cache(None)
def epoch(loss, discipline, adagrad, shrinks, far, lane, size=0):
    """One worker's loop over the chunks it claims; the arguments are codes, ``lane`` numbers of a vector, and flags.

    ``size``: numbers of a factor in memory, if there are several fields.
    """
    lanes = LANES[lane]
    narrow = LANES[min(size or 4, lane)]
    tiles = int(size == BLOCK)
    alone = int(discipline in (SERIAL, LOCKED))

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state):
        coef = parameters.coef
        part = np.float32(plan.intercept)
        stride = plan.stride
        tilts = state[STATE : STATE + plan.classes]
        fields = state[STATE + plan.classes : STATE + 2 * plan.classes]
        lines = state[STATE + 2 * plan.classes :]
        tiled = False
        popular = np.uint32(plan.own_rates)
        remaining = plan.limit
        step = ZERO
        work = workspace(vectors.own(MARGIN), 1)
        g = work.slopes
        work.owed[0], work.gained[0] = ZERO, ZERO
        while remaining > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, plan, rows):
                break
            first, visited = state[DONE], state[VISITED]
            last = min(state[LENGTH], first + remaining)
            unpaid = 0
            nonzeros = 0
            for i in range(first, last):
                row = rows[i]
                begin, end = data.begin[row], data.end[row]
                factor, weight = row_factor(data.scales, row), row_factor(data.weights, row)
                prefetch_entries(data, rows, i)
                if far and not size:
                    prefetch_weights(0, adagrad, parameters, data, stride, rows[i + WEIGHTS_AHEAD])
                if i == first or i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i - i % STEP_EVERY)
                if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                    return
                if i == first or discipline == LOCKED:
                    refresh(work, parameters, adagrad)
                of_row = data, stride, begin, end, factor
                if tiles:
                    tiled = lay_out(shrinks, far, *of_row, step, buffer, lines, popular, rows[i + 1])
                if tiles and tiled:
                    margin = margin_of_tiles(coef, stride, buffer, lines)
                elif size:
                    margin = margin_of_fields(narrow, lanes, size, coef, *of_row, buffer, tilts, fields)
                else:
                    margin = margin_of(lanes, coef, *of_row, buffer)
                margin = margin + (work.bias[0] - work.owed[0])
                g[0] = np.float32(dloss(loss, margin, data.targets[row], plan.loss_param)) * weight
                if g[0] != ZERO or shrinks:
                    if discipline == AIG and not lock_row(locks, data, row, control):
                        return
                    codes = size, adagrad, shrinks, far
                    if tiles and tiled:
                        move_tiles(adagrad, shrinks, far, parameters, stride, g[0], step, buffer, lines)
                    else:
                        move(lanes, *codes, parameters, *of_row, g[0], step, buffer, tilts, popular, rows[i + 1])
                    if discipline == AIG:
                        unlock_row(locks, data, row)
                if part != ZERO:
                    unpaid += 1
                    owe(adagrad, work, part * step)
                    if unpaid >= plan.flush or i == last - 1:
                        settle(alone, adagrad, parameters, work)
                        unpaid = 0
                if discipline == LOCKED:
                    release(locks, 0)
                nonzeros += end - begin
            count(control, plan.worker, last - first, nonzeros)
            state[DONE] = last
            remaining -= last - first

    return run
