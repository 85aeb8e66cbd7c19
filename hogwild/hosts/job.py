"""The work of a pool of workers: a problem, an order, their memory and their trader, ready to be sent to a process.

Each worker opens rows in a store by path, so the page cache shares them; rows in memory are copied once into shared
memory. Threads use the arrays in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.mapped import Mapped
from hogwild.data.rows.container import readonly
from hogwild.data.rows.degrees import unranked
from hogwild.errors import describe
from hogwild.exchanges.link import Trader
from hogwild.exchanges.trade import Counts, Exchange, take
from hogwild.hosts.memory import Block
from hogwild.kernels.control import (
    ABORT,
    END,
    LAST,
    LINE,
    NEXT,
    NO_LIMIT,
    NONZEROS,
    ROWS,
    SKIP,
    STOP,
    TURN,
    WORKERS,
    cells,
)
from hogwild.kernels.tiers import Tiers, no_tiers
from hogwild.methods import Wire
from hogwild.problems.protocol import Cut, OrderSlice, Problem, Shared


@dataclass
class Job:
    """The work of one run. :meth:`of` creates it; pickling sends it (shared blocks travel as file descriptors)."""

    problem: Problem
    order: Cut
    seed: int
    workers: int
    parameters: Block  # "flat": the one float32 array of all parameters, in a block of its own
    state: Block  # control cells, locks, and blocks of the order
    trader: Trader | None  # how the workers' replicas trade, if they have any
    ranking: Block  # the arrays of ``Tiers``
    copied: Block  # data that processes cannot reach otherwise
    mapped: dict[str, Mapped]  # data that processes map from files
    local: dict[str, np.ndarray]  # data used in place by threads; never sent
    wire: Wire = field(default_factory=Wire)  # between virtual replicas
    ahead: Callable[[int], None] | None = None  # reads data from the disk for the workers, from a chunk on
    pull: Callable[[], None] | None = None  # copies the parameters back from where workers keep them

    @classmethod
    def of(
        cls,
        problem: Problem,
        order: Cut,
        seed: int,
        workers: int,
        data: dict[str, np.ndarray],
        shared: bool,
        mapped: dict[str, Mapped] | None = None,
        tiers: Tiers | None = None,
        exchange: Exchange | None = None,
    ) -> Job:
        """Lay out a run's memory, copy into it what workers cannot reach otherwise, and set the initial parameters.

        Parameters
        ----------
        data : dict
            Arrays that the kernel reads, as ``problem.data`` takes them.
        shared : bool
            Whether worker processes need shared memory; otherwise everything is used in place.
        mapped : dict, optional
            Arrays of ``data`` that worker processes map from files instead.
        tiers : Tiers, optional
            For the discipline ``tiered``.
        exchange : Exchange, optional
            How the workers' replicas trade; without one, all workers share one array.
        """
        tiers = no_tiers() if tiers is None else tiers
        mapped = mapped if mapped and shared else {}
        state: dict[str, Any] = {
            "control": ((cells(workers),), np.int64),
            "locks": ((problem.locks,), np.int32),
            "blocks": ((order.n_blocks,), np.int32),
        }
        job = cls(
            problem,
            order,
            seed,
            workers,
            Block({"flat": ((problem.size,), np.float32)}, shared, tiers.in_place),
            Block(state, shared),
            None if exchange is None else Trader(exchange, problem.trained, workers, shared),
            Block.copy(tiers._asdict(), shared),
            Block.copy({name: array for name, array in data.items() if shared and name not in mapped}, shared),
            mapped,
            {} if shared else {name: readonly(array) for name, array in data.items()},
        )
        flat = job.export() if job.numbering.size else job.flat
        problem.start(flat, seed)
        if flat is not job.flat:
            job.restore(flat)
        return job

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"local": {}, "ahead": None, "pull": None}

    @property
    def flat(self) -> np.ndarray:
        """The parameter array, (size,) float32."""
        return self.parameters["flat"]

    @property
    def traded(self) -> np.ndarray:
        """The part of it that replicas, of workers or machines, have of their own."""
        return self.flat[: self.problem.trained]

    @property
    def control(self) -> np.ndarray:
        return self.state["control"]

    @property
    def tiers(self) -> Tiers:
        """The ranking of a tiered run, read-only; otherwise empty."""
        return Tiers(**self.ranking.readonly())

    @property
    def numbering(self) -> np.ndarray:
        """The problem's number of each feature, (width,) int32, where the parameters have an order of their own."""
        return self.tiers.features

    def kept(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint must hold beside the parameters, by their names there."""
        return {} if self.trader is None else self.trader.kept()

    def export(self) -> np.ndarray:
        """Return a copy of the parameters in the problem's numbering, (size,) float32."""
        if self.pull is not None:
            self.pull()
        flat = self.flat.copy()
        if self.numbering.size:
            for ranked, numbered in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                unranked(ranked, self.numbering, numbered)
        return flat

    def restore(self, flat: np.ndarray) -> None:
        """Set the parameters from an array that :meth:`export` returned."""
        self.flat[:] = flat
        if self.numbering.size:
            for ranked, numbered in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                ranked[:] = numbered[self.numbering]

    # ---- what a worker has

    def shared(self) -> Shared:
        """The arrays that the kernel writes."""
        return Shared(self.problem.parameters(self.flat), self.control, self.state["locks"], self.tiers)

    def scratch(self) -> Any:
        """Return a worker's private memory."""
        return self.problem.scratch(self.order, self.tiers, self.flat)

    def data(self) -> Any:
        """Return the arrays that the kernel reads, read-only."""
        opened = {name: array.open() for name, array in self.mapped.items()}
        return self.problem.data(self.local or self.copied.readonly() | opened)

    def part(self, task: Task, worker: int, limit: int = NO_LIMIT) -> OrderSlice:
        """A worker's share of a task, in calls of at most ``limit`` examples."""
        racing = self.workers if self.trader is None else 1
        blocks = self.state["blocks"]
        return OrderSlice(self.order, blocks, self.seed, task.epoch, task.start, worker, racing, limit)

    def compile(self, memory: tuple[Shared, Any, Any] | None = None) -> None:
        """Compile the kernel, or load it from the disk cache; ``memory``: a worker's, if there is one."""
        shared, scratch, data = memory or (self.shared(), self.scratch(), self.data())
        self.problem.compile(shared, scratch, data, self.part(Task(0, 0, (0.0, 1.0, 0.0)), 0, limit=0))

    def replica(self, shared: Shared, task: Task, worker: int) -> tuple[np.ndarray, Shared]:
        """A worker's replica, (trained,) float32, and the arrays that the kernel writes to train it."""
        assert self.trader is not None
        w = take(self.traded, self.trader.arrays, worker, task.step[0])
        return w, shared._replace(parameters=self.problem.replica(w, self.flat))

    def work(self, shared: Shared, scratch: Any, data: Any, task: Task, worker: int) -> None:
        """Do one worker's share of an epoch."""
        trader = self.trader
        if trader is None:
            self.problem.prepare(shared, scratch, data, self.part(task, worker), task.step)()
            return
        replica, shared = self.replica(shared, task, worker)
        part = self.part(task, worker, trader.exchange.period)
        trader.train(worker, replica, self.problem.prepare(shared, scratch, data, part, task.step), self.control)

    # ---- what the parent does, while the workers stand still

    def begin_epoch(self, epoch: int, start: int, share: tuple[int, int] = (0, 1)) -> None:
        """Shuffle the blocks and set the shared cells.

        With a ``share`` of (part, parts) the workers do those chunks only whose number is ``part`` modulo ``parts``.
        """
        self.problem.shuffle(self.state["blocks"], self.order, self.seed, epoch)
        self.state["locks"][:] = 0  # an epoch that failed may have left some held
        self.problem.begin_epoch(self.control, self.order, start)
        part, parts = share
        self.control[NEXT] = start + (part - start) % parts
        self.control[SKIP] = parts - 1
        if self.trader is not None:
            self.trader.begin(self.traded)

    def meet(self) -> None:
        """Complete the epoch: with an exchange, set the parameters."""
        if self.trader is not None:
            self.trader.meet(self.traded, self._progress()[:, ROWS])

    def read_ahead(self) -> None:
        """Have data that are larger than memory read before the workers want them."""
        if self.ahead is not None:
            self.ahead(int(self.control[NEXT]))

    def finished(self) -> bool:
        """Whether the whole epoch was handed out, or the workers were asked to stop."""
        control = self.control
        if control[LAST]:  # turns are those of rows, and each worker's last turn only applies pending updates
            return bool(control[TURN] >= control[LAST] + self.workers)
        return bool(control[NEXT] >= (control[END] or self.order.n_chunks) or control[STOP])

    def position(self) -> int:
        """Number of the task's chunks that are done."""
        return self.problem.position(self.control, self.order)

    # ---- and at any time

    def _progress(self) -> np.ndarray:
        """Each worker's own cells, (workers, LINE) int64."""
        return self.control[WORKERS:].copy().reshape(-1, LINE)

    def done(self) -> tuple[int, int]:
        """Rows and nonzeros done in this epoch; while workers run, either may be a chunk ahead."""
        progress = self._progress()
        return int(progress[:, ROWS].sum()), int(progress[:, NONZEROS].sum())

    def sent(self) -> Counts:
        """Counts of what the replicas have sent since :meth:`begin_epoch`, and how long they waited."""
        return Counts() if self.trader is None else self.trader.sent()

    def bury(self, worker: int) -> None:
        """Free what a worker held when it died, so that nobody waits for it."""
        if self.trader is not None:
            self.trader.bury(worker)

    def stop(self) -> None:
        """Ask the workers to finish their current chunk and return."""
        self.control[STOP] = 1

    def abort(self) -> None:
        """Ask the workers to return at once, even if they wait for others."""
        self.control[STOP] = self.control[ABORT] = 1


@dataclass(frozen=True)
class Task:
    """One epoch, or the rest of it."""

    epoch: int  # from 0
    start: int  # first chunk
    step: tuple[float, float, float]


def work_for(worker: int, receive: Callable[[], Any], answer: Callable[[tuple[int, str | None]], object]) -> None:
    """Be a worker, thread or process: lay out each job that arrives and run its tasks; None frees a job's memory.

    What is received is a message with its number, and at the end None. The answer to each is its number, with an error
    in one line if there was one.
    """
    job: Job | None = None
    parts: Any = None
    while (received := receive()) is not None:
        number, message = received
        problem = None
        try:
            if isinstance(message, Task):
                assert job is not None
                shared, scratch, data = parts
                job.work(shared, scratch, data, message, worker)
            else:
                job, parts = message, None
                if job is not None:
                    parts = job.shared(), job.scratch(), job.data()
                    if not job.local:  # in a process, which has not loaded the machine code yet
                        job.compile(parts)
        except BaseException as error:
            problem = describe(error)
        received = message = None  # a local reference would keep a dropped job alive
        answer((number, problem))
