"""The workers of an epoch: one in the calling thread, several in a pool, or one for each group of classes.

Workers share parameters only where they must. One worker is a ``Solo``, in the caller's thread. ``Classes`` has a
``Solo`` for each worker: the models of one-versus-rest are independent, so each worker trains some of them on all rows,
and the weights of each epoch are those of one worker; the objective is summed in another order, which changes its last
digits. All other cases are a race: ``RacingWorkers`` has the trainer's engine do its epochs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.estimators.sample_objective import Gauge
from hogwild.hosts.job import Job
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear.layout import job_of
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.training.engine import Engine
from hogwild.training.schedule import Step
from hogwild.training.solo import Solo, Whole

LEAST_CLASSES = 9  # per worker: vector instructions handle this many at once


def can_share_out(loss: str, classes: int, workers: int, host: str) -> bool:
    """Whether the classes are independent, and enough to divide among ``workers`` workers."""
    independent = host == "threads" and loss != "softmax"
    return independent and classes >= LEAST_CLASSES * workers and workers > 1


class Classes:
    """One worker in a thread for each group of classes of one-versus-rest; the arguments are those of ``Solo``.

    Each call is passed on to every worker, and the first worker's part runs in the calling thread. The others are
    waited for only when their results are needed, so that none waits for another after each epoch and each evaluation
    of it.

    Parameters
    ----------
    groups : int
        Number of groups, at most the number of classes.
    """

    def __init__(
        self,
        problem: LinearProblem,
        order: Order,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        seed: int,
        groups: int,
    ) -> None:
        self.problem, self.groups = problem, groups
        cuts = [problem.classes * g // groups for g in range(groups + 1)]
        self._parts = [slice(*cut) for cut in pairwise(cuts)]
        self._solos = [
            Solo(
                dataclasses.replace(problem, labels=problem.labels[part]),
                order,
                rows,
                arrays | {"targets": arrays["targets"] - np.float32(part.start)},
                seed,
            )
            for part in self._parts
        ]
        self._others = [ThreadPoolExecutor(1, thread_name_prefix="hogwild") for _ in range(1, groups)]
        self._told: list[Future[Any]] = []  # not yet waited for

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Have each worker pass over the rows ``times`` times."""
        self._tell(lambda solo, part: solo.run(epoch, step, times))

    def objective(self, gauge: Gauge) -> float:
        """Sum of ``gauge`` over all classes."""
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
        """A copy of the flat parameters of all classes."""
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
        """End the threads; a busy worker finishes its current chunk."""
        for other in self._others:
            other.shutdown(wait=False, cancel_futures=True)
        for solo in self._solos:
            solo.stop()
        for other in self._others:
            other.shutdown()

    def _pairs(self, flat: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Views of the same weights, and intercepts, in the parameters of all classes and in a worker's."""
        p, whole = self.problem, self.problem.parameters(flat)
        for solo, part in zip(self._solos, self._parts):
            coef, intercept = _of_group(solo, part)
            yield whole.coef.reshape(p.width, p.stride)[:, part], coef
            yield whole.intercept[part], intercept

    def _tell(self, work: Callable[[Solo, slice], Any]) -> tuple[Any, list[Future[Any]]]:
        """Queue ``work`` on each worker after earlier calls; return the first one's result, and the others' futures."""
        jobs = list(zip(self._solos, self._parts))
        told = [other.submit(work, *job) for other, job in zip(self._others, jobs[1:])]
        self._told += told
        return work(*jobs[0]), told

    def _each(self, work: Callable[[Solo, slice], Any]) -> list[Any]:
        """Results of ``work`` on each worker."""
        first, told = self._tell(work)
        before, self._told = self._told, []
        for other in before:
            other.result()  # raises the worker's exception
        return [first, *(other.result() for other in told)]


def _of_group(solo: Solo, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Views of a worker's weights (width, K) and intercepts (K,), for its K classes."""
    p, count, views = solo.problem, part.stop - part.start, solo.problem.parameters(solo.flat)
    return views.coef.reshape(p.width, p.stride)[:, :count], views.intercept[:count]


class RacingWorkers(Whole):
    """Several workers in threads or processes, started here and ended by :meth:`close`."""

    def __init__(
        self,
        problem: LinearProblem,
        order: Order,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        seed: int,
        workers: int,
        host: str,
        tiers: Tiers | None,
        flat: np.ndarray | None = None,
    ) -> None:
        def lay_out(shared: bool) -> Job:
            return job_of(problem, order, seed, workers, rows, arrays, shared, tiers)

        self.problem, self._engine = problem, Engine(lay_out, host, workers)
        self.reset(flat)

    def run(self, epoch: int, step: Step, times: int = 1) -> None:
        """Pass over the rows ``times`` times."""
        job, n = self._engine.job, self._engine.job.order.n_rows
        for number in range(epoch, epoch + times):
            self._engine.go_to(number)
            self._engine.advance(step)
            self.problem.write_out(self.problem.parameters(job.flat).coef, step, number * n, n)

    def parameters(self) -> np.ndarray:
        """A copy of the flat parameters, in the order of the features."""
        return self._engine.job.export()

    def reset(self, flat: np.ndarray | None) -> None:
        """Set the parameters, to zero without an argument."""
        self._engine.job.restore(np.zeros(self.problem.size, dtype=np.float32) if flat is None else flat)

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()


Workers = Solo | Classes | RacingWorkers
