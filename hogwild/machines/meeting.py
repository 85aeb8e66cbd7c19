"""Machines meet at an address: who is which, and whether all want the same, before anything is trained.

Machine 0 listens at the address of ``--meet``, on that address only, with a TCPStore of torch. Everybody writes what it
is and wants under its number, and machine 0 answers with a verdict that all read, so that a difference or a missing
machine is the same one line everywhere. Numbers are given (``--machine``) or taken from a counter. The number of the
run is new whenever machine 0 starts, and stands in every key.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

from hogwild.errors import InputError, TrainingError, UsageError, reason_of

DEADLINE = 50.0  # seconds until everybody must have come
PAUSE = 0.05


@dataclass(frozen=True)
class Meeting:
    """Where and as whom this machine meets the others.

    Parameters
    ----------
    address : str
        ``host:port`` of machine 0, the same on all machines.
    machines : int
        How many there are.
    machine : int, optional
        This machine's number from 0; given to all or to none. Without it, the one that can listen at the address is
        machine 0, and the others are numbered as they come.
    local : bool
        Whether this machine starts the others itself.
    """

    address: str
    machines: int
    machine: int | None = None
    local: bool = False

    def __post_init__(self) -> None:
        self.place()
        if self.machines < 2:
            raise UsageError(f"machines={self.machines}: a meeting has at least two")
        if self.machine is not None and not 0 <= self.machine < self.machines:
            raise UsageError(f"machine={self.machine}: expected a number from 0 to {self.machines - 1}")

    def place(self) -> tuple[str, int]:
        """Return host and port.

        Raises
        ------
        UsageError
            If the address is not ``host:port``.
        """
        host, _, port = self.address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"meet={self.address!r}: expected HOST:PORT of machine 0, as in first:29500")
        return host.strip("[]"), int(port)


class Met(NamedTuple):
    """The result of a meeting."""

    notes: Notes  # where the machines still leave notes for each other
    hellos: list[dict[str, Any]]  # what each machine says of itself: its address and host, and what all have in common
    number: int  # this machine's
    arrival: int = 0  # its number, see Cluster
    here: list[int] | None = None  # who is there, if some are gone


def meet(
    meeting: Meeting,
    about: dict[str, Any],
    seconds: float = DEADLINE,
    failure: Callable[[], str] = str,
) -> Met:
    """Wait until all machines are here and want the same.

    Parameters
    ----------
    meeting : Meeting
    about : dict
        What all must have in common, as JSON.
    seconds : float
        When to give up.
    failure : callable
        Says why waiting is in vain, if machine 0 knows; else an empty string.

    Raises
    ------
    InputError
        If the port is in use, the address cannot be reached, a machine is missing, or machines differ; the
        line names both sides.
    """
    deadline = time.monotonic() + seconds
    listening = _listen(meeting)
    leads = listening is not None
    store = _store(meeting, listening, seconds)
    notes = Notes(store, "hogwild/", deadline, meeting.address)
    if leads:
        run = secrets.randbits(62)
        notes.put("run", run)
    else:
        run = notes.wait("run", f"machine 0 has not come to {meeting.address}")
    notes = notes.under(f"{run}/")
    if not leads and notes.get("verdict", None) == "":  # the run has begun
        return _ask_back(meeting, notes, _own_facts(meeting) | about)
    number = _number(meeting, notes, leads)
    token = f"{socket.gethostname()}, process {os.getpid()}"
    if (other := notes.claim(f"seat/{number}", token)) != token:
        raise InputError(f"machine {number} is {other} already, and {token} asks for the same number (--machine)")
    notes.put(f"hello/{number}", _own_facts(meeting) | about)
    if leads:
        _judge(meeting, notes, failure)
    else:
        late = f"machine 0 has not gathered all {meeting.machines} machines"
        if verdict := notes.wait("verdict", late, seconds):
            raise InputError(verdict)
    return Met(notes, [notes.get(f"hello/{k}") for k in range(meeting.machines)], number)


def _ask_back(meeting: Meeting, notes: Notes, hello: dict[str, Any]) -> Met:
    """Ask machine 0 for the place of a machine that is gone from a run that has begun, and wait for its answer.

    Raises
    ------
    InputError
        If it refuses, or no place has become free in time.
    """
    request, number = f"back/{notes.count('backs')}", meeting.machine
    notes.put(request, hello | {"number": number})
    gone = "none of them is gone" if number is None else f"machine {number} is not gone"
    late = f"{meeting.machines} machines have met at {meeting.address} already, and {gone}"
    try:
        answer = notes.wait(f"{request}/answer", late)
    except InputError:
        notes.put(request, None)
        raise
    if "why" in answer:
        raise InputError(answer["why"])
    return Met(notes, **answer)


def _own_facts(meeting: Meeting) -> dict[str, Any]:
    """Return what a machine writes of itself, beside what all must have in common."""
    common = {"version": version("hogwild"), "machines": meeting.machines}
    return common | {"address": _own_address(meeting), "host": socket.gethostname()}


def _judge(meeting: Meeting, notes: Notes, failure: Callable[[], str]) -> None:
    """Wait for the others, compare what they want with what this machine wants, and let all know (machine 0)."""
    while True:
        came: dict[int, dict[str, Any]] = {}
        try:
            came = {k: hello for k in range(meeting.machines) if (hello := notes.get(f"hello/{k}", None)) is not None}
            verdict = _unlike(came) or failure()
        except InputError as error:
            verdict = str(error)
        missing = [k for k in range(meeting.machines) if k not in came]
        if verdict or not missing or notes.late:
            break
        time.sleep(PAUSE)
    if missing and not verdict:
        names = f"machine{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {meeting.machines}"
        verdict = f"{names} did not come to {meeting.address}"
    notes.put("verdict", verdict)
    if verdict:
        time.sleep(1.0)  # until the others have read it
        raise InputError(verdict)


def _unlike(came: dict[int, dict[str, Any]]) -> str:
    """Return why machines that have come cannot train together, or an empty string."""
    for k, hello in came.items():
        if unlike := difference(came[0], hello):
            return f"machine {k} ({hello['host']}) differs from machine 0 ({came[0]['host']}): {unlike}"
    return ""


def difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Return the first thing in which two machines differ, or an empty string."""
    for name in [name for name in mine if name not in ("address", "host", "number")]:
        if mine[name] != theirs.get(name):
            return f"{name} is {theirs.get(name)} there and {mine[name]} here"
    return ""


