"""Cost per coordinate of a merge under the discipline ``tiered``: alone, and while another merges the same range.

Every weight has changed since the last merge, which is the worst case; the pass that changes them (a tenth of the time)
is part of the figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hogwild.bench.kernels.steps_kernel import merges
from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, interleaved, together
from hogwild.kernels.tiers import PIECE, Replica, Tiers
from hogwild.machine import one_cpu_a_core
from hogwild.problems.linear.kernel import Parameters

COORDINATES = (64, 4096, 1 << 16, 1 << 20)
WORK, QUICK_WORK = 1 << 24, 1 << 21  # coordinates merged per round


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield nanoseconds per coordinate, by the length of the range and the number of workers on it."""
    work = QUICK_WORK if plan.quick else WORK
    counts = [workers for workers in plan.workers if workers <= max(len(one_cpu_a_core()), 1)] or [1]
    for coordinates in COORDINATES:
        times = max(work // coordinates, 1)
        sides: dict[str, Side] = {str(workers): _Side(coordinates, workers, times) for workers in counts}
        found = interleaved(sides, plan.repeats, lambda text, n=coordinates: plan.note(f"{n} coordinates, {text}"))  # type: ignore[misc]
        for workers in counts:
            timing = found[str(workers)]
            yield timing.fields() | {
                "coordinates": coordinates,
                "workers": workers,
                "nanoseconds": timing.seconds and timing.seconds / (times * coordinates) * 1e9,
            }


class _Side:
    """Workers that repeatedly merge one range of coordinates."""

    def __init__(self, coordinates: int, workers: int, times: int) -> None:
        shared, self._workers, self._times = np.zeros(coordinates, np.float32), workers, times
        generator = np.random.default_rng(0)
        features = generator.permutation(coordinates).astype(np.int32)  # ranks are not in the user's order
        self._tiers = _filled(
            Tiers, features=features, bounds=np.array([0, coordinates]), rates=np.full(coordinates, 1e-3, np.float32)
        )
        self._parts = []
        for _ in range(workers):
            private, base = np.zeros(coordinates, np.float32), np.zeros(coordinates, np.float32)
            replica = _filled(Replica, coef=shared, base_coef=base, piece=np.zeros(PIECE, np.float32))
            self._parts.append((self._tiers, replica, _filled(Parameters, coef=private)))
        self._run(self._parts[0], 0)  # compiled before any clock runs

    def _run(self, part: Any, times: int) -> None:
        merges(*part, np.float32(self._workers), np.float32(1), times)

    def __call__(self) -> float:
        return together([lambda part=part: self._run(part, self._times) for part in self._parts])  # type: ignore[misc]


def _filled(kind: Any, **arrays: np.ndarray) -> Any:
    """Return a named tuple with these arrays, and empty ones where a merge of plain weights does not look."""
    empty = np.zeros(0, np.float32)
    return kind(**{name: arrays.get(name, empty) for name in kind._fields})
