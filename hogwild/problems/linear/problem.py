"""The linear problem: its objective, the layout of its parameters in the flat array, and the kernel that trains it.

    objective = weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1,   intercept unpenalised

Two labels, or a real target, make one margin per row; more labels make one per class (one-versus-rest, or softmax), as
do labels of which a row may have several. A ``LinearProblem`` is a few numbers, so it is pickled to worker processes as
it is; everything large reaches them through shared memory or a memory map.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.data.rows.degrees import frequencies
from hogwild.data.rows.labels import NO_SETS, LabelSets
from hogwild.data.rows.margins import row_scales
from hogwild.errors import InputError
from hogwild.hosts.memory import overlaid
from hogwild.kernels.control import FIRST, LAST, TURN
from hogwild.kernels.losses import COUNTS, LOSSES, PASSIVE, dloss
from hogwild.kernels.order import PADDING
from hogwild.kernels.steps import area
from hogwild.kernels.tiers import FLOATS, PACK, PIECE, Replica, Tiers
from hogwild.machine import check_memory
from hogwild.problems.linear import kernel as linear
from hogwild.problems.linear import simulated_kernel as simulated
from hogwild.problems.linear.kernel import Data, Parameters, Plan
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.rows import (
    all_ones,
    intercept_share,
    labels_of,
    numbered,
    row_weights,
    uneven,
)
from hogwild.problems.linear.simulated_kernel import Crew
from hogwild.problems.protocol import OrderSlice, Problem, Shared, counted
from hogwild.training.schedule import Step

FLUSH = 8  # rows between two updates of the shared intercept by one of several lock-free workers
FALLING = ("inverse", "optimal")  # schedules whose step falls within an epoch
TABLE_WIDTH = 1 << 20  # most features for which l2 factors are tabulated once an epoch
OUTGROWN = 4  # times the L2 cache: weights of at least this size are prefetched; for smaller ones it does not pay
BYTES = 32  # for each weight of a run: those of the workers, of the solution and of the model, and copies
MOST_LANES = 16  # float32 in a vector register, and in a cache line


class Scratch(NamedTuple):
    """The memory of one worker."""

    rows: np.ndarray  # (chunk + PADDING,) int64
    table: np.ndarray  # (width,) float32 for kernel.shrink_table, or empty
    buffer: np.ndarray  # (VECTORS * stride,) float32
    state: np.ndarray  # (STATE,) int64: progress in the current chunk, see kernel.py
    private: np.ndarray  # (size,) float32: a tiered worker's copy, or its view of the shared array, see tiers.py
    replica: Replica | None  # a tiered worker's, still without the shared arrays


@dataclass(frozen=True)
class LinearProblem(Problem):
    """Everything a worker must know besides the arrays; made by :meth:`of`."""

    has_events: ClassVar[bool] = True
    penalties: ClassVar[tuple[str, ...]] = ("l1", "l2")  # fields, and of the objective too

    loss: str
    loss_param: float
    l1: float
    l2: float
    adagrad: bool
    discipline: str
    intercept: float  # share of the step it takes; 0: no intercept (see intercept_share)
    normalize: str
    labels: tuple[float, ...]  # the user's labels, ascending; empty for real targets
    width: int
    longest: int  # most nonzeros in a row
    falling: bool  # the step falls within an epoch
    far: bool = False  # the weights outgrow the cache
    unit: bool = False  # all values are one
    tabulate: bool = True  # whether l2 factors may be tabulated: not if few rows come at a time
    scaled: bool = False  # an l2 penalty shrinks all weights at every row, by a scale: see kernel.py, PENALTIES
    passive: str = "none"  # steps that go exactly as far as a row requires: a key of losses.PASSIVE
    rescaled: bool = False  # the columns are, so that l1 and l2 differ in their rates
    own_rates: int = 0  # see kernel.py, PACKED: first features that have a rate of their own; 0: all have
    multilabel: bool = False  # a row has any number of the labels
    page: int = FLOATS  # float32 that each part of the flat array is padded to: a memory page if workers replace some

    @classmethod
    def of(cls, config: TrainConfig, rows: Rows, discipline: str, cache_bytes: int = 2 << 20, **fields: Any) -> Self:
        """The problem that ``config`` poses on these training rows, with these ``fields`` whatever it says.

        Raises
        ------
        InputError
            If the loss does not fit the targets, or there are no rows or only one class.
        """
        if len(rows) == 0:
            raise InputError("the training data have no rows")
        totals = rows.totals
        targets = totals.labels if totals is not None and len(totals.labels) else rows.targets
        several = rows.labels is not None
        if several and config.class_weight is not None:
            raise InputError("class_weight needs one label a row; got several: leave it out")
        if several and config.device == "cuda":
            raise InputError("device cuda needs one label a row; got several: train on the CPU")
        safe = LOSSES[config.loss].targets == COUNTS or uneven(rows, row_weights(rows, config.class_weight))
        of_config: dict[str, Any] = {
            "discipline": discipline,
            "labels": tuple(labels_of(targets, config.loss, rows.table, sets=rows.labels).astype(float).tolist()),
            "intercept": intercept_share(config, rows) if totals is None else totals.intercept,
            "passive": "safe" if safe and not config.adagrad else "none",
        }
        problem = cls.of_rows(config, rows, cache_bytes, **(of_config | fields))
        subject = f"{problem.classes:,} labels times " * several + f"{problem.width:,} features"
        hint = ": leave out rare labels, or hash the features" if several else ": hash the features"
        check_memory(subject, BYTES * problem.classes * problem.width, hint)  # of factors those that occur are trained
        return problem

    @classmethod
    def of_rows(cls, config: TrainConfig, rows: Rows, cache_bytes: int, **fields: Any) -> Self:
        """The problem with these fields; config and rows say what the other fields are."""
        param = LOSSES[config.loss].param or 0.0
        others: dict[str, Any] = {
            "loss": config.loss,
            "loss_param": float(param if config.loss_param is None else config.loss_param),
            "l1": float(config.l1),
            "l2": float(config.l2),
            "adagrad": config.adagrad,
            "normalize": config.normalize,
            "falling": config.schedule in FALLING,
            "multilabel": rows.labels is not None,
            "width": rows.width,
            "longest": int((rows.end - rows.begin).max(initial=0)),
            "rescaled": rows.inverse is not None,
        }
        problem = cls(**(others | fields))
        return dataclasses.replace(
            problem,
            far=4 * rows.width * problem.stride > OUTGROWN * cache_bytes,
            unit=problem.stride == 1 and all_ones(rows.values),
        )

    def narrowed(self, width: int, popular: int = 0, page: int = FLOATS) -> Self:
        """The same problem with fewer features, whose kernels compute what they would with all, to the last bit."""
        tabulate = self.tabulate and self.width <= TABLE_WIDTH
        own = popular if self.far and not tabulate and 2 * popular < width else 0
        return dataclasses.replace(self, width=width, tabulate=tabulate, own_rates=own, page=page)

    def widened(self, width: int) -> Self:
        """What was narrowed to this problem, as far as the flat array goes."""
        return dataclasses.replace(self, width=width, own_rates=0, page=FLOATS)

    @cached_property
    def classes(self) -> int:
        """Number of margins of a row."""
        return len(self.labels) if len(self.labels) > 2 or self.loss == "softmax" or self.multilabel else 1

    @cached_property
    def stride(self) -> int:
        """Weights of a feature in memory: the classes rounded up, so that each feature starts on an aligned address."""
        return stride_of(self.classes) if self.classes > 1 else 1

    @property
    def locks(self) -> int:
        """Number of locks the discipline takes."""
        return max(self.width, 1) if self.discipline == "aig" else 1

    @property
    def size(self) -> int:
        """Length of the flat float32 parameter array."""
        return sum(self._lengths) * (1 + self.adagrad)

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        """Lengths of the weights and of the intercept in the flat array, padded to cache lines or pages."""
        coef, intercept = (-(-n * self.stride // self.page) * self.page for n in (self.width, 1))
        return coef, intercept

    def parameters(self, flat: Any) -> Parameters:
        """Named views of the flat array."""
        first = self._lengths[0]
        weights, squares = [*flat.reshape(1 + self.adagrad, -1), flat[:0]][:2]
        views = [(part[: self.width * self.stride], part[first : first + self.stride]) for part in (weights, squares)]
        return Parameters(*views[0], *views[1])

    def private(self, head: int) -> list[tuple[int, int]]:
        """Parts of the flat array, in whole pages, of the first ``head`` features and the intercept: (begin, end)."""
        coef, intercept = self._lengths
        return [(0, -(-head * self.stride // self.page) * self.page), (coef, coef + intercept)]

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of the flat array with a row for each feature, as views (width, stride)."""
        parts = self.parameters(flat)
        return [part.reshape(self.width, self.stride) for part in (parts.coef, parts.coef_squares) if part.size]

    def beside(self, flat: np.ndarray) -> list[np.ndarray]:
        """The other parts of the flat array, as views (stride,)."""
        parts = self.parameters(flat)
        return [parts.intercept, parts.intercept_squares]

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(coef, intercept)`` as copies: (K, width) and (K,) for K classes, (width,) and (1,) for one margin.

        Of K classes a feature's weights are neighbours in memory, as here.
        """
        parts = self.parameters(flat)
        coef = parts.coef.reshape(self.width, self.stride)[:, : self.classes].copy()
        return coef.T if self.classes > 1 else coef[:, 0], parts.intercept[: self.classes].copy()

    def objective(self, rows: Rows, kind: Callable[..., Objective] = Objective, **more: Any) -> Objective:
        """What judges solutions of this problem on rows."""
        names = (*self.penalties, "normalize", "labels", "multilabel", "width")
        fields = {name: getattr(self, name) for name in names}
        return kind(rows, self.loss, self.loss_param, **(fields | more))

    def write_out(self, coef: np.ndarray, step: Step, first: int, rows: int) -> None:
        """Multiply the weights by their scale after ``rows`` rows from ``first`` on, see kernel.py, PENALTIES."""
        if self.scaled:
            exponent = self.l2 * (area(step, first + rows) - area(step, first))
            coef *= np.float32(math.exp(-exponent))

    def slope(self, prediction: float) -> float:
        """The derivative of the loss at a prediction for target 1."""
        return 1.0 if self.loss == "softmax" else dloss(LOSSES[self.loss].code, prediction, 1.0, self.loss_param)

    def encode(self, rows: Rows) -> tuple[np.ndarray, LabelSets]:
        """Targets as float32 for the kernels: -1 and +1, the class number, or the target itself; and sets of labels.

        Raises
        ------
        InputError
            If a label was not among the training labels.
        """
        if not self.labels:
            return np.ascontiguousarray(rows.targets, dtype=np.float32), NO_SETS
        codes, sets = numbered(rows, self.labels, self.multilabel)
        return codes if self.classes > 1 else 2 * codes - 1, sets

    def row_arrays(self, rows: Rows, class_weight: str | None) -> dict[str, np.ndarray]:
        """Arrays per row and feature for the kernels: targets, weights, scales (either may be empty), rates N / d_u."""
        weights, scales = row_weights(rows, class_weight), row_scales(rows, self.normalize)
        targets, sets = self.encode(rows)
        return {
            "targets": targets,
            "label_indptr": sets.indptr,
            "label_indices": sets.indices,
            "weights": EMPTY if weights is None else weights,
            "scales": EMPTY if scales is None else scales,
            "rates": self.rates(rows),
        }

    def rates(self, rows: Rows, threads: int | None = None) -> np.ndarray:
        """``N / d_u`` for each feature, (width,) float32; empty if no penalty is spread over the rows.

        For scaled columns they are times ``inverse`` with an l1 penalty, else times its square; with both penalties,
        ``inverse`` follows, (2 * width,).
        """
        if self.scaled or not self.shrinks:
            return EMPTY
        n, degree = frequencies(rows, threads)
        spread, inverse = n / degree, rows.inverse
        if inverse is None:
            popular_rates = self.own_rates or len(spread)
            return np.append(spread[:popular_rates], spread[popular_rates::PACK]).astype(np.float32)
        spread = spread * (inverse if self.l1 > 0 else np.square(inverse))
        return np.concatenate([spread, inverse] if self._apart else [spread]).astype(np.float32)

    @property
    def shrinks(self) -> bool:
        """Whether there is a penalty."""
        return any(getattr(self, name) > 0 for name in self.penalties)

    @property
    def _apart(self) -> bool:
        """Whether both penalties have rates of their own."""
        return self.rescaled and self.l1 > 0 and self.l2 > 0

    def begin_epoch(self, control: np.ndarray, order: Order, start: int) -> None:
        """Set the shared cells; with round robin, also the first row's turn and the end of the epoch."""
        super().begin_epoch(control, order, start)
        if self.discipline == "round-robin":
            control[TURN] = start * order.chunk
            control[LAST] = order.n_rows

    def position(self, control: np.ndarray, order: Order) -> int:
        """Number of chunks done; who stops a round robin early sets the next one."""
        if self.discipline == "round-robin" and control[LAST] == order.n_rows:
            return order.n_chunks
        return super().position(control, order)

    def scratch(self, order: Order, tiers: Tiers, flat: np.ndarray) -> Scratch:
        """A worker's own memory; ``tiers`` in place need the ``flat`` array that the workers share."""
        private, replica = EMPTY, None
        if self.discipline == "tiered":
            many = len(tiers.intervals)
            base = self.parameters(aligned(self.size))
            record = *np.zeros((2, many), np.int64), *np.zeros((3, many))
            replica = Replica(EMPTY, EMPTY, base.coef, base.intercept, aligned(PIECE), *record)
            private = aligned(self.size)
            if tiers.in_place:
                private = overlaid(flat, self.private(int(tiers.bounds[-1])))
        return Scratch(
            rows=np.empty(order.chunk + PADDING, dtype=np.int64),
            table=np.empty(self.width if self.penalty(False) == linear.L2_TABLE else 0, dtype=np.float32),
            buffer=np.zeros(linear.VECTORS * self.stride, dtype=np.float32),
            state=np.zeros(linear.STATE, dtype=np.int64),
            private=private,
            replica=replica,
        )

    def crew(self, workers: int, order: Order, loads: bool) -> Crew:
        """The virtual workers of an epoch by events; ``loads``: they hold what they have loaded for a while."""
        entries = self.longest if loads else 0
        floats, counts = partial(np.zeros, dtype=np.float32), partial(np.zeros, dtype=np.int64)
        return Crew(
            events=counts(FIRST + 3 * (order.chunk + workers)),  # the events of one chunk fit in it
            numbers=counts((workers, 3)),
            steps=floats(workers),
            memory=floats((workers, linear.VECTORS * self.stride)),
            loaded=floats((workers, entries * self.stride)),
            loaded_squares=floats((workers, entries * self.stride * self.adagrad)),
            loaded_depths=counts((workers, entries)),
            depths=counts(self.width if loads else 0),
            lost=counts(1),
        )

    def data(self, arrays: Mapping[str, np.ndarray]) -> Data:
        """The kernel's read-only inputs, made of arrays by name."""
        return Data(**arrays)

    def prepare(self, shared: Shared, scratch: Scratch, data: Data, part: OrderSlice, step: Step) -> Callable[[], int]:
        """Return a function that does at most ``part.limit`` rows and returns how many; a further call continues."""
        return counted(self.bind(shared, scratch, data)(part, step), shared.control, part.worker)

    def bind(self, shared: Shared, scratch: Scratch, data: Data) -> Callable[[OrderSlice, Step], Callable[[], Any]]:
        """Return a function that makes kernel calls for any part and step; common arguments are looked up once."""
        parameters: Parameters = shared.parameters
        replica = scratch.replica
        if replica is not None:
            replica = replica._replace(coef=parameters.coef, intercept=parameters.intercept)
            parameters = self.parameters(scratch.private)
        tiers = None if replica is None else shared.tiers
        memory = scratch.rows, scratch.buffer, scratch.state, tiers, replica
        loops = [(penalty, self._kernel(penalty)) for penalty in map(self.penalty, (False, True))]  # maybe the same

        def call(part: OrderSlice, step: Step) -> Callable[[], Any]:
            penalty, loop = loops[step[2] != 0.0]
            inputs, plan = data, self.plan(part, step)
            if penalty == linear.L2_TABLE:
                inputs = data._replace(rates=readonly(scratch.table))
                linear.shrink_table(scratch.table, data.rates, np.float32(step[0]), np.float32(self.l2))
            scratch.state[:] = 0
            if part.crew is not None:
                events = simulated.events(
                    LOSSES[self.loss].code, self.lanes, penalty, int(self.adagrad), int(self.multilabel)
                )
                return partial(events, shared.parameters, inputs, shared.control, plan, scratch.rows, part.crew)
            return partial(loop, parameters, inputs, shared.control, shared.locks, plan, *memory)

        return call

    def plan(self, part: OrderSlice, step: Step) -> Plan:
        """What the kernels are told of a part of an epoch."""
        order, alone = part.order, self.discipline in ("serial", "locked", "round-robin", "tiered")
        return Plan(
            **part.facts(),
            block=order.block,
            n_chunks=order.n_chunks,
            start=part.start * order.chunk,
            step=step,
            l1=self.l1,
            l2=self.l2,
            loss_param=self.loss_param,
            intercept=self.intercept,
            flush=1 if alone or part.workers == 1 else FLUSH,
            classes=self.classes,
            stride=self.stride,
            own_rates=self.own_rates,
        )

    def penalty(self, falls: bool) -> int:
        """Code of the penalty; ``falls``: the step falls within the epoch, so l2 factors cannot be tabulated.

        Nor are they for models as large as the data.
        """
        if self.l1 > 0:
            return linear.APART if self._apart else linear.ELASTIC
        if not self.l2 > 0:
            return linear.NO_PENALTY
        if self.scaled and not self.adagrad:
            return linear.L2_SCALED
        tabulated = self.tabulate and self.width <= TABLE_WIDTH and not (falls or self.adagrad)
        return linear.L2_TABLE if tabulated else linear.L2

    def _kernel(self, penalty: int) -> Any:
        """The compiled loop for this loss and discipline."""
        loss, adagrad, sets = LOSSES[self.loss].code, int(self.adagrad), int(self.multilabel)
        if self.discipline == "round-robin":
            return linear.turns(loss, penalty, adagrad, self.lanes, sets)
        far = linear.PACKED if self.own_rates else int(self.far)
        code = linear.DISCIPLINES[self.discipline]
        passive = PASSIVE[self.passive]
        return linear.epoch(loss, code, penalty, adagrad, far, int(self.unit), self.lanes, passive, sets)

    @property
    def lanes(self) -> int:
        """Lanes of the vectors in which the classes of a feature are loaded and stored; 0 for one margin."""
        return min(self.stride, MOST_LANES) if self.classes > 1 else 0


def aligned(size: int) -> np.ndarray:
    """Zeros (size,) float32 that start on a cache line and share none with other memory."""
    padded = np.zeros(size + 2 * FLOATS, dtype=np.float32)
    start = -padded.__array_interface__["data"][0] // 4 % FLOATS
    return padded[start : start + size]


def stride_of(classes: int) -> int:
    unit = 4 if classes <= 8 else MOST_LANES
    return -(-classes // unit) * unit
