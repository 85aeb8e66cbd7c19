"""Matrix completion: the SGD loop that every worker runs over its tiles, for every loss and discipline.

For a rating ``r`` of item ``i`` by user ``u``, in the problem's units (see ``problem.py``)

    e    = b_u + b_i + p_u . q_i - r
    p_u <- (p_u - step * e * q_i) / (1 + step * l2 * rate_u),   b_u <- (b_u - step * e) / (1 + step * l2 * rate_u)

and q_i, b_i with the old p_u: the problem of Recht, Re, Wright, Niu (2011), section 2.4, with its penalty applied
proximally as in ``linear/kernel.py``; all rates are one unless the penalty is smoothed.

With implicit feedback a rating is a choice, and items not chosen are drawn against it:

    log:  y = +1 for the rating, y = -1 for each drawn item; log(1 + exp(-y m)) of the margin  m = b_u + b_i + p_u . q_i
    bpr:  log(1 + exp(-(m_ui - m_uj))) for each drawn j  (Rendle, Freudenthaler, Gantner, Schmidt-Thieme 2009)

Items are drawn uniformly from all, as a function of (seed, epoch, rating) alone. An item that the user has chosen is
drawn again, a few times at most, and then left out. The user and each of these items are a pair, which is updated as
one of a rating is, with the slope in its own margin. All margins of a rating are taken before its first update: one
after the other, each pair would wait for the user's row of the one before, which takes longer than all its work.

Memory, not arithmetic, limits the speed: an update takes 6 ns if both rows are in cache and 20 if they come from
memory. So ratings lie in tiles whose rows fit in a core's cache (``tiles.py``), rows are vectors
(``kernels/vectors.py``), and the next ratings and their rows are prefetched (without this, it is twice as slow). Drawn
rows may lie anywhere, so tiles help half as much with implicit feedback. Within a tile ratings lie in random order
already; an epoch permutes its *lines* of 16 neighbours, by a stride that is coprime to their number, and the ratings
of a line by an exclusive or. That costs nothing and depends on (seed, epoch, tile) alone.

With side features a user's or item's vector is a sum of rows, with the shares that ``sums.py`` gives: of an own row and
of one for each feature. The sums of an example are made in a worker's own memory, and every row in them moves by its
share; popular features are in many sums, so this costs speed with many workers.

In the order ``blocks`` a worker locks the tile's users, then its items, so no two ever touch the same row (Gemulla et
al. 2011); a worker that holds items never waits, so there is no deadlock. Otherwise the disciplines differ in how the
new rows are written. With one worker all are bitwise equal.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import njit

from hogwild.kernels import vectors
from hogwild.kernels.atomics import compare_exchange, fetch_add, load, prefetch
from hogwild.kernels.control import ABORT, NEXT, SKIP, STOP, count
from hogwild.kernels.locks import acquire, pass_turn, release, take_turn
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.losses import LOG as LOGISTIC
from hogwild.kernels.options import JIT, called, inlined
from hogwild.kernels.order import GOLDEN, S32, generator, mix
from hogwild.kernels.steps import step_at
from hogwild.kernels.vectors import LANE, LINE, ZERO, dot, filled, fma, move_both, moved, vector_at
from hogwild.problems.linear.kernel import AIG, ATOMIC, LOCKED, ONE, ROUND_ROBIN

LOSSES = {"squared-error": 0, "log": 1, "bpr": 2}
SQUARES, LOG, BPR = LOSSES.values()
TRIES = 8  # to draw an item that the user has not chosen
ONE_BIT = np.uint64(1)
BITS = 4
SIDE = 1 << BITS  # ratings in a line: a cache line of each array
FAR = 6  # lines ahead whose ratings are prefetched, before their rows
# Cells of a worker's state, from which a call continues where the last one returned: ratings of the current tile, how
# many of them are done, ratings before it in the epoch, its first rating, its lines, the line it starts with, the
# stride from line to line, the exclusive or within one, its number
LENGTH, DONE, VISITED, FIRST, LINES, START, STRIDE, FLIP, TILE = range(9)
STATE = 9


class Parameters(NamedTuple):
    """Views of the one shared float32 array; rows are ``stride`` long, with zeros beyond the rank.

    There is a row for each user and item, and behind them one for each of their features, if they have any.
    """

    users: np.ndarray  # (rows * stride,)
    items: np.ndarray  # (rows * stride,)
    user_bias: np.ndarray  # (rows,)
    item_bias: np.ndarray  # (rows,)


class Data(NamedTuple):
    """Read-only arrays of the ratings, tile by tile; those that the problem does not need are empty."""

    users: np.ndarray  # (n,) int32
    items: np.ndarray  # (n,) int32
    values: np.ndarray  # (n,) float32, in the problem's units
    begin: np.ndarray  # (tiles + 1,) int64: first rating of each tile
    user_rates: np.ndarray  # (rows,) float32: how often a rating counts in the penalty, if that is smoothed
    item_rates: np.ndarray  # (rows,) float32
    seen_begin: np.ndarray  # (users + 1,) int64: implicit feedback: where each user's items begin
    seen_marks: np.ndarray  # (n,) uint64: bits of the items of each user's list, see marks_of
    sums_begin: np.ndarray  # (users + items + 1,) int64: side features: where the rows of each sum begin, its own first
    sums_rows: np.ndarray  # (entries,) int32
    sums_shares: np.ndarray  # (entries,) float32


class Plan(NamedTuple):
    """The work of one worker in one epoch."""

    blocks: np.ndarray  # (tiles,) int32: their sequence
    n_rows: int
    n_chunks: int  # tiles in the epoch, or fewer if workers are to stop earlier
    columns: int  # ranges of items
    n_users: int
    n_items: int
    shuffled: int
    start: int  # first tile of this call in the sequence: nonzero when an epoch is resumed
    seed: int
    epoch: int
    step: tuple[float, float, float]  # step(t) = scale / (offset + t)**power, t = ratings visited before
    l2: float
    negatives: int  # items drawn per rating, for implicit feedback
    worker: int
    workers: int
    limit: int  # ratings after which the call returns; it is then called again


@called
def open_tile(state, tile, number, data, plan):
    """Store in ``state`` the current tile, the ``number``-th of the epoch, and the order in which it is visited."""
    length = data.begin[tile + 1] - data.begin[tile]
    state[LENGTH] = length
    state[DONE] = 0
    state[FIRST] = data.begin[tile]
    state[TILE] = tile
    # computed as if all tiles were of one length
    state[VISITED] = plan.epoch * plan.n_rows + number * plan.n_rows // len(plan.blocks)
    lines = length // SIDE
    state[LINES] = lines
    state[START] = 0
    state[STRIDE] = 1
    state[FLIP] = 0
    if plan.shuffled and lines > 0:
        bits = generator(plan.seed, plan.epoch + 1, tile)
        state[FLIP] = np.int64(bits & np.uint64(SIDE - 1))
        state[START] = np.int64((mix(bits + GOLDEN) >> S32) % np.uint64(lines))
        stride = np.int64((mix(bits + GOLDEN + GOLDEN) >> S32) % np.uint64(lines)) + 1
        while math.gcd(lines, stride) != 1:
            stride += 1
        state[STRIDE] = stride % lines


@inlined
def line_at(state, i):
    """``(k, flip)``: the ratings from ``i``, the first of a line in the tile's order, are ``k + (0, 1 ... ^ flip)``.

    The last ratings of a tile, fewer than a line, keep their place.
    """
    line = i >> BITS
    if line >= state[LINES]:
        return state[FIRST] + (line << BITS), 0
    place = np.uint64(state[START] + line * state[STRIDE]) % np.uint64(state[LINES])  # signed, it would take longer
    return state[FIRST] + (np.int64(place) << BITS), state[FLIP]


@called
def claim(state, control, data, plan):
    """Take the next tile of the current epoch; return False if there is none, or the workers are to stop."""
    if load(control, STOP) != 0:
        return False
    number = fetch_add(control, NEXT, 1 + load(control, SKIP))
    if number >= plan.n_chunks:
        return False
    open_tile(state, np.int64(plan.blocks[number]), number, data, plan)
    return True


@called
def enter(locks, control, plan, tile):
    """Lock a tile's users and items; return False, with no lock that matters, if the run was aborted."""
    rows = len(plan.blocks) // plan.columns
    if not acquire(locks, tile // plan.columns, control, ABORT):
        return False
    return acquire(locks, rows + tile % plan.columns, control, ABORT)


@called
def leave(locks, plan, tile):
    release(locks, len(plan.blocks) // plan.columns + tile % plan.columns)
    release(locks, tile // plan.columns)


@inlined
def prefetch_line(data, k):
    """Prefetch the ratings of the line that begins with rating ``k``, which need not start a cache line."""
    for place in (k, k + SIDE - 1):
        prefetch(data.users, place)
        prefetch(data.items, place)
        prefetch(data.values, place)


@inlined
def prefetch_rows(lanes, biased, parameters, u, i):
    """Prefetch the rows and biases of a user and an item."""
    size = np.uint64(LANE * len(lanes))
    for k in range(len(lanes)):
        prefetch(parameters.users, np.uint64(u) * size + np.uint64(k * LANE))
        prefetch(parameters.items, np.uint64(i) * size + np.uint64(k * LANE))
    if biased:
        prefetch(parameters.user_bias, u)
        prefetch(parameters.item_bias, i)


@inlined
def fuse_atomic(array, k, a, b, shrink):
    """Set ``array[k] <- shrink * (array[k] + a * b)``, fused, without losing any worker's update."""
    while True:
        old = load(array, k)
        if compare_exchange(array, k, old, fma(a, b, old) * shrink):
            break


@inlined
def write(lanes, loss, discipline, biased, shared, u, i, move, shrink_u, shrink_i):
    """Update the rows of a user and an item and their biases along the gradient times the step, ``move``.

    With loss bpr, the user's bias stays, since it cancels. Return False if the run was aborted.
    """
    parameters, locks, control, plan = shared
    p, q, b_u, b_i = parameters.users, parameters.items, parameters.user_bias, parameters.item_bias
    if discipline == AIG:  # users have the lower numbers, so there is no deadlock
        if not acquire(locks, u, control, ABORT) or not acquire(locks, plan.n_users + i, control, ABORT):
            return False
    if discipline == ROUND_ROBIN and not take_turn(control, plan.worker):
        return False
    if discipline == ATOMIC:
        size = np.uint64(LANE * len(lanes))
        for k in range(LANE * len(lanes)):
            x, y = np.uint64(u) * size + np.uint64(k), np.uint64(i) * size + np.uint64(k)
            a, b = load(p, x), load(q, y)
            fuse_atomic(p, x, -move, b, shrink_u)
            fuse_atomic(q, y, -move, a, shrink_i)
        if biased:
            if loss != BPR:
                fuse_atomic(b_u, u, -move, ONE, shrink_u)
            fuse_atomic(b_i, i, -move, ONE, shrink_i)
    else:
        if biased:  # before the rows, which may be the same memory for all the compiler knows
            new_u, new_i = (b_u[u] - move) * shrink_u, (b_i[i] - move) * shrink_i
        move_both(lanes, p, u, q, i, move, shrink_u, shrink_i)
        if biased:
            b_i[i] = new_i
            if loss != BPR:
                b_u[u] = new_u
    if discipline == AIG:
        release(locks, plan.n_users + i)
        release(locks, u)
    if discipline == ROUND_ROBIN:
        pass_turn(control, plan.worker, plan.workers, False)
    return True


@inlined
def shrinkage(rates, k, step, l2):
    """Factor of a smoothed penalty on row ``k``."""
    return ONE / fma(step * rates[k], l2, ONE)


@inlined
def marks_of(begin, end, j):
    """Place of a word of the list between ``begin`` and ``end``, and four of its bits, that are set for item ``j``."""
    mixed = np.uint64(j) * GOLDEN
    bits = np.uint64(0)
    for k in range(8, 32, 6):
        bits |= ONE_BIT << ((mixed >> np.uint64(k)) & np.uint64(63))
    return np.uint64(begin) + (((mixed >> S32) * np.uint64(end - begin)) >> S32), bits


@njit(**JIT)
def mark(begin, items, marks):
    """Set the bits of all items of the lists in ``marks``, a word for each of ``items``."""
    for u in range(len(begin) - 1):
        for k in range(begin[u], begin[u + 1]):
            place, bits = marks_of(begin[u], begin[u + 1], items[k])
            marks[place] |= bits


@inlined
def chosen(data, u, j):
    """Whether user ``u`` has chosen item ``j``, or, with one of some five thousand items, may have.

    Such an item is never drawn for this user, which costs nothing that could be measured; a search in the user's list
    for each took a third of the time of ``log``.
    """
    place, bits = marks_of(data.seen_begin[u], data.seen_begin[u + np.uint32(1)], j)
    return data.seen_marks[place] & bits == bits


@inlined
def draw(data, plan, salt, k, t, u, featured):
    """The ``t``-th item drawn against rating ``k`` of user ``u``, or -1 if none was found.

    With side features, items without an own share are not drawn: nobody rated them, so nobody has passed them over.
    """
    state = mix(salt + np.uint64(k))
    for attempt in range(t * TRIES, (t + 1) * TRIES):
        z = mix(state + np.uint64(attempt) * GOLDEN)
        j = np.int64(((z >> S32) * np.uint64(plan.n_items)) >> S32)
        known = not featured or data.sums_shares[data.sums_begin[plan.n_users + j]] > 0
        if known and not chosen(data, u, j):
            return j
    return -1


@inlined
def draw_all(data, plan, salt, k, u, i, featured, picked):
    """Fill ``picked`` with the item of rating ``k`` and those drawn against it; return how many they are."""
    picked[0] = i
    n = 1
    for t in range(plan.negatives):
        drawn = draw(data, plan, salt, k, t, u, featured)
        if drawn >= 0:
            picked[n] = drawn
            n += 1
    return n


@inlined
def steps_along(loss, step, n, moves):
    """Replace the margins of a rating's ``n`` pairs in ``moves`` by the step times the slopes in them."""
    first = moves[0]
    total = np.float32(0)
    for t in range(0 if loss == LOG else 1, n):
        if loss == LOG:
            moves[t] = step * np.float32(dloss(LOGISTIC, moves[t], ONE if t == 0 else -ONE, 0.0))
        else:
            move = step * np.float32(dloss(LOGISTIC, first - moves[t], ONE, 0.0))
            total += move
            moves[t] = -move
    if loss == BPR:
        moves[0] = total


@inlined
def gather(lanes, biased, side, data, n, sums, k):
    """Store the sum number ``n`` in row ``k`` of ``sums``; return that of its biases.

    ``side`` is the factors, biases and rates of users, or of items.
    """
    rows, bias, _ = side
    total = np.float32(0)
    for lane in range(len(lanes)):
        vectors.store(filled(LINE, ZERO), sums, vector_at(lanes, k, lane))
    for z in range(data.sums_begin[n], data.sums_begin[n + 1]):
        row, share = np.uint32(data.sums_rows[z]), data.sums_shares[z]
        for lane in range(len(lanes)):
            at = vector_at(lanes, k, lane)
            entry = vectors.load(LINE, rows, vector_at(lanes, row, lane))
            vectors.store(fma(share, entry, vectors.load(LINE, sums, at)), sums, at)
        if biased:
            total = fma(share, bias[row], total)
    return total


@inlined
def spread(lanes, rated, biased, side, data, n, move, step, l2, sums, k):
    """Move the rows of the sum number ``n``, and their biases, against ``move`` times row ``k`` of ``sums``."""
    rows, bias, rates = side
    for z in range(data.sums_begin[n], data.sums_begin[n + 1]):
        row, share = np.uint32(data.sums_rows[z]), data.sums_shares[z]
        rate = share * share
        if rated:
            rate = rate * rates[row]
        shrink = ONE / fma(step * rate, l2, ONE)
        for lane in range(len(lanes)):
            at = vector_at(lanes, row, lane)
            toward = vectors.load(LINE, sums, vector_at(lanes, k, lane))
            vectors.store(moved(vectors.load(LINE, rows, at), -move * share, toward, shrink), rows, at)
        if biased:
            bias[row] = fma(-move, share, bias[row]) * shrink


@lru_cache(None)
def epoch(lanes, loss, discipline, rated, biased, fenced, featured):
    """One worker's loop over the tiles it claims; ``lanes`` as in ``kernels/vectors.py``, other arguments 0 or 1.

    ``loss`` and ``discipline`` are codes; ``rated``: the penalty is smoothed, and data hold its rates; ``fenced``:
    tiles are locked; ``featured``: vectors are sums, the user's in row 0 of ``sums``, and behind it those of the items
    ``picked`` (pairs,) int32. ``moves`` (pairs,) float32 is room for their steps.
    """

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, state, picked, moves, sums):
        p, q, b_u, b_i = parameters.users, parameters.items, parameters.user_bias, parameters.item_bias
        of_users, of_items = (p, b_u, data.user_rates), (q, b_i, data.item_rates)
        shared = parameters, locks, control, plan
        users = data.users
        items = data.items
        n_users = np.uint32(plan.n_users)
        l2 = np.float32(plan.l2)
        budget = plan.limit
        safe = max(plan.n_rows - SIDE, 0)
        salt = generator(plan.seed, plan.epoch, len(plan.blocks))
        while budget > 0:
            if state[DONE] == state[LENGTH] and not claim(state, control, data, plan):
                if discipline == ROUND_ROBIN and take_turn(control, plan.worker):
                    pass_turn(control, plan.worker, plan.workers, True)
                break
            if fenced and not enter(locks, control, plan, state[TILE]):
                return
            first, last = state[DONE], min(state[LENGTH], state[DONE] + budget)
            here, flip = line_at(state, first - first % SIDE)
            at = first
            while at < last:
                stop = min(last, at - at % SIDE + SIDE)
                step = step_at(plan.step, state[VISITED] + at - at % SIDE)
                shrink = ONE / fma(step, l2, ONE)
                shrink_u = shrink_i = shrink
                there, next_flip = line_at(state, min(stop, state[LENGTH] - 1))
                prefetch_line(data, line_at(state, min(stop + FAR * SIDE, state[LENGTH] - 1))[0])
                near = min(there, safe)
                for j in range(at % SIDE, at % SIDE + stop - at):
                    ahead = np.uint64(near + (j ^ next_flip))
                    prefetch_rows(lanes, biased, parameters, np.uint32(users[ahead]), np.uint32(items[ahead]))
                    if loss != SQUARES:
                        prefetch(data.seen_begin, np.uint32(users[ahead]))
                    k = np.uint64(here + (j ^ flip))
                    u, i = np.uint32(users[k]), np.uint32(items[k])
                    if discipline == LOCKED and not acquire(locks, 0, control, ABORT):
                        return
                    if rated:
                        shrink_u = shrinkage(data.user_rates, u, step, l2)
                        shrink_i = shrinkage(data.item_rates, i, step, l2)
                    n, e, bias_u = 1, ZERO, ZERO
                    if loss != SQUARES:
                        n = draw_all(data, plan, salt, k, u, i, featured, picked)
                    if featured:
                        bias_u = gather(lanes, biased, of_users, data, u, sums, 0)
                    elif biased:
                        bias_u = b_u[u]
                    for t in range(n):
                        item = i if loss == SQUARES else np.uint32(picked[t])
                        if featured:
                            bias = bias_u + gather(lanes, biased, of_items, data, n_users + item, sums, t + 1)
                            e = dot(lanes, sums, 0, sums, t + 1)
                        else:
                            e = dot(lanes, p, u, q, item)
                            if biased:
                                bias = bias_u + b_i[item]
                        if loss == SQUARES:
                            e = e - data.values[k]
                        if biased:
                            e = e + bias
                        if loss != SQUARES:
                            moves[t] = e
                    if loss != SQUARES:
                        steps_along(loss, step, n, moves)
                    for t in range(n):
                        item = i if loss == SQUARES else np.uint32(picked[t])
                        move = step * e if loss == SQUARES else moves[t]
                        if featured:
                            spread(lanes, rated, biased and loss != BPR, of_users, data, u, move, step, l2, sums, t + 1)
                            spread(lanes, rated, biased, of_items, data, n_users + item, move, step, l2, sums, 0)
                        elif not write(lanes, loss, discipline, biased, shared, u, item, move, shrink_u, shrink_i):
                            return
                    if discipline == LOCKED:
                        release(locks, 0)
                at = stop
                here = there
                flip = next_flip
            if fenced:
                leave(locks, plan, state[TILE])
            count(control, plan.worker, last - first, last - first)
            state[DONE] = last
            budget -= last - first

    return run
