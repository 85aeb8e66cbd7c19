"""Walking numbered things in pieces of a given length, on several threads, in order.

As ``chunks.py`` does for rows: where the cuts fall depends on the length alone, so sums over the pieces are the same to
the last bit on any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def pieces(length: int, size: int) -> Iterator[tuple[int, int]]:
    """Cut ``0 <= i < length`` into runs ``(first, last)`` of ``size``, the last one shorter."""
    for first in range(0, length, size):
        yield first, min(first + size, length)


def map_pieces(
    length: int, size: int, function: Callable[[int, int], Result], threads: int | None = None
) -> Iterator[Result]:
    """``function(first, last)`` of each piece, on ``threads`` threads (default: all cores); results come in order.

    Pieces not begun when the caller stops asking, or an error or Ctrl-C arrives, are dropped.
    """
    return map_cuts(list(pieces(length, size)), function, threads)


def map_cuts(
    cuts: list[tuple[int, int]], function: Callable[[int, int], Result], threads: int | None = None
) -> Iterator[Result]:
    """The same for runs ``(first, last)`` of any length."""
    threads = threads or len(os.sched_getaffinity(0))
    if threads == 1 or len(cuts) <= 1:
        for cut in cuts:
            yield function(*cut)
        return
    pool = ThreadPoolExecutor(min(threads, len(cuts)), thread_name_prefix="hogwild-pieces")
    try:
        yield from pool.map(lambda cut: function(*cut), cuts)
    finally:
        pool.shutdown(cancel_futures=True)
