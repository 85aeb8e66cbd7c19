"""The sections of a benchmark, and the loop over them, which yields rows as they are measured.

A section is a module of this package with ``measure(plan)``, a generator of flat rows; it is imported when its turn
comes. Adding one takes a file and a line here. Every row says when it was taken and how busy the machine was; the first
one also describes the machine.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from hogwild import machine
from hogwild.bench.plan import BenchPlan
from hogwild.errors import UsageError, nearest

SECTIONS = {
    "streaming": "CSR streaming rate of 1 .. W workers: the wall",
    "kernel": "one worker's loop, as shares of that rate",
    "wide": "models that outgrow the cache, their features numbered by popularity or not",
    "scaling": "every discipline for 1 .. W workers",
    "adds": "cost of shared additions, and how many are lost",
    "merge": "cost of bringing private and shared weights together",
    "completion": "matrix completion, on ratings shaped like Netflix's",
    "estimators": "whole fits of the scikit-learn estimators, beside SGDClassifier",
    "modules": "torch modules, beside the pattern of torch's own example",
    "parsing": "svmlight text read by 1 .. W cores",
    "startup": "from data ready to the first update",
    "memory": "what a run owns beside its data",
    "against": "other programs on the same data, to the same held-out loss",
}
#: Modules of this package that are not called as their section.
PLACES = {name: f"kernels.{name}" for name in ("streaming", "adds", "merge", "parsing", "memory", "wide")} | {
    "kernel": "kernels.plan",
}
ASKED_FOR = {"against", "wide"}  # sections that run only if named
HIGH_LOAD = 0.5  # other runnable processes from which figures are doubtful


def chosen(names: Iterable[str], against: bool) -> list[str]:
    """Return the sections to run, in order; by default all but ``wide``, and ``against`` only with other programs.

    Raises
    ------
    UsageError
        For an unknown section; the message lists them.
    """
    asked = set(names)
    unknown = sorted(asked - set(SECTIONS))
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)}: no such section; there are {', '.join(SECTIONS)}{nearest(unknown[0], SECTIONS)}"
        )
    if not asked:
        asked = set(SECTIONS) - (ASKED_FOR - {"against"} if against else ASKED_FOR)
    return [name for name in SECTIONS if name in asked]


def section(name: str, plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield the rows of one section as they are measured."""
    load = os.getloadavg()[0]
    for row in importlib.import_module(f"hogwild.bench.{PLACES.get(name, name)}").measure(plan):
        yield {"section": name, **row, "load_before": round(load, 2)}


def conditions() -> dict[str, Any]:
    """Return the machine's current state, for the first row."""
    allowed = sorted(os.sched_getaffinity(0))
    caches = {f"cache_{level}": size for level, size in machine.caches().items()}
    return machine.machine_fields() | caches | {"affinity": " ".join(map(str, allowed))}


def doubts(plan: BenchPlan) -> list[str]:
    """List what makes measurements here and now unreliable, a line each."""
    load, cores = os.getloadavg()[0], machine.physical_cores()
    found = []
    if load > HIGH_LOAD:
        found.append(f"the load is {load:.2f}: figures taken beside other work are worth little")
    if plan.workers[-1] > cores:
        found.append(f"{plan.workers[-1]} workers share {cores} cores: those rows time the scheduler")
    return found
