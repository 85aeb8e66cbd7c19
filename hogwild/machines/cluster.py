"""The machines that have met: connections between every two of them, and who is still there.

A gloo group of two for every connection, not one of all: when a machine dies, gloo closes a group for good, and the
others go on.

A thread looks each second who has said nothing for ten, and gives it up. If it finds that it has slept itself (this
machine was suspended, or paged), everybody gets ten more seconds.

A machine that is gone comes back into its run (:class:`Readmission`): it asks at the address where all met, and machine
0 lets it in. Groups of gloo are never used again: with each that comes back a number goes up, which stands in the names
of its new groups. It takes part from the next task on, which begins with machine 0's model. The run's own number stands
in all keys, so a machine 0 that was started again, whose run is another one, never hears of the old run's machines.
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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from hogwild.errors import HogwildError, InputError, TrainingError, reason_of
from hogwild.exchanges.trade import NOTHING, Message
from hogwild.machines.meeting import DEADLINE, Meeting, Met, difference, is_hello, meet

BEAT, NOTE, TRADE, BYE = range(4)  # kinds of frames
CELLS = 10  # of a frame's header
PIECE = 4 << 20  # bytes sent at a time, so that a large payload is heard of all the while
BEAT_SECONDS = 1.0
LEAVING_SECONDS = 10.0  # a thread that still waits when the interpreter ends would abort the process
DAY = datetime.timedelta(days=1)  # a wait without an end: who is silent is given up by the cluster
SILENCE = 10.0  # seconds after which a machine that says nothing is given up
LOOK = 1.0
PAUSE = 0.2  # seconds between two looks for machines that come back
COMING = 10.0  # seconds in which a machine that may come back has to connect
LONGEST_REASON = 1000  # characters
OWN_ROWS = "a run in which machines have rows of their own goes on without those that were gone: start it again"
ROTATION = "a run by rotation ends when a machine is gone: start all of them again, with --resume"
Note = dict[str, Any]  # its "kind", its "sender", what else it says, and as "array" the bytes sent with it


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

    def __init__(self, met: Met, say: Callable[[str], None], seconds: float = DEADLINE) -> None:
        self.number = met.number
        self.machines = len(met.hellos)
        self.hellos = [*met.hellos]
        self.say = say
        self.ending = False
        self.alive = np.ones(self.machines, bool)
        self.reasons: dict[int, str] = {}
        self.arrivals = np.zeros(self.machines, np.int64)
        self.losses = self.news = 0
        self.progress = np.zeros((self.machines, 2), np.int64)  # rows and nonzeros of the task, as last heard
        self.own_progress: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.changed = threading.Condition()
        self._heard: list[Note] = []
        self._trades: dict[int, list[tuple[int, Frame]]] = {}  # by task
        self._pairs: dict[int, Pair] = {}
        self._closed, self._beside = threading.Event(), list[threading.Thread]()
        self.notes = met.notes
        self._ready = np.ones(self.machines, bool)  # who can take part
        if met.here is not None:
            self.alive[:] = False
            self.alive[[*met.here, self.number]] = True
            self.arrivals[self.number] = met.arrival
        threading.Thread(target=self._watch, name="hogwild-cluster", daemon=True).start()
        try:
            for other in self.members():  # all in one order, so that nobody waits in a circle
                if other != self.number:
                    self._add(other, self._connect(other, met.arrival, seconds))
            for other in met.here or ():
                self.next_note(other, ("met",))
        except BaseException:
            self.leave("it could not reach all")
            raise
        if met.here is not None:
            self.tell({"kind": "here"}, 0)

    @classmethod
    def of(
        cls,
        meeting: Meeting,
        about: dict[str, Any],
        say: Callable[[str], None] = lambda line: None,
        seconds: float = DEADLINE,
        failure: Callable[[], str] = str,
    ) -> Cluster:
        """Meet and connect (see :func:`hogwild.machines.meeting.meet`)."""
        until = time.monotonic() + seconds
        while True:
            met = meet(meeting, about, max(until - time.monotonic(), 1.0), failure)
            try:
                return cls(met, say, min(seconds, DEADLINE))
            except TrainingError:
                if met.here is None or time.monotonic() > until:
                    raise  # else machine 0 may have given up this one, which was slow to connect: ask again

    def _connect(self, other: int, arrival: int, seconds: float) -> Any:
        """Return a group of this machine and another one, one of which has come with that number."""
        low, high = sorted((self.number, other))
        store = PrefixStore(f"{arrival}/{low}-{high}", self.notes.raw())
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
        arrival = int(self.arrivals[other])
        with self.changed:  # what arrives waits
            self.alive[other] = True
            self._pairs[other] = Pair(
                group,
                int(self.number > other),
                lambda frame: self._deliver(other, frame),
                lambda why: self._lose(other, arrival, why),
                lambda: self.own_progress(),
            )
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
            self.progress[machine] = 0
            self._ready[machine] = False
            self._heard = [note for note in self._heard if note["sender"] != machine]
        self._add(machine, self._connect(machine, arrival, COMING))
        self.tell({"kind": "met"}, machine)

    def ready(self, machine: int) -> None:
        """Let a machine take part from the next task on."""
        self._ready[machine] = True
        self.say(f"{self.name(machine)} is back")

    def beside(self, work: Callable[[], None]) -> None:
        """Do something in a thread that :meth:`leave` waits for."""
        self._beside.append(threading.Thread(target=work, name="hogwild-cluster", daemon=True))
        self._beside[-1].start()

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

    def send(self, to: int, frame: Frame) -> None:
        """Send to a machine, if it is still there."""
        if self.alive[to]:
            self._pairs[to].send(frame)

    def tell(self, content: Note, to: int | None = None, *arrays: np.ndarray) -> None:
        """Send a note, and arrays with it, to a machine, or to all others."""
        frame = Frame.note(content, *arrays)
        for other in [*self._pairs] if to is None else (to,):
            self.send(other, frame)

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
        TrainingError
            If the machine is gone.
        """
        with self.changed:
            while True:
                for k, note in enumerate(self._heard):
                    if note["sender"] == sender and note.get("kind") in kinds:
                        return self._heard.pop(k)
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

    def arrays_of(self, note: Note, *expected: tuple[Any, int]) -> list[np.ndarray]:
        """Return the arrays sent with a note, given the type and the number of elements of each.

        Raises
        ------
        TrainingError
            If these are others.
        """
        ends = np.cumsum([size * np.dtype(kind).itemsize for kind, size in expected], dtype=np.int64)
        count, wanted = len(note["array"]), int(ends[-1]) if len(ends) else 0
        if count != wanted:
            raise TrainingError(f"{self.name(note['sender'])} sent arrays of {count:,} bytes, expected {wanted:,}")
        parts = np.split(note["array"], ends[:-1])
        return [part.copy().view(kind) for part, (kind, _) in zip(parts, expected)]

    def trades(self, task: int) -> list[tuple[int, Frame]]:
        """Return, once, the messages of a task that have arrived, with their senders; those of earlier tasks go."""
        with self.changed:
            for old in [number for number in self._trades if number < task]:
                del self._trades[old]
            return self._trades.pop(task, [])

    def leave(self, why: str = "it has left") -> None:
        """Say goodbye; nothing arrives afterwards."""
        if not self._closed.is_set():
            self._closed.set()
            pairs = [*self._pairs.values()]
            leaving = [threading.Thread(target=pair.leave, args=(why,), daemon=True) for pair in pairs]
            for thread in leaving:
                thread.start()
            for thread in (*leaving, *self._beside):
                thread.join(LOOK + COMING)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Leave; if because of an error that is the user's to mend, say it to the others."""
        self.leave(*[str(error)[:LONGEST_REASON]] if isinstance(error, HogwildError) else [])

    def _deliver(self, sender: int, frame: Frame) -> None:
        if frame.kind == BEAT:
            self.progress[sender] = frame.message.rows, frame.message.step
            return
        with self.changed:
            if frame.kind == TRADE:
                self._trades.setdefault(frame.task, []).append((sender, frame))
            else:
                note = frame.text() | {"sender": sender, "array": frame.message.values}
                if note.get("kind") == "comes" and sender == 0:
                    self.beside(lambda: self._meet_again(note))
                else:
                    self._heard.append(note)
            self.tell_threads()

    def _meet_again(self, note: Note) -> None:
        with contextlib.suppress(TrainingError):  # machine 0 gives it up
            self.admit(note["machine"], note["arrival"], note["about"])

    def _lose(self, machine: int, arrival: int, why: str) -> None:
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
                elif self.alive[other] and now - pair.heard > SILENCE:
                    pair.give_up(f"it has said nothing for {SILENCE:.0f} seconds")
            looked = now


