"""Candidates trained side by side: a lane for each step and penalty, in vectors of up to 16 lanes.

What they share (loss, normalisation, columns, the rows and their order) is the linear problem; what they differ in is a
:class:`Candidate`. A group of lanes reads the rows once and has its own memory, so groups are trained by threads that
share nothing: the result is the same on any number of cores, to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.data.order import Order
from hogwild.data.parallel import in_order
from hogwild.data.rows.container import EMPTY, Rows, readonly
from hogwild.errors import UsageError
from hogwild.kernels.losses import LOSSES, PASSIVE
from hogwild.kernels.order import PADDING, shuffle_blocks
from hogwild.problems.linear.kernel import Data, Parameters
from hogwild.problems.linear.lanes import kernel
from hogwild.problems.linear.problem import OUTGROWN, LinearProblem, aligned
from hogwild.training.schedule import Schedule

SIZES = (4, 8, 16)  # lanes of a vector
NONE = -1  # no class, no fold
SMALLEST = 3e-10  # share of the largest penalty that a smaller one, or none, counts for when steps are interpolated
ROOM = 0.5  # share of the memory that weights may take
PROBED = 3  # penalties whose steps are searched for


@dataclass(frozen=True)
class Candidate:
    """One candidate.

    Attributes
    ----------
    schedule : Schedule
        Its steps, by epoch.
    l1, l2 : float
    fold : int
        The fold whose rows it leaves out; -1: it learns from all.
    label : int
        Number of the class that it tells from the others, if there are more than two.
    """

    schedule: Schedule
    l1: float
    l2: float
    fold: int = NONE
    label: int = NONE


class Candidates:
    """Lanes on the same rows in the same order.

    Parameters
    ----------
    problem : LinearProblem
        What the lanes share; its own penalties count for nothing.
    rows : Rows
    arrays : dict of arrays
        ``targets``, ``weights`` and ``scales`` of the rows, as ``LinearProblem.row_arrays`` returns them.
    lanes : sequence of Candidate
    order : Order
    seed : int
        The order of an epoch is that of a run with this seed.
    fold_of : array of int32, shape (n,), optional
        The fold of each row.
    first : float
        The intercepts to start from; weights start from zeros.

    Raises
    ------
    UsageError
        If the weights take too much memory.
    """

    def __init__(
        self,
        problem: LinearProblem,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        lanes: Sequence[Candidate],
        order: Order,
        seed: int = 0,
        fold_of: np.ndarray | None = None,
        first: float = 0.0,
    ) -> None:
        _check_room(problem, len(lanes), fold_of is not None)
        self.rows = rows
        self.order = order
        self.epoch = 0
        self.seed = seed
        l1, l2 = max(lane.l1 for lane in lanes), max(lane.l2 for lane in lanes)
        apart = rows.inverse is not None and l1 > 0 and l2 > 0
        self.problem = dataclasses.replace(problem, l1=l1, l2=l2, apart=apart, discipline="serial", scaled=False)
        self.fold_of = None if fold_of is None else readonly(np.ascontiguousarray(fold_of, dtype=np.int32))
        given = {name: readonly(arrays[name]) for name in ("targets", "weights", "scales")}
        self.data = Data(rows.begin, rows.end, rows.indices, rows.values, rates=EMPTY, **given)
        if self.fold_of is None:
            self.data = self.data._replace(rates=readonly(self.problem.rates(rows)))
        size = next((size for size in SIZES if size >= len(lanes)), SIZES[-1])
        self._groups = [_Group(self, lanes[k : k + size], size) for k in range(0, len(lanes), size)]
        for group in self._groups:
            group.parameters.intercept[:] = first

    def train(self, epochs: int = 1) -> None:
        """Do some epochs."""
        if len(self._groups) == 1:
            self._groups[0].train(self, epochs)
        else:
            for _ in in_order(self._groups, lambda group: group.train(self, epochs)):
                pass
        self.epoch += epochs

    def keep(self, lanes: Sequence[int]) -> None:
        """Go on with these lanes only, in this order."""
        size, old = self._groups[0].size, self._groups
        kept = [old[lane // size].lanes[lane % size] for lane in lanes]
        self._groups = [_Group(self, kept[k : k + size], size) for k in range(0, len(kept), size)]
        for k, lane in enumerate(lanes):
            for part, before in zip(self._groups[k // size].parameters, old[lane // size].parameters, strict=True):
                part[k % size :: size] = before[lane % size :: size]

    def solution(self, lane: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights (width,) and intercept (1,) of a lane, as copies."""
        group = self._groups[lane // self._groups[0].size]
        coef, intercept = (part[lane % group.size :: group.size].copy() for part in group.parameters[:2])
        return coef, intercept

    def model(self, lanes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Weights and intercepts of the lanes of one model: (K, width) and (K,) for K classes, (width,) and (1,)."""
        coefs, intercepts = zip(*map(self.solution, lanes), strict=True)
        return (coefs[0] if len(lanes) == 1 else np.stack(coefs)), np.concatenate(intercepts)


def _check_room(problem: LinearProblem, lanes: int, folded: bool) -> None:
    needed, (total, _) = 4 * problem.width * lanes * (1 + problem.adagrad + folded), machine.memory()
    if total is not None and needed > ROOM * total:
        raise UsageError(
            f"{lanes} sets of {problem.width:,} weights side by side take {needed / 2**30:.1f} GiB, over half of the "
            "memory: choose among fewer penalties"
        )


class _Group:
    """Lanes that fill one vector, and their memory."""

    def __init__(self, of: Candidates, lanes: Sequence[Candidate], size: int) -> None:
        self.lanes = lanes
        self.size = size
        self.rates = of.data.rates
        width, adagrad = of.problem.width, of.problem.adagrad
        sizes = [width * size, size, *((width * size, size) if adagrad else (0, 0))]
        self.parameters = Parameters(*(aligned(length) for length in sizes))
        self.buffer = np.zeros(kernel.VECTORS * size, dtype=np.float32)
        self.rows = np.empty(of.order.chunk + PADDING, dtype=np.int64)
        if of.fold_of is not None:
            self.rates = readonly(self._own_rates(of))
        self.constants = (
            self._filled([lane.l1 for lane in lanes], np.float32),
            self._filled([lane.l2 for lane in lanes], np.float32),
            self._filled([of.problem.intercept] * len(lanes), np.float32),
            self._filled([lane.label for lane in lanes], np.int32),
            self._filled([lane.fold for lane in lanes], np.int32),
        )

    @np.errstate(all="ignore")  # without the JIT, NumPy's scalars warn where machine numbers just overflow
    def train(self, of: Candidates, epochs: int) -> None:
        """Do some epochs."""
        p = of.problem
        order = of.order
        steps = np.zeros((3, self.size))
        folds = readonly(np.zeros(0, np.int32)) if of.fold_of is None else of.fold_of
        known = p.adagrad, 4 * p.width * self.size > OUTGROWN * machine.l2_bytes()
        rest = self.size, int(len(p.labels) > 2), int(of.fold_of is not None), PASSIVE[p.passive]
        blocks = np.empty(order.n_blocks, dtype=np.int32)
        for epoch in range(of.epoch, of.epoch + epochs):
            shuffle_blocks(blocks, order.n_rows, order.block, int(order.shuffled), of.seed, epoch)
            steps[:, : len(self.lanes)] = np.array([lane.schedule.plan(epoch) for lane in self.lanes]).T
            loop = kernel.epoch(LOSSES[p.loss].code, p.penalty(bool(steps[2].any())), *map(int, known), *rest)
            plan = kernel.LanePlan(
                blocks,
                order.n_rows,
                order.block,
                int(order.shuffled),
                order.n_chunks,
                of.seed,
                epoch,
                steps,
                *self.constants,
                folds,
                p.loss_param,
            )
            loop(self.parameters, of.data._replace(rates=self.rates), plan, self.rows, self.buffer)

    def _filled(self, values: Sequence[float], dtype: Any) -> np.ndarray:
        numbers = np.zeros(self.size, dtype=dtype)
        numbers[: len(values)] = values
        return numbers

    def _own_rates(self, of: Candidates) -> np.ndarray:
        """Rates of each lane's own rows, (width * size,), and for two penalties on scaled columns (width,) more."""
        p, fold_of = of.problem, of.fold_of
        if not (p.l1 > 0 or p.l2 > 0):
            return EMPTY
        by_fold = {
            fold: p.rates(of.rows.select(np.flatnonzero(fold_of != fold)))
            for fold in {lane.fold for lane in self.lanes}
        }
        rates = np.zeros((p.width, self.size), dtype=np.float32)
        for k, lane in enumerate(self.lanes):
            rates[:, k] = by_fold[lane.fold][: p.width]
        more = next(iter(by_fold.values()))[p.width :]
        return np.concatenate((rates.ravel(), more))


def steps_between(search: Callable[[float], float], penalties: Sequence[float]) -> list[float]:
    """A step for each of the ascending penalties: the first, the middle and the last are searched for.

    The logarithm of a good step falls about evenly with that of the penalty, from where the penalty matters.
    """
    places = np.unique(np.linspace(0, len(penalties) - 1, PROBED).round().astype(int))
    powers = [math.log2(step) for step in in_order((penalties[place] for place in places), search)]
    sizes = np.log(np.maximum(penalties, SMALLEST * (penalties[-1] or 1.0)))
    return [float(2.0**power) for power in np.interp(sizes, sizes[places], powers)]
