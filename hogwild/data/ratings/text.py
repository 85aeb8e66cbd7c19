"""Parses ratings from text, plain or compressed: ``user item rating [time]`` in any usual layout, and Netflix's.

The first line that is not a comment determines the layout (``layout.py``), and every other line has to fit it, so a
mistake is reported where it is. Ids are whole numbers if all of a side are written as such; otherwise they are strings,
and ``7`` and ``07`` differ.

As for svmlight text, a pool of threads parses chunks of whole lines in a JIT kernel and results come back in file
order. Only strings need this thread, a dict, and some 0.3 us each. All ratings are held in memory until the last name
is known, 20 bytes each (28 with times), and then once more in their final form.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from hogwild.data.progress import BytesRead
from hogwild.data.ratings.container import Ids, Ratings
from hogwild.data.ratings.ids import distinct
from hogwild.data.ratings.layout import SAID, RatingsLayout, content_lines, cut, sniff
from hogwild.data.text.lines import Source
from hogwild.data.text.pipeline import CHUNK_BYTES, Chunk, ChunkParser, usual_workers
from hogwild.data.text.tokens import bad_number, quoted
from hogwild.errors import InputError

# -- parsing one chunk ------------------------------------------------------------------------------------------------


@dataclass
class _Block:
    """One parsed chunk, or its first error as (line of the chunk, what)."""

    lines: int
    sides: list[np.ndarray]  # ids of users and of items as numbers
    spans: np.ndarray  # (n, 4) int32
    values: np.ndarray
    times: np.ndarray | None
    whole: list[bool]  # whether all ids of the side are numbers
    leading: int = 0  # ratings before the first movie line
    movie: int = -1  # number in the last movie line
    error: tuple[int, str] | None = None


def _parse(buffer: bytearray, size: int, layout: RatingsLayout, optional: bool) -> _Block:
    """Parse the ratings of ``buffer[:size]``, on a thread of the pool."""
    from hogwild.data.ratings import parse_kernel as kernel
    from hogwild.data.text.parse_kernel import FLOAT32_END

    lines = buffer.count(b"\n", 0, size)
    users, items = np.empty(lines, np.int64), np.empty(lines, np.int64)
    spans, values = np.empty((lines, 4), np.int32), np.empty(lines, np.float32)
    times = np.empty(lines if layout.time >= 0 else 0, np.int64)
    facts, room = np.empty(4, np.int64), kernel.ROOM
    while True:
        unresolved = np.empty((room, 2), np.int64)
        code, where, fields, n, left = kernel.parse_ratings(
            buffer, size, layout.separator, layout.columns, layout.user, layout.item, layout.value, layout.time,
            layout.kind, optional, users, items, spans, values, times, unresolved, facts,
        )  # fmt: skip
        if left <= room:
            break
        room = left
    faults = []
    if code != kernel.DONE:
        faults.append((buffer.count(b"\n", 0, where) + 1, _describe(buffer, code, where, fields, layout)))
    for place, start in unresolved[:left].tolist():
        number = float(_token(buffer, start, layout))
        if abs(number) >= FLOAT32_END:
            faults.append((buffer.count(b"\n", 0, start) + 1, _describe(buffer, kernel.BAD_RATING, start, 0, layout)))
        else:
            values[place] = number
    return _Block(
        lines, [_narrow(users[:n]), _narrow(items[:n])], spans[:n], values[:n], times[:n] if len(times) else None,
        [bool(facts[0]), bool(facts[1])], int(facts[2]), int(facts[3]), min(faults, default=None),
    )  # fmt: skip


def _narrow(numbers: np.ndarray) -> np.ndarray:
    """Return the same numbers as int32 if they fit, since ids are kept until the end."""
    if len(numbers) and (numbers.min() < -(2**31) or numbers.max() >= 2**31):
        return numbers.copy()
    return numbers.astype(np.int32)


# -- error messages ---------------------------------------------------------------------------------------------------


def _token(buffer: bytearray, start: int, layout: RatingsLayout) -> bytes:
    """Return the field that begins at ``start``."""
    line = bytes(buffer[start : buffer.index(b"\n", start)])
    return (cut(line, layout.separator) or [b""])[0]


def _describe(buffer: bytearray, code: int, where: int, fields: int, layout: RatingsLayout) -> str:
    """Return what is wrong with a line the kernel refused."""
    from hogwild.data.ratings import parse_kernel as kernel

    if code == kernel.FIELDS:
        line = bytes(buffer[where : buffer.index(b"\n", where)]).strip()
        if b"\0" in line:
            return f"binary data {quoted(line)}, expected text"
        expected = f"expected {layout.columns} as in the first line, separated by {SAID[layout.separator]}"
        return f"{fields} field{'s' * (fields != 1)} in {quoted(line)}: {expected}"
    token = _token(buffer, where, layout)
    if code == kernel.EMPTY_ID:
        return "an empty id, expected: user item rating"
    if code == kernel.CONTROL:
        return f"binary data {quoted(token)}, expected text"
    if code == kernel.QUOTE:
        return f"a quoted field that does not end with its quote: {quoted(token)}"
    if code == kernel.NO_MOVIE:
        return f"bad movie {quoted(token)}: expected a whole number and a colon"
    if code == kernel.BAD_TIME:
        wanted = "a date such as 2005-09-06" if layout.kind == kernel.DATE else "a number"
        return f"bad time {quoted(token)}: expected {wanted}"
    return f"bad rating {quoted(token)}: {bad_number(token) if token else 'it is empty, expected a number'}"


# -- names ------------------------------------------------------------------------------------------------------------


class _Names:
    """Ids of one side in order: numbers while all are numbers, codes of strings from the first chunk with others."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, bool]] = []  # (numbers, True), or (codes, False)
        self.table: dict[bytes, int] = {}

    def add_numbers(self, numbers: np.ndarray) -> None:
        self.parts.append((numbers, True))

    def add_tokens(self, data: bytes, spans: np.ndarray) -> bytes | None:
        """Add the ids at the places ``spans`` (n, 2) of ``data``; return one that is not UTF-8, if any."""
        table, before = self.table, len(self.table)
        if len(spans) and spans[:, 0].min() < 0:  # a doubled quote stands for one
            places = spans.tolist()
            tokens = [data[a:b] if a >= 0 else data[-1 - a : b].replace(b'""', b'"') for a, b in places]
        else:
            tokens = [data[a:b] for a, b in zip(spans[:, 0].tolist(), spans[:, 1].tolist(), strict=True)]
        codes = [table.setdefault(token, len(table)) for token in tokens]
        self.parts.append((np.array(codes, np.int32), False))
        new = list(itertools.islice(table, before, None))
        try:
            b"\n".join(new).decode()
        except UnicodeDecodeError:
            return next(token for token in new if not _is_text(token))
        return None

    def finish(self) -> tuple[np.ndarray, Ids]:
        """Return ``(indices, names)``: int32 indices in ascending order of the names."""
        if not self.table:
            numbers = [part for part, _ in self.parts]
            self.parts = []
            return compact(np.concatenate(numbers) if numbers else np.empty(0, np.int64))
        parts = [self._code(part) if whole else part for part, whole in self.parts]
        self.parts = []
        names = [name.decode() for name in self.table]
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), np.int32)
        rank[order] = np.arange(len(names), dtype=np.int32)
        return rank[np.concatenate(parts)], Ids([names[place] for place in order], check=False)

    def _code(self, numbers: np.ndarray) -> np.ndarray:
        values, place = np.unique(numbers, return_inverse=True)
        table = self.table
        codes = [table.setdefault(b"%d" % value, len(table)) for value in values.tolist()]
        return np.array(codes, np.int32)[place]


