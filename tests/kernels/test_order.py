"""The order: every row once an epoch, the same for the same seed, and as good as a full shuffle."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest

from hogwild.data import order as cut
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.kernels import order as kernel
from hogwild.problems.linear.objective import Objective
from tests import reference
from tests.kernels.harness import make_job, run_epoch

needs_jit = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="takes a minute when not compiled")


@np.errstate(over="ignore")  # without the JIT, NumPy's scalars warn where uint64 is meant to wrap around
def chunks(order, seed=0, epoch=0):
    """The rows of every chunk as workers see them, and what lies behind each chunk's end."""
    blocks = np.empty(order.n_blocks, np.int32)
    kernel.shuffle_blocks(blocks, order.n_rows, order.block, int(order.shuffled), seed, epoch)
    rows = np.empty(order.chunk + kernel.PADDING, np.int64)
    contents, paddings = [], []
    for chunk in range(order.n_chunks):
        n = kernel.chunk_rows(rows, blocks, chunk, order.n_rows, order.block, int(order.shuffled), seed, epoch)
        contents.append(rows[:n].tolist())
        paddings.append(rows[n : n + kernel.PADDING].tolist())
    return contents, paddings


def test_blocks_per_chunk_is_one_number():
    assert cut.BLOCKS_PER_CHUNK == kernel.BLOCKS_PER_CHUNK


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("block", [1, 3, 16])
@pytest.mark.parametrize("n", [1, 15, 64, 193, 1024, 2500])
def test_equal_to_the_twin_and_every_row_once(n, block, shuffled):
    order = Order(n, block, shuffled)
    for seed, epoch in ((0, 0), (0, 1), (2**63 - 1, 10**6)):
        contents, paddings = chunks(order, seed, epoch)
        assert contents == reference.chunks(n, block, shuffled, seed, epoch)
        flat = [row for rows in contents for row in rows]
        assert sorted(flat) == list(range(n))
        assert shuffled or flat == list(range(n))
        assert all(len(rows) == order.chunk for rows in contents[:-1])
        assert paddings == [[rows[-1]] * kernel.PADDING for rows in contents]  # rows there are to prefetch


def test_shuffles_are_unbiased():
    """Each row takes each place of a short epoch equally often: chi-square with 11^2 degrees of freedom."""
    n, epochs = 12, 6000
    counts = np.zeros((n, n))
    for epoch in range(epochs):
        counts[np.arange(n), chunks(Order(n, 1, True), 7, epoch)[0][0]] += 1
    expected = epochs / n
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert abs(statistic - 121) < 5 * np.sqrt(2 * 121)


# --- as good as a full shuffle, on files sorted by label ---


def sorted_by_label(n=16_384, width=300, seed=0):
    """Rows of a noisy linear model, all of one label before all of the other."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(width, size=(n, 8)) + np.arange(8) * width
    values = rng.normal(size=(n, 8))
    truth = rng.normal(size=8 * width)
    labels = np.sign((truth[indices] * values).sum(1) + rng.logistic(size=n))
    ids = np.argsort(labels, kind="stable")
    return Rows(np.arange(n + 1) * 8, indices[ids].ravel(), values[ids].ravel(), labels[ids], 8 * width)


def objective_after(rows, order, step, epochs=3, seed=0):
    """Serial training in ``order``; with "full", in a fresh random permutation of all rows each epoch."""
    job = make_job(rows, order=order or Order(len(rows), 16, False), start=False, loss="log", l2=1e-5, seed=seed)
    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        if order is None:
            permuted = make_job(rows.select(rng.permutation(len(rows))), order=job.order, start=False, l2=1e-5)
            permuted.flat[:] = job.flat
            job = permuted
        run_epoch(job, epoch, (step, 1.0, 0.0))
    coef, intercept = job.problem.solution(job.flat)
    return Objective(rows, "log", l2=1e-5, labels=job.problem.labels).evaluate(coef, intercept)["objective"]


@needs_jit
def test_equal_to_a_full_shuffle_on_sorted_rows():
    rows = sorted_by_label()
    full, ours = (
        np.median([objective_after(rows, order, 0.05, seed=seed) for seed in range(3)])
        for order in (None, Order(len(rows), 16, True))
    )
    gain = math.log(2) - full
    assert objective_after(rows, Order(len(rows), 16, False), 0.05) > full + 0.2 * gain  # or there is nothing to see
    assert ours < full + 0.02 * gain


@np.errstate(over="ignore")
@pytest.mark.parametrize(("count", "n"), [(0, 5), (5, 5), (1, 7), (3, 7), (6, 7), (0, 0)])
def test_some_numbers_are_chosen_alike_often_and_in_order(count: int, n: int) -> None:
    seen, chosen = np.zeros(n), np.empty(count, np.int64)
    for seed in range(300):
        kernel.choose(chosen, n, seed)
        assert (np.diff(chosen, prepend=-1) > 0).all()
        seen[chosen] += 1
    if 0 < count < n:  # within five standard deviations
        share = count / n
        assert np.abs(seen / 300 - share).max() < 5 * np.sqrt(share * (1 - share) / 300)
