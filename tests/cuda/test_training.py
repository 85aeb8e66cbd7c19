"""Training on a device from end to end: the same rows, checkpoints and models as on the CPU, on the stand-in."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hogwild
from hogwild.cuda import streams
from hogwild.data.ratings.source import open_ratings
from hogwild.errors import InputError, UsageError
from hogwild.models import load_model
from hogwild.training.engine import start_pool
from tests.cuda.standin import StandIn
from tests.runs import toy

ROWS, TEST = toy(600, width=64), toy(200, width=64, seed=1)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """What torch finds."""
    found = StandIn(5)
    monkeypatch.setattr(streams, "connect", lambda: found)
    monkeypatch.setattr("hogwild.cuda.problem.FEWEST", 32)
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
def test_one_stream_is_reproducible_here(problem):
    def objectives():
        options = {} if problem == "module" else {"in_flight": 16}
        return [row["objective"] for row in begin(problem, device="cuda", **options)]

    assert objectives() == objectives()


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


def test_data_beyond_the_device(device):
    whole = begin("linear", device="cuda", in_flight=8, order="file")
    device._free = 20_000
    parts = begin("linear", device="cuda", in_flight=8, order="file")
    assert parts.engine.pool is not whole.engine.pool
    # whole data are summed by the device
    assert [row["objective"] for row in whole] == pytest.approx([row["objective"] for row in parts], rel=1e-5)
    some = list(begin("linear", device="cuda", in_flight=8))
    assert some[-1]["objective"] == pytest.approx(whole.history[-1]["objective"], rel=0.05)
    device._free = 1000
    with pytest.raises(InputError, match=r"^device cuda: examples 0 to 32 take [\d.]+ MB, and there is room for 0\.0"):
        begin("linear", device="cuda")


@pytest.mark.parametrize("problem", ["linear", "module"])
def test_rows_every_few_epochs(problem):
    rows = list(begin(problem, device="cuda", epochs=5, evaluate_every=2))
    assert [row["epoch"] for row in rows] == [0, 2, 4, 5]
    n = rows[-1]["updates"]
    assert [row["updates"] for row in rows] == [0, 2 * n, 2 * n, n]
    assert rows[-1]["objective"] < rows[0]["objective"]


def test_pools_and_devices_go_together():
    with pytest.raises(UsageError, match="^the pool's workers are threads, and device='cuda'"):
        begin("linear", device="cuda", pool=start_pool("threads", 1))
    pool = streams.Streams(2)
    with pytest.raises(UsageError, match="^the pool's workers are streams, and device='cpu'"):
        begin("linear", pool=pool)
    for problem in PROBLEMS:  # one after another
        rows = list(begin(problem, device="cuda", pool=pool))
        assert rows[-1]["objective"] < rows[0]["objective"]
        assert rows[0]["workers"] == 2
    pool.close()


def on_gpu(test):
    """Run a test on a real device only."""
    interpreted = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="kernels are interpreted: use -m gpu")
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")(interpreted(test)))


@on_gpu
@pytest.mark.parametrize("problem", PROBLEMS)
def test_on_a_gpu(problem, monkeypatch):
    monkeypatch.undo()
    rows = list(begin(problem, device="cuda", workers=2))
    other = list(begin(problem, device="cpu", workers=1))
    assert rows[-1]["objective"] - other[-1]["objective"] < 0.25 * (rows[0]["objective"] - other[-1]["objective"])
    assert all(re.fullmatch("cuda", row["device"]) for row in rows)


def two_runs():
    """Step two open runs of a module, close one, and step the other."""
    one, other = (begin("module", workers=2) for _ in range(2))
    for run in (one, other, one, other):
        next(run)
    one.close()
    del one
    gc.collect()
    last = [row["objective"] for row in other]
    assert last[-1] < other.history[0]["objective"]


def test_a_closed_run_does_not_disturb_another():
    two_runs()


@on_gpu
def test_on_a_gpu_a_closed_run_does_not_disturb_another(monkeypatch):
    monkeypatch.undo()
    two_runs()


def test_a_model_too_large_is_one_line(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr("hogwild.cuda.linear.launcher.LinearLauncher.__init__", full)
    with pytest.raises(
        hogwild.HogwildError, match="^device cuda: setting up: OutOfMemoryError: CUDA out of memory. Tri"
    ):
        begin("linear", device="cuda")


def test_checkpoints_of_one_device_are_not_anothers(tmp_path: Path):
    begin("linear", device="cuda", checkpoint=tmp_path, epochs=1).finish()
    with pytest.raises(InputError, match="device"):
        begin("linear", device="cpu", workers=1, checkpoint=tmp_path, resume=True, epochs=2)
