"""Reads graphs from text: DIMACS maximum-flow problems, and lists of edges with a separate file of terminals.

Arcs and edges are rows of columns, which pyarrow parses; the lines before the arcs of a flow problem are parsed here.
Vertices of a list of edges are numbered in ascending order of their names, as everywhere.

The DIMACS format: Johnson, McGeoch (eds.), "Network Flows and Matching", 1993.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.parallel import BytesRead
from hogwild.data.ratings.ids import IdCollector, Ids
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.text.delimited import Delimited, TextLayout
from hogwild.data.text.lines import shown_word
from hogwild.errors import InputError

WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,17}")
ARCS = 1 << 40
LARGEST = float(np.finfo(np.float32).max)
WEIGHT = "expected a finite number, 0 or more, within float32"
EDGES = ("u", "v", "weight")
TERMINALS = ("vertex", "label")


# -- flow problems ----------------------------------------------------------------------------------------------------


class _Flow:
    """The lines of a maximum-flow problem before its arcs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n = -1
        self.m = -1
        self.ends: dict[bytes, int] = {}  # vertices of s and t

    def take(self, number: int, line: bytes) -> bool:
        """Take a line other than an arc, and return whether it was one."""
        words = line.split()
        try:
            if words[0] == b"p":
                self.problem(words)
            elif self.n < 0 and words[0] in (b"n", b"a"):
                raise ValueError("no problem line before it: expected p max VERTICES ARCS first")
            elif words[0] == b"n":
                self.end(words)
            elif words[0] != b"a" and not line.startswith(b"c"):
                raise ValueError(f"bad line {shown_word(line)}: expected c, p, n or a first (DIMACS maximum flow)")
        except ValueError as error:
            raise InputError(f"{self.name}:{number}: {error}") from None
        return words[0] != b"a"

    def problem(self, words: list[bytes]) -> None:
        if self.n >= 0:
            raise ValueError("a second problem line: expected one")
        if len(words) != 4 or words[1] != b"max":
            raise ValueError(f"bad problem line {shown_word(b' '.join(words))}: expected p max VERTICES ARCS")
        self.n = _whole(words[2], 2, INDEX_LIMIT)
        self.m = _whole(words[3], 0, ARCS)

    def end(self, words: list[bytes]) -> None:
        if len(words) != 3 or words[2] not in (b"s", b"t"):
            raise ValueError(f"bad line {shown_word(b' '.join(words))}: expected n VERTEX s, or t")
        if words[2] in self.ends:
            raise ValueError(f"a second {'source' if words[2] == b's' else 'sink'}: expected one")
        vertex = _whole(words[1], 1, self.n) - 1
        if vertex in self.ends.values():
            raise ValueError(f"vertex {vertex + 1} is the source and the sink")
        self.ends[words[2]] = vertex


