"""How many examples may be in flight: chosen by trial on a sample, as the step is.

F examples that all see the same parameters are a batch of F, with F times the step of one. How large it may be has
bounds (Ma, Bassily and Belkin, 2018), but from the worst case of the curvature, which were ten times too careful. So
numbers are tried, the largest first, for equally many visits from the same parameters: one is good if a quarter of it
would not learn noticeably more. It takes a few launches, and runs on the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable

FINER = 4  # ratio of neighbouring numbers
TURNS = 32  # visits in a trial, for each that may be in flight
FEWEST = 16  # at most a share of 1 / FEWEST of the examples is in flight, and a trial visits each twice at most
HARM, SAME = 0.05, 0.005  # losses are alike within this share of what was learned, plus this share of the loss


def most_in_flight(loss_after: Callable[[int], float], start: float, most: int) -> int:
    """Return the largest number in flight, from ``most`` down, that does no harm.

    Parameters
    ----------
    loss_after : callable
        The loss after a trial with so many in flight.
    start : float
        The loss before it.
    """
    count, loss = most, loss_after(most)
    while count > 1:
        fewer = max(count // FINER, 1)
        other = loss_after(fewer)
        learned = [start - one for one in (loss, other) if math.isfinite(one)]
        alike = HARM * max(0.0, *learned, 0.0) + SAME * abs(start)
        if loss <= start + alike and not other < loss - alike:  # NaN is not
            break
        count, loss = fewer, other
    return count
