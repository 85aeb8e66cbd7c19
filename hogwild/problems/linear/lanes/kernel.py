"""Several candidates trained in one pass over the rows: each is a lane of a vector, and differs in step and penalty.

The weights of a feature lie together, (width, lanes), so that a nonzero is read once and fetches one cache line of
weights for all candidates, which are then updated in a vector register. A lane is computed exactly as ``kernel.py``
computes a model of its own on these rows in this order, to the last bit, whatever its neighbours do: one that diverges
disturbs no other. What costs time is the loss, which is evaluated once a lane, and the width of a cache line.

A lane may leave out the rows of one fold, and it may tell one class from the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.atomics import prefetch
from hogwild.kernels.loss_kernel import dloss, ease
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, WEIGHTS_AHEAD, chunk_rows, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, squared_length, step_at
from hogwild.kernels.vectors import LANES, fma
from hogwild.problems.linear.kernel import (
    APART,
    L2_TABLE,
    ONE,
    TINY,
    ZERO,
    dots,
    row_factor,
    sign_of,
    visits,
    write,
)

VECTORS = 3  # of a number a lane in the buffer: slopes, steps, and steps of the lanes that learn from a row


class LanePlan(NamedTuple):
    """The work of one epoch; arrays have a number for each lane; lanes that only fill the vector have the step zero."""

    blocks: np.ndarray  # (n_blocks,) int32
    n_rows: int
    block: int
    shuffled: int
    n_chunks: int
    seed: int
    epoch: int
    steps: np.ndarray  # (3, lanes) float64: scale, offset and power, see kernel.Plan.step
    l1: np.ndarray  # float32
    l2: np.ndarray  # float32
    part: np.ndarray  # float32: share of the step that the intercept takes
    classes: np.ndarray  # int32: the class that is told from the others, if there are several
    folds: np.ndarray  # int32: the fold whose rows are left out
    fold_of: np.ndarray  # (n,) int32: the fold of each row; read only if the kernel is made with ``folded``
    loss_param: float


@inlined
def slopes(loss, several, folded, passive, plan, g, steps, now, bias, data, row, factor, length):
    """Replace the dot products ``g`` by the slopes, times the row's weight; set ``now``; return whether any is nonzero.

    Lanes that leave out the row get the slope and step zero.
    """
    some = False
    weight = row_factor(data.weights, row)
    for k in range(len(g)):
        margin, y = fma(factor, g[k], bias[k]), sign_of(several, data.targets[row], plan.classes[k])
        slope = dloss(loss, margin, y, plan.loss_param)
        if passive:
            slope *= ease(passive, loss, margin, y, slope, plan.loss_param, steps[k], length, weight, plan.part[k])
        g[k], now[k] = np.float32(slope) * weight, steps[k]
        if folded and plan.fold_of[row] == plan.folds[k]:
            g[k], now[k] = ZERO, ZERO
        some = some or g[k] != ZERO
    return some


@inlined
def move(lanes, penalty, adagrad, folded, parameters, data, width, begin, end, g, step, l1, l2):
    """Update the weights of a row's features, whose gradients are ``g * values``; all but the arrays are vectors."""
    back = vectors.times(-ONE, g if adagrad else vectors.times(step, g))
    for j in range(begin, end):
        i = np.uint64(j)
        u = np.uint32(data.indices[i])
        first = np.uint64(u) * np.uint64(len(lanes))
        rate, pull = vectors.filled(lanes, ZERO), l2
        if visits(penalty) and folded:  # the lanes have rates of their own
            rate = vectors.load(lanes, data.rates, first)
        elif visits(penalty):
            rate = vectors.filled(lanes, data.rates[u])
        if penalty == APART:
            pull = vectors.times(data.rates[np.uint64(len(data.rates) - width) + np.uint64(u)], l2)
        if penalty == L2_TABLE:  # rounded as in a table
            rate = vectors.over(vectors.filled(lanes, ONE), fma(vectors.times(step, rate), l2, ONE))
        write(lanes, penalty, adagrad, parameters, first, back, data.values[i], step, rate, l1, pull)


@inlined
def prefetch_lanes(penalty, folded, coef, data, size, row):
    """Prefetch the weights and rates of a row; of 16 lanes each is a cache line."""
    for j in range(data.begin[row], data.end[row]):
        u = np.uint32(data.indices[np.uint64(j)])
        first = np.uint64(u) * np.uint64(size)
        prefetch(coef, first)
        if visits(penalty):
            prefetch(data.rates, first if folded else np.uint64(u))


@lru_cache(None)
def epoch(loss, penalty, adagrad, far, size, several=0, folded=0, passive=0):
    """A pass over all rows; codes and flags as in ``kernel.epoch``, with ``size`` lanes.

    ``several``: each lane tells its class from the others. ``folded``: lanes leave out rows, and ``data.rates`` is
    (width, lanes), followed for penalty "apart" by (width,).
    """
    lanes = LANES[size]
    labelled = several or None

    @njit(**JIT)
    def run(parameters, data, plan, rows, buffer):
        g = buffer[:size]
        steps = buffer[size : 2 * size]
        now = buffer[2 * size : 3 * size]
        coef = parameters.coef
        bias = parameters.intercept
        squares = parameters.intercept_squares
        l1 = vectors.load(lanes, plan.l1, 0)
        l2 = vectors.load(lanes, plan.l2, 0)
        width = len(coef) // size
        for chunk in range(plan.n_chunks):
            length = chunk_rows(rows, plan.blocks, chunk, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
            visited = plan.epoch * plan.n_rows + chunk * plan.block * BLOCKS_PER_CHUNK
            for i in range(length):
                row = rows[i]
                begin, end = data.begin[row], data.end[row]
                prefetch_entries(data, rows, i)
                if far:
                    prefetch_lanes(penalty, folded, coef, data, size, rows[i + WEIGHTS_AHEAD])
                if i % STEP_EVERY == 0:
                    for k in range(size):
                        steps[k] = step_at((plan.steps[0, k], plan.steps[1, k], plan.steps[2, k]), visited + i)
                factor = row_factor(data.scales, row)
                dots(lanes, g, coef, data, size, begin, end)
                squared = squared_length(data.values, begin, end, factor) if passive else 0.0
                some = slopes(loss, labelled, folded, passive, plan, g, steps, now, bias, data, row, factor, squared)
                if some or visits(penalty):
                    slope = vectors.times(factor, vectors.load(lanes, g, 0))
                    step = vectors.load(lanes, now, 0)
                    move(lanes, penalty, adagrad, folded, parameters, data, width, begin, end, slope, step, l1, l2)
                for k in range(size):
                    reach = plan.part[k] * now[k]
                    if adagrad:
                        squares[k] += g[k] * g[k]
                        reach = reach / np.sqrt(squares[k] + TINY)
                    bias[k] -= reach * g[k]

    return run
