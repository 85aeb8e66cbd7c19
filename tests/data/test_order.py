"""How rows are cut into blocks and chunks."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.data.mapped import ReadAhead
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.data.rows.store import open_store, save_store


@pytest.mark.parametrize(
    ("n", "block", "n_blocks", "n_chunks"),
    [
        (1, 1, 1, 1),
        (65, 1, 65, 2),
        (8192, 2, 4096, 64),
        (65_536, 16, 4096, 64),
        (2**31 + 5, 16, 2**27 + 1, 2**21 + 1),
    ],
)
def test_cut(n, block, n_blocks, n_chunks):
    order = Order.of(n)
    assert (order.block, order.n_blocks, order.n_chunks, order.chunk) == (block, n_blocks, n_chunks, 64 * block)
    assert Order.of(n, from_disk=True, row_bytes=1e9).block == block  # rows that are long themselves


def test_small_data_still_make_enough_chunks_to_share_out():
    for n in (4096, 5000, 10_000, 65_535, 65_536, 10**6):
        assert Order.of(n).n_chunks >= 64
        assert Order.of(n, row_bytes=10, from_disk=True).n_chunks >= 64


def test_disks_are_read_in_long_pieces():
    order = Order.of(10**8, row_bytes=600, from_disk=True)
    assert 100_000 < order.block * 600 <= 128 << 10
    assert Order.of(10**8, row_bytes=1, from_disk=True).block == 4096
    assert Order.of(10**8, row_bytes=0, from_disk=True).block == 4096


def test_chunks_are_read_before_they_are_claimed(tmp_path, monkeypatch):
    """Each block of an epoch once, as far ahead as an eighth of the memory lets it, and anew in the next epoch."""
    rows = Rows.from_scipy(np.ones((1300, 4)), np.ones(1300))
    order = Order(1300, 2, True)
    blocks = np.random.default_rng(0).permutation(order.n_blocks).astype(np.int32)
    monkeypatch.setattr(
        "hogwild.machine.memory", lambda: (8 * 8 * 4 * order.chunk, None)
    )  # two chunks are an eighth, rounded up
    asked = []
    monkeypatch.setattr(Rows, "fetch", lambda _, first, last: asked.append((first, last)))
    ahead = ReadAhead(open_store(save_store(rows, tmp_path / "rows")), order, blocks)
    for _ in range(2):
        ahead(0)
        assert asked == [(2 * block, 2 * block + 2) for block in blocks[:128].tolist()]
        for chunk in (0, 1, 3, 5, 5, 7, 9, 10):
            ahead(chunk)
        assert asked == [(2 * block, 2 * block + 2) for block in blocks.tolist()]
        asked.clear()
