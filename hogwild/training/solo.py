"""One worker of the linear problem in the calling thread, for the trials of steps and for fits on one core.

An epoch of a hundred rows takes a few hundredths of a millisecond, less than handing it to another thread. The kernel
and the order of the rows are those of a pool of one worker, so the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hogwild.data.mapped import entries_of
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, readonly
from hogwild.kernels.control import STOP, cells
from hogwild.kernels.order import shuffle_epochs
from hogwild.kernels.tiers import no_tiers
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.problems.protocol import OrderSlice, Shared
from hogwild.training.schedule import Step


class Whole:
    """Shared methods of workers that train all classes."""

    problem: LinearProblem

    def parameters(self) -> np.ndarray:
        raise NotImplementedError

    def objective(self, objective: Callable[[np.ndarray], float]) -> float:
        """Evaluate ``objective`` at the current parameters."""
        return objective(self.parameters())

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """``LinearProblem.solution`` of the parameters."""
        return self.problem.solution(self.parameters())


class Solo(Whole):
    """One worker, in the calling thread.

    Parameters
    ----------
    problem : LinearProblem
        A problem of discipline ``serial``.
    order : Order
    rows : Rows
    arrays : dict
        As ``problem.row_arrays`` makes them.
    seed : int
    flat : array of float32, optional
        Initial parameters, which are changed in place; zeros if not given.
    """

    def __init__(
        self,
        problem: LinearProblem,
        order: Order,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        seed: int,
        flat: np.ndarray | None = None,
    ) -> None:
        self.problem, self.order, self.seed = problem, order, seed
        self.flat = aligned(problem.size) if flat is None else flat
        self._control = np.zeros(cells(1), dtype=np.int64)
        locks = np.zeros(problem.locks, dtype=np.int32)
        self._views = problem.parameters(self.flat)
        data = entries_of(rows, shared=False)[0] | arrays
        self._call = problem.bind(
            Shared(self._views, self._control, locks, no_tiers()),
            problem.scratch(order),
            problem.data({name: readonly(array) for name, array in data.items()}),
        )
        self._blocks = np.zeros(order.n_blocks, dtype=np.int32)
        self._many: np.ndarray | None = None
        self._ended = False

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows ``times`` times in one call of the kernel, each in another random order of single rows."""
        first, rows = epoch * self.order.n_rows, times * self.order.n_rows
        if times == 1:
            part = self._part(epoch)
        else:
            part = self._tiled(epoch, times)
            step, first = (step[0], step[1] + first, step[2]), 0  # this part counts its rows from 0
        self.problem.begin_epoch(self._control, part.order, 0)
        if self._ended:
            self._control[STOP] = 1
        self._call(part, step)()
        self.problem.write_out(self._views.coef, step, first, rows)

    def stop(self) -> None:
        """Have :meth:`run` return soon, and at once if it has yet to begin; called from another thread."""
        self._ended = True
        self._control[STOP] = 1

    def _part(self, epoch: int) -> OrderSlice:
        self.problem.shuffle(self._blocks, self.order, self.seed, epoch)
        return OrderSlice(self.order, self._blocks, self.seed, epoch, 0, 0, 1)

    def _tiled(self, epoch: int, times: int) -> OrderSlice:
        n, shuffled = self.order.n_rows, self.order.shuffled
        if self._many is None or len(self._many) != times:
            self._many = np.empty((times, n), dtype=np.int32)
            self._long = Order(times * n, 1, shuffled)
        shuffle_epochs(self._many, int(shuffled), self.seed, epoch)
        return OrderSlice(self._long, self._many.ravel(), self.seed, 0, 0, 0, 1)

    def parameters(self) -> np.ndarray:
        """The current flat parameters."""
        return self.flat

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self.flat[:] = 0 if flat is None else flat

    def close(self) -> None:
        """Do nothing: no worker was started."""
