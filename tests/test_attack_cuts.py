"""Graphs that are wrong, huge or odd: one line that says so, or the right cut; each was a traceback or a wrong cut."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild import train
from hogwild.__main__ import main
from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.source import open_graph
from hogwild.problems.cuts.problem import CutsProblem


def edges(folder, text, terminals):
    path = folder / "edges.csv"
    path.write_text(text)
    (folder / "edges.csv.terminals").write_text(terminals)
    return open_graph(path)


def test_minus_nothing_is_a_name_of_its_own(tmp_path):
    graph = edges(tmp_path, "-0,0,1\n0,2,1\n", "-0,a\n2,b\n")
    assert graph.ids.names().tolist() == ["-0", "0", "2"]


def test_quoted_names_of_vertices(tmp_path):
    graph = edges(tmp_path, '"a, x",b,1\n"b","c ""d""",2\n', '"a, x",0\n"c ""d""",1\n')
    assert graph.ids.names().tolist() == ["a, x", "b", 'c "d"']
    assert graph.forward.tolist() == [1, 2]


@pytest.mark.parametrize("infinite", [1e9, 1e30, 1e38])
def test_weights_that_stand_for_infinity(infinite):
    weights = np.array([infinite, 1, 2, infinite])
    graph = Graph(np.arange(4), np.arange(1, 5), weights, weights, 5, [0, 4], [0, 1])
    cut = train(graph, problem="cuts", workers=1, epochs=60).finish()
    assert cut.labels.tolist() == [0, 0, 1, 1, 1]


def test_large_pulls_to_all_labels_alike():
    """Beside 1e9 to each of three labels, 64 decides between them."""
    pulls = np.array([1e9, 1e9 + 64, 1e9])  # float32 knows 64 apart there, and no less
    graph = Graph([0, 0, 0], [1, 2, 3], pulls, pulls, 4, [1, 2, 3], [0, 1, 2], 3)
    weights = CutsProblem.of(graph, "serial").arrays(graph)["weights"]
    assert np.count_nonzero(weights) == 1
    assert train(graph, problem="cuts", workers=1, epochs=20).finish().labels[0] == 1


def test_vertices_for_which_there_is_no_memory(tmp_path, capsys):
    path = tmp_path / "huge.max"
    path.write_text("p max 2147483647 1\nn 1 s\nn 2 t\na 1 3 1\n")
    from hogwild import machine

    if (machine.memory()[1] or 1 << 60) > 60 << 30:
        pytest.skip("there is memory for them")
    assert main(["info", str(path), "--problem", "cuts"]) == 1
    assert "4,294,967,294 labels of vertices need" in capsys.readouterr().err