class Readmission:
    """Lets machines in that come back, on machine 0, until the cluster is left."""

    def __init__(self, cluster: Cluster, plan: dict[str, Any]) -> None:
        self._cluster = cluster
        self._notes = cluster.notes
        self._plan = plan
        self._arrivals = 0
        cluster.beside(self._watch)

    def _watch(self) -> None:
        seen, waiting = 0, list[int]()
        while not self._cluster.closed(PAUSE):
            try:
                requests = self._notes.count("backs", 0)
            except InputError:  # another program has written there: nobody comes back
                return
            waiting += range(seen + 1, requests + 1)
            seen = requests
            waiting = [request for request in waiting if not self._settled(f"back/{request}")]

    def _settled(self, request: str) -> bool:
        """Answer a request if that can be done now; whether it was, or nobody waits any more."""
        cluster = self._cluster
        try:
            hello = self._notes.get(request, self)
        except InputError:
            return True
        if hello is self:  # about to be written
            return False
        if not is_hello(hello):  # withdrawn, or of another program
            return True
        facts = self._plan["facts"]
        why = OWN_ROWS if facts["own_rows"] else ROTATION if facts["exchange"] == "rotation" else ""
        if not why:
            free = [k for k in range(1, cluster.machines) if not cluster.alive[k]]
            number = hello.get("number")
            if number is None and free:
                number = free[0]
            if number not in free:
                return False
            if unlike := difference(cluster.hellos[0], hello):
                why = f"machine {number} ({hello['host']}) differs from {cluster.name(0)}: {unlike}"
        if why:
            self._notes.put(f"{request}/answer", {"why": why})
            return True
        self._arrivals += 1
        here = cluster.members(ready=False)
        for other in here[1:]:
            cluster.tell({"kind": "comes", "machine": number, "arrival": self._arrivals, "about": hello}, other)
        hellos = [hello if k == number else other for k, other in enumerate(cluster.hellos)]
        answer = {"number": number, "arrival": self._arrivals, "here": here, "hellos": hellos}
        self._notes.put(f"{request}/answer", answer)
        try:
            cluster.admit(number, self._arrivals, hello)
        except TrainingError:  # it has gone again
            return True
        cluster.beside(lambda: self._agree(number))
        return True

    def _agree(self, machine: int) -> None:
        """Have a machine confirm that it trains the same, and let it take part."""
        cluster = self._cluster
        try:
            cluster.next_note(machine, ("here",), lambda: cluster.closed(0.0))
            cluster.tell(self._plan, machine)
            answer = cluster.next_note(machine, ("agreed",), lambda: cluster.closed(0.0))
        except TrainingError:
            return
        if unlike := answer.get("unlike"):
            why = f"{cluster.name(machine)} differs from {cluster.name(0)}: {unlike}"
            cluster.tell({"kind": "refused", "why": why}, machine)
            return
        if answer["kind"] == "agreed":
            cluster.tell({"kind": "go"}, machine)
            cluster.ready(machine)


