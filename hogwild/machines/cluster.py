"""The machines that have met: connections between every two of them, and who is still there.

A thread looks each second who has said nothing for ten, and gives it up. If it finds that it has slept itself (this
machine was suspended, or paged), everybody gets ten more seconds.

A machine that is gone comes back into its run (:class:`Door`): it asks at the address where all met, and machine 0 lets
it in. Groups of gloo are never used again: with each that comes back a number goes up, which stands in the names of its
new groups. It takes part from the next task on, which begins with machine 0's model. The run's own number stands in all
keys, so a machine 0 that was started again, whose run is another one, never hears of the old run's machines.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from hogwild.errors import HogwildError, InputError, TrainingError
from hogwild.exchanges.trade import Message
from hogwild.machines.meeting import DEADLINE, Meeting, Met, Seat, difference, is_hello, meet
from hogwild.machines.pair import (
    BEAT,
    MODEL,
    MOST_TEXT,
    PIECE,
    TEXT,
    TRADE,
    Frame,
    Pair,
    connect,
    text_frame,
    text_of,
)

SILENCE = 10.0  # seconds after which a machine that says nothing is given up
LOOK = 1.0
PAUSE = 0.2  # seconds between two looks for machines that come back
COMING = 10.0  # seconds in which a machine that may come back has to connect
LONGEST_REASON = 1000  # characters
OWN_ROWS = "a run in which machines have rows of their own goes on without those that were gone: start it again"
ROTATION = "a run by rotation ends when a machine is gone: start all of them again, with --resume"
Note = tuple[int, dict[str, Any]]  # sender and content


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
    came : ndarray of int
        With which number each has come, (machines,): 0 at first, and greater whenever one has come back.
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
        self.machines = len(met.seats)
        self.seats = [*met.seats]
        self.say = say
        self.ending = False
        self.alive = np.ones(self.machines, bool)
        self.reasons: dict[int, str] = {}
        self.came = np.zeros(self.machines, np.int64)
        self.losses = self.news = 0
        self.progress = np.zeros((self.machines, 2), np.int64)  # rows and nonzeros of the task, as last heard
        self.own_progress: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.changed = threading.Condition()
        self.heard: deque[Note] = deque()
        self.models: dict[int, np.ndarray] = {}  # by task: what machine 0 has sent
        self._pieces: dict[tuple[int, int], list[np.ndarray]] = {}  # of arrays, by sender and number
        self._trades: dict[int, list[tuple[int, Frame]]] = {}  # by task
        self._pairs: dict[int, Pair] = {}
        self._closed, self._beside = threading.Event(), list[threading.Thread]()
        self.notes = met.notes
        self._ready = np.ones(self.machines, bool)  # who can take part
        if met.here is not None:
            self.alive[:] = False
            self.alive[[*met.here, self.number]] = True
            self.came[self.number] = met.came
        threading.Thread(target=self._watch, name="hogwild-cluster", daemon=True).start()
        try:
            for other in self.members():  # all in one order, so that nobody waits in a circle
                if other != self.number:
                    self._add(other, self._connect(other, met.came, seconds))
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
            met = meet(meeting, about, say, max(until - time.monotonic(), 1.0), failure)
            try:
                return cls(met, say, min(seconds, DEADLINE))
            except TrainingError:
                if met.here is None or time.monotonic() > until:
                    raise  # else machine 0 may have given up this one, which was slow to connect: ask again

    def _connect(self, other: int, came: int, seconds: float) -> Any:
        """Return a group of this machine and another one, one of which has come with that number."""
        low, high = sorted((self.number, other))
        try:
            name, mine = f"{came}/{low}-{high}", self.seats[self.number].address
            return connect(self.notes.raw(), name, int(self.number == high), mine, seconds)
        except TrainingError as error:
            raise TrainingError(f"machine {self.number} cannot connect to {self.name(other)}: {error}") from None

    def _add(self, other: int, group: Any) -> None:
        came = int(self.came[other])
        with self.changed:  # what arrives waits
            self.alive[other] = True
            self._pairs[other] = Pair(
                group,
                int(self.number > other),
                lambda frame: self._deliver(other, frame),
                lambda why: self._lose(other, came, why),
                lambda: self.own_progress(),
            )
            self.tell_threads()

    def admit(self, machine: int, came: int, about: dict[str, Any]) -> None:
        """Connect to a machine that has come back; it takes part when it is :meth:`ready`.

        Raises
        ------
        TrainingError
            If it does not come.
        """
        self.give_up(machine, "it has come back")  # if this machine has not noticed that it was gone
        with self.changed:
            self.seats[machine] = Seat(machine, about["address"], about)
            self.came[machine] = came
            self.progress[machine] = 0
            self._ready[machine] = False
            self.heard = deque(note for note in self.heard if note[0] != machine)
        self._add(machine, self._connect(machine, came, COMING))
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
        return f"machine {machine} ({self.seats[machine].about['host']})"

    def require(self, machine: int) -> None:
        """Raise TrainingError with the reason if a machine is gone."""
        if not self.alive[machine]:
            raise TrainingError(f"{self.name(machine)} is gone: {self.reasons[machine]}")

    def send(self, to: int, frame: Frame) -> None:
        """Send to a machine, if it is still there."""
        if self.alive[to]:
            self._pairs[to].send(frame)

    def tell(self, content: dict[str, Any], to: int | None = None) -> None:
        """Send a dict to a machine, or to all others."""
        for other in [*self._pairs] if to is None else (to,):
            self.send(other, text_frame(content))

    def give_up(self, machine: int, why: str) -> None:
        """End the connection to a machine, if it is still there."""
        if self.alive[machine] and machine != self.number:
            self._pairs[machine].give_up(why)

    def waiting(self, to: int) -> int:
        """Return the bytes that are queued for a machine."""
        return self._pairs[to].waiting_bytes

    def next_note(
        self, sender: int, kinds: Collection[str], stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Wait for a machine's next note of some kinds, and return it; one of kind "stopped" as soon as ``stopped()``.

        Raises
        ------
        TrainingError
            If the machine is gone.
        """
        while True:
            with self.changed:
                for note in self.heard:
                    if note[0] == sender and note[1].get("kind") in kinds:
                        self.heard.remove(note)
                        return note[1]
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

    def take_model(self, task: int, size: int) -> np.ndarray | None:
        """Return, once, the model (size,) that machine 0 has sent for a task, or None if it has not arrived.

        Raises
        ------
        TrainingError
            If it is of another size.
        """
        with self.changed:
            model = self.models.pop(task, None)
        if model is not None and len(model) != size:
            raise TrainingError(f"{self.name(0)} sent a model of {len(model)} numbers, expected {size}")
        return model

    def send_array(self, to: int, number: int, array: np.ndarray) -> None:
        """Send an array to a machine, in pieces; those of one number arrive in the order in which they are sent."""
        sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for first in range(0, len(sent), MOST_TEXT):
            piece = sent[first : first + MOST_TEXT]
            self.send(to, Frame(PIECE, number, message=Message(0, 0, 0, piece)))

    def next_array(self, sender: int, number: int, kind: Any, size: int) -> np.ndarray:
        """Wait for a machine's next array of a number, of ``size`` elements; those of earlier numbers go.

        Raises
        ------
        TrainingError
            If the machine is gone, or has sent another array.
        """
        wanted, taken = size * np.dtype(kind).itemsize, np.empty((size,), kind)
        cells, done = taken.view(np.uint8), 0
        while done < wanted:
            with self.changed:
                for old in [key for key in self._pieces if key[0] == sender and key[1] < number]:
                    del self._pieces[old]
                while not (pieces := self._pieces.get((sender, number))):
                    self.require(sender)
                    self.changed.wait(LOOK)
                piece = pieces.pop(0)
            if len(piece) > wanted - done:
                raise TrainingError(f"{self.name(sender)} has sent more than {wanted:,} bytes of an array")
            cells[done : done + len(piece)] = piece
            done += len(piece)
        return taken

    def take_notes(self, kind: str, task: int) -> list[int]:
        """Return, once, who has sent a note of a kind about a task; those about earlier tasks go."""
        with self.changed:
            found = [note for note in self.heard if note[1].get("kind") == kind and note[1].get("task", 0) <= task]
            for note in found:
                self.heard.remove(note)
        return [sender for sender, content in found if content.get("task") == task]

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
        if frame.kind == TEXT:
            content = text_of(frame)
            if content.get("kind") == "comes" and sender == 0:
                self.beside(lambda: self._meet_again(content))
                return
        with self.changed:
            if frame.kind == BEAT:
                self.progress[sender] = frame.message.rows, frame.message.step
                return
            if frame.kind == TEXT:
                self.heard.append((sender, content))
            elif frame.kind == MODEL:
                self.models[frame.task] = frame.message.values
            elif frame.kind == PIECE:
                self._pieces.setdefault((sender, frame.task), []).append(frame.message.values)
            elif frame.kind == TRADE:
                self._trades.setdefault(frame.task, []).append((sender, frame))
            self.tell_threads()

    def _meet_again(self, note: dict[str, Any]) -> None:
        with contextlib.suppress(TrainingError):  # machine 0 gives it up
            self.admit(note["machine"], note["came"], note["about"])

    def _lose(self, machine: int, came: int, why: str) -> None:
        with self.changed:
            if self.came[machine] != came:  # it has come back since
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


