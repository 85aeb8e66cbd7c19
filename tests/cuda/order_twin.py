"""NumPy twin of the sequence of visits, written from the description, in integers of 64 bits."""

from __future__ import annotations

import numpy as np

MASK, GOLDEN, MIX = 2**32 - 1, 0x9E3779B9, 0x7FEB352D


def permuted(x, bits, random):
    """One pass of four rounds over the numbers of so many bits."""
    for _ in range(4):
        x = (x ^ random >> 12) * (random >> 4 | 1) % 2**bits
        x ^= x >> (bits + 1) // 2
        random = (random * GOLDEN + MIX) & MASK
    return x


def rows(visits):
    """The examples of all visits, (count,) int32."""
    v = np.arange(visits.first, visits.first + visits.size, dtype=np.uint64)
    if not visits.shuffled:
        return v.astype(np.int32)
    block, inside = np.divmod(v, visits.together)
    blocks = visits.n // visits.together
    x, out = block.copy(), block < blocks  # what is left for the last block stays there
    while out.any():
        x[out] = permuted(x[out], (blocks - 1).bit_length(), visits.key)
        out &= x >= blocks
    return (x * visits.together + inside).astype(np.int32)


def steps(visits):
    """Their steps, (count,) float32."""
    v = np.arange(visits.first, visits.first + visits.size)
    return (visits.scale * (visits.since + v) ** -visits.power).astype(np.float32)
