"""Loops that ``hogwild bench`` times beside the real ones: the memory's wall, adds to hot cells, and a naive epoch.

The decision that matters: each does exactly what it is named for and no more, and reads the arrays training reads, so
that its time is a bound or a counterpart and not another program's. The streaming sum takes the float32 values by their
bits: integers may be added in any order, so LLVM vectorises the loop without fast math and memory is all it waits for
(a chain of float additions would be slower than the memory and make the wall look near).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit

from hogwild.kernels.atomics import fetch_add
from hogwild.kernels.control import ABORT
from hogwild.kernels.locks import acquire, release
from hogwild.kernels.options import JIT
from hogwild.kernels.tiers import merge_tier

ADDS = {"plain": 0, "atomic": 1, "locked": 2}
PLAIN, ATOMIC, LOCKED = ADDS.values()

# The one exception from kernels/options.py: what fast math does to a sparse loop is what this twin is there to show.
FAST = JIT | {"fastmath": True}

ONE, TINY = np.float32(1), np.float32(2**-12)


@njit(**JIT)
def stream(indices, bits):
    """Sum of both arrays, (n,) int32 each: every byte of the entries is read once, in order."""
    total = 0
    for j in range(len(indices)):
        total += np.int64(indices[j]) + np.int64(bits[j])
    return total


@lru_cache(None)
def adds(kind):
    """The loop that adds one ``times`` times to ``cells``, at indices from ``picks``; a code from ADDS."""

    @njit(**JIT)
    def run(cells, picks, locks, control, times):
        mask = len(picks) - 1  # a power of two, less one
        for i in range(times):
            u = np.uint32(picks[np.uint64(i & mask)])  # from memory, or a single cell would be kept in a register
            if kind == ATOMIC:
                fetch_add(cells, u, ONE)
            elif kind == LOCKED:
                if not acquire(locks, u, control, ABORT):
                    return
                cells[u] = cells[u] + ONE
                release(locks, u)
            else:
                cells[u] = cells[u] + ONE

    return run


@njit(**JIT)
def merges(tiers, replica, parameters, workers, kappa, times):
    """Move every private weight and merge the first tier, so often: all of it has changed each time."""
    for _ in range(times):
        for u in range(len(parameters.coef)):
            parameters.coef[u] += TINY
        merge_tier(tiers, replica, parameters, 0, ONE, workers, kappa, False)


@njit(**FAST)
def naive_epoch(coef, intercept, begin, end, indices, values, targets, shrink, step, part):
    """An epoch of logistic regression in file order as one would write it first: two plain loops a row.

    ``shrink`` is the table of ``kernels.linear.shrink_table``, ``part`` the intercept's share of the step, so that the
    work is that of the real loop.
    """
    for i in range(len(begin)):
        margin = intercept[0]
        for j in range(begin[i], end[i]):
            margin += coef[indices[j]] * values[j]
        y = targets[i]
        a = -step * y / (ONE + np.exp(y * margin))
        for j in range(begin[i], end[i]):
            u = indices[j]
            coef[u] = (coef[u] - a * values[j]) * shrink[u]
        intercept[0] -= part * a
