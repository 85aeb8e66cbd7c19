"""``--step auto``: the power of two that does best in short serial runs on a sample of the rows.

The search starts from the reciprocal of a bound on the curvature along a typical row, quadruples or quarters the step
until the objective turns, and then tries the two powers of two next to the best. Each trial is ten epochs with the
run's own loss, penalty and schedule over at most ``BUDGET`` nonzeros, judged by the float64 objective on the sample. It
depends on data and options but not on ``epochs``, so a resumed run is not disturbed. It takes about ten trials, tenths
of a second, which ``train`` puts on the clock. For long epochs under the schedule ``rows``, which tolerates a large
first step, a trial is one pass over more rows, with an eighth of that budget, and only powers of four are tried.

The step is right for one worker. Lock-free workers add a delay of a few rows, which at these steps is harmless on
sparse data; on dense data try a smaller step if a run diverges. Replicas that are averaged want a larger one, so with
an exchange every trial has as many as the run, and they trade in the simulator.

Trials run one after another. As lanes of one pass (``problems/linear/lanes``), eight steps four times apart and then
the two next to the best, they took 0.9 to 2.3 times the processor time: a search needs three to six trials where lanes
train ten, lanes of too large steps do not end early, several classes fill the vectors already, and eight times the
weights outgrow the cache.

Features that no row of the sample has are left out: their weights stay zero. Nothing is computed otherwise for it, so
the objectives are the same to the last bit, and the time does not depend on the width.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, narrowed
from hogwild.data.rows.margins import row_scales
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Task
from hogwild.hosts.simulator import Simulator
from hogwild.methods import LABEL_LOSSES, parse_link
from hogwild.problems.linear.layout import job_of
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import row_weights
from hogwild.training.schedule import LONG, make_schedule, usual_schedule
from hogwild.training.stopping import has_diverged

EPOCHS = 10
LOOKS = (1, 3, EPOCHS)  # epochs after which a trial is evaluated
BUDGET = 15_000_000  # nonzeros (times classes) of one trial
LONG_BUDGET = BUDGET // 8  # for epochs so long that a trial is one pass
ROUND_SLACK = 0.002  # as a share of the best trial's gain
FEWEST = 2_000  # rows, whatever the budget
LITTLE = 0.01  # share of the initial objective that twice the step must gain, or it will be too large on more rows
QUANTUM = 64  # rows that a replica of a trial does at a time
LOWEST, HIGHEST = -124, 60  # powers of two; float32 ends at 2^-126 and 2^128, and weights are squared


class Probe:
    """A sample of the rows and a compiled kernel, ready to search; creating it is set-up, not training.

    Parameters
    ----------
    config : TrainConfig
    rows : Rows
        Training rows; a sample of them is copied.
    weights : array of shape (n,), optional
        Combined sample and class weights (with mean one).
    share : float
        Of the usual budget, for callers that search several times.
    """

    def __init__(self, config: TrainConfig, rows: Rows, weights: np.ndarray | None = None, share: float = 1.0) -> None:
        schedule = usual_schedule(config.schedule, len(rows), config.settles_schedule)
        config = dataclasses.replace(config, schedule=schedule)
        long = config.schedule == "rows" and len(rows) > LONG
        sample = _sample(config, rows, weights, int(share * (LONG_BUDGET if long else BUDGET // EPOCHS)))
        self._first = _start(config, sample)
        self._run = _Trial(config, sample, 1 if long else EPOCHS)
        self._fine = not long
        self._little = 0.0 if len(sample) == len(rows) else LITTLE
        self.path: list[dict[str, float | None]] = []  # ``step`` and ``objective`` of each trial, None if it diverged

    def search(self) -> float:
        """Return the step to train with, a power of two; ``path`` is then what was tried."""
        best, found = best_power(self._run, self._run.start, self._first, self._fine, self._little)
        if self._run.config.schedule == "round" and found:  # the step soon falls: the largest of similarly good ones
            limit = found[best] + ROUND_SLACK * (self._run.start - found[best])
            best = max(power for power, objective in found.items() if objective <= limit)
        self.path = [
            {"step": 2.0**power, "objective": value if math.isfinite(value) else None}
            for power, value in sorted(found.items())
        ]
        return 2.0**best


def best_power(
    value: Callable[[int], float], start: float, first: int, fine: bool = True, little: float = LITTLE
) -> tuple[int, dict[int, float]]:
    """Return the exponent of the best power of two, and the value of each power that was tried.

    Parameters
    ----------
    value : callable
        Returns the objective after a short run with the step ``2**power``; inf if it diverged.
    start : float
        The objective before such a run.
    first : int
        Exponent to start from.
    fine : bool
        If False, the best power of four is enough.
    little : float
        Share of ``start`` that a larger step must gain: 0 if ``value`` uses all rows.
    """
    best = min(max(first, LOWEST + 2), HIGHEST - 2)
    if start == 0.0:  # the perceptron starts at its lowest objective, and classifies alike at any step
        return best, {}
    found: dict[int, float] = {}

    def at(power: int) -> float:
        if power not in found:
            found[power] = value(power)
        return found[power]

    # while runs end worse than they began, but only up to a limit, since on some data nothing helps
    while best > LOWEST + 1 and at(best) > start and (best > first - 20 or at(best) == math.inf):
        best -= 2
    gain = little * abs(start)
    while best + 2 <= HIGHEST and at(best + 2) < at(best) - gain:
        best += 2
    while best - 2 >= LOWEST and at(best - 2) < at(best):
        best -= 2
    if not fine:
        return best, found
    half, double = max(best - 1, LOWEST), min(best + 1, HIGHEST)
    # too small a step shows gradually, too large a one at once: half the step is not the best if a quarter of it is
    # worse than four times it
    if found.get(best + 2, math.inf) >= found.get(best - 2, -math.inf) and at(half) <= at(best):
        return half, found
    return double if at(double) < at(best) - gain else best, found


def _sample(config: TrainConfig, rows: Rows, weights: np.ndarray | None, budget: int) -> Rows:
    if weights is not None:
        rows = rows.replace(weights=weights, store=None)
    per_row = max(rows.nnz / len(rows), 1.0)
    if config.loss in LABEL_LOSSES and (labels := len(np.unique(rows.targets[:10_000]))) > 2:
        per_row *= min(labels, 64) / 4  # vector instructions process several classes at once
    weighty = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    count = min(len(weighty), max(FEWEST, int(budget / per_row)))
    if count == len(rows):
        return rows
    picked = np.random.default_rng(config.seed).choice(weighty, count, replace=False)
    other = rows.targets != rows.targets[picked[0]]
    if config.loss in LABEL_LOSSES and not other[picked].any():  # a class so rare that the sample missed it
        picked = np.append(picked, np.argmax(other))
    return rows.select(np.sort(picked)).compact()


def _start(config: TrainConfig, sample: Rows) -> int:
    if config.adagrad:
        return -1
    rows = sample if sample.contiguous else sample.compact()
    scales = row_scales(rows, config.normalize)
    return first_power(mean_square(rows, None if scales is None else np.square(scales, dtype=np.float64)))


def mean_square(rows: Rows, factors: np.ndarray | None) -> float:
    """Mean squared length of contiguous rows, each times its factor, if any."""
    squares = np.square(rows.values[rows.begin[0] : rows.end[-1]], dtype=np.float64)
    if factors is not None:
        squares *= np.repeat(factors, rows.end - rows.begin)
    return float(squares.sum()) / len(rows)


def first_power(square: float) -> int:
    """Power of two of the first trial: the reciprocal of the :func:`mean_square` of the rows."""
    return min(max(round(-math.log2(square)), LOWEST + 2), HIGHEST - 2) if 0 < square < math.inf else 0


class _Trial:
    """Maps a power of two to the objective on the sample after a short run with that step, inf if it diverged."""

    def __init__(self, config: TrainConfig, sample: Rows, epochs: int) -> None:
        self.epochs = epochs
        racing = config.discipline == "hogwild" and config.between_workers == "none"
        alone = "hogwild" if racing else "serial"  # the same bits, one loop fewer to compile
        workers = min(config.replicas, len(sample))  # a group is tried as one worker
        exchanged = re.sub(r"group=[^,]*", "", config.exchange)
        self.config = config.replace(discipline=alone, workers=workers, class_weight=None, exchange=exchanged)
        problem = LinearProblem.of(self.config, sample, alone)
        sample, _ = narrowed(sample if sample.contiguous else sample.compact())
        self.problem = problem.narrowed(sample.width)
        order = Order.of(len(sample), shuffled=True)
        arrays = self.problem.row_arrays(sample, None)
        exchange = (
            None if workers == 1 else make_exchange(config.exchange, len(sample) / workers, shrinks=config.l1 > 0)
        )
        self.job = job_of(self.problem, order, config.seed, workers, sample, arrays, False, exchange=exchange)
        self.problem.compile()
        self.parts = self.job.shared(), self.job.scratch(), self.job.data()
        self.pool = None if workers == 1 else Simulator(workers, f"round-robin:quantum={QUANTUM}")
        if self.pool is not None:
            self.job.wire = parse_link(config.link)
            self.pool.open(self.job)
        p = self.problem
        weights = row_weights(sample, None)
        self.objective = Objective(
            sample, p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize, labels=p.labels, weights=weights
        )
        self.start = self._judge()  # with all parameters zero

    def __call__(self, power: int) -> float:
        c = self.config
        schedule = make_schedule(c.schedule, 2.0**power, decay=c.decay, power=c.power, l2=c.l2, tol=c.tol)
        self.job.flat[:] = 0
        for array in self.job.trader.arrays.values() if self.job.trader else ():
            array[:] = 0
        value = self.start
        for epoch in range(self.epochs):
            self._train(Task(epoch, 0, schedule.plan(epoch)))
            if epoch + 1 in LOOKS:  # a step that recovers by the end would still have ended a run
                value = self._judge()
                if has_diverged(value, [self.start]):
                    return math.inf
        return value

    def _train(self, task: Task) -> None:
        self.job.begin_epoch(task.epoch, 0)
        if self.pool is None:
            self.job.work(*self.parts, task, 0)
            return
        self.pool.begin(task)
        while not self.pool.wait(1.0):
            pass
        self.job.meet()

    def _judge(self) -> float:
        return float(self.objective.evaluate(*self.problem.solution(self.job.flat))["objective"] or 0.0)
