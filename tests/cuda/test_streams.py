"""The loop that drives replicas on streams: what it gives to whom, in which order, and when it stops."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hogwild.cuda import streams
from hogwild.cuda.loads import Loads, cut_parts
from hogwild.cuda.problem import DeviceOrder, OnDevice
from hogwild.cuda.streams import Streams
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


class Counting:
    """Its launcher: adds one to each example's number, and keeps a log."""

    block, trials = 1, 1

    def __init__(self, problem, backend, granule=0, row_bytes=8, fail_at=None):
        self.flat = torch.full((problem.size,), -1.0)
        self._backend, self.granule, self._row_bytes, self._fail_at = backend, granule, row_bytes, fail_at
        self.log, self.judged = [], []

    def part(self, first, last):
        return {"number": np.arange(first, last)}

    def bytes_of(self, first, last):
        return self._row_bytes * (last - first)

    def room(self):
        return self.granule or 10**6

    def judge(self, flat):
        self.judged.append(flat.copy())
        return 1.0

    def replica(self, number, stream, in_flight):
        def launch(segment):
            rows = order_twin.rows(segment.visits) if segment.rows is None else segment.rows.numpy()
            visited, steps = segment.data["number"][rows], order_twin.steps(segment.visits)
            if self._fail_at is not None and (visited == self._fail_at).any() and steps.any():
                raise RuntimeError("the device\nhas failed")
            self.log.append((number, visited.numpy().copy(), steps))
            self.flat[visited] += 1.0

        return launch


class Posed(OnDevice):
    """Makes that launcher."""

    def launcher(self, arrays, backend):
        made = Counting(self.problem, backend, **self.options)
        launchers.append(made)
        return made


launchers: list[Counting] = []


def parts_of(n, workers, discipline="hogwild", seed=0, free=1 << 30, shuffled=True, in_flight=8, chunk=None, **options):
    backend = StandIn(seed, free=free)
    order = DeviceOrder(n, chunk or n, shuffled)
    options = {"row_bytes": 8 if options.get("granule") else 44} | options
    problem = Posed(Counts(n, discipline), None if options.get("granule") else in_flight, 3 * n, options)
    pool, job = Streams(workers, backend), Job.of(problem, order, 7, workers, {}, shared=False)
    pool.open(job)
    launchers[-1].log.clear()
    return pool, job, launchers[-1]


def do(pool, job, task):
    job.begin_epoch(task.epoch, task.start)
    pool.begin(task)
    while not pool.wait(0.01):
        pass


SMALL = 3000  # bytes: examples of 44, or of 8 and 36 for their place in a permutation, then come in several parts


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize(("free", "granule"), [(1 << 30, 0), (SMALL, 0), (1 << 30, 4), (2 * SMALL, 4)])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_example_is_visited_once_an_epoch(workers, free, granule, seed):
    n = 203
    pool, job, launcher = parts_of(n, workers, free=free, granule=granule, seed=seed, chunk=16)
    assert (cut_parts(launcher, job.order, int(0.8 * free)) == [(0, n)]) == (free > 2 * SMALL)
    for epoch in range(3):
        do(pool, job, Task(epoch, 0, STEP))
        assert job.position() == job.order.n_chunks
        assert job.done() == (n, 3 * n)
        assert (job.export() == epoch + 1).all()
    assert len({number for number, _, _ in launcher.log}) >= min(workers, 3)  # the stand-in may be quick
    if granule:
        sizes = [len(visited) for _, visited, _ in launcher.log]
        assert sum(size % granule != 0 for size in sizes) <= 3  # the end of an epoch


@pytest.mark.parametrize("free", [1 << 30, SMALL])
def test_order_depends_on_seed_and_epoch_only(free):
    def sequence(epoch, start=0, workers=1, seed=0):
        pool, job, launcher = parts_of(200, workers, free=free, chunk=16, seed=seed)
        do(pool, job, Task(epoch, start, STEP))
        return np.concatenate([visited for _, visited, _ in launcher.log])

    whole = sequence(0)
    assert (sequence(0, seed=9) == whole).all()
    assert not (sequence(1) == whole).all()
    assert (np.sort(sequence(1)) == np.arange(200)).all()
    for start in (1, 5, 12):  # what is left of an epoch; the short chunk may be in the middle
        rest = sequence(0, start)
        assert (rest == whole[len(whole) - len(rest) :]).all()
        assert len(rest) in (200 - 16 * start, 200 - 16 * (start - 1) - 8)


