"""Sparse linear models: the SGD loop that every worker runs, for every loss, penalty and discipline.

One source serves them all: loss, discipline, penalty and AdaGrad are integers in closure cells, so LLVM drops the dead
branches and the disk cache keeps each combination. For row ``i`` with features ``x``, target ``y`` and weight ``s``

    g    = s * loss'(w . x + b, y)
    w_u <- prox_u(w_u - step * g * x_u)      for u in row i:  soft-threshold by step * l1 * N / d_u,
                                                              then divide by 1 + step * l2 * N / d_u

which is the separable form of Recht, Re, Wright, Niu (2011), section 2.3, applied proximally: ``N / d_u`` spreads the
penalty over the ``d_u`` rows that hold feature ``u``, and a division cannot overshoot even if that is above 1.

With one margin per class (``size`` above 0) there are vectors in place of numbers (``kernels/vectors.py``):
one-versus-rest in a single pass over the data, or softmax. The weights of a feature lie together, (width, stride), so
that a nonzero touches one or a few whole cache lines and the loop over classes becomes vector instructions; the columns
beyond ``classes`` stay zero.

    one-versus-rest:  g_k = s * loss'(m_k, +1 if y = k else -1)        softmax:  g_k = s * (softmax(m)_k - [y = k])

A row may also have several labels, or none: +1 then is for each label ``k`` in its set (``data/rows/labels.py``).

Disciplines differ only in how the new ``w_u`` is written: with a plain store (serial, hogwild), with
compare-and-exchange (atomic), under sorted locks, one a feature (aig) or under one lock around read, compute and write
(locked). With one worker all of them are bitwise equal.

Under round robin workers compute gradients side by side but read and write in turn (Langford, Smola, Zinkevich 2009):
``turns`` has that loop. Position ``t`` of the epoch belongs to worker ``t mod W``. When ``t`` comes up that worker
applies the gradient of its position ``t - W``, takes the margins of row ``t`` and passes the turn on; it computes the
new gradient during the others' turns. So row ``t`` sees exactly the updates of rows up to ``t - W``: a delay of
``W - 1`` by construction, bitwise reproducible for a given order and W. After the last position come ``W`` turns that
only apply gradients. Positions, not claims, determine the order, so every worker builds every chunk. A call returns
after ``plan.limit`` turns, and the next one continues from ``state`` and ``buffer``: the simulator makes one call per
turn.

The intercept is in every row, so as a plain shared cell it would lose 10-50 % of its updates: lock-free workers add
what they owe it every ``plan.flush`` rows, atomically, and it takes only a share of the step (see ``problem.py``).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.atomics import compare_exchange, fetch_add, load, prefetch, store
from hogwild.kernels.control import ABORT, LAST, NEXT, SKIP, STOP, TURN, count
from hogwild.kernels.locks import acquire, release, wait_for
from hogwild.kernels.loss_kernel import bend, dloss, ease
from hogwild.kernels.losses import SOFTMAX
from hogwild.kernels.options import JIT, called, inlined
from hogwild.kernels.order import BLOCKS_PER_CHUNK, WEIGHTS_AHEAD, chunk_rows, prefetch_entries
from hogwild.kernels.steps import STEP_EVERY, scale_at, shrink_a_row, squared_length, step_at
from hogwild.kernels.tiers import QUANTUM, fetch_all, merge_due, place_of_rate
from hogwild.kernels.vectors import LANES, fma

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

CLASSES, SETS = 1, 2  # margins of a row with one label, and with any number of them; without either there is one

TINY = np.float32(1e-10)  # below AdaGrad's root, so that a zero gradient is not divided by zero
ZERO, ONE = np.float32(0), np.float32(1)
NONE = np.uint32(0)  # features that have a rate of their own while others share one
# Cells of a worker's state, from which a call continues where the last one returned: rows in the current chunk, how
# many of them are done, rows of the run before it; tiered: whether the epoch has begun, rows done in it
LENGTH, DONE, VISITED, BEGUN, SEEN = range(5)
STATE = 5
HANDED, TAKEN, ROW, SOME = range(4)  # of round robin: the current chunk plus one, turns, the last row, does it move any
VECTORS = 6  # of a workspace
MARGIN = (0,) * VECTORS  # their length with one margin


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
    targets: np.ndarray  # (n,) float32: -1 and +1, a class number, minus one less that of a set, or a real target
    weights: np.ndarray  # (n,) float32, with mean one
    scales: np.ndarray  # (n,) float32: factor on each row
    rates: np.ndarray  # (width,) float32: N / d_u, or see PENALTIES and PACKED
    label_indptr: np.ndarray  # (sets + 1,) int64, of LabelSets
    label_indices: np.ndarray  # (m,) int32


class Workspace(NamedTuple):
    """A worker's own vectors, (stride,) float32 each."""

    slopes: np.ndarray  # before, margins
    bias: np.ndarray  # the intercept as last read
    owed: np.ndarray  # what the shared intercept is still to be moved by
    gained: np.ndarray  # AdaGrad: what its sums of squares are still to grow by
    squares: np.ndarray  # AdaGrad: those sums as last read
    bent: np.ndarray  # curvatures of rows since the last merge


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
    own_rates: int  # first features that have a rate of their own; others share one, see PACKED


