"""DIMACS files and lists of edges: what they mean, and what is said of damaged ones."""

from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs import text as graph_text
from hogwild.data.graphs.source import open_graph
from hogwild.errors import HogwildWarning, InputError

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
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_flow_problem(tmp_path):
    graph = open_graph(write(tmp_path, FLOW))
    assert (graph.n_vertices, graph.n_labels) == (4, 2)
    assert list(zip(graph.u, graph.v, graph.forward, graph.backward)) == [(0, 1, 3.5, 0), (1, 2, 5, 2), (2, 3, 10, 0)]
    assert (graph.terminals.tolist(), graph.terminal_labels.tolist()) == ([0, 3], [0, 1])
    assert not graph.undirected


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_compressed_and_windows_files(tmp_path, ending, pack):
    plain = open_graph(write(tmp_path, FLOW))
    other = open_graph(write(tmp_path, pack(FLOW.replace("\n", "\r\n").encode()), "y.max" + ending))
    for a, b in zip(plain.sample_arrays(), other.sample_arrays()):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("p max 4 5", "p min 4 5", "3: bad problem line 'p min 4 5': expected p max VERTICES ARCS"),
        ("p max 4 5", "c", "4: no problem line before it"),
        ("p max 4 5", "p max 4 5\np max 4 5", "4: a second problem line"),
        ("p max 4 5", "p max 4 6", "11: 5 arcs in it, but its problem line says 6"),
        ("p max 4 5", "p max 1 5", "3: 1 is outside 2 to 2147483647"),
        ("n 4 t", "n 5 t", "5: 5 is outside 1 to 4"),
        ("n 4 t", "n 4 s", "5: a second source: expected one"),
        ("n 4 t", "n 1 t", "5: vertex 1 is the source and the sink"),
        ("n 4 t", "n 4 q", "5: bad line 'n 4 q': expected n VERTEX s, or t"),
        ("n 4 t", "c", "11: no sink: expected a line n VERTEX t"),
        ("n 1 s", "c", "11: no source"),
        ("a 2 3 1", "a 2 3", "7: bad arc 'a 2 3': expected a FROM TO CAPACITY"),
        ("a 2 3 1", "a 0 3 1", "7: 0 is outside 1 to 4"),
        ("a 2 3 1", "a two 3 1", "7: bad number 'two': expected a whole number"),
        ("a 2 3 1", "a 2 3 inf", "7: bad weight 'inf': expected a finite number"),
        ("a 2 3 1", "a 2 3 -1", "7: weight '-1': expected 0 or more"),
        ("a 2 3 1", "a 2 3 1e39", "7: weight '1e39': expected 0 or more, within float32"),
        ("a 2 3 1", "e 2 3 1", "7: bad line 'e 2 3 1': expected c, p, n or a first"),
    ],
)
def test_what_is_wrong_with_a_flow_problem(tmp_path, old, new, message):
    assert old in FLOW
    path = write(tmp_path, FLOW.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        open_graph(path)
    assert str(caught.value).startswith(f"{path}:{message}")


def test_arcs_from_a_vertex_to_itself_are_dropped(tmp_path):
    path = write(tmp_path, FLOW.replace("a 2 3 1", "a 2 2 1"))
    with pytest.warns(HogwildWarning, match="x.max: 1 edges from a vertex to itself"):
        assert len(open_graph(path)) == 3


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="none.max: no such file"):
        open_graph(tmp_path / "none.max")
    with pytest.raises(InputError, match="empty.max:1: no source"):
        open_graph(write(tmp_path, "", "empty.max"))
    text = "c\n" * 5 + FLOW + "\nc " + "".join(map(chr, np.random.default_rng(0).integers(32, 120, size=9999)))
    packed = gzip.compress(text.encode())
    with pytest.raises(InputError, match=r"cut.max.gz:\d+: the archive is truncated"):
        open_graph(write(tmp_path, packed[: len(packed) // 2], "cut.max.gz"))


EDGES = [("10", "7", "2.5"), ("7", "-3", "1"), ("10", "-3", "4"), ("7", "10", "0.5")]
TERMINALS = "10 1\n-3 0\n"


def edges(folder, separator=" ", head="", rows=EDGES, terminals=TERMINALS):
    (folder / "e.tsv.terminals").write_text(terminals)
    return write(folder, head + "".join(separator.join(row) + "\n" for row in rows), "e.tsv")


@pytest.mark.parametrize("separator", [" ", "\t", ",", ";", " , ", "   "])
@pytest.mark.parametrize("head", ["", "# a comment\n", "u{0}v{0}weight\n", "% x\n\nfrom{0}to{0}w\n"])
def test_a_list_of_edges(tmp_path, separator, head):
    graph = open_graph(edges(tmp_path, separator, head.format(separator)))
    assert graph.undirected
    assert graph.ids.names().tolist() == [-3, 7, 10]
    assert list(zip(graph.u, graph.v, graph.forward)) == [(1, 2, 3.0), (0, 1, 1.0), (0, 2, 4.0)]
    assert (graph.terminals.tolist(), graph.terminal_labels.tolist()) == ([2, 0], [1, 0])
    assert graph.label_ids is None


def test_names_and_labels_of_any_kind_columns_beyond_and_no_weights(tmp_path):
    rows = [("Zoë", "b"), ("b", "a 1"), ("a 1", "Zoë")]
    graph = open_graph(edges(tmp_path, "\t", rows=rows, terminals="b\tdog\nZoë\tcat\n"))
    assert graph.ids.names().tolist() == ["Zoë", "a 1", "b"]
    assert graph.label_ids.names().tolist() == ["cat", "dog"]
    assert (graph.forward == 1).all()
    found = dict(zip(graph.ids.names(graph.terminals), graph.label_ids.names(graph.terminal_labels)))
    assert found == {"b": "dog", "Zoë": "cat"}
    more = open_graph(edges(tmp_path, rows=[(*row, "0", "x") for row in EDGES]))
    assert len(more) == 3
    whole = open_graph(edges(tmp_path, rows=[("0", "1"), ("1", "2")], terminals="0 0\n2 1\n"))
    assert whole.ids is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [*EDGES, ("3",)]}, "e.tsv:5: bad line '3': expected u v [weight]"),
        ({"rows": [*EDGES, ("3", "4", "x")]}, "e.tsv:5: bad weight 'x': expected a finite number"),
        ({"rows": [*EDGES, ("3", "4", "-1")]}, "e.tsv:5: weight '-1': expected 0 or more, within float32"),
        ({"rows": []}, "e.tsv:1: no edges in it: expected lines u v [weight]"),
        ({"rows": [], "head": "# only\n"}, "e.tsv:1: no edges in it"),
        ({"terminals": "10 1\n-3\n"}, "e.tsv.terminals:2: bad line '-3': expected vertex label"),
        ({"terminals": "10 1\n11 0\n"}, "e.tsv.terminals:2: vertex '11' has no edge in"),
        (
            {"terminals": "10 1\n7 0\n10 0\n"},
            "e.tsv.terminals:3: vertex '10' has two labels, '1' and '0': expected",
        ),
        ({"terminals": "10 1\n7 1\n"}, "e.tsv.terminals:1: 1 labels in it: a cut needs terminals of two or more"),
    ],
)
def test_what_is_wrong_with_a_list_of_edges(tmp_path, change, message):
    path = edges(tmp_path, **change)
    with pytest.raises(InputError) as caught:
        open_graph(path)
    assert str(caught.value).startswith(str(tmp_path / message))


