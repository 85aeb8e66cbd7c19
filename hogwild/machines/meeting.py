"""Machines meet at an address: who is which, and whether all want the same, before anything is trained.

Machine 0 listens at the address of ``--meet``, on that address only, with a TCPStore of torch. Every other machine asks
there to take part: it writes what it is and wants under a number of its own ("ask/3"), and waits for machine 0's answer
("answer/3"): the machine's number and all addresses, or the reason for a refusal. Machine 0 answers when all places are
taken, so every machine prints the same error. A late machine takes the place of one that left (``cluster.py``).
The number of the run is new whenever machine 0 starts, and stands in every key.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
import secrets
import socket
import time
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
    """

    address: str
    machines: int
    machine: int | None = None

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


def meet(meeting: Meeting, about: dict[str, Any], seconds: float = DEADLINE) -> Met:
    """Wait until all machines are here and want the same.

    Parameters
    ----------
    meeting : Meeting
    about : dict
        What all must have in common, as JSON.
    seconds : float
        When to give up.

    Raises
    ------
    InputError
        If the port is in use, the address cannot be reached, a machine is missing, or machines differ; the
        line names both sides.
    """
    deadline = time.monotonic() + seconds
    listening = _listen(meeting)
    leads = listening is not None
    notes = Notes(_store(meeting, listening, seconds), "hogwild", deadline)
    hello = {"version": version("hogwild"), "machines": meeting.machines, "number": meeting.machine} | about
    hello |= {"address": _own_address(meeting), "host": socket.gethostname()}
    if leads:
        run = secrets.randbits(62)
        notes.put("run", run)
        return _gather(meeting, Notes(notes.store, f"{run}", deadline), hello)
    try:
        run = notes.wait("run", f"machine 0 has not come to {meeting.address}")
        return _ask(meeting, Notes(notes.store, f"{run}", deadline), hello, seconds)
    except RuntimeError:  # of the store
        raise InputError(f"machine 0 at {meeting.address} has closed its connection") from None


def _ask(meeting: Meeting, notes: Notes, hello: dict[str, Any], seconds: float) -> Met:
    """Ask machine 0 for a place, and wait for its answer.

    Raises
    ------
    InputError
        If it refuses, or has no place in time.
    """
    late, more = f"machine 0 has not gathered all {meeting.machines} machines", seconds
    if notes.get("met"):
        gone = "none of them is gone" if meeting.machine is None else f"machine {meeting.machine} is not gone"
        late, more = f"{meeting.machines} machines have met at {meeting.address} already, and {gone}", 0.0
    request = int(notes.store.add("asks", 1))
    notes.put(f"ask/{request}", hello)
    try:
        answer = notes.wait(f"answer/{request}", late, more)
    except InputError:
        notes.put(f"ask/{request}", None)
        raise
    if "why" in answer:
        raise InputError(answer["why"])
    return Met(notes, **answer)


def _gather(meeting: Meeting, notes: Notes, hello: dict[str, Any]) -> Met:
    """Give places to those who ask, compare what they want with what this machine wants, and tell all (machine 0)."""
    hellos, requests, why = {0: hello}, dict[int, int](), ""
    while not why and len(hellos) < meeting.machines and time.monotonic() < notes.deadline:
        for request, other in notes.asks().items():
            free = [k for k in range(meeting.machines) if k not in hellos]
            if request in requests or not free:
                continue
            number = free[0] if other["number"] is None else other["number"]
            if number in hellos:
                taken = f"machine {number} is {hellos[number]['host']} already (--machine)"
                notes.put(f"answer/{request}", {"why": taken})
            else:
                hellos[number], requests[request] = other, number
        why = unlike(hellos)
        time.sleep(PAUSE)
    missing = [k for k in range(meeting.machines) if k not in hellos]
    if missing and not why:
        names = f"machine{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {meeting.machines}"
        why = f"{names} did not come to {meeting.address}"
    places = [hellos[k] for k in sorted(hellos)]
    notes.put("met", not why)
    for request, number in requests.items():
        notes.put(f"answer/{request}", {"why": why} if why else {"number": number, "hellos": places})
    if why:
        time.sleep(1.0)  # until the others have read it
        raise InputError(why)
    return Met(notes, places, 0)


def unlike(hellos: dict[int, dict[str, Any]]) -> str:
    """Return why machines, by their numbers, cannot train together, or an empty string."""
    first = hellos[0]
    for k, hello in hellos.items():
        if what := difference(first, hello):
            return f"machine {k} ({hello['host']}) differs from machine 0 ({first['host']}): {what}"
    return ""


def difference(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Return the first thing in which two machines differ, or an empty string."""
    for name in [name for name in mine if name not in ("address", "host", "number")]:
        if mine[name] != theirs.get(name):
            return f"{name} is {theirs.get(name)} there and {mine[name]} here"
    return ""


class Notes:
    """JSON under keys of a store; nothing waits longer than the deadline."""

    def __init__(self, store: Any, prefix: str, deadline: float) -> None:
        from torch.distributed import PrefixStore

        self.store = PrefixStore(prefix, store)
        self.deadline = deadline

    def put(self, name: str, value: Any) -> None:
        self.store.set(name, json.dumps(value))

    def get(self, name: str) -> Any:
        """Return a note, or None if there is none."""
        return json.loads(self.store.get(name)) if self.store.check([name]) else None

    def wait(self, name: str, otherwise: str, more: float = 0.0) -> Any:
        """Return a note as soon as it is there; raise InputError with ``otherwise`` if it never comes."""
        while (note := self.get(name)) is None:
            if time.monotonic() > self.deadline + more:
                raise InputError(f"{otherwise} within {DEADLINE + more:.0f} seconds")
            time.sleep(PAUSE)
        return note

    def asks(self) -> dict[int, dict[str, Any]]:
        """Requests to take part that have no answer yet, by number; on machine 0."""
        count = int(self.store.add("asks", 0))
        asked = {k: self.get(f"ask/{k}") for k in range(1, count + 1) if not self.get(f"answer/{k}")}
        return {k: hello for k, hello in asked.items() if hello}  # else it is about to be written, or withdrawn


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
