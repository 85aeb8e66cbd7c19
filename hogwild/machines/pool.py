"""The workers of this machine, and what goes on between it and the others while they work.

To the engine this is a pool like any other. ``begin`` of machine 0 tells the others the task, who takes part and with
what step, and each does every P-th chunk of it. What a machine does in a task is a generator, its ``course``, which
yields where it waits for its workers or for messages; ``wait`` resumes it. A task is done when all machines have done
their share and machine 0 has what they made.

With :class:`Replicas` each machine has an array of its own. While workers race on it, the course trades it after every
``period`` rows, in place and weight by weight, so that workers lose next to nothing; then it sees to it that the array
is the same on all machines. With gossip everybody sends what it still owes; rounds of averaging go on until all have
taken part in one after their share; machine 0 sends what its server holds. If a machine dies in a task the others may
have seen its last messages or not, so with the next task machine 0 sends the model; so it does when one has come back.
With ``Ring`` (``rotation.py``) the machines share out one array.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from hogwild.data.rows.degrees import Totals
from hogwild.errors import TrainingError
from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.trade import ALL, Counts, Exchange, begin
from hogwild.hosts.job import Job, Task
from hogwild.hosts.pool import Pool
from hogwild.kernels.control import NO_LIMIT, STOP
from hogwild.machines.cluster import Cluster, Note
from hogwild.machines.trading import MachineLink
from hogwild.training.schedule import slower

LOOK = 1e-3  # seconds between two looks at the workers' count of rows, with a period
WAIT = 0.05  # seconds between two looks for anything else
ROOM = 64 << 20  # bytes that may be queued for a machine


class Machines(Pool):
    """A pool of the workers of this machine that trains with other machines (see :class:`hogwild.hosts.pool.Pool`)."""

    look = WAIT  # seconds between two looks at other machines while workers work

    def __init__(self, inner: Pool, cluster: Cluster) -> None:
        self.inner, self.cluster = inner, cluster
        self.host = inner.host
        self.shared = inner.shared
        self.workers = inner.workers
        self.in_step = False  # whether all machines have the same array
        self.reports: dict[int, Note] = {}  # by machine: what it has done of the task, on machine 0
        self.task = 0  # its number
        self.members: list[int] = []
        self.link: MachineLink
        self._arrivals: list[int] = []  # of each member
        self._note: Note = {}  # machine 0's about the task
        self._gone = cluster.losses
        self._ended = False

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
        return self.link.counts

    def elsewhere(self) -> tuple[int, int]:
        """Rows and nonzeros that the other machines report of the task; until they do, as many each as this one's."""
        done = [note["done"] for note in self.reports.values()]
        for machine, arrival in zip(self.members, self._arrivals):
            here = self.cluster.alive[machine] and self.cluster.arrivals[machine] == arrival
            if here and machine not in (self.cluster.number, *self.reports) and self.job is not None:
                done.append(self.job.done())
        rows, nonzeros = map(sum, zip((0, 0), *done))
        return rows, nonzeros

    def share(self, task: Task) -> tuple[int, int]:
        """Tell the others what is next, who takes part, and the model if it may differ from theirs (on machine 0);
        return this machine's number among them, and how many they are.
        """
        cluster = self.cluster
        if cluster.leads and self.job is not None:
            self._settle(cluster.members())
            self.task += 1
            note = {"kind": "task", "task": self.task, "epoch": task.epoch, "step": task.step}
            note |= {"members": self.members, "in_step": self.in_step}
            for member in self.members[1:]:
                cluster.tell(note | {"start": self._start_of(member, task)}, [member], *self._model())
        return self.members.index(cluster.number), len(self.members)

    def follow(self, note: Note) -> Task:
        """Return the task that a note of machine 0 describes, and remember who takes part (on other machines)."""
        self._settle(note["members"])
        self.task, self.in_step, self._note = note["task"], note["in_step"], note
        return Task(note["epoch"], note["start"], tuple(note["step"]))

    def _settle(self, members: list[int]) -> None:
        arrivals = [int(self.cluster.arrivals[member]) for member in members]
        self.in_step = self.in_step and (members, arrivals) == (self.members, self._arrivals)
        self.members, self._arrivals = members, arrivals

    def _start_of(self, member: int, task: Task) -> int:
        """The first chunk of a machine."""
        return task.start

    def _model(self) -> list[np.ndarray]:
        """What is sent to machines that may have another model."""
        return [] if self.job is None or self.in_step else [self.job.traded]

    def _take(self, note: Note) -> None:
        (self._job().traded[:],) = note["arrays"]

    def _job(self) -> Job:
        assert self.job is not None
        return self.job

    def open(self, job: Job) -> None:
        self.inner.open(job)
        self.in_step = False

    def release(self, job: Job) -> None:
        self._end()
        self.inner.release(job)

    def close(self) -> None:
        """End the workers and let the other machines know."""
        self._end()
        self.inner.close()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            if self.cluster.leads:
                self.cluster.ending = True
                self.cluster.tell({"kind": "end"}, None, *self._model())

    def finish(self, note: Note) -> None:
        """Take over the model of machine 0, if it has sent one when it ended the run (on other machines)."""
        if self.job is not None and note.get("arrays"):
            self._take(note)

    # ---- a task

    def begin(self, task: Task) -> None:
        if not self.in_step and not self.cluster.leads:
            self._take(self._note)
        self.in_step = True
        self.reports = {}
        self._done = self._working = self._told = False
        self._error: BaseException | None = None
        self._course = self.course(self._job(), task)
        next(self._course)

    def course(self, job: Job, task: Task) -> Iterator[None]:
        """Do this machine's part of a task; up to the first yield its workers begin."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise TrainingError if there is no use in going on."""
        if self._ended or self.closed or self.job is None:
            raise TrainingError("the run has ended")
        self.cluster.require(0)

    def work(self, task: Task) -> None:
        """Set the workers going; :attr:`_working` tells when they stand still."""
        self._working = True
        self.inner.begin(task)

    def wait(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not self._done:
            seen, rest = self.cluster.news, max(until - time.monotonic(), 0.0)
            if self._error is None:
                try:
                    self.check()
                    self._done = next(self._course, self) is self
                except BaseException as error:  # raised once the workers stand still
                    self._error = error
                    if self.job is not None:
                        self.job.stop()
            if self._working and not self._done:
                self._working = not self.inner.wait(min(rest, self.look))
            elif self._error is not None:
                raise self._error
            elif not self._done:
                before = time.perf_counter()
                self.cluster.wait_for_news(seen, min(rest, WAIT))
                self.link.counts = self.link.counts.plus(Counts(waited_seconds=time.perf_counter() - before))
            if not rest:
                return self._done
        return True


class Replicas(Machines):
    """Machines with an array each, which they trade.

    Parameters
    ----------
    exchange : Exchange
    totals : Totals, optional
        With it every machine has rows of its own.
    """

    def __init__(self, inner: Pool, cluster: Cluster, exchange: Exchange, totals: Totals | None = None) -> None:
        super().__init__(inner, cluster)
        self._exchange, self._totals = exchange, totals
        self._in_rounds = isinstance(exchange, Averaging)
        if exchange.period < NO_LIMIT - 1:  # which ``spanning`` makes the period of averaging without any
            self.look = LOOK
        self._starts = dict[str, int]()  # by the print of others' own rows: first chunks in an epoch that was stopped
        self._arrays: dict[str, np.ndarray] = {}
        self._rows = 0  # of this machine, up to its last trade
        self._clocks: dict[int, int] = {}  # last rounds of machines before their workers had done their share

    def own_counts(self) -> Counts:
        return self.link.counts.plus(Counts(deltas_left_out=int(self._arrays["left_out"].sum())))

    def share(self, task: Task) -> tuple[int, int]:
        share = super().share(task)
        return share if self._totals is None else (0, 1)

    def _start_of(self, member: int, task: Task) -> int:
        return task.start if self._totals is None else self._starts.get(self._totals.prints[member], 0)

    def state(self) -> dict[str, Any]:
        return {"starts": self._starts}

    def restore(self, header: dict[str, Any]) -> None:
        self._starts = header.get("starts", {})

    def course(self, job: Job, task: Task) -> Iterator[None]:
        self._lay_out(job)
        if self._totals is not None:  # the step falls with the rows of all machines
            share = self._totals.each[self.cluster.number] / self._totals.rows
            task = dataclasses.replace(task, step=slower(task.step, share))
        self.work(task)
        yield
        while self._working:
            self._pass_on_stop(job)
            self.link.receive()
            if self._due(job):
                yield from self._trade()
            yield
        yield from self._bring_home()
        yield from self._report(job)
        self.in_step = self.in_step and bool(self.link.here().all())
        self._gone = self.cluster.losses
        self._starts = {}
        if self._totals is not None and job.position() < job.order.n_chunks:
            self._starts = {self._totals.prints[other]: note["chunk"] for other, note in self.reports.items()}

    def _lay_out(self, job: Job) -> None:
        """Begin a task of the exchange, between those who take part; nothing of it outlasts a task."""
        flat, exchange = job.traded, self._exchange
        spec = exchange.spec(len(flat), len(self.members))
        self._arrays = {name: np.zeros(shape, kind) for name, (shape, kind) in spec.items()}
        room = exchange.room(len(flat), 2)
        if self._in_rounds or exchange.shards:
            room = max(room, ROOM)
        self.link = MachineLink(self.cluster, self.members, self.task, room, exchange, self._arrays)
        begin(exchange, flat, self._arrays)
        if "base" in self._arrays:
            self._arrays["base"][self.link.replica, : len(flat)] = flat
        self._rows = 0
        self._clocks = {}

    def _pass_on_stop(self, job: Job) -> None:
        """Stop the workers if machine 0 says so, which does if it was asked to."""
        if self.cluster.take_notes("stop", self.task):
            job.stop()
        if self.cluster.leads and not self._told and job.control[STOP]:
            self._told = True
            self.cluster.tell({"kind": "stop", "task": self.task})

    def _due(self, job: Job) -> bool:
        """Whether to trade now: after a period, or in a round that others have begun."""
        if job.done()[0] - self._rows >= self._exchange.period:
            return True
        return self._in_rounds and self._round_begun()

    def _round_begun(self) -> bool:
        self.link.receive()
        clock = int(self._arrays["clock"][self.link.replica])
        return any(queue and queue[-1].clock > clock for queue in self.link.inbox)

    def _trade(self, ends: bool = False) -> Iterator[None]:
        job, done = self._job(), self._job().done()[0]
        rows, self._rows = done - self._rows, done
        yield from (self._exchange.end if ends else self._exchange.trade)(job.traded, self._arrays, self.link, rows)

    # ---- once the workers have done their share

    def _bring_home(self) -> Iterator[None]:
        """Make the array the same on all machines."""
        link, flat = self.link, self._job().traded
        if self._in_rounds:
            clock, over = self._arrays["clock"], link.replicas == 1
            self._tell_ended(int(clock[link.replica]))
            while not over:
                yield from _until(lambda: self._round_begun() or self._all_ended())
                yield from self._trade()
                over = self._all_ended(int(clock[link.replica]))
            if link.replicas > 1:
                flat[:] = self._arrays["base"][link.replica, : len(flat)]  # the same numbers everywhere
            return
        yield from self._trade(ends=True)
        if not self._exchange.shards:
            return
        self._tell_ended()
        if self.cluster.leads:
            yield from _until(self._all_ended)
            link.receive()  # what was pushed before that was said
            self._exchange.meet(flat, self._arrays, np.zeros(link.replicas, np.int64))
            link.tell({"kind": "model"}, ALL, flat)
            return
        models: list[Note] = []
        while not models:
            yield
            models = self.cluster.take_notes("model", self.task)
        self._take(models[0])

    def _report(self, job: Job) -> Iterator[None]:
        """Tell machine 0 what was done; there, wait for what the others say."""
        cluster, link = self.cluster, self.link
        if not cluster.leads:
            missing = [member for member, here in zip(self.members, link.here()) if not here]
            note = {"kind": "done", "task": self.task, "done": job.done(), "missing": missing}
            cluster.tell(note | {"sent": self.own_counts(), "chunk": job.position()}, [0])
            return
        yield from _until(self._all_reported)
        for member, report in self.reports.items():
            for machine in report["missing"]:  # all must see the same
                cluster.give_up(machine, f"it and {cluster.name(member)} no longer reach each other")
        parts = [(job.done(), self.own_counts()), *((note["done"], note["sent"]) for note in self.reports.values())]
        left_out = [Counts(*sent).deltas_left_out > 0 for (rows, _), sent in parts if rows]
        if left_out and all(left_out):  # as on one machine: the run has diverged
            job.traded[:] = np.nan

    def _all_reported(self) -> bool:
        """Whether all other machines that are there have; the rows of those that are gone are lost."""
        self.reports |= {note["sender"]: note for note in self.cluster.take_notes("done", self.task)}
        return self._are_all_in(self.reports)

    def _tell_ended(self, clock: int = 0) -> None:
        """Say that this machine's workers have done their share; only rounds after that of the ``clock`` may follow."""
        self.cluster.tell({"kind": "ended", "task": self.task, "clock": clock})

    def _all_ended(self, clock: int = NO_LIMIT) -> bool:
        """Whether all other machines that are there have said so, before they took part in the round of the ``clock``.

        What a machine sends arrives in order, so of a round that has taken place everybody sees the same.
        """
        self.link.receive()
        self._clocks |= {note["sender"]: note["clock"] for note in self.cluster.take_notes("ended", self.task)}
        return self._are_all_in([machine for machine, last in self._clocks.items() if last < clock])

    def _are_all_in(self, machines: Container[int]) -> bool:
        others = zip(self.members, self.link.here())
        return all(member in machines for member, here in others if here and member != self.cluster.number)


def _until(condition: Callable[[], Any]) -> Iterator[None]:
    """Yield until it holds."""
    while not condition():
        yield
