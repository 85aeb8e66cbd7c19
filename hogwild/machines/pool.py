"""The workers of this machine, and an exchange between it and the others.

To the engine this is a pool like any other. ``begin`` of machine 0 tells the others the task, who takes part and with
what step, and each does every P-th chunk of it. With :class:`Replicas` each machine has an array of its own, and while
workers race on it a thread trades it with the other machines (``trading.py``). A task is done when all machines have
done their share and the array is the same everywhere. If a machine dies in a task the others may have seen its last
messages or not, so with the next task machine 0 sends the model; so it does when one has come back. With ``Ring``
(``rotation.py``) the machines share out one array.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from hogwild.data.rows.degrees import Totals
from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.exchanges.trade import Counts, Exchange
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import STOP
from hogwild.machines.cluster import Cluster, Note
from hogwild.machines.trading import Trading, parameters, trading_of
from hogwild.training.schedule import slower


class Machines(Pool):
    """A pool of the workers of this machine that trains with other machines (see :class:`hogwild.hosts.pool.Pool`)."""

    def __init__(self, inner: Pool, cluster: Cluster) -> None:
        self.inner, self.cluster = inner, cluster
        self.host = inner.host
        self.shared = inner.shared
        self.workers = inner.workers
        self._number = 0  # of the task
        self._members: list[int] = []
        self._arrivals: list[int] = []  # of each of them
        self._in_step = False  # whether all machines have what they need for the next task
        self._note: Note = {}  # machine 0's about the task
        self._gone = cluster.losses
        self._ended = False
        self.reports: dict[int, Note] = {}  # by machine: what it has done of the task, on machine 0

    # ---- what the engine asks

    @property
    def lost(self) -> int:  # type: ignore[override]
        """Workers of this machine, and machines, that have died by the end of the latest task."""
        return self.inner.lost + self._gone

    @property
    def job(self) -> Job | None:
        return self.inner.job

    @property
    def closed(self) -> bool:
        return self.inner.closed

    def counts(self) -> Counts:
        """Counts of the latest task, of all machines."""
        return self.own_counts().plus(*(Counts(*note["sent"]) for note in self.reports.values()))

    def own_counts(self) -> Counts:
        """Counts of what this machine has sent in the latest task."""
        raise NotImplementedError

    def elsewhere(self) -> tuple[int, int]:
        """Rows and nonzeros that the other machines have done of the task, as far as this one has heard."""
        done = [(note["rows"], note["nonzeros"]) for note in self.reports.values()]
        rest = {*np.flatnonzero(self.cluster.alive)} & {*self._members} - {self.cluster.number, *self.reports}
        done += self.cluster.progress[[*rest]].tolist()
        return sum(rows for rows, _ in done), sum(nonzeros for _, nonzeros in done)

    def share(self, task: Task) -> tuple[int, int]:
        """Tell the others what is next, and who takes part (on machine 0); return this machine's number among them, and
        how many they are.
        """
        if self.cluster.leads and self.inner.job is not None:
            self._settle(self.cluster.members())
            self._number += 1
            self._tell(task)
        return self._members.index(self.cluster.number), len(self._members)

    @property
    def in_step(self) -> bool:
        """Whether all machines have the same array."""
        return self._in_step

    def _settle(self, members: list[int]) -> None:
        arrivals = [int(self.cluster.arrivals[member]) for member in members]
        self._in_step = self._in_step and (members, arrivals) == (self._members, self._arrivals)
        self._members, self._arrivals = members, arrivals

    def open(self, job: Job) -> None:
        self.inner.open(job)
        self.cluster.own_progress = job.done
        self._in_step = False

    def release(self, job: Job) -> None:
        self._end()
        self.inner.release(job)

    def close(self) -> None:
        """End the workers and let the other machines know."""
        self._end()
        self.inner.close()

    def _end(self) -> None:
        if self.cluster.leads and not self._ended:
            self._ended = True
            self.cluster.ending = True
            self.cluster.tell({"kind": "end"}, None, *self._model(self.in_step))

    def finish(self, note: Note) -> None:
        """Take over the model of machine 0, if it has sent one when it ended the run (on other machines)."""
        if self.inner.job is not None and len(note.get("array", ())):
            self._take(note, self.inner.job)

    # ---- a task

    def follow(self, note: Note) -> Task:
        """Return the task that a note of machine 0 describes, and remember who takes part (on other machines)."""
        self._settle(note["members"])
        self._number, self._in_step, self._note = note["task"], note["in_step"], note
        return Task(note["epoch"], note["start"], tuple(note["step"]))

    def _tell(self, task: Task) -> None:
        """Tell the others what is next, and the model if it may differ from theirs."""
        note = {
            "kind": "task",
            "task": self._number,
            "epoch": task.epoch,
            "start": task.start,
            "step": list(task.step),
            "members": self._members,
            "in_step": self._in_step,
        }
        for member in self._members[1:]:
            self.cluster.tell(note | {"start": self._start_of(member, task)}, [member], *self._model(self._in_step))

    def _start_of(self, member: int, task: Task) -> int:
        """The first chunk of a machine."""
        return task.start

    def _model(self, in_step: bool) -> list[np.ndarray]:
        """What is sent to machines that may have another model."""
        return [] if self.inner.job is None or in_step else [parameters(self.inner.job)]

    def _take(self, note: Note, job: Job) -> None:
        flat = parameters(job)
        (flat[:],) = self.cluster.arrays_of(note, (np.float32, len(flat)))

    def _join(self, job: Job) -> None:
        """Take over machine 0's model, if it has sent one (on other machines)."""
        if not self._in_step and not self.cluster.leads:
            self._take(self._note, job)
        self._in_step = True


