"""Walking rows in pieces of bounded size, on several threads, in order.

The one decision: a piece is about a million nonzeros, not a number of rows, so the memory a thread needs is the same
for tweets and for books, for data in memory and for a store that is larger than it. Where the cuts fall depends on the
rows alone, so sums over the pieces are the same to the last bit on any number of threads. A piece costs some 50 us of
Python, half a millisecond of a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from hogwild.data.examples import Rows
from hogwild.data.pieces import map_cuts

Result = TypeVar("Result")

CHUNK_NONZEROS = 1 << 20
CHUNK_ROWS = 1 << 18  # of rows that are short or empty


def chunks(rows: Rows, nonzeros: int = CHUNK_NONZEROS, *, columns: int = 1) -> Iterator[tuple[int, int]]:
    """Cut rows into runs ``(first, last)`` of at most ``nonzeros`` entries (but at least one row) each, in order.

    ``columns`` is how many numbers will be made of a row: the more classes, the fewer rows are in a chunk.
    """
    most = max(1, CHUNK_ROWS // columns)
    for base in range(0, len(rows), most):
        total = np.cumsum(rows.end[base : base + most] - rows.begin[base : base + most])
        first = 0
        while first < len(total):
            before = total[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(total, before + nonzeros, side="right")))
            yield base + first, base + last
            first = last


def map_chunks(
    rows: Rows, function: Callable[[int, int], Result], threads: int | None = None, columns: int = 1
) -> Iterator[Result]:
    """``function(first, last)`` of each chunk, on ``threads`` threads; results come in order.

    Chunks not begun when the caller stops asking, or an error or Ctrl-C arrives, are dropped.
    """
    return map_cuts(list(chunks(rows, columns=columns)), function, threads)


def count_unknown(rows: Rows, width: int, threads: int | None = None) -> int:
    """Number of entries whose feature is at or beyond ``width``: those the margins leave out."""
    if rows.width <= width:
        return 0

    from hogwild.kernels.margins import count_unknown as count

    def part(first: int, last: int) -> int:
        return int(count(rows.begin[first:last], rows.end[first:last], rows.indices, width))

    return sum(map_chunks(rows, part, threads))
