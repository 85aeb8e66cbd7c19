"""Step sizes: each schedule answers one question: how long are the steps of epoch ``e``?

A schedule gives the kernel three numbers, ``(scale, offset, power)``, and the step is

    step(t) = scale / (offset + t)**power,      t = rows visited before, since the start of the run

so the kernel knows one formula and no names, and a schedule that is constant within an epoch (power 0) costs no
arithmetic per row. Defaults never depend on the number of epochs: 4 epochs, stopped and resumed to 8, are the first 8
of 20. AdaGrad is not a schedule: it divides each coordinate's step in the kernel.

Recht, Re, Wright, Niu: Hogwild! (2011), sections 5 and 7; Bottou: Stochastic Gradient Descent Tricks (2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Step = tuple[float, float, float]  # scale, offset, power
LONG = 100_000  # rows per epoch above which "auto" is "rows"
WEAK = 25_000.0  # rows after which a weak penalty's step under "rows" has fallen by the root of 2
STRONG = 8 * WEAK  # a penalty that halves the step sooner is not weak: the smaller step counts up to 1.6 million rows
SMALLEST = 1e-6  # step that "adaptive" does not divide further, as in scikit-learn
COOLED = 0.25  # factor on the step of ``Cooling`` after an epoch of little gain
STEEP = 1.5  # rows of an epoch over t, above which the step falls within it; below, the epoch's middle sets the step
SETTLED = 2  # fewest epochs without progress, or on smaller steps, after which ``Cooling`` can settle
REST = 1 / (1 - COOLED)  # times an epoch's gain: bounds the sum of all later gains on ever smaller steps
TAIL_POWER = 3  # of the weighted tail mean, see move_mean


def slower(step: Step, share: float) -> Step:
    """The same step for a worker that visits only this share of the rows that ``t`` counts, and counts those."""
    scale, offset, power = step
    return scale * share**power, offset * share, power


class Schedule:
    """A step size for each epoch.

    Parameters
    ----------
    step : float
        Step size of the first row.
    formula : callable, optional
        Returns the plan of an epoch; the step is constant without it.
    """

    def __init__(self, step: float, formula: Callable[[int], Step] | None = None) -> None:
        self.step = float(step)
        self._formula = formula

    def plan(self, epoch: int) -> Step:
        """``(scale, offset, power)`` for the epoch after ``epoch`` complete ones (so the first is ``plan(0)``)."""
        return self._formula(epoch) if self._formula else (self.step, 1.0, 0.0)

    def observe(self, objective: float, epochs: int = 1) -> None:
        """Record the objective at the end of an epoch, ``epochs`` after the last one recorded."""

    def state(self) -> dict[str, Any]:
        """Return what :meth:`restore` needs beside the constructor's arguments; JSON with infinities preserves it."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a result of :meth:`state`."""
        vars(self).update(state)


class Adaptive(Schedule):
    """``step``, divided by 5 whenever ``patience`` epochs in a row have not lowered the best objective by ``tol``.

    This is scikit-learn's ``adaptive``, except that ``tol`` is relative to the best objective (its own is absolute), so
    that scaling the targets changes nothing. As there, a step of 1e-6 or less is not divided further.
    """

    def __init__(self, step: float, tol: float = 1e-3, patience: int = 5) -> None:
        super().__init__(step)
        self.tol = tol
        self.patience = patience
        self.best = math.inf
        self.stale = 0

    def observe(self, objective: float, epochs: int = 1) -> None:
        lower = not math.isfinite(self.best) or objective < self.best - self.tol * abs(self.best)
        self.stale = 0 if lower else self.stale + epochs  # NaN is not an improvement
        self.best = min(self.best, objective)
        if self.stale >= self.patience and self.divide():
            self.stale = 0

    def divide(self) -> bool:
        """Divide the step by 5 and return True, unless it is the smallest already."""
        if self.step <= SMALLEST:
            return False
        self.step /= 5
        return True

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "best": self.best, "stale": self.stale}


class Cooling(Schedule):
    """``step / (1 + step fall t)`` (Bottou 2012), multiplied by ``COOLED`` after each epoch of little gain.

    This is ``auto`` of the estimators. The fall suits many rows, and cooling suits few: the epochs without progress
    that a fit waits for then remove the noise of SGD from the weights, instead of confirming that it is there. As the
    steps of these epochs fall by ``COOLED`` each, they can end as soon as the rest of them, with gains that fall
    likewise, would not reach ``tol``.

    Parameters
    ----------
    fall : float
        The strength of the l2 penalty.
    rows : int
        Rows of an epoch.
    visited : int
        Rows visited before the first epoch.
    epochs : int
        The number of epochs, if it is known: then the step falls to zero over them, whatever they gain.
    """

    def __init__(self, step: float, fall: float, rows: int, visited: int = 0, epochs: int = 0) -> None:
        super().__init__(step)
        self.fall = float(fall)
        self.rows = rows
        self.visited = visited
        self.epochs = epochs
        self.factor = 1.0

    def plan(self, epoch: int) -> Step:
        factor = 1.0 - epoch / self.epochs if self.epochs else self.factor
        if not self.fall:
            return factor * self.step, 1.0, 0.0
        offset = 1.0 / (self.step * self.fall) + self.visited
        begun = offset + epoch * self.rows
        if self.rows < STEEP * begun:  # saves the kernel a division for each nonzero
            return factor / (self.fall * (begun + self.rows / 2)), 1.0, 0.0
        return factor / self.fall, offset, 1.0

    def cool(self) -> None:
        """Take smaller steps, after an epoch of little gain."""
        self.factor *= COOLED

    def settled(self, stalled: int, gain: float, rest: int, tol: float) -> bool:
        """Whether ``rest`` more epochs, after ``stalled`` ones, the last with a ``gain``, would not reach ``tol``."""
        cooled = stalled >= SETTLED or (stalled > 0 and self.factor <= COOLED ** (SETTLED + 1))
        return cooled and 0 <= gain * min(rest, REST) < tol


