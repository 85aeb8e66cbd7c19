"""Virtual workers: one loop does the phases of many workers' updates, in the order that a schedule gives.

A real worker reads a row's weights, computes, and then loads and stores each weight; in between others do the same.
Here each of these phases is an event:

    READ   take the next row, compute its gradient from the weights as they are now
    LOAD   hogwild: copy the row's weights, to which the gradient will be added
    STORE  write them: the loaded ones plus the update; without a LOAD (atomic, aig), the current ones plus the update
    PAY    add what is still owed to the shared intercept

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

from hogwild.kernels.control import CHUNK, COUNT, EVENT_KINDS, FIRST, LOAD, PAY, READ, STORE, count
from hogwild.kernels.options import JIT, inlined
from hogwild.kernels.steps import STEP_EVERY, step_at
from hogwild.kernels.vectors import LANES
from hogwild.problems.linear.kernel import (
    CLASSES,
    NO_PENALTY,
    SETS,
    ZERO,
    owe,
    refresh,
    row_factor,
    settle,
    take_chunk,
    take_margins,
    take_slopes,
    workspace,
    write_gradient,
)

ROW, SOME, UNPAID = range(3)  # in a worker's numbers: its row, whether it moves any weight, rows since it paid


class Crew(NamedTuple):
    """Memory of the virtual workers, one row each, and the counts."""

    events: np.ndarray  # (FIRST + n,) int64
    numbers: np.ndarray  # (workers, 3) int64
    steps: np.ndarray  # (workers,) float32: step of the current row
    memory: np.ndarray  # (workers, VECTORS * stride) float32: their workspaces
    loaded: np.ndarray  # (workers, longest * stride) float32, or (0, 0) if there are no LOADs
    loaded_squares: np.ndarray  # likewise, with AdaGrad
    loaded_depths: np.ndarray  # (workers, longest) int64
    depths: np.ndarray  # (width,) int64
    lost: np.ndarray  # (1,) int64


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


@lru_cache(None)
def events(loss, size, penalty, adagrad, sets=0):
    """The loop over the events of a chunk; the arguments are those of ``kernel.epoch``.

    A worker knows the intercept as of its last payment, and its own debt.
    """
    several = SETS if sets else CLASSES if size else None
    lanes = LANES[size or 1]

    @njit(**JIT)
    def run(parameters, data, control, plan, rows, crew):
        part = np.float32(plan.intercept)
        position = 0
        visited = 0
        if crew.events[CHUNK] >= 0:
            _, visited = take_chunk(plan, rows, crew.events[CHUNK])
        for e in range(FIRST, FIRST + crew.events[COUNT]):
            worker, kind = crew.events[e] // EVENT_KINDS, crew.events[e] % EVENT_KINDS
            numbers, work = crew.numbers[worker], workspace(crew.memory[worker], plan.stride)
            if kind == READ:
                numbers[ROW] = rows[position]
                crew.steps[worker] = step_at(plan.step, visited + position - position % STEP_EVERY)
                position += 1
                if numbers[UNPAID] == 0:
                    refresh(work, parameters, adagrad)
                scale = row_factor(data.scales, numbers[ROW])
                take_margins(lanes, work, parameters.coef, data, plan.stride, numbers[ROW], scale)
                numbers[SOME] = take_slopes(loss, several, work.slopes, data, plan, numbers[ROW])
            elif kind == LOAD:
                copy_row(False, adagrad, parameters, data, plan.stride, crew, worker)
            elif kind == STORE:
                row, step = numbers[ROW], crew.steps[worker]
                if numbers[SOME] != 0 or penalty != NO_PENALTY:
                    if crew.loaded.size:
                        copy_row(True, adagrad, parameters, data, plan.stride, crew, worker)
                    write_gradient(several, lanes, penalty, adagrad, parameters, data, plan, row, work.slopes, step)
                if part != ZERO:
                    owe(adagrad, work, part * step)
                    numbers[UNPAID] += 1
                count(control, worker, 1, data.end[row] - data.begin[row])
            if numbers[UNPAID] >= (1 if kind == PAY else plan.flush):
                settle(0, adagrad, parameters, work)
                numbers[UNPAID] = 0

    return run