class Frame(NamedTuple):
    """A message of an exchange, and the task that it belongs to; or a note.

    It is sent as a header of ten int64, and then as many bytes as that says. Nothing is unpickled.
    """

    kind: int  # BEAT, NOTE, TRADE, BYE
    task: int = 0  # counted by machine 0 from 1
    ended: int = 0  # whether the sender's workers have done their share of the task
    message: Message = NOTHING  # of a beat: rows done, and nonzeros as ``step``; of a note: arrays, and JSON as indices

    @classmethod
    def note(cls, content: Any, *arrays: np.ndarray) -> Frame:
        """The frame of something that is sent as JSON, and of arrays."""
        values = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        text = np.frombuffer(json.dumps(content).encode(), np.uint8).copy()
        return cls(NOTE, message=Message(0, 0, 0, np.concatenate([text[:0], *values]), text))

    def text(self) -> Any:
        """What a note says."""
        return json.loads(self.message.indices.tobytes())

    def header(self) -> np.ndarray:
        """The header (CELLS,) int64; the values and then the indices of the message follow."""
        m = self.message
        sizes = m.values.dtype == np.uint8, m.values.nbytes, m.indices.nbytes
        return np.array([self.kind, self.task, self.ended, m.kind, m.clock, m.rows, m.step, *sizes], np.int64)

    @classmethod
    def of(cls, header: np.ndarray, values: np.ndarray, indices: np.ndarray) -> Frame:
        """The frame of a header and the bytes (n,) uint8 that follow it."""
        kind, task, ended, message_kind, clock, rows, step, coded, *_ = map(int, header)
        values = values if coded else values.view(np.float32)
        indices = indices.view(np.int32) if kind == TRADE else indices
        return cls(kind, task, ended, Message(message_kind, clock, rows, values, indices, step))


