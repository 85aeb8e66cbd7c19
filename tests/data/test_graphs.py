"""The container, its statistics, and which reader a name goes to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.container import Graph, graph_statistics
from hogwild.data.graphs.source import open_graph
from hogwild.data.ids import Ids
from hogwild.errors import HogwildWarning, InputError, UsageError
from tests.reference import hypergraph

PLAIN = {
    "u": [0, 1, 0],
    "v": [1, 2, 3],
    "forward": [1.0, 2.0, 3.0],
    "backward": [1.0, 2.0, 3.0],
    "n_vertices": 4,
    "terminals": [2, 3],
    "terminal_labels": [0, 1],
}


def graph(**more) -> Graph:
    return Graph(**PLAIN | more)


def test_arrays_have_their_types_and_are_read_only() -> None:
    g = graph()
    assert len(g) == 3
    assert g.undirected
    for name in ("u", "v", "forward", "backward", "terminals", "terminal_labels"):
        assert getattr(g, name).dtype == (np.float32 if name.endswith("ward") else np.int32)
        assert not getattr(g, name).flags.writeable
    assert repr(g) == "Graph(4 vertices, 3 edges, 2 labels)"
    assert repr(graph(shape=(2, 2), backward=[0, 0, 0])) == "Graph(4 vertices, 3 edges, 2 labels, directed, grid 2 x 2)"
    assert g.fixed().tolist() == [-1, -1, 0, 1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"v": [1, 2, 4]}, "v run from 1 to 4, expected 0 to 3"),
        ({"u": [-1, 1, 0]}, "u run from -1 to 1"),
        ({"u": [0.0, 1.0, 0.0]}, "u: expected whole numbers, got dtype float64"),
        ({"v": [1, 2]}, "expected one of each for an edge, got shapes"),
        ({"forward": [1, np.nan, 1]}, "edge 1: weighs nan: expected a finite number, not negative"),
        ({"backward": [1, 1, -2]}, "edge 2: weighs -2"),
        ({"u": [0, 1, 0], "v": [1, 2, 1], "forward": [3e38] * 3}, "edge 0: weighs inf"),
        ({"n_vertices": 0}, "0 vertices"),
        ({"n_vertices": 2.5}, "2.5 vertices: expected a whole number"),
        ({"forward": [1j] * 3}, "forward: expected real numbers"),
        ({"terminals": [2, 4]}, "terminals run from 2 to 4, expected 0 to 3"),
        ({"terminals": [2, 2]}, "different vertices and one label each"),
        ({"terminal_labels": [0]}, "different vertices and one label each"),
        ({"terminal_labels": [0, 2]}, "terminal labels run from 0 to 2, expected 0 to 1"),
        ({"terminal_labels": [0, 0]}, "2 labels: a cut needs two or more, each with a terminal"),
        ({"shape": (5,)}, "a grid of \\(5,\\) needs as many vertices"),
        ({"ids": Ids(["a", "b"])}, "ids: expected 4, got 2"),
    ],
)
def test_what_breaks_a_rule_is_refused(more, message) -> None:
    with pytest.raises(InputError, match=message):
        graph(**more)


def test_directions_are_for_two_labels_only() -> None:
    three = {"n_labels": 3, "terminals": [1, 2, 3], "terminal_labels": [0, 1, 2]}
    assert graph(**three).n_labels == 3
    with pytest.raises(InputError, match="edge 2: weighs 3 one way and 4 the other"):
        graph(**three, backward=[1.0, 2.0, 4.0])


def test_edges_are_turned_merged_and_cleaned() -> None:
    with pytest.warns(HogwildWarning, match="x: 1 edges from a vertex to itself"):
        g = Graph(
            [3, 1, 2, 0, 1, 0],
            [0, 2, 1, 3, 1, 2],
            [1, 2, 4, 8, 5, 0],
            [10, 20, 40, 80, 5, 0],
            4,
            [0, 3],
            [0, 1],
            title="x",
        )
    assert (g.u.tolist(), g.v.tolist()) == ([0, 1], [3, 2])  # where each pair first came
    assert g.forward.tolist() == [10 + 8, 2 + 40]
    assert g.backward.tolist() == [1 + 80, 20 + 4]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 12), st.integers(1, 40))
def test_statistics_are_those_of_the_paper(seed, n, m) -> None:
    rng = np.random.default_rng(seed)
    u = rng.integers(0, n, size=m)
    v = (u + rng.integers(1, n, size=m)) % n
    g = Graph(u, v, rng.random(m) + 0.1, rng.random(m) + 0.1, n, [0, 1], [0, 1])
    edges = [{int(a), int(b)} for a, b in zip(g.u, g.v)]
    assert len({frozenset(e) for e in edges}) == len(edges)
    facts = graph_statistics(g)
    degrees = [sum(x in e for e in edges) for x in range(n)]
    assert g.degrees().tolist() == degrees
    assert [facts[name] for name in ("omega", "delta", "rho")] == pytest.approx(hypergraph(edges)[:3])


def test_a_fingerprint_tells_graphs_apart() -> None:
    def print_of(g: Graph) -> bytes:
        return b"".join(array.tobytes() for array in g.sample_arrays())

    others = [{"forward": [1, 2, 4.0]}, {"terminal_labels": [1, 0]}, {"n_vertices": 5}, {"u": [0, 1, 1]}]
    assert print_of(graph()) == print_of(graph())
    assert len({print_of(graph(**more)) for more in [{}, *others]}) == 5


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UsageError, match="terminals= goes with a list of edges"):
        open_graph("synthetic:grid", terminals="t")
