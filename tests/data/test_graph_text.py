"""DIMACS files and lists of edges: what they mean, and what is said of damaged ones."""

from __future__ import annotations

import pytest

from hogwild.data.graphs.source import open_graph
from hogwild.data.text.delimited import TextLayout
from hogwild.errors import InputError
from tests.runs import line_of

FLOW = """c a comment
c
p max 4 5
n 1 s
n 4 t
a 1 2 3.5
a 2 3 1
a 3 2 2

a 2 3 4
a 3 4 10"""


def write(folder, text, name="x.max"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
    return str(path)


def test_a_flow_problem(tmp_path):
    graph = open_graph(write(tmp_path, FLOW))
    assert (graph.n_vertices, graph.n_labels) == (4, 2)
    assert list(zip(graph.u, graph.v, graph.forward, graph.backward)) == [(0, 1, 3.5, 0), (1, 2, 5, 2), (2, 3, 10, 0)]
    assert (graph.terminals.tolist(), graph.terminal_labels.tolist()) == ([0, 3], [0, 1])
    assert not graph.undirected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "p max 4 5",
            "p min 4 5",
            "3: bad line 'p min 4 5': expected c, p max VERTICES ARCS, n VERTEX s and n VERTEX t, each once, then arcs",
        ),
        ("p max 4 5", "c", "4: bad line 'n 1 s'"),
        ("p max 4 5", "p max 4 5\np max 4 5", "4: bad line 'p max 4 5'"),
        ("p max 4 5", "p max 4 6", " 5 arcs in it, but its problem line says 6"),
        ("p max 4 5", "p max 1 5", "3: bad line 'p max 1 5'"),
        ("n 4 t", "n 5 t", "5: bad line 'n 5 t'"),
        ("n 4 t", "n 4 s", "5: bad line 'n 4 s'"),
        ("n 4 t", "c", "6: a flow problem needs lines p max VERTICES ARCS, n VERTEX s and n VERTEX t before"),
        ("a 2 3 1", "a 2 3", "7: 3 fields in 'a 2 3', expected line,from,to,capacity separated by single blanks"),
        ("a 2 3 1", "a 0 3 1", "7: bad from '0': expected a vertex from 1 to 4"),
        ("a 2 3 1", "a 2 3 inf", "7: bad capacity 'inf': expected a finite number"),
        ("a 2 3 1", "e 2 3 1", "7: bad line 'e': expected a"),
    ],
)
def test_what_is_wrong_with_a_flow_problem(tmp_path, old, new, message):
    assert old in FLOW
    path = write(tmp_path, FLOW.replace(old, new, 1))
    assert line_of(InputError, open_graph, path).startswith(f"{path}:{message}")


def test_an_empty_file_and_one_that_is_missing(tmp_path):
    with pytest.raises(InputError, match="none.max: no such file"):
        open_graph(tmp_path / "none.max")
    with pytest.raises(InputError, match="empty.max:1: a flow problem needs lines p max"):
        open_graph(write(tmp_path, "", "empty.max"))


EDGES = [("10", "7", "2.5"), ("7", "-3", "1"), ("10", "-3", "4"), ("7", "10", "0.5")]
TERMINALS = "10\t1\n-3\t0\n"


def edges(folder, separator="\t", head="", rows=EDGES, terminals=TERMINALS):
    (folder / "e.tsv.terminals").write_text(terminals)
    return write(folder, head + "".join(separator.join(row) + "\n" for row in rows), "e.tsv")


@pytest.mark.parametrize("separator", [" ", " , "])
@pytest.mark.parametrize("head", ["", "% x\n\nfrom{0}to{0}w\n"])
def test_a_list_of_edges(tmp_path, separator, head):
    path = edges(tmp_path, separator, head.format(separator), terminals=TERMINALS.replace("\t", separator))
    graph = open_graph(path, layout=TextLayout(separator=separator.strip(" ") or "blank"))
    assert graph.undirected
    assert graph.ids.names().tolist() == [-3, 7, 10]
    assert list(zip(graph.u, graph.v, graph.forward)) == [(1, 2, 3.0), (0, 1, 1.0), (0, 2, 4.0)]
    assert (graph.terminals.tolist(), graph.terminal_labels.tolist()) == ([2, 0], [1, 0])
    assert graph.label_ids is None


def test_names_and_labels_of_any_kind_columns_beyond_and_no_weights(tmp_path):
    rows = [("Zoë", "b"), ("b", "a 1"), ("a 1", "Zoë")]
    graph = open_graph(edges(tmp_path, rows=rows, terminals="b\tdog\nZoë\tcat\n"))
    assert graph.ids.names().tolist() == ["Zoë", "a 1", "b"]
    assert graph.label_ids.names().tolist() == ["cat", "dog"]
    assert (graph.forward == 1).all()
    found = dict(zip(graph.ids.names(graph.terminals), graph.label_ids.names(graph.terminal_labels)))
    assert found == {"b": "dog", "Zoë": "cat"}
    more = open_graph(edges(tmp_path, rows=[(*row, "0", "x") for row in EDGES]))
    assert len(more) == 3
    turned = edges(tmp_path, rows=[(w, v, "x", u) for u, v, w in EDGES])
    assert len(open_graph(turned, layout=TextLayout("weight,v,-,u"))) == 3
    whole = open_graph(edges(tmp_path, rows=[("0", "1"), ("1", "2")], terminals="0\t0\n2\t1\n"))
    assert whole.ids is None
    signed = open_graph(edges(tmp_path, rows=[("-0", "0"), ("0", "2")], terminals="-0\ta\n2\tb\n"))
    assert signed.ids.names().tolist() == ["-0", "0", "2"]
    rows = [('"a, x"', "b", "1"), ('"b"', '"c ""d"""', "2")]
    quoted = edges(tmp_path, ",", rows=rows, terminals='"a, x",0\n"c ""d""",1\n')
    graph = open_graph(quoted, layout=TextLayout(separator=","))
    assert graph.ids.names().tolist() == ["a, x", "b", 'c "d"']
    assert graph.forward.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [*EDGES, ("3",)]}, "e.tsv:5: 1 field in '3', expected u,v,weight separated by tabs; --columns"),
        (
            {"rows": [*EDGES, ("3", "4", "inf")]},
            "e.tsv:5: bad weight 'inf': expected a finite number, 0 or more, within",
        ),
        ({"rows": []}, "e.tsv:1: no edges in it: expected lines u v [weight]"),
        ({"terminals": "10\t1\n-3\t\n"}, "e.tsv.terminals:2: bad label '': it is empty"),
        ({"terminals": "10\t1\n11\t0\n"}, "e.tsv.terminals:2: bad vertex '11': it has no edge in"),
        ({"terminals": "10\t1\n7\t0\n10\t0\n"}, "e.tsv.terminals:3: bad vertex '10': it has a label already"),
        ({"terminals": "10\t1\n7\t1\n"}, "e.tsv: 1 labels: a cut needs two or more, each with a terminal"),
    ],
)
def test_what_is_wrong_with_a_list_of_edges(tmp_path, change, message):
    path = edges(tmp_path, **change)
    assert line_of(InputError, open_graph, path).startswith(f"{tmp_path}/{message}")


def test_terminals_must_be_somewhere(tmp_path):
    path = edges(tmp_path)
    (tmp_path / "e.tsv.terminals").rename(tmp_path / "t.tsv")
    with pytest.raises(
        InputError,
        match="e.tsv.terminals: no such file; .* needs lines VERTEX LABEL there: name it by terminals",
    ):
        open_graph(path)
    assert len(open_graph(path, terminals=tmp_path / "t.tsv")) == 3
