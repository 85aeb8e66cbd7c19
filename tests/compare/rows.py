"""Rows of comparisons that never were: a few by hand, with known results, and a whole one that looks like life."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.compare.report.results import ComparisonResult, load
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.data.ratings.container import Ratings

Row = dict[str, Any]
KINDS = {
    "serial": "serial",
    "hogwild": "lock-free",
    "tiered": "lock-free",
    "atomic": "lock-free",
    "aig": "locks",
    "locked": "locks",
    "round-robin": "locks",
    "averaging": "exchange",
    "one-shot-averaging": "exchange",
    "sklearn-sgd": "outside",
    "liblinear": "outside",
    "cuda-hogwild": "lock-free",
    "cuda-locked": "locks",
    "cuda-one-stream": "in step",
    "cuda-synchronous": "in step",
}


def about(**changes: Any) -> Row:
    """The first row: f0 = 1, f* = 0, so that an objective is its own sub-optimality."""
    return {
        "phase": "optimum",
        "objective": 0.0,
        "start_objective": 1.0,
        "optimum_how": "L-BFGS from 60 serial epochs (gradient 3e-9)",
        "eps": [0.1, 0.01, 0.001],
        "data": "made-up",
        "rows": 1000,
        "width": 100,
        "nnz": 10000,
        "megabytes": 0.08,
        "cache_megabytes": 32.0,
        "loss": "log",
        "l1": 0.0,
        "l2": 1e-5,
        "schedule": "epoch",
        "epochs": 4,
        "seeds_list": [0, 1, 2],
        "step_grid": [0.5],
        "host": "threads",
        "test_rows": 200,
        "command": "hogwild compare made-up",
        "cpu": "A Processor",
        "cores": 2,
        "load": 0.1,
        "version_python": "3.11.7",
        "version_numpy": "2.4.6",
        "omega": 10,
        "delta": 0.2,
        "rho": 0.3,
    } | changes


def run(
    method: str,
    objectives: Iterable[float | None],
    seconds: float = 1.0,
    workers: int = 1,
    seed: int = 0,
    step: float | None = 0.5,
    phase: str = "reported",
    status: str = "ok",
    **changes: Any,
) -> list[Row]:
    """Rows of one cell, of so many ``seconds`` an epoch; ``status`` is that of the last."""
    values = list(objectives)
    cell = f"{phase}/{method}/{workers}/{step}/{seed}"
    return [
        {
            "phase": phase,
            "method": method,
            "kind": KINDS[method],
            "workers": workers,
            "seed": seed,
            "step": step,
            "epoch": epoch,
            "objective": value,
            "train_seconds": epoch * seconds,
            "wall_seconds": epoch * seconds + 1,
            "setup_seconds": 0.5,
            "status": status if epoch == len(values) - 1 else "ok",
            "cell": cell,
            "data": "made-up",
            "test_accuracy": 0.9,
        }
        | changes
        for epoch, value in enumerate(values)
    ]


NOISE = (1.0, 1.02, 0.98, 1.01, 0.99)


def race(*lines: str, noise: Sequence[float] = NOISE, fall: float = 0.1, **changes: Any) -> list[Row]:
    """Runs of ``method workers seconds``, one for each number of ``noise``, which no two methods have in one order."""
    rows: list[Row] = []
    for line in lines:
        method, workers, seconds = line.split()
        for seed in range(len(noise)):
            pace = float(seconds) * noise[(seed + ord(method[0])) % len(noise)]
            rows += run(method, halving(fall), pace, int(workers), seed, **changes)
    return rows


def halving(base: float = 0.1, epochs: int = 4) -> list[float]:
    """Objectives that fall by ``base`` an epoch: with 0.1 one epoch is one target."""
    return [round(base**epoch, 12) for epoch in range(epochs + 1)]  # 0.1**2 is above 0.01


def refused(method: str, workers: int, reason: str, **changes: Any) -> list[Row]:
    [row] = run(method, [None], workers=workers, status=f"refused: {reason}", **changes)
    return [row | {"train_seconds": None, "setup_seconds": None}]


def write(directory: Path, *parts: Row | list[Row]) -> Path:
    """A directory with the rows."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [row for part in parts for row in (part if isinstance(part, list) else [part])]
    (directory / "rows.jsonl").write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    return directory


def rows_in(directory: Path) -> list[Row]:
    """The rows that a comparison has written."""
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


def plan_of(**changes: Any) -> ComparisonPlan:
    fields = {"seeds": 1, "workers": (1, 2), "grid": (0.5, 2.0), "epochs": 2, "methods": ("serial", "hogwild")}
    return ComparisonPlan(**(fields | changes))


def rated(n: int = 4000, users: int = 120, items: int = 80, seed: int = 0) -> Ratings:
    """Ratings of a planted model of rank two, between about 1 and 5."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(users * items, n, replace=False)
    u, i = pairs // items, pairs % items
    p, q = rng.normal(0, 0.7, (users, 2)), rng.normal(0, 0.7, (items, 2))
    values = 3 + rng.normal(0, 0.5, users)[u] + (p[u] * q[i]).sum(axis=1) + rng.normal(0, 0.2, n)
    return Ratings(u, i, values, (users, items))


def loaded(directory: Path, *parts: Row | list[Row], **changes: Any) -> ComparisonResult:
    """A comparison of these rows, read back."""
    [source] = load([write(directory, about(**changes), *parts)])
    return source


#: Seconds of an epoch on one worker, and how many times as long one takes on two.
LIFE = {
    "serial": (0.21, 1.0),
    "hogwild": (0.23, 0.54),
    "tiered": (0.215, 0.51),
    "aig": (0.85, 0.6),
    "locked": (0.27, 1.15),
    "liblinear": (0.62, 1.0),
}


def lifelike(directory: Path, pace: float = 1.0, **changes: Any) -> Path:
    """A comparison on 1 and 2 workers: one run diverges, one is refused, one is late; trials."""
    pairs = [(name, count) for name in LIFE for count in ((1,) if KINDS[name] in ("serial", "outside") else (1, 2))]
    parts: list[Row | list[Row]] = [about(seeds_list=list(range(5)), step_grid=[0.5, 1.0], **changes)]
    parts += [
        run(name, [1.0, 0.5 * step], step=step, seed=1_000_003, phase="tuning")
        for step in (0.5, 1.0)
        for name in LIFE
        if name != "liblinear"
    ]
    more = {"updates": 1000, "staleness_mean": 1.1, "staleness_max": 9, "lost_updates": 7}
    for seed in range(5):
        for name, count in pairs:
            seconds, factor = LIFE[name]
            seconds *= pace * (1 + 0.02 * ((seed * 7 + len(name)) % 5)) * (factor if count > 1 else 1.0)
            step = None if name == "liblinear" else 0.5
            rows = run(name, halving(0.4 + 0.01 * seed, 10), seconds, count, seed, step)
            rows[0] |= {"restarts": True} if name == "liblinear" else {}
            rows[1:] = [row | (more if KINDS[name] == "lock-free" else {}) for row in rows[1:]]
            rows[-1]["peak_memory_mb"] = {"liblinear": 900.0, "serial": 400.0}.get(name, 420.0 + count)
            if (name, count, seed) == ("locked", 1, 3):
                rows[4:] = [rows[4] | {"objective": None, "status": "diverged"}]
            if (name, count, seed) == ("locked", 2, 4):
                rows[5:] = [rows[5] | {"status": "timed out after 3 s"}]
            if (name, count, seed) == ("aig", 2, 1):
                rows = refused(name, count, "2 workers on 1 free core would spin", seed=seed)
            parts.append(rows)
    return write(directory, *parts)
