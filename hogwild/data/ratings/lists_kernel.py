"""Looks up pairs in ascending lists of each user's items, stored one after another.

``begin`` holds where each user's list starts, and ends with the total length.
"""

from __future__ import annotations

from numba import njit

from hogwild.kernels.options import JIT


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
