"""What a pool of workers is given: a problem, an order, and the arrays it works on, ready to be sent to a process.

Rows that lie in a store are opened by each worker by path, so the page cache is the sharing; rows in memory are copied
once into shared memory. Threads are given the arrays as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hogwild.data.examples import Rows, readonly
from hogwild.data.order import Order
from hogwild.data.store import read_meta
from hogwild.exchanges.averaging import Replicas
from hogwild.hosts.shared import Block
from hogwild.kernels.control import LAST, LINE, NEXT, NONZEROS, ROWS, STOP, TURN, WORKERS, cells
from hogwild.kernels.linear import Data
from hogwild.kernels.order import shuffle_blocks
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear import LinearProblem, OrderSlice, Scratch, Shared
from hogwild.problems.tiers import no_tiers, plan_tiers

IN_USE = "the pool of workers is at work for another run: runs at the same time need a pool each"


@dataclass
class Job:
    """One run's work; :meth:`of` makes it, pickling sends it (shared blocks travel as file descriptors)."""

    problem: LinearProblem
    order: Order
    seed: int
    workers: int
    parameters: Block  # "flat": the one float32 array of all parameters, alone in its block
    state: Block  # control cells, locks, blocks of the order, arrays per row and per feature
    store: Path | None  # where processes find indices and values; None: they are in ``state``
    exchange: str = "none"
    local: dict[str, np.ndarray] = field(default_factory=dict)  # arrays used in place by threads; never sent

    @classmethod
    def of(
        cls, problem: LinearProblem, order: Order, seed: int, workers: int, rows: Rows, arrays: dict[str, np.ndarray],
        shared: bool, tiers: Tiers | None = None, exchange: str = "none",
    ) -> Job:  # fmt: skip
        """Lay out the memory of a run and copy into it what workers cannot reach otherwise.

        Parameters
        ----------
        arrays : dict
            ``problem.row_arrays(rows)``.
        shared : bool
            For worker processes; else everything is used where it lies.
        tiers : Tiers, optional
            Of the discipline ``tiered``, if they are made already.
        exchange : str
            One of ``config.EXCHANGES``.
        """
        state: dict[str, Any] = {
            "control": ((cells(workers),), np.int64),
            "locks": ((problem.locks,), np.int32),
            "blocks": ((order.n_blocks,), np.int32),
        }
        if exchange != "none":
            spec = Replicas.spec(problem.size, workers)
            state |= {f"replica_{name}": shape for name, shape in spec.items()}
        data = {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values} | arrays
        if tiers is None:
            tiers = plan_tiers(problem, rows, arrays, workers) if problem.discipline == "tiered" else no_tiers()
        state |= {f"tier_{name}": (array.shape, array.dtype) for name, array in tiers._asdict().items()}
        if shared:
            if rows.store is None and not _tight(rows):
                rows = rows.compact()
                data |= {"begin": rows.begin, "end": rows.end, "indices": rows.indices, "values": rows.values}
            sent = {name: data[name] for name in data if rows.store is None or name not in ("indices", "values")}
            if rows.store is not None and _whole(rows):  # the offsets are one memory map too
                sent = {name: array for name, array in sent.items() if name not in ("begin", "end")}
            state |= {name: (array.shape, array.dtype) for name, array in sent.items()}
        job = cls(
            problem, order, seed, workers, Block({"flat": ((problem.size,), np.float32)}, shared),
            Block(state, shared), rows.store if shared else None, exchange,
        )  # fmt: skip
        for name, array in tiers._asdict().items():
            job.state[f"tier_{name}"][...] = array
        if shared:
            for name, array in sent.items():
                job.state[name][...] = array
        else:
            job.local = {name: readonly(array) for name, array in data.items()}
        return job

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"local": {}}

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

    def scratch(self) -> Scratch:
        """A worker's own memory."""
        return self.problem.scratch(self.order, len(self.tiers.intervals))

    def data(self) -> Data:
        """What the kernel reads, read-only."""
        if self.local:
            return Data(**self.local)
        arrays = {name: self.state.readonly(name) for name in Data._fields if name in self.state.arrays}
        if self.store is not None:
            indptr, indices, values = (_map(self.store, name) for name in ("indptr", "indices", "values"))
            arrays = {"begin": indptr[:-1], "end": indptr[1:]} | arrays | {"indices": indices, "values": values}
        return Data(**arrays)

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Shuffle the blocks and set the shared cells (the workers stand still)."""
        order = self.order
        shuffle_blocks(self.state["blocks"], order.n_rows, order.block, int(order.shuffled), self.seed, epoch)
        self.state["locks"][:] = 0  # an epoch that died may have left some held
        self.problem.begin_epoch(self.control, order, start)
        if (replicas := self.replicas) is not None:
            replicas.begin()

    def meet(self) -> None:
        """End what :meth:`begin_epoch` began (the workers stand still): with an exchange, set the parameters."""
        if (replicas := self.replicas) is not None:
            replicas.meet(self.control[WORKERS:].reshape(-1, LINE)[:, ROWS])

    def work(self, shared: Shared, scratch: Scratch, data: Data, task: Task, worker: int) -> None:
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

    def stop(self) -> None:
        """Ask the workers to finish the chunk in hand and return."""
        self.control[STOP] = 1


@dataclass(frozen=True)
class Task:
    """One epoch, or what is left of it."""

    epoch: int  # from 0
    start: int  # first chunk
    step: tuple[float, float, float]


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
    """Started workers that serve one job after another: ``threads.Threads`` or ``processes.Processes``.

    A pool that is dropped, or still there when the interpreter ends, closes itself.
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


def _tight(rows: Rows) -> bool:
    """Whether the flat arrays hold these rows and not much else, so that copying them whole wastes little."""
    return rows.contiguous and rows.nnz == len(rows.indices)


def _whole(rows: Rows) -> bool:
    """Whether these are all rows of their store, none of them cut short, so that the store's own offsets serve."""
    if rows.store is None or not rows.contiguous:
        return False
    meta = read_meta(rows.store)
    return (len(rows), rows.nnz) == (meta["rows"], meta["nnz"])


def _map(store: Path, name: str) -> np.ndarray:
    """One array of a store that the parent has opened and checked."""
    return np.asarray(np.load(store / f"{name}.npy", mmap_mode="r"))
