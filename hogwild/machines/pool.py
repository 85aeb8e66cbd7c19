"""The workers of this machine, and an exchange between it and the others.

To the engine this is a pool like any other. ``begin`` of machine 0 tells the others the task, who takes part and with
what step; each does every P-th chunk of it, and while workers race on the array a thread trades it with the other
machines (``trading.py``). A task is done when all machines have done their share and the array is the same everywhere.
If a machine dies in a task the others may have seen its last messages or not, so with the next task machine 0 sends the
model; so it does when one has come back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.rows.totals import Totals
from hogwild.exchanges import make_exchange
from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.late import compile_raced
from hogwild.exchanges.trade import Counts, Exchange
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import NO_LIMIT, STOP
from hogwild.machines.cluster import Cluster
from hogwild.machines.frames import MODEL, Frame, Message
from hogwild.machines.trading import WAIT, Trading, parameters, trading_of
from hogwild.training.schedule import slower


def among(
    cluster: Cluster, config: TrainConfig, examples: int, agree: Callable[[], None] = lambda: None,
    totals: Totals | None = None,
) -> Callable[[Pool], Machines]:  # fmt: skip
    """Return a function that makes a pool of several machines of this machine's own workers.

    ``agree`` is called when the memory is laid out, before anything is trained. With ``totals`` every machine has rows
    of its own.
    """
    exchange = make_exchange(config.exchange, examples / cluster.machines, shrinks=config.l1 > 0)
    assert exchange is not None
    if isinstance(exchange, Averaging):
        exchange = dataclasses.replace(exchange, period=min(exchange.period, NO_LIMIT - 1))  # it keeps a base
    return lambda pool: Machines(pool, cluster, exchange, agree, totals)


class Machines(Pool):
    """A pool of the workers of this machine that trades with other machines (see :class:`hogwild.hosts.pool.Pool`)."""

    def __init__(
        self, inner: Pool, cluster: Cluster, exchange: Exchange, agree: Callable[[], None],
        totals: Totals | None = None,
    ) -> None:  # fmt: skip
        self._agree: Callable[[], None] | None = agree
        self._totals, self._starts = totals, dict[int, int]()  # first chunks of others in an epoch that was stopped
        self.inner, self.cluster, self._exchange = inner, cluster, exchange
        self.host, self.shared, self.workers = inner.host, inner.shared, inner.workers
        self._arrays: dict[str, np.ndarray] = {}
        self._number = 0  # of the task
        self._members: list[int] = []
        self._came: list[int] = []  # when each of them has
        self._in_step = False  # whether all machines have the same array
        self._trading: Trading | None = None
        self._gone = cluster.losses
        self._worked = self._told = self._ended = False

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
        return Counts() if self._trading is None else self._trading.counts()

    def elsewhere(self) -> tuple[int, int]:
        """Rows and nonzeros that the other machines have done of the task, as far as this one has heard."""
        return (0, 0) if self._trading is None else self._trading.elsewhere()

    def share(self) -> tuple[int, int]:
        """Settle who takes part in the next task; return this machine's number among them, and how many they are."""
        if self.cluster.leads:
            self._settle(self.cluster.members())
        if self._totals is not None:
            return 0, 1
        return self._members.index(self.cluster.number), len(self._members)

    @property
    def in_step(self) -> bool:
        """Whether all machines have the same array."""
        return self._in_step

    def state(self) -> dict[str, Any]:
        if self._totals is None:
            return {}
        return {"starts": {self._totals.prints[other]: start for other, start in self._starts.items()}}

    def restore(self, header: dict[str, Any]) -> None:
        if self._totals is not None:
            self._starts = {k: int(header["starts"].get(one, 0)) for k, one in enumerate(self._totals.prints)}
            if min(self._starts.values()) < 0:
                raise ValueError("starts holds a number below zero")

    def _settle(self, members: list[int]) -> None:
        came = [int(self.cluster.came[member]) for member in members]
        self._in_step = self._in_step and (members, came) == (self._members, self._came)
        self._members, self._came = members, came

    def open(self, job: Job) -> None:
        if self._agree is not None:
            self._agree()
            self._agree = None
        self.inner.open(job)
        compile_raced()
        self._arrays = {}
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
        count = len(self._members)
        if len(self._arrays.get("rows", ())) != count:
            spec = self._exchange.spec(len(parameters(job)), count)
            self._arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in spec.items()}
        self._trading = trading_of(self._exchange)(
            cluster, job, self._exchange, self._arrays, self._members, self._number
        )  # fmt: skip
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
            self._starts = {other: note["chunk"] for other, note in trading.reports.items()} if stopped else {}
        if trading.error is not None:
            raise trading.error
        return True

    def release(self, job: Job) -> None:
        self._end()
        self.inner.release(job)

    def close(self) -> None:
        """End the workers and let the other machines know."""
        self._end()
        self.inner.close()

    def _end(self) -> None:
        if self._trading is not None:
            self._trading.over = True
        if self.cluster.leads and not self._ended:
            self._ended = True
            if not self._in_step and self.inner.job is not None:
                self._send_model(self.inner.job, self._number + 1)
            self.cluster.tell({"kind": "end"})

    def finish(self) -> None:
        """Take over the model of machine 0, if it has sent one when it ended the run (on other machines)."""
        job = self.inner.job
        if job is not None and (model := self.cluster.take_model(self._number + 1, len(parameters(job)))) is not None:
            parameters(job)[:] = model

    # ---- a task

    def _own(self, task: Task) -> Task:
        """Return a task with a step that falls with the rows of all machines, where this one has a share of them."""
        if self._totals is None:
            return task
        step = slower(task.step, self._totals.each[self.cluster.number] / self._totals.rows)
        return dataclasses.replace(task, step=step)

    def follow(self, note: dict[str, Any]) -> Task:
        """Return the task that a note of machine 0 describes, and remember who takes part (on other machines)."""
        self._settle(note["members"])
        self._number, self._in_step = note["task"] - 1, note["in_step"]
        return Task(note["epoch"], note["start"], tuple(note["step"]))

    def _tell(self, task: Task, job: Job) -> None:
        """Tell the others what is next, and the model if it may differ from theirs."""
        note = {
            "kind": "task", "task": self._number, "epoch": task.epoch, "start": task.start, "step": list(task.step),
            "members": self._members, "in_step": self._in_step,
        }  # fmt: skip
        for member in self._members[1:]:
            start = task.start if self._totals is None else self._starts.get(member, 0)
            self.cluster.tell(note | {"start": start}, member)
        if not self._in_step:
            self._send_model(job, self._number)
        self._in_step = True

    def _send_model(self, job: Job, number: int) -> None:
        model = Frame(MODEL, number, message=Message(0, 0, 0, parameters(job).copy()))
        for member in self._members[1:]:
            self.cluster.send(member, model)

    def _join(self, job: Job) -> None:
        """Take over machine 0's model, if it sends one."""
        cluster = self.cluster
        if self._in_step:
            return
        seen = cluster.news
        while (model := cluster.take_model(self._number, len(parameters(job)))) is None:
            cluster.require(0)
            cluster.wait_for_news(seen, WAIT)
            seen = cluster.news
        parameters(job)[:] = model

    def _pass_on_stop(self) -> None:
        """Ask the other machines to stop if this one, which leads, was asked to."""
        job = self.inner.job
        if self.cluster.leads and not self._told and job is not None and job.control[STOP]:
            self._told = True
            self.cluster.tell({"kind": "stop", "task": self._number})
