"""Factorization machines posed on sparse rows: a linear case whose problem, objective and model are others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import UsageError
from hogwild.hosts.job import Job
from hogwild.problems.fm.model import FMModel
from hogwild.problems.fm.objective import FMObjective
from hogwild.problems.fm.problem import FMProblem, without_gaps
from hogwild.problems.fm.training import HELD_OUT, Trials, occurring, sampled, settle, steady
from hogwild.problems.linear.case import LinearCase
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.linear.problem import aligned
from hogwild.problems.protocol import with_discipline

HELD_SAID = "{:,} rows held out choose the epoch (--keep last: none)"


class FMCase(LinearCase):
    """See :class:`hogwild.problems.protocol.Case`."""

    convex = False
    numbered_solution = True  # of all features it may be many times as large as of those that occur
    kind = FMProblem
    trained = FMModel
    settle = staticmethod(settle)
    problem: FMProblem

    def __init__(self, config: TrainConfig, train: Rows, test: Rows | None, held: Rows | None = None) -> None:
        super().__init__(with_discipline(config), without_gaps(config, train), test, held)
        self.config = self.config.settled(l2=self.problem.l2)
        self.objective = partial(FMObjective, lines=self.problem.lines(self._rows))
        names = f"{self.problem.fields:,} fields" if config.field_aware else ""
        held_out = "" if train.held_out is None else HELD_SAID.format(len(train.held_out))
        self.note = "; ".join(filter(None, (names, held_out, self.note)))

    @staticmethod
    def usual_holdout(config: TrainConfig, data: Rows) -> float:
        return 0.0 if config.l2_path and sampled(config, data) == len(data) else HELD_OUT

    def cut(self) -> dict[str, Any]:
        return super().cut() | {"stride": self.problem.stride}

    def recut(self, saved: dict[str, Any]) -> None:
        if "stride" not in saved:  # earlier, the weight stood behind the factors, not at the end of a line
            raise UsageError("the checkpoint lays out factors differently: resume it with the version that wrote it")
        super().recut(saved)

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.problem.solution(flat)

    def _as_evaluated(self, solution: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        if self._evaluated is self.numbering:  # as the solution's, unless another case evaluates
            return solution
        return super()._as_evaluated(self._coordinates.outward(*solution))

    def lay_out(self, shared: bool) -> Job:
        features = occurring(self._rows, self.numbering)
        job = super().lay_out(shared)
        flat = aligned(self.problem.size)
        self.problem.begin(flat, features, self.config, self._train)
        job.restore(flat)
        return job

    def search_step(self) -> Callable[[], tuple[float, dict[str, Any]]]:
        trials = Trials(self.config, self._train, self._train.held_out)

        def search() -> tuple[float, dict[str, Any]]:
            step, *_ = trials.best([float(self.config.l2_factors or 0.0)])
            path = [{"step": each["step"], "objective": each["held_out_loss"]} for each in trials.path()]
            return steady(self.config, self._train, step / trials.rate), {"step_path": path}

        return search

    def model(
        self, solution: tuple[np.ndarray, ...], config: TrainConfig, history: list[dict[str, Any]], **more: Any
    ) -> LinearModel:
        lines, intercept = self._coordinates.outward(*solution)
        more = {"factors_": lines[self.problem.places].T}
        if self._train.fields is not None and self.config.field_aware:
            more["fields_"] = np.maximum(self._train.fields, 0)
        return super().model((lines[-1:], intercept), config, history, **more)
