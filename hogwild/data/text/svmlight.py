"""Parses svmlight (LIBSVM) text, plain or compressed, into arrays: ``label [qid:n] index:value ... [# comment]``.

libffm's ``label field:index:value ...`` is known by its first feature. A feature has one field, so the fields are an
array by feature; a feature that comes in another field (of hashed data, by chance) stays in its first one.

Chunks are parsed on several threads: about a megabyte of text for each worker, and at most six bytes of arrays for a
byte of text.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import INDEX_LIMIT, MOST_FIELDS, Rows
from hogwild.data.rows.store import Sink
from hogwild.data.text.hashing import LARGEST, sort_rows
from hogwild.data.text.lines import ReadError, Source, bad_number, chunks, quoted
from hogwild.errors import InputError

CHUNK_BYTES = 1 << 20  # of text: with its arrays it stays in a core's second-level cache
MOST_WORKERS = 8  # a single thread reads, and could not supply more
TOKEN = re.compile(rb"[^ \t\n\v\f\r#]*")
FEATURES = re.compile(rb"^[^#\n]*:[^\n]*", re.MULTILINE)  # a row that has some
FIELDED = re.compile(rb"\s*(?:[^\s:]+\s+)?\d+:\d+:")
JUNK = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]|^\xff\xfe|^\xfe\xff")  # control characters; what UTF-16 begins with


@dataclass
class ParseSummary:
    """What a file held; updated as rows are read, complete at the end."""

    rows: int = 0
    nnz: int = 0
    width: int = 0  # the pinned or hashed one, else the largest index + 1
    duplicate_rows: int = 0  # rows with a repeated feature, whose values were summed; not counted if hashed
    query_rows: int = 0  # rows with a qid:, which is ignored: no loss here is a ranking loss
    moved_rows: int = 0  # rows with a feature in another field than before, which is ignored
    fields: np.ndarray | None = None  # (features so far,) int16: where features are written field:feature:value

    def note(self, lengths: np.ndarray, features: np.ndarray, fields: np.ndarray) -> None:
        """Take the fields of the features of some rows, as they stand in the text: of each the first one counts."""
        known = np.empty(0, np.int16) if self.fields is None else self.fields
        top = int(features.max(initial=-1)) + 1
        if top > len(known):
            known = np.append(known, np.full(max(top, 2 * len(known)) - len(known), -1, np.int16))
        new = known[features] < 0
        known[features[new][::-1]] = fields[new][::-1]
        moved = np.flatnonzero(known[features] != fields)
        self.moved_rows += len(np.unique(np.searchsorted(np.cumsum(lengths), moved, side="right")))
        self.fields = known


@dataclass
class _Settings:
    """Options of :func:`parse_svmlight`."""

    zero_based: bool = False
    width: int | None = None
    labels: str = "required"
    hash_bits: int | None = None
    workers: int | None = None
    chunk_bytes: int | None = None
    progress: BytesRead | None = None

    def __post_init__(self) -> None:
        if self.hash_bits is not None:
            self.width = 1 << self.hash_bits
        self.threads = self.workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.chunk = max(self.chunk_bytes or min(CHUNK_BYTES, 12 * CHUNK_BYTES // (self.threads + 2)), 16)
        self.fielded = False  # whether features are written field:feature:value, which the first one tells
        self.base = 0 if self.zero_based else 1
        self.limit = INDEX_LIMIT if self.width is None else self.width


@dataclass
class _Block:
    """One parsed chunk, or its first error as (line of the chunk, what)."""

    arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    lines: int
    width: int
    query_rows: int
    duplicate_rows: int = 0
    fields: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # arguments of ParseSummary.note
    error: tuple[int, str] | None = None


# -- parsing one chunk ------------------------------------------------------------------------------------------------


def _parse(buffer: bytearray, size: int, settings: _Settings) -> _Block:
    """Parse the rows of ``buffer[:size]``, on a thread of the pool."""
    from hogwild.data.text import parse_kernel as parse

    colons, lines = parse.count_marks(buffer, size)
    lengths, targets = np.empty(lines, np.int64), np.empty(lines, np.float32)
    indices, values = np.empty(colons, np.int32), np.empty(colons, np.float32)
    fields = np.empty(colons if settings.fielded else 0, np.int16)
    room = 64
    while True:
        unresolved = np.empty((room, 2), np.int64)
        with np.errstate(over="ignore"):  # the hash wraps, which is only visible with the JIT off
            code, position, rows, nnz, width, falls, queries, left = parse.parse_rows(
                buffer,
                size,
                settings.base,
                settings.limit,
                settings.labels == "optional",
                settings.hash_bits or 0,
                lengths,
                indices,
                values,
                targets,
                fields,
                unresolved,
            )
        if left <= room:
            break
        room = left
    faults: list[tuple[int, int, str]] = []  # (line of the chunk, byte of the chunk, what)

    def fault(start: int, label: bool) -> None:
        faults.append((buffer.count(b"\n", 0, start) + 1, start, _describe(token_at(buffer, start), label, settings)))

    for place, start in unresolved[:left].tolist():
        number = float(token_at(buffer, start).rpartition(b":")[2])
        if abs(number) >= parse.FLOAT32_END:
            fault(start, place < 0)
        elif place >= 0:
            values[place] = number
        else:
            targets[-1 - place] = number
    if code != parse.DONE:
        fault(position, code == parse.BAD_LABEL)
        nnz = int(lengths[:rows].sum())  # whole rows, in which an earlier fault may be found
    arrays = lengths[:rows], indices[:nnz], values[:nnz], targets[:rows]
    block = _Block(arrays, lines, width, queries)
    if settings.fielded:
        block.fields = arrays[0].copy(), arrays[1].copy(), fields[:nnz]
    if settings.hash_bits or (falls and nnz):
        lengths, indices, values, targets = arrays
        bits = settings.hash_bits or width.bit_length()
        indices, values, repeats, overflowing = sort_rows(lengths, indices, values, bits)
        block.arrays = lengths, indices, values, targets
        if overflowing >= 0:
            whose = "one bucket's" if settings.hash_bits else "a repeated feature's"
            faults.append((line_of(buffer, overflowing), size, f"the sum of {whose} values is beyond float32"))
        if not settings.hash_bits:
            block.duplicate_rows = repeats
    if faults:
        line, _, what = min(faults)
        block.error = line, what
    return block


def line_of(buffer: bytearray, row: int) -> int:
    """Return the line of the chunk, from 1, that holds its row ``row``; it is for errors, so in plain Python."""
    lines = (number for number, line in enumerate(buffer.split(b"\n"), 1) if line.strip()[:1] not in b"#")
    return next(itertools.islice(lines, row, None))


def token_at(buffer: bytearray, start: int) -> bytes:
    """Return the bytes from ``start`` to the next blank, line end or comment."""
    return TOKEN.match(buffer, start).group()  # type: ignore[union-attr]  # at least an empty one


def _describe(token: bytes, label: bool, settings: _Settings) -> str:
    """Return what is wrong with a token the kernel refused."""
    if JUNK.search(token):
        return f"binary data {quoted(token)}, expected svmlight text"
    if settings.fielded and not label:
        field, _, rest = token.partition(b":")
        if not (field.isdigit() and int(field[-9:]) < MOST_FIELDS and b":" in rest):
            return f"bad field in {quoted(token)}: expected field:feature:value with a field below {MOST_FIELDS}"
        token = rest
    index, colon, value = token.partition(b":")
    if label and colon:
        return f"no label before {quoted(token)}, expected: label index:value ..."
    if label:
        return f"bad label {quoted(token)}: {bad_number(token)}"
    if not colon:
        return f"missing colon in {quoted(token)}: expected index:value"
    if not index.isdigit():
        return f"bad index in {quoted(token)}: expected a whole number"
    feature = int(index[-400:])
    largest, digits = (LARGEST, 20) if settings.hash_bits else (INDEX_LIMIT - 1 + settings.base, 18)
    if len(index) > digits or feature > largest:
        hint = " (--hash-bits takes any below 2^64)" if largest < feature <= LARGEST else ""
        return f"index {quoted(index)} is beyond the largest, {largest}{hint}"
    if feature < settings.base:
        return "index 0, but indices count from 1 unless the file is read as zero-based (--zero-based)"
    if not settings.hash_bits and feature - settings.base >= settings.limit:
        return f"index {feature} is beyond the given width of {settings.width} features"
    return f"bad value in {quoted(token)}: {bad_number(value)}"


def _blocks(path: str | os.PathLike[str] | BinaryIO, summary: ParseSummary, settings: _Settings) -> Iterator[_Block]:
    """Yield parsed chunks in file order, with totals in ``summary``; this thread reads, and those of a pool parse.

    So decompression overlaps with parsing, the first wrong line of the file is the one that is reported, and the chunks
    in flight bound the memory. Line numbers cost nothing until one is needed: a chunk knows how many lines it has.
    """
    _parse(bytearray(b"0\n"), 2, settings)  # compiles the kernel in this thread, where Ctrl-C is noticed
    summary.width = settings.width or 0
    free: deque[bytearray] = deque()
    jobs: deque[tuple[Future[_Block], bytearray, int, int]] = deque()
    lines = 0
    failure: ReadError | None = None
    pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="hogwild-parse")

    def finished() -> _Block:
        nonlocal lines
        future, buffer, _, done = jobs.popleft()
        block = future.result()
        if block.error:
            raise InputError(f"{source.label}:{lines + block.error[0]}: {block.error[1]}")
        lines += block.lines
        if len(buffer) == settings.chunk + 1:
            free.append(buffer)
        summary.rows += len(block.arrays[0])
        summary.nnz += len(block.arrays[1])
        for name in ("duplicate_rows", "query_rows"):
            setattr(summary, name, getattr(summary, name) + getattr(block, name))
        if block.fields is not None:
            summary.note(*block.fields)
        if settings.width is None:
            summary.width = max(summary.width, block.width)
        if settings.progress is not None:
            settings.progress(done, source.total)
        return block

    try:
        with contextlib.closing(Source(path)) as source:
            try:
                for buffer, size in chunks(source, settings.chunk, free):
                    if not jobs and not lines and (first := FEATURES.search(buffer, 0, size)):
                        settings.fielded = FIELDED.match(first.group()) is not None
                    jobs.append((pool.submit(_parse, buffer, size, settings), buffer, size, source.done))
                    room = settings.chunk * (settings.threads + 1)
                    while jobs and (jobs[0][0].done() or sum(size for _, _, size, _ in jobs) > room):
                        yield finished()
            except ReadError as error:
                failure = error
            while jobs:
                yield finished()
            if failure is not None:
                raise InputError(f"{source.label}:{lines + 1}: {failure}")
            if summary.rows == 0:
                raise InputError(f"{source.label}:{max(lines, 1)}: no rows in it, expected svmlight text")
    finally:
        pool.shutdown(cancel_futures=True)


# -- public functions -------------------------------------------------------------------------------------------------


def parse_svmlight(path: str | os.PathLike[str] | BinaryIO, sink: Sink, **options: Any) -> ParseSummary:
    """Parse svmlight text and hand its rows to ``sink.append(lengths, indices, values, targets)``, in file order.

    Parameters
    ----------
    path : path or binary stream
        Text, plain or compressed by gzip, bzip2 or xz. A stream is read to its end and left open.
    sink : Sink
        Called from this thread. Values are exactly ``np.float32(float(token))``; explicit zeros are kept.
    zero_based : bool
        Indices count from 0 rather than 1. The sink's indices count from 0 either way.
    width : int, optional
        Number of features; one at or beyond it is an error.
    labels : "required" or "optional"
        Whether a row may begin with its first feature; its target is then 0. Blank lines are not rows either way.
    hash_bits : int, optional
        Hash indices, which may then be any below 2^64, to ``2**hash_bits`` features (see ``data/text/hashing.py``).
    workers : int, optional
        Threads that parse; by default one for each core available to this process, up to 8.
    chunk_bytes : int, optional
        Text that one thread takes at a time (1 MiB); a longer line gets a larger chunk, up to 20 MiB.
    progress : callable, optional
        Called from this thread with (bytes of the source done, their total or None for a stream).

    Raises
    ------
    InputError
        ``name:line: what`` for the first wrong line, a damaged archive or a file without rows; ``name: what`` for a
        path that cannot be opened. The sink may already have received rows.
    """
    summary, settings = ParseSummary(), _Settings(**options)
    for block in _blocks(path, summary, settings):
        sink.append(*block.arrays)
    return summary


def iter_svmlight(
    path: str | os.PathLike[str] | BinaryIO, *, summary: ParseSummary | None = None, **options: Any
) -> Iterator[Rows]:
    """Yield the rows of svmlight text as blocks, one for each chunk, for uses that need only one pass.

    Parameters and errors are those of ``parse_svmlight``. Without ``width`` a block is as wide as the widest row so
    far. ``summary``, a new one, is updated on the way. Closing the iterator early ends its threads.
    """
    summary, settings = summary or ParseSummary(), _Settings(**options)
    for block in _blocks(path, summary, settings):
        lengths, indices, values, targets = block.arrays
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        yield Rows(indptr, indices, values, targets, summary.width, check=False, hash_bits=settings.hash_bits)
