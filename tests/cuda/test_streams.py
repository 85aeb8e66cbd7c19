"""The loop that drives replicas on streams: what it gives to whom, in which order, and when it stops."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hogwild.cuda import streams
from hogwild.cuda.streams import Launcher, OnDevice, Streams
from hogwild.data.order import Order
from hogwild.errors import InputError, TrainingError, UsageError
from hogwild.hosts.job import Job, Task
from tests.cuda import order_twin
from tests.cuda.standin import StandIn

STEP = (0.5, 1.0, 0.5)


@dataclass
class Counts:
    """A problem with a number an example: how often it was visited."""

    size: int
    discipline: str = "hogwild"

    def parameters(self, flat):
        return flat

    def start(self, flat, seed):
        pass


class Counting(Launcher):
    """Its launcher: adds one to each example's number, and keeps a log."""

    def __init__(self, problem, arrays, backend, granule=0, fail_at=None):
        self.flat = torch.full((problem.size,), -1.0)
        self.backend, self.granule, self._fail_at = backend, granule, fail_at
        self.data = self.upload({"number": np.arange(problem.size)})
        self.log, self.rows = [], None
        launchers.append(self)

    def room(self):
        return self.granule or 10**6

    def longest_step(self):
        return 10.0

    def shuffle(self, epoch):
        self.rows = order_twin.rows(epoch)

    def replica(self, number, stream, in_flight):
        def launch(visits):
            here = slice(visits.first, visits.first + visits.size)
            rows = self.rows[here] if self.granule else order_twin.rows(visits)
            visited, steps = self.data["number"][rows], order_twin.steps(visits)
            if self._fail_at is not None and (visited == self._fail_at).any() and steps.any():
                raise RuntimeError("the device\nhas failed")
            self.log.append((number, visited.numpy().copy(), steps))
            self.flat[visited] += 1.0

        return launch


launchers: list[Counting] = []


class Device(StandIn):
    """Where that launcher is found."""

    def launcher(self, problem):
        return Counting


def job_of(n, workers, discipline="hogwild", shuffled=True, in_flight=8, chunk=None, **options):
    problem = OnDevice(Counts(n, discipline), discipline, None if options.get("granule") else in_flight, 3 * n, options)
    return Job.of(problem, Order(n, 1, shuffled, chunk or n), 7, workers, {}, shared=False)


def opened(n, workers, discipline="hogwild", seed=0, free=1 << 30, **options):
    pool, job = Streams(workers, Device(seed, free=free)), job_of(n, workers, discipline, **options)
    pool.open(job)
    launchers[-1].log.clear()
    return pool, job, launchers[-1]


def do(pool, job, task):
    job.begin_epoch(task.epoch, task.start)
    pool.begin(task)
    while not pool.wait(0.01):
        pass


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize("granule", [0, 4])
def test_every_example_is_visited_once_an_epoch(workers, granule):
    n = 203
    pool, job, launcher = opened(n, workers, granule=granule, chunk=16)
    for epoch in range(3):
        do(pool, job, Task(epoch, 0, STEP))
        assert job.position() == job.order.n_chunks
        assert job.done() == (n, 3 * n)
        assert (job.export() == epoch + 1).all()
    assert len({number for number, _, _ in launcher.log}) >= min(workers, 3)  # the stand-in may be quick
    if granule:
        sizes = [len(visited) for _, visited, _ in launcher.log]
        assert sum(size % granule != 0 for size in sizes) <= 3  # the end of an epoch


def sequence(epoch, start=0, seed=0, **options):
    pool, job, launcher = opened(200, 1, chunk=16, seed=seed, **options)
    do(pool, job, Task(epoch, start, STEP))
    return np.concatenate([visited for _, visited, _ in launcher.log])


def test_order_depends_on_seed_and_epoch_only():
    whole = sequence(0)
    assert (sequence(0, seed=9) == whole).all()
    assert not (sequence(1) == whole).all()
    assert (np.sort(sequence(1)) == np.arange(200)).all()
    for start in (1, 5, 12):  # what is left of an epoch
        assert (sequence(0, start) == whole[16 * start :]).all()
    assert (sequence(0, shuffled=False) == np.arange(200)).all()


def test_steps_fall_with_the_visits():
    n = 120
    pool, job, launcher = opened(n, 1, chunk=16)
    do(pool, job, Task(2, 3, STEP))
    steps = np.concatenate([steps for _, _, steps in launcher.log])
    assert np.allclose(steps, 0.5 * (1.0 + 2 * n + np.arange(48, n)) ** -0.5)


def test_data_beyond_the_memory_are_refused():
    wanted = r"^device cuda: the data need 0\.8 MB of the GPU's memory, which has room for 0\.0: train on the CPU$"
    with pytest.raises(InputError, match=wanted):
        opened(100_000, 1, free=1000)
    opened(100_000, 1, free=1_000_001)
    with pytest.raises(InputError, match=r"need 4\.4 MB .* room for 0\.5"):  # also of places in minibatches
        opened(100_000, 1, free=1_000_001, granule=4)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("granule", [0, 4])
