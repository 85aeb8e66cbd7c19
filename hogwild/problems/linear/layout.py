"""The job of a linear problem on rows."""

from __future__ import annotations

import numpy as np

from hogwild.data.mapped import entries_of
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.exchanges.trade import Exchange
from hogwild.hosts.job import Job
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.tiers import plan_tiers


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
