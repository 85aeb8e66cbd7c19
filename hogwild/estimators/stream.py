"""The state of ``partial_fit`` between batches, such that a batch costs its own size and not the width of the model.

Nothing here passes over all weights. Degrees are counted as rows arrive, and ``N / d_u`` is updated for the features of
the batch only; the weights lie in one array that a batch changes in place and of which ``coef_`` is a view.

The problem is posed on the largest batch so far. The step of ``auto`` is one over the largest curvature of the loss and
the mean squared length of the rows so far, with their intercept, and falls as ``step / (1 + step alpha t)`` (Bottou
2012), t rows later. On documents in batches of a thousand this is as accurate as steps that are tried. A model may be
used after any batch, so each batch ends with ``COOL`` of its rows at a small share of the step: without it the noise of
the last rows moves the accuracy on film reviews by several points from batch to batch, as it does with scikit-learn's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows
from hogwild.data.rows.counts_kernel import count_features
from hogwild.errors import TrainingError
from hogwild.estimators.arrays import converted, mean_weight, problem_of
from hogwild.estimators.fit import schedule_of
from hogwild.estimators.options import FitConfig
from hogwild.kernels.losses import LOSSES
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.training.engine import start_pool
from hogwild.training.schedule import Step, move_mean
from hogwild.training.step_search import HIGHEST, mean_square
from hogwild.training.workers import InlineWorker, RacingWorkers

COOL = 0.25  # share of a batch, its last rows, that ``auto`` visits with smaller steps
COOLER = 0.1  # factor on the step of these rows
SHORT = 0.25  # difference of margins over which the curvature of a loss is taken
LEAST = 0.25  # least curvature that a loss counts as


class Stream:
    """The state of a model that learns batch by batch.

    Parameters
    ----------
    width, classes : int
        Number of features, and of classes; 0 for real targets.
    before : int
        Number of rows that ``fit`` had visited.
    seed : int
    """

    def __init__(self, width: int, classes: int, before: int, seed: int) -> None:
        self.width = width
        self.classes = classes
        self.seed = seed
        self.seen = before  # rows
        self.counted = 0  # rows of batches
        self.squares = 0.0  # sum of their squared lengths, with intercept and weights
        self.batches = 0
        self.averaged = 0  # batches in the mean
        self.posed: LinearProblem | None = None
        self.largest = 0  # rows of the batch that it is posed on
        self.flat = np.zeros(0, np.float32)  # the parameters that are trained
        self.mean: np.ndarray | None = None  # and, with average, those that coef_ shows
        self.degrees = np.zeros(width, dtype=np.int32)
        self.rates = np.ones(width, dtype=np.float32)  # N / d_u at the last batch with u in it

    def take(self, config: FitConfig, rows: Rows) -> LinearProblem:
        """The problem of this batch under the current config."""
        if self.posed is None or len(rows) > self.largest:
            always = config.settled(intercept=True)  # it may be wanted later
            posed = problem_of(always, rows, self.classes, whole=False)
            self.posed = dataclasses.replace(posed, unit=False)  # another batch may have other values
            self.largest = len(rows)
        passive = config.passive
        if config.schedule == "auto":  # a row that is longer than others must not throw the model
            passive = "safe" if LOSSES[config.loss].steep else self.posed.passive
        return dataclasses.replace(
            self.posed,
            loss=config.loss,
            loss_param=config.loss_param or 0.0,
            l1=config.l1,
            l2=config.l2,
            intercept=self.posed.intercept if config.intercept else 0.0,
            passive=passive,
        )

    def begin(self, flat: np.ndarray) -> None:
        """Continue from these parameters, which are not those that the stream left."""
        self.flat = flat
        self.mean = None
        self.averaged = 0

    def learn(self, config: FitConfig, problem: LinearProblem, rows: Rows) -> None:
        """Pass once over a batch whose problem :meth:`take` has made.

        Raises
        ------
        TrainingError
            If the weights are no longer finite.
        """
        for name in ("flat", "mean", "degrees", "rates"):  # joblib maps arrays of a model that it sends or loads
            array = getattr(self, name)
            if array is not None and not array.flags.writeable:
                setattr(self, name, array.copy())
        self.counted += len(rows)
        count_features(rows.begin, rows.end, rows.indices, self.degrees)
        entries = rows.indices[rows.begin[0] : rows.end[-1]]
        self.rates[entries] = self.counted / self.degrees[entries]
        self.squares += len(rows) * (mean_square(rows, rows.weights) + mean_weight(rows) * problem.intercept)
        scale, offset, power = self._step(config, problem, len(rows))
        config = config.settled(seed=self.seed + self.batches)
        last = int(COOL * len(rows)) if config.schedule == "auto" else 0
        order = np.arange(len(rows))
        if config.order == "shuffled":
            order = np.random.default_rng(config.seed).permutation(len(rows))
        first = rows.select(order[: len(rows) - last]) if last else rows
        self._pass(config, problem, first, (scale, offset, power))
        if last:
            step = scale * COOLER, offset + len(first), power
            self._pass(config, problem, rows.select(order[-last:]), step)
        self.batches += 1
        self.seen += len(rows)
        parts = problem.parameters(self.flat)
        weights = parts.intercept  # every row moves it, so it tells for all weights
        if not problem.intercept:
            weights = parts.coef.reshape(problem.width, problem.stride)[np.unique(entries)]
        if not np.isfinite(weights).all():
            other = "" if config.schedule == "auto" else ", a smaller eta0, or learning_rate='auto'"
            raise TrainingError(f"diverged in batch {self.batches}: begin again with scaled columns of X{other}")
        if config.average and self.counted >= config.average:
            self.averaged += 1
            if self.mean is None:
                self.mean = aligned(len(self.flat))
            move_mean(self.mean, self.flat, self.averaged)

    def views(self) -> tuple[np.ndarray, np.ndarray]:
        """``coef_`` and ``intercept_`` as views of the trained parameters, or of their mean."""
        p = self.posed
        assert p is not None
        parts = p.parameters(self.flat if self.mean is None else self.mean)
        coef = parts.coef.reshape(p.width, p.stride)[:, : p.classes].T if self.classes else parts.coef
        return coef, parts.intercept[: p.classes]

    def shows(self, coef: Any, intercept: Any) -> bool:
        """Whether these are the weights that the stream left, in its memory or, after a pickle, beside it."""
        if self.posed is None or self.posed.size != len(self.flat):
            return False
        ours = self.views()
        return all(
            np.shape(one) == each.shape and (np.may_share_memory(one, each) or np.array_equal(one, each))
            for one, each in zip((coef, intercept), ours)
        )

    def _pass(self, config: FitConfig, problem: LinearProblem, rows: Rows, step: Step) -> None:
        arrays = converted(rows, self.rates)
        order = Order.of(len(rows), config.order == "shuffled")
        workers = min(config.workers or 1, len(rows))
        if config.workers == 1 and config.host == "threads":
            InlineWorker(problem, order, rows, arrays, config.seed, self.flat).run(0, step)
            return
        problem = dataclasses.replace(problem, discipline="hogwild" if workers > 1 else "serial")
        team = RacingWorkers(problem, order, rows, arrays, config.seed, start_pool(config.host, workers))
        try:
            team.reset(self.flat)
            team.run(0, step)
            self.flat[:] = team.parameters()
        finally:
            team.close()

    def _step(self, config: FitConfig, problem: LinearProblem, rows: int) -> Step:
        length = self.squares / self.counted
        curvature = max((problem.slope(SHORT) - problem.slope(0.0)) / SHORT, LEAST)
        step = min(1 / (curvature * length), 2.0**HIGHEST) if length > 0 else 1.0
        plan = schedule_of(config, step, problem, rows, config.alpha, self.seen).plan(0)
        if config.schedule == "auto":
            return plan
        scale, offset, power = plan
        return scale, offset + self.seen, power
