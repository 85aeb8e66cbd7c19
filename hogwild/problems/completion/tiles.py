"""The cut of ratings into tiles, a range of users by a range of items each, and their sort, done once.

An update needs two rows of factors, and its speed depends on where these lie: 6 ns from a core's own cache, three times
that from memory. So ratings are sorted into tiles whose rows fit in half of that cache, and lie in random order within
them. Users and items are first put in random order, and cut into ranges with equal shares of the ratings: ranges of the
file's own numbering would follow its history, and tiles of old users by new items would be empty. Rows of factors keep
the user's numbering, so the permutation acts on groups of neighbours whose biases share a cache line: with single
users, two workers would compete for every such line, which cost them two thirds of the speed. The order ``file`` has no
tiles: chunks of 1,024 neighbouring ratings take their place.

The sort costs about as much as two epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hogwild.data.ratings.container import count
from hogwild.kernels.tiers import FLOATS
from hogwild.problems.completion import tiles_kernel as tiling

FILE_CHUNK = 1024  # ratings in a chunk of the order "file"
FEWEST = 256  # mean ratings in a tile, below which there are fewer tiles
USUAL, PER_WORKER = 64, 8  # fewest tiles: if the data suffice, and for each worker
SPLIT = 32  # mean ratings of a user for each range of items
MOST = 1 << 16  # tiles: their positions stay in cache while ratings are sorted


@dataclass(frozen=True)
class Tiles:
    """The cut of ``n_rows`` ratings into ``n_chunks`` tiles, the unit workers claim."""

    n_rows: int
    n_chunks: int
    grid: tuple[int, int]  # ranges of users and of items
    shuffled: bool

    @property
    def n_blocks(self) -> int:
        return self.n_chunks


def file_order(users: np.ndarray, items: np.ndarray, values: np.ndarray) -> tuple[Tiles, dict[str, np.ndarray]]:
    """Cut the ratings into chunks in input order; see :func:`tile`."""
    n = len(users)
    begin = np.minimum(np.arange(0, n + FILE_CHUNK, FILE_CHUNK, dtype=np.int64), n)
    tiles = Tiles(n, len(begin) - 1, (len(begin) - 1, 1), False)
    return tiles, {"users": users, "items": items, "values": values, "begin": begin}


def tile(
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    shape: tuple[int, int],
    row_bytes: int,
    cache_bytes: int,
    workers: int,
    seed: int,
    fenced: bool = False,
    grid: tuple[int, int] | None = None,
    parts: int = 1,
) -> tuple[Tiles, dict[str, np.ndarray]]:
    """Cut the ratings into tiles and sort them.

    Parameters
    ----------
    users, items : ndarray of int32, shape (n,)
    values : ndarray of float32, shape (n,)
    shape : (int, int)
        Numbers of users and of items.
    row_bytes : int
        Size of a row of factors.
    cache_bytes : int
        Size of a core's own cache.
    workers : int
    seed : int
        Seed of all permutations.
    fenced : bool
        For the order ``blocks``, in which no two workers share a range: at least two of each for a worker.
    grid : (int, int), optional
        Numbers of ranges, if known: for a run that is resumed.
    parts : int
        Of which both numbers are multiples, for machines with a part of each.

    Returns
    -------
    Tiles
    dict of ndarray
        users and items (n,) int32, values (n,) float32, begin (tiles + 1,) int64: the first rating of each tile.
    """
    n, generator = len(users), np.random.default_rng(seed)
    degrees = count(users, shape[0]), count(items, shape[1])
    if grid is None:
        rated, offered = (max(int(np.count_nonzero(degree)), 1) for degree in degrees)
        rows, columns = cut(rated, offered, n, row_bytes, cache_bytes, workers * parts, fenced)
        grid = -(-rows // parts) * parts, -(-columns // parts) * parts
    ranges = [split(degree, parts, generator) for degree, parts in zip(degrees, grid)]
    counts = np.zeros(grid[0] * grid[1], dtype=np.int64)
    tiling.count_tiles(users, items, *ranges, grid[1], counts)
    begin = np.concatenate(([0], np.cumsum(counts)))
    out = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
    tiling.fill_tiles(users, items, values, *ranges, grid[1], begin[:-1].copy(), *out)
    tiling.shuffle_tiles(begin, *out, seed)
    return Tiles(n, len(counts), grid, True), dict(zip(("users", "items", "values", "begin"), (*out, begin)))


def split(degree: np.ndarray, parts: int, generator: np.random.Generator) -> np.ndarray:
    """Range of each user or item, int32: random ranges with about equally many ratings.

    Neighbours whose biases share a cache line stay together; otherwise workers in different ranges would compete for
    it.
    """
    groups = np.add.reduceat(degree, np.arange(0, len(degree), FLOATS))
    sequence = generator.permutation(len(groups))
    share = np.cumsum(groups[sequence]) - groups[sequence] / 2
    ranges = np.empty(len(groups), dtype=np.int32)
    ranges[sequence] = np.minimum(share * parts / max(degree.sum(), 1), parts - 1)
    return np.repeat(ranges, FLOATS)[: len(degree)]


def cut(
    users: int, items: int, n: int, row_bytes: int, cache_bytes: int, workers: int, fenced: bool
) -> tuple[int, int]:
    """Numbers of ranges of the users and of the items that have ratings, ``n`` in all.

    A range of users takes a quarter of the cache, and one of items another, unless a user has few ratings: each range
    of items brings the users in again, and neighbours on a diagonal of one range meet. With few ratings of a user in a
    tile, moreover, the user is learnt late: with 18 a user, four ranges ended 0.006 (RMSE) above one after 8 epochs;
    with 165, no worse.
    """
    room = max(cache_bytes // 4 // row_bytes, 1)
    several = max(n // users // SPLIT, 1)
    if fenced:
        columns = 2 * workers
    else:
        columns = 1 if workers == 1 else min(max(several, workers // 2), 2 * workers)
    columns = max(columns, min(-(-items // room), several))
    wanted = min(max(USUAL, PER_WORKER * workers), max(n // FEWEST, 1))
    rows = max(-(-users // room), -(-wanted // columns), columns if fenced else 1)
    return max(min(rows, users, MOST // columns), columns if fenced else 1), columns
