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
    make_job,
)

STEP = (0.5, 1.0, 0.0)


def play(job, events, crew=None, chunk=0, step=STEP):
    """Do these events, pairs of a kind and a worker, in the epoch that this ``crew`` has begun; return the crew."""
    if crew is None:
        crew = job.problem.crew(job.workers, job.order, True)
        job.begin_epoch(0, 0)
    crew.events[CHUNK], crew.events[COUNT] = chunk, len(events)
    crew.events[FIRST : FIRST + len(events)] = [worker * EVENT_KINDS + kind for kind, worker in events]
    part = OrderSlice(job.order, job.state["blocks"], job.seed, 0, 0, 0, job.workers, crew=crew)
    job.problem.prepare(job.shared(), job.scratch(), job.data(), part, step)()
    return crew


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
    gradients = crew.memory[:, 0]
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
    crew = play(job, READS + events)
    assert job.problem.parameters(job.flat).coef.tolist() == weights
    assert (crew.lost.tolist(), crew.depths.tolist()) == ([lost], depths)
    assert lost == 4 - sum(depths)  # four updates of single weights in all
    assert job.done() == (3, 4)


def test_a_row_without_a_gradient_loses_nothing():
    """Row 0 is fitted: it stores nothing, so what others stored since it was loaded stays."""
    job = tiny([0.0, 4.0])
    crew = play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 1), (STORE, 0)])
    assert job.problem.parameters(job.flat).coef.tolist() == [2, 2]
    assert (crew.lost.tolist(), crew.depths.tolist()) == ([0], [1, 1])


def test_squares_are_overwritten_with_their_weights():
    """Slopes of log are a half at first, so squares are 1 and 4; the penalty is too small to change a bit."""
    rows = Rows([0, 1, 2], [0, 0], np.array([2.0, 4.0]), np.array([0.0, 1.0]), 1)
    options = COMBINATIONS["adagrad"][1] | {"intercept": False, "l2": 1e-9}
    job = make_job(rows, "hogwild", 2, Order(2, 1, False), start=False, **options)
    crew = play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 0), (STORE, 1)], step=CONSTANT)
    parameters = job.problem.parameters(job.flat)
    assert parameters.coef_squares.tolist() == [4]
    assert parameters.coef[0] == np.float32(0.05)
    assert crew.lost[0] == 1


def test_classes_of_a_feature_are_lost_together():
    rows = Rows([0, 1, 2, 3], [0, 0, 1], np.ones(3), np.array([0.0, 1.0, 2.0]), 2)
    options = COMBINATIONS["multi-class"][1] | {"intercept": False}
    job = make_job(rows, "hogwild", 2, Order(3, 1, False), start=False, **options)
    crew = play(job, [(READ, 0), (READ, 1), (LOAD, 0), (LOAD, 1), (STORE, 0), (STORE, 1)])
    coef, _ = job.problem.solution(job.flat)
    np.testing.assert_allclose(coef[:, 0], [-0.5, 0.5, -0.5], rtol=1e-6)
    assert crew.lost[0] == 1
