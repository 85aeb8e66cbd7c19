"""Processes rows in pieces of bounded size, on several threads, in order.

A piece is about a million nonzeros, not a number of rows, so a thread needs the same memory for tweets and for books,
and for data in memory and for a store larger than it. Where the cuts fall depends on the rows alone, so sums over the
pieces are the same to the last bit on any number of threads. A piece costs some 50 us of Python for half a millisecond
of a compiled loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from hogwild.data.parallel import map_cuts
from hogwild.data.rows.container import INDEX_LIMIT, Rows
from hogwild.errors import HogwildWarning, InputError, UsageError

Result = TypeVar("Result")

CHUNK_NONZEROS = 1 << 20
CHUNK_ROWS = 1 << 18  # limit for rows that are short or empty


def chunks(rows: Rows, nonzeros: int = CHUNK_NONZEROS, *, columns: int = 1) -> Iterator[tuple[int, int]]:
    """Cut rows into runs ``(first, last)`` of at most ``nonzeros`` entries (but at least one row) each, in order.

    ``columns`` is how many numbers will be computed per row: the more classes, the fewer rows in a chunk.
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
    """Yield ``function(first, last)`` of each chunk in order, computed on ``threads`` threads.

    Chunks not yet begun are dropped when the caller stops asking, or on an error or Ctrl-C.
    """
    return map_cuts(list(chunks(rows, columns=columns)), function, threads)


def count_unknown(rows: Rows, width: int, threads: int | None = None) -> int:
    """Number of entries whose feature is at or beyond ``width``, which the margins leave out."""
    if rows.width <= width:
        return 0

    from hogwild.data.rows.margins_kernel import count_unknown as count

    def part(first: int, last: int) -> int:
        return int(count(rows.begin[first:last], rows.end[first:last], rows.indices, width))

    return sum(map_chunks(rows, part, threads))


def fit_width(rows: Rows, width: int | None, beyond: str, name: str) -> Rows:
    """Return the same rows with ``width`` features; features ascend in a row, so those beyond are cut off at its end.

    Raises
    ------
    InputError
        If there are entries beyond it, unless ``beyond`` is "ignore": they are then counted in a warning.
    """
    if width is None or width == rows.width:
        return rows
    if not 1 <= width <= INDEX_LIMIT:
        raise UsageError(f"width={width}: expected 1 to {INDEX_LIMIT}")
    if rows.hash_bits is not None:
        raise InputError(f"{name}: hashed to 2^{rows.hash_bits} = {rows.width} features, so there cannot be {width}")
    end, dropped = rows.end, 0
    if rows.width > width:
        cut = [_count_beyond(rows.block(first, last), width) for first, last in chunks(rows)]
        numbers = np.concatenate(cut)
        dropped = int(numbers.sum())
        end = rows.end - numbers if dropped else rows.end
    if dropped and beyond == "error":
        row = int(np.argmax(numbers > 0))
        raise InputError(f"{name}: row {row + 1}: feature beyond the {width} allowed ({dropped:,} such entries)")
    if dropped:
        said = f"{dropped:,} entries of features beyond the model's {width:,} were ignored in {name}"
        warnings.warn(said, HogwildWarning, stacklevel=3)
    flat = rows.indices, rows.values, rows.targets
    return Rows((rows.begin, end), *flat, width, rows.weights, rows.store, check=False)


def _count_beyond(part: Rows, width: int) -> np.ndarray:
    low, high = int(part.begin[0]), int(part.end[-1])
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(part.indices[low:high] >= width)))
    return before[part.end - low] - before[part.begin - low]
