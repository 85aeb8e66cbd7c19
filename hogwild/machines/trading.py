"""The trades of one task: a thread beside this machine's workers, which race on its array meanwhile.

While they work it trades after every ``period`` rows of them, adding to their array what others have learned. When they
have done their share, it sees to it that the array is the same on all machines. How it does depends on the scheme: with
gossip everybody sends what it still owes; rounds of averaging go on until all have taken part in one after their share
(:class:`Rounds`); machine 0 sends what its server holds (:class:`Serving`).

Machine 0 holds all the server's parameters. Shards on all machines would spread the traffic, 2 (P - 1) messages a push
on its one line, but every machine would then be one whose death ends the run; as it is only machine 0 is, which leads
anyway, and its checkpoint holds all there is. Use few machines and long pushes, or gossip, if its line is too slow.

Changes of a task that one machine sends may have reached some of the others only when it dies. So when machines have
gone or come back, machine 0 sends its model with the next task.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np

from hogwild.errors import TrainingError
from hogwild.exchanges.averaging import Averaging
from hogwild.exchanges.deltas_kernel import bring_together
from hogwild.exchanges.link import Serve
from hogwild.exchanges.trade import ALL, BYE, NOTHING, PUSH, Arrays, Counts, Exchange, Link, Message, Served
from hogwild.hosts.job import Job
from hogwild.kernels.control import NO_LIMIT
from hogwild.machines.cluster import Cluster, Note
from hogwild.problems.protocol import trained

LOOK = 1e-3  # seconds between two looks at the workers' count of rows, with a period
WAIT = 0.05  # for messages
ROOM = 64 << 20  # bytes that may be queued for a machine
BACKLOG = 16  # messages of one sender that are not left lying until it is time to trade


def parameters(job: Job) -> np.ndarray:
    """Return what machines trade: all of a job's array but what each worker keeps for itself."""
    return job.flat[: trained(job.problem)]


class MachineLink(Link):
    """The link of a replica that is a machine, for one task; a machine that has died is not replaced within it.

    The exchange numbers the task's members from 0, whoever has died before. A machine that has died and come back since
    the task began is not here: it takes part from the next task on.

    All shards of a server lie on machine 0, which serves requests as it receives them, in the order of each sender.

    Parameters
    ----------
    cluster : Cluster
    members : list of int
        The machines that take part in the task, in ascending order.
    task : int
        Its number.
    room : int
        Bytes that may be queued for a machine; more can be posted when it has taken some.
    serve : callable, optional
        What the server does with a request, for a scheme that has one; machine 0 calls it.
    """

    def __init__(self, cluster: Cluster, members: list[int], task: int, room: int, serve: Serve | None = None) -> None:
        super().__init__(members.index(cluster.number), len(members))
        self._cluster = cluster
        self._members = members
        self._task = task
        self._room = room
        self._serve = serve
        self._arrivals = cluster.arrivals[members]  # a copy
        self._unanswered = deque[int]()  # tickets
        self._messages = self._bytes = 0
        self.waited_seconds = 0.0

    @property
    def serves(self) -> bool:
        """Whether other machines ask this one."""
        return self._serve is not None and self._cluster.leads

    @property
    def counts(self) -> Counts:
        """Counts of what this machine has sent."""
        return Counts(self._messages, self._bytes, self.waited_seconds)

    def here(self) -> np.ndarray:
        here: np.ndarray = self._cluster.alive[self._members] & (
            self._cluster.arrivals[self._members] == self._arrivals
        )
        return here

    def post(self, to: int, message: Message) -> bool:
        if any(self._cluster.waiting(machine) > self._room for machine in self._receivers(to)):
            return False
        self.send(message, to)
        return True

    def send(self, message: Message, to: int = ALL) -> None:
        """Send a message, whether or not there is room."""
        numbers = [int(number) for number in (message.kind, message.clock, message.rows, message.step)]
        coded = message.values.dtype == np.uint8
        note = {"kind": "trade", "message": numbers, "values": message.values.nbytes, "coded": coded}
        self.tell(note, to, message.values, message.indices)

    def tell(self, note: Note, to: int = ALL, *arrays: np.ndarray) -> None:
        """Send a note about the task, and count it as a message."""
        receivers = self._receivers(to)
        self._cluster.tell(note | {"task": self._task}, receivers, *arrays)
        size = NOTHING.size + sum(array.nbytes for array in arrays)
        self._messages, self._bytes = self._messages + len(receivers), self._bytes + len(receivers) * size

    def _receivers(self, to: int) -> list[int]:
        here = self.here()
        return [self._members[k] for k in np.flatnonzero(here) if k != self.replica and to in (k, ALL)]

    def receive(self) -> None:
        for note in self._cluster.take_notes("trade", self._task):
            if note["sender"] not in self._members:
                continue
            sender, message = self._members.index(note["sender"]), message_of(note)
            if self.serves:
                self._answer(sender, message)
            elif self._serve is not None:
                if self._unanswered:
                    self._answers[self._unanswered.popleft()] = message
            else:
                self.inbox[sender].append(message)

    def _answer(self, sender: int, request: Message) -> None:
        """Serve a request of another machine."""
        assert self._serve is not None
        reply = self._serve(request.step, sender, request)
        if request.kind not in (PUSH, BYE):
            assert reply is not None  # rules that have answers wait are refused between machines
            self.send(reply, sender)

    def _request(self, ticket: int, shard: int, request: Message) -> None:
        assert self._serve is not None
        if self.serves:
            reply = self._serve(shard, self.replica, request)
            assert reply is not None
            self._answers[ticket] = reply
            return
        self.send(request._replace(step=shard), 0)
        if request.kind in (PUSH, BYE):
            self._answers[ticket] = NOTHING
        else:
            self._unanswered.append(ticket)

    def answer(self, ticket: int) -> Message | None:
        if not self.serves and self._cluster.waiting(self._members[0]) > self._room:
            self.receive()
            return None
        return super().answer(ticket)