def read_dimacs(name: str, progress: BytesRead | None = None) -> Graph:
    """Read a DIMACS maximum-flow file: the source has label 0, the sink 1; vertices count from 1, here from 0.

    Its comments, problem line and ends stand before the arcs, whose words are separated by single blanks. Arcs in both
    directions between two vertices become one edge, whose weight in each direction is the capacity.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    import pyarrow as pa

    flow = _Flow(name)
    table = Delimited(name, " ", lead=flow.take, progress=progress)
    table.names = ["line", "from", "to", "capacity"]
    whole = pa.int64()
    parts, rows = [np.empty((3, 0))], 0
    try:
        for end, noun in ((b"s", "source"), (b"t", "sink")):
            if end not in flow.ends:
                raise InputError(f"{name}:{table.first}: no {noun} before it: expected a line n VERTEX {end.decode()}")
        for batch in table.batches({"line": pa.string(), "from": whole, "to": whole, "capacity": pa.float64()}):
            arcs = np.stack([batch.column(k).fill_null(-1).to_numpy() for k in range(1, 4)])
            faults = [(batch.column("line").to_numpy(zero_copy_only=False) != "a", "line", "expected a")]
            for k, column in enumerate(("from", "to")):
                faults.append(((arcs[k] < 1) | (arcs[k] > flow.n), column, f"expected a vertex from 1 to {flow.n}"))
            faults.append((~((arcs[2] >= 0) & (arcs[2] <= LARGEST)), "capacity", WEIGHT))
            _refuse(table, rows, faults)
            parts.append(arcs)
            rows += len(batch)
    finally:
        table.close()
    if rows != flow.m:
        raise InputError(f"{name}: {rows} arcs in it, but its problem line says {flow.m}")
    u, v, capacity = np.concatenate(parts, axis=1)
    ends = [flow.ends[b"s"], flow.ends[b"t"]]
    ids = u.astype(np.int64) - 1, v.astype(np.int64) - 1
    return _graph(name, *ids, capacity, np.zeros(rows), flow.n, ends, [0, 1])


def _refuse(table: Delimited, rows: int, faults: list[tuple[np.ndarray, str, str]]) -> None:
    """Raise InputError for the first row that is wrong by one of ``faults``: a mask, the column, what it should be."""
    wrong = [(int(np.argmax(mask)), k) for k, (mask, _, _) in enumerate(faults) if mask.any()]
    if wrong:
        row, k = min(wrong)
        raise table.fault(rows + row, *faults[k][1:])


# -- lists of edges ---------------------------------------------------------------------------------------------------


def read_edges(name: str, terminals: str, layout: TextLayout | None = None, progress: BytesRead | None = None) -> Graph:
    """Read lines ``u v [weight]``, undirected, and from another file lines ``vertex label``.

    Names are whole numbers or any text. Leading lines that start with ``#`` or ``%`` are comments.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    import pyarrow as pa

    layout = layout or TextLayout()
    table, names = Delimited(name, layout.separator, progress=progress), IdCollector()
    weights: list[np.ndarray] = []
    try:
        table.lay_out(layout, EDGES, 2)
        types = {"u": pa.string(), "v": pa.string()} | ({"weight": pa.float64()} if "weight" in table.names else {})
        rows = 0
        for batch in table.batches(types):
            n = len(batch)
            empty = names.add(pa.concat_arrays([batch.column("u"), batch.column("v")]))
            at = np.arange(n)
            faults = [(at == empty, "u", "it is empty"), (at == empty - n, "v", "it is empty")]
            weight = batch.column("weight").fill_null(-1).to_numpy() if "weight" in types else np.ones(n)
            faults.append((~((weight >= 0) & (weight <= LARGEST)), "weight", WEIGHT))
            _refuse(table, rows, faults)
            weights.append(weight)
            rows += n
    finally:
        table.close()
    if not weights:
        raise InputError(f"{name}:{table.first}: no edges in it: expected lines u v [weight]")
    ends, ids = names.finish()
    starts = np.cumsum([0, *map(len, weights)])[:-1]
    u, v = np.concatenate(
        [ends[2 * at : 2 * (at + len(part))].reshape(2, -1) for at, part in zip(starts, weights)], axis=1
    )
    weight = np.concatenate(weights)
    vertices, labels = _read_terminals(terminals, layout.separator, ids, name)
    keys = np.array([int(label) if all(map(_is_whole, labels)) else label for label in labels], object)
    label_names, numbers = np.unique(keys, return_inverse=True)
    return _graph(
        name,
        u,
        v,
        weight,
        weight,
        len(ids),
        vertices,
        numbers,
        len(label_names),
        ids=_unless_numbers(ids),
        label_ids=_unless_numbers(Ids(label_names.tolist())),
    )


def _read_terminals(name: str, separator: str | None, ids: Ids, edges: str) -> tuple[list[int], list[str]]:
    """Return the numbers of the terminals and the names of their labels."""
    import pyarrow as pa

    try:
        table = Delimited(name, separator)
    except InputError as error:
        if str(error).endswith("no such file"):
            raise InputError(
                f"{name}: no such file: {edges} is a list of edges, so some vertices need labels, in lines vertex label"
            ) from None
        raise
    labels: dict[int, str] = {}
    try:
        table.lay_out(TextLayout(), TERMINALS, 2)
        rows = [
            (word.strip(), label.strip())
            for batch in table.batches(dict.fromkeys(TERMINALS, pa.string()))
            for word, label in zip(*(column.to_pylist() for column in batch.columns))
        ]
        for row, vertex in enumerate(ids.lookup([word for word, _ in rows]).tolist()):
            word, label = rows[row]
            if vertex < 0:
                raise table.fault(row, "vertex", f"it has no edge in {edges}")
            if not label:
                raise table.fault(row, "label", "it is empty")
            if labels.setdefault(vertex, label) != label:
                raise table.fault(row, "label", f"vertex {shown_word(word)} has label {shown_word(labels[vertex])} too")
    finally:
        table.close()
    if len(set(labels.values())) < 2:
        raise InputError(f"{name}:1: {len(set(labels.values()))} labels in it: a cut needs terminals of two or more")
    return list(labels), list(labels.values())


def _unless_numbers(ids: Ids) -> Ids | None:
    """Return the names unless each is its own number."""
    return None if np.array_equal(ids.names(), np.arange(len(ids))) else ids


def _is_whole(label: str) -> bool:
    return WHOLE.fullmatch(label.encode()) is not None


def _whole(word: bytes, low: int, high: int) -> int:
    if not WHOLE.fullmatch(word):
        raise ValueError(f"bad number {shown_word(word)}: expected a whole number")
    if not low <= int(word) <= high:
        raise ValueError(f"{int(word)} is outside {low} to {high}")
    return int(word)


def _graph(name: str, *arrays: Any, **more: Any) -> Graph:
    """Return the graph of a file; errors name it."""
    try:
        return Graph(*arrays, **more | {"title": name})
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
