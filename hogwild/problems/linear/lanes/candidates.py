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
from typing import NamedTuple

import numpy as np

from hogwild import machine
from hogwild.data.order import Order
from hogwild.data.parallel import in_order
from hogwild.data.rows.container import Rows, readonly
from hogwild.errors import UsageError
from hogwild.kernels.losses import LOSSES, PASSIVE
from hogwild.kernels.order import PADDING
from hogwild.problems.linear.kernel import CLASSES, SETS, Data, Parameters
from hogwild.problems.linear.lanes import kernel
from hogwild.problems.linear.problem import OUTGROWN, LinearProblem, aligned
from hogwild.problems.protocol import OrderSlice
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
        The fold of each row. A penalty weighs as much against each row as in a fit on all of them.
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
        total, _ = machine.memory()
        needed = 4 * problem.width * len(lanes) * (1 + problem.adagrad)
        if total is not None and needed > ROOM * total:
            raise UsageError(
                f"{len(lanes)} sets of {problem.width:,} weights side by side take {needed / 2**30:.1f} GiB, over half "
                "of the memory: choose among fewer penalties"
            )
        self.epoch = 0
        self.problem = dataclasses.replace(
            problem,
            l1=max(lane.l1 for lane in lanes),
            l2=max(lane.l2 for lane in lanes),
            discipline="serial",
            scaled=False,
            tabulate=False,
        )
        self._order = order
        self._seed = seed
        self._fold_of = None if fold_of is None else readonly(np.ascontiguousarray(fold_of, dtype=np.int32))
        of_rows = ("targets", "weights", "scales", "label_indptr", "label_indices")
        given = {name: readonly(arrays[name]) for name in of_rows}
        rates = readonly(self.problem.rates(rows))
        self._data = Data(rows.begin, rows.end, rows.indices, rows.values, rates=rates, **given)
        self._size = next((size for size in SIZES if size >= len(lanes)), SIZES[-1])
        self._groups = self._grouped(lanes)
        for group in self._groups:
            group.parameters.intercept[:] = first

    def train(self, epochs: int = 1) -> None:
        """Do some epochs."""
        todo = range(self.epoch, self.epoch + epochs)
        for _ in in_order(self._groups, lambda group: self._train(group, todo)):
            pass
        self.epoch += epochs

    def keep(self, lanes: Sequence[int]) -> None:
        """Go on with these lanes only, in this order."""
        before = self._groups
        self._groups = self._grouped([before[lane // self._size].lanes[lane % self._size] for lane in lanes])
        for k, lane in enumerate(lanes):
            for part, old in zip(self._parameters(self._groups, k), self._parameters(before, lane), strict=True):
                part[:] = old

    def model(self, lanes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Weights and intercepts of the lanes of one model: (K, width) and (K,) for K classes, (width,) and (1,)."""
        parts = [self._parameters(self._groups, lane) for lane in lanes]
        coef = np.stack([weights for weights, *_ in parts])
        return coef[0] if len(lanes) == 1 else coef, np.concatenate([intercept for _, intercept, *_ in parts])

    def _grouped(self, lanes: Sequence[Candidate]) -> list[_Group]:
        size, adagrad = self._size, self.problem.adagrad
        weights = self.problem.width * size
        lengths = weights, size, weights * adagrad, size * adagrad
        parts = [lanes[k : k + size] for k in range(0, len(lanes), size)]
        return [_Group(part, Parameters(*map(aligned, lengths))) for part in parts]

    def _parameters(self, groups: list[_Group], lane: int) -> list[np.ndarray]:
        """Views of a lane's parameters."""
        return [part[lane % self._size :: self._size] for part in groups[lane // self._size].parameters]

    @np.errstate(all="ignore")  # without the JIT, NumPy's scalars warn where machine numbers just overflow
    def _train(self, group: _Group, epochs: range) -> None:
        p, order, lanes, size = self.problem, self._order, group.lanes, self._size

        def vector(values: Sequence[float], dtype: type) -> np.ndarray:
            return np.pad(np.array(values, dtype), (0, size - len(lanes)))

        of_lanes = kernel.LanePlan(
            np.zeros((3, size)),
            vector([lane.l1 for lane in lanes], np.float32),
            vector([lane.l2 for lane in lanes], np.float32),
            vector([lane.label for lane in lanes], np.int32),
            vector([lane.fold for lane in lanes], np.int32),
            readonly(np.zeros(0, np.int32)) if self._fold_of is None else self._fold_of,
        )
        far = 4 * p.width * size > OUTGROWN * machine.l2_bytes()
        folded = int(self._fold_of is not None)
        several = SETS if p.multilabel else CLASSES if len(p.labels) > 2 else 0
        codes = LOSSES[p.loss].code, p.penalty(True), int(p.adagrad), int(far), size, several, folded
        loop = kernel.epoch(*codes, PASSIVE[p.passive])
        blocks = np.empty(order.n_blocks, dtype=np.int32)
        memory = np.empty(order.chunk + PADDING, dtype=np.int64), np.zeros(kernel.VECTORS * size, dtype=np.float32)
        for epoch in epochs:
            p.shuffle(blocks, order, self._seed, epoch)
            of_lanes.steps[:, : len(lanes)] = np.array([lane.schedule.plan(epoch) for lane in lanes]).T
            plan = p.plan(OrderSlice(order, blocks, self._seed, epoch, 0, 0, 1), (0.0, 1.0, 0.0))
            loop(group.parameters, self._data, plan, of_lanes, *memory)


class _Group(NamedTuple):
    """Lanes that fill one vector."""

    lanes: Sequence[Candidate]
    parameters: Parameters


def steps_between(search: Callable[[float], float], penalties: Sequence[float]) -> list[float]:
    """A step for each of the ascending penalties: the first, the middle and the last are searched for.

    The logarithm of a good step falls about evenly with that of the penalty, from where the penalty matters.
    """
    places = np.unique(np.linspace(0, len(penalties) - 1, PROBED).round().astype(int))
    powers = [math.log2(step) for step in in_order((penalties[place] for place in places), search)]
    sizes = np.log(np.maximum(penalties, SMALLEST * (penalties[-1] or 1.0)))
    return [float(2.0**power) for power in np.interp(sizes, sizes[places], powers)]