def _is_text(token: bytes) -> bool:
    try:
        token.decode()
    except UnicodeDecodeError:
        return False
    return True


def compact(numbers: np.ndarray) -> tuple[np.ndarray, Ids]:
    """Return ``(indices, names)`` of whole numbers: int32 positions among the distinct ones, in ascending order."""
    names, places = distinct(numbers)
    return places, Ids(names, check=False)


# -- whole texts ------------------------------------------------------------------------------------------------------


class _Reader:
    """Collects the ratings of one or more texts with one layout."""

    def __init__(self, parser: ChunkParser, netflix: bool | None, optional: bool, progress: BytesRead | None) -> None:
        self.parser, self.netflix, self.optional, self.progress = parser, netflix, optional, progress
        self.layout: RatingsLayout | None = None
        self.names = _Names(), _Names()
        self.movie = -1
        self.values: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        _parse(bytearray(b"0 0 0\n"), 6, RatingsLayout(0, 3), False)  # compiles in this thread, where Ctrl-C is noticed

    def read(self, path: str | os.PathLike[str] | BinaryIO, done: int = 0, total: int | None = None) -> int:
        """Add a whole text, after ``done`` of ``total`` bytes were read before. Return the bytes of this one."""
        self.movie = -1
        with Source(path) as source:
            total = source.total if total is None else total

            def told(buffer: bytearray, size: int) -> bool:
                return self.layout is not None or self._sniff(source, buffer, size)

            for chunk in self.parser.each(source, self._parse, told):
                self._add(source, chunk)
                if self.progress:
                    self.progress(done + chunk.done, total)
            if self.progress:
                self.progress(done + source.done, total)
            return source.done

    def _sniff(self, source: Source, buffer: bytearray, size: int) -> bool:
        """Determine the layout from the first chunk that is not all comments; return False for one that is."""
        first = next(iter(content_lines(buffer, size)), None)
        if first is None:
            return False
        told = sniff(buffer, size, self.netflix)
        if isinstance(told, str):
            raise self.parser.fault(source, buffer.count(10, 0, first[0]) + 1, told)
        self.layout = told
        return True

    def _parse(self, buffer: bytearray, size: int) -> _Block:
        assert self.layout is not None
        return _parse(buffer, size, self.layout, self.optional)

    def _add(self, source: Source, chunk: Chunk[_Block]) -> None:
        block = chunk.block
        if block.error:
            raise self.parser.fault(source, *block.error)
        if block.leading and self.movie < 0:
            line = chunk.buffer.count(10, 0, int(block.spans[0, 0])) + 1
            raise self.parser.fault(source, line, "a rating before any movie, expected a line such as 1:")
        block.sides[1][: block.leading] = self.movie
        self.movie = block.movie if block.movie >= 0 else self.movie
        data = b"" if all(block.whole) else bytes(memoryview(chunk.buffer)[: chunk.size])
        for side, names in enumerate(self.names):
            if block.whole[side]:
                names.add_numbers(block.sides[side])
            elif (wrong := names.add_tokens(data, block.spans[:, 2 * side : 2 * side + 2])) is not None:
                line = data.count(b"\n", 0, data.find(wrong)) + 1
                raise self.parser.fault(source, line, f"id {quoted(wrong)} is not UTF-8: convert the file first")
        self.values.append(block.values)
        if block.times is not None:
            self.times.append(block.times)

    def finish(self, label: str) -> Ratings:
        """Return all ratings read."""
        if not sum(map(len, self.values)):
            raise InputError(f"{label}:{max(self.parser.lines, 1)}: no ratings in it")
        (users, user_ids), (items, item_ids) = (names.finish() for names in self.names)
        times = np.concatenate(self.times) if self.times else None
        shape = len(user_ids), len(item_ids)
        return Ratings(users, items, np.concatenate(self.values), shape, times, user_ids, item_ids, check=False)


