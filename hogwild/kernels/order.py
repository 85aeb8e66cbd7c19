"""The order of rows: random blocks of neighbouring rows, shuffled inside a chunk, from one stateless generator.

A full random permutation of rows runs five times slower than file order once the data outgrow the cache. So an epoch is
a random permutation of small *blocks* of neighbouring rows; 64 of them make a *chunk*, whose rows are permuted again.
Workers claim chunks. A chunk's content is a function of (seed, epoch, chunk) alone, so any worker can build it, the
only stored array that grows with the data is the blocks' permutation, and a resumed epoch continues exactly where it
stopped.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.atomics import prefetch
from hogwild.kernels.options import JIT, inlined

BLOCKS_PER_CHUNK = 64  # enough draws for a chunk of a label-sorted file to have the file's mix of labels
# How many rows ahead weights, entries, and offsets with targets are prefetched
WEIGHTS_AHEAD = 2
ROW_AHEAD = 5
OFFSETS_AHEAD = 8
PADDING = OFFSETS_AHEAD  # rows past a chunk's end that may be prefetched; they repeat its last row

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S27, S30, S31, S32 = (np.uint64(bits) for bits in (27, 30, 31, 32))


@njit(**JIT)
def mix(state):
    """The output function of splitmix64 (Steele, Lea, Flood 2014): uint64 -> uint64, a bijection."""
    z = state
    z = (z ^ (z >> S30)) * MIX_1
    z = (z ^ (z >> S27)) * MIX_2
    return z ^ (z >> S31)


@njit(**JIT)
def generator(seed, epoch, chunk):
    """Initial state of the random numbers of one chunk of one epoch; chunk -1 permutes the blocks."""
    return mix(mix(mix(np.uint64(seed) + GOLDEN) + np.uint64(epoch) + GOLDEN) + np.uint64(chunk + 1) + GOLDEN)


@njit(**JIT)
def shuffle(array, n, state):
    """Permute ``array[:n]`` in place (Fisher-Yates; n < 2^32)."""
    for i in range(n - 1, 0, -1):
        state = state + GOLDEN
        j = np.int64(((mix(state) >> S32) * np.uint64(i + 1)) >> S32)
        array[i], array[j] = array[j], array[i]


@njit(**JIT)
def shuffle_blocks(blocks, n_rows, block, shuffled, seed, epoch):
    """Fill ``blocks`` (n_blocks,) int32 with an epoch's sequence of blocks; a last, shorter block stays last."""
    n = len(blocks)
    for i in range(n):
        blocks[i] = i
    if shuffled:
        shuffle(blocks, n if n_rows % block == 0 else n - 1, generator(seed, epoch, -1))


@njit(**JIT)
def shuffle_epochs(many, shuffled, seed, epoch):
    """Fill each row of ``many`` (epochs, n_rows) int32 with the sequence of one epoch, in blocks of one row."""
    for k in range(len(many)):
        shuffle_blocks(many[k], many.shape[1], 1, shuffled, seed, epoch + k)


@njit(**JIT)
def chunk_rows(rows, blocks, chunk, n_rows, block, shuffled, seed, epoch):
    """Write the row numbers of ``chunk`` into ``rows`` (64 * block + PADDING,) int64; return how many there are."""
    first = chunk * BLOCKS_PER_CHUNK
    last = min(first + BLOCKS_PER_CHUNK, len(blocks))
    n = 0
    for k in range(first, last):
        start = np.int64(blocks[k]) * block
        for row in range(start, min(start + block, n_rows)):
            rows[n] = row
            n += 1
    if shuffled:
        shuffle(rows, n, generator(seed, epoch, chunk))
    for k in range(PADDING):
        rows[n + k] = rows[n - 1]
    return n


@inlined
def prefetch_entries(data, rows, i, unit=0):
    """Prefetch entries of rows a little ahead of ``rows[i]``; ``rows`` is padded, so nothing is out of range."""
    row = rows[i + OFFSETS_AHEAD]
    prefetch(data.begin, row)
    prefetch(data.end, row)
    prefetch(data.targets, row)
    row = rows[i + ROW_AHEAD]
    for j in range(data.begin[row], data.end[row], 16):
        prefetch(data.indices, j)
        if not unit:
            prefetch(data.values, j)
