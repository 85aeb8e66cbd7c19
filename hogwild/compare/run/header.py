"""The first row of a comparison: the optimum, the data, the machine, the plan, and the cost of measuring itself."""

from __future__ import annotations

import dataclasses
import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hogwild import machine
from hogwild.compare.run.plan import ComparisonPlan, Prices
from hogwild.compare.run.problems import SUBJECTS
from hogwild.compare.run.runner import ComparedData, Judge, Pools, Row
from hogwild.errors import HogwildWarning, InputError, TrainingError
from hogwild.training.run import Run

REHEARSAL = 3  # serial epochs, of which the fastest counts
MEETINGS = 20  # epochs with hardly any rows


def rehearse(task: ComparedData, step: float, pools: Pools) -> Prices:
    """Measure the cost of an epoch, an evaluation and a set-up in a short serial run, which also loads the data."""
    config = dataclasses.replace(task.base, discipline="serial", workers=1, epochs=REHEARSAL, step=step)
    pool = pools.of(1)
    for _ in range(2):  # the first run starts workers, compiles and reads what all later ones need
        began = time.perf_counter()
        run: Run[Any] = Run(task.rows, task.test, config, None, False, pool, "")
        try:
            history = list(run)
        except TrainingError:  # diverged: the step is only a guess
            history = run.history
        setup = time.perf_counter() - began - (history[-1]["wall_seconds"] - history[0]["wall_seconds"])
    epochs = [b["train_seconds"] - a["train_seconds"] for a, b in itertools.pairwise(history)]
    walls = [b["wall_seconds"] - a["wall_seconds"] for a, b in itertools.pairwise(history)]
    together = task.base.batch or 1
    if not epochs:
        return Prices(0.1, 0.1, setup, together)
    return Prices(min(epochs), max(min(walls) - min(epochs), 0.0), setup, together)


def meeting(task: ComparedData, workers: int, pools: Pools) -> float | None:
    """Seconds that starting and synchronising the workers add to an epoch, measured on hardly any rows."""
    discipline = "hogwild" if workers > 1 else "serial"
    few = SUBJECTS[task.base.problem].tiny(task.rows, 4 * workers)
    config = dataclasses.replace(task.base, discipline=discipline, workers=workers, epochs=MEETINGS, step=1e-9)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HogwildWarning)
            history = list(Run(few, None, config, None, False, pools.of(workers), ""))
    except InputError:  # fewer rows than workers, or one class only
        return None
    seconds = [row["train_seconds"] for row in history]
    return statistics.median(b - a for a, b in itertools.pairwise(seconds))


def describe_all(
    task: ComparedData,
    plan: ComparisonPlan,
    judge: Judge,
    pools: Pools,
    cache: Path | None,
    note: Callable[[str], None],
    facts: dict[str, Any],
) -> Row:
    """Return the row of phase "optimum"; ``facts`` come from the comparison, ``note`` is told the current step."""
    base, subject = task.base, SUBJECTS[task.base.problem]
    about = dataclasses.replace(base, seed=plan.first_seed), task.rows
    found = subject.optimum(*about, judge.case, cache=cache, pool=pools.of(1), note=note)
    last_cache = machine.cache_bytes()
    return {
        "phase": "optimum",
        "method": "optimum",
        "kind": "optimum",
        "cell": "optimum",
        "cell_rows": 1,
        "workers": 1,
        "seed": 0,
        "step": None,
        "epoch": 0,
        "status": "ok",
        "data": task.data,
        "objective": found.objective,
        "start_objective": found.start,
        "optimum_how": found.how,
        "optimum_gap": found.gap,
        "optimum_seen": found.objective is None,
        "problem": base.problem,
        "train_seconds": found.seconds,
        "wall_seconds": found.seconds,
        "setup_seconds": None,
        **subject.facts(base, task.rows, task.test),
        "fingerprint": subject.fingerprint(task.rows),
        "schedule": base.schedule,
        "order": base.order,
        "host": base.host,
        "link": base.link,
        "device": "cpu" if facts.get("gpu") is None else "cuda",
        "eps": sorted(plan.eps, reverse=True),
        "epochs": plan.epochs,
        "workers_list": list(plan.workers),
        "methods": [method.name for method, _ in plan.pairs()],
        "step_grid": list(plan.grid),
        "seeds_list": list(range(plan.first_seed, plan.first_seed + plan.seeds)),
        "plan": plan.to_json(),
        "cache_megabytes": last_cache / 1e6 if last_cache else None,
        "meeting_seconds": {str(count): meeting(task, count, pools) for count in plan.crews()},
        **machine.machine_fields(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "blas_threads": _blas_threads(),
        **facts,
    }


def _blas_threads() -> int | None:
    """Number of threads that NumPy's and SciPy's linear algebra may start in this process; None if unknown."""
    from threadpoolctl import threadpool_info

    return max((found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"), default=None)
