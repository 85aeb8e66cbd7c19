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
drawn again, a few times at most, and then left out.

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

from hogwild.data.ratings.lists_kernel import holds
from hogwild.kernels import vectors
from hogwild.kernels.atomics import compare_exchange, fetch_add, load, prefetch
from hogwild.kernels.control import ABORT, NEXT, SKIP, STOP, count
from hogwild.kernels.locks import acquire, pass_turn, release, take_turn
from hogwild.kernels.loss_kernel import dloss
from hogwild.kernels.losses import LOG as LOGISTIC
from hogwild.kernels.options import JIT, called, inlined
from hogwild.kernels.order import GOLDEN, S32, generator, mix
from hogwild.kernels.steps import step_at
from hogwild.kernels.vectors import LANE, LINE, dot, fma, move_both, move_three, moved, vector_at
from hogwild.problems.linear.kernel import AIG, ATOMIC, LOCKED, ONE, ROUND_ROBIN

LOSSES = {"squared-error": 0, "log": 1, "bpr": 2}
SQUARES, LOG, BPR = LOSSES.values()
TRIES = 8  # to draw an item that the user has not chosen
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
    seen_marks: np.ndarray  # (n,) uint8: bits of the items of each user's list, see mark_of
    seen_items: np.ndarray  # (n,) int32: the items a user has rated, ascending
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
def write(lanes, loss, discipline, biased, parameters, u, i, j, move, shrink_u, shrink_i):
    """Update the rows of a user and an item and their biases along the gradient times the step, ``move``.

    With loss bpr that is of the item's margin above item ``j``'s, which moves the other way; the user's bias does not
    move then.
    """
    p, q, b_u, b_i = parameters.users, parameters.items, parameters.user_bias, parameters.item_bias
    if discipline == ATOMIC:
        size = np.uint64(LANE * len(lanes))
        for k in range(LANE * len(lanes)):
            x, y = np.uint64(u) * size + np.uint64(k), np.uint64(i) * size + np.uint64(k)
            a, b = load(p, x), load(q, y)
            if loss == BPR:
                z = np.uint64(j) * size + np.uint64(k)
                fuse_atomic(p, x, move, load(q, z), ONE)
                fuse_atomic(q, z, move, a, shrink_i)
            fuse_atomic(p, x, -move, b, shrink_u)
            fuse_atomic(q, y, -move, a, shrink_i)
        if biased:
            if loss == BPR:
                fuse_atomic(b_i, j, move, ONE, shrink_i)
            else:
                fuse_atomic(b_u, u, -move, ONE, shrink_u)
            fuse_atomic(b_i, i, -move, ONE, shrink_i)
    elif loss == BPR:
        move_three(lanes, p, u, q, i, j, move, shrink_i)
        if biased:
            b_i[i] = (b_i[i] - move) * shrink_i
            b_i[j] = (b_i[j] + move) * shrink_i
    else:
        if biased:  # before the rows, which may be the same memory for all the compiler knows
            new_u, new_i = (b_u[u] - move) * shrink_u, (b_i[i] - move) * shrink_i
        move_both(lanes, p, u, q, i, move, shrink_u, shrink_i)
        if biased:
            b_u[u], b_i[i] = new_u, new_i


@inlined
def shrinkage(rates, k, step, l2):
    """Factor of a smoothed penalty on row ``k``."""
    return ONE / fma(step * rates[k], l2, ONE)


@inlined
def mark_of(begin, end, j):
    """Byte and bit that tell whether item ``j`` may be in a list that lies between ``begin`` and ``end``."""
    mixed = (np.uint64(j) * GOLDEN) >> S32
    place = (mixed * np.uint64(8 * (end - begin))) >> S32
    return np.uint64(begin) + (place >> np.uint64(3)), np.uint8(1 << (place & np.uint64(7)))


@njit(**JIT)
def mark(begin, items, marks):
    """Set the bits of all items of the lists in ``marks``, a byte for each of ``items``."""
    for u in range(len(begin) - 1):
        for k in range(begin[u], begin[u + 1]):
            byte, bit = mark_of(begin[u], begin[u + 1], items[k])
            marks[byte] |= bit


