"""Matrix completion on a device: the memory layout, the number of ratings in flight, and the kernel launches.

The main choice is how many ratings are in flight at the same time, see :meth:`CompletionLauncher.in_flight`.
Discipline ``atomic`` adds the changes of both rows atomically. ``hogwild`` stores both rows, and so does ``serial``,
whose single rating in flight makes the two equal. Stores overwrite concurrent updates, on popular items nearly all of
them, long before concurrent additions would diverge; so ``hogwild`` is allowed few ratings in flight. ``sides`` can
combine additions on one side with stores on the other: a user is seldom in flight twice.

Ratings should lie in random order, so that neighbours can be visited together (``block``): reading a rating's 12 bytes
at random places takes 96 bytes of memory traffic, compared with 1,024 for rows of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from hogwild.cuda.backend import Backend, DeviceStream
from hogwild.cuda.work import Segment
from hogwild.problems.completion.problem import CompletionProblem

SIDES = {"serial": (False, False), "hogwild": (False, False), "atomic": (True, True)}  # atomic: users, items
SECTOR = 8  # float32 in the smallest unit of memory reads
TILE, MOST = 512, 16  # float32 of a program's tile, 16 a thread; most ratings in it
SHARE = 2  # 1 / SHARE of the programs that fit on a device run at once: each has 128 registers
REGISTERS = 128
STABLE = 0.5  # steps in flight on one row, times their contraction; at 2 they diverge
LOST = 0.25  # mean number of others in flight on a rating's row, if they overwrite each other's updates


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


class CompletionLauncher:
    """See :class:`hogwild.cuda.work.Launcher`.

    Parameters
    ----------
    problem : CompletionProblem
    arrays : mapping
        ``users``, ``items`` and ``values`` (in the problem's units) of all ratings; ``user_rates`` and ``item_rates``
        if the penalty is per row, ``seen_begin`` and ``seen_items`` for implicit losses, otherwise empty.
    backend : Backend
    replicas : int
    seed : int
        Seed of the drawn negative items. Each visit draws anew: the number of visits before it since the run began is
        mixed in.
    sides : (bool, bool), optional
        Whether changes of users, and of items, are added atomically. None: as the discipline says.
    """

    block = 32

    def __init__(
        self, problem: CompletionProblem, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int,
        seed: int = 0, sides: tuple[bool, bool] | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.sides, self.streams = problem, sides or SIDES[problem.discipline], replicas
        self._seed, self.rehearsed, self._programs, self._backend = seed, False, backend.programs(), backend
        names = ("users", "items", *(("values",) if problem.loss == "squared-error" else ()))
        self._ratings = {name: arrays[name] for name in names}
        device = backend.device
        self.flat = torch.zeros(problem.size, dtype=torch.float32, device=device)
        tables = [torch.from_numpy(np.array(arrays[name])).to(device) for name in Tables._fields[4:]]
        views: Any = problem.parameters(self.flat)
        self.tables = Tables(*(part.view(-1, problem.stride) for part in views[:2]), *views[2:], *tables)
        counts = [np.bincount(arrays[name]) / len(arrays["users"]) for name in ("users", "items")]
        self._shares = [float(count.max()) for count in counts]  # of the ratings, for the most popular user and item
        self._meetings = [float((count**2).sum()) for count in counts]  # how likely two ratings share a user or item
        self._size = 1.0  # squared norm of a row: p . q is as large as the target, with p and q alike
        if problem.loss == "squared-error":
            self._size = max(float(np.sqrt(np.mean(np.square(arrays["values"], dtype=np.float64)))), 1.0)

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        return {name: array[first:last] for name, array in self._ratings.items()}

    def bytes_of(self, first: int, last: int) -> int:
        return sum(array.itemsize for array in self._ratings.values()) * (last - first)

    def granule(self) -> int:
        return 0

    def in_flight(self, step: float) -> int:
        """Number of ratings that may be in flight without harm, at most what the device holds.

        A row with a share ``s`` of the visits has ``s F`` steps in flight if F ratings are. All start from old values.
        A step multiplies the row's error by ``1 - step (lambda + l2)``, lambda the largest eigenvalue of the mean of
        ``q q^T`` over the other rows, times the loss's curvature. ``s F`` steps that do not see one another multiply
        it by ``1 - s F step (lambda + l2)``: they overshoot if that product is above 1, and grow from 2 on (for a delay
        of as many steps: from pi/2 on). The limit here is 0.5 for the most popular row. Biases have lambda 1, and so do
        factors whose products are as large as values of deviation 1; with larger values it is larger.

        A penalty per row is counted ``1 / s`` times at a visit, so that part is ``F step l2`` for every row. Implicit
        losses also visit drawn items; their curvature, at most 1/4, makes up for longer rows.

        A row that is stored keeps one of the ``1 + s F`` updates in flight and never overshoots; there F is such that
        a rating's row has 0.25 others in flight on average. Batches end epochs within 1 % of the
        RMSE of one rating in flight at such F. On synthetic ratings with shares of 0.006, step 0.05 and 8 epochs,
        additions reach 0.681 with 1,000 in flight (where F step s = 0.28) as with 16, and diverge with 8,000 (2.3);
        stores reach 0.686 with 200, 0.690 with 400, and 0.81 with 4,000.
        """
        if self.problem.discipline == "serial":
            return 1
        problem = self.problem
        visits = 1 if problem.loss == "squared-error" else 1 + problem.negatives
        most = float(self.room())
        for share, meetings, atomic in zip(self._shares, self._meetings, self.sides):
            if atomic:
                shrunk = problem.l2 * (1.0 if problem.penalty == "per-row" else share * visits)
                contraction = step * (share * visits * self._size + shrunk)
                most = min(most, STABLE / contraction if contraction else most)
            else:
                most = min(most, LOST / (meetings * visits))
        return max(int(most), 1)

    def room(self) -> int:
        """Ratings in flight when the device is full and none waits for another's end."""
        group, programs = self.grid(1 << 30)[0], max(self._programs // SHARE, 1)
        return group * (programs if self._width()[1] <= self._space() else max(programs // 2, 1))

    def replica(self, number: int, stream: DeviceStream, in_flight: int) -> Callable[[Segment], None]:
        visit = self._backend.kernels("completion").visit

        def run(segment: Segment) -> None:
            if len(segment.rows):
                visit(self, segment, in_flight)

        return run

    def salt(self, segment: Segment) -> int:
        """Seed of the draws of a segment's first visit, uint64; each later visit adds one."""
        return (int(np.random.SeedSequence(self._seed).generate_state(1, np.uint64)[0]) + segment.visited) % 2**64

    def constants(self) -> dict[str, Any]:
        """Constants that kernels are compiled for, except the number of ratings per program."""
        problem, (width, tile) = self.problem, self._width()
        constants: dict[str, Any] = {
            "STRIDE": problem.stride, "WIDTH": width, "TILE": tile, "PER_ROW": problem.penalty == "per-row",
            "NONNEGATIVE": problem.nonnegative, "BIASED": problem.biases, "USER_ATOMIC": self.sides[0],
            "ITEM_ATOMIC": self.sides[1],
        }  # fmt: skip
        if problem.loss != "squared-error":
            constants["BPR"] = problem.loss == "bpr"
        # products and sums are fused, whatever Triton's default, and no program waits for another's registers
        registers = REGISTERS if tile <= self._space() else None
        return constants | {"num_warps": 1, "enable_fp_fusion": True, "maxnreg": registers}

    def _width(self) -> tuple[int, int]:
        """Floats read of a row, in whole sectors, and the next power of two."""
        width = -(-self.problem.rank // SECTOR) * SECTOR
        return width, 1 << (width - 1).bit_length()

    def _space(self) -> int:
        """Float32 that fit in a program's tile, given its registers; one row always fits."""
        crowded = self.problem.loss != "squared-error" or (self.problem.nonnegative and any(self.sides))
        return TILE // 2 if crowded else TILE  # a third row, or both the old and the new row, is in registers

    def grid(self, in_flight: int) -> tuple[int, int]:
        """Ratings per program, and programs, for ``in_flight`` ratings in total.

        Ratings per program are as many as fit, a power of two, or one: a kernel for each number between would be
        compiled on the clock.
        """
        most = min(max(self._space() // self._width()[1], 1), MOST)
        group = 1 << (most.bit_length() - 1)
        return (group, in_flight // group) if in_flight >= group else (1, in_flight)