def usual_schedule(name: str, rows: int, settled: bool) -> str:
    """Resolve "auto" for epochs of ``rows`` rows: ``rows`` if they are long, unless other options have ``settled`` it.

    The result depends on nothing that a resumed run may change. Other names are returned as they are.
    """
    return name if name != "auto" else "rows" if rows > LONG and not settled else "epoch"


def make_schedule(
    name: str,
    step: float | None,
    *,
    decay: float | None = None,
    power: float | None = None,
    l2: float = 0.0,
    dloss: Callable[[float], float] = lambda p: 1.0,
    tol: float = 1e-3,
) -> Schedule:
    """Return the schedule called ``name`` for options that a config has checked; it ignores those it does not use.

    With rows ``t`` counted from 0 and epochs ``e`` from 0:

    * ``epoch``: ``step decay^e``, as in the paper's experiments (section 7, decay 0.9).
    * ``round``: ``step decay^r`` in rounds that grow by ``1 / decay``: the robust 1/k rate of the paper's section 5.
      The barrier that its proof requires between rounds is the one at the end of every epoch.
    * ``root``: ``step / sqrt(e + 1)``, for factorization machines, whose best epoch comes early.
    * ``rows``: ``step / (1 + step l2 t)``, or ``step / sqrt(1 + t / 25,000)`` if the penalty is weak. It is for epochs
      so long that a constant step is too large at their end: near the optimum the error of SGD is proportional to its
      step, and the error of the start soon vanishes. ``1 / (l2 t)`` is the rate for objectives as curved as the penalty
      (Bottou 2012, section 2); the root is the rate for convex objectives, which may be flat.
    * ``inverse``: ``step / (t + 1)^power``, scikit-learn's ``invscaling``; 0.25 is the power of its ``SGDRegressor``.
      0.5, that of its ``SGDClassifier``, cuts the step a hundredfold over the first 10,000 rows.
    * ``optimal``: ``1 / (l2 (t0 + t))``, by Bottou, and scikit-learn's. It determines its own first step: with weights
      of a typical size ``w = l2**-0.25`` that is ``w / max(1, |loss'(-w)|)``, the derivative taken at target 1. That is
      scikit-learn's ``t0`` where ``|loss'| <= 1``: log, hinge, perceptron. It omits the absolute value, so its ``max``
      is always 1, and for other losses its first steps are longer than Bottou's and these: 37 times for squared-hinge
      at l2 = 1e-5.

    Parameters
    ----------
    name : str
        One of ``methods.SCHEDULES``; "auto", if still unresolved, is ``epoch``.
    step : float or None
        First step; None for ``optimal``, which determines its own.
    decay, power : float, optional
        For ``epoch`` (0.9) or ``round`` (0.37); for ``inverse`` (0.25). None takes that default.
    l2, dloss : float, callable
        For ``rows`` and ``optimal``: the penalty. For ``optimal``: the loss's derivative at a prediction for target 1.
    tol : float
        For ``adaptive``.
    """
    if step is None or name == "optimal":
        w = l2**-0.25
        first = w / max(1.0, abs(dloss(-w)))
        return Schedule(first, lambda _: (1.0 / l2, 1.0 / (first * l2), 1.0))
    if name == "adaptive":
        return Adaptive(step, tol)
    if name == "root":
        return Schedule(step, lambda epoch: (step / math.sqrt(epoch + 1), 1.0, 0.0))
    if name == "inverse":
        return Schedule(step, lambda _: (step, 1.0, 0.25 if power is None else power))
    if name == "rows":
        steady, root = (1.0 / (step * l2), 1.0) if step * l2 * STRONG > 1 else (WEAK, 0.5)
        return Schedule(step, lambda _: (step * steady**root, steady, root))
    if name == "round":
        share = decay or 0.37
        return Schedule(step, lambda epoch: (step * share ** rounds(epoch, share), 1.0, 0.0))
    if name in ("epoch", "auto"):
        share = decay or 0.9
        return Schedule(step, lambda epoch: (step * share**epoch, 1.0, 0.0))
    return Schedule(step)


def rounds(epoch: int, decay: float) -> int:
    """How many rounds are over. Round ``r`` ends with epoch ``ceil(1 + 1/decay + ... + decay**-r)``: at 0.37, which
    minimises the bound, these are 1, 4, 12, 31, 85, 229.
    """
    over = 0
    length = end = 1.0
    while end - 1e-9 <= epoch:  # that is, ceil(end) <= epoch, up to rounding
        length /= decay
        end += length
        over += 1
    return over


def move_mean(mean: np.ndarray, newest: np.ndarray, t: int) -> None:
    """Make the tail mean of t - 1 models, zeros for none, that of t, in place.

    The newest has the weight ``(q + 1) / (t + q)``, q = 3: polynomial-decay averaging (Shamir and Zhang 2013, section
    4). It is a mean of roughly the last quarter at any time, so a resumed run needs no knowledge of where it will end.
    """
    mean += (TAIL_POWER + 1) / (t + TAIL_POWER) * (newest - mean)
