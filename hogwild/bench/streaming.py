"""CSR streaming: how fast 1 .. W workers can read the entries at all, which no training loop can beat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hogwild.bench.plan import Plan, about
from hogwild.bench.rounds import interleaved, ratio
from hogwild.bench.sides import Streaming


def measure(plan: Plan) -> Iterator[dict[str, Any]]:
    """Nonzeros and gigabytes a second for each number of workers."""
    name = plan.names["rcv1"]
    rows = plan.open("rcv1")
    sides = {str(workers): Streaming(rows, workers) for workers in plan.workers}
    times = interleaved(sides, plan.repeats, plan.note)
    alone = times[str(plan.workers[0])]
    for workers in plan.workers:
        timing = times[str(workers)]
        rate = timing.per_second(rows.nnz)
        yield about(name, rows) | timing.fields() | {
            "workers": workers, "nonzeros_per_second": rate, "gigabytes_per_second": rate and 8 * rate / 1e9,
            "speedup": ratio(alone.seconds, timing.seconds),
        }  # fmt: skip
