"""The linear problem posed on sparse rows: discipline, tiers, step, evaluation, model."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.config import TrainConfig
from hogwild.data.mapped import ReadAhead, entries_of, outgrows_memory
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, count_unknown, narrowed, shortest
from hogwild.data.rows.degrees import facts_of
from hogwild.data.tables.plan import check_plan
from hogwild.data.text.hashing import check_same
from hogwild.errors import HogwildWarning, InputError, UsageError
from hogwild.exchanges import make_exchange
from hogwild.hosts.job import Job
from hogwild.hosts.memory import PAGE, can_overlay
from hogwild.kernels.tiers import FLOATS, Tiers
from hogwild.problems.linear.coordinates import Coordinates, Numbering, scaled_for
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.optimum.finder import WORK, FitProblem
from hogwild.problems.linear.optimum.sums import FEW
from hogwild.problems.linear.options import RENUMBERED, why_not_renumber
from hogwild.problems.linear.problem import OUTGROWN, LinearProblem
from hogwild.problems.linear.rows import check_classes, intercept_share, labels_of
from hogwild.problems.linear.tiers import choose
from hogwild.problems.protocol import Case, Sums
from hogwild.training.checkpoint import fingerprint, fingerprint_of_json
from hogwild.training.step_search import Probe
from hogwild.training.workers import job_of

SAMPLE = 1 << 17  # rows that are evaluated after an epoch at least, where there are more
SPARSEST = 10  # of so many chunks of rows one is evaluated at least
MANY = 1 << 18  # features from which a verdict and exact steps leave out those that no row holds


class LinearCase(Case):
    """See :class:`hogwild.problems.protocol.Case`."""

    names = ("coef", "intercept")
    convex = True
    kind: type[LinearProblem] = LinearProblem
    trained: Callable[..., LinearModel] = LinearModel
    objective: Callable[..., Objective] = Objective
    _objectives: dict[str, Objective]  # on "train" and maybe "held_out" and "test"
    _evaluated: Numbering | None  # of the rows in them, which may be another case's

    def __init__(self, config: TrainConfig, train: Rows, test: Rows | None, held: Rows | None = None) -> None:
        self.config = config
        self.n = len(train) if train.totals is None else train.totals.rows
        self.reason = ""
        self._train = train
        self._test = test
        self._held = held
        self.held_out = "held_out_loss" if held is not None else ""
        if test is not None and train.held_out is test:
            self.held_out = "test_loss"
        self._coordinates, self.note = scaled_for(config, train)
        self._rows = self._pose(self._coordinates.rows(train))  # what is trained on
        self._check_classes()
        self.sampled = outgrows_memory(self._rows)
        row_bytes = 8 * self._rows.nnz / len(train)
        self.order = Order.of(len(train), config.order == "shuffled", row_bytes, self.sampled)
        self.fingerprint = fingerprint(train) if train.totals is None else fingerprint_of_json(train.totals.fingerprint)
        if test is not None:
            check_plan(test.table, train.table, "the test rows")
            check_same(test.hash_bits, train.hash_bits, "the test rows", "training's")

    @property
    def numbering(self) -> Numbering | None:
        return self._coordinates.numbering

    def _check_classes(self) -> None:
        labels = () if self.problem.multilabel else self.problem.labels
        rows, totals = self._train, self._train.totals
        if labels and (totals is not None or not (rows.weights is None or rows.weights.all())):
            held = facts_of(rows, np.array(labels), 0.0, "")["weights"] if totals is None else totals.weights
            names = [] if rows.table is None else rows.table["label_names"]
            check_classes([names[int(label)] if names else shortest(label) for label in labels], held, 7)

    @staticmethod
    def take(data: Any) -> Rows:
        if isinstance(data, Rows):
            return data
        if isinstance(data, str | Path):
            from hogwild.data.rows.source import open_data

            return open_data(data)
        if isinstance(data, tuple) and len(data) == 2:
            return Rows.from_scipy(*data)
        raise UsageError(f"expected a path, Rows or a pair (X, y), got {type(data).__name__}")

    @staticmethod
    def settle(
        config: TrainConfig, rows: Rows, resumed: str | Path | None, held: Rows | None, report: Any = None
    ) -> tuple[Any, Any]:
        """Return the config with the penalty that does best on rows held out, and how it was chosen."""
        from hogwild.training.l2_choice import settle_l2

        steps = None if report is None else lambda done, total: report(f"step {done} of {total}")
        return settle_l2(config, rows, resumed, held, steps)

    def _pose(self, rows: Rows) -> Rows:
        """Make the problem, the arrays its kernels need, and for "auto" the choice of a discipline; return the rows in
        the problem's numbering.
        """
        c = self.config
        discipline = self.config.discipline
        self.problem = self.kind.of(c, rows, "tiered" if discipline == "auto" else discipline, machine.l2_bytes())
        if renumbers(c, self.problem, rows):
            numbering = Numbering.by_popularity(rows)
            rows, popular = numbering.rows(rows), numbering.popular if rows.inverse is None else 0
            page = PAGE if can_overlay() else FLOATS
            self.problem = self.problem.narrowed(len(numbering.features), popular, page)
            self._coordinates = self._coordinates._replace(numbering=numbering)
        self._arrays = self.problem.row_arrays(rows, c.class_weight)
        self._weights = self._arrays["weights"] if self._arrays["weights"].size else None
        self._tiers: Tiers | None = None
        if discipline == "auto":
            if not c.adagrad:  # whose sums of squares have no copies
                self._tiers, self.reason = choose(self.problem, rows, self._arrays, c.workers or 1)
            discipline = "hogwild" if self._tiers is None else "tiered"
            self.problem = dataclasses.replace(self.problem, discipline=discipline)
            self.config = c.settled(discipline=discipline)
        return rows

    def cut(self) -> dict[str, Any]:
        return {"block": self.order.block} | self._coordinates.counts  # it depends on the machine's memory

    def recut(self, saved: dict[str, Any]) -> None:
        if any(saved.get(name, 0) != count for name, count in self._coordinates.counts.items()):
            raise UsageError("the checkpoint scales columns differently: resume it with the version that wrote it")
        self.order = dataclasses.replace(self.order, block=saved["block"])

    def make_evaluator(self, like: Any = None) -> None:
        if like is not None:
            self._objectives, self._evaluated = like._objectives, like._evaluated
            return
        self._evaluated = self.numbering
        width = self._train.width
        if self._test is not None and (unknown := count_unknown(self._test, width)):
            message = f"{unknown:,} values of features beyond the model's {width:,} were ignored in the test rows"
            warnings.warn(message, HogwildWarning, stacklevel=5)
        penalised: dict[str, Any] = {"weights": self._weights}
        others: dict[str, Any] = {"auc": True} | dict.fromkeys(self.problem.penalties, 0.0)
        self._objectives = {}
        for name, rows in (("train", self._train), ("held_out", self._held), ("test", self._test)):
            if rows is None:
                continue
            rows = rows if self.numbering is None else self.numbering.rows(rows)  # in half the time then
            try:
                more = penalised if name == "train" else others
                objective = self._objectives[name] = self.problem.objective(rows, self.objective, **more)
            except InputError as error:
                raise InputError(f"the {name} rows: {error}") from None
            if objective.unknown:
                message = (
                    f"{objective.unknown:,} labels of the {name} rows that the model does not know count as missed"
                )
                warnings.warn(message, HogwildWarning, stacklevel=5)

    def lay_out(self, shared: bool) -> Job:
        c = self.config
        if c.device == "cuda":
            from hogwild.cuda import streams as on_device

            entries, _ = entries_of(self._rows, shared=False)
            job = on_device.lay_out(c, self.problem, self.n, entries | self._arrays, self._rows.nnz)
        else:
            exchange = make_exchange(c.between_workers, self.n / c.replicas, shrinks=c.l1 > 0)
            job = job_of(
                self.problem,
                self.order,
                c.seed,
                c.workers or 1,
                self._rows,
                self._arrays,
                shared,
                self._tiers,
                exchange,
            )
            if self.sampled:
                job.ahead = ReadAhead(self._rows, self.order, job.state["blocks"])
        self._arrays, self._tiers = {}, None  # the job holds them
        return job

    def search_step(self) -> Callable[[], tuple[float, dict[str, Any]]]:
        probe = Probe(self.config, self._rows.replace(totals=None, weights=self._weights))
        return lambda: (probe.search(), {"step_path": probe.path})

    def slope(self) -> Callable[[float], float]:
        return self.problem.slope

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        return self._coordinates.outward(*self.problem.solution(flat))

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        return self.facts(solution, [self.sums(solution)])

    def glance(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        every = self.n // (SPARSEST * SAMPLE) if self.sampled else min(SPARSEST, self.n // SAMPLE)
        if every < 2:
            return self.evaluate(solution)
        sums = self.sums(solution, every)
        return self.facts(solution, [sums]) | {"rows_evaluated": sums[0].rows}

    @staticmethod
    def own_facts(config: TrainConfig, rows: Rows) -> tuple[dict[str, Any], np.ndarray]:
        """What the other machines of a run must know of these rows, as JSON, and how many rows hold each feature."""
        if len(rows) == 0:
            raise InputError("the training data have no rows")
        if rows.labels is not None:
            raise InputError("own_rows needs one label a row; got several: give all rows to every machine")
        labels = labels_of(rows.targets, config.loss, rows.table, fewest=1)
        facts = facts_of(rows, labels.astype(np.float32), intercept_share(config, rows), fingerprint(rows))
        return facts | {"features": [rows.hash_bits, fingerprint_of_json(rows.table)]}, rows.degrees()

    def sums(self, solution: tuple[np.ndarray, ...], every: int = 1) -> list[Sums]:
        """Sums of the training rows, or of a chunk in ``every``; then of rows held out and test rows, if any."""
        coef, intercept = self._as_evaluated(solution)
        shares = {"train": every}
        return [one.sums(coef, intercept, shares.get(name, 1)) for name, one in self._objectives.items()]

    def _as_evaluated(self, solution: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The solution in the numbering of the rows that are evaluated."""
        return solution if self._evaluated is None else self._evaluated.inward(*solution)

    def facts(self, solution: tuple[np.ndarray, ...], parts: list[list[Sums]]) -> dict[str, float | None]:
        named: dict[str, float | None] = {}
        for k, (kind, objective) in enumerate(self._objectives.items()):
            sums = [part[k] for part in parts if len(part) > k]
            for name, value in (objective.facts(solution[0], sums) if sums else {}).items():
                if name != "objective":
                    named[f"{kind}_{name}"] = value
                elif kind == "train":
                    named[name] = value
        return named

    def judge(self, solution: tuple[np.ndarray, ...]) -> float | None:
        problem, occurring = self.exact
        return problem.promise(*occurring.inward(*solution))

    def improved(self, solution: tuple[np.ndarray, ...], epochs: int) -> tuple[tuple[np.ndarray, ...], float | None]:
        problem, occurring = self.exact
        work = WORK if problem.rows.nnz <= FEW else problem.work(epochs, self.problem.classes)
        optimum = problem.lowered(*occurring.inward(*solution), work, skip=None if self.config.l1 > 0.0 else 0.0)
        coef, intercept = occurring.outward(optimum.coef.astype(np.float32), optimum.intercept.astype(np.float32))
        return (coef, intercept), optimum.share if math.isfinite(optimum.share) else None

    @cached_property
    def exact(self) -> tuple[FitProblem, Coordinates]:
        """The problem of exact steps on the training rows, of many features on those alone that occur in them."""
        rows, coordinates = self._train, Coordinates()
        if rows.width > MANY and rows.nnz:
            rows, features = narrowed(rows if rows.contiguous else rows.compact())
            coordinates = Coordinates(numbering=Numbering(features, self._train.width))
        return FitProblem.of(self._objectives["train"], rows, self.problem.classes, self.config.intercept), coordinates

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        return {"nonzeros_per_second": nonzeros / seconds if seconds else None} | self._coordinates.counts

    def model(
        self, solution: tuple[np.ndarray, ...], config: TrainConfig, history: list[dict[str, Any]], **more: Any
    ) -> LinearModel:
        p, train = self.problem, self._train
        more |= {"config": config.to_json(), "fingerprint": self.fingerprint, "history": history}
        meaning = p.loss, p.loss_param, list(p.labels), p.normalize
        more |= {"multilabel": True} if p.multilabel else {}
        return self.trained(*solution, *meaning, hash_bits=train.hash_bits, table=train.table, **more)


def renumbers(config: TrainConfig, problem: LinearProblem, rows: Rows) -> bool:
    """Whether workers number the features by popularity.

    It takes some 16 ns a feature and 4 ns a nonzero. If what they look up by feature outgrows the cache, it saves about
    as much in each epoch, and in passes over the weights, which then leave out features that no row holds.
    """
    if config.renumber != "auto":
        return config.renumber == "always"
    if why_not_renumber(config) or problem.discipline not in RENUMBERED or outgrows_memory(rows):
        return False
    numbers = problem.stride * (2 if config.adagrad else 1) + problem.shrinks
    return 4 * rows.width * numbers > OUTGROWN * machine.l2_bytes()
