"""The machines that have met: connections between every two of them, and who is still there.

A gloo group of two for every connection, not one of all: when a machine dies, gloo closes a group for good, and the
others go on.

A thread looks each second who has said nothing for ten, and gives it up. If it finds that it has slept itself (this
machine was suspended, or paged), everybody gets ten more seconds.

A machine that is gone comes back into its run (:func:`readmit`): it asks at the address where all met, and machine 0
lets it in. Groups of gloo are never used again: with each that comes back a number goes up, which stands in the names
of its new groups. It takes part from the next task on, which begins with machine 0's model. The run's own number stands
in all keys, so a machine 0 that was started again, whose run is another one, never hears of the old run's machines.

Everything that machines tell each other is a note: what it says as JSON, its "kind" first of all, with the types and
shapes of the arrays whose bytes follow. Nothing is unpickled. The kinds, and who sends them to whom:

    beat                    everybody each second, so that it is not taken for dead
    bye                     who leaves: why
    comes, met              machine 0 of one that comes back, and to it from those that have connected
    plan, agreed, go, refused      machine 0 and each other, before anything is trained (agreement.py)
    rows, facts             everybody about rows of its own, before anything is trained (own_rows.py)
    task, stop, end         machine 0 to all
    trade                   a message of an exchange
    ended, done, model      at the end of a task (trading.py)
    evaluate, sums          machine 0's question, and an answer to it (own_rows.py)
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import queue
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from hogwild.errors import HogwildError, InputError, TrainingError, reason_of
from hogwild.machines.meeting import DEADLINE, Meeting, Met, meet, unlike

PIECE = 4 << 20  # bytes sent at a time, so that a large payload is heard of all the while
BEAT_SECONDS = 1.0
DAY = datetime.timedelta(days=1)  # a wait without an end: who is silent is given up by the cluster
SILENCE = 10.0  # seconds after which a machine that says nothing is given up
LOOK = 1.0
PAUSE = 0.2  # seconds between two looks for machines that come back
COMING = 10.0  # seconds in which a machine that may come back has to connect
LONGEST_REASON = 1000  # characters
OWN_ROWS = "a run in which machines have rows of their own goes on without those that were gone: start it again"
ROTATION = "a run by rotation ends when a machine is gone: start all of them again, with --resume"
EMPTY = np.empty(0, np.uint8)
Note = dict[str, Any]  # on arrival with its "sender" and, as "arrays", the arrays that came with it


class Cluster:
    """This machine's view of all.

    Attributes
    ----------
    number, machines : int
        This machine's number, and how many met; 0 leads.
    alive : ndarray of bool
        Who is still there, (machines,).
    reasons : dict
        Why those who are not are gone.
    arrivals : ndarray of int
        Number of each machine's latest arrival, (machines,): 0 at first; those that come back are counted from 1.
    losses : int
        How many have gone in all.
    news : int
        Changes whenever something has arrived, or a machine has gone or come.
    say : callable
        Told on machine 0, in a line, that a machine has gone or come back.
    ending : bool
        Whether the run is over, so that machines may leave.
    """

    def __init__(self, met: Met, seconds: float = DEADLINE) -> None:
        self.number = met.number
        self.machines = len(met.hellos)
        self.hellos = [*met.hellos]
        self.say: Callable[[str], object] = lambda line: None
        self.ending = False
        self.alive = np.ones(self.machines, bool)
        self.reasons: dict[int, str] = {}
        self.arrivals = np.zeros(self.machines, np.int64)
        self.losses = self.news = 0
        self.changed = threading.Condition()
        self._heard: list[Note] = []
        self._pairs: dict[int, Pair] = {}
        self._closed, self._beside = threading.Event(), list[threading.Thread]()
        self.notes = met.notes
        self._ready = np.ones(self.machines, bool)  # who can take part
        if met.here is not None:
            self.alive[:] = False
            self.alive[[*met.here, self.number]] = True
            self.arrivals[self.number] = met.arrival
        self.beside(self._watch)
        try:
            for other in self.members():  # all in one order, so that nobody waits in a circle
                if other != self.number:
                    self._add(other, self._connect(other, met.arrival, seconds))
            for other in met.here or ():
                self.next_note(other, ("met",))
        except BaseException:
            self.leave("it could not reach all")
            raise

    @classmethod
    def of(cls, meeting: Meeting, about: dict[str, Any], seconds: float = DEADLINE) -> Cluster:
        """Meet and connect (see :func:`hogwild.machines.meeting.meet`)."""
        until = time.monotonic() + seconds
        while True:
            met = meet(meeting, about, max(until - time.monotonic(), 1.0))
            try:
                return cls(met, min(seconds, DEADLINE))
            except TrainingError:
                if met.here is None or time.monotonic() > until:
                    raise  # else machine 0 may have given up this one, which was slow to connect: ask again

    def _connect(self, other: int, arrival: int, seconds: float) -> Any:
        """Return a group of this machine and another one, one of which has come with that number."""
        low, high = sorted((self.number, other))
        store = PrefixStore(f"{arrival}/{low}-{high}", self.notes.store)
        options = ProcessGroupGloo._Options()
        options._timeout = datetime.timedelta(seconds=seconds)
        address = self.hellos[self.number]["address"]
        options._devices = [ProcessGroupGloo.create_device(hostname=address, lazy_init=False)]
        try:
            return ProcessGroupGloo(store, int(self.number == high), 2, options)
        except RuntimeError as error:
            reason = reason_of(error)
            raise TrainingError(f"machine {self.number} cannot connect to {self.name(other)}: {reason}") from None

    def _add(self, other: int, group: Any) -> None:
        with self.changed:  # what arrives waits
            self.alive[other] = True
            self._pairs[other] = Pair(self, other, group)
            self.tell_threads()

    def admit(self, machine: int, arrival: int, about: dict[str, Any]) -> None:
        """Connect to a machine that has come back; it takes part when it is :meth:`ready`.

        Raises
        ------
        TrainingError
            If it does not come.
        """
        self.give_up(machine, "it has come back")  # if this machine has not noticed that it was gone
        with self.changed:
            self.hellos[machine] = about
            self.arrivals[machine] = arrival
            self._ready[machine] = False
            self._heard = [note for note in self._heard if note["sender"] != machine]
        self._add(machine, self._connect(machine, arrival, COMING))
        self.tell({"kind": "met"}, [machine])

    def ready(self, machine: int) -> None:
        """Let a machine take part from the next task on."""
        self._ready[machine] = True
        self.say(f"{self.name(machine)} is back")

    def beside(self, work: Callable[[], None]) -> None:
        """Do something in a thread that :meth:`leave` waits for.

        It may hold the last reference to a group of gloo, whose end in a thread aborts an interpreter that is ending.
        """
        thread = threading.Thread(target=work, name="hogwild-cluster", daemon=True)
        thread.start()
        self._beside.append(thread)

    def closed(self, seconds: float) -> bool:
        """Wait until this machine leaves, but no longer than some seconds; whether it does."""
        return self._closed.wait(seconds)

    @property
    def leads(self) -> bool:
        return self.number == 0

    def name(self, machine: int) -> str:
        """Return how a machine is called in messages."""
        return f"machine {machine} ({self.hellos[machine]['host']})"

    def require(self, machine: int) -> None:
        """Raise TrainingError with the reason if a machine is gone."""
        if not self.alive[machine]:
            raise TrainingError(f"{self.name(machine)} is gone: {self.reasons[machine]}")

    def tell(self, note: Note, to: list[int] | None = None, *arrays: np.ndarray) -> None:
        """Send a note, and a copy of arrays with it, to some machines, or to all others, if they are still there."""
        parts = packed(note, *arrays)
        for other in [*self._pairs] if to is None else to:
            if self.alive[other]:
                self._pairs[other].send(*parts)

    def gather_notes(self, note: Note, *arrays: np.ndarray) -> list[Note]:
        """Send all others a note, and return everybody's of its kind, in the order of the machines; all must call it.

        Raises
        ------
        TrainingError
            If one is gone.
        """
        self.tell(note, None, *arrays)
        own = note | {"arrays": arrays}
        return [own if k == self.number else self.next_note(k, (note["kind"],)) for k in range(self.machines)]

    def give_up(self, machine: int, why: str) -> None:
        """End the connection to a machine, if it is still there."""
        if self.alive[machine] and machine != self.number:
            self._pairs[machine].give_up(why)

    def waiting(self, to: int) -> int:
        """Return the bytes that are queued for a machine."""
        return self._pairs[to].waiting_bytes

    def next_note(self, sender: int, kinds: Collection[str], stopped: Callable[[], bool] = lambda: False) -> Note:
        """Wait for a machine's next note of some kinds, and return it; one of kind "stopped" as soon as ``stopped()``.

        Raises
        ------
        InputError
            If it refuses to train with the others.
        TrainingError
            If it is gone, or has ended the run.
        """
        with self.changed:
            while True:
                for k, note in enumerate(self._heard):
                    if note["sender"] == sender and note["kind"] in (*kinds, "refused", "end"):
                        del self._heard[k]
                        if note["kind"] in kinds:
                            return note
                        if note["kind"] == "refused":
                            raise InputError(note["why"])
                        raise TrainingError(f"{self.name(sender)} has ended the run")
                self.require(sender)
                if stopped():
                    return {"kind": "stopped"}
                self.changed.wait(LOOK)

    def wait_for_news(self, seen: int, seconds: float) -> None:
        """Wait until :attr:`news` is no longer what was ``seen``, but no longer than some seconds."""
        with self.changed:
            if self.news == seen:
                self.changed.wait(seconds)

    def tell_threads(self) -> None:
        """Wake those who wait for news."""
        with self.changed:
            self.news += 1
            self.changed.notify_all()

    def members(self, ready: bool = True) -> list[int]:
        """Return the machines that are there, or only those that can take part in a task."""
        return [int(machine) for machine in np.flatnonzero(self.alive & (self._ready | (not ready)))]

    def take_notes(self, kind: str, task: int) -> list[Note]:
        """Return, once, the notes of a kind about a task; those about earlier tasks go."""
        with self.changed:
            notes, rest = list[Note](), list[Note]()
            for note in self._heard:
                (notes if note.get("kind") == kind and note.get("task", 0) <= task else rest).append(note)
            self._heard = rest
        return [note for note in notes if note.get("task") == task]

    def leave(self, why: str = "it has left") -> None:
        """Say goodbye; nothing arrives afterwards."""
        if self._closed.is_set():
            return
        self._closed.set()
        left: set[Pair] = set()
        while True:
            pairs = {*self._pairs.values()} - left
            leaving = [threading.Thread(target=pair.leave, args=(why,), daemon=True) for pair in pairs]
            for thread in leaving:
                thread.start()
            for thread in leaving:
                thread.join()
            for thread in [*self._beside]:
                thread.join(LOOK + COMING)
            left |= pairs
            if left >= {*self._pairs.values()}:  # else one has come back meanwhile
                return

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Leave; if because of an error that is the user's to mend, say it to the others."""
        self.leave(*[str(error)[:LONGEST_REASON]] if isinstance(error, HogwildError) else [])

    def deliver(self, note: Note) -> None:
        """Take in a note, in the thread that has received it."""
        if note["kind"] == "comes":
            self.beside(lambda: self._meet_again(note))
            return
        with self.changed:
            self._heard.append(note)
            self.tell_threads()

    def _meet_again(self, note: Note) -> None:
        with contextlib.suppress(TrainingError):  # machine 0 gives it up
            self.admit(note["machine"], note["arrival"], note["about"])

    def lose(self, machine: int, arrival: int, why: str) -> None:
        """Go on without a machine whose connection, made at that arrival, has ended."""
        with self.changed:
            if self.arrivals[machine] != arrival:  # it has come back since
                return
            self.alive[machine] = False
            self.reasons[machine] = why
            self.losses += int(self._ready[machine])
            self.tell_threads()
        if self.leads and self._ready[machine] and not self.ending and not self._closed.is_set():
            self.say(f"{self.name(machine)} is gone: {why}")

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._closed.wait(LOOK):
            now = time.monotonic()
            for other, pair in [*self._pairs.items()]:
                if now - looked > 3 * LOOK:  # this machine has slept
                    pair.heard = now
                elif self.alive[other] and pair.silent():
                    pair.give_up(f"it has said nothing for {SILENCE:.0f} seconds")
            looked = now


