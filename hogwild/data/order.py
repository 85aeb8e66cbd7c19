"""Cuts an epoch's rows into blocks and chunks; ``kernels/order.py`` says how they are used."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKS_PER_CHUNK = 64  # as in kernels/order.py; a test compares the two
SMALLEST_BLOCK_BYTES = 128 << 10  # for data read from disk: below it, random reads dominate


@dataclass(frozen=True)
class Order:
    """Division of ``n_rows`` rows: 64 blocks of ``block`` neighbouring rows make a chunk, the unit workers claim.

    In minibatches of a module, and in launches on a GPU, a block is one row, and a chunk has ``blocks`` of them.

    Data of 65,536 rows or more use blocks of 16 rows, so that a chunk has 1,024; smaller data use smaller blocks, down
    to single rows, so that there are at least 64 chunks to share out. Data larger than memory use blocks of 128 KiB or
    more, so that the disk is read in long pieces.
    """

    n_rows: int
    block: int
    shuffled: bool
    blocks: int = BLOCKS_PER_CHUNK  # in a chunk

    @classmethod
    def of(cls, n_rows: int, shuffled: bool = True, row_bytes: float = 0.0, from_disk: bool = False) -> Order:
        """Choose the division of ``n_rows`` rows of ``row_bytes`` bytes each on average."""
        block = min(max(n_rows // 4096, 1), 16)
        if from_disk:
            wanted = int(SMALLEST_BLOCK_BYTES / max(row_bytes, 1.0))
            block = max(block, min(wanted, n_rows // 4096, 4096))
        return cls(n_rows, block, shuffled)

    @property
    def chunk(self) -> int:
        """Rows in a chunk (the last may be shorter)."""
        return self.block * self.blocks

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block)

    @property
    def n_chunks(self) -> int:
        return -(-self.n_rows // self.chunk)
