"""Time from data ready to the first update, in a fresh interpreter with kernels cached, and again in the same one.

The first run of an interpreter pays for what is loaded once (numba, the kernels, the server that forks worker
processes); the run after it shows what a run itself costs. Both count everything between the call of ``train`` and the
first update, including the evaluation of the starting point, which is also reported separately. The server is started
before the data are opened, as ``hogwild train`` does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from hogwild.bench.kernels.fresh import run_child
from hogwild.bench.plan import STEPS, BenchPlan, about
from hogwild.bench.rounds import Timing
from hogwild.methods import REAL_HOSTS

WHAT = {"imports": "import hogwild.training.run", "first": "first run", "again": "second run"}


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Yield seconds of each part, for threads and for processes, with the largest number of workers."""
    from hogwild.bench.sides import Training

    rows = plan.open("rcv1")
    directory = None if plan.cache is None else str(plan.cache.directory)
    found: dict[str, list[dict[str, float]]] = {host: [] for host in REAL_HOSTS}
    with Training(rows, STEPS["rcv1"], workers=plan.workers[-1]) as side:  # the kernels are cached from here on
        side()
    before = 0 if plan.quick else 1  # rounds that are not counted
    rounds = before + max(plan.repeats // 3, 1)
    for turn in range(rounds):
        for host in REAL_HOSTS:
            plan.note(f"round {turn + 1} of {rounds}: {host}")
            arguments = [plan.names["rcv1"], directory, host, plan.workers[-1], STEPS["rcv1"]]
            found[host].append(_in_a_fresh_interpreter(arguments))
    for host in REAL_HOSTS:
        counted = found[host][before:]
        for part, what in WHAT.items():
            timing = Timing.of([one[part] for one in counted])
            evaluating = [one[f"{part}_evaluating"] for one in counted if f"{part}_evaluating" in one]
            yield (
                about(plan.names["rcv1"], rows)
                | timing.fields()
                | {
                    "host": host,
                    "workers": plan.workers[-1],
                    "part": part,
                    "what": what,
                    "evaluation_seconds": statistics.median(evaluating) if evaluating else None,
                }
            )


def _in_a_fresh_interpreter(arguments: list[Any]) -> dict[str, float]:
    return run_child(__name__, arguments, "start-up could not be timed")


def child(name: str, directory: str | None, host: str, workers: int, step: float) -> dict[str, float]:
    """Run in the fresh interpreter: open the data, import, and train an epoch twice."""
    import warnings

    if host == "processes":
        from hogwild.hosts import fork_server

        fork_server.ensure_running()
    from hogwild.data.cache import Cache
    from hogwild.data.rows.source import open_data

    rows = open_data(name, cache=None if directory is None else Cache(directory))
    warnings.simplefilter("ignore")  # more workers than cores: the parent warns once
    start = time.perf_counter()
    from hogwild.training.train import train

    found = {"imports": time.perf_counter() - start}
    for part in ("first", "again"):
        with train(rows, workers=workers, host=host, step=step, schedule="constant", epochs=1) as run:
            start = time.perf_counter()
            next(run)
            found[f"{part}_evaluating"] = time.perf_counter() - start
            found[part] = next(run)["setup_seconds"]
    return found