def test_terminals_must_be_somewhere(tmp_path):
    path = edges(tmp_path)
    (tmp_path / "e.tsv.terminals").rename(tmp_path / "t.txt")
    with pytest.raises(InputError, match="e.tsv.terminals: no such file: .* is a list of edges, so some vertices need"):
        open_graph(path)
    assert len(open_graph(path, terminals=tmp_path / "t.txt")) == 3


LINES = [
    "1 2 3",
    "-4 0 0.25",
    " 7\t8   9.5  ",
    "5 6 1e-3",
    "5 6 .5",
    "5 6 4.",
    "12 13 123456789.12345678901",
    "5 6 1 x y",
    "01 2 3",
    "-0 2 1",
    "x 2 3",
    "Zoë 2 1",
    "# no",
    "",
    "  ",
    "5,6,7",
    "9 9 2",
    "1 2 -3",
    "1 2 inf",
    "1 2 1e39",
    "1 2",
    "123456789012345678 2 1",
    "1234567890123456789 2 1",
    "1 2 3 \x00",
    "1 2 +3",
    '1 "2" 3',
    "\r",
    "1 2 3\r",
    "1 2 0x1",
    "340282346638528859811704183484516925440 1 2",
    "1 2 340282366920938463463374607431768211456",
    "% no",
    "3\v4 5",
]


