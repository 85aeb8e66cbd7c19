"""JIT kernels for feature hashing: they hash indices to buckets and sort the entries of hashed rows.

Hashing leaves *every* row unsorted, but its entries are spread at random, evenly over the buckets. So a short row is
distributed by its leading bits into as many bins as it has entries, and the few entries then out of place are fixed by
insertion: 6 ns an entry, where one sort of all the chunk's entries takes 34, more than parsing them. An adversary who
knows the hash can write rows that fill one bin, so rows from ``SHORT`` entries on use a radix sort, whose time does not
depend on the data. Both are stable: entries in the same bucket are summed in the order of the text.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT, called
from hogwild.kernels.order import GOLDEN, mix

FEW = 6  # entries up to which insertion alone is fastest
SHORT = 512  # entries from which a row is sorted by radix
DIGIT = 10  # bits of a radix digit
BINS = (1 << DIGIT) + 1  # counters that a caller provides


@njit(**JIT)
def bucket(index, bits):
    """Return the bucket of a uint64 index: the top ``bits`` bits of splitmix64's first output seeded with it, int64."""
    return np.int64(mix(index + GOLDEN) >> np.uint64(64 - bits))


@njit(**JIT)
def hash_indices(
    indices,  # (n,) int32, or any whole numbers
    bits,
    buckets,  # (n,) int32, out
):
    for i in range(len(indices)):
        buckets[i] = bucket(np.uint64(indices[i]), bits)


@njit(**JIT)
def mark(seen, indices):
    """Set ``seen`` (2^bits,) bool of every index."""
    for i in range(len(indices)):
        seen[indices[i]] = True


@called
def _deal(indices, values, start, n, to_indices, to_values, to, shift, bins, counts):
    """Stable counting sort of ``n`` entries by ``(index >> shift) % bins``, from ``start`` to ``to``."""
    for b in range(bins + 1):
        counts[b] = 0
    for i in range(start, start + n):
        counts[((indices[i] >> shift) & (bins - 1)) + 1] += 1
    for b in range(bins):
        counts[b + 1] += counts[b]
    for i in range(start, start + n):
        b = (indices[i] >> shift) & (bins - 1)
        at = to + counts[b]
        counts[b] += 1
        to_indices[at] = indices[i]
        to_values[at] = values[i]


@called
def _insert(indices, values, start, n, to_indices, to_values, to):
    """Stable insertion sort of ``n`` entries from ``start`` to ``to``, which may be the same place."""
    for i in range(n):
        index, value = indices[start + i], values[start + i]
        k = to + i
        while k > to and to_indices[k - 1] > index:
            to_indices[k] = to_indices[k - 1]
            to_values[k] = to_values[k - 1]
            k -= 1
        to_indices[k] = index
        to_values[k] = value


@called
def _sort_row(indices, values, start, n, bits, spare_indices, spare_values, counts):
    if n <= FEW:
        _insert(indices, values, start, n, indices, values, start)
        return
    if n < SHORT:
        fine = 3
        while fine < bits and (1 << fine) < n:
            fine += 1
        shift = max(bits - fine, 0)
        _deal(indices, values, start, n, spare_indices, spare_values, 0, shift, 1 << fine, counts)
        _insert(spare_indices, spare_values, 0, n, indices, values, start)
        return
    for shift in range(0, bits, 2 * DIGIT):  # two passes: to the spare arrays and back
        _deal(indices, values, start, n, spare_indices, spare_values, 0, shift, 1 << DIGIT, counts)
        _deal(spare_indices, spare_values, 0, n, indices, values, start, shift + DIGIT, 1 << DIGIT, counts)


@njit(**JIT)
def sort_rows(
    lengths,  # (n,) int64: entries of each row, in and out
    indices,  # (nnz,) int32 below 2^bits, in and out
    values,  # (nnz,) float32, in and out
    bits,
    spare_indices,  # (longest row,) int32
    spare_values,  # (longest row,) float32
    counts,  # (BINS,) int64
):
    """Return ``(entries, summed rows, first row with a sum beyond float32, or -1)``.

    Rows are sorted and their repeated indices summed in float64, each row moved up to the end of the one before.
    """
    read = 0
    write = 0
    summed = 0
    bad = -1
    for row in range(len(lengths)):
        n, first = lengths[row], write
        _sort_row(indices, values, read, n, bits, spare_indices, spare_values, counts)
        i = read
        while i < read + n:
            index = indices[i]
            value = values[i]
            total = np.float64(values[i])
            i += 1
            if i < read + n and indices[i] == index:
                while i < read + n and indices[i] == index:
                    total += values[i]
                    i += 1
                value = np.float32(total)
                if np.isinf(value) and bad < 0:
                    bad = row
            indices[write] = index
            values[write] = value
            write += 1
        read += n
        lengths[row] = write - first
        summed += write - first < n
    return write, summed, bad
