"""The interface of a problem: what workers call (:class:`Problem`), and what the trainer calls (:class:`Case`).

Every host calls ``problem.prepare(shared, scratch, data, part, step)()``. All workers write to ``shared``, one worker
owns ``scratch``, and nobody writes to ``data``. A problem is a few numbers, so it is pickled to worker processes as it
is; everything large reaches them through shared memory or a memory map.

A case is the parent's side: one problem posed on one set of data. It takes the user's data, makes the problem and the
arrays of its kernel, evaluates parameters and makes a model of them. The trainer knows no problem by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from hogwild.config import TrainConfig
from hogwild.kernels.control import LINE, NEXT, NO_LIMIT, ROWS, WORKERS
from hogwild.kernels.order import shuffle_blocks
from hogwild.kernels.tiers import Tiers
from hogwild.methods import PROBLEMS, located
from hogwild.training.schedule import Step

HOLDS = ("aig", "locked", "round-robin")  # disciplines in which a worker may die holding what others wait for


class Cut(Protocol):
    """How an epoch's examples are cut into the chunks that workers claim: ``data/order.Order``, or another class."""

    @property
    def n_rows(self) -> int:
        """Number of examples in an epoch."""

    @property
    def n_blocks(self) -> int:
        """Number of elements of the array that ``problem.shuffle`` permutes for an epoch."""

    @property
    def n_chunks(self) -> int:
        """Number of chunks that workers claim, counted from 0."""


class Shared(NamedTuple):
    """The arrays that all workers write to."""

    parameters: Any  # the problem's named views of the flat array
    control: np.ndarray  # int64, see kernels/control.py
    locks: np.ndarray  # int32, as many as the discipline uses
    tiers: Tiers  # read-only; empty unless tiered, when ``parameters`` hold the weights by rank


class OrderSlice(NamedTuple):
    """The part of an epoch that a call of ``work`` is to do, and the worker that does it."""

    order: Any  # a Cut
    blocks: np.ndarray  # (n_blocks,) int32
    seed: int
    epoch: int
    start: int  # first chunk: nonzero when an epoch is resumed
    worker: int
    workers: int
    limit: int = NO_LIMIT  # examples after which a call returns; it is then called again
    crew: Any = None  # virtual workers, whose events are done instead (see hosts/simulator.py)

    def facts(self) -> dict[str, Any]:
        """What the plans of all kernels say of it, as keywords."""
        order = {"n_rows": self.order.n_rows, "shuffled": int(self.order.shuffled)}
        return order | {name: getattr(self, name) for name in ("blocks", "seed", "epoch", "worker", "workers", "limit")}