class Door:
    """Lets machines in that come back, on machine 0, until the cluster is left."""

    def __init__(self, cluster: Cluster, plan: dict[str, Any]) -> None:
        self._cluster = cluster
        self._notes = cluster.notes
        self._plan = plan
        self._came = 0
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
        if why := OWN_ROWS if facts["own_rows"] else ROTATION if facts["exchange"] == "rotation" else "":
            self._notes.put(f"{request}/answer", {"why": why})
            return True
        free = [k for k in range(1, cluster.machines) if not cluster.alive[k]]
        number = hello.get("number")
        if number is None and free:
            number = free[0]
        if number not in free:
            return False
        if unlike := difference(self._notes.get("hello/0"), hello):
            why = f"machine {number} ({hello['host']}) differs from {cluster.name(0)}: {unlike}"
            self._notes.put(f"{request}/answer", {"why": why})
            return True
        self._came += 1
        here = cluster.members(ready=False)
        for other in here[1:]:
            cluster.tell({"kind": "comes", "machine": number, "came": self._came, "about": hello}, other)
        seats = [hello if seat.number == number else seat.about for seat in cluster.seats]
        answer = {"number": number, "came": self._came, "here": here, "seats": seats}
        self._notes.put(f"{request}/answer", answer)
        try:
            cluster.admit(number, self._came, hello)
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


def gather(
    address: str, machines: int, machine: int | None = None, job: str = "", seconds: float = DEADLINE
) -> Cluster:
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
    job : str
        A name that keeps two runs at one address apart.
    seconds : float
        When to give up waiting.

    Raises
    ------
    UsageError
        If the address or a number cannot be meant.
    InputError
        If the port is in use, a machine is missing, or has another version of hogwild.
    """
    return Cluster.of(Meeting(address, machines, machine, job), {}, seconds=seconds)
