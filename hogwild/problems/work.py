"""What hosts and problems say to each other: the call that does a worker's share of an epoch, and what it is given.

The one call every host makes is ``problem.work(shared, scratch, data, part, step)``. ``shared`` is what all workers
write to, ``scratch`` what one of them owns, ``data`` what nobody writes. A problem is a few numbers, so it is pickled
to worker processes as it is; everything large reaches them through shared memory or a memory map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from hogwild.data.order import Order
from hogwild.kernels.control import LAST, NEXT, TURN
from hogwild.kernels.order import shuffle_blocks
from hogwild.kernels.tiers import Tiers

NO_LIMIT = 1 << 62
HOLDS = ("aig", "locked", "round-robin")  # disciplines in which a dead worker may hold what others wait for


class Cut(Protocol):
    """How an epoch's examples are cut into the chunks that workers claim: ``data/order.Order``, or another one."""

    @property
    def n_rows(self) -> int:
        """Examples in an epoch."""

    @property
    def n_blocks(self) -> int:
        """Elements of the array that ``problem.shuffle`` permutes for an epoch."""

    @property
    def n_chunks(self) -> int:
        """Chunks that workers claim, counted from 0."""


class Shared(NamedTuple):
    """What all workers write to."""

    parameters: Any  # the problem's named views of the flat array
    control: np.ndarray  # int64, see kernels/control.py
    locks: np.ndarray  # int32: as many as the discipline takes
    tiers: Tiers  # read-only; empty unless tiered, when ``parameters`` hold the weights by rank


class OrderSlice(NamedTuple):
    """Which part of which epoch a call of ``work`` is to do, and who does it."""

    order: Any  # a Cut
    blocks: np.ndarray  # (n_blocks,) int32
    seed: int
    epoch: int
    start: int  # first chunk: not 0 when an epoch is resumed
    worker: int
    workers: int
    limit: int = NO_LIMIT  # examples after which ``work`` returns, to be called again with the same scratch
    crew: Any = None  # virtual workers, whose events are done instead (see hosts/simulator.py)


class Problem(Protocol):
    """What hosts ask of a problem; ``problems/linear.py`` has the first one."""

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
        """The named views of the flat array."""

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of the flat array that tiers keep by rank, as views with a row each."""

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Set the parameters that training starts from in an array of zeros."""

    def data(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """What the kernel reads, of read-only arrays by name."""

    def scratch(self, order: Any, tiers: int = 0) -> Any:
        """A worker's own memory."""

    def shuffle(self, blocks: np.ndarray, order: Any, seed: int, epoch: int) -> None:
        """Fill ``blocks`` with an epoch's sequence."""

    def begin_epoch(self, control: np.ndarray, order: Any, start: int) -> None:
        """Set the shared cells for workers that start an epoch at chunk ``start``."""

    def position(self, control: np.ndarray, order: Any) -> int:
        """Number of chunks done (the workers stand still)."""

    def work(self, shared: Shared, scratch: Any, data: Any, part: OrderSlice, step: tuple[float, float, float]) -> None:
        """Run one worker until its share of the epoch is done or the stop flag is up; counts go to ``control``."""

    def prepare(
        self, shared: Shared, scratch: Any, data: Any, part: OrderSlice, step: tuple[float, float, float]
    ) -> Callable[[], Any]:
        """``work`` as a function of nothing, to be called again and again under ``part.limit``."""

    def compile(self) -> None:
        """Compile the kernel, or load it from the disk cache."""


class Prepared:
    """``work`` of problems whose ``prepare`` makes a call of one kernel."""

    def work(self, *parts: Any) -> None:
        """Run one worker until its share of the epoch is done or the stop flag is up; counts go to ``control``."""
        prepare: Callable[..., Callable[[], Any]] = self.prepare  # type: ignore[attr-defined]
        prepare(*parts)()


class InChunks:
    """What problems have in common whose examples are cut by ``data/order.Order``; the kernels claim its chunks."""

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
        """Number of chunks done (the workers stand still)."""
        if self.discipline == "round-robin" and control[LAST] == order.n_rows:
            return order.n_chunks
        return int(min(control[NEXT], order.n_chunks))