def test_file_order():
    pool, job, launcher = parts_of(200, 1, shuffled=False, free=SMALL, chunk=16)
    do(pool, job, Task(0, 0, STEP))
    assert (np.concatenate([visited for _, visited, _ in launcher.log]) == np.arange(200)).all()


@pytest.mark.parametrize("free", [1 << 30, SMALL])
def test_steps_fall_with_the_visits(free):
    n = 120
    pool, job, launcher = parts_of(n, 1, free=free, chunk=16)
    do(pool, job, Task(2, 3, STEP))
    steps = np.concatenate([steps for _, _, steps in launcher.log])
    times = 3 * n - len(steps) + np.arange(len(steps))
    assert np.allclose(steps, 0.5 * (1.0 + times) ** -0.5)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("free", "granule"), [(1 << 30, 0), (20 * SMALL, 0), (1 << 30, 4)])
def test_stops_at_a_chunk_and_goes_on_there(workers, free, granule, monkeypatch):
    monkeypatch.setattr(streams, "MOST", 64)
    n = 3000
    pool, job, launcher = parts_of(n, workers, free=free, granule=granule, chunk=16)
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
        pool, job, launcher = parts_of(160, 4, discipline, seed, granule=4, chunk=4, shuffled=False)
        do(pool, job, Task(0, 0, STEP))
        return [int(visited[0]) for _, visited, _ in launcher.log]

    for seed in range(5):
        assert starts("locked", seed) == list(range(0, 160, 4))
    assert any(starts("hogwild", seed) != sorted(starts("hogwild", seed)) for seed in range(5))


@pytest.mark.parametrize("seed", range(8))
def test_a_part_is_copied_when_the_one_before_the_last_is_done(seed, monkeypatch):
    log, copy = [], Loads._copy

    def logged(self, load, part):
        work, number = copy(self, load, part), next(numbers)

        def run():
            log.append(("copy", number))
            work()
            load.data["load"] = torch.tensor(number)

        return run

    def replica(self, number, stream, in_flight):
        return lambda segment: log.append(("visit", int(segment.data["load"])))

    monkeypatch.setattr(Loads, "_copy", logged)
    monkeypatch.setattr(Counting, "replica", replica)
    monkeypatch.setattr(streams.DeviceJob, "_rehearse", lambda self: None)  # on a load of its own
    numbers = iter(range(1000))
    pool, job, launcher = parts_of(500, 3, free=SMALL, chunk=16, seed=seed)
    log.clear()
    do(pool, job, Task(0, 0, STEP))
    parts = len(cut_parts(launcher, job.order, int(0.8 * SMALL)))
    assert [number for kind, number in log if kind == "copy"] == list(range(parts))
    for number in range(2, parts):
        before = log[: log.index(("copy", number))]
        assert [entry for entry in log if entry == ("visit", number - 2)] == [
            entry for entry in before if entry == ("visit", number - 2)
        ]


def test_parts():
    class Large(Counting):
        def __init__(self, row_bytes):
            self._row_bytes, self.granule = row_bytes, 4

    order = DeviceOrder(100, 16, True)
    assert cut_parts(Large(64), order, 10_000) == [(0, 100)]  # 36 bytes an example are for its place in minibatches
    assert cut_parts(Large(64), order, 9_999) == [(0, 32), (32, 64), (64, 96), (96, 100)]
    with pytest.raises(InputError, match="examples 0 to 16 take 0.0 MB"):
        cut_parts(Large(64), order, 3_000)
    gigabytes = 600 << 20  # chunks of 10 GB may be parts, where three have room
    assert cut_parts(Large(gigabytes), order, 40 << 30)[:2] == [(0, 16), (16, 32)]
    with pytest.raises(InputError, match=r"examples 0 to 16 take 10,0\d\d\.\d MB, and there is room for 7,"):
        cut_parts(Large(gigabytes), order, 20 << 30)


