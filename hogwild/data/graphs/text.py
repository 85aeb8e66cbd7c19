"""Reads graphs from text: DIMACS maximum-flow problems, and lists of edges with a separate file of terminals.

Arcs and edges are rows of columns, which pyarrow parses; the lines before the arcs of a flow problem are parsed here.
Vertices of a list of edges are numbered in ascending order of their names, as everywhere.

The DIMACS format: Johnson, McGeoch (eds.), "Network Flows and Matching", 1993.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from hogwild.data.graphs.container import Graph
from hogwild.data.ids import IdCollector, Ids
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.container import INDEX_LIMIT
from hogwild.data.text.delimited import FLOAT32_END, Delimited, Numbers, TextLayout
from hogwild.data.text.lines import shown_word
from hogwild.errors import InputError, naming

HEAD = re.compile(rb"p max (\d{1,17}) (\d{1,17})|n (\d{1,17}) ([st])|(a)( .*)?|c.*")
WEIGHTS = 0.0, FLOAT32_END, "expected a finite number, 0 or more, within float32"
EDGES = ("u", "v", "weight")
TERMINALS = ("vertex", "label")


# -- flow problems ----------------------------------------------------------------------------------------------------


class _Flow:
    """The lines of a maximum-flow problem before its arcs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes: tuple[int, int] | None = None  # vertices, arcs
        self.ends: dict[str, int] = {}  # vertices of s and t

    def take(self, number: int, line: bytes) -> bool:
        """Take a line other than an arc, and return whether it was one."""
        match = HEAD.fullmatch(b" ".join(line.split()))
        good = match is not None
        if match is not None and match[1]:
            good = self.sizes is None and 2 <= int(match[1]) <= INDEX_LIMIT
            self.sizes = int(match[1]), int(match[2])
        elif match is not None and match[3]:
            vertex, end = int(match[3]) - 1, match[4].decode()
            ends = self.ends | {end: vertex}
            good = self.sizes is not None and 0 <= vertex < self.sizes[0]
            good = good and end not in self.ends and len(set(ends.values())) == len(ends)
            self.ends = ends
        if not good:
            order = "c, p max VERTICES ARCS, n VERTEX s and n VERTEX t, each once, then arcs"
            raise InputError(f"{self.name}:{number}: bad line {shown_word(line)}: expected {order}")
        return not (match and match[5])


def read_dimacs(name: str, progress: BytesRead | None = None) -> Graph:
    """Read a DIMACS maximum-flow file: the source has label 0, the sink 1; vertices count from 1, here from 0.

    Its comments, problem line and ends stand before the arcs, whose words are separated by single blanks. Arcs in both
    directions between two vertices become one edge, whose weight in each direction is the capacity.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    flow = _Flow(name)
    table = Delimited(name, " ", lead=flow.take, progress=progress)
    table.names = ["line", "from", "to", "capacity"]
    if len(flow.ends) < 2 or flow.sizes is None:
        table.close()
        needed = "p max VERTICES ARCS, n VERTEX s and n VERTEX t"
        raise InputError(f"{name}:{table.first}: a flow problem needs lines {needed} before its arcs")
    vertices, count = flow.sizes
    expected = f"expected a vertex from 1 to {vertices}"
    u, v = (Numbers(1, vertices + 1, expected, "int64") for _ in "uv")
    capacity = Numbers(*WEIGHTS)
    rows = table.collect({"line": IdCollector("a"), "from": u, "to": v, "capacity": capacity})
    if rows != count:
        raise InputError(f"{name}: {rows} arcs in it, but its problem line says {count}")
    arcs = u.finish(np.int64) - 1, v.finish(np.int64) - 1, capacity.finish(np.float64), np.zeros(rows)
    with naming(name):
        return Graph(*arcs, vertices, [flow.ends["s"], flow.ends["t"]], [0, 1], title=name)


# -- lists of edges ---------------------------------------------------------------------------------------------------


def read_edges(name: str, terminals: str, layout: TextLayout | None = None, progress: BytesRead | None = None) -> Graph:
    """Read lines ``u v [weight]``, undirected, and from another file lines ``vertex label``.

    Names are whole numbers or any text. Leading lines that start with ``#`` or ``%`` are comments.

    Raises
    ------
    InputError
        The message names the file and the line.
    """
    layout = layout or TextLayout()
    table = Delimited(name, layout.separator, progress=progress)
    wanted: dict[str, Any] = {"u": IdCollector(), "v": IdCollector()}
    table.lay_out(layout, EDGES, 2)
    if "weight" in table.names:
        wanted["weight"] = Numbers(*WEIGHTS)
    rows = table.collect(wanted)
    if not rows:
        raise InputError(f"{name}:{table.first}: no edges in it: expected lines u v [weight]")
    both = IdCollector()
    both.parts = wanted["u"].parts + wanted["v"].parts
    indices, ids = both.finish()
    u, v = indices.reshape(2, -1)
    weight = wanted["weight"].finish(np.float64) if "weight" in wanted else np.ones(rows)
    vertices, labels, label_ids = _read_terminals(terminals, layout.separator, ids, name)
    named: dict[str, Any] = {"ids": _unless_numbers(ids), "label_ids": _unless_numbers(label_ids), "title": name}
    with naming(name):
        return Graph(u, v, weight, weight, len(ids), vertices, labels, len(label_ids), **named)


def _read_terminals(name: str, separator: str | None, ids: Ids, edges: str) -> tuple[np.ndarray, np.ndarray, Ids]:
    """Return the numbers of the terminals and of their labels, and the names of the labels."""
    if not os.path.exists(name):
        hint = "name it by terminals (--terminals FILE)"
        raise InputError(f"{name}: no such file; {edges} needs lines VERTEX LABEL there: {hint}")
    table, words, names = Delimited(name, separator), IdCollector(), IdCollector()
    table.lay_out(TextLayout(), TERMINALS, 2)
    table.collect({"vertex": words, "label": names})
    (codes, own), (labels, label_ids) = words.finish(), names.finish()
    vertices = ids.lookup(own.names())[codes]
    if (vertices < 0).any():
        raise table.fault(int(np.argmin(vertices)), "vertex", f"it has no edge in {edges}")
    _, first = np.unique(vertices, return_index=True)
    if len(first) < len(vertices):
        again = np.setdiff1d(np.arange(len(vertices)), first)
        raise table.fault(int(again[0]), "vertex", "it has a label already")
    return vertices, labels, label_ids


def _unless_numbers(ids: Ids) -> Ids | None:
    """Return the names unless each is its own number."""
    return None if np.array_equal(ids.names(), np.arange(len(ids))) else ids
