"""Cost of one shared addition, and how many are lost: plain, atomic and locked, on cells from hot to cold.

Every worker adds one to randomly chosen cells a known number of times; float32 holds the sums, which are integers,
exactly, so what is missing at the end was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild import machine
from hogwild.bench.kernels.steps_kernel import ADDS, adds
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Timing, interleaved, together
from hogwild.kernels.control import cells as control_cells

CELLS = (1, 8, 100_000)
PICKS = 1 << 16  # indices of a worker, used repeatedly: they stay in its cache
EXACT = 1 << 23  # all additions together: half the integer range of a float32
QUICK = 1 << 20


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield nanoseconds per addition and worker, and the share of additions lost."""
    for cells in CELLS:
        for workers in plan.workers:
            yield from _group(plan, cells, workers)


def _group(plan: BenchPlan, cells: int, workers: int) -> Iterator[dict[str, Any]]:
    crowded = workers > machine.physical_cores()
    refused = f"refused: {workers} workers would wait for locks on {machine.physical_cores()} cores"
    times = (QUICK if plan.quick else EXACT) // workers
    sides = {kind: _Side(kind, cells, workers, times) for kind in ADDS if not (crowded and kind == "locked")}
    plan.note(f"adds: {workers} worker(s) on {cells} cell(s)")
    found = interleaved(sides, plan.repeats, _about(plan, cells, workers))
    for kind in ADDS:
        timing = found.get(kind, Timing(None, status=refused))
        yield timing.fields() | {
            "add": kind,
            "cells": cells,
            "workers": workers,
            "nanoseconds": None if timing.seconds is None else timing.seconds / times * 1e9,
            "lost_share": sides[kind].lost_share if kind in sides else None,
        }


def _about(plan: BenchPlan, cells: int, workers: int) -> Callable[[str], None]:
    return lambda text: plan.note(f"{workers} worker(s) on {cells} cell(s), {text}")


class _Side:
    """One kind of addition by several workers on the same cells."""

    def __init__(self, kind: str, cells: int, workers: int, times: int) -> None:
        generator = np.random.default_rng(0)
        self._picks = [generator.integers(cells, size=PICKS, dtype=np.int32) for _ in range(workers)]
        self._cells, self._locks = np.zeros(cells, np.float32), np.zeros(cells, np.int32)
        self._control, self._loop = np.zeros(control_cells(workers), np.int64), adds(ADDS[kind])
        self._times, self._asked, self._done = times, 0, 0.0
        self._loop(self._cells, self._picks[0], self._locks, self._control, 0)  # compiled before any clock runs

    def __call__(self) -> float:
        self._cells[:] = 0
        seconds = together([lambda picks=picks: self._add(picks) for picks in self._picks])  # type: ignore[misc]
        self._asked += self._times * len(self._picks)
        self._done += float(self._cells.sum(dtype=np.float64))
        return seconds

    def _add(self, picks: np.ndarray) -> None:
        self._loop(self._cells, picks, self._locks, self._control, self._times)

    @property
    def lost_share(self) -> float:
        """Share of additions lost over all rounds so far."""
        return 1.0 - self._done / self._asked if self._asked else 0.0