def test_examples_in_flight():
    pool, job, launcher = parts_of(600, 3, in_flight=None)
    assert pool.measured() == {"in_flight": None}
    assert len(launcher.judged) == 1  # off the clock, so that what it needs is there
    do(pool, job, Task(0, 0, (0.5, 4.0, 0.5)))
    assert [number for number, _, _ in launcher.log][:4] == [0] * 4  # the trials'
    assert all((flat >= 0).all() for flat in launcher.judged)
    assert not launcher.judged[0].any()
    assert launcher.judged[2].sum() == 32 * (600 // 16)  # 37 in flight are tried, and 9, for equally many visits
    assert (job.export() == 1).all()  # of which nothing is left
    assert pool.measured() == {"in_flight": 36}  # twelve each
    for step, many in ((0.25, 36), (0.22, 36), (0.125, 72), (0.25, 36)):  # a little more is not worth new replicas
        do(pool, job, Task(1, 0, (step, 1.0, 0.0)))
        assert pool.measured() == {"in_flight": many}
    assert (job.export() == 5).all()
    assert len(launcher.judged) == 4
    pool, job, launcher = parts_of(50, 2, in_flight=40)
    assert pool.measured() == {"in_flight": 40}
    assert not launcher.judged
    pool, job, launcher = parts_of(50, 2, in_flight=64)
    assert pool.measured() == {"in_flight": 50}  # all there are


def test_failures_are_one_line():
    pool, job, _ = parts_of(50, 2, fail_at=17)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, STEP))
    with pytest.raises(TrainingError, match="^device cuda: a worker failed: RuntimeError: the device has failed$"):
        pool.wait(1000.0)
    pool.close()
    assert pool.closed
    with pytest.raises(UsageError, match="closed"):
        pool.open(job)
    with pytest.raises(TrainingError, match="^device cuda: setting up: TypeError"):
        parts_of(50, 1, granul=3)


def test_one_job_after_another():
    pool, job, _launcher = parts_of(50, 2)
    do(pool, job, Task(0, 0, STEP))
    other = Job.of(Posed(Counts(20), 8, 0, {}), DeviceOrder(20, 20, True), 0, 2, {}, shared=False)
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


def test_parameters_come_home_when_asked_for():
    pool, job, _launcher = parts_of(50, 1)
    do(pool, job, Task(0, 0, STEP))
    assert (job.flat == 0).all()
    assert (job.export() == 1).all()
    assert (job.flat == 1).all()


def test_restored_parameters_are_those_that_are_trained():
    pool, job, _launcher = parts_of(50, 1)
    job.restore(np.full(50, 5, np.float32))
    do(pool, job, Task(0, 0, STEP))
    assert (job.export() == 6).all()


# --- streams of several runs


def in_use(device):
    return sum(lane.users for lane in device.lanes.lanes)


def test_open_runs_have_streams_of_their_own():
    device = StandIn()
    one, other = Streams(3, device), Streams(2, device)
    assert len({id(stream.queue) for stream in [*one._streams, *other._streams]}) == 5
    one.close()
    assert in_use(device) == 2
    third = Streams(30, device)
    assert len(device.queues) == 32
    assert {lane.users for lane in device.lanes.lanes} == {1}
    more = Streams(31, device)  # each shares one, and no two of them the same
    assert len({id(stream.queue) for stream in more._streams}) == 31
    assert len(device.queues) == 32
    more.close()
    del third  # never closed
    gc.collect()
    assert in_use(device) == 2
    other.close()
    assert in_use(device) == 0


def test_a_job_gives_back_the_stream_of_its_copies():
    pool, job, _ = parts_of(50, 2)
    assert in_use(pool._backend) == 3
    pool.release(job)
    assert in_use(pool._backend) == 2
    pool.close()
    assert in_use(pool._backend) == 0


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
