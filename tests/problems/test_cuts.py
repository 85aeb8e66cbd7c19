"""Cuts beside exact solvers, values beside other ways to compute them, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import maximum_flow

import hogwild
from hogwild.data.graphs.container import Graph
from hogwild.data.graphs.source import open_graph
from hogwild.data.graphs.synthetic import mrf_graph
from hogwild.errors import InputError, UsageError
from hogwild.problems.cuts.objective import CutEvaluator
from hogwild.problems.cuts.problem import CutsProblem
from tests.kernels.test_cuts import random_graph


def train(graph, **options):
    """Shares after 100 epochs, or as told, at the default steps."""
    return hogwild.train(graph, host="threads", workers=1, evaluate_every=300, **options).finish().x


def minimum_cut(graph):
    """By scipy, for whole-numbered weights."""
    weights = np.concatenate((graph.forward, graph.backward))
    assert (weights % 1 == 0).all()
    ends = np.concatenate((graph.u, graph.v)), np.concatenate((graph.v, graph.u))
    capacities = scipy.sparse.csr_array((weights.astype(np.int32), ends), shape=(graph.n_vertices,) * 2)
    return maximum_flow(capacities, *(int(t) for t in graph.terminals)).flow_value


def test_a_grid_is_cut_within_a_hundredth_of_the_minimum():
    graph = open_graph("synthetic:grid?side=64&noise=1")
    facts, exact = CutEvaluator(graph)(train(graph)), minimum_cut(graph)
    assert exact <= facts["cut_value"] <= 1.01 * exact
    assert exact <= facts["objective"] + 1e-3 * exact  # the relaxation's minimum is the cut's
    assert facts["objective"] <= 1.02 * exact


def test_a_stereo_move_is_cut_within_three_hundredths_of_the_minimum(real_data):
    graph = open_graph(real_data / "graphs" / "tsukuba_expansion_a5.max.gz")
    assert not graph.undirected
    facts = CutEvaluator(graph)(train(graph))
    assert 270_720 <= facts["cut_value"] <= 1.03 * 270_720
    assert facts["objective"] <= 1.03 * 270_720


def tiny(seed, labels, n=7):
    """A labelling problem small enough to try all labels."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(n, 1)
    picked = rng.random(len(u)) < 0.5
    unary = rng.integers(0, 10, size=(n, labels)).astype(float)
    return mrf_graph(unary, u[picked], v[picked], rng.integers(0, 5, size=picked.sum())), unary, n


def best_of_all(graph, n):
    value = CutEvaluator(graph).cut
    terminals = list(range(graph.n_labels))
    return min(value(np.array([*chosen, *terminals])) for chosen in itertools.product(terminals, repeat=n))


@pytest.mark.parametrize("labels", [2, 4])
def test_tiny_graphs_of_many_labels_are_cut_as_by_trying_all(labels):
    same, worst = 0, 1.0
    for seed in range(8):
        graph, _, n = tiny(seed, labels, 7 if labels < 4 else 6)
        best, facts = best_of_all(graph, n), CutEvaluator(graph)(train(graph, epochs=300, decay=0.98))
        assert facts["objective"] <= best * 1.01 + 0.01  # it relaxes
        same += facts["cut_value"] == best
        worst = max(worst, facts["cut_value"] / max(best, 1e-9))
    assert same >= 6
    assert worst <= 1.1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 6]))
def test_the_objective_is_the_sum_over_edges(seed, labels):
    graph = random_graph(labels, directed=labels == 2, seed=seed)
    x = np.random.default_rng(seed).dirichlet(np.ones(labels), size=graph.n_vertices).astype(np.float32)
    relaxed = cut = 0.0
    for u, v, f, b in zip(graph.u, graph.v, graph.forward, graph.backward):
        if labels == 2:
            relaxed += f * max(0.0, float(x[v, 1]) - x[u, 1]) + b * max(0.0, float(x[u, 1]) - x[v, 1])
        else:
            relaxed += f / 2 * np.abs(x[u].astype(float) - x[v]).sum()
        one, other = x[u].argmax(), x[v].argmax()
        cut += (f if one < other else b) * (one != other)
    facts = CutEvaluator(graph)(x)
    np.testing.assert_allclose([facts["objective"], facts["cut_value"]], [relaxed, cut], rtol=1e-6)


