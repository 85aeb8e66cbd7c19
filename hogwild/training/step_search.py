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

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import READ, Rows, narrowed
from hogwild.data.rows.margins import row_scales
from hogwild.exchanges import make_exchange
from hogwild.hosts.simulator import Simulator
from hogwild.methods import LABEL_LOSSES, parse_link
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.rows import few_labels, row_weights
from hogwild.training.keep import has_diverged
from hogwild.training.schedule import LONG, Step, make_schedule, usual_schedule
from hogwild.training.workers import InlineWorker, RacingWorkers, Workers

EPOCHS = 10
LOOKS = (1, 3, EPOCHS)  # epochs after which a trial is evaluated
BUDGET = 15_000_000  # nonzeros (times classes) of one trial
LONG_BUDGET = BUDGET // 8  # for epochs so long that a trial is one pass
ROUND_SLACK = 0.002  # as a share of the best trial's gain
FEWEST = 2_000  # rows, whatever the budget
LITTLE = 0.01  # share of the initial objective that twice the step must gain, or it will be too large on more rows
QUANTUM = 64  # rows that a replica of a trial does at a time
LOWEST = -124  # powers of two; float32 ends at 2^-126 and 2^128, and weights are squared
HIGHEST = 60


@dataclass
class StepTrials:
    """Maps a power of two to the objective after a short run with that step, inf if it diverged.

    Parameters
    ----------
    workers : Workers
    objective : callable
        Takes flat parameters.
    plan : callable
        Takes a step; yields parts of the run: a number of epochs, and their step for the kernel.
    start : array of float32, optional
        Flat parameters to start from; zeros if not given.
    looks : tuple of int
        Epochs after which the objective is taken: a step that recovers by the end would still have ended a run.
    largest : float
        Larger steps diverge without a trial.
    """

    workers: Workers
    objective: Callable[[np.ndarray], float]
    plan: Callable[[float], Iterator[tuple[int, Step]]]
    start: np.ndarray | None
    looks: tuple[int, ...]
    largest: float = math.inf

    def __post_init__(self) -> None:
        self.workers.reset(self.start)
        self.before = self.objective(self.workers.parameters())

    def __call__(self, power: int) -> float:
        if 2.0**power > self.largest:
            return math.inf
        self.workers.reset(self.start)
        epoch = 0
        value = self.before
        for epochs, step in self.plan(2.0**power):
            self.workers.run(epoch, step, epochs)
            epoch += epochs
            if epoch in self.looks:
                value = self.objective(self.workers.parameters())
                if has_diverged(value, [self.before]):
                    return math.inf
        return value