class Replicas(Machines):
    """Machines with an array each, which they trade.

    Parameters
    ----------
    exchange : Exchange
    totals : Totals, optional
        With it every machine has rows of its own.
    """

    def __init__(
        self,
        inner: Pool,
        cluster: Cluster,
        exchange: Exchange,
        totals: Totals | None = None,
    ) -> None:
        super().__init__(inner, cluster)
        self._exchange, self._totals = exchange, totals
        self._starts = dict[int, int]()  # first chunks of others in an epoch that was stopped
        self._arrays: dict[str, np.ndarray] = {}
        self._trading: Trading | None = None
        self._worked = self._told = False

    def own_counts(self) -> Counts:
        return Counts() if self._trading is None else self._trading.own_counts()

    def share(self, task: Task) -> tuple[int, int]:
        share = super().share(task)
        return share if self._totals is None else (0, 1)

    def state(self) -> dict[str, Any]:
        if self._totals is None:
            return {}
        return {"starts": {self._totals.prints[other]: start for other, start in self._starts.items()}}

    def restore(self, header: dict[str, Any]) -> None:
        if self._totals is not None:
            self._starts = {k: int(header["starts"].get(one, 0)) for k, one in enumerate(self._totals.prints)}

    def open(self, job: Job) -> None:
        super().open(job)
        bring_together(*np.zeros((3, 1), np.float32), False)  # compiled, before the clock runs
        self._arrays = {}

    def begin(self, task: Task) -> None:
        job = self.inner.job
        assert job is not None
        self._join(job)
        count = len(self._members)
        if len(self._arrays.get("rows", ())) != count:
            spec = self._exchange.spec(len(parameters(job)), count)
            self._arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in spec.items()}
        self._trading = trading_of(self._exchange)(
            self.cluster, job, self._exchange, self._arrays, self._members, self._number
        )
        self.reports = self._trading.reports
        self._worked = self._told = False
        self.inner.begin(self._own(task))
        self._trading.start()

    def wait(self, timeout: float) -> bool:
        until, trading = time.monotonic() + timeout, self._trading
        assert trading is not None
        if not self._worked:
            self._pass_on_stop()
            if trading.error is not None and self.inner.job is not None:
                self.inner.job.stop()
            try:
                if not self.inner.wait(timeout):
                    return False
            except BaseException:
                trading.over = True
                raise
            self._worked = True
            trading.worked()
        if not trading.wait(until - time.monotonic()):
            self._pass_on_stop()
            return False
        self._in_step = self._in_step and trading.in_step()
        self._gone = self.cluster.losses
        if (job := self.inner.job) is not None:
            stopped = job.position() < job.order.n_chunks
            self._starts = {other: note["chunk"] for other, note in self.reports.items()} if stopped else {}
        if trading.error is not None:
            raise trading.error
        return True

    def _end(self) -> None:
        if self._trading is not None:
            self._trading.over = True
        super()._end()

    def _own(self, task: Task) -> Task:
        """Return a task with a step that falls with the rows of all machines, where this one has a share of them."""
        if self._totals is None:
            return task
        step = slower(task.step, self._totals.each[self.cluster.number] / self._totals.rows)
        return dataclasses.replace(task, step=step)

    def _start_of(self, member: int, task: Task) -> int:
        return task.start if self._totals is None else self._starts.get(member, 0)

    def _pass_on_stop(self) -> None:
        """Ask the other machines to stop if this one, which leads, was asked to."""
        job = self.inner.job
        if self.cluster.leads and not self._told and job is not None and job.control[STOP]:
            self._told = True
            self.cluster.tell({"kind": "stop", "task": self._number})
