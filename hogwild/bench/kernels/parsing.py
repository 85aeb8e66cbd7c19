"""Megabytes of svmlight text per second on 1 .. W cores; with ``against``, scikit-learn's reader beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.bench.plan import BenchPlan
from hogwild.bench.rounds import Side, interleaved, ratio
from hogwild.data.rows.container import Rows, shortest

ROWS, QUICK_ROWS = 100_000, 10_000
THREADS = 8  # most threads that a single reading thread can feed


class Nothing:
    """A sink that discards everything."""

    def append(self, *_: object) -> None:
        pass


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Write a text once, then read it again and again."""
    rows = plan.open("rcv1")
    rows = rows.block(0, min(len(rows), QUICK_ROWS if plan.quick else ROWS))
    usable = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="hogwild-bench-") as folder:
        path = Path(folder, "rows.svm")
        plan.note("writing text")
        write_svmlight(path, rows)
        megabytes = path.stat().st_size / 1e6
        counts = [count for count in plan.workers if count <= min(len(usable), THREADS)] or [1]
        sides: dict[str, Side] = {f"hogwild {count}": _ours(path, usable[:count]) for count in counts}
        if plan.against:
            sides["scikit-learn 1"] = _theirs(path)
        try:
            times = interleaved(sides, max(plan.repeats // 2, 2), plan.note)
        finally:
            os.sched_setaffinity(0, usable)
    alone = times[f"hogwild {counts[0]}"]
    for side, timing in times.items():
        reader, count = side.split()
        yield timing.fields() | {
            "reader": reader,
            "workers": int(count),
            "rows": len(rows),
            "megabytes": megabytes,
            "megabytes_per_second": timing.per_second(megabytes),
            "speedup": ratio(alone.seconds, timing.seconds),
        }


def write_svmlight(path: Path, rows: Rows, zero_based: bool = False) -> None:
    """Write rows as text: the shortest decimals that read back as the same float32."""
    base = 0 if zero_based else 1
    with path.open("w", encoding="ascii", newline="\n") as file:
        for i, (first, last) in enumerate(zip(rows.begin.tolist(), rows.end.tolist())):
            pairs = zip(rows.indices[first:last].tolist(), rows.values[first:last])
            file.write(shortest(rows.targets[i]) + "".join(f" {u + base}:{shortest(x)}" for u, x in pairs) + "\n")


def _ours(path: Path, cpus: list[int]) -> Side:
    """Our reader on those CPUs only; its threads inherit this thread's affinity."""
    from hogwild.data.text.svmlight import parse_svmlight

    def side() -> float:
        os.sched_setaffinity(0, cpus)
        start = time.perf_counter()
        parse_svmlight(path, Nothing(), workers=len(cpus))
        return time.perf_counter() - start

    return side


def _theirs(path: Path) -> Side:
    from sklearn.datasets import load_svmlight_file

    def side() -> float:
        start = time.perf_counter()
        load_svmlight_file(str(path))
        return time.perf_counter() - start

    return side
