"""Factorization machines as a problem: linear models whose features have a line of numbers instead of a weight.

    objective = weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2,   intercept unpenalised

Everything but the line (labels, weights of rows, rates of penalties, intercept, order) is the linear problem's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.labels import LabelSets
from hogwild.errors import InputError
from hogwild.kernels.losses import LOSSES, NUMBERS
from hogwild.kernels.tiers import Tiers
from hogwild.methods import COUNT_LOSSES
from hogwild.problems.fm.kernel import epoch
from hogwild.problems.fm.lines_kernel import MASK, PENALTY, TILT, UNIT, FieldData
from hogwild.problems.fm.objective import ONE_FIELD, Lines
from hogwild.problems.fm.tiles_kernel import fill
from hogwild.problems.linear.kernel import DISCIPLINES, DONE, NO_PENALTY, STATE, Data, Plan
from hogwild.problems.linear.problem import MOST_LANES, LinearProblem, Scratch, aligned
from hogwild.problems.protocol import OrderSlice, Shared
from hogwild.training.schedule import Step

#: Penalty of the weights times the number of training rows, if nobody gives it.
L2 = 0.15
#: Without fields, times uniform in [0, 1) over the root of the rank; normal numbers were worse on every set.
START = 0.66


@dataclass(frozen=True)
class FMProblem(LinearProblem):
    """Everything a worker must know besides the arrays; made by :meth:`of`."""

    has_events: ClassVar[bool] = False
    penalties: ClassVar[tuple[str, ...]] = (*LinearProblem.penalties, "l2_factors")

    rank: int = 0
    l2_factors: float = 0.0
    fields: int = 1  # a feature has a factor for each
    scale: float = 1.0  # of real targets, a power of four; workers have targets over it, see :meth:`solution`

    @classmethod
    def of(cls, config: TrainConfig, rows: Rows, discipline: str, cache_bytes: int = 2 << 20, **fields: Any) -> Self:
        """The problem that ``config`` poses on these training rows; errors are those of ``LinearProblem.of``."""
        fields["rank"] = config.rank
        if LOSSES[config.loss].targets == NUMBERS and (deviation := float(np.std(rows.targets, dtype=float))):
            fields["scale"] = 4.0 ** round(math.log(deviation, 4))
        if config.field_aware and rows.fields is not None:
            fields["fields"] = int(rows.fields.max(initial=0)) + 1
        problem = super().of(config.settled(l2=0.0), rows, discipline, cache_bytes, tabulate=False, **fields)
        if problem.multilabel:
            raise InputError(f"problem {config.problem!r} needs one label a row; got several: choose problem 'linear'")
        if len(problem.labels) > 2:
            count = len(problem.labels)
            raise InputError(f"problem {config.problem!r} needs two labels; got {count}: choose problem 'linear'")
        if not (rows.nnz if config.field_aware else rows.width):
            raise InputError(f"problem {config.problem!r} needs features; the rows have none")
        if config.field_aware and rows.fields is None:
            raise InputError(f"problem {config.problem!r} needs fields of features: read a table or libffm's text")
        l2 = L2 / len(rows) * problem.units[0] if config.l2 is None else config.l2
        return dataclasses.replace(problem, l2=float(l2), l2_factors=float(config.l2_factors or 0.0))

    @cached_property
    def stride(self) -> int:
        """Numbers of a feature in memory: its factors, zeros up to whole vectors, and its weight."""
        return Lines(self.rank).stride(self.fields)

    @property
    def lanes(self) -> int:
        """Lanes of the vectors in which a line is loaded and stored."""
        return min(self.stride, MOST_LANES)

    @cached_property
    def places(self) -> np.ndarray:
        """Where a feature's factors stand in its line, (fields * rank,)."""
        return Lines(self.rank).places(self.fields)

    def lines(self, rows: Rows, scale: float = 1.0) -> Lines:
        """What the lines of the rows' features hold; of one that no row holds any field will do, for it has zeros."""
        fields = ONE_FIELD if self.fields == 1 or rows.fields is None else readonly(np.maximum(rows.fields, 0))
        return Lines(self.rank, fields, scale)

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(coef, intercept)`` as copies, (stride, width) and (1,), see ``objective.py``.

        They are the user's: weights are the workers' times the ``scale`` of targets, factors times its root, so that
        the same steps suit both whatever the targets are.
        """
        lines, scale = self.per_feature(flat)[0].copy(), np.float32(self.scale)
        if scale != 1:
            lines *= np.sqrt(scale)
            lines[:, -1] *= np.sqrt(scale)
        return lines.T, self.parameters(flat).intercept[:1] * scale

    @property
    def units(self) -> tuple[float, float]:
        """What an l2 penalty of the workers' weights, and of their factors, is times for the user's."""
        degree = 1 + LOSSES[self.loss].smooth  # of the loss in the targets
        return self.scale ** (degree - 2), self.scale ** (degree - 1)

    def encode(self, rows: Rows) -> tuple[np.ndarray, LabelSets]:
        """See ``LinearProblem.encode``; real targets over their scale."""
        targets, sets = super().encode(rows)
        return targets / np.float32(self.scale), sets

    def plan(self, part: OrderSlice, step: Step) -> Plan:
        """See ``LinearProblem.plan``; the kernels have one margin."""
        param = self.loss_param / self.scale if LOSSES[self.loss].range[1] == math.inf else self.loss_param
        return super().plan(part, step)._replace(classes=self.fields, loss_param=param)

    def begin(self, flat: np.ndarray, features: np.ndarray, config: TrainConfig, rows: Rows) -> None:
        """Write the parameters that training starts from: factors of ``features``, which are those of training rows.

        Those of other features stay zero, so that nothing untrained has a part in a prediction. The intercept is the
        mean target, of counts its logarithm, since steps that suit the factors would take many epochs to get there.
        """
        if config.intercept and not self.labels:
            mean = float(np.average(rows.targets.astype(np.float64), weights=rows.weights))
            start = math.log(max(mean, 1e-6)) if self.loss in COUNT_LOSSES else mean / self.scale
            self.parameters(flat).intercept[0] = start
        lines, *squares = self.per_feature(flat)
        factors = np.random.default_rng(config.seed).random((len(features), len(self.places)), dtype=np.float32)
        spread = (1.0 if self.fields > 1 else START) / np.sqrt(self.rank)
        lines[features[:, None], self.places] = factors * np.float32(spread)
        for part in (*squares, self.beside(flat)[1]):
            part[:] = 1.0

    def penalty(self, falls: bool) -> int:
        """None that the linear kernel knows."""
        return NO_PENALTY

    def scratch(self, order: Order, tiers: Tiers, flat: np.ndarray) -> Scratch:
        """A worker's own memory."""
        present = max(min(self.fields, self.longest), 1)  # fields that a row may have
        vectors = aligned((TILT + present) * self.stride).reshape(-1, self.stride)
        if self.fields > 1:
            fill(vectors)
        vectors[MASK + 1, : self.rank] = 1.0
        vectors[UNIT, -1] = 1.0
        vectors[PENALTY, :2] = self.l2_factors / self.units[1], self.l2 / self.units[0]
        state = np.zeros(STATE + 2 * self.fields + self.stride // 2, np.int64)
        return super().scratch(order, tiers, flat)._replace(buffer=vectors.ravel(), state=state)

    def row_arrays(self, rows: Rows, class_weight: str | None) -> dict[str, np.ndarray]:
        """See ``LinearProblem.row_arrays``; the field of each feature besides."""
        return super().row_arrays(rows, class_weight) | {"fields": self.lines(rows).fields}

    def data(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The kernel's read-only inputs, made of arrays by name."""
        return FieldData(**arrays)

    def bind(self, shared: Shared, scratch: Scratch, data: Data) -> Callable[[OrderSlice, Step], Callable[[], Any]]:
        """See ``LinearProblem.bind``."""
        codes = LOSSES[self.loss].code, DISCIPLINES[self.discipline], int(self.adagrad), int(self.shrinks)
        kernel = epoch(*codes, int(self.far), self.lanes, Lines(self.rank).size if self.fields > 1 else 0)

        def call(part: OrderSlice, step: Step) -> Callable[[], Any]:
            scratch.state[:] = 0
            memory = scratch.rows, scratch.buffer, scratch.state
            return partial(
                kernel, shared.parameters, data, shared.control, shared.locks, self.plan(part, step), *memory
            )

        return call

    def touched(self, scratch: Scratch, data: Data) -> np.ndarray:
        """See :meth:`Problem.touched`: the lines of a row's features and the intercept."""
        row = scratch.rows[scratch.state[DONE] - 1]
        features = data.indices[data.begin[row] : data.end[row]].astype(np.int64)
        lines = (features[:, None] * self.stride + np.arange(self.stride)).ravel()
        places = np.append(lines, self._lengths[0])
        return np.append(places, places + sum(self._lengths)) if self.adagrad else places


def without_gaps(config: TrainConfig, rows: Rows) -> Rows:
    """The rows with fields, where they count, numbered from 0 among those that occur; -1 stays."""
    if not config.field_aware or rows.fields is None:
        return rows
    occurring = np.unique(rows.fields[rows.fields >= 0])
    numbers = np.searchsorted(occurring, rows.fields).astype(np.int16) - (rows.fields < 0)
    return rows.replace(fields=readonly(numbers))
