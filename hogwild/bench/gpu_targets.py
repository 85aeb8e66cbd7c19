"""What the section gpu counts with and what is asked of it, as data: sizes, steps, bytes of an update, targets.

The decision that matters: all targets are ratios within one run, and a rate counts only if the run has learned as well
as its rival, because updates that overwrite one another are fast. So each row says by how much its loss is the
``worse``, after the same number of epochs, and a target how much worse a row may be. Of sparse rows, which learn more
slowly the more of them are in hand, any rate counts, and beside it the time to a loss does.

Bytes are those that an update has to move, whoever holds them: caches may serve some, and memory reads whole sectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hogwild.bench.plan import L2, STEPS
from hogwild.bench.targets import Row

FLOAT, RATING = 4, 12  # bytes of a number; of a user, an item and a value
GIGA, TERA, MEGA = 1e9, 1e12, 1e6
RANKS = (64, 128)
DISCIPLINES = ("atomic", "hogwild")
COMPLETION = {"step": 0.03, "l2": 0.05}  # of the section completion
LINEAR = {"step": STEPS["rcv1"], "l2": L2}
BATCHES, REPLICAS, LOCKED = (128, 32), (4, 8, 16), 8
TARGET_BATCH = BATCHES[0]
MODULE_STEP = 0.05
NONZEROS_PER_SECOND = 24e9  # asked of sparse logistic regression


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes
    ----------
    copied : int
        Bytes of the array that is copied, if the device has room.
    ratings, rows : str
        Names of synthetic sets.
    samples : int
        Of the network's, a multiple of the largest batch.
    epochs : dict
        From one evaluation to the next, of each part: some 20 ms or more of an H200.
    goal : int
        Epochs after which the CPU's loss is the one to be reached.
    most : int
        Epochs in which it must be.
    rounds : int
        That count, at most.
    """

    copied: int
    ratings: str
    rows: str
    samples: int
    epochs: Mapping[str, int]
    goal: int = 10
    most: int = 50
    rounds: int = 3


#: Factors of 480,189 users take 123 MB at rank 64, more than an L2 cache holds; 300,000 rows have 21.8M nonzeros.
#: Half as many ratings as Netflix's: on 16 cores an evaluation of them takes seconds, and all of them do ten minutes.
FULL = Size(
    1 << 32, "synthetic:netflix?ratings=50000000&shift=137", "synthetic:rcv1?rows=300000", 1 << 16,
    {"completion": 5, "linear": 30, "streams": 2},
)  # fmt: skip
#: Of fewer ratings where the host has little memory, or few cores to evaluate with.
FEWER = "synthetic:netflix?ratings=20000000"
MEMORY, CORES = 48 << 30, 8
QUICK = Size(
    1 << 28, "synthetic:netflix?users=60000&items=4000&ratings=1000000", "synthetic:rcv1?rows=60000", 1 << 14,
    {"completion": 2, "linear": 5, "streams": 1}, goal=5, rounds=1,
)  # fmt: skip


def update_bytes(rank: int) -> int:
    """Of an update of matrix completion: a rating, and two rows with their biases, read and written."""
    return 2 * 2 * FLOAT * (rank + 1) + RATING


@dataclass(frozen=True)
class Target:
    """The best ratio of the rows that count, and what is asked of it."""

    what: str
    asked: float  # at least
    where: Mapping[str, Any]  # fields of rows that count; of a tuple any value
    ratio: str = "ratio"  # its field
    rival: str = ""  # where it is not the row's own
    worse: float | None = None  # what `worse` may be; None: anything

    def counts(self, row: Row) -> bool:
        """Whether a row may be what is measured."""
        if row.get("status", "ok") != "ok" or row.get(self.ratio) is None or not self._is_of(row):
            return False
        return self.worse is None or (row.get("worse") is not None and row["worse"] <= self.worse)

    def _is_of(self, row: Row) -> bool:
        asked = ((name, value if isinstance(value, tuple) else (value,)) for name, value in self.where.items())
        return all(row.get(name) in values for name, values in asked)

    def row(self, rows: list[Row]) -> Row:
        """The line for these rows, with the figures of the best of them; without, if there is none."""
        line: Row = {"part": "target", "what": f"TARGET {self.what}", "asked": self.asked, "met": None}
        best = max(filter(self.counts, rows), key=lambda row: row[self.ratio], default=None)
        if best is None:
            measured = any(row.get("status", "ok") == "ok" for row in filter(self._is_of, rows))
            return line | {"status": "failed: no run has learned well enough" if measured else "failed: not measured"}
        shown = {name: best.get(name) for name in ("measured", "unit", "rival", "in_flight", "loss", "worse")}
        line |= shown | {"ratio": best[self.ratio], "best": best["what"], "met": bool(best[self.ratio] >= self.asked)}
        return line | ({"rival": self.rival} if self.rival else {}) | {"status": "ok"}


_RACING = {"part": "streams", "batch": TARGET_BATCH, "kind": "replicas"}
TARGETS = (
    *(Target(f"completion {rank}, RMSE +1 %", 0.9,
             {"part": "completion", "rank": rank, "device": "cuda"}, worse=0.01) for rank in RANKS),
    Target("logistic, any loss", 1.0, {"part": "linear", "device": "cuda"}, "of_asked",
           f"{NONZEROS_PER_SECOND / GIGA:g} G nonzeros/s"),
    Target("logistic to loss", 8.0, {"part": "to loss", "device": "cuda"}),
    Target(f"streams {TARGET_BATCH}, loss +2 %", 2.5, _RACING, worse=0.02),
    Target(f"streams {TARGET_BATCH}, loss +2 %", 20.0, _RACING, "over_eager", "eager", worse=0.02),
)  # fmt: skip
