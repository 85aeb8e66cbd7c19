"""Items ranked by their scores: the best ones, and how well a ranking agrees with the users' choices."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.data.ratings.lists_kernel import holds
from hogwild.kernels.options import JIT, called

BLOCK = 128  # scores that are compared with the least of the best before any is looked at


@njit(**JIT)
def mask_seen(scores, users, begin, items):
    """Set the scores (rows, items) of what each user has seen to -inf; user -1 has seen nothing."""
    for row in range(len(users)):
        if users[row] >= 0:
            for k in range(begin[users[row]], begin[users[row] + 1]):
                scores[row, items[k]] = -math.inf


@called
def _any_above(scores, score):
    """Whether any score is above ``score``: without a branch for each, they are compared in vectors."""
    above = np.int32(0)
    for k in range(np.uint64(len(scores))):
        above |= np.int32(scores[k] > score)
    return above != 0


@njit(**JIT)
def best_items(scores, best):
    """Fill ``best`` (n,) int64 with the items of the largest scores, best first; ties go to the first.

    Items at -inf do not count. Return how many were found. Each is sorted in among those before it, which is quick
    unless ``n`` is thousands.
    """
    n, least = 0, np.float32(-math.inf)  # an item needs a larger score to enter
    for first in range(0, len(scores) if len(best) else 0, BLOCK):
        last = min(first + BLOCK, len(scores))
        if not _any_above(scores[first:last], least):
            continue
        for item in range(first, last):
            score = scores[item]
            if not score > least:
                continue
            n = min(n + 1, len(best))
            at = n - 1
            while at > 0 and scores[best[at - 1]] < score:
                best[at] = best[at - 1]
                at -= 1
            best[at] = item
            least = scores[best[n - 1]] if n == len(best) else least
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
def _area(scores, tested, wanted):
    """``(area, relevant)``: the AUC of one user, from integers, and the number of tested items that are candidates.

    The area is NaN unless it is ``wanted``, since it takes a pass over the scores for each tested item.
    The counts below relevant items include the other candidates, items that are no candidates, and relevant items
    themselves: these count two for every pair, whichever is higher, and one each for being equal to themselves.
    """
    out = _twice_below(scores, np.float32(-math.inf)) if wanted else 0  # the number of items at -inf: none are below
    relevant, twice = 0, 0
    for item in tested:
        score = scores[np.uint32(item)]
        if score > -math.inf:
            relevant += 1
            twice += _twice_below(scores, score) - 2 * out if wanted else 0
    twice -= relevant * relevant
    pairs = relevant * (len(scores) - out - relevant) if wanted else 0
    return (twice / 2.0 / pairs if pairs > 0 else math.nan), relevant


@njit(**JIT)
def measure_rows(scores, users, begin, items, best, metrics, area):
    """AUC, precision, recall and NDCG of every row of scores, into ``metrics`` (rows, 4); NaN where undefined.

    ``begin`` and ``items`` are lists of what users chose; items at -inf are no candidates. ``best`` (rows, k) int64
    gets the best k. Without ``area`` no AUC is computed.
    """
    for row in range(len(users)):
        user, depth, places = users[row], best.shape[1], best_items(scores[row], best[row])
        auc, relevant = _area(scores[row], items[begin[user] : begin[user + 1]], area)
        hits = 0
        gain = 0.0
        ideal = 0.0
        if relevant == 0:
            metrics[row, :] = math.nan
            continue
        for place in range(places):
            if holds(begin, items, user, best[row, place]):
                hits += 1
                gain += 1.0 / math.log2(place + 2.0)
        for place in range(min(relevant, depth)):
            ideal += 1.0 / math.log2(place + 2.0)
        metrics[row, 0] = auc
        metrics[row, 1] = hits / depth
        metrics[row, 2] = hits / relevant
        metrics[row, 3] = gain / ideal
