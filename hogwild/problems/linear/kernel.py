"""Sparse linear models with one margin: the SGD loop that every worker runs, for every loss, penalty and discipline.

One source serves them all: loss, discipline, penalty and AdaGrad are integers in closure cells, so LLVM drops the dead
branches and the disk cache keeps each combination. For row ``i`` with features ``x``, target ``y`` and weight ``s``

    g    = s * loss'(w . x + b, y)
    w_u <- prox_u(w_u - step * g * x_u)      for u in row i:  soft-threshold by step * l1 * N / d_u,
                                                              then divide by 1 + step * l2 * N / d_u

which is the separable form of Recht, Re, Wright, Niu (2011), section 2.3, applied proximally: ``N / d_u`` spreads the
penalty over the ``d_u`` rows that hold feature ``u``, and a division cannot overshoot even if that is above 1.

Disciplines differ only in how the new ``w_u`` is written: with a plain store (serial, hogwild), with
compare-and-exchange (atomic), under sorted per-coordinate locks (aig) or under one lock around read, compute and write
(locked); round-robin, where workers take turns, has its own loop in ``turns_kernel.py``. With one worker all of them
are bitwise equal.

The intercept is in every row, so as a plain shared cell it would lose 10-50 % of its updates: lock-free workers add
what they owe it every ``plan.flush`` rows, atomically, and it takes only a share of the step (see ``problem.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels.atomics import compare_exchange, fetch_add, load, prefetch
from hogwild.kernels.control import ABORT, NEXT, SKIP, STOP, count
from hogwild.kernels.cycles import spin
from hogwild.kernels.fma import fma
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.loss_kernel import bend, dloss, ease
from hogwild.kernels.options import JIT, called, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, WEIGHTS_AHEAD, chunk_rows, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, scale_at, shrink_a_row, squared_length, step_at
from hogwild.kernels.tiers import QUANTUM, drop_small, fetch_all, merge_due, place_of_rate

DISCIPLINES = {"serial": 0, "hogwild": 1, "atomic": 2, "aig": 3, "locked": 4, "round-robin": 5, "tiered": 6}
SERIAL, HOGWILD, ATOMIC, AIG, LOCKED, ROUND_ROBIN, TIERED = DISCIPLINES.values()
PLAIN = (SERIAL, HOGWILD, AIG, LOCKED, ROUND_ROBIN, TIERED)  # by plain stores: one compiled form of a helper serves all

# "l2 table": the step does not fall within the epoch, so data.rates holds 1 / (1 + step * l2 * N / d_u), precomputed
# (``shrink_table``); a division for every nonzero would cost a third of the speed of one worker in file order
# "l2 scaled": the weights are ``scale`` times what is stored; it is one at the start of an epoch and falls by
# ``exp(-step * l2)`` a row (Bottou 2012, section 5.1), so that a row that moves no weight writes none, and every weight
# shrinks at every row, visited or not; the caller multiplies by the scale at the end of the epoch
# "apart": "elastic" with rates of its own for each penalty of a feature: (2 * width,), for l1 and then for l2 over l1
PENALTIES = {"none": 0, "l2": 1, "elastic": 2, "l2 table": 3, "l2 scaled": 4, "apart": 5}
NO_PENALTY, L2, ELASTIC, L2_TABLE, L2_SCALED, APART = PENALTIES.values()

# FAR: the model outgrows the cache, so the weights of rows ahead are prefetched too. PACKED: besides, features are
# numbered so that, after the first ones, each 64 have the same degree and share a rate (``data/rows/degrees.py``);
# rates then stay in the cache, and epochs with a penalty are up to 1.4 times as fast
NEAR, FAR, PACKED = range(3)

TINY = np.float32(1e-10)  # below AdaGrad's root, so that a zero gradient is not divided by zero
ZERO, ONE = np.float32(0), np.float32(1)
# Cells of a worker's state, from which a call continues where the last one returned: rows in the current chunk, how
# many of them are done, rows of the run before it; tiered: whether the epoch has begun, rows done in it
LENGTH, DONE, VISITED, BEGUN, SEEN = range(5)
STATE = 5
U1, U2, U3 = np.uint64(1), np.uint64(2), np.uint64(3)


class Parameters(NamedTuple):
    """Views of the one shared float32 array; the sums of squares are empty without AdaGrad."""

    coef: np.ndarray  # (width,) or, for several classes, (width * stride,)
    intercept: np.ndarray  # (1,) or (stride,), on a cache line of its own
    coef_squares: np.ndarray  # as coef: AdaGrad's sum of squared gradients
    intercept_squares: np.ndarray  # as intercept


class Data(NamedTuple):
    """Read-only arrays of the training rows; ``weights`` and ``scales`` may be empty (all one)."""

    begin: np.ndarray  # (n,) int64
    end: np.ndarray  # (n,) int64
    indices: np.ndarray  # (nnz,) int32
    values: np.ndarray  # (nnz,) float32
    targets: np.ndarray  # (n,) float32: -1 and +1, a class number, or a real target
    weights: np.ndarray  # (n,) float32, with mean one
    scales: np.ndarray  # (n,) float32: factor on each row
    rates: np.ndarray  # (width,) float32: N / d_u, or see PENALTIES and PACKED


class Plan(NamedTuple):
    """The work of one worker in one epoch."""

    blocks: np.ndarray  # (n_blocks,) int32
    n_rows: int
    block: int
    shuffled: int
    n_chunks: int
    start: int  # first row position of this call: nonzero when an epoch is resumed
    seed: int
    epoch: int
    step: tuple[float, float, float]  # step(t) = scale / (offset + t)**power, t = rows visited before
    l1: float
    l2: float
    loss_param: float
    intercept: float  # share of the step that the intercept takes; 0: no intercept
    flush: int  # rows between two updates of the shared intercept
    worker: int
    workers: int
    classes: int  # margins of a row: 1, or the number of classes
    stride: int  # classes rounded up: weights of a feature in memory
    limit: int  # rows after which the call returns; it is then called again
    kappa: float  # tiered: see tiers.py
    delay: int  # extra ticks per gradient, if the kernel is made with ``delayed``
    own_rates: int  # first features that have a rate of their own; others share one, see PACKED


@inlined
def visits(penalty):
    """Whether the penalty acts on a weight when its feature is visited."""
    return penalty != NO_PENALTY and penalty != L2_SCALED


@inlined
def value(values, k, unit):
    """Return ``values[k]``, which is not read if all are known to be one."""
    return ONE if unit else values[k]


@inlined
def dot(coef, indices, values, begin, end, unit=0):
    """Return ``sum(coef[indices] * values)`` over a row: four accumulators, so that no addition waits for the last."""
    s0, s1, s2, s3 = ZERO, ZERO, ZERO, ZERO
    j = begin
    while j + 4 <= end:
        k = np.uint64(j)  # unsigned, like the index below: saves the test for a negative index that would wrap around
        s0 = fma(coef[np.uint32(indices[k])], value(values, k, unit), s0)
        s1 = fma(coef[np.uint32(indices[k + U1])], value(values, k + U1, unit), s1)
        s2 = fma(coef[np.uint32(indices[k + U2])], value(values, k + U2, unit), s2)
        s3 = fma(coef[np.uint32(indices[k + U3])], value(values, k + U3, unit), s3)
        j += 4
    while j < end:
        k = np.uint64(j)
        s0 = fma(coef[np.uint32(indices[k])], value(values, k, unit), s0)
        j += 1
    return (s0 + s1) + (s2 + s3)


@njit(**JIT)
def shrink_table(table, rates, step, l2):
    """Fill ``table`` (width,) float32 with the factor of an l2 step on each weight."""
    for u in range(len(table)):
        table[u] = ONE / fma(step * rates[u], l2, ONE)


@inlined
def shrunk(penalty, w, threshold, divisor):
    """The proximal step of ``l1 |w| + l2/2 w^2``: towards zero by ``threshold``, then divided by ``divisor``."""
    if penalty == L2_TABLE:
        return w * divisor
    if penalty == ELASTIC or penalty == APART:  # truncated gradient (Langford, Li, Zhang 2009) at every visit
        w = max(w - threshold, ZERO) if w > ZERO else min(w + threshold, ZERO) if w < ZERO else w
    if penalty == L2 or penalty == ELASTIC or penalty == APART:
        w = w / divisor
    return w


@inlined
def write(discipline, penalty, adagrad, parameters, u, a, b, step, rate, l1, l2):
    """Update coordinate ``u`` as the discipline requires.

    Its gradient is ``a * b`` with AdaGrad, else ``a * b / step``: the caller has already multiplied by the step.
    """
    coef, squares = parameters.coef, parameters.coef_squares
    if adagrad:  # the step is taken from a local copy of the sum that includes this gradient (algorithm 4.4)
        gradient = a * b
        square = gradient * gradient
        if discipline == ATOMIC:
            total = fetch_add(squares, u, square) + square
        else:
            total = squares[u] + square
            squares[u] = total
        step = step / np.sqrt(total + TINY)
        a, b = step, gradient
    pull = step * rate
    threshold, divisor = pull * l1, rate if penalty == L2_TABLE else fma(pull, l2, ONE)
    if discipline == ATOMIC:
        while True:
            old = load(coef, u)
            if compare_exchange(coef, u, old, shrunk(penalty, fma(-a, b, old), threshold, divisor)):
                break
    else:
        coef[u] = shrunk(penalty, fma(-a, b, coef[u]), threshold, divisor)


@inlined
def apart(penalty, rates, u):
    """The l2 penalty's rate of feature ``u`` over that of l1."""
    return rates[np.uint64(u) + np.uint64(len(rates) // 2)] if penalty == APART else ONE


@inlined
def write_row(discipline, penalty, adagrad, parameters, data, begin, end, g, step, l1, l2, unit=0, own=0):
    """Update every coordinate of a row whose gradient is ``g * values``."""
    a = g if adagrad else step * g
    for j in range(begin, end):
        k = np.uint64(j)
        u = np.uint32(data.indices[k])
        rate = data.rates[place_of_rate(u, own)] if visits(penalty) else ZERO
        pull = l2 * apart(penalty, data.rates, u)
        write(discipline, penalty, adagrad, parameters, u, a, value(data.values, k, unit), step, rate, l1, pull)


@inlined
def prefetch_weights(far, penalty, adagrad, parameters, data, row):
    """Prefetch the weights of a row and what goes with them; sums of squares only where rates need no prefetch."""
    for j in range(data.begin[row], data.end[row]):
        u = np.uint32(data.indices[np.uint64(j)])
        prefetch(parameters.coef, u)
        if visits(penalty) and far != PACKED:
            prefetch(data.rates, u)
        elif adagrad:
            prefetch(parameters.coef_squares, u)


@inlined
def row_factor(array, row):
    """Return ``array[row]``, or one if the array is empty."""
    return array[row] if array.size else ONE


@inlined
def lock_row(locks, data, begin, end, control):
    """Take the locks of a row's coordinates, in ascending order so that two workers cannot wait for each other."""
    for j in range(begin, end):
        if not acquire(locks, np.uint32(data.indices[np.uint64(j)]), control, ABORT):
            return False
    return True


@inlined
def unlock_row(locks, data, begin, end):
    for j in range(begin, end):
        release(locks, np.uint32(data.indices[np.uint64(j)]))


@inlined
def intercept_move(adagrad, squares, gained, g, step):
    """``(step * g, g * g)`` for the intercept; with AdaGrad the step is divided by the root of its sum of squares."""
    if adagrad:
        step = step / np.sqrt(squares + gained + g * g + TINY)
    return step * g, g * g


@called
def claim(state, control, plan, rows):
    """Take the next chunk of the current epoch; return False if there is none, or the workers are to stop."""
    if load(control, STOP) != 0:
        return False
    chunk = fetch_add(control, NEXT, 1 + load(control, SKIP))
    if chunk >= plan.n_chunks:
        return False
    state[LENGTH] = chunk_rows(rows, plan.blocks, chunk, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
    state[DONE] = 0
    state[VISITED] = plan.epoch * plan.n_rows + chunk * plan.block * BLOCKS_PER_CHUNK
    return True


@called
def come_in(adagrad, tiers, replica, parameters, plan, state):
    """Begin or continue a tiered worker's epoch; return the rows done and the curvature met so far."""
    if state[BEGUN] == 0:
        fetch_all(adagrad, tiers, replica, parameters, plan)
        state[BEGUN], state[SEEN] = 1, 0
    return state[SEEN], replica.total[0]


@called
def go_out(adagrad, penalty, tiers, replica, parameters, data, control, plan, state, step, grown, done, over):
    """Store what ``come_in`` will read; with ``over``, at the end of the epoch, merge everything."""
    state[SEEN], replica.total[0] = done, grown
    if over:
        replica.due[:] = 1  # whatever was done since the last merge
        merge_due(adagrad, tiers, replica, parameters, control, plan, grown, done)
        if (penalty == ELASTIC or penalty == APART) and plan.workers > 1:
            drop_small(adagrad, tiers, replica, data.rates, plan, step)
        state[BEGUN] = 0


@lru_cache(None)
def epoch(loss, discipline, penalty, adagrad, far, unit, delayed=0, passive=0):
    """One worker's loop over the chunks it claims; codes from LOSSES, DISCIPLINES, PENALTIES; other arguments 0 or 1.

    ``far``: NEAR, FAR or PACKED. ``unit``: all values are one, so they are not read, which is a fifth faster and the
    same to the last bit. ``delayed``: a gradient costs ``plan.delay`` extra ticks, between reading weights and writing
    them. ``passive``: see ``losses.ease``. All are constants because even a branch not taken would halve the speed.
    """
    rule = SERIAL if discipline in PLAIN else discipline

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state, tiers, replica):
        l1, l2 = np.float32(plan.l1), np.float32(plan.l2)
        intercept, intercept_squares = parameters.intercept, parameters.intercept_squares
        squares, step, part = ZERO, ZERO, np.float32(plan.intercept)
        scale, shrink, begun = ONE, ONE, plan.epoch * plan.n_rows
        left, done, grown, due, ripe = plan.limit, 0, 0.0, 0, 0.0
        own = np.uint32(plan.own_rates if far == PACKED else 0)
        if discipline == TIERED:
            done, grown = come_in(adagrad, tiers, replica, parameters, plan, state)
        while left > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, plan, rows):
                break
            first, visited = state[DONE], state[VISITED]
            last = min(state[LENGTH], first + left)
            bias, owed, gained, unpaid, nonzeros = load(intercept, 0), ZERO, ZERO, 0, 0
            step = step_at(plan.step, visited + first - first % STEP_EVERY)
            if penalty == L2_SCALED:
                scale = scale_at(plan, visited - begun + first * plan.workers)
                shrink = shrink_a_row(plan, step)
            if adagrad:
                squares = load(intercept_squares, 0)
            for i in range(first, last):
                row = rows[i]
                begin, end = data.begin[row], data.end[row]
                prefetch_entries(data, rows, i, unit)
                if far:
                    prefetch_weights(far, penalty, adagrad, parameters, data, rows[i + WEIGHTS_AHEAD])
                if i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i)
                    if penalty == L2_SCALED:
                        scale = scale_at(plan, visited - begun + i * plan.workers)
                        shrink = shrink_a_row(plan, step)
                if discipline == LOCKED:
                    if not acquire(locks, 0, control, ABORT):
                        return
                    bias = intercept[0]
                    if adagrad:
                        squares = intercept_squares[0]
                factor = row_factor(data.scales, row)
                found = dot(parameters.coef, data.indices, data.values, begin, end, unit)
                margin = fma(factor * scale, found, bias - owed)
                slope = dloss(loss, margin, data.targets[row], plan.loss_param)
                if passive:
                    length, weight = squared_length(data.values, begin, end, factor), row_factor(data.weights, row)
                    target, param = data.targets[row], plan.loss_param
                    slope *= ease(passive, loss, margin, target, slope, param, step, length, weight, part)
                g = np.float32(slope) * row_factor(data.weights, row)
                if delayed:
                    spin(control, plan.delay)
                scale = scale * shrink
                if g != ZERO or visits(penalty):
                    if discipline == AIG and not lock_row(locks, data, begin, end, control):
                        return
                    reach = step / scale
                    write_row(
                        rule, penalty, adagrad, parameters, data, begin, end, g * factor, reach, l1, l2, unit, own
                    )
                    if discipline == AIG:
                        unlock_row(locks, data, begin, end)
                if part != ZERO:
                    move, square = intercept_move(adagrad, squares, gained, g, part * step)
                    owed, gained, unpaid = owed + move, gained + square, unpaid + 1
                    if unpaid >= plan.flush or i == last - 1:
                        if discipline == SERIAL or discipline == LOCKED or discipline == TIERED:
                            bias = bias - owed
                            intercept[0] = bias
                        else:
                            bias = fetch_add(intercept, 0, -owed) - owed
                        if adagrad:
                            squares = fetch_add(intercept_squares, 0, gained) + gained
                        owed, gained, unpaid = ZERO, ZERO, 0
                if discipline == LOCKED:
                    release(locks, 0)
                if discipline == TIERED:
                    bent = np.float32(bend(loss, margin, data.targets[row], slope, plan.loss_param))
                    grown += step * bent * row_factor(data.weights, row)
                    done += 1
                    if done >= due or (grown >= ripe and (done + plan.worker) % QUANTUM == 0):
                        due, ripe = merge_due(adagrad, tiers, replica, parameters, control, plan, grown, done)
                        bias = intercept[0]
                        if adagrad:
                            squares = intercept_squares[0]
                nonzeros += end - begin
            count(control, plan.worker, last - first, nonzeros)
            state[DONE] = last
            left -= last - first
        if discipline == TIERED:
            go_out(
                adagrad, penalty, tiers, replica, parameters, data, control, plan, state, step, grown, done, left > 0
            )

    return run