class Notes:
    """JSON under keys of a store; nothing waits longer than the deadline.

    Everybody who reaches the address can write there. What is no JSON, or no dict where a machine says what it is, is
    an InputError.
    """

    def __init__(self, store: Any, prefix: str, deadline: float, address: str) -> None:
        self._store = store
        self._prefix = prefix
        self._deadline = deadline
        self._address = address

    def under(self, prefix: str) -> Notes:
        return Notes(self._store, self._prefix + prefix, self._deadline, self._address)

    def raw(self) -> Any:
        from torch.distributed import PrefixStore

        return PrefixStore(self._prefix, self._store)

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def put(self, name: str, value: Any) -> None:
        self._store.set(self._prefix + name, json.dumps(value))

    def get(self, name: str, *missing: Any) -> Any:
        if missing and not self._store.check([self._prefix + name]):
            return missing[0]
        return self._read(name, self._store.get(self._prefix + name))

    def _read(self, name: str, text: bytes) -> Any:
        with contextlib.suppress(ValueError):
            value = json.loads(text)
            if not name.startswith("hello/") or is_hello(value):
                return value
        raise InputError(f"another program writes to the store at {self._address} (key {name}): meet at another port")

    def wait(self, name: str, otherwise: str, more: float = 0.0) -> Any:
        """Return a note as soon as it is there; raise InputError with ``otherwise`` if it never comes."""
        try:
            while (note := self.get(name, self)) is self:
                if time.monotonic() > self._deadline + more:
                    raise InputError(f"{otherwise} within {DEADLINE + more:.0f} seconds")
                time.sleep(PAUSE)
        except RuntimeError:  # of the store
            raise InputError(f"{otherwise}: its connection is closed") from None
        return note

    def claim(self, name: str, token: str) -> str:
        """Write a note if there is none; return the one that stands there."""
        return str(self._read(name, self._store.compare_set(self._prefix + name, "", json.dumps(token))))

    def count(self, name: str, more: int = 1) -> int:
        try:
            return int(self._store.add(self._prefix + name, more))
        except RuntimeError as error:
            raise InputError(f"cannot count {name} in the store at {self._address}: {reason_of(error)}") from None


def is_hello(value: Any) -> bool:
    """Whether this is what a machine says of itself."""
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("address", "host"))


def _listen(meeting: Meeting) -> socket.socket | None:
    """Return a socket that listens at the address and nowhere else, if this is machine 0."""
    if meeting.machine not in (None, 0):
        return None
    host, port = meeting.place()
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        if meeting.machine is None and error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            return None  # machine 0 is there already, or the address is another machine's
        raise InputError(f"machine 0 cannot listen at {meeting.address}: {reason_of(error)}") from None


def _store(meeting: Meeting, listening: socket.socket | None, seconds: float) -> Any:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # every lost connection would print a stack
    from torch.distributed import TCPStore

    host, port = meeting.place()
    wait = datetime.timedelta(seconds=seconds)
    if listening is not None:
        try:
            return TCPStore(
                host, port, is_master=True, wait_for_workers=False, timeout=wait, master_listen_fd=listening.detach()
            )
        except RuntimeError as error:
            raise InputError(f"machine 0 cannot listen at {meeting.address}: {reason_of(error)}") from None
    last: Exception = TimeoutError()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with socket.create_connection((host, port), timeout=5):  # says in a word what the store says in a page
                pass
            return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)
        except (OSError, RuntimeError) as error:
            last = error
            if isinstance(error, socket.gaierror):
                break
            time.sleep(4 * PAUSE)
    raise InputError(f"cannot reach machine 0 at {meeting.address}: {reason_of(last)}")


def _number(meeting: Meeting, notes: Notes, leads: bool) -> int:
    if meeting.machine is not None:
        return meeting.machine
    number = 0 if leads else notes.count("numbers")
    if number >= meeting.machines:
        raise InputError(f"{meeting.machines} machines have met at {meeting.address} already, and this is one more")
    return number


def _own_address(meeting: Meeting) -> str:
    """Return the address of this machine from which the meeting's is reached; nothing is sent."""
    host, port = meeting.place()
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise TrainingError(f"no way from this machine to {meeting.address}: {reason_of(error)}") from None
