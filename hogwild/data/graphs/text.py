"""Reads graphs from text: DIMACS maximum-flow problems, and lists of edges with a separate file of terminals.

Arcs and edges are lines of fields, which the kernel that reads ratings parses on several threads. Other lines of a flow
problem, the terminals, and what is wrong with a line are for plain Python. Compressed files are recognised by their
first bytes (``data/text/lines.py``). Vertices of a list of edges are numbered in ascending order of their names, as
everywhere.

The DIMACS format: Johnson, McGeoch (eds.), "Network Flows and Matching", 1993.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.ids import IdCollector, Ids
from hogwild.data.ratings.layout import content_lines, is_number
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.text.fields import PLAIN, Fields, FieldsLayout, line_at, parse_fields
from hogwild.data.text.lines import ReadError, Source, chunks
from hogwild.data.text.pipeline import CHUNK_BYTES, Chunk, ChunkParser, usual_workers
from hogwild.data.text.tokens import line_of, shown_word
from hogwild.errors import InputError

CHUNK = CHUNK_BYTES
SEPARATORS = (b"\t", b",", b";")  # the first that a line contains; else any white space
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,17}")
QUOTED = re.compile(rb'"[^"]*"')
COMMENTS = b"#%"
ARC = FieldsLayout(PLAIN, 4, 1, 2, 3)  # a FROM TO CAPACITY
ARCS = 1 << 40
LARGEST = float(np.finfo(np.float32).max)

Faults = list[tuple[int, str]]  # lines of a chunk, and what is wrong with them


def lines(name: str, progress: BytesRead | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number, line)`` of all nonempty lines, without surrounding blanks; a tab may be an empty column.

    Raises
    ------
    InputError
        If the file cannot be read to its end.
    """
    source, number = Source(name), 0
    try:
        for buffer, size in chunks(source, CHUNK, deque()):
            for line in bytes(memoryview(buffer)[: size - 1]).split(b"\n"):
                number += 1
                if line.strip():
                    yield number, line.strip(b" \r\v\f")
            if progress is not None:
                progress(source.done, source.total)
    except ReadError as error:
        raise InputError(f"{name}:{number + 1}: {error}") from None
    finally:
        source.close()


def _parsed(
    name: str,
    progress: BytesRead | None,
    parse: Callable[[bytearray, int], Fields],
    add: Callable[[Chunk[Fields]], Faults],
    ready: Callable[[bytearray, int], bool] | None = None,
) -> int:
    """Hand the chunks of a file, parsed on several threads, to ``add``; return the number of lines."""
    parse_fields(bytearray(b"\n"), 1, ARC)  # compiles in this thread, where Ctrl-C is noticed
    with Source(name) as source, ChunkParser(usual_workers(), CHUNK) as parser:
        for chunk in parser.each(source, parse, ready, progress):
            if faults := add(chunk):
                raise parser.fault(source, *min(faults))
        return parser.lines


def _faults(chunk: Chunk[Fields], wrong: np.ndarray, check: Callable[[bytes], None]) -> Faults:
    """Return the first line that the kernel refused or that is ``wrong``; ``check`` raises ValueError for it."""
    numbers = [] if chunk.block.fault is None else [line_at(chunk.buffer, chunk.block.fault[1])[0]]
    numbers += [line_of(chunk.buffer, int(np.argmax(wrong)), COMMENTS)] if wrong.any() else []
    if not numbers:
        return []
    line = bytes(chunk.buffer).split(b"\n", min(numbers))[min(numbers) - 1].strip(b" \r\v\f")
    try:
        check(line)
    except ValueError as error:
        return [(min(numbers), str(error))]
    return [(min(numbers), f"bad line {shown_word(line)}")]


# -- flow problems ----------------------------------------------------------------------------------------------------


