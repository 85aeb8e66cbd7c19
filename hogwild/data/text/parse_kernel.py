"""JIT parser of svmlight text: bytes in, arrays out, one chunk of whole lines at a time.

A short decimal is mantissa / 10^k in double precision. Both are exact while the mantissa is at most 2^53 and k at most
22, so the one division rounds correctly and the value *is* ``float32(float(token))`` (Clinger 1990, "How to read
floating point numbers accurately"). Longer tokens are computed to within 2^-51 and accepted if both ends of a wider
interval round to the same float32; the few that do not (one in 2^25) are left to Python.

``parse_rows`` reports only where it stopped; the caller, which has the token and time, says what is wrong with it. The
text is a ``bytearray`` that ends in a line end, which stops every scan, so no position is compared with the size.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.text.hashing_kernel import bucket
from hogwild.kernels.options import JIT, called

# how parse_rows ended
DONE = 0
BAD_LABEL = 1
BAD_FEATURE = 2
# results of parsing a number
GOOD = 0
BAD = 1
UNRESOLVED = 2

INDEX_END = 2**31 - 1  # zero-based indices are below it, so that the width is an int32 too
MOST_FIELDS = 2**15  # as in rows/container.py
HALF = 10**10  # splits an index of 19 or 20 digits in two; the halves of the largest, 2^64 - 1
TOP, REST = divmod(2**64 - 1, HALF)
FLOAT32_END = 3.4028235677973366e38  # 2^128 - 2^103: from here on float32 rounds to infinity
EXACT = 2**53
SLACK = 2.0**-50
POW10 = np.array([float(f"1e{k}") for k in range(64)])


@njit(**JIT)
def count_marks(text, size):
    """Return ``(colons, line ends)``, at memory speed: bounds on features and rows, to allocate arrays."""
    colons = 0
    lines = 0
    for i in range(size):
        colons += text[i] == 58
        lines += text[i] == 10
    return colons, lines


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
    """Return ``(result, mantissa * 10**exponent)`` for a mantissa of ``digits`` digits, cut off after 18."""
    if mantissa == 0 or digits + exponent < -45:  # below 1e-45 / 10, which rounds to zero
        return GOOD, 0.0
    if digits + exponent > 39:
        return BAD, 0.0
    x = float(mantissa)
    x = x / POW10[-exponent] if exponent < 0 else x * POW10[exponent]
    if mantissa <= EXACT and -22 <= exponent <= 22:
        return (GOOD if x < FLOAT32_END else BAD), x
    low, high = x * (1.0 - SLACK), x * (1.0 + SLACK)
    if low >= FLOAT32_END:
        return BAD, x
    if high >= FLOAT32_END or np.float32(low) != np.float32(high):
        return UNRESOLVED, 0.0
    return GOOD, x


@called
def _long_number(text, p):
    """Return ``(result, end, magnitude)`` of any unsigned decimal: many digits, leading zeros, exponents."""
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
        return BAD, p, 0.0
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
            return BAD, p, 0.0
        exponent += -shift if negative else shift
    what, x = _scaled(mantissa, kept, exponent)
    return what, p, x


@njit(**JIT)
def number(text, p):
    """Return ``(result, end, value)`` of the number at ``p``; all but short ones are left to ``_long_number``."""
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
        what, p, x = _long_number(text, start)
    else:
        what, x = GOOD, float(mantissa) / POW10[places]
    return what, p, -x if negative else x


@called
def _label(text, p, optional):
    """Parse the ``number`` that begins a row; 0, consuming nothing, if ``optional`` and the token has a colon."""
    if optional:
        q = p
        while text[q] != 58 and not _ends_token(text[q]):
            q += 1
        if text[q] == 58:
            return GOOD, p, 0.0
    what, q, x = number(text, p)
    if not _ends_token(text[q]):
        what = BAD
    return what, q, x


@called
def _skip_query(text, p):
    """Return the end of ``qid:digits`` at ``p``, or ``p`` itself for anything else."""
    q = p
    if text[q] == 113 and text[q + 1] == 105 and text[q + 2] == 100 and text[q + 3] == 58:
        q += 4
        while 48 <= text[q] <= 57:
            q += 1
        if q > p + 4 and _ends_token(text[q]):
            return q
    return p


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
    optional,  # labels may be missing
    bits,  # indices are hashed to this many bits; 0: not hashed
    lengths,  # (line ends,) int64, out
    indices,  # (colons,) int32, out
    values,  # (colons,) float32, out
    targets,  # (line ends,) float32, out
    fields,  # (colons,) int16, out: of features that are written field:feature:value; empty for others
    unresolved,  # (room, 2) int64, out: (entry, or -1 - row for a label; where its token starts)
):
    """Return ``(code, position of the bad token, rows, entries, width, falls, queries, unresolved)``.

    ``falls`` counts the entries whose index does not ascend, ``queries`` the rows with a ``qid:``, which is left out;
    if ``unresolved`` exceeds the room, call again. With ``bits`` the entries are still in the order of the text: see
    ``hashing_kernel.py``.
    """
    p = 0
    row = 0
    k = 0
    width = 0
    falls = 0
    queries = 0
    left = 0
    while p < size:
        start = p = skip_blanks(text, p)
        if text[p] != 10 and text[p] != 35:
            what, p, x = _label(text, p, optional)
            if what == BAD:
                return BAD_LABEL, start, row, k, width, falls, queries, left
            if what == UNRESOLVED:
                if left < len(unresolved):
                    unresolved[left, 0], unresolved[left, 1] = -1 - row, start
                left += 1
            targets[row] = x
            first, last = k, -1
            p = skip_blanks(text, p)
            if text[p] == 113:  # "q"
                end = _skip_query(text, p)
                queries += end > p
                p = skip_blanks(text, end)
            while text[p] != 10 and text[p] != 35:
                start = p
                if len(fields) > 0:
                    field, p = _index(text, p)
                    if field < 0 or field >= MOST_FIELDS:
                        return BAD_FEATURE, start, row, k, width, falls, queries, left
                    fields[k] = field
                if bits > 0:
                    index, p = _bucket(text, p, base, bits)
                else:
                    index, p = _index(text, p)
                    index -= base
                if index < 0 or index >= min(limit, INDEX_END):
                    return BAD_FEATURE, start, row, k, width, falls, queries, left
                what, p, x = number(text, p)
                if what == BAD or not _ends_token(text[p]):
                    return BAD_FEATURE, start, row, k, width, falls, queries, left
                p = skip_blanks(text, p)
                if what == UNRESOLVED:
                    if left < len(unresolved):
                        unresolved[left, 0], unresolved[left, 1] = k, start
                    left += 1
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
    return DONE, p, row, k, width, falls, queries, left
