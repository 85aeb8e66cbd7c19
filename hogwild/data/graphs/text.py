"""Reads graphs from text: DIMACS maximum-flow problems, and lists of edges with a separate file of terminals.

Plain lines, of whole numbers and a short decimal, are parsed by compiled code (``parse_kernel.py``), 20 ns each. Any
other line is parsed in Python, in about two microseconds, so that every error can say which line and why; so are all
lines of a list of edges once a vertex has a name that is not a number. Compressed files are recognised by their first
bytes (``data/text/lines.py``). Vertices of a list of edges are numbered in ascending order of their names, as
everywhere.

The DIMACS format: Johnson, McGeoch (eds.), "Network Flows and Matching", 1993.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.parse_kernel import parse_edges
from hogwild.data.progress import BytesRead
from hogwild.data.ratings.ids import Ids, distinct
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.text.lines import ReadError, Source, chunks
from hogwild.data.text.tokens import shown_word
from hogwild.errors import InputError

CHUNK = 1 << 20  # bytes
SEPARATORS = (b"\t", b",", b";")  # the first that a line contains; else any white space
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,17}")
QUOTED = re.compile(rb'"[^"]*"')
COMMENTS = (b"#", b"%")
ARCS = 1 << 40
BEYOND = 10**18  # numeric names are below this


Taker = Callable[[bytearray, int, int, int], tuple[int, int]]


def lines(name: str, progress: BytesRead | None = None, take: Taker | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield ``(number, line)`` of all nonempty lines, without surrounding blanks; a tab may be an empty column.

    ``take(buffer, at, size, number)``, called before each line, may parse some lines itself: it returns where the next
    one begins, and how many lines come before that.

    Raises
    ------
    InputError
        If the file cannot be read to its end.
    """
    source, number = Source(name), 0
    try:
        for buffer, size in chunks(source, CHUNK, deque()):
            at = 0
            while at < size:
                at, number = (at, number) if take is None else take(buffer, at, size, number)
                if at == size:
                    break
                end = buffer.index(b"\n", at)
                line, at = bytes(memoryview(buffer)[at:end]), end + 1
                number += 1
                if line.strip():
                    yield number, line.strip(b" \r\v\f")
            if progress is not None:
                progress(source.done, source.total)
    except ReadError as error:
        raise InputError(f"{name}:{number + 1}: {error}") from None
    finally:
        source.close()


class _Edges:
    """Edges collected in flat arrays while reading."""

    def __init__(self) -> None:
        self.u, self.v, self.weights = array("q"), array("q"), array("d")
        most = CHUNK // 4 + 1  # most edges in a chunk
        self._room = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most)
        self.line = 0  # the last plain line

    def __len__(self) -> int:
        return len(self.u)

    def take(
        self, buffer: bytearray, at: int, size: int, number: int, separator: int, fields: int, low: int, high: int
    ) -> tuple[int, int]:
        """Parse the plain lines from ``at`` on, as :data:`Taker` says; the other arguments are the kernel's."""
        at, passed, last, n = parse_edges(buffer, at, size, separator, fields, low, high, *self._room)
        for column, found in zip((self.u, self.v, self.weights), self._room, strict=True):
            column.frombytes(found[:n].tobytes())  # type: ignore[attr-defined]
        self.line = number + last if n else self.line
        return at, number + passed

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.array(self.u, np.int64), np.array(self.v, np.int64), np.array(self.weights, np.float64)


class _Flow:
    """A maximum-flow problem being read; each kind of line has a method."""

    def __init__(self) -> None:
        self.n = self.m = -1
        self.ends: dict[bytes, int] = {}  # vertices of s and t
        self.arcs = _Edges()  # vertices from 1

    def take(self, buffer: bytearray, at: int, size: int, number: int) -> tuple[int, int]:
        """Parse plain arcs, which need no checks."""
        return self.arcs.take(buffer, at, size, number, 0, 4, 1, self.n) if self.n >= 0 else (at, number)

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

    def arc(self, words: list[bytes]) -> None:
        if len(words) != 4:
            raise ValueError(f"bad arc {shown_word(b' '.join(words))}: expected a FROM TO CAPACITY")
        self.arcs.u.append(self.vertex(words[1]) + 1)
        self.arcs.v.append(self.vertex(words[2]) + 1)
        self.arcs.weights.append(_weight(words[3]))

    def comment(self, words: list[bytes]) -> None:
        pass

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
    flow, number = _Flow(), 0
    kinds: dict[bytes, Callable[[list[bytes]], None]] = {
        b"a": flow.arc, b"c": flow.comment, b"n": flow.end, b"p": flow.problem,
    }  # fmt: skip
    for number, line in lines(name, progress, flow.take):
        words = line.split()
        try:
            if words[0] in kinds:
                kinds[words[0]](words)
            elif not line.startswith(b"c"):
                raise ValueError(f"bad line {shown_word(line)}: expected c, p, n or a first (DIMACS maximum flow)")
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from None
    number = max(number, flow.arcs.line)
    for end, what in ((b"s", "source"), (b"t", "sink")):
        if end not in flow.ends:
            raise InputError(f"{name}:{max(number, 1)}: no {what}: expected a line n VERTEX {end.decode()}")
    if len(flow.arcs) != flow.m:
        raise InputError(f"{name}:{number}: {len(flow.arcs)} arcs in it, but its problem line says {flow.m}")
    u, v, capacity = flow.arcs.arrays()
    ends = [flow.ends[b"s"], flow.ends[b"t"]]
    return _in_file(name, Graph.of, u - 1, v - 1, capacity, np.zeros(len(u)), flow.n, ends, [0, 1], title=name)


