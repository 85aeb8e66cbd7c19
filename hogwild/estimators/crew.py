"""Who does an epoch: one worker in the calling thread, or several in a pool; both look alike to the loop.

The one decision: a single worker needs no pool. ``Solo`` calls the kernel in the caller's thread, a tenth of a
millisecond an epoch on small data, where starting a thread alone would take longer than training iris. It is the same
kernel in the same order of rows as a pool of one, so its result is the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hogwild.data.examples import Rows, readonly
from hogwild.data.mapped import entries_of
from hogwild.data.order import Order
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import cells
from hogwild.kernels.order import shuffle_blocks
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear import LinearProblem, aligned
from hogwild.problems.tiers import no_tiers
from hogwild.problems.work import OrderSlice, Shared
from hogwild.training import POLL, start_pool

Step = tuple[float, float, float]


class Solo:
    """One worker, in this thread.

    Parameters
    ----------
    problem : LinearProblem
        Of discipline ``serial``.
    order : Order
    rows : Rows
    arrays : dict
        As ``problem.row_arrays`` makes them.
    seed : int
    flat : array of float32, optional
        Parameters to go on from, which are changed in place; zeros without it.
    """

    def __init__(
        self, problem: LinearProblem, order: Order, rows: Rows, arrays: dict[str, np.ndarray], seed: int,
        flat: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.order, self.seed = problem, order, seed
        self.flat = aligned(problem.size) if flat is None else flat
        self._control = np.zeros(cells(1), dtype=np.int64)
        locks = np.zeros(problem.locks, dtype=np.int32)
        self._shared = Shared(problem.parameters(self.flat), self._control, locks, no_tiers())
        self._scratch, self._blocks = problem.scratch(order), np.zeros(order.n_blocks, dtype=np.int32)
        data = entries_of(rows, shared=False)[0] | arrays
        self._many: np.ndarray | None = None
        self._data = problem.data({name: readonly(array) for name, array in data.items()})

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows; ``times`` in one call of the kernel, in as many random orders of single rows."""
        if times == 1:
            part = self._part(epoch)
        else:
            part = self._tiled(epoch, times)
            step = step[0], step[1] + epoch * self.order.n_rows, step[2]  # this part counts its rows from 0
        self.problem.begin_epoch(self._control, part.order, 0)
        self.problem.work(self._shared, self._scratch, self._data, part, step)

    def _part(self, epoch: int) -> OrderSlice:
        self.problem.shuffle(self._blocks, self.order, self.seed, epoch)
        return OrderSlice(self.order, self._blocks, self.seed, epoch, 0, 0, 1)

    def _tiled(self, epoch: int, times: int) -> OrderSlice:
        n = self.order.n_rows
        if self._many is None or self._many.shape != (times, n):
            self._many = np.empty((times, n), dtype=np.int32)
        for k, blocks in enumerate(self._many):
            shuffle_blocks(blocks, n, 1, int(self.order.shuffled), self.seed, epoch + k)
        return OrderSlice(Order(times * n, 1, self.order.shuffled), self._many.ravel(), self.seed, 0, 0, 0, 1)

    def parameters(self) -> np.ndarray:
        """The flat parameters as they are."""
        return self.flat

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self.flat[:] = 0 if flat is None else flat

    def close(self) -> None:
        """Nothing was started."""


class Crew:
    """Several workers in a pool of threads or processes, started here and ended by :meth:`close`."""

    def __init__(
        self, problem: LinearProblem, order: Order, rows: Rows, arrays: dict[str, np.ndarray], seed: int, workers: int,
        host: str, tiers: Tiers | None, flat: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self._pool = start_pool(host, workers)
        try:
            self._job = Job.of_rows(problem, order, seed, workers, rows, arrays, self._pool.shared, tiers)
            self.reset(flat)
            self._pool.open(self._job)
        except BaseException:
            self._pool.close()
            raise

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows, ``times`` times."""
        for k in range(times):
            self._pass(epoch + k, step)

    def _pass(self, epoch: int, step: Step) -> None:
        self._job.begin_epoch(epoch, 0)
        try:
            self._pool.begin(Task(epoch, 0, step))
            while not self._pool.wait(POLL):
                pass
        finally:
            self._job.meet()

    def parameters(self) -> np.ndarray:
        """A copy of the flat parameters, in the order of the features."""
        return self._job.export()

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self._job.restore(np.zeros(self._job.problem.size, dtype=np.float32) if flat is None else flat)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


Workers: Any = Solo | Crew