class _Flow:
    """A maximum-flow problem being read."""

    def __init__(self) -> None:
        self.n = self.m = -1
        self.ends: dict[bytes, int] = {}  # vertices of s and t
        self.arcs: list[tuple[np.ndarray, ...]] = []  # vertices from 0, and capacities

    @staticmethod
    def parse(buffer: bytearray, size: int) -> Fields:
        text = np.frombuffer(buffer, np.uint8, size)
        ends = np.flatnonzero(text == 10)
        starts = np.concatenate(([0], ends[:-1] + 1))
        others = []
        for number in np.flatnonzero((text[starts] != ord("a")) | (text[np.minimum(starts + 1, ends)] > 32)).tolist():
            line = bytes(buffer[starts[number] : ends[number]]).strip(b" \r\v\f")
            if line.split()[:1] != [b"a"]:
                buffer[starts[number] : ends[number]] = b" " * int(ends[number] - starts[number])
                others.append((number + 1, line))
        arcs = parse_fields(buffer, size, ARC)
        arcs.others = [(number, line) for number, line in others if line.strip()]
        return arcs

    def add(self, chunk: Chunk[Fields]) -> Faults:
        """Take a chunk; return its first faults."""
        arcs, faults, known = chunk.block, [], 0 if self.n >= 0 else chunk.block.lines + 1
        for number, line in arcs.others:
            try:
                self.take(line)
            except ValueError as error:
                faults.append((number, str(error)))
                break
            known = min(known, number) if self.n >= 0 else known
        (u, v), weights = arcs.numbers, arcs.values
        wrong = (np.minimum(u, v) < 1) | (np.maximum(u, v) > self.n) | ~((weights >= 0) & (weights <= LARGEST))
        if known and len(u) and (first := line_of(chunk.buffer, 0, COMMENTS)) < known:
            return [*faults, (first, "no problem line before it: expected p max VERTICES ARCS first")]
        self.arcs.append((u - 1, v - 1, weights))
        return faults + _faults(chunk, wrong, self.check_arc)

    def take(self, line: bytes) -> None:
        """Take a line other than an arc; raise ValueError for a wrong one."""
        words = line.split()
        if words[0] == b"p":
            self.problem(words)
        elif words[0] == b"n":
            self.end(words)
        elif not line.startswith(b"c"):
            raise ValueError(f"bad line {shown_word(line)}: expected c, p, n or a first (DIMACS maximum flow)")

    def problem(self, words: list[bytes]) -> None:
        if self.n >= 0:
            raise ValueError("a second problem line: expected one")
        if len(words) != 4 or words[1] != b"max":
            raise ValueError(f"bad problem line {shown_word(b' '.join(words))}: expected p max VERTICES ARCS")
        self.n, self.m = _whole(words[2], 2, INDEX_LIMIT), _whole(words[3], 0, ARCS)

    def end(self, words: list[bytes]) -> None:
        if len(words) != 3 or words[2] not in (b"s", b"t"):
            raise ValueError(f"bad line {shown_word(b' '.join(words))}: expected n VERTEX s, or t")
        if words[2] in self.ends:
            raise ValueError(f"a second {'source' if words[2] == b's' else 'sink'}: expected one")
        vertex = self.vertex(words[1])
        if vertex in self.ends.values():
            raise ValueError(f"vertex {vertex + 1} is the source and the sink")
        self.ends[words[2]] = vertex

    def check_arc(self, line: bytes) -> None:
        words = line.split()
        if len(words) != 4:
            raise ValueError(f"bad arc {shown_word(b' '.join(words))}: expected a FROM TO CAPACITY")
        self.vertex(words[1])
        self.vertex(words[2])
        _check_weight(words[3])

    def vertex(self, word: bytes) -> int:
        if self.n < 0:
            raise ValueError("no problem line before it: expected p max VERTICES ARCS first")
        return _whole(word, 1, self.n) - 1