def readmit(cluster: Cluster, plan: Note) -> None:
    """Let machines in that come back, on machine 0, until the cluster is left; ``plan`` is what they must agree to."""
    facts = plan["facts"]
    never = OWN_ROWS if facts.get("own_rows") else ROTATION if facts["exchange"] == "rotation" else ""
    while not cluster.closed(PAUSE):
        for request, hello in cluster.notes.asks().items():
            free = [k for k in range(1, cluster.machines) if not cluster.alive[k]]
            places = free if hello["number"] is None else [k for k in free if k == hello["number"]]
            if why := never or (unlike({0: cluster.hellos[0], places[0]: hello}) if places else ""):
                cluster.notes.put(f"answer/{request}", {"why": why})
            elif places:
                _let_in(cluster, request, places[0], hello, plan)


def _let_in(cluster: Cluster, request: int, machine: int, hello: dict[str, Any], plan: Note) -> None:
    """Connect everybody to a machine that comes back."""
    here, arrival = cluster.members(ready=False), int(cluster.arrivals.max()) + 1
    cluster.tell({"kind": "comes", "machine": machine, "arrival": arrival, "about": hello}, here[1:])
    hellos = [hello if k == machine else other for k, other in enumerate(cluster.hellos)]
    answer = {"number": machine, "arrival": arrival, "here": here, "hellos": hellos}
    cluster.notes.put(f"answer/{request}", answer)
    with contextlib.suppress(TrainingError):  # it has gone again
        cluster.admit(machine, arrival, hello)
        cluster.beside(lambda: _agree(cluster, machine, plan))


