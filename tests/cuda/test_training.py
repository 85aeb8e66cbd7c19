"""Training on a device from end to end: the same rows, checkpoints and models as on the CPU, on the stand-in."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import hogwild
from hogwild.cuda import streams
from hogwild.data.ratings.source import open_ratings
from hogwild.data.rows.source import open_data
from hogwild.errors import UsageError
from hogwild.model_file import load_model
from hogwild.training.engine import start_pool
from tests.cuda.standin import StandIn
from tests.runs import toy

ROWS, TEST = toy(600, width=64), toy(200, width=64, seed=1)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """What torch finds."""
    found = StandIn(5)
    monkeypatch.setattr(streams, "connect", lambda: found)
    monkeypatch.setattr("hogwild.cuda.streams.FEWEST", 32)
    return found


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


def examples(n=512, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 16)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] > 0).astype(np.int64)


def begin(problem, **options):
    """A run."""
    if problem == "linear":
        return hogwild.train(ROWS, TEST, **{"step": 0.5, "epochs": 4} | options)
    if problem == "completion":
        ratings = open_ratings("synthetic:ratings?users=90&items=60&ratings=1200")
        return hogwild.train(ratings, **{"problem": "completion", "rank": 8, "epochs": 4} | options)
    options = {"device": "cuda", "batch": 16, "epochs": 4} | options
    return hogwild.train_module(network(), "cross-entropy", examples(), examples(100, 1), **options)


PROBLEMS = ("linear", "completion", "module")


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_and_models_are_those_of_the_cpu(problem, workers, tmp_path):
    host, name = begin(problem, device="cpu", workers=1), begin(problem, device="cuda", workers=workers)
    theirs, mine = list(host), list(name)
    assert set(theirs[0]) | {"gpu"} == set(mine[0])
    assert mine[0]["gpu"] == "stand-in"
    for row, other in zip(mine, theirs):
        assert (row["host"], row["device"], row["workers"], row["status"]) == ("streams", "cuda", workers, "ok")
        assert (row["epoch"], row["updates"]) == (other["epoch"], other["updates"])
        assert (row["in_flight"] is None) == (row["epoch"] == 0 and problem != "module")
    assert mine[0]["objective"] == theirs[0]["objective"]
    assert mine[-1]["objective"] < mine[0]["objective"]
    assert mine[-1]["objective"] - theirs[-1]["objective"] < 0.25 * (mine[0]["objective"] - theirs[-1]["objective"])
    if problem != "module":
        name.model.save(tmp_path / "model")
        assert type(load_model(tmp_path / "model")) is type(host.model)
    if problem == "linear":
        assert mine[-1]["nonzeros_per_second"] > 0


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("inside", [False, True])
def test_resumed_is_the_same(problem, inside, tmp_path, monkeypatch):
    options = {"device": "cuda"} | ({} if problem == "module" else {"in_flight": 16})
    whole = list(begin(problem, **options))[-1]["objective"]
    run = begin(problem, checkpoint=tmp_path, **options)
    next(run)
    next(run)
    if inside:
        monkeypatch.setattr(streams, "MOST", 64)
        give = streams.DeviceJob._give
        monkeypatch.setattr(streams.DeviceJob, "_give", lambda self, number: (give(self, number), run.stop()))
        row = next(run)
        monkeypatch.setattr(streams.DeviceJob, "_give", give)
        assert row["status"] == "interrupted"
        assert 1 < row["epoch"] < 2
    run.close()
    rest = list(begin(problem, checkpoint=tmp_path, resume=True, **options))
    assert rest[-1]["epoch"] == 4
    assert rest[-1]["objective"] == pytest.approx(whole, rel=1e-6)


def test_pools_and_devices_go_together():
    with pytest.raises(UsageError, match=r"^the pool has 1 workers \(threads\), expected 1 on device 'cuda'"):
        begin("linear", device="cuda", pool=start_pool("threads", 1))
    pool = streams.Streams(2)
    with pytest.raises(UsageError, match=r"^the pool has 2 workers \(streams\), expected 2 on device 'cpu'"):
        begin("linear", pool=pool)
    for problem in PROBLEMS:  # one after another
        rows = list(begin(problem, device="cuda", pool=pool))
        assert rows[-1]["objective"] < rows[0]["objective"]
        assert rows[0]["workers"] == 2
    pool.close()


INTERPRETED = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="kernels are interpreted: use -m gpu")
ON_GPU = pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"), INTERPRETED


@pytest.mark.parametrize("problem", [pytest.param(problem, marks=ON_GPU) for problem in PROBLEMS])
def test_on_a_gpu(problem, monkeypatch):
    monkeypatch.undo()
    rows = list(begin(problem, device="cuda", workers=2))
    other = list(begin(problem, device="cpu", workers=1))
    assert rows[-1]["objective"] - other[-1]["objective"] < 0.25 * (rows[0]["objective"] - other[-1]["objective"])
    assert all(row["device"] == "cuda" for row in rows)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=ON_GPU)])
def test_a_closed_run_does_not_disturb_another(real, monkeypatch):
    if real:
        monkeypatch.undo()
    one, other = (begin("module", workers=2) for _ in range(2))
    for run in (one, other, one, other):
        next(run)
    one.close()
    del one
    gc.collect()
    last = [row["objective"] for row in other]
    assert last[-1] < other.history[0]["objective"]


def test_a_model_too_large_is_one_line(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr("hogwild.cuda.linear.LinearLauncher.__init__", full)
    with pytest.raises(
        hogwild.HogwildError, match="^device cuda: setting up: OutOfMemoryError: CUDA out of memory. Tri"
    ):
        begin("linear", device="cuda")


# --- examples in flight


def test_a_run_is_no_worse_than_with_few_in_flight(monkeypatch):
    """Next to batches, of which all examples see the same parameters: the worst that a device can do."""
    monkeypatch.setattr(streams, "connect", lambda: StandIn(programs=4096))
    data, ends = open_data("synthetic:rcv1?rows=1000&features=3000"), {}
    for in_flight in (None, 4):
        run = hogwild.train(data, device="cuda", epochs=2, schedule="constant", in_flight=in_flight, step=2.0)
        rows = list(run)
        ends[in_flight] = rows[-1]
    start = rows[0]["objective"]
    learned = start - ends[4]["objective"]
    assert learned > 0
    assert ends[None]["objective"] < start - 0.85 * learned
    assert 4 < ends[None]["in_flight"] <= len(data) // 16


# --- what a run leaves


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


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_dropped_run_leaves_the_device_at_once(problem):
    run = begin(problem, device="cuda")
    next(run)
    next(run)
    with without_collector(run) as there:
        assert there()
        del run
        assert not there()
