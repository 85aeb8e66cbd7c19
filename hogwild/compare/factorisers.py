"""Cornac's matrix factorisation as a method of a comparison: the same steps on the same objective, one epoch a call.

The one decision: it gets the ratings in the units our own kernel works in (mean 0, deviation 1), our first factors and
the step of our schedule for each epoch, so that both minimise one objective from one start. ``MF`` goes on from
parameters it is given, which makes an epoch a call; that it copies the values at every call is measured once and taken
off the clock (``untimed``). No seed is set, for with one it uses one thread. It takes the ratings in the order of the
data, the same in every epoch: it has no other.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.ratings import Ratings
from hogwild.schedule import make_schedule

SCHEDULES = ("constant", "epoch", "round")  # whose step is constant within an epoch
COPIES = 3  # calls without an epoch, of which the quickest is ``untimed``


class CornacMF:
    """``cornac.models.MF`` on its CPU backend."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, ratings: Ratings, config: TrainConfig) -> None:
        from cornac.data import Dataset
        from cornac.models import MF

        from hogwild.cases.completion import CompletionCase

        alone = dataclasses.replace(config, workers=1, discipline="serial")
        self.problem, self.make = CompletionCase(alone, ratings, None).problem, MF
        self.schedule = make_schedule(config.schedule, config.step or 0.0, decay=config.decay)
        flat = np.zeros(self.problem.size, np.float32)
        self.problem.start(flat, config.seed)
        own = self.problem.parameters(flat)
        users, items = (np.ascontiguousarray(part) for part in self.problem.factors(flat))
        self.parameters = {"U": users, "V": items, "Bu": own.user_bias.copy(), "Bi": own.item_bias.copy()}
        self.about: dict[str, Any] = {
            "k": config.rank, "lambda_reg": config.l2, "use_bias": config.biases, "num_threads": config.workers or 1,
            "seed": None, "backend": "cpu", "verbose": False,
        }  # fmt: skip
        values = self.problem.encode(ratings.values)
        triples = ratings.users.astype(np.int64), ratings.items.astype(np.int64), values
        self.data = Dataset(*ratings.shape, {}, {}, triples)
        self.data.global_mean = 0.0  # it is, but for rounding; ours is left out of the values
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
        """So many epochs, in place; returns the seconds they took."""
        model = self.make(max_iter=epochs, learning_rate=step, init_params=self.parameters, **self.about)
        began = time.perf_counter()
        model.fit(self.data)
        return time.perf_counter() - began


def refuse_cornac(config: TrainConfig, ratings: Any) -> str | None:
    """Why it cannot take part, in one sentence; None if it can."""
    if config.loss != "squared-error":
        return f"cornac's matrix factorisation has no loss {config.loss}"
    if config.penalty != "per-rating":
        return f"cornac's matrix factorisation has the penalty per-rating, not {config.penalty}"
    if config.nonnegative:
        return "cornac's matrix factorisation does not keep factors at or above zero"
    if config.schedule not in SCHEDULES:
        return f"cornac is given the step of an epoch, and schedule {config.schedule} is not known before it"
    if config.average:
        return "cornac's matrix factorisation does not average"
    return None
