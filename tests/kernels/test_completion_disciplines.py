"""With one worker every discipline of matrix completion is serial to the last bit; with more, what each promises."""

from __future__ import annotations

import dataclasses
import threading
import time

import numba
import numpy as np
import pytest

from hogwild.kernels.control import STOP, TURN
from hogwild.methods import UNTIERED
from tests.kernels.completion_harness import CONSTANT, FALLING, make_job, run_epoch, some_ratings
from tests.kernels.harness import few_a_call, gives_up, work_alone
from tests.runs import until

# without the JIT, NumPy's scalars warn where machine numbers just overflow
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
PARALLEL = UNTIERED[1:]
COMBINATIONS = {
    "plain": (FALLING, {}),
    "log": (CONSTANT, {"loss": "log"}),
    "bpr": (FALLING, {"loss": "bpr"}),
}
# they differ from hogwild in the write and in what they lock
PAIRS = [
    *((discipline, "plain") for discipline in PARALLEL),
    ("hogwild", "log"),
    *((discipline, "bpr") for discipline in ("atomic", "locked", "aig", "round-robin")),
]
needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="several workers only when compiled")


@pytest.mark.parametrize(("discipline", "name"), PAIRS)
def test_one_worker_is_serial(discipline, name):
    step, options = COMBINATIONS[name]
    results = []
    for each in ("serial", discipline):
        job = make_job(each, **options)
        for epoch in range(2):
            run_epoch(job, epoch, step)
        assert job.done() == (600, 600)
        assert job.finished()
        assert job.problem.position(job.control, job.order) == job.order.n_chunks
        results.append(job.flat.tobytes())
    assert results[0] == results[1]


def test_blocks_by_one_worker_are_serial():
    jobs = [make_job(discipline, order="blocks") for discipline in ("serial", "hogwild", "atomic")]
    for job in jobs:
        run_epoch(job)
        assert not job.state["locks"].any()
    assert jobs[0].flat.tobytes() == jobs[1].flat.tobytes() == jobs[2].flat.tobytes()


def test_resumed_in_the_middle_of_an_epoch():
    whole, parts = (make_job(ratings=some_ratings(1200)) for _ in range(2))
    run_epoch(whole, 1, FALLING)
    order = parts.order
    assert order.n_chunks > 3
    parts.order = dataclasses.replace(order, n_chunks=2)  # as if told to stop there
    run_epoch(parts, 1, FALLING)
    assert parts.problem.position(parts.control, parts.order) == 2
    parts.order = order
    run_epoch(parts, 1, FALLING, start=2)
    assert whole.flat.tobytes() == parts.flat.tobytes()


@pytest.mark.parametrize("options", [{"order": "blocks"}, {"loss": "bpr"}])
def test_a_few_ratings_a_call_are_the_same(options):
    whole, parts = (make_job(**options) for _ in range(2))
    run_epoch(whole, 0, FALLING)
    call = few_a_call(parts, FALLING)
    while parts.done()[0] < 600 or not parts.finished():
        call()
    assert whole.flat.tobytes() == parts.flat.tobytes()


def test_who_is_asked_to_stop_claims_nothing():
    job = make_job()
    before = job.flat.copy()
    job.begin_epoch(0, 1)
    job.control[STOP] = 1
    work_alone(job, start=1)
    assert job.problem.position(job.control, job.order) == 1
    np.testing.assert_array_equal(job.flat, before)


@needs_jit
@pytest.mark.parametrize(
    ("discipline", "options"),
    [("aig", {}), ("locked", {}), ("hogwild", {"order": "blocks"}), ("aig", {"loss": "bpr"}), ("round-robin", {})],
)
def test_who_waits_for_a_lock_gives_up_when_the_run_is_lost(discipline, options):
    gives_up(make_job(discipline, **options))


@needs_jit
def test_a_tile_waits_until_its_users_and_items_are_free():
    job = make_job("hogwild", 2, order="blocks")
    job.compile()
    rows, columns = job.order.grid
    job.begin_epoch(0, 0)
    tile = int(job.state["blocks"][0])
    taken = rows + tile % columns
    job.state["locks"][taken] = 1
    thread = threading.Thread(target=work_alone, args=(job,))
    thread.start()
    assert until(lambda: job.state["locks"][tile // columns] == 1)  # its users, already
    time.sleep(0.1)
    assert job.done()[0] == 0
    job.state["locks"][taken] = 0
    thread.join(timeout=120)
    assert job.done()[0] == 600
    assert not job.state["locks"].any()


@needs_jit
def test_workers_write_in_turn():
    job, before = make_job("round-robin", 3), make_job("round-robin", 3).flat
    job.compile()
    users = job.problem.factors(before)[0]

    def moved():
        return int((job.problem.factors(job.flat)[0] != users).any(axis=1).sum())

    job.begin_epoch(0, 0)
    threads = [threading.Thread(target=work_alone, args=(job, worker)) for worker in range(3)]
    threads[0].start()
    assert until(lambda: job.control[TURN] == 1)
    time.sleep(0.1)
    assert moved() == 1  # the first writes once, and waits for the others
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert job.finished()
    assert job.done() == (600, 600)
