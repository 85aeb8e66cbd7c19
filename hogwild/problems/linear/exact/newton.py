"""Exact steps where features are few: Newton's method with the whole Hessian, for each class by itself.

On data of some hundred rows this takes a fraction of a millisecond for smooth losses and a few for hinge, a thirtieth
of what conjugate gradients take (``ending.py``), so even a fit of two milliseconds can be judged and finished.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from hogwild.problems.linear.exact import newton_kernel
from hogwild.problems.linear.exact.bent import Steps
from hogwild.problems.linear.exact.curved import Solution
from hogwild.problems.linear.exact.ending import CODES, KINKED, SMALLEST_GAIN, SMOOTH, Ending

FEATURES = 150  # up to which there are few,
ENTRIES = 1 << 22  # if there are at most this many entries, times classes;
MORE, WORK = 3, 1 << 28  # times as many of losses with kinks, if entries times features times classes are at most these


def has_few(ending: Ending, classes: int) -> bool:
    """Whether Newton steps are taken with the whole Hessian, for so many margins."""
    width, entries, kinked = ending.rows.width, ending.rows.nnz * classes, ending.loss in KINKED
    small = width <= FEATURES and entries <= ENTRIES
    some = kinked and width <= MORE * FEATURES and entries * width <= WORK
    return (small or some) and ending.l1 == 0.0 and (kinked or ending.loss in SMOOTH)


def lowered(ending: Ending, coef: np.ndarray, intercept: np.ndarray, least: float) -> Solution | None:
    """Parameters after Newton steps of a smooth loss, float32; None if that would not lower the objective.

    No steps of a class are taken if the first would lower its objective by no more than ``least``.
    """
    w, descend = np.atleast_2d(coef), _descent(ending)
    found, some = np.column_stack((w, intercept)).astype(np.float64), False
    for k, x in enumerate(found):
        own = copy.copy(ending)
        own.targets = ending.of_class(k, len(w))
        some |= descend(own, x, least, SMALLEST_GAIN) > 0
    if not some:
        return None
    then = found[:, :-1].astype(np.float32), found[:, -1].astype(np.float32)
    if not ending.objective(*then) < ending.objective(w.astype(np.float64), intercept):
        return None
    return then[0].reshape(coef.shape), then[1]


def newton_steps(ending: Ending) -> Steps:
    """What minimises bent losses of one margin on the rows of ``ending``."""
    descend = _descent(ending)

    def steps(own: Ending, w: np.ndarray, b: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, bool]:
        x = np.append(w, b)
        ended = descend(own, x, 0.0, least)
        return x[None, :-1], x[-1:], ended != 1

    return steps


def _descent(ending: Ending) -> Callable[[Ending, np.ndarray, float, float], int]:
    """The kernel with entries and work space, for the parameters of one margin, a least gain and a least share."""
    n, size = len(ending.rows), ending.rows.width + 1
    room = np.empty(n), np.empty(n), np.empty(size), np.empty(size), np.zeros(size), np.empty((size, size))
    entries = ending.entries(0, n)

    def descend(own: Ending, x: np.ndarray, least: float, share: float) -> int:
        known = *entries, own.targets, own.shares, CODES[own.loss], own.param, own.l2, own.intercept
        return int(newton_kernel.descend(*known, least, share, x, *room))

    return descend
