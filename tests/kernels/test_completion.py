"""The completion kernels against their twins, their order of visits, and what they draw."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hogwild.kernels.order import generator
from tests.kernels.completion_harness import (
    CONSTANT,
    FALLING,
    SHAPE,
    Twin,
    draw,
    make_job,
    plan_of,
    run_epoch,
    some_features,
    some_ratings,
    visits,
)

# without the JIT, NumPy's scalars warn where machine numbers just overflow
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")

BOTH = some_features(SHAPE[0]), some_features(SHAPE[1], 3)
# name: options; between them both penalties and steps, with biases and without, odd ranks, all orders
COMBINATIONS = {
    "falling": (FALLING, {"rank": 32}),
    "smoothed": (CONSTANT, {"penalty": "smoothed"}),
    "smoothed, no biases": (FALLING, {"penalty": "smoothed", "biases": False, "rank": 80}),  # more vectors than sums
    "file": (CONSTANT, {"order": "file"}),
    "blocks": (FALLING, {"order": "blocks"}),
    "log": (FALLING, {"loss": "log", "negatives": 2}),
    "log, no biases": (CONSTANT, {"loss": "log", "biases": False}),
    "bpr": (FALLING, {"loss": "bpr", "negatives": 2, "rank": 33}),
    "features": (CONSTANT, {"features": BOTH, "penalty": "smoothed"}),
    "features, log": (FALLING, {"features": BOTH, "loss": "log", "negatives": 2}),
    "features, bpr": (FALLING, {"features": (None, BOTH[1]), "loss": "bpr", "negatives": 2}),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_epochs_follow_the_twin(name):
    step, options = COMBINATIONS[name]
    job = make_job(**options)
    twin = Twin(job)
    for epoch in range(2):
        before = job.flat.copy()
        run_epoch(job, epoch, step)
        twin.run(epoch, step)
        assert np.abs(job.flat - before).max() > 0.01
    np.testing.assert_allclose(job.flat, twin.flat(), atol=1e-4)
    used = np.zeros_like(job.flat)
    for part in (*job.problem.factors(used), *job.problem.parameters(used)[2:]):
        part[:] = 1
    assert not job.flat[used == 0].any()  # what the rank leaves of a row


def test_features_that_nobody_has_change_no_bit():
    plain, sums = make_job(), make_job(features=(None, np.zeros((SHAPE[1], 1))))
    for job in (plain, sums):
        run_epoch(job)
    for part, summed in zip(plain.problem.views(plain.flat), sums.problem.views(sums.flat)):
        assert part.tobytes() == summed[: len(part)].tobytes()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 600])
@pytest.mark.parametrize("order", ["shuffled", "blocks", "file"])
def test_every_epoch_visits_every_rating_once(n, order):
    job = make_job(order=order, ratings=some_ratings(n), cache_bytes=1 << 12)
    seen = []
    for epoch in range(3):
        job.begin_epoch(epoch, 0)
        seen.append([int(k) for k, _ in visits(job, epoch)])
        assert sorted(seen[-1]) == list(range(n))
    if n >= 100:
        assert (seen[0] == seen[1]) == (order == "file")
        assert (seen[1] == seen[2]) == (order == "file")


def test_lines_and_ratings_within_them_are_permuted_differently_in_every_epoch():
    job = make_job(ratings=some_ratings(1500), cache_bytes=1 << 20)  # tiles of 256 ratings and more
    orders = []
    for epoch in range(6):
        job.begin_epoch(epoch, 0)
        sequence = np.array([int(k) for k, _ in visits(job, epoch)])
        place = np.empty_like(sequence)
        place[sequence] = np.arange(len(sequence))
        orders.append(place)
    apart = [np.abs(a - b).mean() for a, b in pairwise(orders)]
    assert min(apart) > 200  # of two random permutations it is a third of 1,500
    within = {tuple(np.argsort(order[:8])) for order in orders}
    assert len(within) > 2


@pytest.mark.parametrize("order", ["shuffled", "blocks"])
def test_tiles_come_in_diagonals(order):
    job = make_job("hogwild", workers=2 if order == "blocks" else 4, order=order)
    rows, columns = job.order.grid
    assert min(rows, columns) >= 4 if order == "blocks" else rows * columns > 1
    sequences = []
    for epoch in range(4):
        job.begin_epoch(epoch, 0)
        blocks = job.state["blocks"].copy()
        np.testing.assert_array_equal(np.sort(blocks), np.arange(rows * columns))
        for diagonal in blocks.reshape(-1, min(rows, columns)):
            assert len(set(diagonal // columns)) == min(rows, columns)
            assert len(set(diagonal % columns)) == min(rows, columns)
        sequences.append(tuple(blocks))
    assert len(set(sequences)) > 1


@np.errstate(all="ignore")
def test_drawn_items_were_not_chosen_and_all_others_are_drawn_alike():
    job = make_job(loss="bpr", ratings=some_ratings(900))
    data, plan = job.data(), plan_of(job, 0, CONSTANT)
    salt, u = np.uint64(generator(0, 0, 5)), np.uint32(7)
    chosen = set(data.items[data.users == u].tolist())
    assert 0 < len(chosen) < SHAPE[1] - 5
    drawn = [int(draw(data, plan, salt, k, t, u, 0)) for k in range(1000) for t in range(2)]
    counts = np.bincount([j for j in drawn if j >= 0], minlength=SHAPE[1])
    free = [j for j in range(SHAPE[1]) if j not in chosen]
    assert not counts[sorted(chosen)].any()
    expected = counts.sum() / len(free)
    assert ((counts[free] - expected) ** 2 / expected).sum() < 2 * len(free) + 20  # chi squared


@np.errstate(all="ignore")
def test_who_has_chosen_everything_is_drawn_nothing():
    items = np.arange(10, dtype=np.int32)
    ratings = np.zeros(10, np.int32), items, np.ones(10, np.float32)
    job = make_job(loss="bpr", ratings=ratings, shape=(2, 10), l2=0.0)
    for k in range(20):
        assert draw(job.data(), plan_of(job, 0, CONSTANT), np.uint64(generator(0, 0, 1)), k, 0, np.uint32(0), 0) == -1
    before = job.flat.copy()
    run_epoch(job)
    np.testing.assert_array_equal(job.flat, before)