def message_of(note: Note) -> Message:
    """Return the message of a note that :meth:`MachineLink.send` has sent."""
    kind, clock, rows, step = note["message"]
    values, indices = np.split(note["array"], [note["values"]])
    values = values if note["coded"] else values.view(np.float32)
    return Message(kind, clock, rows, values, indices.view(np.int32), step)


class Trading:
    """The trades of a task, and its end (of gossip).

    Attributes
    ----------
    link : MachineLink
    error : BaseException or None
        Why the thread has ended early.
    reports : dict
        By machine: what it has done of the task, on machine 0.
    over : bool
        Set by others: nobody wants the result any more.
    """

    room = 0  # least bytes that may be queued for a machine

    def __init__(
        self, cluster: Cluster, job: Job, exchange: Exchange, arrays: Arrays, members: list[int], task: int
    ) -> None:
        self.cluster = cluster
        self.job = job
        self.exchange = exchange
        self.arrays = arrays
        self.flat = parameters(job)
        self.members, self.task = members, task
        self.link = MachineLink(cluster, members, task, max(self.room, exchange.room(len(self.flat), 2)), self._serve())
        self.error: BaseException | None = None
        self.reports: dict[int, dict[str, Any]] = {}
        self._ended: dict[int, int] = {}  # machines whose workers have done their share, and their last round before
        self.over, self._traded = False, 0
        self._worked = threading.Event()
        exchange.begin(self.flat, arrays)
        arrays["left_out"][:] = 0
        if "base" in arrays:
            arrays["base"][self.link.replica, : len(self.flat)] = self.flat
        self._thread = threading.Thread(target=self._run, name="hogwild-trade", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def worked(self) -> None:
        """Say that the workers have done their share."""
        with self.cluster.changed:
            self._worked.set()
            self.cluster.tell_threads()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, but no longer than some seconds; whether it has come."""
        self._thread.join(max(seconds, 0.0))
        return not self._thread.is_alive()

    def in_step(self) -> bool:
        """Whether all that took part are still there, so that they have the same array."""
        return bool(self.link.here().all())

    # ---- what differs between schemes

    def _serve(self) -> Any:
        """What machine 0 does with requests."""
        return None

    def _due(self, rows: int) -> bool:
        """Whether to trade now, after ``rows`` since the last time, or because much has arrived meanwhile."""
        return rows >= self.exchange.period or any(len(queue) >= BACKLOG for queue in self.link.inbox)

    def _bring_home(self) -> None:
        """Make the array the same on all machines, once the workers have done their share."""
        self._drive(self.exchange.end(self.flat, self.arrays, self.link, self._since()))

    # ---- the thread

    def _run(self) -> None:
        try:
            self._beside_workers()
            self._bring_home()
            self._report()
        except BaseException as error:
            self.error = error

    def _beside_workers(self) -> None:
        look = LOOK if self.exchange.period < NO_LIMIT - 1 else WAIT
        while not self._worked.is_set():
            seen = self.cluster.news
            self._check()
            if self.cluster.take_notes("stop", self.task):
                self.job.stop()
            self.link.receive()
            if self._due(self.job.done()[0] - self._traded):
                self._trade()
            else:
                self.cluster.wait_for_news(seen, look)

    def _since(self) -> int:
        """Rows that this machine has done since it was last asked."""
        done = self.job.done()[0]
        since, self._traded = done - self._traded, done
        return since

    def _trade(self) -> None:
        self._drive(self.exchange.trade(self.flat, self.arrays, self.link, self._since()))

    def _wait_until(self, condition: Callable[[], Any]) -> None:
        def waiting() -> Iterator[None]:
            while not condition():
                yield

        self._drive(waiting())

    def _drive(self, trade: Iterator[None]) -> None:
        """Run a trade to its end, waiting for messages where it waits."""
        while True:
            seen, before = self.cluster.news, time.perf_counter()
            if next(trade, self) is self:
                return
            self.cluster.wait_for_news(seen, WAIT)
            self.link.waited_seconds += time.perf_counter() - before
            self._check()

    def _check(self) -> None:
        if self.over:
            raise TrainingError("the run has ended")
        self.cluster.require(0)

    def own_counts(self) -> Counts:
        """Counts of what this machine has sent."""
        return self.link.counts.plus(Counts(deltas_left_out=int(self.arrays["left_out"].sum())))

    def _report(self) -> None:
        """Tell machine 0 what was done; there, wait for what the others say."""
        cluster, link = self.cluster, self.link
        rows, nonzeros = self.job.done()
        if not cluster.leads:
            missing = [member for member, here in zip(self.members, link.here()) if not here]
            note = {"kind": "done", "task": self.task, "rows": rows, "nonzeros": nonzeros, "missing": missing}
            cluster.tell(note | {"sent": [*self.own_counts()], "chunk": self.job.position()}, [0])
            return
        self._wait_until(self._all_reported)
        for member, report in self.reports.items():
            for machine in report["missing"]:  # all must see the same
                cluster.give_up(machine, f"it and {cluster.name(member)} no longer reach each other")
        parts = [(rows, self.own_counts()), *((note["rows"], Counts(*note["sent"])) for note in self.reports.values())]
        left_out = [counts.deltas_left_out > 0 for done, counts in parts if done]
        if left_out and all(left_out):  # as on one machine: the run has diverged
            self.flat[:] = np.nan

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
        self._ended |= {note["sender"]: note["clock"] for note in self.cluster.take_notes("ended", self.task)}
        return self._are_all_in([machine for machine, last in self._ended.items() if last < clock])

    def _are_all_in(self, machines: Container[int]) -> bool:
        others = zip(self.members, self.link.here())
        return all(member in machines for member, here in others if here and member != self.cluster.number)


class Rounds(Trading):
    """Averaging: rounds in which all take part.

    Rounds set weights to their mean, so while workers race on the array a copy of it is traded. Before and after a
    trade each of the two gets what the other has gained since the last time, as tiers do (``kernels/tiers.py``).
    """

    room = ROOM

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self._within:
            self._copy, self._anchor = self.flat.copy(), self.flat.copy()  # the latter: what both were when last equal

    @property
    def _within(self) -> bool:
        """Whether there are rounds while workers race."""
        return self.exchange.period < NO_LIMIT - 1

    def _trade(self) -> None:
        if not self._within:
            super()._trade()
            return
        rows = self._since()
        bring_together(self.flat, self._copy, self._anchor, self.exchange.shrinks)
        self._drive(self.exchange.trade(self._copy, self.arrays, self.link, rows))
        bring_together(self.flat, self._copy, self._anchor, self.exchange.shrinks)

    def _due(self, rows: int) -> bool:
        return self._within and (rows >= self.exchange.period or self._round_begun())

    def _bring_home(self) -> None:
        link, clocks, over = self.link, self.arrays["clock"], self.link.replicas == 1
        self._tell_ended(int(clocks[link.replica]))
        while not over:
            self._wait_until(lambda: self._round_begun() or self._all_ended())
            self._trade()
            over = self._all_ended(int(clocks[link.replica]))
        if link.replicas > 1:
            self.flat[:] = self.arrays["base"][link.replica, : len(self.flat)]  # the same numbers everywhere

    def _round_begun(self) -> bool:
        """Whether others have begun a round that this machine has not."""
        self.link.receive()
        clock = int(self.arrays["clock"][self.link.replica])
        return any(queue and queue[-1].clock > clock for queue in self.link.inbox)


class Serving(Trading):
    """A parameter server, on machine 0."""

    room = ROOM

    def _serve(self) -> Any:
        exchange, arrays = self.exchange, self.arrays
        assert isinstance(exchange, Served)
        return lambda shard, sender, request: exchange.serve(shard, arrays, sender, request)

    def _bring_home(self) -> None:
        super()._bring_home()  # push what is owed
        self._tell_ended()
        cluster, flat = self.cluster, self.flat
        if not cluster.leads:
            models: list[Note] = []

            def arrived() -> bool:
                models.extend(cluster.take_notes("model", self.task))
                return bool(models)

            self._wait_until(arrived)
            (flat[:],) = cluster.arrays_of(models[0], (np.float32, len(flat)))
            return
        self._wait_until(self._all_ended)
        self.link.receive()  # what was pushed before that was said
        self.exchange.meet(flat, self.arrays, np.zeros(self.link.replicas, np.int64))
        self.link.tell({"kind": "model"}, ALL, flat)


def trading_of(exchange: Exchange) -> type[Trading]:
    """Return how a scheme trades between machines."""
    return Rounds if isinstance(exchange, Averaging) else Serving if isinstance(exchange, Served) else Trading
