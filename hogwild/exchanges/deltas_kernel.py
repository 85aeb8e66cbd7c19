"""One-pass kernels over what a replica owes the others, ``w - base``, and the code in which entries travel.

Only a small part of the weights is sent in a trade, so the scans compare a block of weights in vector instructions and
look closer only where one of them exceeds the threshold. A weight that is not finite is never sent.

Ascending indices are sent as the gaps between them in a Golomb-Rice code: a gap's upper bits in unary, its lowest ``k``
bits as they are. Indices of random weights have geometric gaps, for which this code is within 3 % of the entropy if
``k`` is ``log2(ln 2 / density)`` (Golomb 1966; Rice 1979). An entry is an index with its sign in the highest bit. Bits
fill words of 32 from the lowest; the decoder reads two words at a time, so one more has to follow the code.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types

from hogwild.kernels.atomics import prefetch
from hogwild.kernels.options import JIT, inlined, instructions

BLOCK = 32  # weights that are compared before any is looked at
AHEAD = 12  # entries
BINS = 1024  # of magnitudes: exponents, in quarters
SHIFT = 21  # bits of a float32 below its bin
SIGN, INDEX = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
ONE = np.uint64(1)
FIVE = np.uint64(5)
WORD = np.uint64(32)
MOST = np.uint64(33)
LOW = np.uint64(31)
LARGEST = np.float32(3.4028235e38)


def zeros_below(x):
    """Number of zero bits below the lowest one of a uint64 that is not zero."""
    return np.uint64((int(x) & -int(x)).bit_length() - 1)


@instructions(zeros_below)
def _zeros_below(typingctx, x):
    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@inlined
def any_above(w, base, first, last, threshold):
    """Whether a weight of this block owes more than ``threshold``."""
    count = 0
    for i in range(first, last):
        count += abs(w[np.uint64(i)] - base[np.uint64(i)]) > threshold
    return count > 0


@njit(**JIT)
def changed(w, base, threshold, entries):
    """Write the entries (n,) uint32 of the weights that owe more than ``threshold``; return how many."""
    count, size = 0, len(w)
    for first in range(0, size, BLOCK):
        last = min(first + BLOCK, size)
        if any_above(w, base, first, last, threshold):
            for i in range(first, last):
                owed = w[i] - base[i]
                if threshold < abs(owed) <= LARGEST:
                    entries[count] = np.uint32(i) | (SIGN if owed < 0 else np.uint32(0))
                    count += 1
    return count


@njit(**JIT)
def quantised(w, base, moved, start, tau, entries):
    """Add ``tau``, with its sign, to ``base`` and ``moved`` of each weight that owes more than that, and write the
    entries (n,) uint32; return how many.
    """
    count = changed(w, base, tau, entries)
    for n in range(count):
        ahead = entries[min(n + AHEAD, count - 1)] & INDEX
        prefetch(moved, ahead)
        prefetch(start, ahead)
        i = entries[n] & INDEX
        moved[i] += -tau if entries[n] & SIGN else tau
        base[i] = start[i] + moved[i]
    return count


@njit(**JIT)
def absorb_signs(w, base, moved, start, entries, count, tau):
    """Add others' entries of plus or minus ``tau`` to the replica and its base."""
    for n in range(count):
        prefetch_all(w, base, moved, start, entries[min(n + AHEAD, count - 1)] & INDEX)
        i = entries[n] & INDEX
        delta = -tau if entries[n] & SIGN else tau
        w[i] += delta
        moved[i] += delta
        base[i] = start[i] + moved[i]


@inlined
def prefetch_all(w, base, moved, start, i):
    """Prefetch a weight of every array: those that move lie far apart."""
    prefetch(w, i)
    prefetch(base, i)
    prefetch(moved, i)
    prefetch(start, i)


@njit(**JIT)
def magnitude(w, base, stride, share, bins):
    """Return how much the largest ``share`` of the weights owes at least, or the larger half of those that owe
    anything, if these are fewer; 0 if none does. It is a power of two times 4, 5, 6 or 7, found in every ``stride``-th
    weight; ``bins`` (BINS,) int64 is overwritten.
    """
    for b in range(BINS):
        bins[b] = 0
    seen = 0
    for i in range(0, len(w), stride):
        owed = np.float32(w[i] - base[i])
        bins[(owed.view(np.int32) & np.int32(0x7FFFFFFF)) >> SHIFT] += 1
        seen += 1
    b, above = (255 << 2) - 1, 0  # above it are infinity and NaN
    wanted = min(share * seen, 0.5 * (seen - bins[0]))
    while b > 0 and above + bins[b] <= wanted:
        above += bins[b]
        b -= 1
    if above:  # otherwise one bin holds more than is wanted
        b += 1
    return np.int32(b << SHIFT).view(np.float32)


@njit(**JIT)
def rice_encode(entries, k, words):
    """Write ascending ``entries`` (n,) uint32 to ``words`` uint32; return the number of words."""
    k = np.uint64(k)
    mask, fixed = (ONE << k) - ONE, k + ONE + ONE
    buffer = np.uint64(0)
    filled = np.uint64(0)
    due = np.uint64(0)
    used = np.uint64(0)
    for n in range(len(entries)):
        entry = np.uint64(entries[n])
        gap = (entry & np.uint64(INDEX)) - due
        due = (entry & np.uint64(INDEX)) + ONE
        zeros = gap >> k
        while zeros + fixed > WORD:  # a word of zeros, or what is left of them
            some = min(zeros, WORD)
            filled += some
            zeros -= some
            words[used] = np.uint32(buffer & np.uint64(0xFFFFFFFF))
            full = filled >> FIVE
            used += full
            buffer >>= full << FIVE
            filled &= LOW
        rest = ONE | (gap & mask) << ONE | (entry >> LOW) << (k + ONE)
        buffer |= rest << (filled + zeros)
        filled += zeros + fixed
        words[used] = np.uint32(buffer & np.uint64(0xFFFFFFFF))
        full = filled >> FIVE
        used += full
        buffer >>= full << FIVE
        filled &= LOW
    if filled:
        words[used] = np.uint32(buffer & np.uint64(0xFFFFFFFF))
        used += ONE
    return np.int64(used)


@njit(**JIT)
def rice_decode(words, k, entries):
    """Read ``len(entries)`` entries that :func:`rice_encode` wrote."""
    k = np.uint64(k)
    mask, fixed = (ONE << k) - ONE, k + ONE
    place, due = np.uint64(0), np.uint64(0)  # in bits; least next index
    for n in range(len(entries)):
        window = window_at(words, place)
        zeros = np.uint64(0)
        while window == 0:
            zeros += WORD
            place += WORD
            window = window_at(words, place)
        some = zeros_below(window)
        zeros += some
        place += some + ONE
        window >>= some + ONE
        if some + ONE + fixed > MOST:  # the last entry's code may end with its last word
            window = window_at(words, place)
        place += fixed
        index = due + (zeros << k | window & mask)
        due = index + ONE
        entries[n] = np.uint32(index | (window >> k & ONE) << LOW)


@inlined
def window_at(words, place):
    """The code from bit ``place`` on: at least 33 bits of it."""
    word = place >> FIVE
    return (np.uint64(words[word]) | np.uint64(words[word + ONE]) << WORD) >> (place & LOW)
