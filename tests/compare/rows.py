"""Rows of comparisons that never were: a few by hand, with known results, and a whole one that looks like life."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.compare.report.results import ComparisonResult, load
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
        "method": "optimum",
        "kind": "optimum",
        "cell": "optimum",
        "workers": 1,
        "seed": 0,
        "step": None,
        "epoch": 0,
        "status": "ok",
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
        "task": "labels",
        "loss": "log",
        "l1": 0.0,
        "l2": 1e-5,
        "schedule": "epoch",
        "epochs": 4,
        "workers_list": [1, 2],
        "methods": ["serial"],
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
    rules: Iterable[str] = ("tuned",),
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
            "step_rule": list(rules),
            "test_accuracy": 0.9,
        }
        | changes
        for epoch, value in enumerate(values)
    ]


def halving(base: float = 0.1, epochs: int = 4) -> list[float]:
    """Objectives that fall by ``base`` an epoch: with 0.1 one epoch is one target."""
    return [round(base**epoch, 12) for epoch in range(epochs + 1)]  # 0.1**2 is above 0.01


def refused(method: str, workers: int, reason: str, **changes: Any) -> list[Row]:
    [row] = run(method, [None], workers=workers, status=f"refused: {reason}", **changes)
    return [row | {"train_seconds": None, "setup_seconds": None}]


def delay(method: str, workers: int, seed: int, gradient_delay: float, seconds: float | None, rows: int = 1000) -> Row:
    """A row of the experiment with expensive gradients."""
    return {
        "phase": "delay",
        "method": method,
        "kind": KINDS[method],
        "workers": workers,
        "seed": seed,
        "step": 0.5,
        "epoch": 2,
        "objective": -5.0,
        "train_seconds": 1.0,
        "status": "ok" if seconds else "refused: it cannot",
        "cell": f"delay/{method}/{workers}/{seed}/{gradient_delay:g}",
        "gradient_delay": gradient_delay,
        "delay_rows": rows,
        "epoch_seconds": seconds,
        "step_rule": [],
    }


def write(directory: Path, *parts: Row | list[Row]) -> Path:
    """A directory with the rows."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [row for part in parts for row in (part if isinstance(part, list) else [part])]
    (directory / "rows.jsonl").write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    return directory


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


# (seconds of an epoch on one worker, factor on two, what an epoch leaves of the gap, best step)
LIFE = {
    "serial": (0.21, 1.0, 0.44, 0.5),
    "hogwild": (0.23, 0.54, 0.445, 0.5),
    "tiered": (0.215, 0.51, 0.45, 0.5),
    "atomic": (0.6, 0.52, 0.44, 0.5),
    "aig": (0.85, 0.6, 0.445, 0.5),
    "locked": (0.27, 1.15, 0.44, 0.5),
    "round-robin": (0.24, 3.1, 0.46, 0.25),
    "averaging": (0.215, 0.52, 0.56, 1.0),
    "one-shot-averaging": (0.215, 0.51, 0.68, 2.0),
    "sklearn-sgd": (0.33, 1.0, 0.47, 0.5),
    "liblinear": (0.62, 1.0, 0.25, None),
}
SLOW = (
    ("serial", 1.0, 1.0),
    ("hogwild", 1.1, 0.54),
    ("tiered", 1.02, 0.51),
    ("aig", 4.0, 0.6),
    ("locked", 1.3, 1.15),
    ("round-robin", 1.15, 3.1),
)
GRID = (0.125, 0.25, 0.5, 1.0, 2.0)
START, OPTIMUM, EPOCHS, SEEDS = 0.693147, 0.0831, 10, 5