def test_stops_at_a_chunk_and_goes_on_there(workers, granule, monkeypatch):
    monkeypatch.setattr(streams, "MOST", 64)
    n = 3000
    pool, job, launcher = opened(n, workers, granule=granule, chunk=16)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, STEP))
    while not launcher.log:
        pool.wait(0.0)
    job.stop()
    while not pool.wait(0.01):
        pass
    chunks = job.position()
    visited = np.concatenate([visited for _, visited, _ in launcher.log])
    assert 0 < len(visited) < n
    assert len(visited) in (16 * chunks, 16 * chunks - 16 + n % 16)
    assert job.done()[0] == len(visited)
    do(pool, job, Task(0, chunks, STEP))
    assert job.position() == job.order.n_chunks
    assert (job.export() == 1).all()


def test_locked_replicas_take_turns():
    def starts(discipline, seed):
        pool, job, launcher = opened(160, 4, discipline, seed, granule=4, chunk=4, shuffled=False)
        do(pool, job, Task(0, 0, STEP))
        return [int(visited[0]) for _, visited, _ in launcher.log]

    for seed in range(5):
        assert starts("locked", seed) == list(range(0, 160, 4))
    assert any(starts("hogwild", seed) != sorted(starts("hogwild", seed)) for seed in range(5))


def test_as_many_are_in_flight_as_the_step_allows():
    pool, job, _ = opened(1600, 3, in_flight=None)
    assert pool.measured() == {"in_flight": None}
    for epoch, (step, many) in enumerate(
        [(0.5, 18), (0.25, 39), (0.01, 99), (100.0, 3)]
    ):  # at most 100, least one each
        do(pool, job, Task(epoch, 0, (step, 1.0, 0.0)))
        assert pool.measured() == {"in_flight": many}
    do(pool, job, Task(4, 0, (0.5 * 6401**0.5, 1.0, 0.5)))  # a step that falls
    assert pool.measured() == {"in_flight": 18}
    assert (job.export() == 5).all()  # what was rehearsed is undone
    for in_flight, many in ((40, 40), (64, 50)):  # all there are
        assert opened(50, 2, in_flight=in_flight)[0].measured() == {"in_flight": many}


def test_few_in_flight_make_short_segments(monkeypatch):
    """So that a run can be stopped soon."""
    monkeypatch.setattr(streams, "TURNS", 8)
    for in_flight, many in ((2, 32), (1000, 1)):
        pool, job, launcher = opened(512, 1, in_flight=in_flight, chunk=16)
        do(pool, job, Task(0, 0, STEP))
        assert len(launcher.log) == many


def test_what_a_segment_launched_before_it_failed_is_waited_for():
    """No event is behind it, and the memory that it writes to is about to be given away."""
    pool, job, _ = opened(50, 2)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, STEP))
    launched = []
    pool._streams[1].run(lambda: launched.append(1))
    pool.release(job)
    assert launched


def test_failures_are_one_line():
    pool, job, _ = opened(50, 2, fail_at=17)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, STEP))
    with pytest.raises(
        TrainingError,
        match=r"^device cuda: a worker failed: RuntimeError: the device has failed \(test_streams.py, line \d+\)$",
    ):
        pool.wait(1000.0)
    pool.close()
    assert pool.closed
    with pytest.raises(UsageError, match="closed"):
        pool.open(job)
    with pytest.raises(TrainingError, match="^device cuda: setting up: TypeError"):
        opened(50, 1, granul=3)


def test_one_job_after_another():
    pool, job, _ = opened(50, 2)
    do(pool, job, Task(0, 0, STEP))
    other = job_of(20, 2)
    pool.open(other)
    assert pool.job is other
    assert (job.flat == 1).all()  # it came home
    do(pool, other, Task(0, 0, STEP))
    pool.open(job)
    do(pool, job, Task(1, 0, STEP))
    assert (job.export() == 2).all()
    assert (other.export() == 1).all()
    pool.release(other)  # which it has no more
    assert pool.job is job
    job.begin_epoch(2, 0)
    pool.begin(Task(2, 0, STEP))
    with pytest.raises(UsageError, match="at work for another run"):
        pool.open(other)
    pool.release(job)  # at work
    assert pool.job is None
    assert pool.wait(0.0)


# --- graphs


def test_a_graph_is_kept_while_another_lives_on_its_stream():
    device = StandIn()
    stream, done = device.stream(), []
    old = stream.capture(lambda: done.append("old"))
    new = stream.capture(lambda: done.append("new"))
    while device.advance():
        pass
    done.clear()
    del old
    gc.collect()
    new()
    assert done == ["new"]
    del new
    gc.collect()
    assert stream.queue.workspace == 2  # now both are gone