def outcome(path, **options):
    """What a file is read as, or what is said of it."""
    try:
        graph = open_graph(path, **options)
    except InputError as error:
        return str(error)
    names = None if graph.ids is None else graph.ids.names().tolist()
    return names, [array.tolist() for array in graph.sample_arrays()]


@pytest.mark.filterwarnings("ignore::hogwild.errors.HogwildWarning")
@given(st.lists(st.sampled_from(LINES[:8]), min_size=2, max_size=6), st.lists(st.sampled_from(LINES), max_size=5))
@settings(max_examples=150, deadline=None)
@pytest.mark.parametrize("kind", ["edges", "dimacs"])
def test_any_lines_in_any_chunks(tmp_path_factory, kind, begin, more):
    """Names, weights, and what is said of the first line that is wrong do not depend on where chunks end."""
    folder = tmp_path_factory.mktemp("agree")
    rows = begin + more + begin
    if kind == "dimacs":
        head = f"p max 20 {len(rows)}\nn 1 s\nn 2 t\n"
        path, options = write(folder, head + "".join(f"a {row}\n" for row in rows)), {}
    else:
        path = write(folder, "".join(f"{row}\n" for row in ["1 2 3", "2 0 4", *rows]), "e.tsv")
        options = {"terminals": write(folder, "1 a\n2 b\n", "t")}
    found = outcome(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_text, "CHUNK", 40)
        assert outcome(path, **options) == found


def test_lines_that_end_in_different_chunks(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    rows = [(str(u), str(v), f"{w:.3f}") for u, v, w in zip(*random.integers(0, 50, (2, 400)), random.random(400))]
    path = edges(tmp_path, rows=[*EDGES, *rows])
    with pytest.warns(HogwildWarning, match="itself"):
        whole = outcome(path)
    monkeypatch.setattr(graph_text, "CHUNK", 100)
    with pytest.warns(HogwildWarning, match="itself"):
        assert outcome(path) == whole
    with open(path, "a") as file:
        file.write("3 4\n")
    with pytest.raises(InputError, match=r"e.tsv:405: no weight, and one before it"):
        open_graph(path)


def test_progress_is_told(tmp_path):
    told = []
    path = write(tmp_path, FLOW)
    open_graph(path, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(FLOW), len(FLOW))


@pytest.mark.parametrize("name", ["cora", "dblp_acm"])
def test_real_lists_of_edges(real_data, tmp_path, name):
    path = real_data / "graphs" / f"{name}.edges.tsv"
    first = path.read_text().splitlines()[0].split("\t")
    (tmp_path / "t").write_text(f"{first[0]}\ta\n{first[1]}\tb\n")
    graph = open_graph(path, terminals=tmp_path / "t")
    assert len(graph) == {"cora": 32_044, "dblp_acm": 9_064}[name]