def lifelike(directory: Path, pace: float = 1.0, noise: int = 1, **changes: Any) -> Path:
    """A whole comparison of all methods on 1 and 2 workers; one run diverges, one is refused, one times out."""
    dice = random.Random(noise)
    first = about(
        data="rcv1",
        objective=OPTIMUM,
        start_objective=START,
        epochs=EPOCHS,
        methods=list(LIFE),
        seeds_list=list(range(SEEDS)),
        step_grid=list(GRID),
        rows=20242,
        width=47236,
        nnz=1498952,
        megabytes=12.0,
        test_rows=5000,
        command="hogwild compare rcv1 --seeds 5 --gradient-delay paper",
        cpu="AMD EPYC 7B13",
    )
    first |= changes
    parts: list[Row | list[Row]] = [first]
    pairs = [(name, count) for name in LIFE for count in ((1, 2) if KINDS[name] not in ("serial", "outside") else (1,))]
    for step in GRID:
        parts += [
            _life(dice, name, count, 1_000_003, pace, "tuning", step, ())
            for name, count in pairs
            if name != "liblinear"
        ]
    for seed in range(SEEDS):
        for name, count in pairs:
            best = LIFE[name][3]
            rules = ("tuned", "serial") if best in (0.5, None) else ("tuned",)
            found = _life(dice, name, count, seed, pace, "reported", best, rules)
            if (name, count, seed) == ("one-shot-averaging", 2, 3):
                found = [
                    row | ({"objective": None, "status": "diverged"} if row["epoch"] == 4 else {}) for row in found[:5]
                ]
            if (name, count, seed) == ("round-robin", 2, 4):
                found = [*found[:5], found[5] | {"status": "timed out after 3 s"}]
            if (name, count) == ("aig", 2) and seed == 1:
                found = [found[0] | {"objective": None, "status": "refused: 2 workers on 1 free core would spin"}]
            parts.append(found)
            if best not in (0.5, None):
                parts.append(_life(dice, name, count, seed, pace, "reported", 0.5, ("serial",)))
    parts += _slow_gradients(dice, pace)
    return write(directory, *parts)


def _life(
    dice: random.Random, name: str, count: int, seed: int, pace: float, phase: str, step: float | None, rules: Any
) -> list[Row]:
    seconds, factor, left, best = LIFE[name]
    off = 1.0 if step is None or best is None else abs(math.log2(step / best))
    left = min(left + 0.07 * off * (step is not None), 0.97)
    seconds *= (factor if count > 1 else 1.0) * pace * math.exp(dice.gauss(0, 0.03))
    gaps, clock, rows = 1.0, 0.0, []
    epochs = [0, 1, 2, 4, 8] if name == "liblinear" else range(EPOCHS + 1)
    floor = 3e-5 * (3 if count > 1 else 1)
    for epoch in epochs:
        if epoch:
            gaps = floor + (gaps - floor) * left ** (1 + 0.1 * (epoch < 3)) * math.exp(dice.gauss(0, 0.05))
            clock = (epoch * seconds if name == "liblinear" else clock + seconds) * math.exp(dice.gauss(0, 0.01))
        rows.append(
            {
                "objective": OPTIMUM + gaps * (START - OPTIMUM),
                "train_seconds": clock,
                "epoch": epoch,
                "test_accuracy": 0.965 - 0.06 * math.sqrt(gaps) + dice.gauss(0, 2e-4),
                "updates": 20242 * (epoch > 0),
                "load": 1.2,
                "data": "rcv1",
            }
        )
        if KINDS[name] == "lock-free" and epoch:
            lost = int(900 * (count - 1) * (name == "hogwild") * (1 + dice.random()))
            rows[-1] |= {"staleness_mean": (count - 1) * 1.1 + dice.random() * 0.1, "staleness_max": 9 * (count - 1)}
            rows[-1]["lost_updates"] = lost
    made = run(name, [0.0] * len(rows), 0.0, count, seed, step, rules, phase)
    return [row | life for row, life in zip(made, rows)]


def _slow_gradients(dice: random.Random, pace: float) -> list[Row | list[Row]]:
    found: list[Row | list[Row]] = []
    own = 1e-5 * pace
    for seed in range(3):
        for cost in (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
            for name, base, factor in SLOW:
                for count in (1, 2) if name != "serial" else (1,):
                    shared = 1.0 if count == 1 or name == "locked" else 0.505
                    row = own * base * (factor if count == 2 else 1.0) + cost * shared
                    found.append(delay(name, count, seed, cost, 1000 * row * math.exp(dice.gauss(0, 0.01))))
    return found