def test_large_graphs_are_evaluated_in_pieces(monkeypatch):
    graph = random_graph(3, n=27)
    x = np.random.default_rng(0).random((30, 3)).astype(np.float32)
    with pytest.raises(InputError, match=r"x: expected shape \(30, 3\), got \(30, 2\)"):
        CutEvaluator(graph)(x[:, :2])
    whole = CutEvaluator(graph)(x)
    monkeypatch.setattr("hogwild.problems.cuts.objective.PIECE", 20)
    assert CutEvaluator(graph)(x)["objective"] == pytest.approx(whole["objective"])


@pytest.mark.parametrize("labels", [2, 3, 9])
def test_it_starts_in_the_middle_and_at_the_corners(labels):
    graph = random_graph(labels)
    problem = CutsProblem.of(graph, "serial")
    flat = np.zeros(problem.size, dtype=np.float32)
    problem.start(flat, 0)
    (x,) = problem.solution(flat)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[graph.terminals], np.eye(labels))
    np.testing.assert_allclose(np.delete(x, graph.terminals, axis=0), 1 / labels)
    assert problem.size % 16 == 0
    x[:] = 7
    assert problem.solution(flat)[0].max() == 1.0  # it was a copy


def test_rows_left_outside_the_simplex_are_projected():
    graph = random_graph(3)
    problem = CutsProblem.of(graph, "hogwild")
    flat = np.zeros(problem.size, dtype=np.float32)
    problem.start(flat, 0)
    rows = flat.reshape(-1, problem.stride)
    rows[10, :3] = 0.9, 0.3, 0.1
    (x,) = problem.solution(flat)
    np.testing.assert_allclose(x[10], [0.8, 0.2, 0.0], atol=1e-6)
    np.testing.assert_array_equal(x[11], rows[11, :3])


def test_locks_and_who_may_hold_one():
    graph = random_graph(n=28)
    for discipline, locks, holds in (("hogwild", 1, False), ("aig", 30, True), ("locked", 1, True)):
        problem = CutsProblem.of(graph, discipline)
        assert (problem.locks, problem.holds) == (locks, holds)


def test_what_makes_no_sense_is_refused():
    graph, many = random_graph(), random_graph(3)
    with pytest.raises(UsageError, match="discipline='tiered': expected one of auto, serial, hogwild, atomic"):
        hogwild.train(graph, problem="cuts", discipline="tiered")
    with pytest.raises(UsageError, match="atomic needs two labels; got 3"):
        CutsProblem.of(many, "atomic")
    with pytest.raises(InputError, match="no edges but between terminals"):
        CutsProblem.of(Graph([0], [1], [1.0], [1.0], 2, [0, 1], [0, 1]), "serial")


def test_bundles_are_one_update_and_edges_between_terminals_none():
    unary = np.array([[0.0, 5.0, 9.0], [4.0, 0.0, 0.0]])
    graph = mrf_graph(unary, [0], [1], [2.0])
    assert len(graph) == 5  # 9 and 4 to label 0, 4 to label 1 and 4 and 4: those of weight zero are left out
    problem = CutsProblem.of(graph, "serial")
    arrays = problem.arrays(graph)
    assert problem.n_rows == len(arrays["u"])
    assert sorted(arrays["bundle"].tolist()) == [-1, 0, 1]
    weights = arrays["weights"].reshape(2, 3)
    np.testing.assert_allclose(weights / weights.max(), [[1, 4 / 9, 0], [0, 4 / 9, 4 / 9]])
    assert (arrays["rates"][graph.terminals] == 0).all()
    assert (arrays["rates"][:2] > 0).all()
    fixed = graph.fixed()
    assert (fixed[arrays["u"]] < 0).all()
