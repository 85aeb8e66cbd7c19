"""Writes lines of float32 numbers in the shortest form that reads back the same, like ``str`` of a NumPy number.

A candidate of d digits is m / 10^k, both exact in double precision, so one division tells whether it reads back. If d
digits suffice, so do more; so digits are removed from nine while the number still reads back, which gives the shortest
and nearest form. Numbers for which this fails or is uncertain are left to the caller: those below 1e-13 or from 1e6 on,
and powers of two, whose neighbours are not at equal distances, unless few digits are exact. A number takes some 50 ns,
where NumPy takes a microsecond.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT

MOST = 24  # bytes of a number and its separator
TEN = np.array([float(f"1e{k}") for k in range(23)])
LOW, HIGH = 1e-13, 1e6  # NumPy uses an exponent from HIGH on; here only numbers below 1e-4 have one
DIGITS = 9  # digits that always read back


@njit(**JIT)
def _shortest(x):
    """Return ``(digits as a number, how many, exponent of the first)`` of ``x`` in [LOW, HIGH); no digits: unknown."""
    wide, first = np.float64(x), 0
    while first < 5 and wide >= TEN[first + 1]:
        first += 1
    while wide * TEN[-first] < 1.0:  # x is in range, so this is exact enough: the digits are checked
        first -= 1
    best, digits = 0, 0
    for d in range(DIGITS, 0, -1):
        shift = d - 1 - first
        m = np.rint(wide * TEN[shift]) if shift >= 0 else np.rint(wide / TEN[-shift])
        back = m / TEN[shift] if shift >= 0 else m * TEN[-shift]
        if np.float32(back) != x:
            break
        best, digits = np.int64(m), d
    if digits == 0 or best >= np.int64(TEN[digits]) or best < np.int64(TEN[digits - 1]):
        return 0, 0, 0
    if math.frexp(wide)[0] == 0.5:
        shift = digits - 1 - first
        if digits > 7 or (best / TEN[shift] if shift >= 0 else best * TEN[-shift]) != wide:
            return 0, 0, 0
    return best, digits, first


@njit(**JIT)
def _write(best, digits, first, out, p):
    """Write the number at ``p``; return where it ends."""
    scientific = first < -4
    point = 1 if scientific else max(first + 1, 0)  # digits before the point
    if point == 0:
        out[p], out[p + 1] = 48, 46
        p += 2
        for _ in range(-first - 1):
            out[p] = 48
            p += 1
    for k in range(max(digits, point)):
        if k == point and point > 0:
            out[p] = 46
            p += 1
        digit = best // np.int64(TEN[digits - 1 - k]) % 10 if k < digits else 0
        out[p] = 48 + digit
        p += 1
    if not scientific and point >= digits:
        out[p], out[p + 1] = 46, 48
        p += 2
    if scientific:
        out[p], out[p + 1] = 101, 45
        out[p + 2], out[p + 3] = 48 + -first // 10, 48 + -first % 10
        p += 4
    return p


@njit(**JIT)
def format_lines(values, row, out):
    """Write rows of ``values`` (n, columns) float32 from ``row`` on, one per line, separated by blanks.

    ``out`` (bytes,) uint8 has room for ``MOST`` bytes a number. Return the row that is left to the caller, or n, and
    how many bytes are written.
    """
    p, columns = 0, values.shape[1]
    for i in range(row, len(values)):
        start = p
        for j in range(columns):
            x = values[i, j]
            if j > 0:
                out[p] = 32
                p += 1
            if math.copysign(1.0, x) < 0.0:
                out[p] = 45
                p += 1
                x = -x
            if x == 0.0:
                out[p], out[p + 1], out[p + 2] = 48, 46, 48
                p += 3
                continue
            if not LOW <= x < HIGH:
                return i, start
            best, digits, first = _shortest(x)
            if digits == 0:
                return i, start
            p = _write(best, digits, first, out, p)
        out[p] = 10
        p += 1
    return len(values), p