def read_edges(name: str, terminals: str, progress: BytesRead | None = None) -> Graph:
    """Read lines ``u v [weight]``, undirected, and from another file lines ``vertex label``.

    Columns are separated by tabs, commas, semicolons or white space, whichever the first line has, and may be quoted;
    columns after the third are ignored, and either all lines have a weight or none. Names are whole numbers or any
    text. A first line is a header if its weight is not a number, or if it has two words above whole numbers, but never
    if it begins with two whole numbers. Lines that start with ``#`` or ``%`` are comments.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    found = _List()
    for number, words in _table(name, "u v [weight]", progress, found.take):
        try:
            found.add(words)
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from None
    if not found.edges.weights:
        raise InputError(f"{name}:1: no edges in it: expected lines u v [weight]")
    (names, u, v, find), weight = found.numbered(), np.array(found.edges.weights, np.float64)
    vertices, labels = _read_terminals(terminals, find, name)
    label_names, label_numbers = _numbered(labels)
    return _in_file(
        name, Graph.of, u, v, weight, weight, len(names), vertices, label_numbers, len(label_names), title=name,
        ids=_ids(names), label_ids=_ids(label_names),
    )  # fmt: skip


class _List:
    """A list of edges being read: names are numbers, or text from the first that is not a number."""

    def __init__(self) -> None:
        self.edges, self.weighted = _Edges(), False
        self.names: tuple[list[bytes], list[bytes]] | None = None

    def take(self, buffer: bytearray, at: int, size: int, number: int, separator: bytes | None) -> tuple[int, int]:
        """Parse plain lines, as :data:`Taker`, while names are numbers."""
        if self.names is not None:
            return at, number
        how = (separator or b"\0")[0], 3 if self.weighted else 2, -BEYOND, BEYOND
        return self.edges.take(buffer, at, size, number, *how)

    def add(self, words: list[bytes]) -> None:
        """Add the edge of any line; raise ValueError for a wrong line."""
        if self.edges.weights and (len(words) > 2) != self.weighted:
            here, before = ("no weight", "one") if self.weighted else ("a weight", "none")
            raise ValueError(f"{here}, and {before} before it: expected u v in all lines, or u v weight")
        self.weighted = len(words) > 2
        self.edges.weights.append(_weight(words[2]) if self.weighted else 1.0)
        columns = self.edges.u, self.edges.v
        if self.names is None and not all(WHOLE.fullmatch(word) for word in words[:2]):
            self.names = [str(u).encode() for u in columns[0]], [str(v).encode() for v in columns[1]]
        for column, text, word in zip(columns, self.names or ([], []), words):
            if self.names is None:
                column.append(int(word))
            text.append(word)

    def numbered(self) -> tuple[Any, np.ndarray, np.ndarray, Callable[[bytes], int | None]]:
        """Return ``(names, u, v, find)``: ascending names, the edges' ends by number, and the lookup of a name."""
        if self.names is not None:
            words = self.names[0] + self.names[1]
            texts, numbers = _numbered(words)
            known = {word: int(number) for word, number in zip(words, numbers)}
            return texts, numbers[: len(self.edges.weights)], numbers[len(self.edges.weights) :], known.get
        u, v, _ = self.edges.arrays()
        names, places = distinct(np.concatenate((u, v)))
        numbers = places.astype(np.int64)

        def find(word: bytes) -> int | None:
            if not WHOLE.fullmatch(word):
                return None
            place = int(np.searchsorted(names, int(word)))
            return place if place < len(names) and names[place] == int(word) else None

        return names, numbers[: len(self.edges)], numbers[len(self.edges) :], find


