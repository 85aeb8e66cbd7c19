"""Graphs by name: generated, or read from a file of any format."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.synthetic import generate_graph
from hogwild.data.graphs.text import read_dimacs, read_edges
from hogwild.data.parallel import BytesRead
from hogwild.data.rows.source import named
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import UsageError

DIMACS = re.compile(r"\.max(\.gz|\.bz2|\.xz)?$")


def open_graph(
    name: str | Path,
    *,
    terminals: str | Path | None = None,
    layout: TextLayout | None = None,
    cache: Any = None,
    progress: BytesRead | None = None,
) -> Graph:
    """Open a graph by name.

    Parameters
    ----------
    name : str or Path
        A DIMACS maximum-flow file (``.max``, also .gz, .bz2, .xz), a list of edges ``u v [weight]`` with a file of
        terminals beside it, a synthetic set such as ``synthetic:grid?side=128``, or, where no file is called so, a
        fetched set of the catalogue.
    terminals : path, optional
        Lines ``vertex label``, for a list of edges only; by default ``name`` with ``.terminals`` behind it.
    layout : TextLayout, optional
        Columns of a list of edges, its separator (by default that of its suffix: commas for .csv, blanks for .txt, else
        tabs), and whether a header names them.
    cache : optional
        Taken so that all readers are called alike; graphs are read anew each time, into memory.
    progress : function, optional
        Called now and then with how many bytes are read, and of how many.

    Returns
    -------
    Graph

    Raises
    ------
    InputError
        One line that names the file and the line: missing, unreadable, damaged, or breaking a rule of its format.

    See Also
    --------
    Graph : made from arrays.

    Examples
    --------
    >>> import hogwild
    >>> hogwild.open_graph("synthetic:grid?side=8")
    Graph(66 vertices, 173 edges, 2 labels, grid 8 x 8)
    """
    title, kind = named(name, "a graph", graph_format)
    if terminals is not None and kind != "edges":
        raise UsageError(f"{title}: terminals= goes with a list of edges; in {kind} graphs they are part of the data")
    if kind == "synthetic":
        return generate_graph(title)
    if kind == "dimacs":
        return read_dimacs(title, progress)
    return read_edges(title, title + ".terminals" if terminals is None else os.fspath(terminals), layout, progress)


def graph_format(name: str) -> str:
    """The format told from the name."""
    return "dimacs" if DIMACS.search(name) else "edges"
