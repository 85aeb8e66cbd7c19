"""Who does an epoch: one worker in the calling thread, several in a pool, or one for each group of classes.

The one decision: workers share parameters only where they must. ``Solo`` calls the kernel in the caller's thread, a
tenth of a millisecond an epoch on small data, where starting a thread alone would take longer than training iris. It is
the same kernel in the same order of rows as a pool of one, so its result is the same to the last bit. ``Classes`` has a
``Solo`` for each worker: the models of one-versus-rest have nothing to do with each other, so each worker trains some
of them on all rows, and the weights of each epoch are those of one worker; the objective is added up in another order,
which moves its ninth digit. Only what is left is a race: ``Crew``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from hogwild.data.examples import Rows, readonly
from hogwild.data.mapped import entries_of
from hogwild.data.order import Order
from hogwild.estimators.gauge import Gauge
from hogwild.hosts.job import Job, Task
from hogwild.kernels.control import STOP, cells
from hogwild.kernels.order import shuffle_epochs
from hogwild.kernels.steps import area
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear import LinearProblem, Step, aligned
from hogwild.problems.tiers import no_tiers
from hogwild.problems.work import OrderSlice, Shared
from hogwild.training import POLL, start_pool

LEAST_CLASSES = 9  # a worker must have: vector instructions do so many at once


def write_out(problem: LinearProblem, coef: np.ndarray, step: Step, first: int, rows: int) -> None:
    """Multiply the weights by their scale at the end of so many rows, see ``kernels/linear.py``, PENALTIES."""
    if problem.scaled:
        exponent = problem.l2 * (area(step, first + rows) - area(step, first))
        coef *= np.float32(math.exp(-exponent))


def can_share_out(loss: str, classes: int, workers: int, host: str) -> bool:
    """Whether classes are many enough for so many workers, and have nothing to do with each other."""
    independent = host == "threads" and loss != "softmax"
    return independent and classes >= LEAST_CLASSES * workers and workers > 1


class _Whole:
    """What workers on all classes say of their parameters."""

    problem: LinearProblem

    def parameters(self) -> np.ndarray:
        raise NotImplementedError

    def objective(self, gauge: Gauge) -> float:
        """What ``gauge`` says of the parameters as they are."""
        return gauge(self.parameters())

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """``LinearProblem.solution`` of the parameters."""
        return self.problem.solution(self.parameters())


class Solo(_Whole):
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
        self._views = problem.parameters(self.flat)
        data = entries_of(rows, shared=False)[0] | arrays
        self._call = problem.bind(
            Shared(self._views, self._control, locks, no_tiers()), problem.scratch(order),
            problem.data({name: readonly(array) for name, array in data.items()}),
        )  # fmt: skip
        self._blocks = np.zeros(order.n_blocks, dtype=np.int32)
        self._many: np.ndarray | None = None
        self._ended = False

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows; ``times`` in one call of the kernel, in as many random orders of single rows."""
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
        write_out(self.problem, self._views.coef, step, first, rows)

    def stop(self) -> None:
        """Have :meth:`run` return soon, and at once if it has yet to begin; from another thread."""
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
        """The flat parameters as they are."""
        return self.flat

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self.flat[:] = 0 if flat is None else flat

    def close(self) -> None:
        """Nothing was started."""