def _read_terminals(name: str, find: Callable[[bytes], int | None], edges: str) -> tuple[np.ndarray, list[bytes]]:
    """Return the numbers of the terminals and the names of their labels."""
    found: dict[int, bytes] = {}
    try:
        for number, words in _table(name, "vertex label", None):
            if (vertex := find(words[0])) is None:
                raise InputError(f"{name}:{number}: vertex {shown_word(words[0])} has no edge in {edges}")
            label = words[1]
            if found.setdefault(vertex, label) != label:
                both = f"{shown_word(found[vertex])} and {shown_word(label)}"
                raise InputError(f"{name}:{number}: vertex {shown_word(words[0])} has two labels, {both}: expected one")
    except InputError as error:
        if str(error).endswith("no such file"):
            raise InputError(
                f"{name}: no such file: {edges} is a list of edges, so some vertices need labels, in lines vertex label"
            ) from None
        raise
    if len(set(found.values())) < 2:
        raise InputError(f"{name}:1: {len(set(found.values()))} labels in it: a cut needs terminals of two or more")
    return np.fromiter(found, np.int64, len(found)), list(found.values())


def _table(
    name: str, expected: str, progress: BytesRead | None,
    take: Callable[[bytearray, int, int, int, bytes | None], tuple[int, int]] | None = None,
) -> Iterator[tuple[int, list[bytes]]]:  # fmt: skip
    """Yield ``(line, words)`` of the lines of a table of two columns or more, without comments and header.

    ``take`` is as for :func:`lines` but also gets the separator; it is called once it is known whether there is a
    header.
    """
    separator, first = None, True
    held: list[tuple[int, list[bytes]]] = []  # the first line, until the second shows whether it is a header

    def further(buffer: bytearray, at: int, size: int, number: int) -> tuple[int, int]:
        return (at, number) if take is None or first or held else take(buffer, at, size, number, separator)

    for number, line in lines(name, progress, further):
        if line.lstrip().startswith(COMMENTS):
            continue
        _check_text(name, number, line)
        if first:
            unquoted = QUOTED.sub(b"", line)
            separator = next((mark for mark in SEPARATORS if mark in unquoted), None)
        words = _words(line, separator)
        if len(words) < 2 or not all(words[:2]):
            raise InputError(f"{name}:{number}: bad line {shown_word(line)}: expected {expected}")
        if first:
            held, first = [(number, words)], False
            continue
        if held and not _is_header(held[0][1], words):
            yield held[0]
        held = []
        yield number, words
    yield from held


def _check_text(name: str, number: int, line: bytes) -> None:
    if b"\0" in line:
        raise InputError(f"{name}:{number}: binary data {shown_word(line)}, expected text")
    try:
        line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{name}:{number}: {shown_word(line)} is not UTF-8: convert the file first") from None


def _words(line: bytes, separator: bytes | None) -> list[bytes]:
    """Return the columns of a line; quotes are parsed if there are any and a separator is known."""
    if separator is None or b'"' not in line:
        return [word.strip() for word in line.split(separator)]
    rows = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    try:
        return [word.strip().encode("latin-1") for word in next(rows)]
    except csv.Error:  # a field is longer than csv allows
        return [word.strip() for word in line.split(separator)]


def _is_header(words: list[bytes], below: list[bytes]) -> bool:
    """Return whether ``words`` name the columns: a weight that is no number above one, or text above numbers."""
    if all(WHOLE.fullmatch(word) for word in words[:2]):
        return False
    if len(words) > 2 and len(below) > 2:
        return not _is_number(words[2]) and _is_number(below[2])
    return not any(WHOLE.fullmatch(word) for word in words[:2]) and all(WHOLE.fullmatch(word) for word in below[:2])


def _is_number(word: bytes) -> bool:
    try:
        return math.isfinite(float(word)) and b"_" not in word
    except ValueError:
        return False


def _numbered(words: list[bytes]) -> tuple[list[Any], np.ndarray]:
    """Return the distinct names in ascending order, and the number of each word, (n,) int64."""
    different = set(words)
    key: Any = int if all(WHOLE.fullmatch(word) for word in different) else None
    order = sorted(different, key=key)
    place = {word: at for at, word in enumerate(order)}
    names = [int(word) if key else word.decode(errors="replace") for word in order]
    return names, np.fromiter(map(place.__getitem__, words), np.int64, len(words))


def _ids(names: Any) -> Ids | None:
    return None if np.array_equal(names, np.arange(len(names))) else Ids(names)


def _whole(word: bytes, low: int, high: int) -> int:
    if not WHOLE.fullmatch(word):
        raise ValueError(f"bad number {shown_word(word)}: expected a whole number")
    if not low <= int(word) <= high:
        raise ValueError(f"{int(word)} is outside {low} to {high}")
    return int(word)


def _weight(word: bytes) -> float:
    if not _is_number(word):
        raise ValueError(f"bad weight {shown_word(word)}: expected a finite number")
    weight = float(word)
    if not 0 <= weight <= float(np.finfo(np.float32).max):
        raise ValueError(f"weight {shown_word(word)}: expected 0 or more, within float32")
    return weight


def _in_file(name: str, make: Callable[..., Graph], *given: Any, **more: Any) -> Graph:
    """Return ``make(...)``; its errors name the file."""
    try:
        return make(*given, **more)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
