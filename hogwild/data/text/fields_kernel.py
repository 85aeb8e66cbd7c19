"""JIT parser of lines of fields (ratings, edges, entries of a matrix): bytes in, arrays out, one chunk at a time.

A line is first cut into fields, whatever they mean, and an id is both a number (if it is written as Python would write
one) and a position in the text. The caller takes the numbers if all ids of a side are such, which needs no Python
objects, and makes strings from the positions otherwise.

As in ``data/text/parse_kernel.py``, numbers are correctly rounded, only the position of the first mistake is reported,
and the text is a ``bytearray`` that ends in a line end, which stops every scan. A line takes some 40 ns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.text.parse_kernel import BAD, UNRESOLVED, number
from hogwild.kernels.options import JIT, called

DONE, FIELDS, EMPTY_ID, CONTROL, QUOTE, BAD_VALUE, BAD_TIME, NO_MOVIE = range(8)  # how parse_lines ended
BLANKS, PLAIN = 0, 1  # as a separator: runs of blanks, and no quotes; else the byte itself, or:
DOUBLE = 256  # "::"
MOVIE = -1  # as the field of items: they precede their ratings, in lines such as ``7:``
NO_TIME, NUMBER, DATE = range(3)  # kinds of times
DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])
LARGEST_TIME = 2.0**62
ROOM = 64  # numbers left to Python that are reported at a time


@called
def _blank(c, separator):
    return c == 32 or c == 13 or c == 11 or c == 12 or (c == 9 and separator != 9)


@called
def _separates(text, p, separator):
    if separator == DOUBLE:
        return text[p] == 58 and text[p + 1] == 58
    if separator <= PLAIN:
        return text[p] == 32 or text[p] == 9 or (separator == PLAIN and 11 <= text[p] <= 13)
    return text[p] == separator


@called
def _field(text, p, separator):
    """Return ``(first, end, behind, more, quotes)`` of the field at ``p``, without blanks and quotes around it.

    If there is ``more``, ``behind`` is where the next field begins, else the line end. ``quotes`` is -1 for an unclosed
    quote, else the number of doubled quotes inside.
    """
    while _blank(text[p], separator):
        p += 1
    quotes = 0
    if text[p] == 34 and separator != DOUBLE and separator != PLAIN:
        p += 1
        first = p
        while text[p] != 10 and (text[p] != 34 or text[p + 1] == 34):
            if text[p] == 34:
                quotes += 1
                p += 1
            p += 1
        end = p
        if text[p] == 10:
            return first, end, p, False, -1
        p += 1
        while _blank(text[p], separator) and separator > PLAIN:
            p += 1
        if text[p] != 10 and text[p] != 13 and not _separates(text, p, separator):
            return first, end, p, False, -1
    else:
        first = p
        while text[p] != 10 and not _separates(text, p, separator):
            p += 1
        end = p
        while end > first and _blank(text[end - 1], separator):
            end -= 1
    if separator <= PLAIN:
        while _blank(text[p], separator):
            p += 1
        return first, end, p, text[p] != 10, quotes
    if text[p] == 13:
        p += 1
    if text[p] == 10:
        return first, end, p, False, quotes
    return first, end, p + (2 if separator == DOUBLE else 1), True, quotes


@called
def _whole(text, first, end):
    """Return ``(whether, number)`` for an id written as a number, up to 18 digits and without leading zeros."""
    p = first
    negative = text[p] == 45
    if negative:
        p += 1
    if end == p or end - p > 18 or (text[p] == 48 and (end - p > 1 or negative)):
        return False, 0
    value = 0
    while p < end:
        d = text[p] - 48
        if d < 0 or d > 9:
            return False, 0
        value = value * 10 + d
        p += 1
    return True, -value if negative else value


@called
def _controls(text, first, end):
    found = False
    for p in range(first, end):
        found |= text[p] < 32 or text[p] == 127
    return found


@called
def _digits(text, first, end):
    value = 0
    for p in range(first, end):
        d = text[p] - 48
        if d < 0 or d > 9:
            return -1
        value = value * 10 + d
    return value


@called
def _date(text, first, end):
    """Return the days from 1970-01-01 to the date ``YYYY-MM-DD``; -1 - 2^40 for anything else."""
    wrong = -1 - (1 << 40)
    if end - first != 10 or text[first + 4] != 45 or text[first + 7] != 45:
        return wrong
    year = _digits(text, first, first + 4)
    month, day = _digits(text, first + 5, first + 7), _digits(text, first + 8, end)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return wrong
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > DAYS_BEFORE[month] - DAYS_BEFORE[month - 1] + (leap and month == 2):
        return wrong
    years = year - 1
    days = years * 365 + years // 4 - years // 100 + years // 400 - 719162
    return days + DAYS_BEFORE[month - 1] + (leap and month > 2) + day - 1


@called
def _time(text, first, end, kind):
    """Return ``(whether, time)`` for a number, truncated to a whole one, or a date."""
    if kind == DATE:
        days = _date(text, first, end)
        return days > -(1 << 40), days
    whole, value = _whole(text, first, end)
    if whole:
        return True, value
    what, p, x = number(text, first)
    return what != BAD and p == end and end > first and abs(x) < LARGEST_TIME, np.int64(x)


@njit(**JIT)
def parse_lines(
    text,  # bytearray: whole lines
    size,  # bytes of it to read; text[size - 1] is a line end
    separator,  # BLANKS, PLAIN, DOUBLE or a byte
    comment,
    other,  # lines that begin with either byte are comments
    columns,
    more,  # fields of every line; whether there may be more of them
    user_at,
    item_at,
    value_at,
    time_at,  # field of each, or -2; item_at may be MOVIE; without values all are 1
    kind,  # kind of times
    optional,  # a rating may be missing, and is then 0
    users,
    items,  # (lines,) int64, out: ids as numbers
    spans,  # (lines, 4) int32, out: first and end of user and item; -1 - first if quotes are doubled
    values,  # (lines,) float64, out
    times,  # (lines,) int64, out; not written without times
    unresolved,  # (ROOM, 2) int64, out: (rating, where its token starts)
    facts,  # (4,) int64, out: all users are numbers, all items are; ratings before the first movie line; last movie
):
    """Return ``(code, where, fields of that line, ratings, unresolved)``."""
    p, n, left, movie = 0, 0, 0, -1
    facts[0], facts[1], facts[2], facts[3] = 1, 1, 0, -1
    while p < size:
        while _blank(text[p], separator):
            p += 1
        line = p
        if text[p] == 10 or text[p] == comment or text[p] == other:
            while text[p] != 10:
                p += 1
            p += 1
            continue
        count, further, code, where = 0, True, DONE, line
        users[n], items[n], spans[n, 2], spans[n, 3], values[n] = 0, 0, 0, 0, 1.0
        while further:
            first, end, p, further, quotes = _field(text, p, separator)
            if quotes < 0:
                return QUOTE, first, count, n, left
            if item_at == MOVIE and count == 0 and not further and end > first + 1 and text[end - 1] == 58:
                whole, movie = _whole(text, first, end - 1)
                if not whole or movie < 0:
                    return NO_MOVIE, first, count, n, left
                count = -1
                break
            if count == user_at or count == item_at:
                if end == first and code == DONE:
                    code, where = EMPTY_ID, first
                whole, value = _whole(text, first, end)
                if not whole and code == DONE and _controls(text, first, end):
                    code, where = CONTROL, first
                side = 0 if count == user_at else 1
                facts[side] &= whole
                spans[n, 2 * side], spans[n, 2 * side + 1] = -1 - first if quotes else first, end
                if side == 0:
                    users[n] = value
                else:
                    items[n] = value
            elif count == value_at:
                if end == first and optional:
                    values[n] = 0.0
                else:
                    what, q, x = number(text, first)
                    if what == BAD or q != end or end == first:
                        if code == DONE:
                            code, where = BAD_VALUE, first
                    elif what == UNRESOLVED:
                        if left < len(unresolved):
                            unresolved[left, 0], unresolved[left, 1] = n, first
                        left += 1
                    else:
                        values[n] = x
            elif count == time_at:
                good, value = _time(text, first, end, kind)
                if not good and code == DONE:
                    code, where = BAD_TIME, first
                times[n] = value
            count += 1
        if count >= 0:
            if count < columns or (count > columns and not more):
                return FIELDS, line, count, n, left
            if code != DONE:
                return code, where, count, n, left
            if item_at == MOVIE:
                items[n] = movie
                facts[2] += movie < 0
            n += 1
        while text[p] != 10:
            p += 1
        p += 1
    facts[3] = movie
    return DONE, p, 0, n, left
