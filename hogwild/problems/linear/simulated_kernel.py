"""Virtual workers: one loop does the phases of many workers' updates, in the order that a schedule gives.

A real worker reads a row's weights, computes, and then loads and stores each weight; in between others do the same.
Here each of these phases is an event:

    READ   take the next row, compute its gradient from the weights as they are now
    LOAD   hogwild: copy the row's weights, to which the gradient will be added
    STORE  write them: the loaded ones plus the update; without a LOAD (atomic, aig), the current ones plus the update
    END    add what is still owed to the shared intercept

One call does a chunk's events, so hundreds of workers cost no more than one. The arithmetic is that of ``kernel.py``,
helper for helper: one worker equals serial to the last bit.

Between a LOAD and its STORE other updates of the same weight are overwritten, and an overwritten one may come back with
the store of a worker that had loaded it. So each weight has a *depth*, the number of updates that its present value
holds: a store sets it to the loaded depth plus one, and ``lost`` grows by the difference between the weight's own depth
plus one and that. At the end ``lost`` is exactly the number of updates of single weights that the parameters do not
hold (a feature of several classes counts as one weight).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels.control import CHUNK, COUNT, EVENT_KINDS, FIRST, LOAD, READ, STORE, count
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, chunk_rows
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.kernels.vectors import LANES
from hogwild.problems.linear.kernel import (
    NO_PENALTY,
    ZERO,
    owe,
    refresh,
    row_factor,
    settle,
    take_margins,
    take_slopes,
    write_gradient,
)

ROW, SOME, UNPAID = range(3)  # in a worker's numbers: its row, whether it moves any weight, rows since it paid
G, BIAS, OWED, GAINED, SQUARES = range(5)  # in a worker's vectors, as in kernel.py


class Crew(NamedTuple):
    """Memory of the virtual workers, one row each, and the counts."""

    events: np.ndarray  # (FIRST + n,) int64
    numbers: np.ndarray  # (workers, 3) int64
    steps: np.ndarray  # (workers,) float32: step of the current row
    vectors: np.ndarray  # (workers, 5, stride) float32
    loaded: np.ndarray  # (workers, longest * stride) float32, or (0, 0) if there are no LOADs
    loaded_squares: np.ndarray  # likewise, with AdaGrad
    loaded_depths: np.ndarray  # (workers, longest) int64
    depths: np.ndarray  # (width,) int64
    lost: np.ndarray  # (1,) int64


@inlined
def read(loss, several, lanes, adagrad, parameters, data, plan, crew, worker):
    """Compute the gradient of the worker's row; it knows the intercept as of its last payment, and its own debt."""
    numbers, vectors = crew.numbers[worker], crew.vectors[worker]
    if numbers[UNPAID] == 0:
        refresh(vectors[BIAS], vectors[SQUARES], parameters, adagrad)
    row, g = numbers[ROW], vectors[G]
    scale = row_factor(data.scales, row)
    take_margins(lanes, g, vectors[BIAS], vectors[OWED], parameters.coef, data, plan.stride, row, scale)
    numbers[SOME] = take_slopes(loss, several, g, data, plan, row)


@inlined
def copy_row(back, adagrad, parameters, data, stride, crew, worker):
    """Load the weights of the worker's row, and their depths.

    Put ``back``, the loaded weights overwrite the row's, and the updates that this undoes are counted.
    """
    row, at = crew.numbers[worker, ROW], 0
    for j in range(data.begin[row], data.end[row]):
        u, place = np.int64(data.indices[j]), j - data.begin[row]
        if back:
            depth = crew.loaded_depths[worker, place]
            crew.lost[0] += crew.depths[u] - depth
            crew.depths[u] = depth + 1
        else:
            crew.loaded_depths[worker, place] = crew.depths[u]
        for p in range(u * stride, (u + 1) * stride):
            copy(back, parameters.coef, p, crew.loaded, worker, at)
            if adagrad:
                copy(back, parameters.coef_squares, p, crew.loaded_squares, worker, at)
            at += 1


@inlined
def copy(back, shared, p, loaded, worker, at):
    if back:
        shared[p] = loaded[worker, at]
    else:
        loaded[worker, at] = shared[p]


@inlined
def pay(adagrad, parameters, crew, worker):
    """Settle the worker's debt to the shared intercept."""
    vectors = crew.vectors[worker]
    settle(0, adagrad, parameters, vectors[BIAS], vectors[OWED], vectors[GAINED], vectors[SQUARES])
    crew.numbers[worker, UNPAID] = 0


@inlined
def store_row(several, lanes, penalty, adagrad, parameters, data, plan, crew, worker):
    """Write the update of the worker's row; return the number of its entries."""
    numbers, vectors = crew.numbers[worker], crew.vectors[worker]
    row, step = numbers[ROW], crew.steps[worker]
    part = np.float32(plan.intercept)
    if numbers[SOME] != 0 or penalty != NO_PENALTY:
        if crew.loaded.size:
            copy_row(True, adagrad, parameters, data, plan.stride, crew, worker)
        write_gradient(several, lanes, penalty, adagrad, parameters, data, plan, row, vectors[G], step)
    if part != ZERO:
        owe(adagrad, vectors[G], part * step, vectors[OWED], vectors[GAINED], vectors[SQUARES])
        numbers[UNPAID] += 1
        if numbers[UNPAID] >= plan.flush:
            pay(adagrad, parameters, crew, worker)
    return data.end[row] - data.begin[row]


@lru_cache(None)
def events(loss, size, penalty, adagrad):
    """The loop over the events of a chunk; the arguments are those of ``kernel.epoch``."""
    several = 1 if size else None
    lanes = LANES[size or 1]

    @njit(**JIT)
    def run(parameters, data, control, plan, rows, crew):
        position = 0
        visited = 0
        chunk = crew.events[CHUNK]
        if chunk >= 0:
            chunk_rows(rows, plan.blocks, chunk, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
            visited = plan.epoch * plan.n_rows + chunk * plan.block * BLOCKS_PER_CHUNK
        for e in range(FIRST, FIRST + crew.events[COUNT]):
            worker, kind = crew.events[e] // EVENT_KINDS, crew.events[e] % EVENT_KINDS
            if kind == READ:
                crew.numbers[worker, ROW] = rows[position]
                crew.steps[worker] = step_at(plan.step, visited + position - position % STEP_EVERY)
                position += 1
                read(loss, several, lanes, adagrad, parameters, data, plan, crew, worker)
            elif kind == LOAD:
                copy_row(False, adagrad, parameters, data, plan.stride, crew, worker)
            elif kind == STORE:
                nonzeros = store_row(several, lanes, penalty, adagrad, parameters, data, plan, crew, worker)
                count(control, worker, 1, nonzeros)
            elif crew.numbers[worker, UNPAID] > 0:
                pay(adagrad, parameters, crew, worker)

    return run