def parse_ratings(
    texts: list[str] | BinaryIO,
    *,
    netflix: bool | None = None,
    values: str = "required",
    workers: int | None = None,
    progress: BytesRead | None = None,
) -> Ratings:
    """Parse ratings of one or more files, one after another, or of a binary stream.

    Parameters
    ----------
    texts : list of paths, or binary stream
        Plain, or compressed by gzip, bzip2 or xz.
    netflix : bool, optional
        Ratings follow ``movie:`` lines; by default inferred from the first line.
    values : {"required", "optional"}
        Whether the rating field may be empty; it is then 0.
    workers : int, optional
        Threads that parse; by default one for each core available to this process, up to 8.
    progress : function, optional
        Called with (bytes done, their total or None).

    Returns
    -------
    Ratings
        In the order of the text, repeats included. With two columns, each line is a rating of 1. A fourth column is
        used as times if it holds numbers (truncated to whole ones) or dates (days since 1970); otherwise it is ignored,
        as are columns beyond it.

    Raises
    ------
    InputError
        ``name:line: what`` for the first wrong line, a damaged archive or a file without ratings.
    """
    with ChunkParser(workers or usual_workers(), CHUNK_BYTES) as parser:
        reader = _Reader(parser, netflix, values == "optional", progress)
        if not isinstance(texts, list):
            reader.read(texts)
            return reader.finish(str(getattr(texts, "name", "<stdin>")))
        total = sum(os.path.getsize(path) for path in texts) if len(texts) > 1 else None
        done = 0
        for path in texts:
            done += reader.read(path, done, total)
        return reader.finish(texts[0] if len(texts) == 1 else os.path.dirname(texts[0]))
