"""The linear problem posed on sparse rows: discipline, tiers, step, evaluation, model."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.mapped import entries_of
from hogwild.data.names import names_of_heaviest
from hogwild.data.order import Order
from hogwild.data.rows.chunks import count_unknown
from hogwild.data.rows.container import Rows, shortest
from hogwild.data.rows.copies import narrowed
from hogwild.data.rows.degrees import Ranked, degrees
from hogwild.data.rows.totals import alone, facts_of
from hogwild.data.scaled import Columns, columns_of, like_text
from hogwild.data.tables.plan import check_plan
from hogwild.data.text.hashing import check_same
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Job
from hogwild.hosts.memory import PAGE, can_overlay
from hogwild.kernels.tiers import FLOATS, Tiers
from hogwild.problems.linear.contention import choose
from hogwild.problems.linear.layout import job_of
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.linear.objective import Evaluator
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.options import RENUMBERED, why_not_renumber
from hogwild.problems.linear.problem import OUTGROWN, LinearProblem
from hogwild.problems.linear.rows import all_ones, check_classes, intercept_share, labels_of
from hogwild.problems.linear.tiers import USUAL_PRICE, plan_tiers
from hogwild.problems.protocol import Sums
from hogwild.training.checkpoint import fingerprint, fingerprint_of_json
from hogwild.training.step_search import Probe

MANY = 1 << 18  # features from which a verdict and exact steps leave out those that no row holds


class LinearCase:
    """See :class:`hogwild.problems.protocol.Case`."""

    names = ("coef", "intercept")
    convex = True
    _evaluator: Evaluator

    def __init__(self, config: TrainConfig, train: Rows, test: Rows | None, held: Rows | None = None) -> None:
        self.config, self.n, self.reason = config, len(train) if train.totals is None else train.totals.rows, ""
        self._train, self._test, self._held = train, test, held
        self.held_out = "held_out_loss" if held is not None else ""
        if test is not None and train.held_out is test:
            self.held_out = "test_loss"
        self._columns, self._plain, self.note = scaled_for(config, train)
        self._own = self._pose(self._plain)  # what is trained on
        self._check_classes()
        if self.ranks is not None:
            said = "features numbered by popularity while training (--renumber never: as they are)"
            self.note = f"{self.note}; {said}" if self.note else said
        self.order = Order.of(
            len(train), config.order == "shuffled", 8 * self._own.nnz / len(train), outgrows_memory(self._own)
        )
        self.fingerprint = fingerprint(train) if train.totals is None else fingerprint_of_json(train.totals.fingerprint)
        hashed = train.hash_bits if test is None else test.hash_bits
        if test is not None:
            check_plan(test.table, train.table, "the test rows")
        check_same(hashed, train.hash_bits, "the test rows", "training's")

    def _check_classes(self) -> None:
        labels, rows, totals = self.problem.labels, self._train, self._train.totals
        if labels and (totals is not None or not (rows.weights is None or rows.weights.all())):
            held = facts_of(rows, np.array(labels), 0.0, "")["weights"] if totals is None else totals.weights
            names = [] if rows.table is None else rows.table["label_names"]
            check_classes([names[int(label)] if names else shortest(label) for label in labels], held, 7)

    @staticmethod
    def take(data: Any) -> Rows:
        if isinstance(data, Rows):
            return data
        if isinstance(data, tuple) and len(data) == 2:
            return Rows.from_scipy(*data)
        given = type(data).__name__
        raise UsageError(f"expected Rows or a pair (X, y), got {given}: read a file with hogwild.open_data")

    def _pose(self, rows: Rows) -> Rows:
        """Make the problem, the arrays its kernels need, and for "auto" the choice of a discipline; return the rows in
        the problem's numbering.
        """
        asked = self.config.discipline
        cache = machine.l2_bytes()
        self.problem = LinearProblem.of(self.config, rows, "tiered" if asked == "auto" else asked, cache)
        self.ranks = Ranked.of(rows) if renumbers(self.config, self.problem, rows) else None
        if self.ranks is not None:
            rows, popular = self.ranks.rows(rows), self.ranks.popular if rows.inverse is None else 0
            page = PAGE if can_overlay() else FLOATS
            self.problem = self.problem.narrowed(len(self.ranks.features), popular, page)
            self._columns = None if self._columns is None else self.ranks.columns(self._columns)
        self._arrays = self.problem.row_arrays(rows, self.config.class_weight)
        self._weights = self._arrays["weights"] if self._arrays["weights"].size else None
        self._tiers: Tiers | None = None
        about = self.problem, rows, self._arrays, self.config.workers or 1
        c, group = self.config, self.config.group
        # Elsewhere it is measured, and different in every run; but replicas may last, in the discipline's numbering
        price = USUAL_PRICE if c.host == "simulator" or group < (c.workers or 1) else None
        if price and asked == "tiered":
            self._tiers = plan_tiers(*about, price, group)
        if asked == "auto":
            self._tiers, self.reason = choose(*about, price, group, c.step)
            discipline = "hogwild" if self._tiers is None else "tiered"
            self.problem = dataclasses.replace(self.problem, discipline=discipline)
            self.config = self.config.settled(discipline=discipline)
        return rows

    @property
    def _scaled(self) -> dict[str, int]:
        """How many columns are scaled and centred, as fields of a row."""
        return {"columns_scaled": 0, "columns_centred": 0} if self._columns is None else self._columns.counts

    def cut(self) -> dict[str, Any]:
        return {"block": self.order.block} | self._scaled  # it depends on the machine's memory

    def recut(self, saved: dict[str, Any]) -> None:
        if any(saved.get(name, 0) != count for name, count in self._scaled.items()):
            raise UsageError("it was trained in other columns, scaled or not: resume it with the version that made it")
        self.order = dataclasses.replace(self.order, block=saved["block"])

    def make_evaluator(self, like: LinearCase | None = None) -> None:
        if like is not None and like.ranks is self.ranks is None:
            self._evaluator = like._evaluator
            return
        c, p, train, test, held = self.config, self.problem, self._train, self._test, self._held
        if test is not None and (unknown := count_unknown(test, train.width)):
            message = f"{unknown:,} values of features beyond the model's {train.width:,} were ignored in the test rows"
            warnings.warn(message, HogwildWarning, stacklevel=5)
        if self.ranks is not None:
            by_rank = self.ranks.rows
            left, train = train.left_by, by_rank(train)
            test, held = (None if each is None else by_rank(each) for each in (test, held))
            for before, now in ((self._held, held), (self._test, test)):
                if left is not None and left[1] is before and now is not None:
                    train.left_by = by_rank(left[0]), now, left[2]  # so that both are read in one pass
        self._evaluator = Evaluator(
            train,
            test,
            c.loss,
            p.loss_param,
            l1=c.l1,
            l2=c.l2,
            weights=self._weights,
            normalize=c.normalize,
            labels=p.labels,
            width=p.width,
            held=held,
        )

    def lay_out(self, shared: bool) -> Job:
        c, about = self.config, (self.order, self.config.seed, self.config.workers or 1)
        if c.device == "cuda":
            from hogwild.cuda import streams as on_device

            entries, _ = entries_of(self._own, shared=False)
            job = on_device.lay_out(c, self.problem, self.n, entries | self._arrays, self._own.nnz)
        else:
            exchange = make_exchange(c.between_workers, self.n / c.replicas, shrinks=c.l1 > 0)
            job = job_of(self.problem, *about, self._own, self._arrays, shared, self._tiers, exchange, c.group)
        self._arrays, self._tiers = {}, None  # the job holds them
        return job

    def search_step(self) -> Callable[[], tuple[float, dict[str, Any]]]:
        probe = Probe(self.config, alone(self._plain), self._weights)
        return lambda: (probe.search(), {"step_path": probe.path})

    def slope(self) -> Callable[[float], float]:
        return self.problem.slope

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        found = self.problem.solution(flat)
        return found if self._columns is None else self._columns.back(*found)

    def evaluate(self, solution: tuple[Any, ...], sums: np.ndarray | None = None) -> dict[str, float | None]:
        if sums is None:
            return self._evaluator(*solution)
        others = [each.sums(*solution) for each in self._evaluator.others.values()]
        return self.facts(solution, [[Sums(sums, self.n), *others]])

    @staticmethod
    def own_facts(config: TrainConfig, rows: Rows) -> tuple[dict[str, Any], np.ndarray]:
        """See :class:`hogwild.problems.protocol.Summable`."""
        if len(rows) == 0:
            raise InputError("the training data have no rows")
        labels = labels_of(rows.targets, config.loss, rows.table, fewest=1)
        facts = facts_of(rows, labels.astype(np.float32), intercept_share(config, rows), fingerprint(rows))
        return facts | {"features": [rows.hash_bits, fingerprint_of_json(rows.table)]}, degrees(rows)

    def sums(self, solution: tuple[np.ndarray, ...]) -> list[Sums]:
        return self._evaluator.sums(*solution)

    def facts(self, solution: tuple[np.ndarray, ...], parts: list[list[Sums]]) -> dict[str, float | None]:
        return self._evaluator.facts(solution[0], parts)

    def judge(self, solution: tuple[Any, ...], objective: float) -> tuple[float, float | None]:
        coef, intercept = self._widened(solution)
        columns = self._occurring[1]
        return self._objective().judged(coef if columns is None else coef[..., columns], intercept)

    def improved(self, solution: tuple[Any, ...], objective: float) -> tuple[tuple[Any, ...], float | None]:
        columns, (coef, intercept) = self._occurring[1], self._widened(solution)
        skip = None if self.config.l1 > 0.0 else 0.0
        found = self._objective().lowered(coef if columns is None else coef[..., columns], intercept, skip=skip)
        if columns is None:
            coef = found.coef.astype(np.float32)
        else:
            coef = np.zeros_like(coef)
            coef[..., columns] = found.coef
        solution = coef if self.ranks is None else coef[..., self.ranks.features], found.intercept.astype(np.float32)
        return solution, found.share if math.isfinite(found.share) else None

    def _objective(self) -> FitProblem:
        return FitProblem.of(self._evaluator.train, self._occurring[0], self.problem.classes, self.config.intercept)

    @cached_property
    def _occurring(self) -> tuple[Rows, np.ndarray | None]:
        """The training rows; of many features, these are narrowed to those that occur, which are also returned."""
        rows = self._train if self.ranks is not None else self._evaluator.train.rows
        if rows.width <= MANY or not rows.nnz:
            return rows, None
        return narrowed(rows if rows.contiguous else rows.compact())

    def _widened(self, solution: tuple[Any, ...]) -> tuple[Any, ...]:
        """The solution in the user's numbering."""
        return solution if self.ranks is None else (self.ranks.widened(solution[0]), solution[1])

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        return {"nonzeros_per_second": nonzeros / seconds if seconds else None} | self._scaled

    def model(
        self, solution: tuple[np.ndarray, ...], config: TrainConfig, history: list[dict[str, Any]]
    ) -> LinearModel:
        p, (coef, intercept) = self.problem, self._widened(solution)
        return LinearModel(
            coef,
            intercept,
            p.loss,
            p.loss_param,
            list(p.labels),
            p.normalize,
            config.to_json(),
            self.fingerprint,
            history,
            hash_bits=self._train.hash_bits,
            table=self._train.table,
            names=names_of_heaviest(coef, self._train.names),
        )


