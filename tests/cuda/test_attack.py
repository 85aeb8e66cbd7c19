"""What an attack on the path to the GPU found: memory that was kept, waits, and what a clock must not see."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

import hogwild
from hogwild.cli.train_module import _describe
from hogwild.cuda import backend, streams
from hogwild.cuda.completion.launcher import CompletionLauncher
from hogwild.cuda.linear import launcher as linear
from hogwild.cuda.loads import Loads
from hogwild.data.ratings.source import open_ratings
from hogwild.errors import InputError
from hogwild.hosts.job import Task
from hogwild.training import engine
from tests.cuda.standin import Queued
from tests.cuda.test_streams import SMALL, STEP, do, parts_of
from tests.cuda.test_training import begin, device  # noqa: F401


@pytest.mark.parametrize("workers", [1, 6])
def test_no_more_than_three_parts_are_kept(workers, monkeypatch):
    """Replicas that had nothing of the newest parts hold on to no old one."""
    made, most, copy = [], [], Loads._copy

    def counted(self, load, part):
        made.append(weakref.ref(load))
        most.append(sum(one() is not None for one in made))
        return copy(self, load, part)

    monkeypatch.setattr(Loads, "_copy", counted)
    monkeypatch.setattr(streams.DeviceJob, "_rehearse", lambda self: None)
    monkeypatch.setattr(Queued, "run", lambda self, work: work())  # as a device: its kernels know addresses only
    gc.collect()
    gc.disable()
    try:
        pool, job, _ = parts_of(400, workers, free=SMALL, chunk=16)
        for epoch in range(3):
            do(pool, job, Task(epoch, 0, STEP))
    finally:
        gc.enable()
    assert len(most) > 20
    assert 2 <= max(most) <= 3, most


@contextlib.contextmanager
def without_collector(run):
    """Whatever is dropped within must go at once: yields whether the parameters on the device are still there."""
    desk = run.engine.pool._desk
    for one in [replica for replica in desk._replicas if hasattr(replica, "replay")]:
        one.replay = None  # the stand-in captures nothing: it goes on calling what it was given
        del one
    flat = weakref.ref(desk._launcher.flat)
    del desk, run
    gc.collect()
    gc.disable()
    try:
        yield lambda: flat() is not None
    finally:
        gc.enable()


@pytest.mark.parametrize("problem", ["linear", "completion", "module"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_dropped_run_leaves_the_device_at_once(problem, rows):
    run = begin(problem, device="cuda")
    for _ in range(rows):
        next(run)
    with without_collector(run) as there:
        assert there()
        del run
        assert not there()


def test_a_stopped_run_leaves_the_device_at_once(device, monkeypatch):  # noqa: F811
    monkeypatch.setattr(streams, "MOST", 64)
    run = begin("linear", device="cuda", in_flight=1)
    next(run)
    give = streams.DeviceJob._give
    monkeypatch.setattr(streams.DeviceJob, "_give", lambda self, number: (give(self, number), run.stop()))
    with without_collector(run) as there:
        assert next(run)["status"] == "interrupted"
        while device.advance():  # what nobody waited for
            pass
        assert not there()


def test_trials_are_on_the_clock_and_what_they_need_is_made_off_it(monkeypatch):
    seen, clocks, judge, enter = [], [], linear.LinearLauncher.judge, engine.Clock.__enter__
    monkeypatch.setattr(linear.LinearLauncher, "judge", lambda *about: seen.append(len(clocks)) or judge(*about))
    monkeypatch.setattr(engine.Clock, "__enter__", lambda self: clocks.append(1) or enter(self))
    begin("linear", device="cuda", epochs=1).finish()
    assert seen[:2] == [0, len(clocks)]


def test_few_in_flight_make_short_segments(monkeypatch):
    """So that a run can be stopped soon."""
    monkeypatch.setattr(streams, "TURNS", 8)
    for in_flight, many in ((2, 32), (1000, 1)):
        pool, job, launcher = parts_of(512, 1, in_flight=in_flight, chunk=16)
        do(pool, job, Task(0, 0, STEP))
        assert len(launcher.log) == many


@pytest.mark.parametrize("loss", ["log", "bpr"])
def test_negatives_are_not_those_of_the_epoch_before(loss, monkeypatch, tmp_path):
    """Also of epochs that go together, after a resume, and of runs that take turns."""
    salts, salt = [], CompletionLauncher.salt

    def noted(self, segment):
        if segment.visits.scale:
            salts.append((salt(self, segment), segment.visits.size))
        return salt(self, segment)

    monkeypatch.setattr(CompletionLauncher, "salt", noted)
    ratings = open_ratings("synthetic:ratings?users=90&items=60&ratings=1200")

    def visits(**options):
        salts.clear()
        about = {"problem": "completion", "loss": loss, "device": "cuda", "epochs": 4, "in_flight": 8, "rank": 4}
        for epochs in options.pop("until", [4]):
            hogwild.train(ratings, **about | options | {"epochs": epochs}).finish()
        return sorted(first + k for first, count in salts for k in range(count))

    found = visits()
    assert len(set(found)) == len(found) == 4800
    assert visits(workers=3) == visits(evaluate_every=4) == found
    assert visits(checkpoint=tmp_path, resume=True, until=[1, 2, 4]) == found


def test_memory_that_torch_keeps_is_free(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: asked.append("info") or (7, 9))
    cuda = object.__new__(backend.Backend)
    cuda.device = torch.device("cuda", 0)
    assert cuda.free() == 7
    assert asked == ["empty", "info"]


def test_a_module_goes_on_with_the_workers_it_had(tmp_path):
    about = {"device": "cuda", "optimizer": "adam", "checkpoint": tmp_path}
    begin("module", workers=3, epochs=1, **about).finish()
    with pytest.raises(InputError, match=r"cannot resume with 1 workers: .* give workers=3"):
        begin("module", resume=True, epochs=2, **about)
    assert [row["epoch"] for row in begin("module", workers=3, resume=True, epochs=2, **about)] == [2]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (1, "hogwild on 1 CUDA stream: sums in any order, so two runs differ"),
        (3, "hogwild on 3 CUDA streams: they race, so two runs differ"),
    ],
)
def test_what_is_said_of_a_module_on_a_gpu(workers, said):
    with begin("module", device="cuda", workers=workers) as run:
        assert _describe(run.config, "cross-entropy", run.problem.layout).endswith(f"\n{said}")


def test_what_a_segment_launched_before_it_failed_is_waited_for():
    """No event is behind it, and the memory that it writes to is about to be given away."""
    pool, job, _ = parts_of(50, 2)
    job.begin_epoch(0, 0)
    pool.begin(Task(0, 0, STEP))
    launched = []
    pool._streams[1].run(lambda: launched.append(1))
    pool.release(job)
    assert launched
