"""NumPy twin of the sequence of visits, written from the description, in integers of 64 bits."""

from __future__ import annotations

import numpy as np

MASK, GOLDEN, MIX_1, MIX_2 = 2**32 - 1, 0x9E3779B9, 0x7FEB352D, 0x846CA68B


def mixed(x):
    """A hash of 32 bits."""
    x = (x ^ x >> 16) * MIX_1 & MASK
    x = (x ^ x >> 15) * MIX_2 & MASK
    return x ^ x >> 16


def permuted(x, bits, random):
    """One pass of four rounds over the numbers of so many bits."""
    for _ in range(4):
        x = (x ^ random >> 12) * (random >> 4 | 1) % 2**bits
        x ^= x >> (bits + 1) // 2
        random = (random * GOLDEN + MIX_1) & MASK
    return x


def rows(visits):
    """The examples of all visits, (count,) int32."""
    v = np.arange(visits.first, visits.first + visits.size, dtype=np.uint64)
    epoch, i = v // visits.n, v % max(visits.n, 1)
    if not visits.shuffled:
        return i.astype(np.int32)
    block, inside = np.divmod(i, visits.together)
    blocks = visits.n // visits.together
    random = mixed((visits.key + (visits.epoch + epoch) * GOLDEN) & MASK)
    x, out = block.copy(), block < blocks  # what is left for the last block stays there
    while out.any():
        x[out] = permuted(x[out], (blocks - 1).bit_length(), random[out])
        out &= x >= blocks
    return (x * visits.together + inside).astype(np.int32)


def steps(visits):
    """Their steps, (count,) float32."""
    v = np.arange(visits.first, visits.first + visits.size)
    found = visits.scale * 2.0 ** (visits.rate * (v // max(visits.n, 1))) * (visits.since + v) ** -visits.power
    return found.astype(np.float32)
