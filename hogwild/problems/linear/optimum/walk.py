"""Which penalties are tried one after the other, by the losses of those before.

Losses on rows held out fall and rise again as the penalty gets weaker, and weak penalties take the most steps, so the
walk begins at the strongest and ends where the loss has risen. Columns of other scales come to count at penalties in
their own units, so it may have many decades to go.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.problems.linear.options import L2_PATH

RISEN, LEAST = 0.05, 1e-3  # a loss is past the lowest by so much of what is learned, and of the loss itself
DECADES = 6  # beyond the strongest penalty, at most
FARTHEST = 24  # power of ten of a unit, so that penalties are normal numbers in float32


def walked(loss: Callable[[float], float], strongest: float, weakest: float) -> dict[float, float]:
    """The losses of penalties, by ascending penalty: of whole decades from the strongest on, until they have risen.

    While the strongest is clearly the best, stronger ones are tried. Then come those halfway between the best and its
    neighbours.
    """
    losses = {strongest: loss(strongest)}
    while not _risen(losses) and min(losses) > 1.01 * weakest:
        l2 = rounded(min(losses) / 10)
        losses[l2] = loss(l2)
    for _ in range(DECADES):
        nothing = losses[max(losses)]
        others = [each for l2, each in losses.items() if l2 < max(losses)]
        if not math.isfinite(nothing) or nothing > min(others, default=nothing) - LEAST * abs(nothing):
            break
        l2 = rounded(10 * max(losses))
        losses[l2] = loss(l2)
    best, sizes = min(losses, key=losses.__getitem__), sorted(losses)
    k = sizes.index(best)
    for other in sizes[max(k - 1, 0) : k + 2]:
        l2 = rounded(math.sqrt(best * other))
        losses[l2] = losses[l2] if l2 in losses else loss(l2)
    return dict(sorted(losses.items()))


def rounded(l2: float) -> float:
    """A penalty to two digits, as it is shown and can be given again."""
    return float(f"{l2:.2g}")


def _risen(losses: dict[float, float]) -> bool:
    """Whether the loss of the weakest penalty is past the lowest."""
    lowest, nothing = min(losses.values()), losses[max(losses)]
    return losses[min(losses)] > lowest + max(RISEN * (nothing - lowest), LEAST * abs(lowest))


def unit_of(rows: Rows) -> float:
    """What penalties are multiples of: the power of ten nearest to a typical row's squared length.

    That is 1 for rows of unit length. A typical entry is the geometric mean of those that are not zero, so that a few
    columns of another scale do not count.
    """
    values = np.abs(rows.select(rows.spread(100_000)).compact().values)
    values = values[values > 0]
    if not len(values):
        return 1.0
    squared = 2.0 * float(np.log10(values, dtype=np.float64).mean()) + math.log10(rows.nnz / len(rows))
    return float(10.0 ** min(max(round(squared), -FARTHEST), FARTHEST))


def weakest_of(weakest: float, smallest_scale: float) -> float:
    """The weakest penalty that may matter to a column, if ``weakest`` is of a typical one."""
    return max(min(weakest, L2_PATH[0] * smallest_scale**2), 10.0**-FARTHEST)
