"""The loop over edges, against a slow twin; disciplines against each other; terminals and the simplex in a race."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hogwild.data.graphs.container import Graph
from hogwild.data.order import Order
from hogwild.data.rows.container import readonly
from hogwild.kernels.control import ABORT, LINE, ROWS, STOP, WORKERS, cells
from hogwild.kernels.tiers import no_tiers
from hogwild.problems.cuts.kernel import project
from hogwild.problems.cuts.problem import CutsProblem, onto_simplex
from hogwild.problems.protocol import OrderSlice, Shared
from tests import reference

DISCIPLINES = ("serial", "hogwild", "atomic", "aig", "locked", "round-robin")
CONSTANT, FALLING = (0.7, 1.0, 0.0), (3.0, 5.0, 0.4)
COMPILED = not numba.config.DISABLE_JIT


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


class Bench:
    """One problem with all the arrays of a run, in this process."""

    def __init__(self, graph, discipline="serial", workers=1, order=None, seed=3, **more):
        self.problem = CutsProblem.of(graph, discipline, **more)
        self.order = order or Order.of(self.problem.n_rows)
        self.workers, self.seed = workers, seed
        self.flat = np.zeros(self.problem.size, dtype=np.float32)
        self.problem.start(self.flat, seed)
        arrays = self.problem.arrays(graph)
        self.data = self.problem.data({name: readonly(np.ascontiguousarray(a)) for name, a in arrays.items()})
        control, locks = np.zeros(cells(workers), np.int64), np.zeros(self.problem.locks, np.int32)
        self.shared = Shared(self.problem.parameters(self.flat), control, locks, no_tiers())
        self.blocks = np.empty(self.order.n_blocks, dtype=np.int32)
        self.scratches = [self.problem.scratch(self.order) for _ in range(workers)]

    @np.errstate(all="ignore")  # without the JIT, NumPy's scalars warn where machine numbers just overflow
    def begin(self, epoch, start=0):
        self.problem.shuffle(self.blocks, self.order, self.seed, epoch)
        self.problem.begin_epoch(self.shared.control, self.order, start)

    def slice(self, worker, epoch, start=0, **more):
        return OrderSlice(self.order, self.blocks, self.seed, epoch, start, worker, self.workers, **more)

    @np.errstate(all="ignore")
    def turn(self, worker, epoch, step, start=0, **more):
        """What does a worker's edges, up to a limit, whenever it is called."""
        part = self.slice(worker, epoch, start, **more)
        return np.errstate(all="ignore")(
            self.problem.prepare(self.shared, self.scratches[worker], self.data, part, step)
        )

    def work(self, worker, epoch, step, start=0):
        return self.turn(worker, epoch, step, start)()

    def epoch(self, epoch=0, step=CONSTANT, start=0):
        """An epoch by all workers: threads if there are several."""
        self.begin(epoch, start)
        if self.workers == 1:
            self.work(0, epoch, step, start)
            return
        self.problem.compile()
        gate = threading.Barrier(self.workers)

        def begin(worker):
            gate.wait()
            self.work(worker, epoch, step, start)

        with ThreadPoolExecutor(self.workers) as pool:
            for future in [pool.submit(begin, worker) for worker in range(self.workers)]:
                future.result()

    def sequence(self, epoch):
        """All updates of an epoch as one worker takes them."""
        o = self.order
        return [row for rows in reference.chunks(o.n_rows, o.block, o.shuffled, self.seed, epoch) for row in rows]

    @property
    def x(self):
        return self.problem.solution(self.flat)[0]

    def bits(self):
        return self.flat.view(np.int32).tolist()


class Twin:
    """The update of the module's docstring, for rows of the simplex, in float64 and in so many lines."""

    def __init__(self, bench):
        p = bench.problem
        self.x, self.data, self.labels = bench.x.astype(np.float64), bench.data, p.labels
        self.scalar = p.scalar

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

    def epoch(self, sequence, step, visited, workers=1):
        """Of ``workers`` in turn: an update lands when its worker's next turn has come."""
        scale, offset, power = step
        pending = []
        for t, e in enumerate(sequence):
            size = scale * (offset + visited + t - t % 16) ** -power
            if len(pending) == workers:
                self.land(*pending.pop(0))
            if workers == 1:  # no delay
                self.land(e, self.pull(e, size), size)
            else:
                pending.append((e, self.pull(e, size), size))
        for one in pending:
            self.land(*one)


