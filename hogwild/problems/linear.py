"""The linear problem: what is minimised, how its parameters lie in the flat array, and the kernel that works on it.

    objective = weighted mean loss + l2/2 ||w||^2 + l1 ||w||_1,   intercept unpenalised

Two labels, or a real target, make one margin a row; more labels make one a class (one-versus-rest, or softmax). A
``LinearProblem`` is a few numbers, so it is pickled to worker processes as it is; everything large reaches them through
shared memory or a memory map.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.degrees import degrees
from hogwild.data.examples import Rows, readonly, shortest
from hogwild.data.normalize import row_scales, scaled
from hogwild.data.order import Order
from hogwild.errors import HogwildWarning, InputError
from hogwild.kernels import linear, multiclass, simulated, turns
from hogwild.kernels.control import cells
from hogwild.kernels.cycles import ticks_in
from hogwild.kernels.linear import Data, Parameters, Plan
from hogwild.kernels.losses import COUNT_LOSSES, DEFAULT_PARAM, LABEL_LOSSES, LOSSES
from hogwild.kernels.order import PADDING
from hogwild.kernels.tiers import PIECE, Replica
from hogwild.problems.tiers import KAPPA, LINE, no_tiers, one_tier
from hogwild.problems.work import NO_LIMIT, InChunks, OrderSlice, Prepared, Shared

FLUSH = 8  # rows between two updates of the shared intercept by one of several lock-free workers
FALLING = ("inverse", "optimal")  # schedules whose step falls within an epoch
TABLE_WIDTH = 1 << 20  # features up to which l2 factors are tabulated once an epoch
FAR = 4  # times the L2 cache: weights of at least this size are prefetched; below, it costs more than it saves
MAX_CLASSES = 10_000
MANY_CLASSES = 64  # of which some are no whole numbers: they look like real targets
COMPARED = 1 << 16  # values at a time
EXACT = 2**24  # float32 holds all whole numbers below
SHARE_ROWS, SHARE_NONZEROS = 2_048, 1 << 22  # that intercept_share looks at, in memory


class Scratch(NamedTuple):
    """What one worker owns."""

    rows: np.ndarray  # (chunk + PADDING,) int64
    table: np.ndarray  # (width,) float32 for kernels.linear.shrink_table, or empty
    buffer: np.ndarray  # float32: class vectors and gathered coordinates
    state: np.ndarray  # (STATE,) int64: how far the chunk in hand is, see kernels/linear.py
    own: np.ndarray  # (size,) float32: a tiered worker's private copy, in the user's numbering
    base: np.ndarray  # (size,) float32: the shared values as of its last merges, by rank
    piece: np.ndarray  # (PIECE,) float32
    counts: np.ndarray  # (2, tiers) int64, and
    sums: np.ndarray  # (3, tiers) float64: when each tier was merged and is due, see kernels/tiers.py


@dataclass(frozen=True)
class LinearProblem(Prepared, InChunks):
    """Everything a worker must know beside the arrays; made by :meth:`of`."""

    loss: str
    loss_param: float
    l1: float
    l2: float
    adagrad: bool
    discipline: str
    intercept: float  # share of the step it takes, 0: there is none (see intercept_share)
    normalize: str
    labels: tuple[float, ...]  # the user's, ascending; empty for real targets
    width: int
    longest: int  # most nonzeros in a row
    falling: bool  # the step falls within an epoch
    far: bool  # the weights outgrow the cache
    unit: bool  # all values are one
    delay: int = 0  # ticks that a gradient costs extra, see kernels/cycles.py
    tabulate: bool = True  # whether l2 factors may be tabulated: not where few rows come at a time

    @classmethod
    def of(cls, config: TrainConfig, rows: Rows, discipline: str, cache_bytes: int = 2 << 20) -> LinearProblem:
        """The problem that ``config`` poses on these training rows.

        Raises
        ------
        InputError
            If the loss does not fit the targets, or there are no rows or only one class.
        """
        if len(rows) == 0:
            raise InputError("the training data have no rows")
        labels = tuple(float(label) for label in _labels(rows.targets, config.loss))
        param = DEFAULT_PARAM[config.loss] if config.loss_param is None else config.loss_param
        stride = _stride(len(labels)) if _vector(config.loss, len(labels)) else 1
        return cls(
            config.loss, float(param), float(config.l1), float(config.l2), config.adagrad, discipline,
            intercept_share(config, rows), config.normalize, labels, rows.width, int((rows.end - rows.begin).max()),
            config.schedule in FALLING,
            4 * rows.width * stride > FAR * cache_bytes,
            stride == 1 and all_ones(rows.values), ticks_in(config.gradient_delay),
        )  # fmt: skip

    @cached_property
    def classes(self) -> int:
        """Margins of a row."""
        return len(self.labels) if _vector(self.loss, len(self.labels)) else 1

    @cached_property
    def stride(self) -> int:
        """Weights of a feature in memory: the classes rounded up, so that a feature starts on an aligned address."""
        return _stride(self.classes) if self.classes > 1 else 1

    @property
    def locks(self) -> int:
        """Number of locks the discipline takes."""
        return max(self.width, 1) if self.discipline == "aig" else 1

    @property
    def size(self) -> int:
        """Length of the flat float32 parameter array."""
        return self._layout[-1]

    @cached_property
    def _layout(self) -> tuple[int, int, int]:
        """Length of the weights and of the intercept, each padded to cache lines, and of everything."""
        coef, intercept = (-(-n * self.stride // LINE) * LINE for n in (self.width, 1))
        return coef, intercept, (coef + intercept) * (2 if self.adagrad else 1)

    def parameters(self, flat: np.ndarray) -> Parameters:
        """The named views of the flat array."""
        coef, intercept, _ = self._layout
        squares = flat[coef + intercept :]
        return Parameters(
            flat[: self.width * self.stride],
            flat[coef : coef + self.stride],
            squares[: self.width * self.stride if self.adagrad else 0],
            squares[coef : coef + self.stride] if self.adagrad else squares[:0],
        )

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of the flat array with a row a feature, as views (width, stride)."""
        parts = self.parameters(flat)
        return [part.reshape(self.width, self.stride) for part in (parts.coef, parts.coef_squares) if part.size]

    def solution(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(coef, intercept)``, copied: (K, width) and (K,) for K classes, (width,) and (1,) for one margin."""
        parts = self.parameters(flat)
        if self.classes == 1:
            return parts.coef.copy(), parts.intercept.copy()
        coef = parts.coef.reshape(self.width, self.stride)[:, : self.classes]
        return np.ascontiguousarray(coef.T), parts.intercept[: self.classes].copy()

    def encode(self, targets: np.ndarray) -> np.ndarray:
        """Targets as kernels want them, float32: -1 and +1, the class number, or the target itself.

        Raises
        ------
        InputError
            For a label that was not among the training labels.
        """
        if not self.labels:
            return np.ascontiguousarray(targets, dtype=np.float32)
        codes = np.searchsorted(self.labels, targets).clip(max=len(self.labels) - 1)
        wrong = np.asarray(self.labels)[codes] != targets
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(f"label {shortest(targets[row])} in row {row} was not among the labels")
        return (codes if self.classes > 1 else 2 * codes - 1).astype(np.float32)

    def row_arrays(self, rows: Rows, class_weight: str | None) -> dict[str, np.ndarray]:
        """What kernels need per row and per feature: targets, weights, scales (both maybe empty) and rates N / d_u."""
        empty = np.empty(0, dtype=np.float32)
        scales = row_scales(rows, self.normalize)
        weights = row_weights(rows, class_weight)
        penalised = self.l1 > 0 or self.l2 > 0
        rates = (len(rows) / np.maximum(degrees(rows), 1)).astype(np.float32) if penalised else empty
        return {
            "targets": self.encode(rows.targets),
            "weights": empty if weights is None else weights,
            "scales": empty if scales is None else scales,
            "rates": rates,
        }

    def scratch(self, order: Order, tiers: int = 0) -> Scratch:
        """A worker's own memory, for so many tiers."""
        gathered = self.longest * self.stride if self.discipline == "round-robin" else 0
        replica = self.size if self.discipline == "tiered" else 0
        return Scratch(
            np.empty(order.chunk + PADDING, dtype=np.int64),
            np.empty(self.width if self._tabulates else 0, dtype=np.float32),
            np.zeros(multiclass.VECTORS * self.stride + gathered, dtype=np.float32),
            np.zeros(linear.STATE, dtype=np.int64),
            aligned(replica),
            aligned(replica),
            aligned(PIECE),
            np.zeros((2, tiers), dtype=np.int64),
            np.zeros((3, tiers), dtype=np.float64),
        )

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Set the parameters that training starts from: zeros, as they are."""

    def data(self, arrays: Mapping[str, np.ndarray]) -> Data:
        """What the kernel reads, of read-only arrays by name."""
        return Data(**arrays)

    def prepare(
        self, shared: Shared, scratch: Scratch, data: Data, part: OrderSlice, step: tuple[float, float, float]
    ) -> Callable[[], Any]:
        """``work`` as a function of nothing, for the simulator, which calls it once for every few rows or events."""
        penalty = self._penalty
        if self._tabulates and step[2] == 0.0:
            penalty = linear.L2_TABLE
            linear.shrink_table(scratch.table, data.rates, np.float32(step[0]), np.float32(self.l2))
            data = data._replace(rates=readonly(scratch.table))
        plan = self._plan(part, step)
        if part.limit == NO_LIMIT:
            scratch.state[:] = 0
        if part.crew is not None:
            events = simulated.events(LOSSES[self.loss], int(self.classes > 1), penalty, int(self.adagrad))
            return partial(events, shared.parameters, data, shared.control, plan, scratch.rows, part.crew)
        kernel, parameters = self._kernel(penalty), shared.parameters  # type: Any, Parameters
        own: tuple[Any, ...] = (scratch.rows, scratch.buffer, scratch.state)
        if self.discipline != "round-robin":
            base = self.parameters(scratch.base)
            replica = Replica(*parameters, *base, scratch.piece, *scratch.counts, *scratch.sums)
            own = (*own, shared.tiers, replica)
        if self.discipline == "tiered":
            parameters = self.parameters(scratch.own)
        return partial(kernel, parameters, data, shared.control, shared.locks, plan, *own)

    def _plan(self, part: OrderSlice, step: tuple[float, float, float]) -> Plan:
        order, alone = part.order, self.discipline in ("serial", "locked", "round-robin", "tiered")
        return Plan(
            blocks=part.blocks, n_rows=order.n_rows, block=order.block, shuffled=int(order.shuffled),
            n_chunks=order.n_chunks, start=part.start * order.chunk, seed=part.seed, epoch=part.epoch, step=step,
            l1=self.l1, l2=self.l2, loss_param=self.loss_param, intercept=self.intercept,
            flush=1 if alone or part.workers == 1 else FLUSH,
            worker=part.worker, workers=part.workers, classes=self.classes, stride=self.stride,
            limit=part.limit, kappa=KAPPA, delay=self.delay,
        )  # fmt: skip

    @property
    def _penalty(self) -> int:
        return linear.ELASTIC if self.l1 > 0 else linear.L2 if self.l2 > 0 else linear.NO_PENALTY

    @property
    def _tabulates(self) -> bool:
        """Whether workers keep a table of the l2 factors where the step allows; not for models as large as the data."""
        few = self.width <= TABLE_WIDTH and self.tabulate
        return self._penalty == linear.L2 and not self.adagrad and few

    def _kernel(self, penalty: int) -> Any:
        """The compiled loop for this loss and discipline."""
        loss, adagrad, delayed = LOSSES[self.loss], int(self.adagrad), int(self.delay > 0)
        if self.discipline == "round-robin":
            return (multiclass if self.classes > 1 else turns).turns(loss, penalty, adagrad, delayed)
        source, constants = (multiclass, (0, 0)) if self.classes > 1 else (linear, (int(self.far), int(self.unit)))
        return source.epoch(loss, linear.DISCIPLINES[self.discipline], penalty, adagrad, *constants, delayed)

    def compile(self) -> None:
        """Compile the kernel, or load it from the disk cache, by running it over one empty row."""
        self.rehearse(1, 1)

    def rehearse(self, n_rows: int, width: int) -> float:
        """Seconds that one worker takes for rows without features; tiered: merging ``width`` features after each."""
        order, small = Order(n_rows, 1, False), dataclasses.replace(self, width=width, delay=min(self.delay, 1))
        tiers = one_tier(width) if self.discipline == "tiered" else no_tiers()
        flat = aligned(small.size)
        shared = Shared(small.parameters(flat), np.zeros(cells(1), np.int64), np.zeros(1, np.int32), tiers)
        blocks = np.arange(n_rows, dtype=np.int32)
        part = OrderSlice(order, blocks, 0, 0, 0, 0, 1)
        # a table of l2 factors would be looked up by feature
        scratch = small.scratch(order, len(tiers.intervals))._replace(table=np.empty(0, dtype=np.float32))
        seconds = 0.0
        for step in (0.0, *([0.0] if n_rows > 1 else [])):  # the first time perhaps compiles
            small.begin_epoch(shared.control, order, 0)
            start = time.perf_counter()
            small.work(shared, scratch, _empty_data(n_rows), part, (step, 1.0, 1.0 if self.falling else 0.0))
            seconds = time.perf_counter() - start
        return seconds


def aligned(size: int) -> np.ndarray:
    """Zeros (size,) float32 that start on a cache line and share none with other memory."""
    padded = np.zeros(size + 2 * LINE, dtype=np.float32)
    start = -padded.__array_interface__["data"][0] // 4 % LINE
    return padded[start : start + size]


def all_ones(values: np.ndarray) -> bool:
    """Whether all values are one, as those of binary features; other data are found out by the first few."""
    pieces = (values[first : first + COMPARED] for first in range(0, len(values), COMPARED))
    return bool((values[:64] == 1.0).all()) and all(bool((piece == 1.0).all()) for piece in pieces)


def intercept_share(config: TrainConfig, rows: Rows) -> float:
    """The share of the step that the intercept takes, so that it moves other rows' margins as other features do.

    An update along row i moves the margin of row j by ``step * g * x_i . x_j`` through the weights and by ``step * g``
    through the intercept. On text ``x_i . x_j`` is a few hundredths, so an intercept with the full step swings from one
    row's wish to the next's. The share is the mean of ``x_i . x_j``, that is ``||mean x||^2``, at least 1 % of the mean
    of ``x_i . x_i`` (for centred data) and at most 1. scikit-learn takes 0.01 for all sparse data for the same reason.
    AdaGrad finds the scale of each coordinate itself.
    """
    if not config.intercept:
        return 0.0
    if config.adagrad:
        return 1.0
    ids = rows.spread(SHARE_NONZEROS, SHARE_ROWS)
    sample = rows if len(ids) == len(rows) and rows.contiguous else rows.select(ids).compact()
    part = slice(sample.begin[0], sample.end[-1])
    values = scaled(sample.values[part], sample, config.normalize, np.float64)
    total = np.bincount(sample.indices[part], weights=values)
    own, mutual = (np.einsum("i,i->", x, x) for x in (values, total / len(sample)))  # without BLAS and its threads
    return float(np.clip(max(mutual, 0.01 * own / len(sample)), 1e-4, 1.0))


def row_weights(rows: Rows, class_weight: str | None) -> np.ndarray | None:
    """Sample weights times class weights, scaled to mean one, float32; None if all are one.

    ``balanced`` gives a row of class c the weight ``n / (classes * n_c)``, as scikit-learn does.

    Raises
    ------
    InputError
        If all weights are zero.
    """
    weights = None if rows.weights is None else rows.weights.astype(np.float64)
    if class_weight == "balanced":
        _, codes, counts = np.unique(rows.targets, return_inverse=True, return_counts=True)
        balanced = (len(rows) / (len(counts) * counts))[codes]
        weights = balanced if weights is None else weights * balanced
    if weights is None:
        return None
    if not weights.sum() > 0:
        raise InputError("weights: all rows have weight zero")
    return (weights / weights.mean()).astype(np.float32)


def _vector(loss: str, labels: int) -> bool:
    return labels > 2 or loss == "softmax"


def _stride(classes: int) -> int:
    unit = 4 if classes <= 8 else 16
    return -(-classes // unit) * unit


def _labels(targets: np.ndarray, loss: str) -> np.ndarray:
    if loss not in LABEL_LOSSES:
        if loss in COUNT_LOSSES and targets.min() < 0:
            raise InputError(f"loss {loss} is for counts: row {int(np.argmin(targets))} has a negative target")
        return np.empty(0)
    labels = np.unique(targets)
    if len(labels) < 2:
        only = shortest(labels[0])
        raise InputError(f"all {len(targets)} rows have the label {only}: loss {loss} needs two or more classes")
    if len(labels) > MAX_CLASSES:
        raise InputError(
            f"{len(labels)} different labels are too many classes for loss {loss} (at most {MAX_CLASSES}): "
            "for real targets choose a regression loss such as squared-error"
        )
    large = labels[np.abs(labels) >= EXACT]
    if len(large):
        raise InputError(
            f"label {shortest(large[0])}: whole numbers of 2^24 and more are one with their neighbours in float32: "
            "give the classes smaller numbers"
        )
    if len(labels) > MANY_CLASSES and (labels % 1 != 0).any():
        warnings.warn(
            f"the targets have {len(labels)} different values, and each is taken for a class: for real targets choose "
            "a regression loss such as squared-error",
            HogwildWarning,
            stacklevel=2,
        )
    return labels


def _empty_data(n_rows: int) -> Data:
    """Rows without features, typed as real data are."""
    arrays = [np.zeros(n_rows, dtype) for dtype in (np.int64, np.int64, np.int32, *[np.float32] * 5)]
    return Data(*(readonly(array) for array in arrays))
