"""Which step of the grid a method takes: the same grid, the same number of trials and the same rule for all.

The rule: the step that reaches the hardest target in the fewest epochs; among steps that never reach it, the next
target decides, and if none is reached, the lowest objective. Epochs and not seconds, since one trial's seconds are
noise, and a step does not change what an epoch costs. The trials run on a seed that is not reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hogwild.compare.targets import crossing

Row = dict[str, Any]


def best_step(trials: Mapping[float, Sequence[Row]], optimum: float, start: float, eps: Sequence[float]) -> float:
    """The step whose trial went best.

    Parameters
    ----------
    trials : mapping
        Rows of each step's trial, from epoch 0 on.
    optimum, start : float
        f* and the objective at the start.
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
