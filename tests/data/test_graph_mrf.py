"""Labelling problems as graphs: the energy is the cut and a constant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.mrf import mrf_graph
from hogwild.data.graphs.source import open_graph
from hogwild.errors import InputError
from hogwild.problems.cuts.objective import CutEvaluator

GOOD = {"unary": np.arange(12.0).reshape(4, 3) % 5, "edges": [[0, 1], [1, 3], [2, 3]], "weights": [1.0, 2.0, 3.0]}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 9))
def test_the_energy_is_the_cut_and_the_offset(seed, labels, n):
    rng = np.random.default_rng(seed)
    unary = rng.normal(size=(n, labels)) * 3
    u, v = rng.integers(0, n, size=(2, 2 * n))
    u, v = u[u != v], v[u != v]
    weights = rng.random(len(u))
    graph = mrf_graph(unary, u, v, weights)
    chosen = rng.integers(0, labels, size=n)
    energy = unary[np.arange(n), chosen].sum() + weights[chosen[u] != chosen[v]].sum()
    cut = CutEvaluator(graph).cut(np.concatenate((chosen, np.arange(labels))))
    assert cut + graph.offset == pytest.approx(energy, abs=1e-4)
    links = np.isin(graph.v, graph.terminals)
    assert np.bincount(graph.u[links], minlength=n).max() < labels  # none to the worst label
    assert graph.forward.min() > 0


def test_an_npz_under_all_its_names(tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD, shape=[2, 2])
    u, v = np.transpose(GOOD["edges"])
    np.savez(tmp_path / "b.npz", unary=GOOD["unary"], i=u, j=v, w=GOOD["weights"], shape=[2, 2, 3])
    a, b = open_graph(tmp_path / "a.npz"), open_graph(tmp_path / "b.npz")
    for one, other in zip(a.sample_arrays(), b.sample_arrays()):
        np.testing.assert_array_equal(one, other)
    assert a.shape == b.shape == (2, 2)
    assert a.terminals.tolist() == [4, 5, 6]
    assert a.offset == b.offset
    np.savez(tmp_path / "c.npz", **GOOD, shape=[3, 5])
    assert open_graph(tmp_path / "c.npz").shape is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": np.ones(4)}, "unary: expected costs of two or more labels at each vertex, got shape \\(4,\\)"),
        ({"unary": np.ones((4, 1))}, "unary: expected costs of two or more labels"),
        ({"unary": [[0, 1], [0, np.inf], [0, 1], [0, 1]]}, "unary: vertex 1 has a cost that is not finite"),
        ({"edges": [[0, 1, 2]]}, "edges: expected shape \\(m, 2\\), got \\(1, 3\\)"),
        ({"edges": [[0, 1], [1, 4], [0, 2]]}, "edges run from 1 to 4: expected vertices 0 to 3"),
        ({"weights": [1.0]}, "weights: expected one for each of 3 edges, got \\(1,\\)"),
        ({"weights": [1.0, -1.0, 1.0]}, "weighs -1: expected a finite number, not negative"),
    ],
)
def test_what_is_wrong_with_an_npz(tmp_path, change, message):
    np.savez(tmp_path / "a.npz", **GOOD | change)
    with pytest.raises(InputError, match=f"a.npz: .*{message}"):
        open_graph(tmp_path / "a.npz")


def test_what_is_missing_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", unary=GOOD["unary"], edges=GOOD["edges"])
    with pytest.raises(InputError, match="expected an array weights or w, found edges, unary"):
        open_graph(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=[1])
    with pytest.raises(InputError, match="expected an array unary of costs \\(n, D\\), found x"):
        open_graph(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match="c.npz: not an .npz file that can be read"):
        open_graph(tmp_path / "c.npz")
    with pytest.raises(InputError, match="d.npz: no such file"):
        open_graph(tmp_path / "d.npz")


def test_a_real_stereo_problem(real_data):
    graph = open_graph(real_data / "graphs" / "tsukuba_mrf.npz")
    assert (graph.shape, graph.n_labels, graph.n_vertices) == ((288, 384), 16, 110_608)
