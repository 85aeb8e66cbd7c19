"""Virtual workers, event by event: what each phase reads and writes, and exactly which updates get lost."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.kernels.control import CHUNK, COUNT, EVENT_KINDS, FIRST, LOAD, PAY, READ, STORE
from hogwild.problems.protocol import OrderSlice
from tests.kernels.harness import (
    COMBINATIONS,
    CONSTANT,
    FALLING,
    assert_equal_to_twin,
    bits,
    job_and_rows,
    make_job,
    run_epoch,
    sequence,
    twin_of,
)

STEP = (0.5, 1.0, 0.0)
SOME = ("elastic", "adagrad", "multi-class")  # each a kernel to compile


def play(job, events, crew, chunk=0, epoch=0, step=STEP):
    """Do these events, pairs of a kind and a worker, in an epoch that has begun."""
    crew.events[CHUNK], crew.events[COUNT] = chunk, len(events)
    crew.events[FIRST : FIRST + len(events)] = [worker * EVENT_KINDS + kind for kind, worker in events]
    part = OrderSlice(job.order, job.state["blocks"], job.seed, epoch, 0, 0, job.workers, crew=crew)
    job.problem.prepare(job.shared(), job.scratch(), job.data(), part, step)()


def turn_by_turn(job, delay, loads, epochs=2, step=FALLING):
    """Epochs in which a row is stored just before the row ``delay + 1`` after it is read; worker t mod W has row t."""
    crew = job.problem.crew(job.workers, job.order, loads)
    for epoch in range(epochs):
        job.begin_epoch(epoch, 0)
        waiting = []
        for chunk in range(job.order.n_chunks):
            events = []
            for t in range(chunk * job.order.chunk, min((chunk + 1) * job.order.chunk, job.order.n_rows)):
                if len(waiting) > delay:
                    worker = waiting.pop(0)
                    events += [(LOAD, worker)] * loads + [(STORE, worker)]
                events.append((READ, t % job.workers))
                waiting.append(t % job.workers)
            play(job, events, crew, chunk, epoch, step)
        play(job, [(LOAD, worker) for worker in waiting[:1]] * loads + [(STORE, waiting[0])], crew, -1, epoch, step)
        for worker in waiting[1:]:
            play(job, [(LOAD, worker)] * loads + [(STORE, worker)], crew, -1, epoch, step)
        play(job, [(PAY, worker) for worker in range(job.workers)], crew, -1, epoch, step)
    return crew


@np.errstate(all="ignore")
@pytest.mark.parametrize("loads", [False, True])
@pytest.mark.parametrize("combination", SOME)
def test_one_worker_is_serial(combination, loads):
    serial, job = (job_and_rows(combination, name)[0] for name in ("serial", "hogwild"))
    for epoch in range(2):
        run_epoch(serial, epoch, FALLING)
    crew = turn_by_turn(job, 0, loads)
    assert bits(job) == bits(serial)
    assert job.done() == serial.done()
    assert crew.lost[0] == 0


@np.errstate(all="ignore")
@pytest.mark.parametrize(("workers", "delay"), [(2, 1), (5, 2)])
@pytest.mark.parametrize("combination", SOME)
def test_several_are_serial_with_a_delay(combination, workers, delay):
    """Weights only: lock-free workers pay the intercept in instalments of eight rows."""
    job, rows = job_and_rows(combination, "atomic", workers, intercept=False)
    twin = twin_of(job, rows)
    turn_by_turn(job, delay, loads=False)
    for epoch in range(2):
        twin.epoch(sequence(job, epoch), FALLING, epoch * len(rows), delay + 1)
    assert_equal_to_twin(job, twin)


@np.errstate(all="ignore")
def test_the_intercept_too_when_paid_at_once(monkeypatch):
    monkeypatch.setattr("hogwild.problems.linear.problem.FLUSH", 1)
    job, rows = job_and_rows("multi-class", "atomic", 4)
    twin = twin_of(job, rows)
    turn_by_turn(job, 2, loads=False, epochs=1)
    twin.epoch(sequence(job, 0), FALLING, 0, 3)
    assert_equal_to_twin(job, twin)


def test_a_debt_to_the_intercept_is_paid_at_the_end():
    """Three rows of targets far above: each moves the intercept by the step, and the worker sees its own debt."""
    rows = Rows([0, 1, 2, 3], [0, 1, 2], np.ones(3), np.full(3, 100.0), 3)
    job = make_job(rows, "atomic", 2, Order(3, 1, False), start=False, loss="squared-error")
    share = np.float32(job.problem.intercept) * np.float32(0.5)
    crew = job.problem.crew(job.workers, job.order, False)
    job.begin_epoch(0, 0)
    play(job, [(READ, 0), (STORE, 0), (READ, 1), (READ, 0), (STORE, 0)], crew)
    intercept = job.problem.parameters(job.flat).intercept
    assert intercept[0] == 0
    gradients = crew.vectors[:, 0, 0]
    assert gradients[1] == -100  # worker 1 knows nothing of worker 0's debt
    assert gradients[0] == pytest.approx(-100 + share * 100)
    play(job, [(PAY, 0)], crew, chunk=-1)
    assert intercept[0] == pytest.approx(share * 100 + share * (100 - share * 100))
    play(job, [(STORE, 1), (PAY, 1), (PAY, 0)], crew, chunk=-1)
    assert intercept[0] == pytest.approx(share * 100 + share * (100 - share * 100) + share * 100)


def tiny(targets, discipline="hogwild"):
    """Rows {0: 1}, {0: 1, 1: 1}, {0: 1}; with squared error, step 1/2 and weights of 0 each adds half its target."""
    indices = [[0], [0, 1], [0], [0]][: len(targets)]
    indptr = np.cumsum([0] + [len(u) for u in indices])
    rows = Rows(indptr, np.concatenate(indices), np.ones(indptr[-1]), np.array(targets, dtype=float), 2)
    order = Order(len(rows), 1, False)
    return make_job(rows, discipline, len(rows), order, start=False, loss="squared-error", intercept=False)


READS = [(READ, 0), (READ, 1), (READ, 2)]
# name: events after the reads; weights, lost and depths at the end. Rows 0, 1, 2 add 1, 2, 4, row 1 also to weight 1
BY_HAND = {
    "one after the other": ([(LOAD, 0), (STORE, 0), (LOAD, 1), (STORE, 1), (LOAD, 2), (STORE, 2)], [7, 2], 0, [3, 1]),
    "overwritten": ([(LOAD, 0), (LOAD, 1), (STORE, 1), (STORE, 0), (LOAD, 2), (STORE, 2)], [5, 2], 1, [2, 1]),
    "twice": ([(LOAD, 0), (LOAD, 1), (STORE, 1), (LOAD, 2), (STORE, 2), (STORE, 0)], [1, 2], 2, [1, 1]),
    "all at once": ([(LOAD, 0), (LOAD, 1), (LOAD, 2), (STORE, 0), (STORE, 1), (STORE, 2)], [4, 2], 2, [1, 1]),
    # row 0's update is overwritten by row 1's, and comes back with row 2's, which takes row 1's away
    "come back": ([(LOAD, 0), (LOAD, 1), (STORE, 0), (LOAD, 2), (STORE, 1), (STORE, 2)], [5, 2], 1, [2, 1]),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_lost_updates_by_hand(case):
    events, weights, lost, depths = BY_HAND[case]
    job = tiny([2.0, 4.0, 8.0])
    crew = job.problem.crew(job.workers, job.order, True)
    job.begin_epoch(0, 0)
    play(job, READS + events, crew)
    assert job.problem.parameters(job.flat).coef.tolist() == weights
    assert (crew.lost.tolist(), crew.depths.tolist()) == ([lost], depths)
    assert lost == 4 - sum(depths)  # four updates of single weights in all
    assert job.done() == (3, 4)


def test_a_row_without_a_gradient_loses_nothing():
    """Row 0 is fitted: it stores nothing, so what others stored since it was loaded stays."""
    job = tiny([0.0, 4.0])
    crew = job.problem.crew(job.workers, job.order, True)
    job.begin_epoch(0, 0)
    play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 1), (STORE, 0)], crew)
    assert job.problem.parameters(job.flat).coef.tolist() == [2, 2]
    assert (crew.lost.tolist(), crew.depths.tolist()) == ([0], [1, 1])


def test_squares_are_overwritten_with_their_weights():
    """Slopes of log are a half at first, so squares are 1 and 4; the penalty is too small to change a bit."""
    rows = Rows([0, 1, 2], [0, 0], np.array([2.0, 4.0]), np.array([0.0, 1.0]), 1)
    options = COMBINATIONS["adagrad"][1] | {"intercept": False, "l2": 1e-9}
    job = make_job(rows, "hogwild", 2, Order(2, 1, False), start=False, **options)
    crew = job.problem.crew(job.workers, job.order, True)
    job.begin_epoch(0, 0)
    play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 0), (STORE, 1)], crew, step=CONSTANT)
    parameters = job.problem.parameters(job.flat)
    assert parameters.coef_squares.tolist() == [4]
    assert parameters.coef[0] == np.float32(0.05)
    assert crew.lost[0] == 1


def test_classes_of_a_feature_are_lost_together():
    rows = Rows([0, 1, 2, 3], [0, 0, 1], np.ones(3), np.array([0.0, 1.0, 2.0]), 2)
    options = COMBINATIONS["multi-class"][1] | {"intercept": False, "l2": 1e-9}
    job = make_job(rows, "hogwild", 2, Order(3, 1, False), start=False, **options)
    crew = job.problem.crew(job.workers, job.order, True)
    job.begin_epoch(0, 0)
    play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 0), (STORE, 1)], crew)
    coef, _ = job.problem.solution(job.flat)
    np.testing.assert_allclose(coef[:, 0], [-0.5, 0.5, -0.5], rtol=1e-6)
    assert crew.lost[0] == 1
