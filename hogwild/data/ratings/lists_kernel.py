"""Ascending lists of each user's items, stored one after another: made, searched and merged in linear time.

Two counting sorts, by item and then by user, are three times as fast as sorting pairs as whole numbers. ``begin`` holds
where each user's list starts, and ends with the total length.
"""

from __future__ import annotations

from numba import njit

from hogwild.kernels.options import JIT


@njit(**JIT)
def count_numbers(numbers, counts):
    """Add to ``counts`` how often each number occurs; -1, an unknown one, is counted in the last place."""
    for k in range(len(numbers)):
        counts[numbers[k]] += 1


@njit(**JIT)
def sort_pairs(users, items, user_places, item_places, owners, sorted_items, begin):
    """Fill ``sorted_items`` with the items of each user, ascending, each once, and ``begin``; return how many.

    ``user_places`` and ``item_places``, int64, hold where the pairs of each begin, and are overwritten; ``owners``,
    (n, 2) int32, is scratch space. Pairs with a -1 are left out.
    """
    for k in range(len(users)):
        if users[k] >= 0 and items[k] >= 0:
            place = item_places[items[k]]
            item_places[items[k]] += 1
            owners[place, 0], owners[place, 1] = users[k], items[k]
    n = item_places[len(item_places) - 1] if len(item_places) else 0
    for k in range(n):
        place = user_places[owners[k, 0]]
        user_places[owners[k, 0]] += 1
        sorted_items[place] = owners[k, 1]
    first, kept = 0, 0
    for u in range(len(user_places)):
        begin[u] = kept
        for k in range(first, user_places[u]):
            if k == first or sorted_items[k] != sorted_items[k - 1]:
                sorted_items[kept] = sorted_items[k]
                kept += 1
        first = user_places[u]
    begin[len(user_places)] = kept
    return kept


@njit(**JIT)
def holds(begin, items, user, item):
    """Return whether the user's list holds the item; the list of user -1 is empty."""
    if user < 0:
        return False
    low, end = begin[user], begin[user + 1]
    while low < end:
        middle = (low + end) // 2
        if items[middle] < item:
            low = middle + 1
        else:
            end = middle
    return low < begin[user + 1] and items[low] == item


@njit(**JIT)
def find_pairs(begin, items, users, wanted, found):
    """Set ``found`` (m,) bool to whether each user's list holds the item of the same pair."""
    for k in range(len(users)):
        found[k] = holds(begin, items, users[k], wanted[k])
