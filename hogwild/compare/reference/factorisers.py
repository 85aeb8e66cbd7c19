"""Cornac's matrix factorisation as a method of a comparison: the same steps on the same objective, one epoch per call.

It gets the ratings in the units of our own kernel (mean 0, deviation 1), our initial factors and the step of our
schedule for each epoch, so both minimise one objective from one start. ``MF`` continues from parameters it is given, so
one call can be one epoch; copying the values at every call is timed once and subtracted from the clock (``untimed``).
No seed is set, because with a seed it uses one thread. It processes the ratings in the order of the data in every
epoch, since it has no other order.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.training.schedule import make_schedule

SCHEDULES = ("constant", "epoch", "round")  # those with a constant step within an epoch
COPIES = 3  # calls without an epoch, of which the fastest is ``untimed``


class CornacMF:
    """``cornac.models.MF`` on its CPU backend."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        from cornac.data import Dataset
        from cornac.models import MF

        from hogwild.problems.completion.case import CompletionCase

        alone = dataclasses.replace(config, workers=1, discipline="serial")
        self.problem, self.make = CompletionCase(alone, ratings, None).problem, MF
        self.schedule = make_schedule(config.schedule, config.step or 0.0, decay=config.decay)
        self.about: dict[str, Any] = {
            "k": config.rank,
            "lambda_reg": config.l2,
            "use_bias": config.biases,
            "num_threads": config.workers or 1,
            "seed": None,
            "backend": "cpu",
            "verbose": False,
        }
        values = self.problem.encode(ratings.values)
        triples = ratings.users.astype(np.int64), ratings.items.astype(np.int64), values
        self.data = Dataset(*ratings.shape, {}, {}, triples)
        self.data.global_mean = 0.0  # exact up to rounding; our mean is left out of the values
        flat = np.zeros(self.problem.size, np.float32)  # the start is that of our own methods
        self.problem.start(flat, config.seed)
        own = self.problem.parameters(flat)
        users, items = (np.ascontiguousarray(part) for part in self.problem.factors(flat))
        self.parameters = {"U": users, "V": items, "Bu": own.user_bias.copy(), "Bi": own.item_bias.copy()}
        self.epoch = 0
        self.untimed = min(self._fit(0, 1.0) for _ in range(COPIES))

    def advance(self, epoch: int) -> None:
        while self.epoch < epoch:
            self._fit(1, self.schedule.plan(self.epoch)[0])
            self.epoch += 1

    def solution(self) -> tuple[np.ndarray, ...]:
        root, scale = np.sqrt(self.problem.scale), self.problem.scale
        p = self.parameters
        return root * p["U"], root * p["V"], scale * p["Bu"], scale * p["Bi"]

    def _fit(self, epochs: int, step: float) -> float:
        """Run ``epochs`` epochs in place; return the seconds they took."""
        model = self.make(max_iter=epochs, learning_rate=step, init_params=self.parameters, **self.about)
        began = time.perf_counter()
        model.fit(self.data)
        return time.perf_counter() - began


def refuse_cornac(config: TrainConfig, ratings: Any) -> str | None:
    """Return why it cannot take part, in one sentence; None if it can."""
    if config.loss != "squared-error":
        return f"cornac's matrix factorisation has no loss {config.loss}"
    if config.penalty != "per-rating":
        return f"cornac's matrix factorisation has the penalty per-rating, not {config.penalty}"
    if config.nonnegative:
        return "cornac's matrix factorisation does not keep factors at or above zero"
    if config.schedule not in SCHEDULES:
        return f"cornac is given the step of an epoch, and schedule {config.schedule} is not known before it"
    return None
