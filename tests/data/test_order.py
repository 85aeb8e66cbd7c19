"""How rows are cut into blocks and chunks."""

from __future__ import annotations

import pytest

from hogwild.data.order import Order


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
