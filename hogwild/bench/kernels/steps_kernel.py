"""Loops that ``hogwild bench`` times beside the real ones: the memory limit, adds to hot cells, and a naive epoch.

Each does exactly what its name says, and reads the arrays that training reads, so its time is a bound or a counterpart
of the real loop's. The streaming sum takes the float32 values as bit patterns: integers may be added in any order, so
LLVM vectorises the loop without fast math and it waits only for memory (a chain of float additions would be slower than
the memory and make the limit look lower).
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

# The one exception from kernels/options.py: this loop exists to show what fast math does to a sparse loop.
FAST = JIT | {"fastmath": True}

ONE, TINY = np.float32(1), np.float32(2**-12)


@njit(**JIT)
def stream(indices, bits):
    """Sum both arrays, (n,) int32 each, reading every byte of the entries once, in order."""
    total = 0
    for j in range(len(indices)):
        total += np.int64(indices[j]) + np.int64(bits[j])
    return total


@lru_cache(None)
def adds(kind):
    """Return the loop that adds one ``times`` times to ``cells``, at indices from ``picks``; ``kind`` is from ADDS."""

    @njit(**JIT)
    def run(cells, picks, locks, control, times):
        mask = len(picks) - 1  # the length is a power of two
        for i in range(times):
            u = np.uint32(picks[np.uint64(i & mask)])  # read from memory, or one cell would be kept in a register
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
    """Move every private weight and merge the first tier, ``times`` times: all of it has changed each time."""
    for _ in range(times):
        for u in range(len(parameters.coef)):
            parameters.coef[u] += TINY
        merge_tier(tiers, replica, parameters, 0, ONE, workers, kappa, False)


@njit(**FAST)
def naive_epoch(coef, intercept, begin, end, indices, values, targets, shrink, step, part):
    """Run an epoch of logistic regression in file order as one would first write it: two plain loops a row.

    ``shrink`` is the table of ``linear.kernel.shrink_table``, ``part`` the intercept's share of the step, so that the
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
