"""Synthetic graphs: the same bits, the shapes asked for, and the paper's shares of hot vertices."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from hogwild.data.graphs.container import graph_statistics
from hogwild.data.graphs.source import open_graph
from hogwild.data.graphs.synthetic import GraphSpec
from hogwild.errors import InputError

CHECKSUMS = {
    "synthetic:grid?side=40&labels=3&seed=5": "e491dfe584c68a7b",
    "synthetic:volume?side=12": "061a1e4c0bdbc3e2",
    "synthetic:clusters?entities=9&mentions=120": "b45bed8420d716b1",
}


def checksum(graph):
    digest = hashlib.blake2b(digest_size=8)
    for array in (graph.u, graph.v, graph.forward, graph.backward, graph.terminals, graph.terminal_labels):
        digest.update(array.tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", CHECKSUMS)
def test_the_same_bits_everywhere(name):
    assert checksum(open_graph(name)) == CHECKSUMS[name]
    assert str(GraphSpec.parse(name)) == name
    more = name + "&seed=6" if "seed" not in name else name.replace("seed=5", "seed=6")
    assert checksum(open_graph(more)) != CHECKSUMS[name]


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


def test_a_volume_has_six_neighbours_and_capacities_of_at_most_ten():
    graph = open_graph("synthetic:volume?side=20&noise=0.01")
    degrees = graph.degrees()[: 20**3].reshape(20, 20, 20)[1:-1, 1:-1, 1:-1]
    assert np.median(degrees) == 6
    assert degrees.max() <= 7
    assert 1 <= graph.forward.min()
    assert graph.forward.max() == 10
    assert graph.shape == (20, 20, 20)


@pytest.mark.parametrize("side", [32, 48])
def test_the_share_of_terminals_is_the_abdomens(side):
    facts = graph_statistics(open_graph(f"synthetic:volume?side={side}"))
    assert 0.95 * 9.2e-4 < facts["delta"] < 1.05 * 9.2e-4
    assert facts["delta"] <= facts["rho"] < 1.2 * 9.2e-4


@pytest.mark.parametrize("size", [(182, 1801), (40, 12_000)])
def test_the_shares_of_hubs_are_those_of_dblife(size):
    facts = graph_statistics(open_graph("synthetic:clusters?entities={}&mentions={}&degree=20".format(*size)))
    if size == (182, 1801):
        assert 0.95 * 4.3e-3 < facts["delta"] < 1.05 * 4.3e-3
        assert 0.95 * 8.6e-3 < facts["rho"] < 1.05 * 8.6e-3
    assert facts["delta"] <= facts["rho"] <= 2 * facts["delta"]


def test_clusters_have_a_terminal_an_entity_and_links_that_are_mostly_right():
    graph = open_graph("synthetic:clusters?entities=30&mentions=600&delta=0&noise=0")
    assert graph.terminals.tolist() == list(range(600, 630))
    links = graph.v >= 600
    assert np.bincount(graph.u[links], minlength=600).tolist() == [1] * 600
    entity = graph.v[links][np.argsort(graph.u[links])] - 600
    inner = ~links
    assert (entity[graph.u[inner]] == entity[graph.v[inner]]).all()
    noisy = open_graph("synthetic:clusters?entities=30&mentions=600&delta=0&noise=0.3")
    inner = noisy.v < 600
    wrong = np.mean(entity[noisy.u[inner]] != entity[noisy.v[inner]])
    assert 0.2 < wrong < 0.4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("synthetic:tree", "synthetic:tree: no such synthetic graph; there are synthetic:grid, synthetic:volume, "),
        ("synthetic:tree?side=3", "no such synthetic graph"),
        ("synthetic:grid?size=3", "cannot read 'size=3': expected dial=value with one of side, labels, balls, noise"),
        ("synthetic:volume?smooth=3", "cannot read 'smooth=3'"),
        ("synthetic:grid?side=3&side=4", "side is given twice"),
        ("synthetic:grid?side=x", "side=x: expected a whole number"),
        ("synthetic:grid?side=1", "side=1 is outside 2 to 16384"),
        ("synthetic:volume?side=9999", "side=9999 is outside 2 to 645"),
        ("synthetic:grid?labels=1", "labels=1 is outside 2 to 64"),
        ("synthetic:clusters?entities=10&mentions=9", "entities=10 is outside 2 to 9"),
        ("synthetic:clusters?noise=2", "noise=2.0 is outside 0 to 1"),
        ("synthetic:grid?delta=0.5", "delta=0.5 is outside 0 to 0.1"),
    ],
)
def test_dials_are_checked(name, message):
    with pytest.raises(InputError) as caught:
        open_graph(name)
    assert message in str(caught.value)
