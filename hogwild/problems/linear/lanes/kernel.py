"""Several candidates trained in one pass over the rows: each is a lane of a vector, and differs in step and penalty.

The weights of a feature lie together, (width, lanes), so that a nonzero is read once and fetches one cache line of
weights for all candidates, which are then updated in a vector register. A lane is computed exactly as ``kernel.py``
computes a model of its own on these rows in this order, to the last bit, whatever its neighbours do: one that diverges
disturbs no other. (A model of its own may tabulate its l2 factors, and so round another way.) What costs time is the
loss, which is evaluated once a lane, and the width of a cache line.

A lane may leave out the rows of one fold, and it may tell one class from the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.loss_kernel import dloss, ease
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import WEIGHTS_AHEAD, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, squared_length, step_at
from hogwild.kernels.vectors import LANES, fma
from hogwild.problems.linear.kernel import (
    TINY,
    ZERO,
    dots,
    prefetch_weights,
    row_factor,
    sign_of,
    take_chunk,
    visits,
    write_row,
)

VECTORS = 3  # of a number a lane in the buffer: slopes, steps, and steps of the lanes that learn from a row


class LanePlan(NamedTuple):
    """What differs between lanes; those that only fill the vector have the step zero."""

    steps: np.ndarray  # (3, lanes) float64: scale, offset and power, see kernel.Plan.step
    l1: np.ndarray  # (lanes,) float32
    l2: np.ndarray  # (lanes,) float32
    classes: np.ndarray  # (lanes,) int32: the class that is told from the others, if there are several
    folds: np.ndarray  # (lanes,) int32: the fold whose rows are left out
    fold_of: np.ndarray  # (n,) int32: the fold of each row; read only if the kernel is made with ``folded``


@inlined
def slopes(loss, several, folded, passive, of, plan, g, steps, now, bias, data, row, factor, length):
    """Replace the dot products ``g`` by the slopes, times the row's weight; set ``now``; return whether any is nonzero.

    Lanes that leave out the row get the slope and step zero.
    """
    some = False
    weight = row_factor(data.weights, row)
    for k in range(len(g)):
        margin, y = fma(factor, g[k], bias[k]), sign_of(several, data, row, of.classes[k])
        slope = dloss(loss, margin, y, plan.loss_param)
        if passive:
            part = np.float32(plan.intercept)
            slope *= ease(passive, loss, margin, y, slope, plan.loss_param, steps[k], length, weight, part)
        g[k], now[k] = np.float32(slope) * weight, steps[k]
        if folded and of.fold_of[row] == of.folds[k]:
            g[k], now[k] = ZERO, ZERO
        some = some or g[k] != ZERO
    return some


@lru_cache(None)
def epoch(loss, penalty, adagrad, far, size, several=0, folded=0, passive=0):
    """A pass over all rows; codes and flags as in ``kernel.epoch``, with ``size`` lanes.

    ``several``: each lane tells its class from the others (CLASSES), or rows with its label from those without (SETS).
    ``folded``: lanes leave out rows.
    """
    lanes = LANES[size]
    labelled = several or None

    @njit(**JIT)
    def run(parameters, data, plan, of, rows, buffer):
        g = buffer[:size]
        steps = buffer[size : 2 * size]
        now = buffer[2 * size : 3 * size]
        bias = parameters.intercept
        squares = parameters.intercept_squares
        l1 = vectors.load(lanes, of.l1, 0)
        l2 = vectors.load(lanes, of.l2, 0)
        rated = visits(penalty)
        part = np.float32(plan.intercept)
        for chunk in range(plan.n_chunks):
            length, visited = take_chunk(plan, rows, chunk)
            for i in range(length):
                row = rows[i]
                begin, end = data.begin[row], data.end[row]
                prefetch_entries(data, rows, i)
                if far:
                    prefetch_weights(rated, adagrad, parameters, data, size, rows[i + WEIGHTS_AHEAD])
                if i % STEP_EVERY == 0:
                    for k in range(size):
                        steps[k] = step_at((of.steps[0, k], of.steps[1, k], of.steps[2, k]), visited + i)
                factor = row_factor(data.scales, row)
                dots(lanes, g, parameters.coef, data, size, begin, end)
                squared = squared_length(data.values, begin, end, factor) if passive else 0.0
                some = slopes(
                    loss, labelled, folded, passive, of, plan, g, steps, now, bias, data, row, factor, squared
                )
                if some or visits(penalty):
                    step = vectors.load(lanes, now, 0)
                    write_row(lanes, None, None, penalty, adagrad, parameters, data, size, row, g, step, l1, l2)
                for k in range(size):
                    reach = part * now[k]
                    if adagrad:
                        squares[k] += g[k] * g[k]
                        reach = reach / np.sqrt(squares[k] + TINY)
                    bias[k] -= reach * g[k]

    return run