class Pair:
    """A connection to another machine: a gloo group of two, with a thread that sends and one that receives.

    What gloo asks for: operations of a group come in one order from one thread each way; a wait takes its own time
    limit, since a timeout closes all connections of the group; ``is_completed()`` of a receive stays false until it is
    waited for, so nothing is polled. An end that is killed is noticed at once, since the connection breaks. One that is
    stopped, or whose cable is cut, is noticed by its silence: every machine says something each second (``BEAT``). A
    receive that was given up stays in its thread, which ends with the process.

    Parameters
    ----------
    group : ProcessGroupGloo
        A group of two.
    rank : int
        This end's rank in it.
    deliver : callable
        Called with every frame that arrives, but beats' only for their counts; in the receiving thread.
    lost : callable
        Called once with the reason when the connection has ended.
    beat : callable
        Returns rows and nonzeros that this machine has done of its task.
    """

    def __init__(
        self,
        group: Any,
        rank: int,
        deliver: Callable[[Frame], None],
        lost: Callable[[str], None],
        beat: Callable[[], tuple[int, int]],
    ) -> None:
        self._group, self._rank = group, rank
        self._deliver = deliver
        self._lost = lost
        self._beat = beat
        self.heard = time.monotonic()
        self.waiting_bytes = 0
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = False
        self._said = False
        self._kept = False
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name="hogwild-machine", daemon=True)
            for work in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, frame: Frame) -> None:
        """Queue a frame; its arrays must not be written to afterwards."""
        with self._lock:
            self.waiting_bytes += frame.message.size
        self._frames.put(frame)

    def leave(self, why: str) -> None:
        """Send what is queued and a last frame that says why, and wait shortly until the other end has answered."""
        self._say_goodbye(why)
        until = time.monotonic() + LEAVING_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in self._threads):
            self._abandon()

    def give_up(self, why: str) -> None:
        """End the connection; nothing is sent or received any more."""
        self._end(why)
        self._abandon()
        threading.Thread(target=self._group.abort, daemon=True).start()  # which waits for a peer that is stopped

    def _say_goodbye(self, why: str) -> None:
        with self._lock:
            first, self._said = not self._said, True
        if first:
            self.send(Frame.note(why[:LONGEST_REASON])._replace(kind=BYE))
            self._frames.put(None)

    def _abandon(self) -> None:
        """Leave the group in memory for good: its end would wake threads that wait in it while the interpreter ends."""
        if not self._kept:
            self._kept = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))

    def _end(self, why: str) -> None:
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._say_goodbye("so has this one")
            self._lost(why)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            gone = "closed" in str(error) or "reset" in str(error).lower() or "abort" in str(error).lower()
            self._end("the connection is closed" if gone else reason_of(error))

    def _send(self) -> None:
        due = time.monotonic()
        while True:
            rest = due - time.monotonic()
            if rest <= 0:  # also while there is much else to send
                due += BEAT_SECONDS - rest
                rows, nonzeros = self._beat()
                frame: Frame | None = Frame(BEAT, message=Message(0, 0, rows, step=nonzeros))
            else:
                try:
                    frame = self._frames.get(timeout=rest)
                except queue.Empty:
                    continue
            if frame is None:
                return
            message = frame.message
            for part in (frame.header(), message.values, message.indices):
                self._put(np.ascontiguousarray(part).view(np.uint8))
            with self._lock:
                self.waiting_bytes -= message.size if frame.kind != BEAT else 0

    def _receive(self) -> None:
        while True:
            header = self._get(8 * CELLS).view(np.int64)
            frame = Frame.of(header, self._get(int(header[-2])), self._get(int(header[-1])))
            if frame.kind == BYE:
                self._end(str(frame.text()))
                return
            self._deliver(frame)

    def _put(self, array: np.ndarray) -> None:
        for first in range(0, len(array), PIECE):
            piece = torch.from_numpy(array[first : first + PIECE])
            self._group.send([piece], 1 - self._rank, 0).wait(DAY)

    def _get(self, size: int) -> np.ndarray:
        array = np.empty(size, np.uint8)
        for first in range(0, size, PIECE):
            self._group.recv([torch.from_numpy(array[first : first + PIECE])], 1 - self._rank, 0).wait(DAY)
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
    """
    return Cluster.of(Meeting(address, machines, machine), {}, seconds=seconds)