class Problem(Protocol):
    """The interface that hosts ask of a problem, and of which all are made; ``linear/problem.py`` is an example.

    What has a default here is that of problems whose examples are cut by ``data/order.Order``, whose kernels claim its
    chunks. The simulator asks for more (``hosts/simulator.py``), as does the rotation of items between machines
    (``machines/rotation.py``).
    """

    discipline: str  # how an update reaches a shared coordinate
    falling: bool = False  # whether the step falls within an epoch
    has_events: ClassVar[bool] = False  # whether its kernel can be led through an example, see hosts/simulator.py

    @property
    def size(self) -> int:
        """Length of the flat float32 parameter array."""

    @property
    def trained(self) -> int:
        """How many numbers of the array, the first ones, are parameters; what follows a worker keeps."""
        return self.size

    def replica(self, w: Any, flat: Any) -> Any:
        """Do ``parameters`` for a replica ``w`` of the ``trained`` numbers, beside which the rest stays in ``flat``."""
        return self.parameters(w)

    @property
    def locks(self) -> int:
        """Number of locks that workers take, at least 1."""
        return 1

    @property
    def holds(self) -> bool:
        """Whether a worker that dies may hold what others wait for."""
        return self.discipline in HOLDS

    def parameters(self, flat: np.ndarray) -> Any:
        """Named views of the flat array."""

    def per_feature(self, flat: np.ndarray) -> list[np.ndarray]:
        """The parts of the flat array that tiers keep by rank, as views with a row for each feature."""
        return []

    def start(self, flat: np.ndarray, seed: int) -> None:
        """Write the parameters that training starts from into an array of zeros; by default these."""
        return None

    def data(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """The kernel's read-only inputs, made of arrays by name."""

    def scratch(self, order: Any, tiers: Tiers, flat: np.ndarray) -> Any:
        """A worker's own memory, beside the ``flat`` array that all share."""

    def shuffle(self, blocks: np.ndarray, order: Any, seed: int, epoch: int) -> None:
        """Fill ``blocks`` with an epoch's sequence."""
        shuffle_blocks(blocks, order.n_rows, order.block, int(order.shuffled), seed, epoch)

    def begin_epoch(self, control: np.ndarray, order: Any, start: int) -> None:
        """Set the shared cells for workers that start an epoch at chunk ``start``."""
        control[:] = 0
        control[NEXT] = start

    def position(self, control: np.ndarray, order: Any) -> int:
        """Number of chunks done, while the workers stand still."""
        return int(min(control[NEXT], order.n_chunks))

    def prepare(self, shared: Shared, scratch: Any, data: Any, part: OrderSlice, step: Step) -> Callable[[], int]:
        """Return a function that does at most ``part.limit`` examples (modules: whole minibatches up to there), counts
        them in ``control`` and returns how many it did; a further call continues. A return below the limit means that
        the epoch has no more for this worker, or that the stop flag is up. State that an earlier function left in
        ``scratch`` is discarded.
        """

    def touched(self, scratch: Any, data: Any) -> np.ndarray | None:
        """Places in the flat array that a worker's latest example may have moved, each once; None if unknown."""
        return None

    def compile(self, shared: Shared, scratch: Any, data: Any, part: OrderSlice) -> None:
        """Compile the kernel, or load it from the disk cache, by a call for no examples: ``part`` has the limit 0."""
        self.prepare(shared, scratch, data, part, (0.0, 1.0, float(self.falling)))()


def part_of(users: Any, turn: Any, epoch: int, parts: int) -> Any:
    """The part of the items that meets a part of the users in a turn of an epoch. Over ``parts`` turns it meets all of
    them, and an epoch begins with that with which the last one has ended.
    """
    return (users + turn - epoch) % parts


def counted(kernel: Callable[[], Any], control: np.ndarray, worker: int) -> Callable[[], int]:
    """Wrap a kernel's call to return how many examples it has counted for the worker."""
    cell = WORKERS + LINE * worker + ROWS

    def turn() -> int:
        before = int(control[cell])
        kernel()
        return int(control[cell]) - before

    return turn


# ---- the parent's side


class Sums(NamedTuple):
    """The evaluation of some rows, before anything is divided."""

    totals: np.ndarray  # (m,) float64
    rows: int
    #: What the rows are ranked by, (n,) float32, and whether they are positive, for an area under a curve.
    ranked: tuple[np.ndarray, np.ndarray] | None = None


class Case(Protocol):
    """What :class:`hogwild.training.run.Run` asks of a problem on its data.

    It is made of a config with the number of workers filled in, the training data, and test data or None, both as
    ``take`` returns them; that of a linear model also of held-out data, if these are not the test data. What has a
    default here is what a problem has whose objective is not convex.
    """

    names: tuple[str, ...]  # names of a solution's arrays
    config: TrainConfig  # with discipline "auto" resolved
    problem: Problem
    order: Cut
    n: int  # examples in an epoch
    fingerprint: str  # of the training data
    note: str = ""  # what else was chosen by itself, for the user; empty if nothing
    reason: str = ""  # reason for what "auto" chose; empty if there was no choice
    held_out: str = ""  # field of the loss on rows held out of the training data, which may choose; "" without
    sampled: bool = False  # the data are too many to be evaluated but by a sample, also in the end
    convex: bool = False  # the objective is, so that a mean may be the better model; then :meth:`judge` judges it
    numbering: Any = None  # its own of flat parameters, with ``size`` and ``flat``; checkpoints have the user's
    numbered_solution: bool = False  # a solution is in this numbering too, until it is a model

    def __init__(self, config: TrainConfig, train: Any, test: Any, *held: Any) -> None: ...

    @staticmethod
    def take(data: Any) -> Any:
        """Convert the user's data to the problem's container, which has a length and a ``store``; raise UsageError."""

    @staticmethod
    def usual_holdout(config: TrainConfig, data: Any) -> float:
        """Share of the data that is held out to choose by if nobody says."""
        return 0.0

    def cut(self) -> dict[str, Any]:
        """What a checkpoint must store for its chunks to be found again, as JSON."""

    def recut(self, saved: dict[str, Any]) -> None:
        """Cut the data as a checkpoint's :meth:`cut` says."""

    def make_evaluator(self, like: Case | None = None) -> None:
        """Prepare to evaluate; called after all quick checks.

        ``like`` is a prepared case of the same objective on the same data, whose work may be shared.
        """

    def lay_out(self, shared: bool) -> Any:
        """Return a :class:`hogwild.hosts.job.Job` with the memory that workers need; what only they need is dropped."""

    def search_step(self) -> Callable[[], tuple[float, dict[str, Any]]]:
        """Prepare the search for a step when none was given; the function returned runs on the clock.

        It returns the step, and what was tried as fields of the first row. Not called where the config sets a step.
        """
        raise AssertionError("the config sets the step")

    def slope(self) -> Callable[[float], float]:
        """The derivative of the loss at a prediction for target 1, for the schedule "optimal"."""
        return lambda p: 1.0

    def solution(self, flat: Any) -> tuple[Any, ...]:
        """The arrays ``names`` of flat parameters, as copies."""

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        """The ``objective`` and the metrics, as fields of a row."""

    def glance(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        """The same of a fixed sample of many training rows, whose number is ``rows_evaluated`` then."""
        return self.evaluate(solution)

    def judge(self, solution: tuple[Any, ...]) -> float | None:
        """A share by which the objective can be lowered at least; None if unknown."""
        return None

    def improved(self, solution: tuple[Any, ...], epochs: int) -> tuple[tuple[Any, ...], float | None]:
        """A solution after exact steps on all rows, or the same one if its objective is as low; and the share of it
        that it may be above the optimum, None if that is unknown. Their work goes by the ``epochs`` of training.
        """
        return solution, None

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        """The row's field for the speed of an epoch."""
        return {"updates_per_second": updates / seconds if seconds else None}

    def model(self, solution: tuple[Any, ...], config: TrainConfig, history: list[dict[str, Any]]) -> Any:
        """The trained model."""


def with_discipline(config: TrainConfig) -> TrainConfig:
    """The config with discipline "auto" resolved, where there is nothing to choose by."""
    return config.settled(discipline="hogwild") if config.discipline == "auto" else config


def case_of(problem: str) -> type[Case]:
    """The class of cases of a problem, one of ``methods.PROBLEMS``."""
    kind: type[Case] = located(PROBLEMS[problem].case)
    return kind


def size_of(case: Case) -> int:
    """Number of parameters in the user's numbering."""
    return case.problem.size if case.numbering is None else int(case.numbering.size(case.problem))


def in_numbering(case: Case, arrays: dict[str, Any], users: bool = False) -> dict[str, Any]:
    """Arrays of a checkpoint, with parameters in the problem's numbering; with ``users``, back in the user's."""
    if case.numbering is None:
        return arrays
    flat = [name for name in ("flat", "mean") if name in arrays]
    arrays = arrays | {name: case.numbering.flat(case.problem, arrays[name], users) for name in flat}
    if case.numbered_solution:
        move = case.numbering.outward if users else case.numbering.inward
        arrays |= zip(case.names, move(*(arrays[name] for name in case.names)))
    return arrays
