"""The loop over edges, against a slow twin; disciplines against each other; terminals and the simplex in a race."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.container import Graph
from hogwild.data.order import Order
from hogwild.hosts.job import Job
from hogwild.problems.cuts.kernel import project
from hogwild.problems.cuts.problem import CutsProblem, onto_simplex
from tests.kernels.harness import few_a_call, gives_up, run_epoch, sequence

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # of hashes, without the JIT

CONSTANT, FALLING = (0.7, 1.0, 0.0), (3.0, 5.0, 0.4)
COMPILED = not numba.config.DISABLE_JIT
needs_jit = pytest.mark.skipif(not COMPILED, reason="several workers only when compiled")


def random_graph(labels=2, n=40, m=130, directed=False, links=3, seed=0):
    """Edges among n vertices of all weights, zero too, and ``links`` from each of half of them to the terminals."""
    rng = np.random.default_rng(seed)
    u, v = rng.integers(n, size=(2, m))
    v = np.where(u == v, (v + 1) % n, v)
    some = rng.integers(0, n, size=n // 2)
    u = np.concatenate((u, np.repeat(some, links)))
    v = np.concatenate((v, n + rng.integers(labels, size=links * len(some))))
    forward = rng.integers(0, 9, size=len(u)) * rng.choice([0.25, 1.0, 4.0], size=len(u))
    backward = rng.permutation(forward) if directed else forward
    extra = [n, n + 1], [n + 1, n]  # between two terminals: nothing to do
    u, v = np.concatenate((u, extra[0])), np.concatenate((v, extra[1]))
    forward, backward = np.append(forward, [5.0, 1.0]), np.append(backward, [5.0, 1.0])
    terminals = n + np.arange(labels)
    return Graph(u, v, forward, backward, n + labels, terminals, np.arange(labels), labels)


def make_job(graph, discipline="serial", workers=1, order=None, **more):
    problem = CutsProblem.of(graph, discipline, **more)
    return Job.of(problem, order or Order.of(problem.n_rows), 3, workers, problem.arrays(graph), shared=False)


def shares(job):
    return job.problem.solution(job.flat)[0]


class Twin:
    """The update of the module's docstring, for rows of the simplex, in float64 and in so many lines."""

    def __init__(self, job):
        self.x, self.data, self.labels = shares(job).astype(np.float64), job.data(), job.problem.labels
        self.scalar = job.problem.scalar

    def pull(self, e, step):
        d, total = self.data, step * (float(self.data.rates[self.data.u[e]]) + float(self.data.rates[self.data.v[e]]))
        if not self.scalar and d.bundle[e] >= 0:
            return 2.0 * d.weights.astype(np.float64).reshape(-1, self.labels)[d.bundle[e]]
        up, down = float(d.forward[e]) * total, float(d.backward[e]) * total
        gap = self.x[d.v[e]] - self.x[d.u[e]]
        if self.scalar:  # the second share rises by what the first falls
            m = np.clip(gap[1], -down, up) / total
            return np.array([-m, m])
        return np.clip(gap, -down, up) / total

    def land(self, e, pull, step):
        for end, sign in ((self.data.u[e], 1.0), (self.data.v[e], -1.0)):
            if self.data.rates[end] > 0:
                moved = self.x[end] + sign * step * float(self.data.rates[end]) * pull
                self.x[end] = onto_simplex(moved[np.newaxis].astype(np.float64))[0]

    def epoch(self, sequence, step, visited):
        scale, offset, power = step
        for t, e in enumerate(sequence):
            size = scale * (offset + visited + t - t % 16) ** -power
            self.land(e, self.pull(e, size), size)


@pytest.mark.parametrize(
    ("labels", "directed", "step"),
    [(2, True, FALLING), (2, False, CONSTANT), (3, False, CONSTANT), (5, False, FALLING), (17, False, FALLING)],
)
def test_every_kind_of_graph_follows_its_twin(labels, directed, step):
    graph = random_graph(labels, directed=directed)
    job = make_job(graph, order=Order(CutsProblem.of(graph, "serial").n_rows, 2, True))
    twin, before = Twin(job), shares(job)
    for epoch in range(3):
        run_epoch(job, epoch, step)
        twin.epoch(sequence(job, epoch), step, epoch * job.order.n_rows)
        np.testing.assert_allclose(shares(job), twin.x, atol=2e-5)
    assert np.abs(shares(job) - before).max() > 0.1


@pytest.mark.parametrize("labels", [2, 4])
def test_one_worker_is_the_same_in_all_disciplines_and_prefetching(labels):
    results = set()
    alike = [("atomic", {}), ("hogwild", {})] if labels == 2 else []
    for discipline, more in [
        *((name, {}) for name in ("serial", "aig", "locked", "round-robin")),
        ("serial", {"cache_bytes": 0}),
        *alike,
    ]:
        job = make_job(random_graph(labels), discipline, **more)
        for epoch in range(2):
            run_epoch(job, epoch, FALLING)
        results.add(job.flat.tobytes())
        assert not job.state["locks"].any()
        assert job.done()[0] == job.order.n_rows
    assert len(results) == 1


