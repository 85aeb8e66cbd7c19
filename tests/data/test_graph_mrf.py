"""Labelling problems as graphs: the energy is the cut and a constant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.mrf import mrf_graph
from hogwild.errors import InputError
from hogwild.problems.cuts.objective import CutEvaluator

GOOD = {"unary": np.arange(12.0).reshape(4, 3) % 5, "u": [0, 1, 2], "v": [1, 3, 3], "weights": [1.0, 2.0, 3.0]}


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": np.ones(4)}, "unary: expected costs of two or more labels at each vertex, got shape \\(4,\\)"),
        ({"unary": np.ones((4, 1))}, "unary: expected costs of two or more labels"),
        ({"unary": [[0, 1], [0, np.inf], [0, 1], [0, 1]]}, "unary: vertex 1 has a cost that is not finite"),
        ({"unary": np.ones((4, 3)) * 1j}, "unary: expected real numbers"),
        ({"u": ["0", "1", "2"]}, "u: expected whole numbers"),
        ({"v": [1, 4, 2]}, "edges run from 1 to 4: expected vertices 0 to 3"),
        ({"weights": [1.0, -1.0, 1.0]}, "weighs -1: expected a finite number, not negative"),
    ],
)
def test_what_is_wrong(change, message):
    with pytest.raises(InputError, match=message):
        mrf_graph(**GOOD | change)
