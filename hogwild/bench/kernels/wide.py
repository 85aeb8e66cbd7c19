"""Models that outgrow the cache: epochs with the features numbered as they are, and by popularity.

Both take turns, so their ratio is between neighbours in time. With one worker both end at the same weights. The most
that several workers can reach is what as many runs of one worker do at the same time, each with weights of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hogwild.bench.plan import STEPS, BenchPlan, about
from hogwild.bench.rounds import interleaved, ratio
from hogwild.bench.sides import Together, Training
from hogwild.data.rows.container import Rows

WIDTHS = 1 << 20, 1 << 22, 1 << 24
CLASSES = 4
KINDS: dict[str, dict[str, Any]] = {
    "l2": {},
    "no penalty": {"l2": 0.0},
    "l1 and l2": {"l1": 1e-7},
    "adagrad": {"adagrad": True},
    f"{CLASSES} classes": {},
}
WAYS = {"own": "never", "by popularity": "always"}
SINGLE = "single runs", "by popularity"


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield both epochs of every kind, by width and number of workers, and of several also that of single runs."""
    yield from _kinds(plan, "rcv1", {}, 1, ["l2", "no penalty"])
    for width in WIDTHS[-1:] if plan.quick else WIDTHS:
        for workers in plan.workers:
            yield from _kinds(plan, "ctr", {"features": width}, workers, list(KINDS))


def _kinds(
    plan: BenchPlan, family: str, dials: dict[str, int], workers: int, kinds: list[str]
) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        rows = plan.open(family, **dials | ({"classes": CLASSES} if "classes" in kind else {}))
        options = KINDS[kind] | {"host": plan.host}
        yield from _sides(plan, rows, STEPS[family], {"family": family, "kind": kind}, options, workers)


def _sides(
    plan: BenchPlan, rows: Rows, step: float, names: dict[str, Any], options: dict[str, Any], workers: int
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:

        def start(workers: int, discipline: str, way: str) -> Training:
            given = options | {"workers": workers, "discipline": discipline, "renumber": WAYS[way]}
            return stack.enter_context(Training(rows, step, **given))

        runs: dict[tuple[str, str], Any] = {
            (discipline, way): start(workers, discipline, way)
            for discipline in (["serial"] if workers == 1 else ["hogwild", "tiered"])
            for way in WAYS
        }
        if workers > 1:
            runs[SINGLE] = Together([start(1, "serial", SINGLE[1]) for _ in range(workers)])
        sides = {", ".join(name): side for name, side in runs.items()}
        times = dict(zip(runs, interleaved(sides, plan.repeats, plan.note).values()))
        seconds = {name: timing.seconds for name, timing in times.items()}
        for name, side in runs.items():
            discipline, way = name
            passes, timing = workers if name == SINGLE else 1, times[name]
            yield (
                about(plan.names[names["family"]], rows)
                | timing.fields()
                | names
                | {
                    "workers": workers,
                    "discipline": discipline,
                    "numbering": way,
                    "nonzeros_per_second": timing.per_second(passes * rows.nnz),
                    "objective": side.objective,
                    "faster": ratio(seconds.get((discipline, "own")), seconds[name]),
                    "of_single_runs": ratio(seconds.get(SINGLE), workers * (seconds[name] or 0) / passes),
                }
            )
