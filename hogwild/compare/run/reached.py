"""Finds when a run reached a target, from its evaluations alone, and by that the best step of a grid.

The best step reaches the hardest target in the fewest epochs; among steps that never reach it, the next target decides,
and if none is reached, the lowest objective. Epochs count rather than seconds, since one trial's seconds are noisy, and
a step does not change the cost of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def lowest(rows: Iterable[Row], start: float) -> float:
    """Lowest objective of any row, at most that of the start: it replaces the optimum if that is unknown."""
    found = [float(row["objective"]) for row in rows if row["objective"] is not None]
    return min([start, *(value for value in found if math.isfinite(value))])


def crossing(rows: Sequence[Row], target: float, optimum: float, field: str) -> float | None:
    """Value of ``field`` ("epoch" or "train_seconds") when the objective first reached ``target``; None: never.

    Between two evaluations the logarithm of the sub-optimality is interpolated linearly.
    """
    before: tuple[float, float] | None = None
    for row in rows:
        if row["objective"] is None or row[field] is None:
            break
        at, gap = float(row[field]), float(row["objective"]) - optimum
        if gap <= target - optimum:
            if before is None:
                return at
            high, low = math.log(before[1]), math.log(max(gap, 1e-3 * (target - optimum)))
            share = (high - math.log(target - optimum)) / (high - low) if high > low else 1.0
            return before[0] + min(max(share, 0.0), 1.0) * (at - before[0])
        before = at, gap
    return None


def best_step(trials: Mapping[float, Sequence[Row]], optimum: float, start: float, eps: Sequence[float]) -> float:
    """Return the step with the best trial.

    Parameters
    ----------
    trials : mapping
        Rows of each step's trial, from epoch 0 on.
    optimum, start : float
        The optimum f*, and the objective at the start.
    eps : sequence of float
        Targets, as shares of ``start - optimum``.
    """
    if not trials:
        raise ValueError("no trials")
    return min(trials, key=lambda step: (*_rank(trials[step], optimum, start, eps), step))


def _rank(rows: Sequence[Row], optimum: float, start: float, eps: Sequence[float]) -> tuple[float, ...]:
    reached = [crossing(rows, optimum + share * (start - optimum), optimum, "epoch") for share in sorted(eps)]
    last = rows[-1]["objective"] if rows[-1]["status"] == "ok" else None
    return (*(math.inf if value is None else value for value in reached), math.inf if last is None else last)
