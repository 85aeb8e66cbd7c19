"""CSR streaming: how fast 1 .. W workers can read the entries at all, a limit for every training loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hogwild.bench.plan import BenchPlan, about
from hogwild.bench.rounds import interleaved, ratio
from hogwild.bench.sides import Streaming


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield nonzeros and gigabytes per second for each number of workers."""
    name = plan.names["rcv1"]
    rows = plan.open("rcv1")
    sides = {str(workers): Streaming(rows, workers) for workers in plan.workers}
    times = interleaved(sides, plan.repeats, plan.note)
    alone = times[str(plan.workers[0])]
    for workers in plan.workers:
        timing = times[str(workers)]
        rate = timing.per_second(rows.nnz)
        yield (
            about(name, rows)
            | timing.fields()
            | {
                "workers": workers,
                "nonzeros_per_second": rate,
                "gigabytes_per_second": rate and 8 * rate / 1e9,
                "speedup": ratio(alone.seconds, timing.seconds),
            }
        )
