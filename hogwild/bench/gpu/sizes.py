"""The constants of the GPU's benchmark, as data: sizes, steps, bytes of an update.

Bytes are those that an update logically moves: caches may serve some, and memory reads whole sectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hogwild.bench.plan import L2, STEPS

FLOAT, RATING = 4, 12  # bytes of a number; of a user, an item and a value
RANKS = (64, 128)
COMPLETION = {"step": 0.03, "l2": 0.05}  # as in the section completion
LINEAR = {"step": STEPS["rcv1"], "l2": L2}
IN_FLIGHT = (300, 1200, 4224)  # rows; 4,224 fill an H100 or H200
BATCHES, REPLICAS, LOCKED = (128, 32), (4, 8, 16), 8
MODULE_STEP = 0.05


@dataclass(frozen=True)
class Size:
    """Sizes of the measurements."""

    copied: int  # bytes of the array that is copied, if the device has room
    ratings: str  # names of synthetic sets
    rows: str
    samples: int  # of the network, a multiple of the largest batch
    epochs: Mapping[str, int]  # of one timing of a part: some 20 ms or more on an H200
    goal: int = 10  # epochs after which the CPU's loss becomes the goal
    most: int = 50  # epochs in which to reach it
    checked: int = 4096  # examples of a check of correctness


#: Factors of 480,189 users take 123 MB at rank 64, more than an L2 cache holds; 300,000 rows have 21.8M nonzeros.
#: A fifth of Netflix's ratings: all evaluations on the CPU then take a minute.
FULL = Size(
    1 << 32, "synthetic:netflix?ratings=20000000&shift=137", "synthetic:rcv1?rows=300000", 1 << 16,
    {"completion": 5, "linear": 30, "streams": 2},
)  # fmt: skip
QUICK = Size(
    1 << 28, "synthetic:netflix?users=60000&items=4000&ratings=1000000", "synthetic:rcv1?rows=60000", 1 << 14,
    {"completion": 2, "linear": 5, "streams": 1}, goal=5,
)  # fmt: skip


def update_bytes(rank: int) -> int:
    """Bytes of an update of matrix completion: a rating, and two rows with their biases, read and written."""
    return 2 * 2 * FLOAT * (rank + 1) + RATING