@pytest.mark.parametrize("step", [CONSTANT, FALLING], ids=["constant", "falling"])
@pytest.mark.parametrize(("labels", "directed"), [(2, True), (2, False), (3, False), (5, False), (17, False)])
def test_every_kind_of_graph_follows_its_twin(labels, directed, step):
    graph = random_graph(labels, directed=directed)
    bench = Bench(graph, order=Order(CutsProblem.of(graph, "serial").n_rows, 2, True))
    twin, before = Twin(bench), bench.x
    for epoch in range(3):
        bench.epoch(epoch, step)
        twin.epoch(bench.sequence(epoch), step, epoch * bench.order.n_rows)
        np.testing.assert_allclose(bench.x, twin.x, atol=2e-5)
    assert np.abs(bench.x - before).max() > 0.1


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_round_robin_is_late_by_its_workers(labels, workers):
    if workers > 1 and not COMPILED:
        pytest.skip("one worker only without the JIT")
    graph = random_graph(labels)
    bench = Bench(graph, "round-robin", workers)
    twin = Twin(bench)
    for epoch in range(2):
        bench.epoch(epoch)
        twin.epoch(bench.sequence(epoch), CONSTANT, epoch * bench.order.n_rows, workers)
    np.testing.assert_allclose(bench.x, twin.x, atol=2e-5)


@pytest.mark.parametrize("labels", [2, 4])
def test_one_worker_is_the_same_in_all_disciplines(labels):
    found = set()
    for discipline in DISCIPLINES:
        if discipline == "atomic" and labels > 2:
            continue
        bench = Bench(random_graph(labels), discipline)
        for epoch in range(2):
            bench.epoch(epoch, FALLING)
        found.add(tuple(bench.bits()))
        assert not bench.shared.locks.any()
        assert bench.shared.control[WORKERS + ROWS] == bench.order.n_rows
    assert len(found) == 1


@pytest.mark.parametrize("far", [False, True])
def test_prefetching_changes_nothing(far):
    bench, usual = Bench(random_graph(5)), Bench(random_graph(5))
    bench.problem = replace(bench.problem, far=far)
    bench.epoch()
    usual.epoch()
    assert bench.bits() == usual.bits()


@pytest.mark.parametrize("discipline", ["serial", "hogwild", "round-robin"])
@pytest.mark.parametrize("labels", [2, 3])
def test_few_rows_a_call_are_the_same_as_all(discipline, labels):
    whole, parts = Bench(random_graph(labels), discipline), Bench(random_graph(labels), discipline)
    whole.epoch()
    parts.begin(0)
    turn, calls = parts.turn(0, 0, CONSTANT, limit=7), parts.order.n_rows // 7 + 1
    done = [turn() for _ in range(calls)]  # round robin's last turn only applies what is pending
    assert (done[0], sum(done)) == (7, parts.order.n_rows)
    assert parts.shared.control[WORKERS + ROWS] == parts.order.n_rows
    assert parts.bits() == whole.bits()


def test_an_epoch_can_be_resumed_at_a_chunk():
    order = Order(CutsProblem.of(random_graph(m=400), "serial").n_rows, 1, True)
    whole, parts = Bench(random_graph(m=400), order=order), Bench(random_graph(m=400), order=order)
    whole.epoch(1, FALLING)
    assert order.n_chunks > 3
    parts.begin(1)
    turn = parts.turn(0, 1, FALLING, limit=order.chunk)
    assert turn() == order.chunk
    parts.shared.control[STOP] = 1
    assert turn() == 0  # begins nothing
    assert parts.problem.position(parts.shared.control, order) == 1
    parts.epoch(1, FALLING, start=1)
    assert parts.bits() == whole.bits()


@pytest.mark.parametrize("discipline", ["aig", "locked", "round-robin"])
def test_who_waits_for_a_lock_hears_of_the_end(discipline):
    bench = Bench(random_graph(), discipline, workers=2)
    bench.begin(0)
    bench.shared.locks[:] = 1
    bench.shared.control[ABORT] = 1
    before = bench.bits()
    bench.work(1, 0, CONSTANT)  # the other never comes, so neither does this one's turn
    assert bench.bits() == before