def read_dimacs(name: str, progress: BytesRead | None = None) -> Graph:
    """Read a DIMACS maximum-flow file: the source has label 0, the sink 1; vertices count from 1, here from 0.

    Arcs in both directions between two vertices become one edge, whose weight in each direction is the capacity.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    flow = _Flow()
    number = _parsed(name, progress, flow.parse, flow.add)
    for end, what in ((b"s", "source"), (b"t", "sink")):
        if end not in flow.ends:
            raise InputError(f"{name}:{max(number, 1)}: no {what}: expected a line n VERTEX {end.decode()}")
    u, v, capacity = (np.concatenate(parts) for parts in zip(*flow.arcs))
    if len(u) != flow.m:
        raise InputError(f"{name}:{number}: {len(u)} arcs in it, but its problem line says {flow.m}")
    ends = [flow.ends[b"s"], flow.ends[b"t"]]
    return _in_file(name, Graph.of, u, v, capacity, np.zeros(len(u)), flow.n, ends, [0, 1], title=name)


# -- lists of edges ---------------------------------------------------------------------------------------------------


def read_edges(name: str, terminals: str, progress: BytesRead | None = None) -> Graph:
    """Read lines ``u v [weight]``, undirected, and from another file lines ``vertex label``.

    Columns are separated by tabs, commas, semicolons or white space, whichever the first line has, and may be quoted
    unless white space separates them; columns after the third are ignored, and either all lines have a weight or none.
    Names are whole numbers or any text. A first line is a header if its weight is not a number, or if it has two words
    above whole numbers, but never if it begins with two whole numbers. Lines that start with ``#`` or ``%`` are
    comments.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    found = _List()
    _parsed(name, progress, found.parse, found.add, found.begin)
    if not found.weights:
        raise InputError(f"{name}:1: no edges in it: expected lines u v [weight]")
    ends, ids = found.names.finish()
    weight = np.concatenate(found.weights)
    vertices, labels = _read_terminals(terminals, ids, name)
    keys = np.array([int(label) if all(map(WHOLE.fullmatch, labels)) else label.decode() for label in labels], object)
    label_names, numbers = np.unique(keys, return_inverse=True)
    return _in_file(
        name,
        Graph.of,
        ends[0::2],
        ends[1::2],
        weight,
        weight,
        len(ids),
        vertices,
        numbers,
        len(label_names),
        title=name,
        ids=_unless_numbers(ids),
        label_ids=_unless_numbers(Ids(label_names.tolist())),
    )


class _List:
    """A list of edges being read."""

    def __init__(self) -> None:
        self.layout: FieldsLayout | None = None
        self.separator: bytes | None = None
        self.names = IdCollector()  # of both ends of each edge, one after the other
        self.weights: list[np.ndarray] = []

    def begin(self, buffer: bytearray, size: int) -> bool:
        """Find out the columns from the first lines, and overwrite a header; return False if there are none."""
        found = [] if self.layout else list(itertools.islice(content_lines(buffer, size, (b"#", b"%")), 2))
        if found:
            self.separator = _separator(found[0][1])
            rows = [_words(line, self.separator) for _, line in found]
            if _is_header(rows):
                start, end = found[0][0], buffer.index(b"\n", found[0][0])
                buffer[start:end] = b" " * (end - start)
                rows = rows[1:]
            code, weighted = ord(self.separator or chr(PLAIN)), len(rows[0]) > 2
            value = 2 if weighted else -2
            self.layout = FieldsLayout(code, 2 + weighted, value=value, comments=COMMENTS, more=weighted)
        return self.layout is not None

    def parse(self, buffer: bytearray, size: int) -> Fields:
        assert self.layout is not None
        return parse_fields(buffer, size, self.layout)

    def add(self, chunk: Chunk[Fields]) -> Faults:
        """Take a chunk; return its first fault."""
        fields = chunk.block
        wrong = ~((fields.values >= 0) & (fields.values <= LARGEST))
        if all(fields.whole):
            self.names.add_numbers(np.column_stack(fields.numbers).ravel())
        else:
            data = bytes(memoryview(chunk.buffer)[: chunk.size])
            if (word := self.names.add_tokens(data, fields.spans.reshape(-1, 2))) is not None:
                wrong |= (fields.spans[:, 1] > data.find(word)) | (fields.spans[:, 3] > data.find(word))
        if (zero := chunk.buffer.find(0, 0, chunk.size)) >= 0:  # perhaps in a column that is ignored
            begin, end = chunk.buffer.rfind(b"\n", 0, zero), chunk.buffer.find(b"\n", zero)
            wrong |= (fields.spans[:, 3] > begin) & (fields.spans[:, 3] < end)
        self.weights.append(fields.values)
        return _faults(chunk, wrong, self.check)

    def check(self, line: bytes) -> None:
        """Raise ValueError for a wrong line."""
        _check_text(line)
        words = _words(line, self.separator)
        if len(words) < 2 or not all(words[:2]):
            raise ValueError(f"bad line {shown_word(line)}: expected u v [weight]")
        if (weighted := self.layout is not None and self.layout.more) != (len(words) > 2):
            here, before = ("no weight", "one") if weighted else ("a weight", "none")
            raise ValueError(f"{here}, and {before} before it: expected u v in all lines, or u v weight")
        if weighted:
            _check_weight(words[2])


