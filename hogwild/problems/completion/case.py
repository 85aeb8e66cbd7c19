"""Matrix completion posed on ratings: their order in tiles, evaluation in the user's units, and the model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.ratings.container import Ratings
from hogwild.data.rows.container import check_whole
from hogwild.errors import InputError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Job
from hogwild.problems.completion.model import SHAPES, CompletionModel
from hogwild.problems.completion.objective import RatingEvaluator
from hogwild.problems.completion.sums import Solution, summed
from hogwild.problems.completion.training import posed, settle
from hogwild.problems.protocol import Case, with_discipline
from hogwild.training.checkpoint import fingerprint_of


class CompletionCase(Case):
    """See :class:`hogwild.problems.protocol.Case`."""

    names = tuple(SHAPES)
    _evaluator: RatingEvaluator

    def __init__(self, config: TrainConfig, train: Ratings, test: Ratings | None) -> None:
        self.n = len(train)
        if test is not None and train.held_out is test:
            self.held_out = "test_loss"
        c = self.config = with_discipline(config)
        self._train, self._test = train, None if test is None else _alike(test, train)
        if train.features is not None and c.device == "cuda":
            raise UsageError("side features need device cpu; got cuda")
        parts = c.machines if c.exchange == "rotation" else 1
        self.problem = posed(c, train, c.discipline, c.workers or 1, parts=parts)
        self.fingerprint = fingerprint_of((*train.shape, len(train)), train.sample_arrays())
        self._grid: tuple[int, int] | None = None

    @staticmethod
    def take(data: Any) -> Ratings:
        if isinstance(data, Ratings):
            return data
        if isinstance(data, str | Path):
            from hogwild.data.ratings.source import open_ratings

            return open_ratings(data)
        if hasattr(data, "tocoo"):
            return Ratings.from_scipy(data)
        if isinstance(data, tuple) and len(data) == 3:
            users, items, values = (np.atleast_1d(np.asarray(part)) for part in data)
            for name, part in (("users", users), ("items", items)):
                check_whole(name, part)
            shape = tuple(int(part.max()) + 1 if part.size else 0 for part in (users, items))
            return Ratings(users, items, values, (shape[0], shape[1]))
        kind = type(data).__name__
        raise UsageError(f"expected a path, Ratings, a scipy sparse matrix or (users, items, values), got {kind}")

    settle = staticmethod(settle)

    def cut(self) -> dict[str, Any]:
        if self.config.device == "cuda":
            return {}
        return {"grid": list(self.order.grid)}  # it depends on the machine's cache

    def recut(self, saved: dict[str, Any]) -> None:
        if self.config.device == "cuda":
            return
        rows = int(saved["grid"][0])
        columns = int(saved["grid"][1])
        parts = self.problem.parts
        if parts > 1 and saved.get("chunk"):
            raise InputError(
                "rotation resumes at a whole epoch; got a checkpoint within one: finish that epoch without rotation"
            )
        if rows % parts == columns % parts == 0:  # otherwise the ratings are cut anew
            self._grid = rows, columns

    def make_evaluator(self, like: Any = None) -> None:
        if like is not None:
            self._evaluator = like._evaluator
            return
        c, p = self.config, self.problem
        penalty = {"l2": p.weights, "penalty": p.penalty}
        self._evaluator = RatingEvaluator(
            self._train, self._test, c.loss, penalty, mean=p.mean, negatives=p.negatives, shares=self._train.shares
        )  # draws the same for all seeds

    def lay_out(self, shared: bool) -> Job:
        c = self.config
        p = self.problem
        workers = c.workers or 1
        layout = self._train, machine.l2_bytes(), workers, c.seed
        if c.device == "cuda":
            from hogwild.cuda import streams as on_device

            _, arrays = dataclasses.replace(p, order="file").lay_out(*layout)
            return on_device.lay_out(c, p, self.n, arrays)
        self.order, arrays = p.lay_out(*layout, grid=self._grid)
        exchange = make_exchange(c.between_workers, self.n / c.replicas)
        return Job.of(p, self.order, c.seed, workers, arrays, shared, exchange=exchange)

    def solution(self, flat: np.ndarray) -> Solution:
        with np.errstate(all="ignore"):  # the objective shows if the run has diverged
            return self.problem.solution(flat)

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        return self._evaluator(solution)

    def model(self, solution: tuple[Any, ...], config: TrainConfig, history: list[dict[str, Any]]) -> CompletionModel:
        p, train = self.problem, self._train
        return CompletionModel(
            *summed(solution, train.shares),
            p.mean,
            p.loss,
            p.penalty,
            train.user_ids,
            train.item_ids,
            p.weights,
            config=config.to_json(),
            fingerprint=self.fingerprint,
            history=history,
        )


def _alike(test: Ratings, train: Ratings) -> Ratings:
    """``test``, with as many users and items as ``train`` if it has fewer; refuse it if numbers have other names."""
    pairs = (("user", test.user_ids, train.user_ids), ("item", test.item_ids, train.item_ids))
    for side, ids, train_ids in pairs:
        if ids is not None and train_ids is not None and ids is not train_ids and ids != train_ids:
            raise UsageError(
                f"test needs the training {side} names: open it with {side}s=train.{side}_ids, or split one set"
            )
    if test.shape == train.shape or test.shape[0] > train.shape[0] or test.shape[1] > train.shape[1]:
        return test  # the evaluator refuses larger numbers
    flat = test.users, test.items, test.values, train.shape, test.times
    return Ratings(*flat, train.user_ids, train.item_ids, check=False)
