"""``--step auto``: the power of two that does best in short serial runs on a sample of the rows.

The search starts from one over a bound of the curvature along a typical row, quadruples or quarters the step until the
objective turns, and then tries the two powers of two beside the best. Each trial is ten epochs with the run's own loss,
penalty and schedule over at most ``BUDGET`` nonzeros, judged by the float64 objective on the sample. It depends on data
and options but not on ``epochs``, so a resumed run is not disturbed. It takes about ten trials, tenths of a second,
which ``train`` puts on the clock.

The step is right for one worker. With more, lock-free workers add the delay of a few rows, which at these steps is
harmless on sparse data; on dense data try a smaller step if a run diverges.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.examples import Rows
from hogwild.data.normalize import row_scales
from hogwild.data.order import Order
from hogwild.hosts.job import Job, Task
from hogwild.kernels.losses import LABEL_LOSSES
from hogwild.problems.linear import LinearProblem
from hogwild.problems.linear_rows import row_weights
from hogwild.problems.objective import Objective
from hogwild.schedule import make_schedule
from hogwild.stopping import has_diverged

EPOCHS = 10
LOOKS = (1, 3, EPOCHS)  # epochs after which a trial is looked at
BUDGET = 15_000_000  # nonzeros (times classes) of one trial
ROUND_SLACK = 0.002  # of what the best trial gains
FEWEST = 2_000  # rows, whatever the budget
LITTLE = 0.01  # of the objective before: what twice the step must gain, or it will be too large on more rows
LOWEST, HIGHEST = -124, 60  # powers of two; float32 ends at 2^-126 and 2^128, and weights are squared


class Probe:
    """A sample of the rows and a compiled kernel, ready to search; making it is set-up, not training.

    Parameters
    ----------
    config : TrainConfig
    rows : Rows
        Training rows; a sample of them is copied.
    weights : array of shape (n,), optional
        Combined sample and class weights (of mean one).
    """

    def __init__(self, config: TrainConfig, rows: Rows, weights: np.ndarray | None = None) -> None:
        sample = _sample(config, rows, weights)
        self._first = _start(config, sample)
        self._run = _Trial(config, sample)
        self._little = 0.0 if len(sample) == len(rows) else LITTLE

    def search(self) -> float:
        """The step to train with, a power of two."""
        best, found = best_power(self._run, self._run.start, self._first, little=self._little)
        if self._run.config.schedule == "round" and found:  # it soon falls: of steps that do alike now, the longest
            limit = found[best] + ROUND_SLACK * (self._run.start - found[best])
            best = max(power for power, objective in found.items() if objective <= limit)
        return 2.0**best


def best_power(
    value: Callable[[int], float], start: float, first: int, fine: bool = True, little: float = LITTLE
) -> tuple[int, dict[int, float]]:
    """The exponent of the power of two that does best, and what was found of each that was tried.

    Parameters
    ----------
    value : callable
        The objective after a short run with the step ``2**power``; inf if it diverged.
    start : float
        The objective before such a run.
    first : int
        Exponent to begin with.
    fine : bool
        Else the best power of four is enough.
    little : float
        Share of ``start`` that a larger step must gain: 0 where ``value`` looks at all rows.
    """
    best = min(max(first, LOWEST + 2), HIGHEST - 2)
    if start == 0.0:  # the perceptron starts at its lowest objective, and decides alike at any step
        return best, {}
    found: dict[int, float] = {}

    def at(power: int) -> float:
        if power not in found:
            found[power] = value(power)
        return found[power]

    # a run that ended worse than it began; not believed for ever, since on some data nothing helps
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
    # too small a step shows gradually, too large a one at once: half the step is not the best one where a quarter of it
    # is worse than four of it
    if found.get(best + 2, math.inf) >= found.get(best - 2, -math.inf) and at(half) <= at(best):
        return half, found
    return double if at(double) < at(best) - gain else best, found


def _sample(config: TrainConfig, rows: Rows, weights: np.ndarray | None) -> Rows:
    if weights is not None:
        rows = Rows((rows.begin, rows.end), rows.indices, rows.values, rows.targets, rows.width, weights, check=False)
    per_row = max(rows.nnz / len(rows), 1.0)
    if config.loss in LABEL_LOSSES and (labels := len(np.unique(rows.targets[:10_000]))) > 2:
        per_row *= min(labels, 64) / 4  # vector instructions do several classes at once
    weighty = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
    count = min(len(weighty), max(FEWEST, int(BUDGET / EPOCHS / per_row)))
    if count == len(rows):
        return rows
    picked = np.random.default_rng(config.seed).choice(weighty, count, replace=False)
    other = rows.targets != rows.targets[picked[0]]
    if config.loss in LABEL_LOSSES and not other[picked].any():  # a class so rare that the sample missed it
        picked = np.append(picked, np.argmax(other))
    return rows.select(np.sort(picked)).compact()


def _start(config: TrainConfig, sample: Rows) -> int:
    """Power of two of the first trial: one over the mean squared length of a row."""
    if config.adagrad:
        return -1
    rows = sample if sample.contiguous else sample.compact()
    squares = np.append(np.square(rows.values[rows.begin[0] : rows.end[-1]], dtype=np.float64), 0.0)
    lengths = np.where(rows.end > rows.begin, np.add.reduceat(squares, rows.begin - rows.begin[0]), 0.0)
    scales = row_scales(rows, config.normalize)
    if scales is not None:
        lengths = lengths * np.square(scales, dtype=np.float64)
    mean = float(np.mean(lengths))
    return min(max(round(-math.log2(mean)), LOWEST + 2), HIGHEST - 2) if 0 < mean < math.inf else 0


class _Trial:
    """Called with a power of two: the objective on the sample after a short run with that step, inf if it diverged."""

    def __init__(self, config: TrainConfig, sample: Rows) -> None:
        alone = "hogwild" if config.discipline == "hogwild" else "serial"  # the same bits, and one loop less to compile
        self.config = dataclasses.replace(config, discipline=alone, workers=1, class_weight=None)
        self.problem = LinearProblem.of(self.config, sample, alone)
        order = Order.of(len(sample), shuffled=True)
        arrays = self.problem.row_arrays(sample, None)
        self.job = Job.of_rows(self.problem, order, config.seed, 1, sample, arrays, shared=False)
        self.problem.compile()
        self.parts = self.job.shared(), self.problem.scratch(order), self.job.data()
        p = self.problem
        weights = row_weights(sample, None)
        self.objective = Objective(sample, p.loss, p.loss_param, l1=p.l1, l2=p.l2, normalize=p.normalize,
                                   labels=p.labels, weights=weights)  # fmt: skip
        self.start = self._judge()  # of parameters that are all zero

    def __call__(self, power: int) -> float:
        c = self.config
        schedule = make_schedule(c.schedule, 2.0**power, decay=c.decay, power=c.power, tol=c.tol)
        self.job.flat[:] = 0
        value = self.start
        for epoch in range(EPOCHS):
            self.job.begin_epoch(epoch, 0)
            self.job.work(*self.parts, Task(epoch, 0, schedule.plan(epoch)), 0)
            if epoch + 1 in LOOKS:  # a step that recovers by the end would still have ended a run
                value = self._judge()
                if has_diverged(value, [self.start]):
                    return math.inf
        return value

    def _judge(self) -> float:
        return float(self.objective.evaluate(*self.problem.solution(self.job.flat))["objective"] or 0.0)
