"""What a benchmark measures on each data set, section by section, as rows that are yielded when they are measured.

A section that cannot be measured ends with a row that gives the reason, and the others go on. Every row says how busy
the machine was before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.bench import against, scaling
from hogwild.bench.rounds import BenchPlan, Row
from hogwild.errors import HogwildError

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

SECTIONS = {
    "scaling": "an epoch of every discipline",
    "against": "other programs, to the same held-out loss",
}
#: The shape of Netflix's ratings, at 10 million of them.
RATINGS = "synthetic:ratings?rank=16&zipf=1.5&shift=208&user_shift=350&noise=0.8"
#: Generated sets that exceed a core's own cache, by whether the run is quick: fitting data answer another question.
GENERATED = {
    False: (
        "synthetic:rcv1?rows=200000",
        "synthetic:ctr?rows=200000&features=16777216",
        f"{RATINGS}&users=480189&items=17770&ratings=10000000",
    ),
    True: (
        "synthetic:rcv1?rows=60000",
        "synthetic:ctr?rows=50000&features=16777216",
        f"{RATINGS}&users=60000&items=4000&ratings=1000000",
    ),
}
HELD_OUT = 0.1
HIGH_LOAD = 0.5  # other runnable processes from which figures are doubtful


def measure(plan: BenchPlan, data: Sequence[tuple[str, str]], cache: Cache | None = None) -> Iterator[Row]:
    """Yield the rows of ``data``, pairs of a problem and a name."""
    for problem, name in data:
        plan.note(f"opening {name}")
        train, test = opened(problem, name, cache)
        sections = [("scaling", scaling.measure(plan, problem, train, test))]
        if problem == "linear" and plan.against:
            sections.append(("against", against.measure(plan, train, test)))
        fields = described(problem, name, train)
        for section, rows in sections:
            load = {"load_before": round(os.getloadavg()[0], 2)}
            try:
                for row in rows:
                    yield {"section": section} | fields | row | load
            except HogwildError as error:
                yield {"section": section} | fields | {"status": f"failed: {error}"} | load


def opened(problem: str, name: str, cache: Cache | None) -> tuple[Any, Any]:
    """Return what is trained on and what is held out; ratings come by user, in which order cornac is fastest."""
    if problem == "linear":
        from hogwild.data.rows.source import open_data

        return open_data(name, cache=cache).split(HELD_OUT)
    import numpy as np

    from hogwild.data.ratings.source import open_ratings

    train, test = open_ratings(name, cache=cache).split(HELD_OUT)
    return train.select(np.argsort(train.users, kind="stable")), test


def described(problem: str, name: str, data: Any) -> Row:
    """Return the fields about the data; ``beyond_cache``: whether the entries exceed the last-level cache."""
    if problem != "linear":
        return {"data": name, "ratings": len(data), "users": data.shape[0], "items": data.shape[1]}
    return {
        "data": name,
        "rows": len(data),
        "features": data.width,
        "nonzeros": data.nnz,
        "beyond_cache": 8 * data.nnz > (machine.cache_bytes() or 0),
    }


def conditions() -> Row:
    """Return the machine's current state, for the first row."""
    caches = {f"cache_{level}": size for level, size in machine.caches().items()}
    return machine.machine_fields() | caches | {"affinity": " ".join(map(str, sorted(os.sched_getaffinity(0))))}


def doubts(plan: BenchPlan) -> list[str]:
    """List what makes measurements here and now unreliable, a line each."""
    load, cores = os.getloadavg()[0], machine.physical_cores()
    doubts = []
    if load > HIGH_LOAD:
        doubts.append(f"the load is {load:.2f}: figures taken beside other work are worth little")
    if plan.workers[-1] > cores:
        doubts.append(f"{plan.workers[-1]} workers share {cores} cores: those rows time the scheduler")
    return doubts