def _agree(cluster: Cluster, machine: int, plan: Note) -> None:
    with contextlib.suppress(TrainingError):  # it has gone again
        if not why_not(cluster, [machine], plan):
            cluster.ready(machine)


def why_not(cluster: Cluster, machines: list[int], plan: Note) -> str:
    """Have machines confirm that they train the same as machine 0, and let them go on.

    If one does not, all of them are refused; the line that says why names both sides.
    """
    cluster.tell(plan, machines)
    unlike = {machine: cluster.next_note(machine, ("agreed",))["unlike"] for machine in machines}
    why = [f"{cluster.name(k)} differs from {cluster.name(0)}: {what}" for k, what in unlike.items() if what]
    cluster.tell({"kind": "refused", "why": why[0]} if why else {"kind": "go"}, machines)
    return why[0] if why else ""


def packed(note: Note, *arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a note says, and a copy of the arrays that go with it, both as bytes (n,) uint8."""
    said = note | {"arrays": [(array.dtype.str, array.shape) for array in arrays]}
    values = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return np.frombuffer(json.dumps(said).encode(), np.uint8).copy(), np.concatenate([EMPTY, *values])


def unpacked(said: np.ndarray, values: np.ndarray) -> Note:
    """Return the note that was :func:`packed`, with its arrays."""
    note: Note = json.loads(said.tobytes())
    for k, (kind, shape) in enumerate(note["arrays"]):
        array = note["arrays"][k] = np.empty(shape, kind)
        array.reshape(-1).view(np.uint8)[:] = values[: array.nbytes]
        values = values[array.nbytes :]
    return note


class Pair:
    """A connection to another machine: a gloo group of two, with a thread that sends and one that receives.

    What gloo asks for: operations of a group come in one order from one thread each way; a wait takes its own time
    limit, since a timeout closes all connections of the group; ``is_completed()`` of a receive stays false until it is
    waited for, so nothing is polled. An end that is killed is noticed at once, since the connection breaks. One that is
    stopped, or whose cable is cut, is noticed by its silence: every machine says something each second ("beat"). A
    receive that was given up stays in its thread, which ends with the process.

    A note is sent as two int64, the lengths of its two parts, and then these.

    Parameters
    ----------
    cluster : Cluster
        Takes what arrives, and hears once when the connection has ended.
    other : int
        The other machine.
    group : ProcessGroupGloo
        A group of two.
    """

    def __init__(self, cluster: Cluster, other: int, group: Any) -> None:
        self._cluster, self._other = cluster, other
        self._arrival = int(cluster.arrivals[other])
        self._group, self._peer = group, int(cluster.number < other)  # the rank of the other end
        self.heard = time.monotonic()
        self.waiting_bytes = 0
        self._queue: queue.SimpleQueue[tuple[np.ndarray, np.ndarray] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._said = False
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name="hogwild-machine", daemon=True)
            for work in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, text: np.ndarray, array: np.ndarray) -> None:
        """Queue a note that is :func:`packed`."""
        with self._lock:
            self.waiting_bytes += len(array)
        self._queue.put((text, array))

    def leave(self, why: str) -> None:
        """Send what is queued and a last note that says why, and wait until the other end has answered, or is silent.

        A thread that still waits in gloo when the interpreter ends aborts the process as soon as it is woken (pytorch
        issue 38228).
        """
        self._say_goodbye(why)
        self.heard = time.monotonic()
        for thread in self._threads:
            while thread is not threading.current_thread() and thread.is_alive() and not self.silent():
                thread.join(PAUSE)
        if any(thread.is_alive() for thread in self._threads):
            self._abandon()

    def silent(self) -> bool:
        """Whether nothing has arrived for so long that the other end counts as dead."""
        return time.monotonic() - self.heard > SILENCE

    def give_up(self, why: str) -> None:
        """End the connection; nothing is sent or received any more."""
        self._end(why)
        self._abandon()
        threading.Thread(target=self._group.abort, daemon=True).start()  # which waits for a peer that is stopped

    def _say_goodbye(self, why: str) -> None:
        with self._lock:
            first, self._said = not self._said, True
        if first:
            self.send(*packed({"kind": "bye", "why": why[:LONGEST_REASON]}))
            self._queue.put(None)

    def _abandon(self) -> None:
        """Leave the group in memory for good: its end would wake threads that wait in it while the interpreter ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def _end(self, why: str) -> None:
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._say_goodbye("so has this one")
            self._cluster.lose(self._other, self._arrival, why)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            gone = any(word in str(error).lower() for word in ("closed", "reset", "abort", "broken pipe"))
            self._end("the connection is closed" if gone else reason_of(error))

    def _send(self) -> None:
        due = time.monotonic()
        while True:
            rest = due - time.monotonic()
            if rest <= 0:  # also while there is much else to send
                due += BEAT_SECONDS - rest
                self.send(*packed({"kind": "beat"}))
            try:
                parts = self._queue.get(timeout=max(rest, 0.0))
            except queue.Empty:
                continue
            if parts is None:
                return
            for part in (np.array([*map(len, parts)]).view(np.uint8), *parts):
                self._put(part)
            with self._lock:
                self.waiting_bytes -= len(parts[1])

    def _receive(self) -> None:
        while True:
            note = unpacked(*map(self._get, self._get(16).view(np.int64).tolist()))
            if note["kind"] == "bye":
                self._end(note["why"])
                return
            if note["kind"] != "beat":
                self._cluster.deliver(note | {"sender": self._other})

    def _put(self, array: np.ndarray) -> None:
        for first in range(0, len(array), PIECE):
            piece = torch.from_numpy(array[first : first + PIECE])
            self._group.send([piece], self._peer, 0).wait(DAY)

    def _get(self, size: int) -> np.ndarray:
        array = np.empty(size, np.uint8)
        for first in range(0, size, PIECE):
            self._group.recv([torch.from_numpy(array[first : first + PIECE])], self._peer, 0).wait(DAY)
            self.heard = time.monotonic()
        return array


def gather(address: str, machines: int, machine: int | None = None, seconds: float = DEADLINE) -> Cluster:
    """Meet the other machines that are to train one model with this one; public as ``hogwild.gather``.

    Use it in a ``with`` block, and give the cluster to :func:`hogwild.train` on every machine. Private networks only:
    the connections are neither encrypted nor authenticated. If the run has begun already, and one of its machines is
    gone, this one takes its place.

    Parameters
    ----------
    address : str
        ``host:port`` of machine 0, the same on all machines.
    machines : int
        How many there are, at least 2.
    machine : int, optional
        This machine's number from 0; given on all or on none. Without it, the one that can listen at the address is
        machine 0, and the others are numbered as they come.
    seconds : float
        When to give up waiting.

    Raises
    ------
    UsageError
        If the address or a number cannot be meant.
    InputError
        If the port is in use, a machine is missing, or has another version of hogwild.

    See Also
    --------
    train, train_module : take the cluster.

    Examples
    --------
    Two machines, here two threads:

    >>> import hogwild, os
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> address = f"127.0.0.1:{10_000 + os.getpid() % 20_000}"
    >>> def machine(number):
    ...     with hogwild.gather(address, 2, number) as cluster:
    ...         rows = "synthetic:uniform?rows=200&features=50&nnz=5"
    ...         return hogwild.train(rows, cluster=cluster, workers=1, epochs=2).finish()
    >>> first, second = ThreadPoolExecutor().map(machine, range(2))
    >>> (first.coef_ == second.coef_).all()
    np.True_
    """
    return Cluster.of(Meeting(address, machines, machine), {}, seconds=seconds)
