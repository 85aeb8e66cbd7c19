"""A machine that is gone comes back into its run: it asks at the address where all met, and machine 0 lets it in.

Groups of gloo are never used again: with each that comes back a number goes up, which stands in the names of its new
groups. It takes part from the next task on, which begins with machine 0's model. The run's own number stands in all
keys and frames, so a machine 0 that was started again, whose run is another one, never hears of the old run's machines.
"""

from __future__ import annotations

from typing import Any

from hogwild.errors import TrainingError
from hogwild.machines.cluster import Cluster
from hogwild.machines.meeting import difference

LOOK = 0.2  # seconds
OWN_ROWS = "a run in which machines have rows of their own goes on without those that were gone: start it again"

ROTATION = "a run by rotation ends when a machine is gone: start all of them again, with --resume"


class Door:
    """Lets machines in that come back, on machine 0, until the cluster is left."""

    def __init__(self, cluster: Cluster, plan: dict[str, Any]) -> None:
        self._cluster, self._notes, self._plan = cluster, cluster.notes, plan
        self._came = 0
        cluster.beside(self._watch)

    def _watch(self) -> None:
        seen, waiting = 0, list[int]()
        while not self._cluster.closed(LOOK):
            asked = self._notes.count("backs", 0)
            waiting += range(seen + 1, asked + 1)
            seen = asked
            waiting = [request for request in waiting if not self._settled(f"back/{request}")]

    def _settled(self, request: str) -> bool:
        """Answer a request if that can be done now; whether it was, or nobody waits any more."""
        cluster, hello = self._cluster, self._notes.get(request, self)
        if hello is None or hello is self:  # withdrawn, or about to be written
            return hello is None
        facts = self._plan["facts"]
        if why := OWN_ROWS if facts["own_rows"] else ROTATION if facts["exchange"] == "rotation" else "":
            self._notes.put(f"{request}/answer", {"why": why})
            return True
        free = [k for k in range(1, cluster.machines) if not cluster.alive[k]]
        number = hello["number"] if hello["number"] is not None else free[0] if free else None
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