@inlined
def visits(penalty):
    """Whether the penalty acts on a weight when its feature is visited."""
    return penalty != NO_PENALTY and penalty != L2_SCALED


@inlined
def dots(lanes, margins, coef, data, stride, begin, end, unit=0):
    """``margins[k] = sum_j coef[indices[j], k] * values[j]``; ``stride`` is a multiple of ``lanes``.

    There are four sums, so that no addition waits for the last.
    """
    for k in range(0, stride, len(lanes)):
        s0 = s1 = s2 = s3 = vectors.filled(lanes, ZERO)
        j = begin
        while j + 4 <= end:
            s0 = add_products(lanes, s0, coef, data, stride, j, k, unit)
            s1 = add_products(lanes, s1, coef, data, stride, j + 1, k, unit)
            s2 = add_products(lanes, s2, coef, data, stride, j + 2, k, unit)
            s3 = add_products(lanes, s3, coef, data, stride, j + 3, k, unit)
            j += 4
        while j < end:
            s0 = add_products(lanes, s0, coef, data, stride, j, k, unit)
            j += 1
        vectors.store((s0 + s1) + (s2 + s3), margins, k)


@inlined
def add_products(lanes, total, coef, data, stride, j, k, unit):
    """Add to ``total`` the weights of entry ``j``, classes from ``k`` on, times its value."""
    i = np.uint64(j)  # unsigned, like the index below: saves the test for a negative index that would wrap around
    weights = vectors.load(lanes, coef, np.uint64(np.uint32(data.indices[i])) * np.uint64(stride) + np.uint64(k))
    return fma(weights, ONE if unit else data.values[i], total)


@njit(**JIT)
def shrink_table(table, rates, step, l2):
    """Fill ``table`` (width,) float32 with the factor of an l2 step on each weight."""
    for u in range(len(table)):
        table[u] = ONE / fma(step * rates[u], l2, ONE)


@inlined
def moved(penalty, w, a, b, step, rate, l1, l2):
    """Weights ``w`` after a step along ``a * b`` and the penalty's proximal step; all are numbers or vectors."""
    w = fma(a, b, w)
    if penalty == L2_TABLE:
        return rate * w
    pull = step * rate
    if penalty == ELASTIC or penalty == APART:  # truncated gradient (Langford, Li, Zhang 2009) at every visit
        w = vectors.nearer_zero(w, pull * l1)
    if visits(penalty):
        w = w / fma(pull, l2, ONE)
    return w


@inlined
def own_step(step, total):
    """AdaGrad's step of a coordinate, by the sum of its squares with this gradient's (algorithm 4.4)."""
    return step / vectors.root(total + TINY)


@inlined
def write(lanes, penalty, adagrad, parameters, first, a, b, step, rate, l1, l2):
    """Update coordinates from ``first`` on with plain stores.

    With AdaGrad ``a * b`` is minus their gradient, else minus their gradient times the step.
    """
    coef, squares = parameters.coef, parameters.coef_squares
    a, b, step = vectors.filled(lanes, a), vectors.filled(lanes, b), vectors.filled(lanes, step)
    if adagrad:
        b = a * b
        total = vectors.load(lanes, squares, first) + b * b
        vectors.store(total, squares, first)
        step = own_step(step, total)
        a = step
    vectors.store(moved(penalty, vectors.load(lanes, coef, first), a, b, step, rate, l1, l2), coef, first)


