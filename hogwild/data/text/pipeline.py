"""Parses a text of any size on several threads: chunks of whole lines, whose results come back in file order.

The calling thread reads, decompresses and cuts the text behind the last line end of each chunk; a pool of threads
parses the chunks in kernels that release the GIL. So decompression overlaps with parsing, the first wrong line of the
file is the one that is reported, and the chunks in flight bound the memory, whatever the size of the file.

Line numbers cost nothing until one is needed: a chunk knows how many lines it has, and an error adds those before it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, Protocol, TypeVar

from hogwild.data.parallel import BytesRead
from hogwild.data.text.lines import ReadError, Source, chunks
from hogwild.errors import InputError

CHUNK_BYTES = 1 << 20  # of text: with its arrays it stays in a core's second-level cache
MOST_WORKERS = 8  # a single thread reads, and could not supply more


class Lined(Protocol):
    """What a parser returns for a chunk: anything that knows its ``lines``."""

    lines: int


Block = TypeVar("Block", bound=Lined)


class Chunk(NamedTuple, Generic[Block]):
    """A parsed chunk, and its text ``buffer[:size]``."""

    block: Block
    buffer: bytearray
    size: int


def usual_workers() -> int:
    """Return the number of threads that parse unless a number is given: one for each usable core, up to eight."""
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


class ChunkParser:
    """A pool of ``workers`` threads for chunks of ``chunk`` bytes, to be used in a ``with`` statement.

    Attributes
    ----------
    lines : int
        Lines of the current text before the chunk that was yielded last, or before the end of the text.
    """

    def __init__(self, workers: int, chunk: int = CHUNK_BYTES) -> None:
        self.workers, self.chunk, self.lines = workers, chunk, 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="hogwild-parse")
        self._free: deque[bytearray] = deque()

    def __enter__(self) -> ChunkParser:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def each(
        self,
        source: Source,
        parse: Callable[[bytearray, int], Block],
        ready: Callable[[bytearray, int], bool] | None = None,
        progress: BytesRead | None = None,
    ) -> Iterator[Chunk[Block]]:
        """Yield the chunks of a text, in order.

        Parameters
        ----------
        source : Source
        parse : function of (buffer, size)
            Called on the pool's threads.
        ready : function of (buffer, size), optional
            Called on this thread before a chunk is parsed; one for which it returns False is passed over.
        progress : function, optional
            Called with the bytes of the source done and their total after each chunk.

        Raises
        ------
        InputError
            ``name:line: what`` where the text cannot be read further, after the last chunk.
        """
        self.lines = 0
        told = progress or (lambda done, total: None)
        jobs: deque[tuple[Future[Block], bytearray, int, int]] = deque()
        room, failure = self.chunk * (self.workers + 1), None
        try:
            for buffer, size in chunks(source, self.chunk, self._free):
                if ready is not None and not ready(buffer, size):
                    self.lines += buffer.count(b"\n", 0, size)
                    continue
                jobs.append((self._pool.submit(parse, buffer, size), buffer, size, source.done))
                while jobs and (jobs[0][0].done() or sum(size for _, _, size, _ in jobs) > room):
                    future, text, length, done = jobs.popleft()
                    yield from self._finished(future, text, length)
                    told(done, source.total)
        except ReadError as error:
            failure = str(error)
        while jobs:
            yield from self._finished(*jobs.popleft()[:3])
        if failure is not None:
            raise self.fault(source, 1, failure)
        told(source.done, source.total)

    def _finished(self, job: Future[Block], buffer: bytearray, size: int) -> Iterator[Chunk[Block]]:
        block = job.result()
        yield Chunk(block, buffer, size)
        self.lines += block.lines
        if len(buffer) == self.chunk + 1:
            self._free.append(buffer)

    def fault(self, source: Source, line: int, what: str) -> InputError:
        """Return the error for a line of the chunk that was yielded last, counted from 1."""
        return InputError(f"{source.label}:{self.lines + line}: {what}")