def test_few_rows_a_call_are_the_same_as_all():
    whole, parts = make_job(random_graph(3)), make_job(random_graph(3))
    run_epoch(whole, 0, CONSTANT)
    turn = few_a_call(parts, CONSTANT)
    done = [turn() for _ in range(parts.order.n_rows // 7 + 1)]
    assert (done[0], sum(done)) == (7, parts.order.n_rows)
    np.testing.assert_array_equal(parts.flat, whole.flat)


def test_an_epoch_can_be_resumed_at_a_chunk():
    order = Order(CutsProblem.of(random_graph(m=400), "serial").n_rows, 1, True)
    whole, parts = (make_job(random_graph(m=400), order=order) for _ in range(2))
    run_epoch(whole, 1, FALLING)
    assert order.n_chunks > 3
    run_epoch(parts, 1, FALLING, end=1)
    run_epoch(parts, 1, FALLING, start=1)
    np.testing.assert_array_equal(parts.flat, whole.flat)


@pytest.mark.parametrize("discipline", ["aig", "locked", "round-robin"])
def test_who_waits_for_a_lock_or_a_turn_hears_of_the_end(discipline):
    gives_up(make_job(random_graph(), discipline, workers=2))


@needs_jit
@pytest.mark.parametrize(
    ("discipline", "labels"), [("hogwild", 2), ("hogwild", 5), ("atomic", 2), ("aig", 5), ("locked", 5)]
)
def test_in_a_race_terminals_stay_and_rows_stay_in_the_simplex(discipline, labels):
    graph = random_graph(labels, n=12, m=4000, links=40)  # few vertices: all of them contended
    job = make_job(graph, discipline, workers=4, order=Order(CutsProblem.of(graph, discipline).n_rows, 1, True))
    np.testing.assert_array_equal(shares(job)[graph.terminals], np.eye(labels))
    for epoch in range(20):
        run_epoch(job, epoch, (1.0, 1.0, 0.0))
        raw = job.flat[: graph.n_vertices * job.problem.stride].reshape(graph.n_vertices, -1)
        corners = np.eye(labels)[:, 1:] if labels == 2 else np.eye(labels)
        np.testing.assert_array_equal(raw[graph.terminals, : corners.shape[1]], corners)
    x = shares(job)
    assert np.abs(x.sum(axis=1, dtype=np.float64) - 1.0).max() <= 1e-6
    assert x.min() >= 0.0
    assert job.done()[0] == job.order.n_rows
    assert not job.state["locks"].any()


def test_edges_without_weight_and_vertices_without_edges_move_nothing():
    job = make_job(Graph([0, 0], [1, 2], [0.0, 3.0], [0.0, 3.0], 5, [2, 3], [0, 1], check=False))
    for epoch in range(3):
        run_epoch(job, epoch, (1.0, 1.0, 0.0))
    np.testing.assert_array_equal(shares(job)[:, 1], [0.0, 0.5, 0.0, 1.0, 0.5])


@pytest.mark.parametrize("labels", [2, 3])
def test_the_scale_of_the_weights_changes_nothing(labels):
    results = set()
    for scale in (1.0, 2.0**-120, 2.0**-10, 2.0**100):
        graph = random_graph(labels)
        graph.forward, graph.backward = graph.forward * np.float32(scale), graph.backward * np.float32(scale)
        job = make_job(graph)
        run_epoch(job, 0, CONSTANT)
        results.add(job.flat.tobytes())
    assert len(results) == 1


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 30.0]), st.booleans())
def test_the_projection_is_the_nearest_point_of_the_simplex(n, seed, spread, ties):
    row = np.random.default_rng(seed).normal(size=n).astype(np.float32) * np.float32(spread)
    row = np.round(row) if ties else row
    kernels, numpys = row.copy(), onto_simplex(row[np.newaxis])[0]
    project(kernels, n)
    np.testing.assert_allclose(kernels, numpys, atol=2e-6 * max(spread, 1.0))
    for nearest in (kernels, numpys):
        assert abs(float(nearest.sum(dtype=np.float64)) - 1.0) < 1e-5 * max(spread, 1.0)
        assert nearest.min() >= 0
        # optimality: no other point of the simplex is nearer than allowed by the angle at the projection
        towards = np.random.default_rng(seed + 1).dirichlet(np.ones(n)) - nearest
        assert (row - nearest).astype(np.float64) @ towards <= 1e-4 * max(spread, 1.0) ** 2


def test_projection_of_what_is_no_number_ends():
    row = np.array([np.nan, 0.3, np.nan], dtype=np.float32)
    with np.errstate(all="ignore"):
        project(row, 3)
