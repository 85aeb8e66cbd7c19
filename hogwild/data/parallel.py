"""Processes numbered items in pieces of a given length, on several threads, in order.

Where the cuts fall depends on the length alone, so sums over the pieces are the same to the
last bit on any number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

#: How readers report progress: called with the bytes read so far and the bytes there are, or None if nobody knows.
BytesRead = Callable[[int, "int | None"], None]

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_pieces(
    length: int, size: int, function: Callable[[int, int], Result], threads: int | None = None
) -> Iterator[Result]:
    """Yield ``function(first, last)`` of each piece of ``0 <= i < length`` in order, as :func:`map_cuts` does."""
    return map_cuts([(first, min(first + size, length)) for first in range(0, length, size)], function, threads)


def map_cuts(
    cuts: list[tuple[int, int]], function: Callable[[int, int], Result], threads: int | None = None
) -> Iterator[Result]:
    """Yield ``function(first, last)`` of each run in order, computed on ``threads`` threads (default: all cores).

    Runs not yet begun are dropped when the caller stops asking, or on an error or Ctrl-C.
    """
    threads = 1 if len(cuts) <= 1 else min(threads or len(os.sched_getaffinity(0)), len(cuts))
    if threads > 1:
        yield from in_order(cuts, lambda cut: function(*cut), threads)
    else:
        for cut in cuts:
            yield function(*cut)


def in_order(items: Iterable[Item], function: Callable[[Item], Result], threads: int | None = None) -> Iterator[Result]:
    """Yield ``function(item)`` of each item in order, some items ahead on ``threads`` threads."""
    threads = threads or len(os.sched_getaffinity(0))
    pending: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hogwild-ahead")
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            while pending and (len(pending) > 2 * threads or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
