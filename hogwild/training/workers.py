"""The workers that do a step's trials and an estimator's epochs: one in the calling thread, or several of an engine.

An epoch of a hundred rows takes a few hundredths of a millisecond, less than handing it to another thread. The kernel
and the order of the rows are those of a pool of one worker, so the result is the same to the last bit.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hogwild.data.mapped import entries_of
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, readonly
from hogwild.exchanges.trade import Exchange
from hogwild.hosts.job import Job
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import cells
from hogwild.kernels.order import shuffle_epochs
from hogwild.kernels.tiers import Tiers, no_tiers
from hogwild.methods import Wire
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.problems.linear.tiers import plan_tiers
from hogwild.problems.protocol import OrderSlice, Shared
from hogwild.training.engine import Engine
from hogwild.training.schedule import Step


class InlineWorker:
    """One worker of the linear problem, in the calling thread.

    Parameters
    ----------
    problem : LinearProblem
        A problem of discipline ``serial`` or ``hogwild``, which are the same for one worker.
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
        self.problem = problem
        self.order = order
        self.seed = seed
        self.flat = aligned(problem.size) if flat is None else flat
        self._control = np.zeros(cells(1), dtype=np.int64)
        self._views = problem.parameters(self.flat)
        data, tiers = entries_of(rows, shared=False)[0] | arrays, no_tiers()
        self._call = problem.bind(
            Shared(self._views, self._control, np.zeros(problem.locks, dtype=np.int32), tiers),
            problem.scratch(order, tiers, self.flat),
            problem.data({name: readonly(array) for name, array in data.items()}),
        )
        self._blocks = np.zeros(order.n_blocks, dtype=np.int32)

    def compile(self) -> None:
        """Compile the kernel, or load it from the disk cache, by a call for no rows."""
        nothing = OrderSlice(self.order, self._blocks, self.seed, 0, 0, 0, 1, limit=0)
        self._call(nothing, (0.0, 1.0, float(self.problem.falling)))()

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows ``times`` times in one call of the kernel, each in another random order of single rows."""
        n = self.order.n_rows
        first = epoch * n
        if times == 1:
            self.problem.shuffle(self._blocks, self.order, self.seed, epoch)
            part = OrderSlice(self.order, self._blocks, self.seed, epoch, 0, 0, 1)
        else:
            orders = np.empty((times, n), dtype=np.int32)
            shuffle_epochs(orders, int(self.order.shuffled), self.seed, epoch)
            part = OrderSlice(Order(times * n, 1, self.order.shuffled), orders.ravel(), self.seed, 0, 0, 0, 1)
            step = step[0], step[1] + first, step[2]  # this part counts its rows from 0
            first = 0
        self.problem.begin_epoch(self._control, part.order, 0)
        self._call(part, step)()
        self.problem.write_out(self._views.coef, step, first, times * n)

    def parameters(self) -> np.ndarray:
        """The current flat parameters."""
        return self.flat

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self.flat[:] = 0 if flat is None else flat

    def close(self) -> None:
        """Do nothing: no worker was started."""


def job_of(
    problem: LinearProblem,
    order: Order,
    seed: int,
    workers: int,
    rows: Rows,
    arrays: dict[str, np.ndarray],
    shared: bool,
    tiers: Tiers | None = None,
    exchange: Exchange | None = None,
) -> Job:
    """Return a job of rows and ``problem.row_arrays``; the other arguments are those of :meth:`Job.of`."""
    entries, mapped = entries_of(rows, shared)
    if tiers is None and problem.discipline == "tiered":
        tiers = plan_tiers(problem, rows, arrays, workers)
    return Job.of(problem, order, seed, workers, entries | arrays, shared, mapped, tiers, exchange)


class RacingWorkers:
    """Workers of a pool, in threads, processes or the simulator; :meth:`close` ends them.

    The other arguments are those of :func:`job_of`; ``wire`` is what replicas trade over in the simulator.
    """

    def __init__(
        self,
        problem: LinearProblem,
        order: Order,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        seed: int,
        pool: Pool,
        tiers: Tiers | None = None,
        exchange: Exchange | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.problem = problem
        lay_out = partial(job_of, problem, order, seed, pool.workers, rows, arrays, tiers=tiers, exchange=exchange)
        self._engine = Engine(lay_out, pool, wire=wire)

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows ``times`` times."""
        job = self._engine.job
        n = job.order.n_rows
        for number in range(epoch, epoch + times):
            self._engine.go_to(number)
            self._engine.advance(step)
            self.problem.write_out(self.problem.parameters(job.flat).coef, step, number * n, n)

    def parameters(self) -> np.ndarray:
        """A copy of the flat parameters, in the order of the features."""
        return self._engine.job.export()

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, and those of all replicas, to zero without an argument."""
        job = self._engine.job
        for array in job.trader.arrays.values() if job.trader else ():
            array[:] = 0
        job.restore(np.zeros(self.problem.size, dtype=np.float32) if flat is None else flat)

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()


Workers = InlineWorker | RacingWorkers
