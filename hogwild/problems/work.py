"""The interface between hosts and problems: the call that does a worker's share of an epoch, and its arguments.

Every host calls ``problem.prepare(shared, scratch, data, part, step)()``. All workers write to ``shared``, one worker
owns ``scratch``, and nobody writes to ``data``. A problem is a few numbers, so it is pickled to worker processes as it
is; everything large reaches them through shared memory or a memory map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hogwild.data.order import Order
from hogwild.kernels.control import LAST, LINE, NEXT, NO_LIMIT, ROWS, TURN, WORKERS
from hogwild.kernels.order import shuffle_blocks
from hogwild.kernels.tiers import Tiers
from hogwild.training.schedule import Step

NO_GUARDS = np.empty(0, np.int32)
HOLDS = ("aig", "locked", "round-robin")  # disciplines in which a worker may die holding what others wait for


class Cut(Protocol):
    """How an epoch's examples are cut into the chunks that workers claim: ``data/order.Order``, or another class."""

    @property
    def n_rows(self) -> int:
        """Number of examples in an epoch."""

    @property
    def n_blocks(self) -> int:
        """Number of elements of the array that ``problem.shuffle`` permutes for an epoch."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks that workers claim, counted from 0."""


class Shared(NamedTuple):
    """The arrays that all workers write to."""

    parameters: Any  # the problem's named views of the flat array
    control: np.ndarray  # int64, see kernels/control.py
    locks: np.ndarray  # int32, as many as the discipline uses
    tiers: Tiers  # read-only; empty unless tiered, when ``parameters`` hold the weights by rank


class OrderSlice(NamedTuple):
    """The part of an epoch that a call of ``work`` is to do, and the worker that does it."""

    order: Any  # a Cut
    blocks: np.ndarray  # (n_blocks,) int32
    seed: int
    epoch: int
    start: int  # first chunk: nonzero when an epoch is resumed
    worker: int
    workers: int
    limit: int = NO_LIMIT  # examples after which a call returns; it is then called again
    crew: Any = None  # virtual workers, whose events are done instead (see hosts/simulator.py)


class Problem(Protocol):
    """The interface that hosts ask of a problem; ``linear/problem.py`` is an example."""

    @property
    def discipline(self) -> str:
        """How an update reaches a shared coordinate."""

    @property
    def size(self) -> int:
        """Length of the flat float32 parameter array."""

    @property
    def locks(self) -> int:
        """Number of locks that workers take, at least 1."""

    @property
    def holds(self) -> bool:
        """Whether a worker that dies may hold what others wait for."""

    def parameters(self, flat: np.ndarray) -> Any:
        """Named views of the flat array."""

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of the flat array that tiers keep by rank, as views with a row for each feature."""

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Write the parameters that training starts from into an array of zeros."""

    def data(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The kernel's read-only inputs, made of arrays by name."""

    def scratch(self, order: Any, tiers: int = 0) -> Any:
        """A worker's own memory."""

    def shuffle(self, blocks: np.ndarray, order: Any, seed: int, epoch: int) -> None:
        """Fill ``blocks`` with an epoch's sequence."""

    def begin_epoch(self, control: np.ndarray, order: Any, start: int) -> None:
        """Set the shared cells for workers that start an epoch at chunk ``start``."""

    def position(self, control: np.ndarray, order: Any) -> int:
        """Number of chunks done, while the workers stand still."""

    def prepare(self, shared: Shared, scratch: Any, data: Any, part: OrderSlice, step: Step) -> Callable[[], int]:
        """Return a function that does at most ``part.limit`` examples (modules: whole minibatches up to there), counts
        them in ``control`` and returns how many it did; a further call continues. A return below the limit means that
        the epoch has no more for this worker, or that the stop flag is up. State that an earlier function left in
        ``scratch`` is discarded.
        """

    def compile(self) -> None:
        """Compile the kernel, or load it from the disk cache."""


@runtime_checkable
class Guarded(Protocol):
    """A problem that says what its locks protect, so that others who write to the parameters can take them."""

    def guards(self) -> np.ndarray:
        """Which lock a worker holds when it writes each parameter, (size,) int32, or -1; empty if it takes none."""


@runtime_checkable
class WithOwnParts(Protocol):
    """A problem whose array also holds what each worker keeps for itself, behind the parameters."""

    @property
    def trained(self) -> int:
        """Number of parameters, which come first: what machines trade."""


@runtime_checkable
class InParts(Protocol):
    """A problem with two sides, users and items, each in ``parts``, of which machines have one each at any time: of
    every ``parts``-th chunk they have the users, and in each turn of an epoch, its ``parts``-th part, other items.
    """

    @property
    def parts(self) -> int:
        """Of how many parts each side consists."""

    @property
    def numbers(self) -> int:
        """How many parameters a user or item has."""

    def rows_of_parts(self, data: Any, order: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The users, and the items, of each part that an epoch changes."""

    def copy_out(self, flat: np.ndarray, side: int, rows: np.ndarray) -> np.ndarray:
        """The parameters of some users (``side`` 0) or items (1), float32."""

    def copy_in(self, flat: np.ndarray, side: int, rows: np.ndarray, values: np.ndarray) -> None:
        """Set what :meth:`copy_out` has returned."""


def part_of(users: Any, turn: Any, epoch: int, parts: int) -> Any:
    """The part of the items that meets a part of the users in a turn of an epoch. Over ``parts`` turns it meets all of
    them, and an epoch begins with that with which the last one has ended.
    """
    return (users + turn - epoch) % parts


def trained(problem: Problem) -> int:
    """Return how many numbers of a problem's array, the first ones, are parameters."""
    return problem.trained if isinstance(problem, WithOwnParts) else problem.size


def counted(kernel: Callable[[], Any], control: np.ndarray, worker: int) -> Callable[[], int]:
    """Wrap a kernel's call to return how many examples it has counted for the worker."""
    cell = WORKERS + LINE * worker + ROWS

    def turn() -> int:
        before = int(control[cell])
        kernel()
        return int(control[cell]) - before

    return turn


class InChunks:
    """Shared methods of problems whose examples are cut by ``data/order.Order``; their kernels claim its chunks."""

    discipline: str

    @property
    def holds(self) -> bool:
        """Whether a worker that dies may hold what others wait for."""
        return self.discipline in HOLDS

    def shuffle(self, blocks: np.ndarray, order: Order, seed: int, epoch: int) -> None:
        """Fill ``blocks`` with an epoch's sequence of blocks."""
        shuffle_blocks(blocks, order.n_rows, order.block, int(order.shuffled), seed, epoch)

    def begin_epoch(self, control: np.ndarray, order: Order, start: int) -> None:
        """Set the shared cells for workers that start an epoch at chunk ``start``."""
        control[:] = 0
        control[NEXT] = start
        control[TURN] = start * order.chunk
        control[LAST] = order.n_rows

    def position(self, control: np.ndarray, order: Order) -> int:
        """Number of chunks done, while the workers stand still."""
        if self.discipline == "round-robin" and control[LAST] == order.n_rows:
            return order.n_chunks
        return int(min(control[NEXT], order.n_chunks))