@pytest.mark.skipif(not COMPILED, reason="one worker only without the JIT")
@pytest.mark.parametrize("discipline", DISCIPLINES[1:])
@pytest.mark.parametrize("labels", [2, 5])
def test_in_a_race_terminals_stay_and_rows_stay_in_the_simplex(discipline, labels):
    if discipline == "atomic" and labels > 2:
        return
    graph = random_graph(labels, n=12, m=4000, links=40)  # few vertices: all of them contended
    bench = Bench(graph, discipline, workers=4, order=Order(CutsProblem.of(graph, discipline).n_rows, 1, True))
    corners = bench.x[graph.terminals].copy()
    np.testing.assert_array_equal(corners, np.eye(labels))
    for epoch in range(20):
        bench.epoch(epoch, (1.0, 1.0, 0.0))
        raw = bench.flat[: graph.n_vertices * bench.problem.stride].reshape(graph.n_vertices, -1)
        pinned = raw[graph.terminals, : 1 if bench.problem.scalar else labels]
        np.testing.assert_array_equal(pinned, corners[:, 1:] if bench.problem.scalar else corners)
    x = bench.x
    assert np.abs(x.sum(axis=1, dtype=np.float64) - 1.0).max() <= 1e-6
    assert x.min() >= 0.0
    control = bench.shared.control[WORKERS:].reshape(-1, LINE)
    assert control[:, ROWS].sum() == bench.order.n_rows
    assert not bench.shared.locks.any()


def test_edges_without_weight_and_vertices_without_edges_move_nothing():
    graph = Graph([0, 0], [1, 2], [0.0, 3.0], [0.0, 3.0], 5, [2, 3], [0, 1], check=False)
    bench = Bench(graph)
    for epoch in range(3):
        bench.epoch(epoch, (1.0, 1.0, 0.0))
    np.testing.assert_array_equal(bench.x[:, 1], [0.0, 0.5, 0.0, 1.0, 0.5])


@pytest.mark.parametrize("scale", [2.0**-120, 2.0**-10, 2.0**100])
@pytest.mark.parametrize("labels", [2, 3])
def test_the_scale_of_the_weights_changes_nothing(scale, labels):
    graph = random_graph(labels)
    scaled = Graph(
        graph.u,
        graph.v,
        graph.forward * scale,
        graph.backward * scale,
        graph.n_vertices,
        graph.terminals,
        graph.terminal_labels,
        labels,
    )
    a, b = Bench(graph), Bench(scaled)
    a.epoch()
    b.epoch()
    assert a.bits() == b.bits()


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 30.0]), st.booleans())
def test_the_projection_is_the_nearest_point_of_the_simplex(n, seed, spread, ties):
    row = np.random.default_rng(seed).normal(size=n).astype(np.float32) * np.float32(spread)
    row = np.round(row) if ties else row
    found = row.copy()
    project(found, n)
    np.testing.assert_allclose(found, onto_simplex(row[np.newaxis])[0], atol=2e-6 * max(spread, 1.0))
    assert abs(float(found.sum(dtype=np.float64)) - 1.0) < 1e-5 * max(spread, 1.0)
    # optimality: no other point of the simplex is nearer than allowed by the angle at the projection
    towards = np.random.default_rng(seed + 1).dirichlet(np.ones(n)) - found
    assert (row - found).astype(np.float64) @ towards <= 1e-4 * max(spread, 1.0) ** 2


def test_projection_of_what_is_no_number_ends():
    row = np.array([np.nan, 0.3, np.nan], dtype=np.float32)
    with np.errstate(all="ignore"):
        project(row, 3)


@pytest.mark.skipif(not COMPILED, reason="without the JIT nothing is on a clock")
@pytest.mark.parametrize("discipline", ["hogwild", "round-robin"])
def test_with_a_delay_the_result_is_the_same(discipline):
    late, usual = Bench(random_graph(), discipline, gradient_delay=1e-6), Bench(random_graph(), discipline)
    late.epoch()
    usual.epoch()
    assert late.bits() == usual.bits()
