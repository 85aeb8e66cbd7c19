"""Factorization machines: the SGD loop that every worker runs (Rendle 2010).

    z = b + sum_j w_j x_j + sum_{i<j} <v_i, v_j> x_i x_j

The sum over pairs is ``(|S|^2 - sum_i |x_i v_i|^2) / 2`` with ``S = sum_i x_i v_i``, so a row costs its entries times
the rank, not its pairs. A feature's factors and, behind them, its weight ``w`` share a line of ``stride`` numbers: at
rank 8 one cache line. Three vectors of that length tell the lanes apart without a branch: ``mask`` is one at the
factors, ``unit`` at the weight, and ``pull`` holds the penalty of each lane. With ``A = mask * S + unit``

    g     = s * loss'(z, y)
    v_i  <- (v_i - step * g * x_i * (A - x_i * mask * v_i)) / (1 + step * pull * N / d_i)

where ``N / d_i`` spreads the penalty over the rows that hold feature ``i``, as in the linear problem, so that the
objective that is reported is the one that is optimised. (libffm shrinks by the same factor at every visit, which is
another objective.) The padding of a line is zero and stays zero.

AdaGrad divides each number's step by the root of its sum of squared gradients, which starts at one as in libffm. The
inverse root is within 7e-4, as libffm's is, but has the same bits on every machine (``vectors.inverse_root``).

Chunks, locks and the shared intercept are those of ``problems/linear/kernel.py``. All stores are plain, so updates of
two workers to one line may mix; a compare-and-exchange of a whole line does not exist.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.control import ABORT, count
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import WEIGHTS_AHEAD, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.kernels.tiers import place_of_rate
from hogwild.kernels.vectors import LANES, fma
from hogwild.problems.fm.field_kernel import BLOCK, lay_out, margin_of_tiles, move_tiles
from hogwild.problems.fm.pairs_kernel import MASK, PULL, TILT, UNIT, line_of, margin_of_pairs, move_pairs, moved
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

HALF, ZERO, ONE = np.float32(0.5), np.float32(0), np.float32(1)


@inlined
def margin_of(lanes, coef, data, stride, begin, end, factor, buffer):
    """Return a row's margin without the intercept, and set ``A`` in the buffer."""
    margin = ZERO
    for k in range(0, stride, len(lanes)):
        sums = squares = vectors.filled(lanes, ZERO)
        for j in range(begin, end):
            x = data.values[np.uint64(j)] * factor
            part = x * vectors.load(lanes, coef, line_of(data, stride, j) + np.uint64(k))
            sums = sums + part
            squares = fma(part, part, squares)
        mask = vectors.load(lanes, buffer, MASK * stride + k)
        unit = vectors.load(lanes, buffer, UNIT * stride + k)
        pairs = fma(sums, sums, -ONE * squares)
        margin += vectors.total(fma(HALF * mask, pairs, unit * sums))
        vectors.store(fma(mask, sums, unit), buffer, TILT * stride + k)
    return margin


@inlined
def move(lanes, adagrad, shrinks, parameters, data, stride, begin, end, factor, g, step, buffer, popular):
    """Update the lines of a row whose margin has the gradient ``g``."""
    coef, sums = parameters.coef, parameters.coef_squares
    ones = vectors.filled(lanes, ONE)
    for k in range(0, stride, len(lanes)):
        tilt = vectors.load(lanes, buffer, TILT * stride + k)
        mask = vectors.load(lanes, buffer, MASK * stride + k)
        pull = vectors.load(lanes, buffer, PULL * stride + k)
        for j in range(begin, end):
            first = line_of(data, stride, j) + np.uint64(k)
            x = data.values[np.uint64(j)] * factor
            line = vectors.load(lanes, coef, first)
            slope = (g * x) * fma(-x * mask, line, tilt)
            line = moved(lanes, adagrad, sums, first, line, slope, step)
            if shrinks:
                rate = data.rates[place_of_rate(np.uint32(data.indices[np.uint64(j)]), popular)]
                line = line / fma(step * rate, pull, ones)
            vectors.store(line, coef, first)


@lru_cache(None)
def epoch(loss, discipline, adagrad, shrinks, far, size, block=0):
    """One worker's loop over the chunks it claims; the arguments are codes, ``size`` lanes of a vector, and flags.

    ``block``: numbers of a factor in memory, if a feature has one for each field.
    """
    lanes = LANES[size]
    narrow = LANES[min(block or 4, size)]
    tiles = int(block == BLOCK and size == len(vectors.LINE))
    alone = int(discipline in (SERIAL, LOCKED))

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state):
        coef = parameters.coef
        part = np.float32(plan.intercept)
        stride = plan.stride
        lines = state[STATE:]
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
                if far and not block:
                    prefetch_weights(0, adagrad, parameters, data, stride, rows[i + WEIGHTS_AHEAD])
                if i == first or i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i - i % STEP_EVERY)
                if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                    return
                if i == first or discipline == LOCKED:
                    refresh(work, parameters, adagrad)
                if tiles:
                    of_row = data, stride, begin, end, factor, step, buffer, lines, popular, rows[i + 1]
                    tiled = lay_out(shrinks, far, plan.classes, *of_row)
                if tiles and tiled:
                    margin = margin_of_tiles(coef, stride, buffer, lines)
                elif block:
                    margin = margin_of_pairs(narrow, block, plan.classes, coef, data, stride, begin, end, factor)
                else:
                    margin = margin_of(lanes, coef, data, stride, begin, end, factor, buffer)
                margin = margin + (work.bias[0] - work.owed[0])
                g[0] = np.float32(dloss(loss, margin, data.targets[row], plan.loss_param)) * weight
                if g[0] != ZERO or shrinks:
                    if discipline == AIG and not lock_row(locks, data, row, control):
                        return
                    of_row = parameters, data, stride, begin, end, factor, g[0], step
                    if tiles and tiled:
                        move_tiles(adagrad, shrinks, far, plan.classes, parameters, stride, g[0], step, buffer, lines)
                    elif block:
                        codes = block, plan.classes, adagrad, shrinks, far
                        move_pairs(narrow, lanes, *codes, *of_row, buffer, popular, rows[i + 1])
                    else:
                        move(lanes, adagrad, shrinks, *of_row, buffer, popular)
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
