"""Matrix completion on a device: where everything lies there, how much may be in hand, and what launches the kernels.

The decision that matters is how many ratings are in hand at the same time, see :meth:`CompletionLauncher.in_flight`.
Discipline ``atomic`` adds the changes of both rows atomically, ``hogwild`` stores both rows, and ``serial`` does with
one rating in hand, where the two are the same. Stores lose what others did meanwhile, and on popular items that is
nearly everything, long before added changes are too many; so ``hogwild`` is allowed few in hand. ``sides`` has one side
added and the other stored: users are seldom in hand twice.

Ratings want to lie in random order, so that neighbours may be visited together (``block``): read one by one, at random
places, a rating's 12 bytes cost 96 of the memory's bandwidth, beside 1,024 for rows of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hogwild.cuda import completion_torch
from hogwild.cuda.backend import Backend, Stream, runs_triton
from hogwild.cuda.completion_torch import Tables
from hogwild.cuda.work import Segment
from hogwild.problems.completion import CompletionProblem

SIDES = {"serial": (False, False), "hogwild": (False, False), "atomic": (True, True)}  # atomic: users, items
SECTOR = 8  # float32 in the least that memory reads
TILE, MOST = 512, 16  # float32 of a program's tile, 16 a thread; ratings in it, at most
SHARE = 2  # of the programs that a device has room for, one in so many is there: each has 128 registers
REGISTERS = 128
STABLE = 0.5  # steps in hand on one row, times their contraction; from 2 on they diverge
LOST = 0.25  # others in hand on a rating's row, on average, where they lose each other's update


class CompletionLauncher:
    """See :class:`hogwild.cuda.work.Launcher`.

    Parameters
    ----------
    problem : CompletionProblem
    arrays : mapping
        ``users``, ``items`` and ``values`` (in the problem's units) of all ratings; ``user_rates`` and ``item_rates``
        if the penalty is per row, ``seen_begin`` and ``seen_items`` for losses of choices, else without elements.
    backend : Backend
    replicas : int
    seed : int
        Of the items drawn against ratings. Each visit draws anew: how many came before it, since the run began, is
        mixed in.
    triton : bool, optional
        Whether kernels are Triton's; else torch's. None: where it is installed and the device is a GPU.
    sides : (bool, bool), optional
        Whether changes of users, and of items, are added atomically. None: what the discipline says.
    """

    block = 32

    def __init__(
        self, problem: CompletionProblem, arrays: Mapping[str, np.ndarray], backend: Backend, replicas: int,
        seed: int = 0, triton: bool | None = None, sides: tuple[bool, bool] | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.sides, self.streams = problem, sides or SIDES[problem.discipline], replicas
        self._seed, self._rehearsed, self._programs = seed, False, backend.programs()
        names = ("users", "items", *(("values",) if problem.loss == "squared-error" else ()))
        self._ratings = {name: arrays[name] for name in names}
        device = backend.device
        self.flat = torch.zeros(problem.size, dtype=torch.float32, device=device)
        tables = [torch.from_numpy(np.array(arrays[name])).to(device) for name in Tables._fields[4:]]
        views: Any = problem.parameters(self.flat)
        self.tables = Tables(*(part.view(-1, problem.stride) for part in views[:2]), *views[2:], *tables)
        self._triton = runs_triton(device) if triton is None else triton
        self._seen = None
        if problem.loss != "squared-error" and not self._triton:
            self._seen = completion_torch.seen_pairs(self.tables, problem.items)
        counts = [np.bincount(arrays[name]) / len(arrays["users"]) for name in ("users", "items")]
        self._shares = [float(count.max()) for count in counts]  # of the ratings, of the most popular user and item
        self._meetings = [float((count**2).sum()) for count in counts]  # how likely two ratings have one user or item
        self._size = 1.0  # of a row: p . q is as large as what it is to predict, p and q alike
        if problem.loss == "squared-error":
            self._size = max(float(np.sqrt(np.mean(np.square(arrays["values"], dtype=np.float64)))), 1.0)

    def part(self, first: int, last: int) -> dict[str, np.ndarray]:
        return {name: array[first:last] for name, array in self._ratings.items()}

    def bytes_of(self, first: int, last: int) -> int:
        return sum(array.itemsize for array in self._ratings.values()) * (last - first)

    def granule(self) -> int:
        return 0

    def in_flight(self, step: float) -> int:
        """Ratings that may be in hand without harm, at most what the device holds.

        A row with a share ``s`` of the visits has ``s F`` steps in hand with F ratings. All are taken from old values.
        A step multiplies the row's error by ``1 - step (lambda + l2)``, lambda the largest eigenvalue of the mean of
        ``q q^T`` over the other rows, times the loss's curvature. So many steps that do not see one another multiply
        it by ``1 - s F step (lambda + l2)``: they overshoot when that product is above 1, and grow from 2 on (a delay
        of as many steps: from pi/2 on). Here it is 0.5 for the most popular row. Biases have lambda 1, and so do
        factors whose products are as large as values of deviation 1; values with another mean square are larger.

        A penalty per row is counted ``1 / s`` times at a visit, so that part is ``F step l2`` for every row. Choices
        are visited with what is drawn against them; their curvature, 1/4 at most, makes up for longer rows.

        A row that is stored keeps one of the ``1 + s F`` updates in hand and never overshoots; there F is such that
        a rating's row has 0.25 others in hand on average. Batches of ``completion_torch`` end epochs within 1 % of the
        RMSE of one rating in hand at such F. On synthetic ratings shares of 0.006 reach 0.681 after 8 epochs at step
        0.05 with 1,000 in hand (where F step s = 0.28) as with 16, diverge with 8,000 (2.3); stores reach 0.686 with
        200, 0.690 with 400, and 0.81 with 4,000.
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
        """Ratings in hand when the device is full: none waits for another's end."""
        group, programs = self._grid(1 << 30)[0], max(self._programs // SHARE, 1)
        return group * (programs if self._width()[1] <= self._space() else max(programs // 2, 1))

    def replica(self, number: int, stream: Stream, in_flight: int) -> Callable[[Segment], None]:
        launch = self._with_triton if self._triton else self._with_torch

        def run(segment: Segment) -> None:
            if len(segment.rows):
                launch(segment, in_flight)

        return run

    def _salt(self, segment: Segment) -> int:
        """What the draws of a segment's first visit depend on, uint64; those of the next one depend on one more."""
        return (int(np.random.SeedSequence(self._seed).generate_state(1, np.uint64)[0]) + segment.visited) % 2**64

    def _with_torch(self, segment: Segment, in_flight: int) -> None:
        if self._seen is None:
            completion_torch.squared_error(self.problem, self.tables, segment, in_flight)
        else:
            completion_torch.implicit(self.problem, self.tables, self._seen, segment, in_flight, self._salt(segment))

    def _with_triton(self, segment: Segment, in_flight: int) -> None:
        from hogwild.cuda import completion_kernels as kernels

        problem, tables, data, visits = self.problem, self.tables, segment.data, (segment.rows, segment.steps)
        rates = tables.user_rates, tables.item_rates
        kernel: Any
        arguments: tuple[Any, ...]
        if problem.loss == "squared-error":
            kernel = kernels.squared_error
            arguments = (data["users"], data["items"], data["values"], *visits, *rates, len(visits[0]), problem.l2)
        else:
            kernel = kernels.implicit
            arguments = (
                data["users"], data["items"], *visits, *rates, tables.seen_begin, tables.seen_items,
                self._salt(segment), problem.items, len(visits[0]), problem.l2, problem.negatives,
            )  # fmt: skip
        arguments, constants = (*tables[:4], *arguments), self._constants()
        group, programs = self._grid(in_flight)
        if not self._rehearsed:  # which has little in hand: the kernel of a full program is compiled as well
            self._rehearsed = True
            kernel.warmup(*arguments, grid=(1,), GROUP=self._grid(1 << 30)[0], **constants)
        kernel[(min(programs, -(-len(visits[0]) // group)),)](*arguments, GROUP=group, **constants)

    def _constants(self) -> dict[str, Any]:
        """What kernels are compiled for, but for the number of ratings in a program's hand."""
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
        """What is read of a row, whole sectors; and the power of two that holds it."""
        width = -(-self.problem.rank // SECTOR) * SECTOR
        return width, 1 << (width - 1).bit_length()

    def _space(self) -> int:
        """Float32 that a program's tile may have, in so many registers; one row is in any."""
        crowded = self.problem.loss != "squared-error" or (self.problem.nonnegative and any(self.sides))
        return TILE // 2 if crowded else TILE  # a third row is in hand, or the old row and the new one

    def _grid(self, in_flight: int) -> tuple[int, int]:
        """Ratings that a program has in hand, and programs, for so many in hand altogether.

        As many as there is room for, a power of two, or one: a kernel for each number between would be compiled on the
        clock.
        """
        most = min(max(self._space() // self._width()[1], 1), MOST)
        group = 1 << (most.bit_length() - 1)
        return (group, in_flight // group) if in_flight >= group else (1, in_flight)
