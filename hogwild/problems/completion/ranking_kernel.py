"""Items ranked by their scores: the best ones, and how well a ranking agrees with the users' choices."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.data.ratings.lists_kernel import holds
from hogwild.kernels.options import JIT, called


@njit(**JIT)
def mask_seen(scores, users, begin, items):
    """Set the scores (rows, items) of what each user has seen to -inf; user -1 has seen nothing."""
    for row in range(len(users)):
        if users[row] >= 0:
            for k in range(begin[users[row]], begin[users[row] + 1]):
                scores[row, items[k]] = -math.inf


@called
def _is_worse(scores, a, b):
    return scores[a] < scores[b] or (scores[a] == scores[b] and a > b)


@called
def _sift(scores, heap, size):
    """Sift the root of a heap with the worst item on top down to its place."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _is_worse(scores, heap[child + 1], heap[child]):
            child += 1
        if not _is_worse(scores, heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


@njit(**JIT)
def best_items(scores, best):
    """Fill ``best`` (n,) int64 with the items of the largest scores, best first; ties go to the first.

    Items at -inf do not count. Return how many were found.
    """
    n, least = 0, -math.inf  # an item needs a larger score to enter
    for item in range(np.uint64(len(scores)) if len(best) else np.uint64(0)):
        if not scores[item] > least:
            continue
        if n < len(best):  # sift up from the last leaf
            at = n
            best[at] = item
            n += 1
            while at > 0 and _is_worse(scores, best[at], best[(at - 1) // 2]):
                best[at], best[(at - 1) // 2] = best[(at - 1) // 2], best[at]
                at = (at - 1) // 2
        else:
            best[0] = item
            _sift(scores, best, n)
        least = scores[best[0]] if n == len(best) else least
    for size in range(n - 1, 0, -1):
        best[0], best[size] = best[size], best[0]
        _sift(scores, best, size)
    return n


@njit(**JIT)
def best_of_rows(scores, best):
    """Do :func:`best_items` for every row of scores, into ``best`` (rows, n); -1 if there are fewer."""
    for row in range(len(scores)):
        for place in range(best_items(scores[row], best[row]), best.shape[1]):
            best[row, place] = -1


@called
def _twice_below(scores, score):
    """Twice the number of scores below ``score`` plus the number equal to it, in int32, which pack more to a vector."""
    count = np.int32(0)
    for k in range(np.uint64(len(scores))):
        count = np.int32(count + np.int32(np.int32(scores[k] < score) + np.int32(scores[k] <= score)))
    return np.int64(count)


@called
def _area(scores, tested):
    """``(area, relevant)``: the AUC of one user, from integers, and the number of tested items that are candidates.

    The counts below relevant items include the other candidates, items that are no candidates, and relevant items
    themselves: these count two for every pair, whichever is higher, and one each for being equal to themselves.
    """
    out = _twice_below(scores, np.float32(-math.inf))  # the number of items at -inf: none are below
    relevant, twice = 0, 0
    for item in tested:
        score = scores[np.uint32(item)]
        if score > -math.inf:
            relevant += 1
            twice += _twice_below(scores, score) - 2 * out
    twice -= relevant * relevant
    pairs = relevant * (len(scores) - out - relevant)
    return (twice / 2.0 / pairs if pairs > 0 else math.nan), relevant


@njit(**JIT)
def measure_rows(scores, users, begin, items, best, metrics):
    """AUC, precision and NDCG of every row of scores, into ``found`` (rows, 3); NaN where undefined.

    ``begin`` and ``items`` are lists of what users chose; items at -inf are no candidates. ``best`` (k,) int64 is work
    space.
    """
    for row in range(len(users)):
        user, depth = users[row], len(best)
        area, relevant = _area(scores[row], items[begin[user] : begin[user + 1]])
        hits = 0
        gain = 0.0
        ideal = 0.0
        if relevant == 0:
            metrics[row, :] = math.nan
            continue
        for place in range(best_items(scores[row], best)):
            if holds(begin, items, user, best[place]):
                hits += 1
                gain += 1.0 / math.log2(place + 2.0)
        for place in range(min(relevant, depth)):
            ideal += 1.0 / math.log2(place + 2.0)
        metrics[row, 0] = area
        metrics[row, 1] = hits / depth
        metrics[row, 2] = gain / ideal