class Classes:
    """A worker for each of some groups of classes of one-versus-rest, in threads; the arguments are those of ``Solo``.

    What it is told it tells each worker, and does the first one's part itself; it waits for the others only where it
    is asked for what they have found, so that none waits for another after each epoch and each look at it.

    Parameters
    ----------
    groups : int
        At most as many as there are classes.
    """

    def __init__(
        self, problem: LinearProblem, order: Order, rows: Rows, arrays: dict[str, np.ndarray], seed: int,
        groups: int,
    ) -> None:  # fmt: skip
        self.problem, self.groups = problem, groups
        cuts = [problem.classes * g // groups for g in range(groups + 1)]
        self._parts = [slice(*cut) for cut in pairwise(cuts)]
        self._solos = [
            Solo(
                dataclasses.replace(problem, labels=problem.labels[part]), order, rows,
                arrays | {"targets": arrays["targets"] - np.float32(part.start)}, seed,
            )
            for part in self._parts
        ]  # fmt: skip
        self._others = [ThreadPoolExecutor(1, thread_name_prefix="hogwild") for _ in range(1, groups)]
        self._told: list[Future[Any]] = []  # and not yet waited for

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Have each pass over the rows, ``times`` times."""
        self._tell(lambda solo, part: solo.run(epoch, step, times))

    def objective(self, gauge: Gauge) -> float:
        """The sum of what ``gauge`` says of all classes."""
        return sum(self._each(lambda solo, part: gauge.of(solo.problem, part)(solo.flat)))

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """``LinearProblem.solution`` of all classes."""
        p = self.problem
        coef, intercept = np.empty((p.classes, p.width), np.float32), np.empty(p.classes, np.float32)

        def fill(solo: Solo, part: slice) -> None:
            own, intercept[part] = _of_group(solo, part)
            coef[part] = own.T

        self._each(fill)
        return coef, intercept

    def parameters(self) -> np.ndarray:
        """The flat parameters of all classes, copied."""
        self._each(lambda solo, part: None)
        flat = aligned(self.problem.size)
        for views in self._pairs(flat):
            views[0][:] = views[1]
        return flat

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self._tell(lambda solo, part: solo.reset(None))
        if flat is not None:
            self._each(lambda solo, part: None)
            for views in self._pairs(flat):
                views[1][:] = views[0]

    def close(self) -> None:
        """End the threads; who is at work ends with the chunk in hand."""
        for other in self._others:
            other.shutdown(wait=False, cancel_futures=True)
        for solo in self._solos:
            solo.stop()
        for other in self._others:
            other.shutdown()

    def _pairs(self, flat: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Views of the same weights, and intercepts, in parameters of all classes and in a worker's."""
        p, whole = self.problem, self.problem.parameters(flat)
        for solo, part in zip(self._solos, self._parts):
            coef, intercept = _of_group(solo, part)
            yield whole.coef.reshape(p.width, p.stride)[:, part], coef
            yield whole.intercept[part], intercept

    def _tell(self, work: Callable[[Solo, slice], Any]) -> tuple[Any, list[Future[Any]]]:
        """Have each do ``work`` after what it was told before; what the first has found, and what others will."""
        jobs = list(zip(self._solos, self._parts))
        told = [other.submit(work, *job) for other, job in zip(self._others, jobs[1:])]
        self._told += told
        return work(*jobs[0]), told

    def _each(self, work: Callable[[Solo, slice], Any]) -> list[Any]:
        """``work`` of each, done."""
        first, told = self._tell(work)
        before, self._told = self._told, []
        for other in before:
            other.result()  # raises what it did
        return [first, *(other.result() for other in told)]


def _of_group(solo: Solo, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Views of a worker's weights (width, K) and intercepts (K,), of its K classes."""
    p, count, views = solo.problem, part.stop - part.start, solo.problem.parameters(solo.flat)
    return views.coef.reshape(p.width, p.stride)[:, :count], views.intercept[:count]


class Crew(_Whole):
    """Several workers in a pool of threads or processes, started here and ended by :meth:`close`."""

    def __init__(
        self, problem: LinearProblem, order: Order, rows: Rows, arrays: dict[str, np.ndarray], seed: int, workers: int,
        host: str, tiers: Tiers | None, flat: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.problem = problem
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
        job, rows = self._job, self._job.order.n_rows
        job.begin_epoch(epoch, 0)
        try:
            self._pool.begin(Task(epoch, 0, step))
            while not self._pool.wait(POLL):
                pass
        finally:
            job.meet()
        write_out(self.problem, self.problem.parameters(job.flat).coef, step, epoch * rows, rows)

    def parameters(self) -> np.ndarray:
        """A copy of the flat parameters, in the order of the features."""
        return self._job.export()

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self._job.restore(np.zeros(self._job.problem.size, dtype=np.float32) if flat is None else flat)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


Workers = Solo | Classes | Crew
