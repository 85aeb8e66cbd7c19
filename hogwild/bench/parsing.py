"""Megabytes of svmlight text a second on 1 .. W cores; with ``against``, scikit-learn's reader beside it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hogwild.bench.plan import Plan
from hogwild.bench.rounds import Side, interleaved, ratio

ROWS, QUICK_ROWS = 100_000, 10_000
THREADS = 8  # a single thread reads, and could not feed more


class Nothing:
    """A sink that throws everything away."""

    def append(self, *_: object) -> None:
        pass


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Write a text once, then read it again and again."""
    from hogwild.data.svmlight import write_svmlight

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
            "reader": reader, "workers": int(count), "rows": len(rows), "megabytes": megabytes,
            "megabytes_per_second": timing.per_second(megabytes), "speedup": ratio(alone.seconds, timing.seconds),
        }  # fmt: skip


def _ours(path: Path, cpus: list[int]) -> Side:
    """Our reader on those processors alone; its threads inherit the affinity of this one."""
    from hogwild.data.svmlight import parse_svmlight

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