def scaled_for(config: TrainConfig, rows: Rows) -> tuple[Columns | None, Rows, str]:
    """How the columns are scaled for a run, the rows to train on, and a line about it for the user."""
    both_on_device = config.device == "cuda" and min(config.l1, config.l2) > 0  # whose kernels have one rate a feature
    if not config.scale_columns or config.normalize != "none" or both_on_device:
        return None, rows, ""
    if rows.totals is not None:  # each machine would scale by its own rows
        return None, rows, "" if like_text(rows) else "columns not scaled: every machine has rows of its own"
    total, _ = machine.memory()
    if total is not None and 8 * rows.nnz > total // 4:
        return None, rows, "" if like_text(rows) else "columns not scaled: a copy of the rows would take much memory"
    found = columns_of(rows, config.intercept, all_ones(rows.values))
    if found is None:
        return None, rows, ""
    scaled, centred = found.counts.values()
    note = f"columns scaled: {scaled:,} of {rows.width:,}; centred {centred:,} (--no-scale-columns: none)"
    return found, found.apply(rows), note


def outgrows_memory(rows: Rows) -> bool:
    """Whether rows in a store should not be copied into memory."""
    total, _ = machine.memory()
    return rows.store is not None and total is not None and 8 * len(rows.indices) > total // 2


def renumbers(config: TrainConfig, problem: LinearProblem, rows: Rows) -> bool:
    """Whether workers number the features by popularity.

    It takes some 16 ns a feature and 4 ns a nonzero. If what they look up by feature outgrows the cache, it saves about
    as much in each epoch, and in passes over the weights, which then leave out features that no row holds.
    """
    if config.renumber != "auto":
        return config.renumber == "always"
    if why_not_renumber(config) or problem.discipline not in RENUMBERED or outgrows_memory(rows):
        return False
    numbers = problem.stride * (2 if config.adagrad else 1) + (config.l1 > 0 or config.l2 > 0)
    return 4 * rows.width * numbers > OUTGROWN * machine.l2_bytes()
