"""JIT kernels for tables: texts, numbers and words of columns become buckets, and columns become rows.

A value is hashed in place in the column's bytes, starting from the hash state after ``column=``, so no text is built
and nothing is allocated. FNV-1a (Fowler, Noll, Vo 1991) takes about 1 ns a byte; the hash of
``data/text/hashing_kernel.py`` follows, since FNV-1a's top bits depend too little on the last bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hogwild.data.text.hashing_kernel import bucket
from hogwild.kernels.options import JIT, called

PRIME = np.uint64(0x100000001B3)
SPACE = np.uint64(32)
WORDS = -2


@njit(**JIT)
def fold(state, text, first, last):
    """Return the FNV-1a state (uint64) after the bytes ``text[first:last]``."""
    for i in range(first, last):
        state = (state ^ np.uint64(text[i])) * PRIME
    return state


@njit(**JIT)
def hash_texts(
    starts,  # (n + 1,) int64: where each value begins in text
    text,  # (bytes,) uint8
    state,  # uint64: after the column's name and "="
    bits,
    buckets,  # (n,) int32, out
):
    for i in range(len(buckets)):
        buckets[i] = bucket(fold(state, text, starts[i], starts[i + 1]), bits)


@called
def _word(text, at, last):
    """Return ``(begin, end)`` of the first word in ``text[at:last]``; both are ``last`` if there is none.

    A word is a run of letters, digits and underscores. Beyond ASCII every character belongs to a word except the
    punctuation of U+0080 to U+00BF, U+2000 to U+206F and U+3000 to U+303F.
    """
    begin = -1
    while at < last:
        byte, width = text[at], 1
        if byte < 0x80:
            inside = (48 <= byte <= 57) or (65 <= byte <= 90) or (97 <= byte <= 122) or byte == 95
        else:
            inside = True
            if byte == 0xC2:
                inside, width = False, 2
            elif at + 1 < last and byte == 0xE2 and (text[at + 1] == 0x80 or text[at + 1] == 0x81):
                inside, width = at + 2 < last and text[at + 1] == 0x81 and text[at + 2] > 0xAF, 3
            elif at + 1 < last and byte == 0xE3 and text[at + 1] == 0x80:
                inside, width = False, 3
        if inside and begin < 0:
            begin = at
        if not inside and begin >= 0:
            return begin, at
        at += width
    return (begin, last) if begin >= 0 else (last, last)


@njit(**JIT)
def hash_words(
    starts,  # (n + 1,) int64
    text,  # (bytes,) uint8, in lower case
    state,  # uint64: after the column's name and "="
    bits,
    ends,  # (n,) int64, out: where each value's words end
    buckets,  # (bytes + 1,) int32, out: of each word and each pair of words, the pair before its second word
):
    k = 0
    for i in range(len(ends)):
        at = starts[i]
        last = starts[i + 1]
        later = False
        pair = state
        while at < last:
            begin, at = _word(text, at, last)
            if begin == last:
                break
            if later:
                buckets[k] = bucket(fold((pair ^ SPACE) * PRIME, text, begin, at), bits)
                k += 1
            pair = fold(state, text, begin, at)
            later = True
            buckets[k] = bucket(pair, bits)
            k += 1
        ends[i] = k


@njit(**JIT)
def lay_rows(
    codes,  # (columns, n) int32: bucket of each row's value; -1: no entry; WORDS: its words
    amounts,  # (columns, n) float32
    starts,  # (columns, n + 1) int64: where each row's words begin
    words,  # (words,) int32: buckets of the words of one column after another
    fields,  # (2^bits,) uint16: the first column known of each bucket; empty: not asked
    lengths,  # (n,) int64, out
    indices,  # (all,) int32, out: room for every possible entry
    values,  # (all,) float32, out
    fresh,  # (all, 2) int32, out: buckets with a column before the known one, and that column
):
    """Turn columns into rows of unsorted entries; return how many there are, and how many are fresh."""
    at = 0
    news = 0
    one = np.float32(1.0)
    known = len(fields) > 0
    for i in range(len(lengths)):
        first = at
        for column in range(len(codes)):
            begin = at
            code = codes[column, i]
            if code >= 0:
                indices[at], values[at] = code, amounts[column, i]
                at += 1
            elif code == WORDS:
                for k in range(starts[column, i], starts[column, i + 1]):
                    indices[at], values[at] = words[k], one
                    at += 1
            if known:
                for k in range(begin, at):
                    if fields[indices[k]] > column:
                        fresh[news, 0], fresh[news, 1] = indices[k], column
                        news += 1
        lengths[i] = at - first
    return at, news