@inlined
def write_atomic(penalty, adagrad, parameters, u, a, b, step, rate, l1, l2):
    """Do ``write`` for one coordinate with compare-and-exchange."""
    if adagrad:
        b = a * b
        step = own_step(step, fetch_add(parameters.coef_squares, u, b * b) + b * b)
        a = step
    while True:
        old = load(parameters.coef, u)
        if compare_exchange(parameters.coef, u, old, moved(penalty, old, a, b, step, rate, l1, l2)):
            break


@inlined
def write_row(
    lanes,
    atomic,
    several,
    penalty,
    adagrad,
    parameters,
    data,
    stride,
    row,
    g,
    step,
    l1,
    l2,
    unit=0,
    popular=NONE,
):
    """Update the weights of a row's features, whose gradient is ``g[k] * scale * values``.

    ``several`` is None with one margin, and ``atomic`` unless updates are: numba then leaves out what does not fit.
    Candidates side by side, of one margin each, have a vector of steps and penalties.
    """
    factor = row_factor(data.scales, row)
    for k in range(0, stride, len(lanes)):
        slope = vectors.load(lanes, g, k)
        for j in range(data.begin[row], data.end[row]):
            i = np.uint64(j)
            u = np.uint32(data.indices[i])
            first = np.uint64(u) * np.uint64(stride) + np.uint64(k)
            x = ONE if unit else data.values[i]
            rate, pull = vectors.filled(lanes, ZERO), l2
            if visits(penalty):
                rate = vectors.filled(lanes, data.rates[place_of_rate(u, popular)])
            if penalty == APART:
                other = np.uint64(len(data.rates) - len(parameters.coef) // stride) + np.uint64(u)
                pull = l2 * data.rates[other]
            if several is None:
                a = factor * slope
                a = -ONE * (a if adagrad else step * a)
                b = vectors.filled(lanes, x)
            else:
                a, b = vectors.filled(lanes, (-ONE if adagrad else -step) * (factor * x)), slope
            if atomic is None:
                write(lanes, penalty, adagrad, parameters, first, a, b, step, rate, l1, pull)
            else:
                write_atomic(penalty, adagrad, parameters, first, a, b, step, rate, l1, pull)


@inlined
def prefetch_weights(rated, adagrad, parameters, data, stride, row):
    """Prefetch the weights of a row and, if ``rated``, their rates; else, with AdaGrad, their sums of squares."""
    for j in range(data.begin[row], data.end[row]):
        u = np.uint32(data.indices[np.uint64(j)])
        if rated:
            prefetch(data.rates, u)
        for k in range(0, stride, 16):
            first = np.uint64(u) * np.uint64(stride) + np.uint64(k)
            prefetch(parameters.coef, first)
            if adagrad and not rated:
                prefetch(parameters.coef_squares, first)


@inlined
def row_factor(array, row):
    """Return ``array[row]``, or one if the array is empty."""
    return array[row] if array.size else ONE


@inlined
def sign_of(several, data, row, k):
    """The target of margin ``k``: the row's if it has one margin, else whether the row has label ``k``."""
    target = data.targets[row]
    if several is None:  # so that numba leaves out the other lines, whose type is another
        return target
    label = np.int64(target)
    if several == SETS and label < 0:
        j, end = data.label_indptr[-1 - label], data.label_indptr[-label]
        while j < end and data.label_indices[j] < k:
            j += 1
        return 1.0 if j < end and data.label_indices[j] == k else -1.0
    return 1.0 if label == k else -1.0


@inlined
def slopes(
    loss, several, g, bent, data, row, weight, classes, param, passive=0, step=ONE, squares=0.0, part=ZERO, curved=0
):
    """Replace the margins ``g`` (stride,) by the loss's gradient in them, and the padding by zero.

    Returned is whether any slope is nonzero, and, if ``curved``, the largest number of ``bent`` (stride,), to which are
    added step, weight and ``losses.bend`` of each margin, multiplied; of softmax, the diagonal of its second
    derivative. Each class has its own sum: few classes may bend where most do not.
    """
    some, largest = False, ZERO
    label, top, total, eased = np.int64(0), ZERO, 1.0, weight
    if loss == SOFTMAX:
        label, top, total = np.int64(data.targets[row]), g[0], 0.0
        for k in range(1, classes):
            top = max(top, g[k])
        for k in range(classes):
            total += math.exp(np.float64(g[k] - top))
        if passive:  # as for loss log, of the label against the class with the largest margin, which moves as well
            gap = np.float64(g[label] - top)
            share = math.exp(gap) / total
            curvature = share * (1.0 - share) if gap >= 0.0 else 1.0 / (4.0 - gap)
            eased = np.float32(weight / (1.0 + 2.0 * step * weight * (squares + part) * curvature))
    for k in range(classes):
        if loss == SOFTMAX:
            share = math.exp(np.float64(g[k] - top)) / total
            g[k] = np.float32(share - (1.0 if k == label else 0.0)) * eased
            some = True
            curvature = share * (1.0 - share)
        else:
            y = sign_of(several, data, row, k)
            slope = dloss(loss, g[k], y, param)
            curvature = bend(loss, g[k], y, slope, param) if curved else 0.0
            if passive:
                slope *= ease(passive, loss, g[k], y, slope, param, step, squares, weight, part)
            g[k] = np.float32(slope) * weight
            some = some or g[k] != ZERO
        if curved:
            bent[k] += step * weight * np.float32(curvature)
            largest = max(largest, bent[k])
    for k in range(classes, len(g)):
        g[k] = ZERO
    return some, largest


@inlined
def lock_row(locks, data, row, control):
    """Take the locks of a row's coordinates, in ascending order so that two workers cannot wait for each other."""
    for j in range(data.begin[row], data.end[row]):
        if not acquire(locks, np.uint32(data.indices[np.uint64(j)]), control, ABORT):
            return False
    return True


@inlined
def unlock_row(locks, data, row):
    for j in range(data.begin[row], data.end[row]):
        release(locks, np.uint32(data.indices[np.uint64(j)]))


@inlined
def workspace(memory, stride):
    """The first ``VECTORS`` vectors of a worker's memory."""
    return Workspace(
        memory[:stride],
        memory[stride : 2 * stride],
        memory[2 * stride : 3 * stride],
        memory[3 * stride : 4 * stride],
        memory[4 * stride : 5 * stride],
        memory[5 * stride : 6 * stride],
    )


@inlined
def refresh(work, parameters, adagrad):
    """Read the shared intercept (and its sums of squares)."""
    for k in range(len(work.bias)):
        work.bias[k] = load(parameters.intercept, k)
        if adagrad:
            work.squares[k] = load(parameters.intercept_squares, k)


@inlined
def settle(alone, adagrad, parameters, work):
    """Add what is owed to the shared intercept, atomically unless the worker is alone with it."""
    for k in range(len(work.bias)):
        if alone:
            work.bias[k] -= work.owed[k]
            parameters.intercept[k] = work.bias[k]
        else:
            work.bias[k] = fetch_add(parameters.intercept, k, -work.owed[k]) - work.owed[k]
        if adagrad:
            work.squares[k] = fetch_add(parameters.intercept_squares, k, work.gained[k]) + work.gained[k]
        work.owed[k], work.gained[k] = ZERO, ZERO


@inlined
def owe(adagrad, work, step):
    """Add a row's update of the intercept to what is owed; AdaGrad's step is its own by all squares so far."""
    for k in range(len(work.slopes)):
        square = work.slopes[k] * work.slopes[k]
        reach = own_step(step, work.squares[k] + work.gained[k] + square) if adagrad else step
        work.owed[k] += reach * work.slopes[k]
        work.gained[k] += square


@inlined
def take_chunk(plan, rows, chunk):
    """Write the row numbers of a chunk; return how many there are, and how many the run has visited before them."""
    length = chunk_rows(rows, plan.blocks, chunk, plan.n_rows, plan.block, plan.shuffled, plan.seed, plan.epoch)
    return length, plan.epoch * plan.n_rows + chunk * plan.block * BLOCKS_PER_CHUNK


@called
def claim(state, control, plan, rows):
    """Take the next chunk of the current epoch; return False if there is none, or the workers are to stop."""
    if load(control, STOP) != 0:
        return False
    chunk = fetch_add(control, NEXT, 1 + load(control, SKIP))
    if chunk >= plan.n_chunks:
        return False
    state[LENGTH], state[VISITED] = take_chunk(plan, rows, chunk)
    state[DONE] = 0
    return True


@called
def come_in(tiers, replica, private, plan, state):
    """Begin or continue a tiered worker's epoch; return the rows done and the curvature met so far."""
    if state[BEGUN] == 0:
        fetch_all(tiers, replica, private, plan)
        state[BEGUN], state[SEEN] = 1, 0
    return state[SEEN], replica.total[0]


@called
def go_out(tiers, replica, private, control, plan, state, grown, done, over):
    """Store what ``come_in`` will read; with ``over``, at the end of the epoch, merge everything."""
    state[SEEN], replica.total[0] = done, grown
    if over:
        replica.due[:] = 1  # whatever was done since the last merge
        merge_due(tiers, replica, private, control, plan, grown, done)
        state[BEGUN] = 0


@lru_cache(None)
def epoch(loss, discipline, penalty, adagrad, far, unit, size=0, passive=0, sets=0):
    """One worker's loop over the chunks it claims; codes from LOSSES, DISCIPLINES, PENALTIES; other arguments 0 or 1.

    ``far``: NEAR, FAR or PACKED. ``unit``: all values of rows with one margin are one, so they are not read, which is a
    fifth faster and the same to the last bit. ``size``: the lanes of a vector, which divide the stride; 0 with one
    margin. ``passive``: see ``losses.ease``. ``sets``: rows have any number of labels. All are constants because even a
    branch not taken would halve the speed, and because a name may then be a number with one margin and an array with
    several.
    """
    alone = int(discipline in (SERIAL, LOCKED, TIERED))
    several = SETS if sets else CLASSES if size else None
    atomic = 1 if discipline == ATOMIC else None
    lanes, written = LANES[size or 1], LANES[1 if atomic else size or 1]
    tiered = int(discipline == TIERED)

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state, tiers, replica):
        l1 = np.float32(plan.l1)
        l2 = np.float32(plan.l2)
        part = np.float32(plan.intercept)
        stride = plan.stride if size else 1
        classes = plan.classes if size else 1
        step = ZERO
        scale = ONE
        shrink = ONE
        begun = plan.epoch * plan.n_rows
        param = plan.loss_param
        remaining = plan.limit
        done = 0
        grown = 0.0
        most = ZERO
        due = 0
        ripe = 0.0
        popular = np.uint32(plan.own_rates if far == PACKED else 0)
        rated = visits(penalty) and far != PACKED and not size
        work = workspace(buffer if size else vectors.own(MARGIN), stride)
        g, bent = work.slopes, work.bent
        for k in range(stride):
            work.owed[k], work.gained[k], bent[k] = ZERO, ZERO, ZERO
        if tiered:
            done, grown = come_in(tiers, replica, parameters, plan, state)
        while remaining > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, plan, rows):
                break
            first, visited = state[DONE], state[VISITED]
            last = min(state[LENGTH], first + remaining)
            unpaid = 0
            nonzeros = 0
            merged = False
            for i in range(first, last):
                row = rows[i]
                begin = data.begin[row]
                end = data.end[row]
                factor, weight = row_factor(data.scales, row), row_factor(data.weights, row)
                prefetch_entries(data, rows, i, unit)
                if far:
                    prefetch_weights(rated, adagrad, parameters, data, stride, rows[i + WEIGHTS_AHEAD])
                if i == first or i % STEP_EVERY == 0:
                    step = step_at(plan.step, visited + i - i % STEP_EVERY)
                    if penalty == L2_SCALED:
                        scale = scale_at(plan, visited - begun + i * plan.workers)
                        shrink = shrink_a_row(plan, step)
                if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                    return
                if i == first or discipline == LOCKED or (tiered and merged):
                    refresh(work, parameters, adagrad)
                    merged = False
                length = squared_length(data.values, begin, end, factor) if passive else 0.0
                take_margins(lanes, work, parameters.coef, data, stride, row, factor * scale, unit)
                some, most = slopes(
                    loss, several, g, bent, data, row, weight, classes, param, passive, step, length, part, tiered
                )
                if tiered and not size:  # the sum of all rows, in float64
                    grown += most
                    bent[0], most = ZERO, ZERO
                scale = scale * shrink
                if some or visits(penalty):
                    if discipline == AIG and not lock_row(locks, data, row, control):
                        return
                    write_row(
                        written,
                        atomic,
                        several,
                        penalty,
                        adagrad,
                        parameters,
                        data,
                        stride,
                        row,
                        g,
                        step / scale,
                        l1,
                        l2,
                        unit,
                        popular,
                    )
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
                if tiered:
                    done += 1
                    if done >= due or (grown + most >= ripe and (done + plan.worker) % QUANTUM == 0):
                        grown = grown + most
                        most = ZERO
                        merged = True
                        for k in range(stride):
                            bent[k] = ZERO
                        due, ripe = merge_due(tiers, replica, parameters, control, plan, grown, done)
                nonzeros += end - begin
            count(control, plan.worker, last - first, nonzeros)
            state[DONE] = last
            remaining -= last - first
        if tiered:
            go_out(tiers, replica, parameters, control, plan, state, grown + most, done, remaining > 0)

    return run


