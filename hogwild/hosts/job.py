"""What a pool of workers is given: a problem, an order, and the arrays it works on, ready to be sent to a process.

Rows that lie in a store are opened by each worker by path, so the page cache is the sharing; rows in memory are copied
once into shared memory. Threads are given the arrays as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hogwild.data.examples import Rows, readonly
from hogwild.data.mapped import Mapped, entries_of
from hogwild.exchanges.averaging import Replicas
from hogwild.hosts.shared import Block
from hogwild.kernels.control import LAST, LINE, NEXT, NONZEROS, ROWS, STOP, TURN, WORKERS, cells
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear import LinearProblem
from hogwild.problems.tiers import no_tiers, plan_tiers
from hogwild.problems.work import Cut, OrderSlice, Problem, Shared

IN_USE = "the pool of workers is at work for another run: runs at the same time need a pool each"


@dataclass
class Job:
    """One run's work; :meth:`of` makes it, pickling sends it (shared blocks travel as file descriptors)."""

    problem: Problem
    order: Cut
    seed: int
    workers: int
    parameters: Block  # "flat": the one float32 array of all parameters, alone in its block
    state: Block  # control cells, locks, blocks of the order, and data that processes cannot reach otherwise
    mapped: dict[str, Mapped]  # data that processes find in files
    exchange: str = "none"
    local: dict[str, np.ndarray] = field(default_factory=dict)  # data used in place by threads; never sent
    pull: Callable[[], None] | None = None  # brings the parameters home, where workers have them elsewhere

    @classmethod
    def of(
        cls, problem: Problem, order: Cut, seed: int, workers: int, data: dict[str, np.ndarray], shared: bool,
        mapped: dict[str, Mapped] | None = None, tiers: Tiers | None = None, exchange: str = "none",
    ) -> Job:  # fmt: skip
        """Lay out the memory of a run, copy into it what workers cannot reach otherwise, and set the first parameters.

        Parameters
        ----------
        data : dict
            Arrays that the kernel reads, as ``problem.data`` takes them.
        shared : bool
            For worker processes; else everything is used where it lies.
        mapped : dict, optional
            Those of ``data`` that worker processes are to map from files instead.
        tiers : Tiers, optional
            Of the discipline ``tiered``.
        exchange : str
            One of ``config.EXCHANGES``.
        """
        tiers = no_tiers() if tiers is None else tiers
        copied = {name: array for name, array in data.items() if name not in (mapped or {})} if shared else {}
        copied |= {f"tier_{name}": array for name, array in tiers._asdict().items()}
        state: dict[str, Any] = {
            "control": ((cells(workers),), np.int64),
            "locks": ((problem.locks,), np.int32),
            "blocks": ((order.n_blocks,), np.int32),
        }
        if exchange != "none":
            spec = Replicas.spec(problem.size, workers)
            state |= {f"replica_{name}": shape for name, shape in spec.items()}
        state |= {name: (array.shape, array.dtype) for name, array in copied.items()}
        job = cls(
            problem, order, seed, workers, Block({"flat": ((problem.size,), np.float32)}, shared),
            Block(state, shared), (mapped or {}) if shared else {}, exchange,
        )  # fmt: skip
        for name, array in copied.items():
            job.state[name][...] = array
        if not shared:
            job.local = {name: readonly(array) for name, array in data.items()}
        job._start()
        return job

    @classmethod
    def of_rows(
        cls, problem: LinearProblem, order: Cut, seed: int, workers: int, rows: Rows, arrays: dict[str, np.ndarray],
        shared: bool, tiers: Tiers | None = None, exchange: str = "none",
    ) -> Job:  # fmt: skip
        """The same for the linear problem, of rows and what ``problem.row_arrays`` makes of them."""
        entries, mapped = entries_of(rows, shared)
        if tiers is None and problem.discipline == "tiered":
            tiers = plan_tiers(problem, rows, arrays, workers)
        return cls.of(problem, order, seed, workers, entries | arrays, shared, mapped, tiers, exchange)

    def _start(self) -> None:
        if not self.tiers.features.size:
            self.problem.start(self.flat, self.seed)
            return
        flat = self.export()
        self.problem.start(flat, self.seed)
        self.restore(flat)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"local": {}, "pull": None}

    @property
    def flat(self) -> np.ndarray:
        """The parameter array, (size,) float32."""
        return self.parameters["flat"]

    @property
    def control(self) -> np.ndarray:
        return self.state["control"]

    def shared(self) -> Shared:
        """What the kernel writes to."""
        return Shared(self.problem.parameters(self.flat), self.control, self.state["locks"], self.tiers)

    @property
    def tiers(self) -> Tiers:
        """The ranking of a tiered run, read-only; else without elements."""
        return Tiers(*(self.state.readonly(f"tier_{name}") for name in Tiers._fields))

    @property
    def replicas(self) -> Replicas | None:
        """The workers' own copies of the parameters, where there is an exchange."""
        if self.exchange == "none":
            return None
        arrays = {name: self.state[f"replica_{name}"] for name in Replicas.spec(0, 0)}
        return Replicas(self.flat, one_shot=self.exchange == "one-shot-averaging", **arrays)

    def export(self) -> np.ndarray:
        """A copy of the parameters in the user's numbering, (size,) float32."""
        if self.pull is not None:
            self.pull()
        flat = self.flat.copy()
        if self.tiers.features.size:
            for mine, theirs in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                theirs[self.tiers.features] = mine
        return flat

    def restore(self, flat: np.ndarray) -> None:
        """Set the parameters to what :meth:`export` gave."""
        self.flat[:] = flat
        if self.tiers.features.size:
            for mine, theirs in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                mine[:] = theirs[self.tiers.features]

    def scratch(self) -> Any:
        """A worker's own memory."""
        return self.problem.scratch(self.order, len(self.tiers.intervals))

    def data(self) -> Any:
        """What the kernel reads, read-only."""
        if self.local:
            return self.problem.data(self.local)
        own = ("control", "locks", "blocks")
        names = [name for name in self.state.arrays if name not in own and not name.startswith(("tier_", "replica_"))]
        sent = {name: self.state.readonly(name) for name in names}
        return self.problem.data(sent | {name: array.open() for name, array in self.mapped.items()})

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Shuffle the blocks and set the shared cells (the workers stand still)."""
        self.problem.shuffle(self.state["blocks"], self.order, self.seed, epoch)
        self.state["locks"][:] = 0  # an epoch that died may have left some held
        self.problem.begin_epoch(self.control, self.order, start)
        if (replicas := self.replicas) is not None:
            replicas.begin()

    def meet(self) -> None:
        """End what :meth:`begin_epoch` began (the workers stand still): with an exchange, set the parameters."""
        if (replicas := self.replicas) is not None:
            replicas.meet(self.control[WORKERS:].reshape(-1, LINE)[:, ROWS])

    def work(self, shared: Shared, scratch: Any, data: Any, task: Task, worker: int) -> None:
        """What one worker does in an epoch."""
        if (replicas := self.replicas) is not None:
            shared = shared._replace(parameters=self.problem.parameters(replicas.take(worker)))
        blocks = self.state["blocks"]
        part = OrderSlice(self.order, blocks, self.seed, task.epoch, task.start, worker, self.workers)
        self.problem.work(shared, scratch, data, part, task.step)

    def done(self) -> tuple[int, int]:
        """Rows and nonzeros done in this epoch so far; of workers at work, either may be a chunk ahead."""
        counts = self.control[WORKERS:].copy().reshape(-1, LINE)
        return int(counts[:, ROWS].sum()), int(counts[:, NONZEROS].sum())

    def finished(self) -> bool:
        """Whether all of the epoch was handed out, or the workers were asked to stop (they stand still)."""
        control = self.control
        if self.problem.discipline == "round-robin":  # the last turns, one a worker, only apply what is pending
            return bool(control[TURN] >= control[LAST] + self.workers)
        return bool(control[NEXT] >= self.order.n_chunks or control[STOP])

    def position(self) -> int:
        """Chunks of the task that are done (the workers stand still)."""
        return self.problem.position(self.control, self.order)

    def stop(self) -> None:
        """Ask the workers to finish the chunk in hand and return."""
        self.control[STOP] = 1


@dataclass(frozen=True)
class Task:
    """One epoch, or what is left of it, and maybe some more."""

    epoch: int  # from 0
    start: int  # first chunk
    step: tuple[float, float, float]
    further: tuple[tuple[float, float, float], ...] = ()  # steps of epochs that follow, of pools that join them


class Desk:
    """What one worker has before it; both hosts' workers hand every message here."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self._job: Job | None = None
        self._parts: Any = None

    def take(self, message: Job | Task | None) -> None:
        """Lay out a job, do a task of it, or (None) forget it, so that its memory can go."""
        if isinstance(message, Task):
            assert self._job is not None
            shared, scratch, data = self._parts
            self._job.work(shared, scratch, data, message, self.worker)
            return
        self._job = self._parts = None
        if message is not None:
            self._parts = message.shared(), message.scratch(), message.data()
            self._job = message


class Pool(Protocol):
    """Started workers that serve one job after another: ``threads.Threads``, ``processes.Processes``, ``cuda.Streams``.

    A pool that is dropped, or still there when the interpreter ends, closes itself. One that has an attribute
    ``joins_epochs`` which is true takes tasks of several epochs.
    """

    host: str
    shared: bool  # whether jobs must be in shared memory
    workers: int
    lost: int  # workers that have died

    @property
    def job(self) -> Job | None:
        """What the workers have before them."""

    @property
    def closed(self) -> bool:
        """Whether the workers have been told to end, maybe by another thread or the interpreter's exit."""

    def open(self, job: Job) -> None:
        """Give the workers a job and wait until they are ready for it."""

    def begin(self, task: Task) -> None:
        """Set the workers going."""

    def wait(self, timeout: float) -> bool:
        """Wait for at most ``timeout`` seconds; True when the task is done and all workers stand still."""

    def release(self, job: Job) -> None:
        """Have the workers drop the job, at once, if they have it; its memory goes with it."""

    def close(self) -> None:
        """End the workers; no process is left behind."""