@inlined
def chosen(data, u, j):
    """Whether user ``u`` has chosen item ``j``: a bit, which an eighth of other items have too, or else a search.

    A search for each took a third of the time of ``log``.
    """
    byte, bit = mark_of(data.seen_begin[u], data.seen_begin[u + np.uint32(1)], j)
    return data.seen_marks[byte] & bit != 0 and holds(data.seen_begin, data.seen_items, u, j)


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
def gather(lanes, biased, side, data, n, sign, sums, k):
    """Add ``sign`` times the sum number ``n`` to row ``k`` of ``sums``; return that of its biases.

    ``side`` is the factors, biases and rates of users, or of items.
    """
    rows, bias, _ = side
    total = np.float32(0)
    for z in range(data.sums_begin[n], data.sums_begin[n + 1]):
        row, share = np.uint32(data.sums_rows[z]), sign * data.sums_shares[z]
        for lane in range(len(lanes)):
            at = vector_at(lanes, k, lane)
            vectors.store(
                fma(share, vectors.load(LINE, rows, vector_at(lanes, row, lane)), vectors.load(LINE, sums, at)),
                sums,
                at,
            )
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


@inlined
def hold(locks, control, plan, u, i, j):
    """Lock a user and an item, or two, the lower first, so that there is no deadlock; False if the run was aborted."""
    low, high = plan.n_users + min(i, j), plan.n_users + max(i, j)
    if not acquire(locks, u, control, ABORT) or not acquire(locks, low, control, ABORT):
        return False
    return low == high or acquire(locks, high, control, ABORT)


@lru_cache(None)
def epoch(lanes, loss, discipline, rated, biased, fenced, featured):
    """One worker's loop over the tiles it claims; ``lanes`` as in ``kernels/vectors.py``, other arguments 0 or 1.

    ``loss`` and ``discipline`` are codes; ``rated``: the penalty is smoothed, and data hold its rates; ``fenced``:
    tiles are locked; ``featured``: vectors are sums, made in the rows of ``sums``.
    """

    @njit(**JIT)
    def run(parameters, data, control, locks, plan, state, sums):
        p, q, b_u, b_i = parameters.users, parameters.items, parameters.user_bias, parameters.item_bias
        of_users, of_items = (p, b_u, data.user_rates), (q, b_i, data.item_rates)
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
                    target = data.values[k] if loss == SQUARES else ONE
                    one, other = i, i
                    # the pair of the rating itself, but for bpr, and then one pair, or triple, for each item drawn
                    for t in range(0 if loss == BPR else -1, 0 if loss == SQUARES else plan.negatives):
                        if loss != SQUARES and t >= 0:
                            drawn = draw(data, plan, salt, k, t, u, featured)
                            if drawn < 0:
                                continue
                            other = np.uint32(drawn)
                            if loss == LOG:
                                target, one = -ONE, other
                        if featured:
                            sums[:] = 0
                            bias = gather(lanes, biased, of_users, data, u, ONE, sums, 0)
                            bias = bias + gather(lanes, biased, of_items, data, n_users + one, ONE, sums, 1)
                            if loss == BPR:
                                bias = bias + gather(lanes, biased, of_items, data, n_users + other, -ONE, sums, 1)
                            e = dot(lanes, sums, 0, sums, 1)
                            if loss == SQUARES:
                                e = e - target
                            e = e + bias
                        else:
                            e = dot(lanes, p, u, q, one)
                            if loss == BPR:
                                e = e - dot(lanes, p, u, q, other)
                                if biased:
                                    e = e + (b_i[one] - b_i[other])
                            else:
                                if loss == SQUARES:
                                    e = e - target
                                if biased:
                                    e = e + (b_u[u] + b_i[one])
                        if loss != SQUARES:
                            e = np.float32(dloss(LOGISTIC, e, target, 0.0))
                        if discipline == AIG and not hold(locks, control, plan, u, one, other):
                            return
                        if discipline == ROUND_ROBIN and not take_turn(control, plan.worker):
                            return
                        move = step * e
                        if featured:
                            spread(lanes, rated, biased and loss != BPR, of_users, data, u, move, step, l2, sums, 1)
                            spread(lanes, rated, biased, of_items, data, n_users + one, move, step, l2, sums, 0)
                            if loss == BPR:
                                spread(lanes, rated, biased, of_items, data, n_users + other, -move, step, l2, sums, 0)
                        else:
                            write(lanes, loss, discipline, biased, parameters, u, one, other, move, shrink_u, shrink_i)
                        if discipline == AIG:
                            if loss == BPR:
                                release(locks, plan.n_users + other)
                            release(locks, plan.n_users + one)
                            release(locks, u)
                        if discipline == ROUND_ROBIN:
                            pass_turn(control, plan.worker, plan.workers, False)
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