@inlined
def take_margins(lanes, work, coef, data, stride, row, factor, unit=0):
    """Set the slopes to a row's margins, ``factor * w . x + bias - owed``."""
    g = work.slopes
    dots(lanes, g, coef, data, stride, data.begin[row], data.end[row], unit)
    for k in range(len(g)):
        g[k] = fma(factor, g[k], work.bias[k] - work.owed[k])


@inlined
def take_slopes(loss, several, g, data, plan, row):
    """Replace a row's margins ``g`` by the loss's gradient in them, for workers that hold it for a while."""
    weight = row_factor(data.weights, row)
    some, _ = slopes(loss, several, g, g, data, row, weight, plan.classes, plan.loss_param)
    return some


@inlined
def write_gradient(several, lanes, penalty, adagrad, parameters, data, plan, row, g, step):
    """Update the weights of a row by what ``take_slopes`` has found, with plain stores."""
    l1, l2 = np.float32(plan.l1), np.float32(plan.l2)
    write_row(lanes, None, several, penalty, adagrad, parameters, data, len(g), row, g, step, l1, l2)


@inlined
def step_of_turn(plan, position, chunk_size):
    return step_at(plan.step, plan.epoch * plan.n_rows + position - position % chunk_size % STEP_EVERY)


@lru_cache(None)
def turns(loss, penalty, adagrad, size=0, sets=0):
    """One worker's loop over its turns of an epoch that starts at chunk ``control[NEXT]`` (LAST and TURN set)."""
    several = SETS if sets else CLASSES if size else None
    lanes = LANES[size or 1]

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, rows, buffer, state, tiers, replica):
        part = np.float32(plan.intercept)
        stride = plan.stride if size else 1
        chunk_size = plan.block * BLOCKS_PER_CHUNK
        work = workspace(buffer, stride)
        work.owed[:], work.gained[:] = ZERO, ZERO
        in_hand = state[HANDED] - 1
        remaining = plan.limit
        row = state[ROW]
        some = state[SOME] != 0
        position = plan.start + plan.worker + state[TAKEN] * plan.workers
        step = step_of_turn(plan, max(position - plan.workers, plan.start), chunk_size)
        while remaining > 0:
            if position < plan.n_rows and position // chunk_size != in_hand:
                in_hand = position // chunk_size
                take_chunk(plan, rows, in_hand)
            if not wait_for(control, TURN, position, control, ABORT):
                return
            if position % chunk_size == 0 and load(control, STOP) != 0 and position < load(control, LAST):
                store(control, LAST, position)  # whoever starts a chunk decides, so that all end at the same row
                store(control, NEXT, position // chunk_size)
            pending = state[TAKEN] > 0
            if pending and (some or penalty != NO_PENALTY):
                write_gradient(several, lanes, penalty, adagrad, parameters, data, plan, row, work.slopes, step)
            if pending and part != ZERO:
                refresh(work, parameters, adagrad)
                owe(adagrad, work, part * step)
                settle(1, adagrad, parameters, work)
            if position >= load(control, LAST):
                store(control, TURN, position + 1)
                return
            row = rows[position % chunk_size]
            refresh(work, parameters, adagrad)
            take_margins(lanes, work, parameters.coef, data, stride, row, row_factor(data.scales, row))
            store(control, TURN, position + 1)
            step = step_of_turn(plan, position, chunk_size)
            some = take_slopes(loss, several, work.slopes, data, plan, row)
            count(control, plan.worker, 1, data.end[row] - data.begin[row])
            position += plan.workers
            state[TAKEN] += 1
            remaining -= 1
        state[HANDED] = in_hand + 1
        state[ROW] = row
        state[SOME] = some

    return run
