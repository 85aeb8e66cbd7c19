"""The work of a pool of workers: a problem, an order and their arrays, ready to be sent to a process.

Each worker opens rows in a store by path, so the page cache shares them; rows in memory are copied once into shared
memory. Threads use the arrays in place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hogwild.data.mapped import Mapped, entries_of
from hogwild.data.rows.container import Rows, readonly
from hogwild.data.rows.degrees import unranked
from hogwild.exchanges.direct import DirectLink, compile_locks, serving
from hogwild.exchanges.late import Counted, Raced, Trader, compile_raced, looks, until
from hogwild.exchanges.replicas import all_left_out, take
from hogwild.exchanges.trade import Counts, Exchange, Served
from hogwild.hosts.shared import Block, overlaid
from hogwild.hosts.slowed import Slowed
from hogwild.hosts.timed import seconds_of
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
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.tiers import plan_tiers
from hogwild.problems.work import NO_GUARDS, Cut, Guarded, OrderSlice, Problem, Shared

OWN = ("tier_", "exchange_", "link_", "group_")  # prefixes of arrays that are not data


@dataclass
class Job:
    """The work of one run. :meth:`of` creates it; pickling sends it (shared blocks travel as file descriptors)."""

    problem: Problem
    order: Cut
    seed: int
    workers: int
    parameters: Block  # "flat": the one float32 array of all parameters, in a block of its own
    state: Block  # control cells, locks, blocks of the order, and data that processes cannot reach otherwise
    mapped: dict[str, Mapped]  # data that processes map from files
    exchange: Exchange | None = None
    local: dict[str, np.ndarray] = field(default_factory=dict)  # data used in place by threads; never sent
    wire: Wire = field(default_factory=Wire)  # between virtual replicas
    slow: Wire | None = None  # that real replicas feel
    group: int = 1  # workers that race on one array: all, without an exchange
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
        slow: Wire | None = None,
        group: int = 1,
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
        slow : Wire, optional
            The network that their messages feel; without one, they take no time.
        group : int
            With an exchange, how many workers race on a replica.
        """
        tiers = no_tiers() if tiers is None else tiers
        copied = {name: array for name, array in data.items() if name not in (mapped or {})} if shared else {}
        copied |= {f"tier_{name}": array for name, array in tiers._asdict().items()}
        state: dict[str, Any] = {
            "control": ((cells(workers),), np.int64),
            "locks": ((problem.locks * (workers // group if group > 1 and exchange else 1),), np.int32),
            "blocks": ((order.n_blocks,), np.int32),
        }
        if exchange is not None:
            shards = exchange.shards if isinstance(exchange, Served) else 0
            if shards or slow:
                compile_locks()  # once, here, and not by all workers at once
            replicas = workers // group
            links = (Slowed if slow else DirectLink).spec(replicas, exchange.room(problem.size, replicas), shards)
            state |= {f"link_{name}": shape for name, shape in links.items()}
            spec = exchange.spec(problem.size, replicas)
            state |= {f"exchange_{name}": shape for name, shape in spec.items()}
            state["group_traded"] = (replicas,), np.int64  # rows that each replica has done up to its last trade
            if group > 1:
                compile_raced()
                # "raced": on which workers race; "ready": whether they may; "ended": workers with nothing left to do
                state |= {"group_raced": spec["replicas"], "group_anchor": spec["replicas"]}
                state |= {"group_ready": ((replicas,), np.int64), "group_ended": ((workers,), np.int64)}
        state |= {name: (array.shape, array.dtype) for name, array in copied.items()}
        job = cls(
            problem,
            order,
            seed,
            workers,
            Block({"flat": ((problem.size,), np.float32)}, shared, tiers.in_place),
            Block(state, shared),
            (mapped or {}) if shared else {},
            exchange,
            slow=slow,
            group=workers if exchange is None else group,
        )
        for name, array in copied.items():
            job.state[name][...] = array
        if not shared:
            job.local = {name: readonly(array) for name, array in data.items()}
        job._start()
        return job

    @classmethod
    def of_rows(
        cls,
        problem: LinearProblem,
        order: Cut,
        seed: int,
        workers: int,
        rows: Rows,
        arrays: dict[str, np.ndarray],
        shared: bool,
        tiers: Tiers | None = None,
        exchange: Exchange | None = None,
        slow: Wire | None = None,
        group: int = 1,
    ) -> Job:
        """Create a job from rows and ``problem.row_arrays``."""
        entries, mapped = entries_of(rows, shared)
        if tiers is None and problem.discipline == "tiered":
            tiers = plan_tiers(problem, rows, arrays, workers, group=workers if exchange is None else group)
        return cls.of(problem, order, seed, workers, entries | arrays, shared, mapped, tiers, exchange, slow, group)

    def _start(self) -> None:
        flat = self.export() if self.numbering.size else self.flat
        self.problem.start(flat, self.seed)
        if flat is not self.flat:
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
        """The arrays that the kernel writes."""
        return Shared(self.problem.parameters(self.flat), self.control, self.state["locks"], self.tiers)

    @property
    def tiers(self) -> Tiers:
        """The ranking of a tiered run, read-only; otherwise empty."""
        return Tiers(*(self.state.readonly(f"tier_{name}") for name in Tiers._fields))

    @property
    def numbering(self) -> np.ndarray:
        """The problem's number of each feature, (width,) int32, where the parameters have an order of their own."""
        return self.tiers.features

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Arrays of the ``exchange`` or its ``link``, by their own names; all workers share them."""
        prefix += "_"
        return {name[len(prefix) :]: a for name, a in self.state.arrays.items() if name.startswith(prefix)}

    def kept(self) -> dict[str, np.ndarray]:
        """The arrays that a checkpoint must hold beside the parameters, by their names there."""
        names = () if self.exchange is None else self.exchange.kept()
        return {f"exchange_{name}": self.state[f"exchange_{name}"] for name in names}

    def export(self) -> np.ndarray:
        """Return a copy of the parameters in the problem's numbering, (size,) float32."""
        if self.pull is not None:
            self.pull()
        flat = self.flat.copy()
        if self.numbering.size:
            for mine, theirs in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                unranked(mine, self.numbering, theirs)
        return flat

    def restore(self, flat: np.ndarray) -> None:
        """Set the parameters from an array that :meth:`export` returned."""
        self.flat[:] = flat
        if self.numbering.size:
            for mine, theirs in zip(self.problem.per_feature(self.flat), self.problem.per_feature(flat)):
                mine[:] = theirs[self.numbering]

    def scratch(self) -> Any:
        """Return a worker's private memory."""
        tiers, problem = self.tiers, self.problem
        scratch = problem.scratch(self.order, len(tiers.intervals))
        if isinstance(problem, LinearProblem) and tiers.in_place:
            return scratch._replace(own=overlaid(self.flat, problem.private(int(tiers.bounds[-1]))))
        return scratch

    def data(self) -> Any:
        """Return the arrays that the kernel reads, read-only."""
        if self.local:
            return self.problem.data(self.local)
        own = ("control", "locks", "blocks")
        names = [name for name in self.state.arrays if name not in own and not name.startswith(OWN)]
        sent = {name: self.state.readonly(name) for name in names}
        return self.problem.data(sent | {name: array.open() for name, array in self.mapped.items()})

    def begin_epoch(self, epoch: int, start: int, share: tuple[int, int] = (0, 1)) -> None:
        """Shuffle the blocks and set the shared cells (while the workers stand still).

        With a ``share`` of (part, parts) the workers do those chunks only whose number is ``part`` modulo ``parts``.
        """
        self.problem.shuffle(self.state["blocks"], self.order, self.seed, epoch)
        self.state["locks"][:] = 0  # an epoch that failed may have left some held
        self.problem.begin_epoch(self.control, self.order, start)
        part, parts = share
        self.control[NEXT], self.control[SKIP] = start + (part - start) % parts, parts - 1
        if self.exchange is not None:
            self._kind.reset(self.arrays("link"))
            for name in {"group_traded", "group_ready", "group_ended"} & set(self.state.arrays):
                self.state[name][:] = 0
            self.arrays("exchange")["left_out"][:] = 0
            self.exchange.begin(self.flat, self.arrays("exchange"))

    def meet(self) -> None:
        """Complete the epoch (while the workers stand still): with an exchange, set the parameters."""
        if self.exchange is not None:
            rows, arrays = self._rows().sum(axis=1), self.arrays("exchange")
            steps = self.exchange.meeting(self.problem.size, arrays)
            for step in steps:
                DirectLink.count(self.arrays("link"), step)
            self.exchange.meet(self.flat, arrays, rows)
            if all_left_out(arrays, rows):
                self.flat[:] = np.nan
            if self.slow is not None:
                self._pass(sum(seconds_of(self.slow, step) for step in steps))

    def _pass(self, seconds: float) -> None:
        """Let time pass, unless the run is over."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0 and not self.control[ABORT]:
            time.sleep(min(rest, 0.05))

    def sent(self) -> Counts:
        """Counts of what the replicas have sent since :meth:`begin_epoch`, and how long they waited."""
        if self.exchange is None:
            return Counts()
        return DirectLink.counted(self.arrays("link")).plus(self.left_out())

    def left_out(self) -> Counts:
        """How many changes of replicas have been left out since :meth:`begin_epoch`."""
        return Counts(deltas_left_out=int(self.arrays("exchange")["left_out"].sum()))

    def bury(self, worker: int) -> None:
        """Free what a worker held when it died, so that nobody waits for it (in the parent)."""
        replica, rank = divmod(worker, self.group)
        if self.exchange is not None and rank == 0:  # the one that trades
            self._kind.free(self.arrays("link"), replica)
            if isinstance(self.exchange, Served):
                self.exchange.lost(self.arrays("exchange"), replica)

    def part(self, task: Task, worker: int, limit: int = NO_LIMIT) -> OrderSlice:
        """A worker's share of a task, in calls of at most ``limit`` examples."""
        blocks = self.state["blocks"]
        return OrderSlice(self.order, blocks, self.seed, task.epoch, task.start, worker, self.group, limit)

    def work(self, shared: Shared, scratch: Any, data: Any, task: Task, worker: int) -> None:
        """Do one worker's share of an epoch."""
        exchange = self.exchange
        if exchange is None:
            self.problem.prepare(shared, scratch, data, self.part(task, worker), task.step)()
            return
        replica, rank = divmod(worker, self.group)
        if rank and not until(lambda: bool(self.state["group_ready"][replica]), self.control):
            return
        raced = self._raced(replica) if rank else self.replica(replica, task.step[0])
        limit = NO_LIMIT if rank else looks(exchange, self.group)
        part, shared = self.part(task, worker, limit), self.seen(shared, raced)
        turn = self.problem.prepare(shared, scratch, data, part, task.step)
        if rank:
            turn()
            self.state["group_ended"][worker] = 1
        else:
            about = exchange, self.arrays("exchange"), self._connect(replica), raced
            Trader(*about, self.counted(replica), partial(self.alone, replica)).train(turn, limit)

    def replica(self, number: int, step: float) -> Raced:
        """A replica of the task that begins with this ``step``, for who trades it; its other workers may begin."""
        take(self.flat, self.arrays("exchange"), number, step)
        raced = self._raced(number)
        if self.group > 1 and not self.state["group_ready"][number]:
            raced.begin()
            self.state["group_ready"][number] = 1
        return raced

    def guards(self) -> np.ndarray:
        """Which lock protects each parameter, or -1; empty if none does."""
        return self.problem.guards() if isinstance(self.problem, Guarded) else NO_GUARDS

    def seen(self, shared: Shared, raced: Raced) -> Shared:
        """The arrays that the kernel writes, of a worker that trains a replica."""
        return shared._replace(parameters=self.problem.parameters(raced.mine), locks=raced.locks)

    def _rows(self) -> np.ndarray:
        """Rows done in this task, (replicas, group) int64."""
        return self.control[WORKERS:].reshape(-1, LINE)[:, ROWS].reshape(-1, self.group)

    def counted(self, replica: int) -> Counted:
        """What a replica's workers have done, of which the first keeps account."""
        return Counted(self._rows()[replica], self.state["group_traded"][replica : replica + 1])

    def alone(self, replica: int) -> bool:
        """Whether the others of a group have nothing left to do."""
        return self.group == 1 or bool(self.state["group_ended"].reshape(-1, self.group)[replica, 1:].all())

    def _raced(self, replica: int) -> Raced:
        """A replica, as workers train it and as it is traded."""
        problem, state, about = self.problem, self.state, (replica, slice(self.problem.size))
        ours = state["exchange_replicas"][about]
        if self.group == 1:
            return Raced(ours, ours, ours, NO_GUARDS, state["locks"], self.control)
        locks = state["locks"].reshape(-1, problem.locks)[replica]
        shrinks = self.exchange is not None and self.exchange.shrinks
        mine, anchor = state["group_raced"][about], state["group_anchor"][about]
        return Raced(mine, ours, anchor, self.guards(), locks, self.control, shrinks)

    @property
    def _kind(self) -> type[DirectLink]:
        return DirectLink if self.slow is None else Slowed

    def _connect(self, replica: int) -> DirectLink:
        """The link of a replica."""
        assert self.exchange is not None
        about = self.arrays("link"), replica, serving(self.exchange, self.arrays("exchange"))
        return DirectLink(*about) if self.slow is None else Slowed(*about, self.slow)

    def done(self) -> tuple[int, int]:
        """Rows and nonzeros done in this epoch; while workers run, either may be a chunk ahead."""
        counts = self.control[WORKERS:].copy().reshape(-1, LINE)
        return int(counts[:, ROWS].sum()), int(counts[:, NONZEROS].sum())

    def finished(self) -> bool:
        """Whether the whole epoch was handed out, or the workers were asked to stop (while they stand still)."""
        control = self.control
        if self.problem.discipline == "round-robin":  # each worker's last turn only applies pending updates
            return bool(control[TURN] >= control[LAST] + self.workers)
        return bool(control[NEXT] >= (control[END] or self.order.n_chunks) or control[STOP])

    def position(self) -> int:
        """Number of the task's chunks that are done (while the workers stand still)."""
        return self.problem.position(self.control, self.order)

    def stop(self) -> None:
        """Ask the workers to finish their current chunk and return."""
        self.control[STOP] = 1


@dataclass(frozen=True)
class Task:
    """One epoch, or the rest of it."""

    epoch: int  # from 0
    start: int  # first chunk
    step: tuple[float, float, float]


class WorkerState:
    """State of one worker; thread and process workers pass every message to it."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self._job: Job | None = None
        self._parts: Any = None

    def take(self, message: Job | Task | None) -> None:
        """Lay out a job, run a task of it, or (None) drop it and free its memory."""
        if isinstance(message, Task):
            assert self._job is not None
            shared, scratch, data = self._parts
            self._job.work(shared, scratch, data, message, self.worker)
            return
        self._job = self._parts = None
        if message is not None:
            self._parts = message.shared(), message.scratch(), message.data()
            self._job = message
