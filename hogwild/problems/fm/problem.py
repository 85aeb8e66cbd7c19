"""Factorization machines as a problem: linear models whose features have a line of numbers instead of a weight.

    objective = weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2,   intercept unpenalised

Everything but the line (labels, weights of rows, rates of penalties, intercept, order) is the linear problem's.
"""

from __future__ import annotations

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
from hogwild.problems.fm import kernel as fm
from hogwild.problems.fm.field_kernel import BLOCK, GROUP, OTHERS, fill
from hogwild.problems.fm.objective import Lines
from hogwild.problems.fm.pairs_kernel import FieldData
from hogwild.problems.linear.kernel import DISCIPLINES, DONE, NO_PENALTY, STATE, Data, Plan
from hogwild.problems.linear.problem import MOST_LANES, LinearProblem, Scratch, aligned, stride_of
from hogwild.problems.protocol import OrderSlice, Shared
from hogwild.training.schedule import Step

#: Without fields, times uniform in [0, 1) over the root of the rank; normal numbers were worse on every set.
START = 0.66


@dataclass(frozen=True)
class FMProblem(LinearProblem):
    """Everything a worker must know besides the arrays; made by :meth:`of`."""

    has_events: ClassVar[bool] = False
    penalties: ClassVar[tuple[str, ...]] = (*LinearProblem.penalties, "l2_factors")

    rank: int = 0
    l2_factors: float = 0.0
    fields: int = 0  # a feature has a factor for each; 0: one for all
    scale: float = 1.0  # of real targets, a power of four; workers have targets over it, see :meth:`solution`

    @classmethod
    def of(cls, config: TrainConfig, rows: Rows, discipline: str, cache_bytes: int = 2 << 20, **fields: Any) -> Self:
        """The problem that ``config`` poses on these training rows; errors are those of ``LinearProblem.of``."""
        fields |= {"rank": config.rank, "l2": float(config.l2 or 0.0), "l2_factors": float(config.l2_factors or 0.0)}
        if LOSSES[config.loss].targets == NUMBERS and (deviation := float(np.std(rows.targets, dtype=float))):
            fields["scale"] = 4.0 ** round(math.log(deviation, 4))
        if config.field_aware and rows.fields is not None:
            fields["fields"] = int(rows.fields.max(initial=0)) + 1
        problem = super().of(config, rows, discipline, cache_bytes, tabulate=False, **fields)
        if problem.multilabel:
            raise InputError(f"problem {config.problem!r} needs one label a row; got several: choose problem 'linear'")
        if len(problem.labels) > 2:
            count = len(problem.labels)
            raise InputError(f"problem {config.problem!r} needs two labels; got {count}: choose problem 'linear'")
        if not (rows.nnz if config.field_aware else rows.width):
            raise InputError(f"problem {config.problem!r} needs features; the rows have none")
        if config.field_aware and rows.fields is None:
            raise InputError(f"problem {config.problem!r} needs fields of features: read a table or libffm's text")
        return problem

    @cached_property
    def stride(self) -> int:
        """Numbers of a feature in memory: its factors, its weight, and zeros up to whole vectors."""
        return stride_of(self.weight_at + 1)

    @property
    def block(self) -> int:
        """Numbers of a factor in memory, if a feature has several; else 0."""
        return stride_of(self.rank) if self.fields else 0

    @property
    def weight_at(self) -> int:
        """Place of the weight in a line: behind the factors."""
        return self.fields * self.block or self.rank

    @property
    def lanes(self) -> int:
        """Lanes of the vectors in which a line is loaded and stored."""
        return min(self.stride, MOST_LANES)

    @cached_property
    def places(self) -> np.ndarray:
        """Where a feature's weight and its factors stand in its line, (1 + rank,) or (1 + fields * rank,)."""
        begins = self.block * np.arange(max(self.fields, 1))
        return np.append(self.weight_at, (begins[:, None] + np.arange(self.rank)).ravel())

    def lines(self, fields: np.ndarray | None) -> Lines:
        """Where workers keep what, for features of these ``fields``."""
        return Lines(self.rank, fields, self.weight_at, 0, self.block, self.scale)

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(coef, intercept)`` as copies: the weights and then the factors, a column for each feature, and (1,).

        They are the user's: weights are the workers' times the ``scale`` of targets, factors times its root, so that
        the same steps suit both whatever the targets are.
        """
        coef, scale = np.take(self.per_feature(flat)[0], self.places, axis=1).T, np.float32(self.scale)
        if scale != 1:
            coef[0] *= scale
            coef[1:] *= np.sqrt(scale)
        return coef, self.parameters(flat).intercept[:1] * scale

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
        return super().plan(part, step)._replace(classes=self.weight_at, loss_param=param)

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
        factors = np.random.default_rng(config.seed).random((len(features), len(self.places) - 1), dtype=np.float32)
        spread = (1.0 if self.fields else START) / np.sqrt(self.rank)
        lines[features[:, None], self.places[1:]] = factors * np.float32(spread)
        for part in (*squares, self.beside(flat)[1]):
            part[:] = 1.0

    def penalty(self, falls: bool) -> int:
        """None that the linear kernel knows."""
        return NO_PENALTY

    def scratch(self, order: Order, tiers: Tiers, flat: np.ndarray) -> Scratch:
        """A worker's own memory."""
        vectors = aligned((OTHERS + BLOCK + 1) * self.stride).reshape(-1, self.stride)
        if self.block == BLOCK and self.stride >= GROUP:
            fill(vectors)
        vectors[fm.MASK, self.places[1:]] = 1.0
        vectors[fm.UNIT, self.places[0]] = 1.0
        l2, l2_factors = self.l2 / self.units[0], self.l2_factors / self.units[1]
        vectors[fm.PULL] = l2_factors * vectors[fm.MASK] + l2 * vectors[fm.UNIT]
        state = np.zeros(STATE + self.stride // 2, np.int64)
        return super().scratch(order, tiers, flat)._replace(buffer=vectors.ravel(), state=state)

    def row_arrays(self, rows: Rows, class_weight: str | None) -> dict[str, np.ndarray]:
        """See ``LinearProblem.row_arrays``; the field of each feature besides."""
        arrays = super().row_arrays(rows, class_weight)
        return arrays | {"fields": known_fields(rows)} if self.fields else arrays

    def data(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The kernel's read-only inputs, made of arrays by name."""
        return FieldData(**arrays) if self.fields else super().data(arrays)

    def bind(self, shared: Shared, scratch: Scratch, data: Data) -> Callable[[OrderSlice, Step], Callable[[], Any]]:
        """See ``LinearProblem.bind``."""
        codes = LOSSES[self.loss].code, DISCIPLINES[self.discipline], int(self.adagrad), int(self.shrinks)
        kernel = fm.epoch(*codes, int(self.far), self.lanes, self.block)

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


def known_fields(rows: Rows) -> np.ndarray:
    """The field of each feature, (width,) int16; of one that no row holds any will do, since its factors are zero."""
    assert rows.fields is not None
    return readonly(np.maximum(rows.fields, 0))
