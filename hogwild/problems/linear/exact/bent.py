"""Exact steps on hinge with a bent kink, which end at the optimum of hinge itself after a few bends.

A parabola in place of the kink makes Newton's method work. Made narrower and narrower, it would end at hinge after many
problems that are harder and harder. Here the parabola also lies elsewhere for every row. With a multiplier ``m`` of the
row, between 0 and 1, the bent loss at ``t = 1 - y p`` is ``max_a (a t - width (a - m)^2)`` over ``0 <= a <= 1``, and
the ``a`` found is the multiplier of the next bend (method of multipliers). It is nowhere above hinge, so its minimum is
a lower bound of the optimum, which says when to end: mostly after two to four bends, at widths where steps are easy.

References
----------
Hestenes (1969), Multiplier and gradient methods, JOTA 4.
Rockafellar (1976), Augmented Lagrangians and applications of the proximal point algorithm in convex programming.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from hogwild.problems.linear.exact.ending import Ending

# Widths of the bends, each from the solution of the one before; in the first one all rows at zero are curved
WIDTHS = tuple(2.0 * 0.25**k for k in range(16))
STEP = 3e-4  # share of the objective that the last step on a bent kink gains
NEAR = 0.004  # share of the objective: when the bound is as near, the steps end

Steps = Callable[[Ending, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def unbent(ending: Ending, w: np.ndarray, b: np.ndarray, steps: Steps) -> tuple[np.ndarray, np.ndarray, float]:
    """Lower hinge for one margin from weights (1, width) and an intercept (1,); return them and a bound of the optimum.

    ``steps`` minimise a bent loss. The bound is -inf if the last bend was still far from hinge.
    """
    own, y, shares = copy.copy(ending), ending.targets, ending.shares
    own.loss, m, lowest, best = "bent-hinge", 0.5, math.inf, (w, b)
    for own.param in WIDTHS:
        own.targets = y * (1.0 + 2.0 * own.param * (m - 0.5))
        w, b = steps(own, w, b)
        short = 1.0 - y * ending.all_margins(w, b)[:, 0]
        a, loss = np.clip(m + short / (2.0 * own.param), 0.0, 1.0), np.maximum(short, 0.0)
        value = float(shares @ loss) + ending.penalty(w)
        below = float(shares @ (loss - a * short + own.param * np.square(a - m)))
        if value < lowest:
            lowest, best = value, (w, b)
        if below <= NEAR * value:
            return *best, value - below
        m = a
    return *best, -math.inf