class Probe:
    """A sample of the rows and a compiled kernel, ready to search; creating it is set-up, not training.

    Parameters
    ----------
    config : TrainConfig
    rows : Rows
        Training rows; a sample of them is copied. Their weights are those of samples and classes combined.
    share : float
        Of the usual budget, for callers that search several times.
    """

    def __init__(self, config: TrainConfig, rows: Rows, share: float = 1.0) -> None:
        self.schedule = usual_schedule(config.schedule, len(rows), config.settles_schedule)
        rows = few_labels(rows)
        long = self.schedule == "rows" and len(rows) > LONG
        sample = _sample(config, rows, int(share * (LONG_BUDGET if long else BUDGET // EPOCHS)))
        sample = sample if sample.contiguous else sample.compact()
        self._first = -1
        if not config.adagrad:
            scales = row_scales(sample, config.normalize)
            self._first = first_power(mean_square(sample, None if scales is None else np.square(scales, dtype=float)))
        self.trials = _trials(config, self.schedule, sample, 1 if long else EPOCHS)
        self._fine = not long
        self._little = 0.0 if len(sample) == len(rows) else LITTLE
        self.path: list[dict[str, float | None]] = []  # ``step`` and ``objective`` of each trial, None if it diverged

    def search(self) -> float:
        """Return the step to train with, a power of two; ``path`` is then what was tried."""
        before = self.trials.before
        best, values = best_power(self.trials, before, self._first, self._fine, self._little)
        if self.schedule == "round" and values:  # the step soon falls: the largest of similarly good ones
            limit = values[best] + ROUND_SLACK * (before - values[best])
            best = max(power for power, objective in values.items() if objective <= limit)
        self.path = [
            {"step": 2.0**power, "objective": value if math.isfinite(value) else None}
            for power, value in sorted(values.items())
        ]
        return 2.0**best


def _trials(config: TrainConfig, schedule: str, sample: Rows, epochs: int) -> StepTrials:
    """Short serial runs of the config's problem on contiguous rows, or simulated ones if replicas trade."""
    racing = config.discipline == "hogwild" and config.between_workers == "none"
    discipline = "hogwild" if racing else "serial"  # the same bits, one loop fewer to compile
    problem = LinearProblem.of(config.settled(schedule=schedule, class_weight=None), sample, discipline)
    sample, _ = narrowed(sample)
    problem = problem.narrowed(sample.width)
    order = Order.of(len(sample), shuffled=True)
    arrays = problem.row_arrays(sample, None)
    replicas = min(config.replicas, len(sample))
    workers: Workers
    if replicas == 1:
        workers = InlineWorker(problem, order, sample, arrays, config.seed)
        workers.compile()
    else:
        exchange = make_exchange(config.exchange, len(sample) / replicas, shrinks=config.l1 > 0)
        pool = Simulator(replicas, f"round-robin:quantum={QUANTUM}")
        wire = parse_link(config.link)
        workers = RacingWorkers(problem, order, sample, arrays, config.seed, pool, exchange=exchange, wire=wire)
    objective = problem.objective(sample, weights=row_weights(sample, None))

    def value(flat: np.ndarray) -> float:
        return float(objective.evaluate(*problem.solution(flat))["objective"] or 0.0)

    def plan(step: float) -> Iterator[tuple[int, Step]]:
        c = config
        steps = make_schedule(schedule, step, decay=c.decay, power=c.power, l2=c.l2, tol=c.tol)
        return ((1, steps.plan(epoch)) for epoch in range(epochs))

    return StepTrials(workers, value, plan, None, LOOKS)


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
    values: dict[int, float] = {}

    def at(power: int) -> float:
        if power not in values:
            values[power] = value(power)
        return values[power]

    # while runs end worse than they began, but only up to a limit, since on some data nothing helps
    while best > LOWEST + 1 and at(best) > start and (best > first - 20 or at(best) == math.inf):
        best -= 2
    gain = little * abs(start)
    while best + 2 <= HIGHEST and at(best + 2) < at(best) - gain:
        best += 2
    while best - 2 >= LOWEST and at(best - 2) < at(best):
        best -= 2
    if not fine:
        return best, values
    half, double = max(best - 1, LOWEST), min(best + 1, HIGHEST)
    # too small a step shows gradually, too large a one at once: half the step is not the best if a quarter of it is
    # worse than four times it
    if values.get(best + 2, math.inf) >= values.get(best - 2, -math.inf) and at(half) <= at(best):
        return half, values
    return double if at(double) < at(best) - gain else best, values


def _sample(config: TrainConfig, rows: Rows, budget: int) -> Rows:
    weights = rows.weights
    if weights is not None:
        rows = rows.replace(store=None)
    per_row = max(rows.nnz / len(rows), 1.0)
    labels = len(np.unique(rows.targets[:10_000]) if rows.labels is None else rows.labels.names)
    if config.loss in LABEL_LOSSES and labels > 2:
        per_row *= min(labels, 64) / 4  # vector instructions process several classes at once
    if rows.nnz > READ and weights is None:
        picked = rows.spread(budget)
    else:
        weighty = np.arange(len(rows)) if weights is None else np.flatnonzero(weights > 0)
        count = min(len(weighty), max(FEWEST, int(budget / per_row)))
        if count == len(rows):
            return rows
        picked = np.random.default_rng(config.seed).choice(weighty, count, replace=False)
    other = rows.targets != rows.targets[picked[0]]
    if config.loss in LABEL_LOSSES and not other[picked].any():  # a class so rare that the sample missed it
        picked = np.append(picked, np.argmax(other))
    return rows.select(np.sort(picked)).compact()


def mean_square(rows: Rows, factors: np.ndarray | None) -> float:
    """Mean squared length of contiguous rows, each times its factor, if any."""
    squares = np.square(rows.values[rows.begin[0] : rows.end[-1]], dtype=np.float64)
    if factors is not None:
        squares *= np.repeat(factors, rows.end - rows.begin)
    return float(squares.sum()) / len(rows)


def first_power(square: float) -> int:
    """Power of two of the first trial: the reciprocal of the :func:`mean_square` of the rows."""
    return min(max(round(-math.log2(square)), LOWEST + 2), HIGHEST - 2) if 0 < square < math.inf else 0
