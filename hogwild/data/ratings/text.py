"""Parses ratings from text, plain or compressed: ``user item rating [time]`` in any usual layout, and Netflix's.

The first line that is not a comment determines the layout (``layout.py``), and every other line has to fit it, so a
mistake is reported where it is. Ids are whole numbers if all of a side are written as such; otherwise they are strings,
and ``7`` and ``07`` differ.

As for svmlight text, a pool of threads parses chunks of whole lines in a JIT kernel and results come back in file
order. Only strings need this thread, a dict, and some 0.3 us each. All ratings are held in memory until the last name
is known, 20 bytes each (28 with times), and then once more in their final form.
"""

from __future__ import annotations

import os
from functools import partial
from typing import BinaryIO

import numpy as np

from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.container import Ratings
from hogwild.data.ratings.ids import IdCollector
from hogwild.data.ratings.layout import SAID, content_lines, cut, sniff
from hogwild.data.text.fields import Fields, FieldsLayout, line_at, parse_fields
from hogwild.data.text.lines import Source
from hogwild.data.text.pipeline import CHUNK_BYTES, Chunk, ChunkParser, usual_workers
from hogwild.data.text.tokens import bad_number, quoted
from hogwild.errors import InputError

# -- error messages ---------------------------------------------------------------------------------------------------


def _token(buffer: bytearray, start: int, layout: FieldsLayout) -> bytes:
    """Return the field that begins at ``start``."""
    line = bytes(buffer[start : buffer.index(b"\n", start)])
    return (cut(line, layout.separator) or [b""])[0]


def _describe(buffer: bytearray, code: int, where: int, fields: int, layout: FieldsLayout) -> str:
    """Return what is wrong with a line the kernel refused."""
    from hogwild.data.text import fields_kernel as kernel

    if code == kernel.FIELDS:
        line = line_at(buffer, where)[1].strip()
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


# -- whole texts ------------------------------------------------------------------------------------------------------


class _Reader:
    """Collects the ratings of one or more texts with one layout."""

    def __init__(self, parser: ChunkParser, netflix: bool | None, optional: bool, progress: BytesRead | None) -> None:
        self.parser, self.netflix, self.optional, self.progress = parser, netflix, optional, progress
        self.layout: FieldsLayout | None = None
        self.names = IdCollector(), IdCollector()
        self.movie = -1
        self.values: list[np.ndarray] = []
        self.times: list[np.ndarray] = []
        parse_fields(bytearray(b"0 0 0\n"), 6, FieldsLayout(0, 3))  # compiles in this thread, where Ctrl-C is noticed

    def read(self, path: str | os.PathLike[str] | BinaryIO, done: int = 0, total: int | None = None) -> int:
        """Add a whole text, after ``done`` of ``total`` bytes were read before. Return the bytes of this one."""
        self.movie = -1
        with Source(path) as source:

            def told(at: int, own: int | None) -> None:
                if self.progress:
                    self.progress(done + at, total or own)

            for chunk in self.parser.each(source, self._parse, partial(self._sniff, source), told):
                self._add(source, chunk)
            return source.done

    def _sniff(self, source: Source, buffer: bytearray, size: int) -> bool:
        """Determine the layout from the first chunk that is not all comments; return False for one that is."""
        first = next(iter(content_lines(buffer, size)), None)
        if self.layout is not None or first is None:
            return self.layout is not None
        told = sniff(buffer, size, self.netflix)
        if isinstance(told, str):
            raise self.parser.fault(source, buffer.count(10, 0, first[0]) + 1, told)
        self.layout = told
        return True

    def _parse(self, buffer: bytearray, size: int) -> Fields:
        assert self.layout is not None
        return parse_fields(buffer, size, self.layout, self.optional)

    def _add(self, source: Source, chunk: Chunk[Fields]) -> None:
        block = chunk.block
        if block.fault:
            assert self.layout is not None
            code, where, fields = block.fault
            what = _describe(chunk.buffer, code, where, fields, self.layout)
            raise self.parser.fault(source, line_at(chunk.buffer, where)[0], what)
        if block.leading and self.movie < 0:
            line = chunk.buffer.count(10, 0, int(block.spans[0, 0])) + 1
            raise self.parser.fault(source, line, "a rating before any movie, expected a line such as 1:")
        block.numbers[1][: block.leading] = self.movie
        self.movie = block.movie if block.movie >= 0 else self.movie
        data = b"" if all(block.whole) else bytes(memoryview(chunk.buffer)[: chunk.size])
        for side, names in enumerate(self.names):
            if block.whole[side]:
                names.add_numbers(block.numbers[side])
            elif (wrong := names.add_tokens(data, block.spans[:, 2 * side : 2 * side + 2])) is not None:
                line = data.count(b"\n", 0, data.find(wrong)) + 1
                raise self.parser.fault(source, line, f"id {quoted(wrong)} is not UTF-8: convert the file first")
        self.values.append(block.values.astype(np.float32))
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
