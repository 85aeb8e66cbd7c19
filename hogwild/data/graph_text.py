"""Graphs in text files: DIMACS maximum-flow problems, and lists of edges with a file of terminals beside them.

Lines are taken apart in Python, about two microseconds each, so that every error can say which line and why: a million
edges take some two seconds, and cutting them takes longer than that. Compressed files are told by their first
bytes (``text.py``). Vertices of a list of edges are numbered in the ascending order of their names, as everywhere.

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

from hogwild.data.examples import INDEX_LIMIT
from hogwild.data.graphs import Graph, Progress
from hogwild.data.rating_ids import Ids
from hogwild.data.text import ReadError, Source, chunks
from hogwild.errors import InputError

CHUNK = 1 << 20  # bytes
SEPARATORS = (b"\t", b",", b";")  # the first that a line holds; else any white space
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,17}")
QUOTED = re.compile(rb'"[^"]*"')
COMMENTS = (b"#", b"%")
ARCS = 1 << 40


def lines(name: str, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """``(number, line)`` of all lines that are not empty, without blanks around them; a tab may be an empty column.

    Raises
    ------
    InputError
        If the file cannot be read to its end.
    """
    source, number = Source(name), 0
    try:
        for buffer, size in chunks(source, CHUNK, deque()):
            for line in bytes(memoryview(buffer)[:size]).split(b"\n")[:-1]:
                number += 1
                if line.strip():
                    yield number, line.strip(b" \r\v\f")
            if progress is not None:
                progress(source.done, source.total)
    except ReadError as error:
        raise InputError(f"{name}:{number + 1}: {error}") from None
    finally:
        source.close()


class _Flow:
    """A maximum-flow problem as it is read; each kind of line is a method."""

    def __init__(self) -> None:
        self.n = self.m = -1
        self.ends: dict[bytes, int] = {}  # s and t, to their vertices
        self.u, self.v, self.capacity = array("q"), array("q"), array("d")

    def problem(self, words: list[bytes]) -> None:
        if self.n >= 0:
            raise ValueError("a second problem line: expected one")
        if len(words) != 4 or words[1] != b"max":
            raise ValueError(f"bad problem line {_quote(b' '.join(words))}: expected p max VERTICES ARCS")
        self.n, self.m = _whole(words[2], 2, INDEX_LIMIT), _whole(words[3], 0, ARCS)

    def end(self, words: list[bytes]) -> None:
        if len(words) != 3 or words[2] not in (b"s", b"t"):
            raise ValueError(f"bad line {_quote(b' '.join(words))}: expected n VERTEX s, or t")
        if words[2] in self.ends:
            raise ValueError(f"a second {'source' if words[2] == b's' else 'sink'}: expected one")
        vertex = self.vertex(words[1])
        if vertex in self.ends.values():
            raise ValueError(f"vertex {vertex + 1} is the source and the sink")
        self.ends[words[2]] = vertex

    def arc(self, words: list[bytes]) -> None:
        if len(words) != 4:
            raise ValueError(f"bad arc {_quote(b' '.join(words))}: expected a FROM TO CAPACITY")
        self.u.append(self.vertex(words[1]))
        self.v.append(self.vertex(words[2]))
        self.capacity.append(_weight(words[3]))

    def comment(self, words: list[bytes]) -> None:
        pass

    def vertex(self, word: bytes) -> int:
        if self.n < 0:
            raise ValueError("no problem line before it: expected p max VERTICES ARCS first")
        return _whole(word, 1, self.n) - 1


def read_dimacs(name: str, progress: Progress | None = None) -> Graph:
    """A DIMACS maximum-flow file: the source has label 0, the sink 1; vertices count from 1 in the file, from 0 here.

    Arcs that go both ways between two vertices become one edge, the weight of each direction being its capacity.

    Raises
    ------
    InputError
        Naming the file and the line.
    """
    flow, number = _Flow(), 0
    kinds: dict[bytes, Callable[[list[bytes]], None]] = {
        b"a": flow.arc, b"c": flow.comment, b"n": flow.end, b"p": flow.problem,
    }  # fmt: skip
    for number, line in lines(name, progress):
        words = line.split()
        try:
            if words[0] in kinds:
                kinds[words[0]](words)
            elif not line.startswith(b"c"):
                raise ValueError(f"bad line {_quote(line)}: expected c, p, n or a first (DIMACS maximum flow)")
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from None
    for end, what in ((b"s", "source"), (b"t", "sink")):
        if end not in flow.ends:
            raise InputError(f"{name}:{max(number, 1)}: no {what}: expected a line n VERTEX {end.decode()}")
    if len(flow.u) != flow.m:
        raise InputError(f"{name}:{number}: {len(flow.u)} arcs in it, but its problem line says {flow.m}")
    u, v = (np.frombuffer(end, np.int64) if len(end) else np.empty(0, np.int64) for end in (flow.u, flow.v))
    capacity = np.array(flow.capacity)
    ends = [flow.ends[b"s"], flow.ends[b"t"]]
    return _in_file(name, Graph.of, u, v, capacity, np.zeros(len(u)), flow.n, ends, [0, 1], title=name)


def read_edges(name: str, terminals: str, progress: Progress | None = None) -> Graph:
    """Lines ``u v [weight]``, undirected, and in another file lines ``vertex label``.

    Columns are parted by tabs, commas, semicolons or white space, whichever the first line has, and may be quoted;
    those behind the third are not looked at, and a weight is in all lines or in none. Names are whole numbers or any
    text. A first line whose weight is no number is a header, and so is one of two words over whole numbers; one that
    begins with two whole numbers is none. Lines that start with ``#`` or ``%`` are comments.

    Raises
    ------
    InputError
        Naming the file and the line.
    """
    us: list[bytes] = []
    vs: list[bytes] = []
    weights, weighted = array("d"), False
    for number, words in _table(name, "u v [weight]", progress):
        if us and (len(words) > 2) != weighted:
            here, before = ("no weight", "one") if weighted else ("a weight", "none")
            said = f"{here}, and {before} before it: expected u v in all lines, or u v weight"
            raise InputError(f"{name}:{number}: {said}")
        weighted = len(words) > 2
        us.append(words[0])
        vs.append(words[1])
        try:
            weights.append(_weight(words[2]) if len(words) > 2 else 1.0)
        except ValueError as error:
            raise InputError(f"{name}:{number}: {error}") from None
    if not us:
        raise InputError(f"{name}:1: no edges in it: expected lines u v [weight]")
    names, numbers = _numbered(us + vs)
    u, v = numbers[: len(us)], numbers[len(us) :]
    known = {word: int(number) for word, number in zip(us + vs, numbers)}
    vertices, labels = _read_terminals(terminals, known, name)
    label_names, label_numbers = _numbered(labels)
    weight = np.array(weights)
    return _in_file(
        name, Graph.of, u, v, weight, weight, len(names), vertices, label_numbers, len(label_names), title=name,
        ids=_ids(names), label_ids=_ids(label_names),
    )  # fmt: skip


def _read_terminals(name: str, known: dict[bytes, int], edges: str) -> tuple[np.ndarray, list[bytes]]:
    """Numbers of the terminals, and the names of their labels."""
    found: dict[int, bytes] = {}
    try:
        for number, words in _table(name, "vertex label", None):
            if words[0] not in known:
                raise InputError(f"{name}:{number}: vertex {_quote(words[0])} has no edge in {edges}")
            vertex, label = known[words[0]], words[1]
            if found.setdefault(vertex, label) != label:
                both = f"{_quote(found[vertex])} and {_quote(label)}"
                raise InputError(f"{name}:{number}: vertex {_quote(words[0])} has two labels, {both}: expected one")
    except InputError as error:
        if str(error).endswith("no such file"):
            raise InputError(
                f"{name}: no such file: {edges} is a list of edges, so some vertices need labels, in lines vertex label"
            ) from None
        raise
    if len(set(found.values())) < 2:
        raise InputError(f"{name}:1: {len(set(found.values()))} labels in it: a cut needs terminals of two or more")
    return np.fromiter(found, np.int64, len(found)), list(found.values())


def _table(name: str, expected: str, progress: Progress | None) -> Iterator[tuple[int, list[bytes]]]:
    """``(line, words)`` of the lines of a table of two columns or more, without comments and header."""
    separator, first = None, True
    held: list[tuple[int, list[bytes]]] = []  # the first line, until the second tells whether it is a header
    for number, line in lines(name, progress):
        if line.lstrip().startswith(COMMENTS):
            continue
        _check_text(name, number, line)
        if first:
            unquoted = QUOTED.sub(b"", line)
            separator = next((mark for mark in SEPARATORS if mark in unquoted), None)
        words = _words(line, separator)
        if len(words) < 2 or not all(words[:2]):
            raise InputError(f"{name}:{number}: bad line {_quote(line)}: expected {expected}")
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
        raise InputError(f"{name}:{number}: binary data {_quote(line)}, expected text")
    try:
        line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{name}:{number}: {_quote(line)} is not UTF-8: convert the file first") from None


def _words(line: bytes, separator: bytes | None) -> list[bytes]:
    """The columns of a line; quotes are looked into where there are any, and something separates."""
    if separator is None or b'"' not in line:
        return [word.strip() for word in line.split(separator)]
    rows = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    try:
        return [word.strip().encode("latin-1") for word in next(rows)]
    except csv.Error:  # a field that is longer than csv allows
        return [word.strip() for word in line.split(separator)]


def _is_header(words: list[bytes], below: list[bytes]) -> bool:
    """Whether ``words`` name the columns: a weight that is no number over one that is, or text over whole numbers."""
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
    """All different names in ascending order, and the number of each word's, (n,) int64."""
    different = set(words)
    key: Any = int if all(WHOLE.fullmatch(word) for word in different) else None
    order = sorted(different, key=key)
    place = {word: at for at, word in enumerate(order)}
    names = [int(word) if key else word.decode(errors="replace") for word in order]
    return names, np.fromiter(map(place.__getitem__, words), np.int64, len(words))


def _ids(names: list[Any]) -> Ids | None:
    return None if names == list(range(len(names))) else Ids(names)


def _whole(word: bytes, low: int, high: int) -> int:
    if not WHOLE.fullmatch(word):
        raise ValueError(f"bad number {_quote(word)}: expected a whole number")
    if not low <= int(word) <= high:
        raise ValueError(f"{int(word)} is outside {low} to {high}")
    return int(word)


def _weight(word: bytes) -> float:
    if not _is_number(word):
        raise ValueError(f"bad weight {_quote(word)}: expected a finite number")
    weight = float(word)
    if not 0 <= weight <= float(np.finfo(np.float32).max):
        raise ValueError(f"weight {_quote(word)}: expected 0 or more, within float32")
    return weight


def _quote(word: bytes) -> str:
    text = word.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _in_file(name: str, make: Callable[..., Graph], *given: Any, **more: Any) -> Graph:
    """``make(...)``, whose errors name the file."""
    try:
        return make(*given, **more)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
