"""JIT parser of the entries of a MatrixMarket file: bytes in, arrays out, one chunk of whole lines at a time.

Every line is an entry, blank, or a comment that begins with ``%``. An entry is its row and column, counted from 1, and
its value; entries of a pattern have no values, and those of an array only values. As in ``parse_kernel.py`` only the
position of the first mistake is reported, and the text is a ``bytearray`` that ends in a line end, which stops every
scan. Sizes claimed by the file are not used for access: the caller provides room for an entry on each line.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.text.parse_kernel import BAD, UNRESOLVED, number, skip_blanks
from hogwild.kernels.options import JIT

DONE, BAD_ROW, BAD_COLUMN, BAD_VALUE, MORE = range(5)  # how parse_entries ended
PATTERN, WHOLE, REAL = range(3)  # types of values


@njit(**JIT)
def _place(text, p, limit):
    """Return ``(zero-based place, end)`` of a whole number from 1 to ``limit`` before a blank; -1 for anything else."""
    start, place = p, 0
    d = text[p] - 48
    while 0 <= d <= 9:
        place = place * 10 + d
        p += 1
        d = text[p] - 48
    blank = d == -16 or -39 <= d <= -35
    if not blank or p == start or p > start + 18 or place > limit:
        place = 0
    return place - 1, p


@njit(**JIT)
def parse_entries(
    text,  # bytearray: whole lines
    size,  # bytes of it to read; text[size - 1] is a line end
    places,  # whether entries have a row and a column
    field,
    n_rows,
    n_columns,
    rows,  # (line ends,) int32, out
    columns,  # (line ends,) int32, out
    values,  # (line ends,) float64, out
    unresolved,  # (room, 2) int64, out: (entry, where its value starts)
):
    """Return ``(code, bad token's position, entries, unresolved)``; if ``unresolved`` exceeds the room, call again."""
    p, k, left = 0, 0, 0
    while p < size:
        p = skip_blanks(text, p)
        if text[p] != 10 and text[p] != 37:
            if places:
                start = p
                row, p = _place(text, p, n_rows)
                if row < 0:
                    return BAD_ROW, start, k, left
                start = p = skip_blanks(text, p)
                column, p = _place(text, p, n_columns)
                if column < 0:
                    return BAD_COLUMN, start, k, left
                rows[k], columns[k] = row, column
                p = skip_blanks(text, p)
            if field != PATTERN:
                start = p
                what, p, x = number(text, p)
                if what == BAD or not (text[p] == 32 or 9 <= text[p] <= 13) or (field == WHOLE and x != np.floor(x)):
                    return BAD_VALUE, start, k, left
                if what == UNRESOLVED:
                    if left < len(unresolved):
                        unresolved[left, 0], unresolved[left, 1] = k, start
                    left += 1
                values[k] = x
            k += 1
            p = skip_blanks(text, p)
            if text[p] != 10:
                return MORE, p, k, left
        while text[p] != 10:
            p += 1
        p += 1
    return DONE, p, k, left
