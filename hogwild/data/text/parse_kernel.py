"""JIT parser of svmlight text: bytes in, arrays out, one chunk of whole lines at a time.

A short decimal is mantissa / 10^k in double precision. Both are exact while the mantissa is at most 2^53 and k at most
22, so the one division rounds correctly and the value *is* ``float32(float(token))`` (Clinger 1990, "How to read
floating point numbers accurately"). Longer tokens are computed to within 2^-51 and accepted if both ends of a wider
interval round to the same float32; the few that do not (one in 2^25) are left to Python.

``parse_rows`` only lists the tokens that it doubts; the caller, which has the token and time, rounds them or says what
is wrong. The text is a ``bytearray`` that ends in a line end, which stops every scan, so no position is compared with
the size.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.text.hashing_kernel import bucket
from hogwild.kernels.options import JIT, called

INDEX_END = 2**31 - 1  # zero-based indices are below it, so that the width is an int32 too
MOST_FIELDS = 2**15  # as in rows/container.py
HALF = 10**10  # splits an index of 19 or 20 digits in two; the halves of the largest, 2^64 - 1
TOP, REST = divmod(2**64 - 1, HALF)
FLOAT32_END = 3.4028235677973366e38  # 2^128 - 2^103: from here on float32 rounds to infinity
EXACT = 2**53
SLACK = 2.0**-50
POW10 = np.array([float(f"1e{k}") for k in range(64)])


@called
def skip_blanks(text, p):
    while text[p] == 32 or (text[p] != 10 and 9 <= text[p] <= 13):
        p += 1
    return p


@called
def _ends_token(c):
    return c == 32 or c == 35 or 9 <= c <= 13


@called
def _scaled(mantissa, digits, exponent):
    """Return ``(good, mantissa * 10**exponent)`` for a mantissa of ``digits`` digits, cut off after 18."""
    if mantissa == 0 or digits + exponent < -45:  # below 1e-45 / 10, which rounds to zero
        return True, 0.0
    if digits + exponent > 39:
        return False, 0.0
    x = float(mantissa)
    x = x / POW10[-exponent] if exponent < 0 else x * POW10[exponent]
    if mantissa <= EXACT and -22 <= exponent <= 22:
        return x < FLOAT32_END, x
    low, high = x * (1.0 - SLACK), x * (1.0 + SLACK)
    return high < FLOAT32_END and np.float32(low) == np.float32(high), x


@called
def _long_number(text, p):
    """Return ``(good, end, magnitude)`` of any unsigned decimal: many digits, leading zeros, exponents."""
    mantissa = 0
    kept = 0
    digits = 0
    exponent = 0
    point = 0
    while True:
        c = text[p]
        if c == 46 and point == 0:
            point = 1
        elif 48 <= c <= 57:
            digits += 1
            if kept < 18:
                mantissa = mantissa * 10 + (c - 48)
                kept += mantissa > 0
                exponent -= point
            else:
                exponent += 1 - point
        else:
            break
        p += 1
    if digits == 0:
        return False, p, 0.0
    if c == 101 or c == 69:
        p += 1
        negative = text[p] == 45
        if negative or text[p] == 43:
            p += 1
        start, shift = p, 0
        while 48 <= text[p] <= 57:
            shift = min(shift * 10 + (text[p] - 48), 1 << 40)
            p += 1
        if p == start:
            return False, p, 0.0
        exponent += -shift if negative else shift
    good, x = _scaled(mantissa, kept, exponent)
    return good, p, x


@njit(**JIT)
def number(text, p):
    """Return ``(good, end, value)`` of the number at ``p``; all but short ones are left to ``_long_number``.

    It is not good if it is none of float32, or rounds to one or another in double precision.
    """
    negative = text[p] == 45
    if negative or text[p] == 43:
        p += 1
    start, mantissa = p, 0
    d = text[p] - 48
    while 0 <= d <= 9:
        mantissa = mantissa * 10 + d
        p += 1
        d = text[p] - 48
    digits, places = p - start, 0
    if d == -2:  # a point
        p += 1
        point = p
        d = text[p] - 48
        while 0 <= d <= 9:
            mantissa = mantissa * 10 + d
            p += 1
            d = text[p] - 48
        places = p - point
        digits += places
    if digits == 0 or digits > 18 or mantissa > EXACT or d == 53 or d == 21:  # "e" or "E" follows
        good, p, x = _long_number(text, start)
    else:
        good, x = True, float(mantissa) / POW10[places]
    return good, p, -x if negative else x


@called
def _token_end(text, p):
    while not _ends_token(text[p]):
        p += 1
    return p


@called
def _label(text, p):
    """Parse the ``number`` that begins a row; NaN, consuming nothing, if the token has a colon."""
    good, q, x = number(text, p)
    if good and _ends_token(text[q]):
        return True, q, x
    end = _token_end(text, p)
    for q in range(p, end):
        if text[q] == 58:
            return True, p, np.nan
    return False, end, x


@called
def _index(text, p):
    """Return ``(index, end)`` of ``digits:`` at ``p``, past the colon; -1 for anything else, or over 18 digits."""
    start, index = p, 0
    d = text[p] - 48
    while 0 <= d <= 9:
        index = index * 10 + d
        p += 1
        d = text[p] - 48
    if d != 10 or p == start or p > start + 18:
        index = -1
    return index, p + 1


@njit(**JIT)
def _bucket(text, p, base, bits):
    """Return ``(bucket, end)`` of ``digits:`` at ``p``, an index below 2^64, past the colon; -1 for anything else."""
    start, index = p, 0
    d = text[p] - 48
    while 0 <= d <= 9:
        index = index * 10 + d  # wraps around from 19 digits on, and is then not used
        p += 1
        d = text[p] - 48
    digits, high = p - start, 0
    if d != 10 or digits == 0 or digits > 20:
        return -1, p + 1
    if digits > 18:
        index = 0
        for i in range(start, p - 10):
            high = high * 10 + (text[i] - 48)
        for i in range(p - 10, p):
            index = index * 10 + (text[i] - 48)
        if high > TOP or (high == TOP and index > REST):
            return -1, p + 1
    if high == 0 and index < base:
        return -1, p + 1
    key = np.uint64(high) * np.uint64(HALF) + np.uint64(index) - np.uint64(base)
    return bucket(key, bits), p + 1


@njit(**JIT)
def parse_rows(
    text,  # bytearray: whole lines
    size,  # bytes of it to read; text[size - 1] is a line end
    base,  # 1 or 0: the lowest index
    limit,  # zero-based indices from here on are refused
    bits,  # indices are hashed to this many bits; 0: not hashed
    lengths,  # (line ends,) int64, out
    indices,  # (colons,) int32, out
    values,  # (colons,) float32, out
    targets,  # (line ends,) float32, out: NaN of a row without a label
    fields,  # (colons,) int16, out: of features that are written field:feature:value; empty for others
    doubtful,  # (line ends + colons + 1, 2) int64, out: (entry, or -1 - row for a label; where its token starts)
):
    """Return ``(rows, width, falls, doubtful tokens)``; a token that is no feature at all is the last one that is read.

    ``falls`` counts the entries whose index does not ascend. With ``bits`` the entries are still in the order of the
    text: see ``hashing_kernel.py``.
    """
    p = 0
    row = 0
    k = 0
    width = 0
    falls = 0
    doubts = 0
    while p < size:
        p = skip_blanks(text, p)
        if text[p] != 10 and text[p] != 35:
            start = p
            good, p, x = _label(text, p)
            if not good:
                doubtful[doubts, 0], doubtful[doubts, 1] = -1 - row, start
                doubts += 1
            targets[row] = x
            first, last = k, -1
            p = skip_blanks(text, p)
            while text[p] != 10 and text[p] != 35:
                start = p
                field = 0
                if len(fields) > 0:
                    field, p = _index(text, p)
                if bits > 0:
                    index, p = _bucket(text, p, base, bits)
                else:
                    index, p = _index(text, p)
                    index -= base
                if not (0 <= field < MOST_FIELDS and 0 <= index < min(limit, INDEX_END)):
                    doubtful[doubts, 0], doubtful[doubts, 1] = k, start
                    return row, width, falls, doubts + 1
                good, p, x = number(text, p)
                if not good or not _ends_token(text[p]):
                    doubtful[doubts, 0], doubtful[doubts, 1] = k, start
                    doubts += 1
                    p = _token_end(text, start)
                p = skip_blanks(text, p)
                if len(fields) > 0:
                    fields[k] = field
                falls += index <= last
                width = max(width, index + 1)
                last = index
                indices[k] = index
                values[k] = x
                k += 1
            lengths[row] = k - first
            row += 1
        while text[p] != 10:
            p += 1
        p += 1
    return row, width, falls, doubts