def _read_terminals(name: str, ids: Ids, edges: str) -> tuple[list[int], list[bytes]]:
    """Return the numbers of the terminals and the names of their labels."""
    try:
        table = list(_terminal_lines(name))
    except InputError as error:
        if str(error).endswith("no such file"):
            raise InputError(
                f"{name}: no such file: {edges} is a list of edges, so some vertices need labels, in lines vertex label"
            ) from None
        raise
    table = table[1:] if _is_header([words for _, words in table[:2]]) else table
    found: dict[int, bytes] = {}
    vertices = ids.lookup([words[0].decode() for _, words in table]).tolist()
    for (number, (word, label, *_)), vertex in zip(table, vertices):
        if vertex < 0:
            raise InputError(f"{name}:{number}: vertex {shown_word(word)} has no edge in {edges}")
        if found.setdefault(vertex, label) != label:
            both = f"{shown_word(found[vertex])} and {shown_word(label)}"
            raise InputError(f"{name}:{number}: vertex {shown_word(word)} has two labels, {both}: expected one")
    if len(set(found.values())) < 2:
        raise InputError(f"{name}:1: {len(set(found.values()))} labels in it: a cut needs terminals of two or more")
    return list(found), list(found.values())


def _terminal_lines(name: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield ``(line, words)`` of the lines of a table of two columns or more, without comments."""
    separator, first = None, True
    for number, line in lines(name):
        if line.lstrip()[:1] in COMMENTS:
            continue
        try:
            _check_text(line)
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from None
        separator, first = _separator(line) if first else separator, False
        words = _words(line, separator)
        if len(words) < 2 or not all(words[:2]):
            raise InputError(f"{name}:{number}: bad line {shown_word(line)}: expected vertex label")
        yield number, words


def _check_text(line: bytes) -> None:
    if b"\0" in line:
        raise ValueError(f"binary data {shown_word(line)}, expected text")
    try:
        line.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{shown_word(line)} is not UTF-8: convert the file first") from None


def _separator(line: bytes) -> bytes | None:
    """Return the separator of columns; None: white space."""
    unquoted = QUOTED.sub(b"", line)
    return next((mark for mark in SEPARATORS if mark in unquoted), None)


def _words(line: bytes, separator: bytes | None) -> list[bytes]:
    """Return the columns of a line; quotes are parsed if there are any and a separator is known."""
    if separator is None or b'"' not in line:
        return [word.strip() for word in line.split(separator)]
    rows = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    try:
        return [word.strip().encode("latin-1") for word in next(rows)]
    except csv.Error:  # a field is longer than csv allows
        return [word.strip() for word in line.split(separator)]


def _is_header(rows: list[list[bytes]]) -> bool:
    """Return whether the first row names the columns: a weight that is no number above one, or text above numbers."""
    if len(rows) < 2 or all(map(WHOLE.fullmatch, rows[0][:2])) or not all(rows[0][:2]):
        return False
    words, below = rows
    if len(below) < 2:  # which is wrong, and named as the first line that is
        return True
    if len(words) > 2 and len(below) > 2:
        return not is_number(words[2]) and is_number(below[2])
    return not any(map(WHOLE.fullmatch, words[:2])) and all(map(WHOLE.fullmatch, below[:2]))


def _unless_numbers(ids: Ids) -> Ids | None:
    """Return the names unless each is its own number."""
    return None if np.array_equal(ids.names(), np.arange(len(ids))) else ids


def _whole(word: bytes, low: int, high: int) -> int:
    if not WHOLE.fullmatch(word):
        raise ValueError(f"bad number {shown_word(word)}: expected a whole number")
    if not low <= int(word) <= high:
        raise ValueError(f"{int(word)} is outside {low} to {high}")
    return int(word)


def _check_weight(word: bytes) -> None:
    if not is_number(word) or not math.isfinite(float(word)):
        raise ValueError(f"bad weight {shown_word(word)}: expected a finite number")
    if not 0 <= float(word) <= LARGEST:
        raise ValueError(f"weight {shown_word(word)}: expected 0 or more, within float32")


def _in_file(name: str, make: Callable[..., Graph], *given: Any, **more: Any) -> Graph:
    """Return ``make(...)``; its errors name the file."""
    try:
        return make(*given, **more)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
