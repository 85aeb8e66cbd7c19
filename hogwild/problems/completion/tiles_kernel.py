"""Sort of ratings into tiles: two passes of a counting sort, then a shuffle of each tile while it is in cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT
from hogwild.kernels.order import GOLDEN, S32, generator, mix


@njit(**JIT)
def count_tiles(users, items, user_ranges, item_ranges, columns, counts):
    """Add to ``counts`` (tiles,) int64 the number of ratings in each tile."""
    for k in range(len(users)):
        tile = np.int64(user_ranges[np.uint32(users[k])]) * columns + item_ranges[np.uint32(items[k])]
        counts[np.uint64(tile)] += 1


@njit(**JIT)
def fill_tiles(users, items, values, user_ranges, item_ranges, columns, free, out_users, out_items, out_values):
    """Copy ratings to their tiles in input order; ``free`` (tiles,) int64, where each tile begins, is advanced."""
    for k in range(len(users)):
        u, i = np.uint32(users[k]), np.uint32(items[k])
        tile = np.uint64(np.int64(user_ranges[u]) * columns + item_ranges[i])
        place = np.uint64(free[tile])
        free[tile] += 1
        out_users[place] = users[k]
        out_items[place] = items[k]
        out_values[place] = values[k]


@njit(**JIT)
def shuffle_tiles(begin, users, items, values, seed):
    """Permute the ratings of each tile (Fisher-Yates)."""
    for tile in range(len(begin) - 1):
        first = begin[tile]
        state = generator(seed, 0, tile)
        for n in range(begin[tile + 1] - first, 1, -1):
            state = state + GOLDEN
            a = np.uint64(first + n - 1)
            b = np.uint64(first) + (((mix(state) >> S32) * np.uint64(n)) >> S32)
            users[a], users[b] = users[b], users[a]
            items[a], items[b] = items[b], items[a]
            values[a], values[b] = values[b], values[a]
