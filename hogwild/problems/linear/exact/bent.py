"""Exact steps on a loss with bent kinks, which end at the optimum of the loss itself after a few bends.

A parabola in place of a kink makes Newton's method work. Made narrower and narrower, it would end at the loss itself
after many problems that are harder and harder. Here the parabola also lies elsewhere for every row. With a multiplier
``m`` of the row, which is a slope that the loss has somewhere, the bent loss of a margin that is ``r`` from the kink's
middle is ``max_s (s r - epsilon |s| - unit / 2 (s - m)^2)`` over the slopes ``s`` of the loss, and the ``s`` found is
the multiplier of the next bend (method of multipliers). Hinge has slopes between 0 and that of its label, and no
epsilon. In units of ``unit`` every parabola has curvature one.

The slopes are dual variables too, so they bound the optimum, however near a minimum of the bent loss the steps came.

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

from hogwild.problems.linear.exact import gradient_kernel as loops
from hogwild.problems.linear.exact.ending import CODES, Ending

UNIT, NARROWER = 4.0, 0.25  # width of the first parabola, over that of the loss, and the factor on it after each bend
BENDS = 16  # at most
STEP = 3e-4  # share of the objective that the last step on a bent loss gains,
CLOSER = 0.01  # and the factor on it after a bend that was narrow enough
NEAR = 0.004  # share of the objective: when what the parabolas cost is as little, they are narrow enough
ENOUGH = 0.005  # share of the objective: when the bound is as near, the steps end
TINY = 1e-300

#: From an ending, weights, an intercept and ``STEP`` to such, and whether the steps came to their end
Steps = Callable[[Ending, np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, bool]]


def unbent(ending: Ending, w: np.ndarray, b: np.ndarray, steps: Steps) -> tuple[np.ndarray, np.ndarray, float]:
    """Lower a loss with kinks for one margin from weights (1, width) and an intercept (1,).

    ``steps`` minimise a bent loss. Return the best parameters and a lower bound of the optimum, -inf for none.
    """
    e, own, y, shares, epsilon = ending, copy.copy(ending), ending.targets, ending.shares, half_width(ending)
    own.loss = "bent-" + e.loss
    r = e.all_margins(w, b)[:, 0] - y
    unit = UNIT * (1.0 if e.loss == "hinge" else max(float(shares @ np.abs(r) / shares.sum()), epsilon) or 1.0)
    m, least = -0.5 * y if e.loss == "hinge" else np.zeros(len(y)), STEP
    best, lowest, lower = (w, b), e.objective(w, b), -math.inf
    for _ in range(BENDS):
        own.targets, own.param, own.l2 = y / unit - m, epsilon / unit, e.l2 * unit
        x, c, whole = steps(own, w / unit, b / unit, least)
        w, b, before, m = x * unit, c * unit, m, np.empty(len(y))
        p = e.all_margins(w, b)[:, 0]
        loops.slopes(CODES[own.loss], p / unit, own.targets, np.ones(len(y)), own.param, m)
        losses, under = loops.mean_loss(CODES[e.loss], p, y, shares, e.param), m * (p - y) - epsilon * np.abs(m)
        value = losses + e.penalty(w)
        if value < lowest:
            best, lowest = (w, b), value
        if losses - float(shares @ under) > NEAR * value:
            unit *= NARROWER
            continue
        if e.l2 > 0.0:
            lower = max(lower, bound(e, shares * m))
        elif whole:  # as near as their last step can tell
            lower = max(lower, e.penalty(w) + float(shares @ (under - unit / 2.0 * np.square(m - before))))
        if lowest - lower <= ENOUGH * lowest:
            break
        least *= CLOSER
    return *best, lower


def bound(ending: Ending, slopes: np.ndarray) -> float:
    """Lower bound of the objective with an l2 penalty, by dual variables: slopes that the rows' losses may have (n,).

    Each is times its row's share. Where there is an intercept their sum must be zero, so those of the sign that has
    more are scaled down. Then all are, by the factor that gives the highest bound.
    """
    if ending.intercept:
        up, down = float(slopes[slopes > 0].sum()), -float(slopes[slopes < 0].sum())
        least = min(up, down)
        slopes = slopes * np.where(slopes > 0, least / max(up, TINY), least / max(down, TINY))
    first = -float(slopes @ ending.targets) - half_width(ending) * float(np.abs(slopes).sum())
    second = float(np.square(ending.by_feature(slopes)).sum()) / (2.0 * ending.l2)
    if not first > 0.0:
        return 0.0  # the losses are nowhere below
    factor = min(first / max(2.0 * second, TINY), 1.0)
    return factor * (first - factor * second)


def half_width(ending: Ending) -> float:
    """Of the tube without a loss; hinge has none."""
    return 0.0 if ending.loss == "hinge" else ending.param
