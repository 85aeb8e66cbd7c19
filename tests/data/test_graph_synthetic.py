"""Synthetic graphs: the same bits, the shapes asked for, and the paper's shares of hot vertices."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.source import open_graph
from hogwild.data.graphs.synthetic import mrf_graph
from hogwild.errors import InputError
from hogwild.problems.cuts.objective import CutEvaluator

NAME = "synthetic:grid?side=40&labels=3&seed=5"


def checksum(graph):
    digest = hashlib.blake2b(digest_size=8)
    for array in (graph.u, graph.v, graph.forward, graph.backward, graph.terminals, graph.terminal_labels):
        digest.update(array.tobytes())
    return digest.hexdigest()


def test_the_same_bits_everywhere():
    assert checksum(open_graph(NAME)) == "e491dfe584c68a7b"


def test_a_grid():
    graph = open_graph("synthetic:grid?side=32&labels=4&noise=0.2")
    assert (graph.shape, graph.n_vertices, graph.n_labels) == ((32, 32), 32 * 32 + 4, 4)
    assert graph.image.shape == graph.truth.shape == (32, 32)
    assert sorted(np.unique(graph.truth)) == [0, 1, 2, 3]
    assert abs(float((graph.image - graph.truth).std()) - 0.2) < 0.01
    inner = graph.v < 32 * 32
    assert np.count_nonzero(inner) == 2 * 32 * 31
    assert (graph.forward[inner] == 10).all()
    assert set((graph.v - graph.u)[inner].tolist()) == {1, 32}
    assert (graph.forward % 1 == 0).all()


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


def test_a_name_of_other_data():
    with pytest.raises(InputError, match="synthetic:rcv1: no such synthetic edges; there are synthetic:grid"):
        open_graph("synthetic:rcv1")
