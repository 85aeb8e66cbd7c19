"""JIT parser for the plain lines of graph text, nearly all of a file: whole numbers and a short decimal.

It parses lines while they are plain and stops at the first that is not: a comment, a header, a name that is text, a
long number, a mistake. Python handles that line and reports any error; then the kernel continues after it. So errors
are reported in one place, and plain lines give what Python would have read: a decimal of at most 15 digits is one exact
division. A line takes some 20 ns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.kernels.options import JIT

DIGITS = 15  # of a weight: the mantissa, and the power of ten it is divided by, are then exact
ARC = 97  # "a"
POWERS = np.array([float(f"1e{k}") for k in range(DIGITS + 1)])
LARGEST = float(np.finfo(np.float32).max)


@njit(**JIT)
def _blanks(text, p, separator):
    """Return the position after the blanks at ``p``; a tab is not one if it is the separator."""
    while text[p] == 32 or 11 <= text[p] <= 13 or (text[p] == 9 and separator != 9):
        p += 1
    return p


@njit(**JIT)
def _whole(text, p):
    """Return ``(end, number)`` of a whole number in Python's form, up to 18 digits; ``end`` is ``p`` if there is none.

    What follows the number is not checked.
    """
    q = p + (text[p] == 45)
    start, number = q, 0
    while 48 <= text[q] <= 57:
        number = number * 10 + (text[q] - 48)
        q += 1
    if q == start or q > start + 18 or (text[start] == 48 and (q > start + 1 or start > p)):
        return p, 0
    return q, -number if start > p else number


@njit(**JIT)
def _weight(text, p):
    """Return ``(end, number)`` of a decimal without sign and exponent; ``end`` is ``p`` for anything else."""
    q, mantissa, digits, places = p, 0, 0, -1
    while 48 <= text[q] <= 57 or (text[q] == 46 and places < 0):
        if text[q] == 46:
            places = 0
        else:
            mantissa = mantissa * 10 + (text[q] - 48)
            digits += 1
            places += places >= 0
        q += 1
    if digits == 0 or digits > DIGITS:
        return p, 0.0
    return q, float(mantissa) / POWERS[max(places, 0)]


@njit(**JIT)
def _next(text, p, separator):
    """Return where the field after the one ending at ``p`` begins; -1 at a line's end, -2 if no separator follows."""
    q = _blanks(text, p, separator)
    if text[q] == 10:
        return -1
    if separator == 0:
        return q if q > p else -2
    return _blanks(text, q + 1, separator) if text[q] == separator else -2


@njit(**JIT)
def _plain_end(text, p):
    """Return the line end after ``p`` if only plain ASCII without quotes comes before it, else -1."""
    while text[p] != 10:
        if text[p] > 126 or text[p] == 34 or (text[p] < 32 and not (9 <= text[p] <= 13)):
            return -1
        p += 1
    return p


@njit(**JIT)
def parse_edges(
    text,  # bytearray: whole lines
    p, size,  # where to begin, and bytes of it to read; text[size - 1] is a line end
    separator,  # 0: blanks; else the byte
    fields,  # 2: u v; 3: u v weight, and perhaps more; 4: a u v weight, and nothing more
    low, high,  # limits of u and v
    u, v,  # (lines,) int64, out
    weights,  # (lines,) float64, out; not written if there are none
):  # fmt: skip
    """Return ``(start of the first line that is not plain, line ends before it, those up to the last edge, edges)``."""
    n, line_ends, last = 0, 0, 0
    while p < size:
        q = _blanks(text, p, separator)
        if text[q] == 10:
            p = q + 1
            line_ends += 1
            continue
        if fields == 4:
            q = _next(text, q + 1, separator) if text[q] == ARC else -1
            if q < 0:
                break
        end, first = _whole(text, q)
        q = _next(text, end, separator) if end > q else -1
        if q < 0:
            break
        end, second = _whole(text, q)
        if end == q or min(first, second) < low or max(first, second) > high or n == len(u):
            break
        q, weight = _next(text, end, separator), 1.0
        if fields > 2 and q >= 0:
            end, weight = _weight(text, q)
            q = _next(text, end, separator) if end > q else -2
            if fields == 3 and q >= 0:
                q = -1 if _plain_end(text, q) >= 0 else -2
        elif fields > 2:
            break
        if q != -1 or weight > LARGEST:
            break
        while text[end] != 10:
            end += 1
        u[n], v[n], weights[n] = first, second, weight
        n += 1
        line_ends += 1
        last = line_ends
        p = end + 1
    return p, line_ends, last, n
