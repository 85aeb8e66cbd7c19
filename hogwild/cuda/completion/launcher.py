"""Matrix completion on a device: the memory layout and the kernel launches.

Discipline ``atomic`` adds the changes of both rows atomically. ``hogwild`` stores both rows: stores overwrite
concurrent updates, on popular items nearly all of them, long before concurrent additions would diverge. ``sides`` can
combine additions on one side with stores on the other: a user is seldom in flight twice.

Ratings should lie in random order, so that neighbours can be visited together (``block``): reading a rating's 12 bytes
at random places takes 96 bytes of memory traffic, compared with 1,024 for rows of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.cuda.backend import Backend
from hogwild.cuda.work import Launcher, Segment
from hogwild.data.ratings.container import Ratings
from hogwild.problems.completion.objective import RatingObjective
from hogwild.problems.completion.problem import CompletionProblem

#: Whether changes of users, and of items, are added atomically.
SIDES = {"hogwild": (False, False), "atomic": (True, True)}
SECTOR = 8  # float32 in the smallest unit of memory reads
TILE, MOST = 512, 16  # float32 of a program's tile, 16 a thread; most ratings in it
SHARE = 2  # 1 / SHARE of the programs that fit on a device run at once: each has 128 registers
REGISTERS = 128
EVALUATED = 1 << 26  # numbers of factors gathered at a time, of users and of items
JUDGED = 8192  # ratings of the sample on which trials are judged


class Tables(NamedTuple):
    """Parameters, as views of the flat tensor, and arrays of users and items; unused ones are empty."""

    p: torch.Tensor  # (users, stride) float32
    q: torch.Tensor  # (items, stride) float32
    b_u: torch.Tensor  # (users,) float32
    b_i: torch.Tensor  # (items,) float32
    user_rates: torch.Tensor  # (users,) float32
    item_rates: torch.Tensor  # (items,) float32
    seen_begin: torch.Tensor  # (users + 1,) int64
    seen_items: torch.Tensor  # (n,) int32


class CompletionLauncher(Launcher):
    """See :class:`hogwild.cuda.work.Launcher`.

    Parameters
    ----------
    problem : CompletionProblem
    arrays : mapping
        ``users``, ``items`` and ``values`` (in the problem's units) of all ratings; ``user_rates`` and ``item_rates``
        if the penalty is per row, ``seen_begin`` and ``seen_items`` for implicit losses, otherwise empty.
    backend : Backend
    seed : int
        Seed of the drawn negative items. Each visit draws anew: the number of visits before it since the run began is
        mixed in.
    """

    name, block = "completion", 32
    trials = 2  # factors begin so short that the first epoch tells little

    problem: CompletionProblem

    def __init__(
        self, problem: CompletionProblem, arrays: Mapping[str, np.ndarray], backend: Backend, seed: int = 0
    ) -> None:
        self.problem, self.sides = problem, SIDES[problem.discipline]
        self._seed, self.backend = seed, backend
        names = ("users", "items", *(("values",) if problem.loss == "squared-error" else ()))
        self.arrays = {name: arrays[name] for name in names}
        device = backend.device
        self.flat = torch.zeros(problem.size, dtype=torch.float32, device=device)
        tables = [torch.from_numpy(np.array(arrays[name])).to(device) for name in Tables._fields[4:]]
        views: Any = problem.parameters(self.flat)
        self.tables = Tables(*(part.view(-1, problem.stride) for part in views[:2]), *views[2:], *tables)

    @cached_property
    def objective(self) -> RatingObjective:
        """The mean loss of evenly spaced ratings."""
        p, some = self.problem, np.unique(np.linspace(0, len(self.arrays["users"]) - 1, JUDGED).astype(np.int64))
        users, items, *values = (array[some] for array in self.arrays.values())
        stars = values[0] * p.scale + p.mean if values else np.ones(len(some))
        ratings = Ratings(users, items, stars.astype(np.float32), (p.users, p.items))
        return RatingObjective(ratings, p.loss, mean=p.mean, negatives=p.negatives)

    def sums(self, data: Mapping[str, torch.Tensor]) -> np.ndarray | None:
        """Sums of squared and absolute errors in the user's units; only the CPU has the evaluator's negatives."""
        if self.problem.loss != "squared-error":
            return None
        p, q, b_u, b_i = self.tables[:4]
        found, rows = torch.zeros(2, dtype=torch.float64, device=p.device), max(EVALUATED // self.problem.stride, 1)
        for u, i, values in zip(*(data[name].split(rows) for name in ("users", "items", "values"))):
            e = ((p[u] * q[i]).sum(1).double() + b_u[u] + b_i[i] - values) * self.problem.scale
            found += torch.stack((e.square().sum(), e.abs().sum()))
        sums: np.ndarray = found.cpu().numpy()
        return sums

    def room(self) -> int:
        """Ratings in flight when the device is full and none waits for another's end."""
        group, programs = self.grid(1 << 30)[0], self.backend.programs() // SHARE
        return group * max(programs if self._tile()[2] else programs // 2, 1)

    def salt(self, segment: Segment) -> int:
        """Seed of the draws of a segment's first visit, uint64; each later visit adds one."""
        return (int(np.random.SeedSequence(self._seed).generate_state(1, np.uint64)[0]) + segment.visited) % 2**64

    def constants(self) -> dict[str, Any]:
        """Constants that kernels are compiled for, except the number of ratings per program."""
        problem, (width, tile, fitting) = self.problem, self._tile()
        # products and sums are fused, whatever Triton's default, and no program waits for another's registers
        return {
            "LOSS": problem.loss,
            "STRIDE": problem.stride,
            "WIDTH": width,
            "TILE": tile,
            "BIASED": problem.biases,
            "PER_ROW": problem.penalty == "per-row",
            "NONNEGATIVE": problem.nonnegative,
            "USER_ATOMIC": self.sides[0],
            "ITEM_ATOMIC": self.sides[1],
            "num_warps": 1,
            "enable_fp_fusion": True,
            "maxnreg": REGISTERS if fitting else None,
        }

    def _tile(self) -> tuple[int, int, int]:
        """Floats read of a row, in whole sectors; the next power of two; and how many such rows a tile has room for."""
        width = -(-self.problem.rank // SECTOR) * SECTOR
        tile = 1 << (width - 1).bit_length()
        crowded = self.problem.loss != "squared-error" or (self.problem.nonnegative and any(self.sides))
        return width, tile, TILE // (2 if crowded else 1) // tile  # a third row, or the old one, is in registers

    def grid(self, in_flight: int) -> tuple[int, int]:
        """Ratings per program, and programs, for ``in_flight`` ratings in total.

        Ratings per program are as many as fit, a power of two, or one: a kernel for each number between would be
        compiled on the clock.
        """
        most = min(max(self._tile()[2], 1), MOST)
        group = 1 << (most.bit_length() - 1)
        return (group, in_flight // group) if in_flight >= group else (1, in_flight)
