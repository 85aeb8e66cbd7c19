"""Models that outgrow the cache: epochs with the features numbered as they are, and by popularity.

Each pair takes turns, so their ratio is between neighbours in time. With one worker both end at the same weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hogwild.bench.plan import STEPS, BenchPlan, about
from hogwild.bench.rounds import interleaved, ratio
from hogwild.bench.sides import Training
from hogwild.data.rows.container import Rows

WIDTHS = 1 << 20, 1 << 22, 1 << 24
CLASSES = 4
KINDS: dict[str, dict[str, Any]] = {
    "l2": {}, "no penalty": {"l2": 0.0}, "l1 and l2": {"l1": 1e-7}, "adagrad": {"adagrad": True},
    f"{CLASSES} classes": {},
}  # fmt: skip
WAYS = {"own": "never", "by popularity": "always"}


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield both epochs of one worker of every kind, by width, and of several workers with the default penalty."""
    yield from _pairs(plan, "rcv1", {}, 1, ["l2", "no penalty"])
    for width in WIDTHS[-1:] if plan.quick else WIDTHS:
        for workers in plan.workers:
            yield from _pairs(plan, "ctr", {"features": width}, workers, list(KINDS) if workers == 1 else ["l2"])


def _pairs(
    plan: BenchPlan, family: str, dials: dict[str, int], workers: int, kinds: list[str]
) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        rows = plan.open(family, **dials | ({"classes": CLASSES} if "classes" in kind else {}))
        for discipline in ["serial"] if workers == 1 else ["hogwild", "tiered"]:
            options = KINDS[kind] | {"workers": workers, "discipline": discipline, "host": plan.host}
            yield from _pair(plan, rows, STEPS[family], {"family": family, "kind": kind}, options)


def _pair(
    plan: BenchPlan, rows: Rows, step: float, names: dict[str, Any], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        sides = {
            way: stack.enter_context(Training(rows, step, renumber=value, **options)) for way, value in WAYS.items()
        }
        times = interleaved(sides, plan.repeats, plan.note)
        for way, timing in times.items():
            yield about(plan.names[names["family"]], rows) | timing.fields() | names | {
                "workers": options["workers"], "discipline": options["discipline"], "numbering": way,
                "nonzeros_per_second": timing.per_second(rows.nnz), "objective": sides[way].objective,
                "faster": ratio(times["own"].seconds, timing.seconds),
            }  # fmt: skip
