"""Replicas and their mean: what they are equal to, what becomes of them when workers die or stop, how well they do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hogwild
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError, UsageError
from hogwild.exchanges.averaging import PIECE
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import NEXT
from hogwild.methods import EXCHANGES
from hogwild.model_file import load_checkpoint
from hogwild.training.engine import resolve
from hogwild.training.step_search import Probe
from tests.exchanges.room import Room
from tests.kernels.harness import CONSTANT, Until, awkward_rows, bits, make_job, run_epoch
from tests.runs import living, toy

AVERAGING, ONE_SHOT = [*EXCHANGES][1:3]
ROWS = f"{AVERAGING}:mean=rows"
both = pytest.mark.parametrize("exchange", [AVERAGING, ONE_SHOT])


# ---- the arrays


@pytest.mark.parametrize("size", [1, PIECE + 5])
@pytest.mark.parametrize("exchange", [AVERAGING, ROWS])
def test_the_mean_is_weighted_by_rows(exchange: str, size: int) -> None:
    """Of each weight over those that moved it, or over all; who did no row has no say, not even with a NaN."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(size).astype(np.float32)
    r, rows = Room(exchange, 4, size, start), np.array([700, 64, 3])
    for w in r.w:
        w += np.where(rng.random(size) < 0.5, 1 + rng.random(size), 0).astype(np.float32)
    r.w[2][:] = np.nan
    parts = np.array([r.w[0], r.w[1], r.w[3]])
    moved = parts != start
    shares = rows[:, None] * (moved | (exchange == ROWS))
    some, alone = shares.any(axis=0), (shares > 0).sum(axis=0) == 1
    mean = r.meet(700, 64, 0, 3)
    np.testing.assert_array_equal(mean[~some], start[~some])
    expected = np.average(parts.astype(np.float64)[:, some], axis=0, weights=shares[:, some])
    np.testing.assert_allclose(mean[some], expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(mean[alone], parts.T[alone][moved.T[alone]])  # to the bit


@both
def test_without_a_row_nothing_changes(exchange: str) -> None:
    start = np.where(np.arange(40) % 2, -0.0, 0.1).astype(np.float32)
    r = Room(exchange, 2, 40, start)
    assert r.meet(0, 0).tobytes() == start.tobytes()
    assert r.meet(0, 5).tobytes() == start.tobytes()  # a single one is taken over as it is, minus zeros and all


def test_a_replica_of_which_nobody_has_begun_is_where_all_begin() -> None:
    r = Room(ONE_SHOT, 2, 40, 1.0)
    r.w[1][:] = 9  # its worker died at once, and left what an earlier run had there
    r.arrays["begun"][1] = 0
    r.w[0] += 1
    assert (r.meet(5, 0) == 2).all()
    assert (r.w[1] == 1).all()


@pytest.mark.parametrize("exchange", [f"{AVERAGING}:period=1", f"{ROWS},period=1"])
def test_what_workers_learn_while_a_round_takes_place_is_kept(exchange: str) -> None:
    """On a machine they race on the replica that is traded; what has not moved meanwhile is the mean, to the bit."""
    rng = np.random.default_rng(0)
    r = Room(exchange, 2, 40, rng.standard_normal(40))
    moves, later = rng.standard_normal((2, 40)).astype(np.float32), np.where(np.arange(40) % 2, np.float32(0.5), 0)
    for w, move in zip(r.w, moves):
        w += move
    first, second = (r.trading(replica) for replica in range(2))
    next(first)
    r.w[0] += later
    for _ in range(10):
        next(second, None), next(first, None)
    assert r.base(0).tobytes() == r.base(1).tobytes()
    np.testing.assert_allclose(r.base(), r.flat + moves.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(r.w[0], r.base() + later, rtol=1e-5, atol=1e-6)
    if "rows" not in exchange:
        assert (r.w[0] == r.base())[later == 0].all()
        assert (r.w[1] == r.base()).all()


# ---- a job whose workers are driven by hand


def job_of(rows: Rows, exchange: str, workers: int = 2, **options: Any) -> Job:
    return make_job(rows, "serial", workers, exchange=exchange, **options)


def drive(job: Job, shares: list[tuple[int, int]], epoch: int = 0, start: int = 0) -> None:
    """A task in which workers, one after another, take all chunks up to a given one."""
    whole = job.order
    job.begin_epoch(epoch, start)
    for worker, end in shares:
        job.order = Until(whole.n_rows, whole.block, whole.shuffled, end=end)
        job.work(job.shared(), job.scratch(), job.data(), Task(epoch, start, CONSTANT), worker)
        job.control[NEXT] = end  # it has asked for one more, in vain
    job.order = whole
    job.meet()


@pytest.mark.parametrize("exchange", [AVERAGING, ROWS, ONE_SHOT])
def test_the_mean_of_serial_runs_over_the_parts(exchange: str) -> None:
    """Two epochs, three workers, unequal parts: for ``averaging`` from the mean, else each from where it was."""
    rows, options = awkward_rows(n=500), {"l1": 1e-3, "l2": 1e-3}
    job = job_of(rows, exchange, 3, **options)
    starts = [job.flat.copy()] * 3
    did = np.zeros(3)
    for epoch, cuts in enumerate(((5, 7, 8), (1, 3, 8))):
        drive(job, list(enumerate(cuts)), epoch)
        ends, did = [], did if exchange == ONE_SHOT else np.zeros(3)
        for worker, (first, last) in enumerate(zip((0, *cuts), cuts)):
            twin = make_job(rows, "serial", **options)
            twin.flat[:] = starts[worker]
            run_epoch(twin, epoch, CONSTANT, first, last)
            did[worker] += twin.done()[0]
            ends.append(twin.flat.copy())
        assert job.done() == (len(rows), rows.nnz)  # disjoint and complete
        weights = np.repeat(did[:, None], len(job.flat), axis=1)
        if exchange == AVERAGING:  # over those that have moved a weight
            weights[np.array(ends) == starts] = 0
            weights[:, ~weights.any(axis=0)] = 1
        mean = np.average(np.array(ends, np.float64), axis=0, weights=weights)
        np.testing.assert_allclose(job.flat, mean, rtol=1e-6, atol=1e-7)
        starts = ends if exchange == ONE_SHOT else [job.flat.copy()] * 3


@both
def test_who_replaces_a_dead_worker_goes_on_with_its_replica(exchange: str) -> None:
    rows = awkward_rows(n=500)
    whole, job = job_of(rows, exchange, 1), job_of(rows, exchange, 1)
    drive(whole, [(0, 8)])
    drive(job, [(0, 3), (0, 8)])  # the second time with another memory of its own
    assert bits(job) == bits(whole)


@pytest.mark.parametrize(("exchange", "share"), [(f"{ROWS},period=1", 1 / 3), ("server:push=1,bound=0,rule=sum", 1.0)])
def test_a_trade_after_every_row_is_a_step_along_all_gradients(exchange: str, share: float) -> None:
    """Equal shares, no penalty, no intercept: the float64 twin takes three rows' gradients at a time."""
    rows = toy(3 * 128, classes=0)
    options = {"loss": "squared-error", "l2": 0.0, "step": 0.02, "schedule": "constant", "intercept": False}
    run = hogwild.train(rows, order="file", workers=3, host="simulator", exchange=exchange, epochs=1, **options)
    model = run.finish()
    chunk = run.engine.job.order.chunk
    assert len(rows) % (3 * chunk) == 0
    x, w = rows.to_scipy()[0].toarray().astype(np.float64), np.zeros(rows.width)
    for row in range(len(rows) // 3):  # the replicas take chunks in turn
        some = row // chunk * 3 * chunk + row % chunk + chunk * np.arange(3)
        w -= 0.02 * share * ((x[some] @ w - rows.targets[some]) @ x[some])
    np.testing.assert_allclose(model.coef_[0], w, rtol=1e-4, atol=1e-5)


# ---- whole runs


@pytest.fixture(scope="module")
def rows() -> Rows:
    return toy()


def test_workers_and_discipline_are_filled_in(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hogwild.training.run.machine, "physical_cores", lambda: 6)
    config = TrainConfig(exchange=AVERAGING)
    for asked, expected in ((None, 6), (3, 3)):
        found = resolve(dataclasses.replace(config, workers=asked), 100)
        assert (found.workers, found.discipline, found.exchange) == (expected, "serial", AVERAGING)
    assert resolve(config, 4).workers == 4


def test_the_step_of_several_is_probed_for_with_the_exchange() -> None:
    """Eight that are averaged want a larger step than one; it does not depend on the host, and nothing is left over."""
    rows = toy(4000)
    options = {"workers": 8, "epochs": 6, "exchange": AVERAGING, "host": "simulator"}
    alone = Probe(TrainConfig(), rows)
    found = Probe(TrainConfig(workers=8, exchange=AVERAGING, host="threads"), rows)
    step = found.search()
    assert step >= 2 * alone.search()
    run = hogwild.train(rows, **options)
    assert run.config.step == step
    run.finish()
    smaller = hogwild.train(rows, step=alone.search(), **options)
    smaller.finish()
    assert run.history[-1]["objective"] < smaller.history[-1]["objective"]


# ---- faults, stopping, resuming


def test_resumed_with_other_workers(rows: Rows, tmp_path: Path) -> None:
    """One-shot replicas are of workers, so these have to be as many; the mean of ``averaging`` is of all."""
    options = {"step": 0.5, "host": "threads", "resume": True}
    for exchange in (AVERAGING, ONE_SHOT):
        path = tmp_path / exchange
        hogwild.train(rows, exchange=exchange, workers=2, epochs=1, checkpoint=path, **options).finish()
        assert ("exchange_replicas" in load_checkpoint(path)[0]) == (exchange == ONE_SHOT)
    run = hogwild.train(rows, exchange=AVERAGING, workers=1, epochs=2, checkpoint=tmp_path / AVERAGING, **options)
    assert [row["epoch"] for row in run] == [2]
    before = living()
    with pytest.raises(
        UsageError, match=r"cannot resume with 1 workers: .* the 2 of before .*give workers=2"
    ) as caught:
        hogwild.train(rows, exchange=ONE_SHOT, workers=1, epochs=2, checkpoint=tmp_path / ONE_SHOT, **options)
    assert "\n" not in str(caught.value)
    assert not living() - before
    with pytest.raises(InputError, match="exchange was 'averaging'"):
        hogwild.train(rows, workers=1, epochs=2, checkpoint=tmp_path / AVERAGING, **options)
