"""The order: every row once an epoch, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data import order as cut
from hogwild.data.order import Order
from hogwild.kernels import order as kernel
from tests import reference


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
