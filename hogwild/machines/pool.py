"""The workers of this machine, and an exchange between it and the others.

To the engine this is a pool like any other. ``begin`` of machine 0 tells the others the task, who takes part and with
what step; each does every P-th chunk of it, and while workers race on the array a thread trades it with the other
machines. A task is done when all machines have done their share and the array is the same everywhere. If one dies in a
task the others may have seen its last messages or not, so with the next task machine 0 sends the model.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError
from hogwild.exchanges import make_exchange
from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.trade import Counts
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import NO_LIMIT, STOP
from hogwild.machines.cluster import Cluster
from hogwild.machines.frames import MODEL, Frame, Message
from hogwild.machines.link import MachineLink

LOOK = 1e-3  # seconds between two looks at the workers' count of rows, with a period
WAIT = 0.05  # for messages


def among(
    cluster: Cluster, config: TrainConfig, examples: int, agree: Callable[[], None] = lambda: None
) -> Callable[[Pool], Pool]:
    """Return a function that makes a pool of several machines of this machine's own workers.

    ``agree`` is called when the memory is laid out, before anything is trained.
    """
    exchange = make_exchange(config.exchange, examples / cluster.machines, shrinks=config.l1 > 0)
    assert isinstance(exchange, Averaging)
    return lambda pool: Machines(pool, cluster, exchange, agree)


class Machines(Pool):
    """A pool of the workers of this machine that trades with other machines (see :class:`hogwild.hosts.pool.Pool`)."""

    def __init__(self, inner: Pool, cluster: Cluster, exchange: Averaging, agree: Callable[[], None]) -> None:
        self._agree: Callable[[], None] | None = agree
        self.inner, self.cluster, self._period = inner, cluster, exchange.period
        self._exchange = dataclasses.replace(exchange, period=min(exchange.period, NO_LIMIT - 1))  # it keeps a base
        self.host, self.shared, self.workers = inner.host, inner.shared, inner.workers
        self._arrays: dict[str, np.ndarray] = {}
        self._number = 0  # of the task
        self._members: list[int] = []
        self._in_step = False  # whether all machines have the same array
        self._link: MachineLink | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._gone = 0
        self._done, self._over = threading.Event(), False  # the workers have done their share; all is over
        self._told, self._ended, self._reported = False, set[int](), dict[int, dict[str, Any]]()

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
        total = Counts() if self._link is None else self._counts(self._link)
        for note in self._reported.values():
            total = total.plus(Counts(*note["sent"]))
        return total

    def _counts(self, link: MachineLink) -> Counts:
        return link.counts.plus(Counts(deltas_left_out=int(self._arrays["left_out"].sum())))

    def elsewhere(self) -> tuple[int, int]:
        """Rows and nonzeros that the other machines have done of the task, as far as this one has heard."""
        if self._done.is_set() and self._reported:
            notes = self._reported.values()
            return sum(note["rows"] for note in notes), sum(note["nonzeros"] for note in notes)
        others = [member for member in self._members if member != self.cluster.number]
        rows, nonzeros = self.cluster.progress[others].sum(axis=0)
        return int(rows), int(nonzeros)

    def share(self) -> tuple[int, int]:
        """Settle who takes part in the next task; return this machine's number among them, and how many they are."""
        if self.cluster.leads:
            members = [int(machine) for machine in np.flatnonzero(self.cluster.alive)]
            self._in_step, self._members = self._in_step and members == self._members, members
        return self._members.index(self.cluster.number), len(self._members)

    def open(self, job: Job) -> None:
        if self._agree is not None:
            self._agree()
            self._agree = None
        self.inner.open(job)
        self._arrays = {
            name: np.zeros(shape, kind)
            for name, (shape, kind) in self._exchange.spec(job.problem.size, self.cluster.machines).items()
        }
        self.cluster.own_progress = job.done
        self._in_step = False

    def begin(self, task: Task) -> None:
        cluster, job = self.cluster, self.inner.job
        assert job is not None
        self._number += 1
        if cluster.leads:
            self._tell(task, job)
        else:
            self._join(job)
        self._link = link = MachineLink(cluster, self._members, self._number, self._exchange.room(len(job.flat), 2))
        self._exchange.begin(job.flat, self._arrays)
        self._arrays["left_out"][:] = 0
        self._arrays["base"][link.replica, : len(job.flat)] = job.flat
        self._done.clear()
        self._told, self._error, self._reported, self._ended = False, None, {}, {cluster.number}
        self.inner.begin(task)
        self._thread = threading.Thread(target=self._trading, args=(job, link), name="hogwild-trade", daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        if not self._done.is_set():
            self._pass_on_stop()
            if self._error is not None and self.inner.job is not None:
                self.inner.job.stop()
            try:
                if not self.inner.wait(timeout):
                    return False
            except BaseException:
                self._over = True
                raise
            self._done.set()
        assert self._thread is not None
        self._thread.join(max(until - time.monotonic(), 0.0))
        if self._thread.is_alive():
            self._pass_on_stop()
            return False
        self._gone = int((~self.cluster.alive).sum())
        if self._error is not None:
            raise self._error
        return True

    def release(self, job: Job) -> None:
        self._end()
        self.inner.release(job)

    def close(self) -> None:
        """End the workers and let the other machines know."""
        self._end()
        self.inner.close()

    def _end(self) -> None:
        self._over = True
        if self.cluster.leads:
            self.cluster.tell({"kind": "end"})

    # ---- a task

    def follow(self, note: dict[str, Any]) -> Task:
        """Return the task that a note of machine 0 describes, and remember who takes part (on other machines)."""
        self._members, self._number = note["members"], note["task"] - 1
        self._in_step = note["in_step"]
        return Task(note["epoch"], note["start"], tuple(note["step"]))

    def _tell(self, task: Task, job: Job) -> None:
        """Tell the others what is next, and the model if it may differ from theirs."""
        note = {
            "kind": "task", "task": self._number, "epoch": task.epoch, "start": task.start, "step": list(task.step),
            "members": self._members, "in_step": self._in_step,
        }  # fmt: skip
        model = None if self._in_step else Frame(MODEL, self._number, message=Message(0, 0, 0, job.flat.copy()))
        for member in self._members[1:]:
            self.cluster.tell(note, member)
            if model is not None:
                self.cluster.send(member, model)
        self._in_step = True

    def _join(self, job: Job) -> None:
        """Take over machine 0's model, if it sends one."""
        cluster = self.cluster
        if self._in_step:
            return
        with cluster.changed:
            while self._number not in cluster.models:
                cluster.require(0)
                cluster.changed.wait(WAIT)
            model = cluster.models.pop(self._number)
        if len(model) != len(job.flat):
            raise TrainingError(f"{cluster.name(0)} sent a model of {len(model)} numbers, expected {len(job.flat)}")
        job.flat[:] = model

    def _pass_on_stop(self) -> None:
        """Ask the other machines to stop if this one, which leads, was asked to."""
        job = self.inner.job
        if self.cluster.leads and not self._told and job is not None and job.control[STOP]:
            self._told = True
            self.cluster.tell({"kind": "stop", "task": self._number})

    def _heed_stop(self, job: Job) -> None:
        """Stop if machine 0 says so (on the others)."""
        if 0 in self.cluster.take_notes("stop", self._number):
            job.stop()

    def _trading(self, job: Job, link: MachineLink) -> None:
        """Trade while the workers work, and afterwards until all machines have done their share."""
        try:
            self._trade_all(job, link)
        except BaseException as error:
            self._error = error

    def _trade_all(self, job: Job, link: MachineLink) -> None:
        arrays, traded = self._arrays, 0

        def trade() -> None:
            nonlocal traded
            done = job.done()[0]
            since, traded = done - traded, done
            self._drive(self._exchange.trade(job.flat, arrays, link, since), link)

        while not self._done.wait(LOOK if self._period < NO_LIMIT else WAIT):
            self.cluster.require(0)
            self._heed_stop(job)
            if self._period < NO_LIMIT and (job.done()[0] - traded >= self._period or self._round_begun(link)):
                trade()
        if link.replicas > 1:
            link.ended = True
            self.cluster.tell({"kind": "ended", "task": self._number})
            over = False
            while not over:
                self._drive(self._until_due(link), link)
                trade()
                over = link.all_ended(int(arrays["clock"][link.replica]))
            job.flat[:] = arrays["base"][link.replica, : len(job.flat)]  # the same numbers everywhere
        self._report(job, link)

    def _until_due(self, link: MachineLink) -> Iterator[None]:
        """Wait until another machine begins a round, or all have done their share."""
        while not self._round_begun(link):
            self._ended.update(self.cluster.take_notes("ended", self._number))
            if all(member in self._ended or not self.cluster.alive[member] for member in self._members):
                return
            yield

    def _round_begun(self, link: MachineLink) -> bool:
        """Whether others have begun a round that this machine has not."""
        link.receive()
        clock = int(self._arrays["clock"][link.replica])
        return any(queue and queue[-1].clock > clock for queue in link.inbox)

    def _report(self, job: Job, link: MachineLink) -> None:
        """Tell machine 0 what was done; there, wait for what the others say."""
        rows, nonzeros = job.done()
        cluster = self.cluster
        if not cluster.leads:
            sent = list(self._counts(link))
            missing = [member for member in self._members if not cluster.alive[member]]
            note = {"kind": "done", "task": self._number, "rows": rows, "nonzeros": nonzeros, "sent": sent}
            note["missing"] = missing
            cluster.tell(note, 0)
            return
        told: dict[str, Any]
        for member in self._members[1:]:
            try:
                told = {}
                while told.get("task") != self._number:
                    self._check()
                    told = cluster.next_note(member, ("done",), lambda: self._over)
                self._reported[member] = told
                self._drop(told["missing"], member)
            except TrainingError:  # gone: its rows are lost
                self._in_step = False
        about = [
            (rows, self._counts(link)),
            *((note["rows"], Counts(*note["sent"])) for note in self._reported.values()),
        ]
        left_out = [counts.deltas_left_out > 0 for done, counts in about if done]
        if left_out and all(left_out):  # as on one machine: the run has diverged
            job.flat[:] = np.nan

    def _drop(self, missing: list[int], by: int) -> None:
        """Give up machines that another one has given up, since all must see the same."""
        for machine in missing:
            self._in_step = False
            self.cluster.give_up(machine, f"it and {self.cluster.name(by)} no longer reach each other")

    def _check(self) -> None:
        if self._over:
            raise TrainingError("the run has ended")

    def _drive(self, trade: Iterator[None], link: MachineLink) -> None:
        """Run a trade to its end, waiting for messages where it waits."""
        for _ in trade:
            before = time.perf_counter()
            with self.cluster.changed:
                self.cluster.changed.wait(WAIT)
            link.waited_seconds += time.perf_counter() - before
            self._check()
            self.cluster.require(0)
