"""When a run reached a target, from its evaluations alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def lowest(rows: Iterable[dict[str, Any]], start: float) -> float:
    """The lowest objective of any row, at most that of the start: the optimum where nobody knows it."""
    found = [float(row["objective"]) for row in rows if row["objective"] is not None]
    return min([start, *(value for value in found if math.isfinite(value))])


def crossing(rows: Sequence[dict[str, Any]], target: float, optimum: float, field: str) -> float | None:
    """Where ``field`` ("epoch" or "train_seconds") stood when the objective first reached ``target``; None: never.

    Between two evaluations the logarithm of the sub-optimality is taken to fall in a straight line.
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
