"""Step sizes of the estimators: scikit-learn's schedules, and ``auto``, a step found by trial that falls on a stall.

``auto`` adapts to its progress. The first step is the power of two that did best in trials on a sample. It falls as
``step / (1 + step fall t)``, t rows later and with ``fall`` the strength of the l2 penalty (Bottou 2012), which suits
many rows, and is multiplied by ``STALLED`` after an epoch that has gained no more than a few ``tol``, which suits few
rows: the epochs that ``n_iter_no_change`` waits for then remove the noise of SGD from the weights, instead of
confirming that it is there. As their steps fall by ``STALLED`` each, they end as soon as the rest of them, with gains
that fall likewise, would not reach ``tol``. If a run diverges nevertheless, it begins again with a quarter of the step.
"""

from __future__ import annotations

from collections.abc import Callable

from hogwild.estimators.options import Options
from hogwild.training.schedule import Optimal, Step

STALLED = 0.25
STEEP = 1.5  # rows of an epoch over t, above which the step falls within it; below, the epoch's middle sets the step
SETTLED = 2  # fewest epochs without progress, or on smaller steps
REST = 1 / (1 - STALLED)  # times an epoch's gain: bounds the sum of all later gains on ever smaller steps
SMALLEST = 1e-6  # step at which "adaptive" gives up, as in scikit-learn


class FitSteps:
    """Step sizes of one fit.

    Parameters
    ----------
    options : Options
    first : float
        The step found for ``auto``; the other schedules ignore it and have ``eta0``.
    dloss : callable
        Derivative of the loss at a prediction for target 1, for ``optimal``.
    n : int
        Number of rows in an epoch.
    visited : int
        Number of rows visited before.
    fall : float
        The constant in the decay of ``auto``, ``step / (1 + step fall t)``.
    last : int
        The number of epochs, if it is known: then ``auto`` falls to zero over them, and on no stall.
    """

    def __init__(
        self,
        options: Options,
        first: float,
        dloss: Callable[[float], float],
        n: int,
        fall: float,
        visited: int = 0,
        last: int = 0,
    ) -> None:
        self.kind, self._n, self._visited, self._last = options.learning_rate, n, visited, last
        self._alpha = fall if self.kind == "auto" else options.alpha
        self._power, self._factor = options.power_t, 1.0
        self.step = first if self.kind == "auto" else options.eta0
        if self.kind == "optimal":
            self.step = Optimal(options.alpha, dloss).step

    def plan(self, epoch: int = 0) -> Step:
        """``(scale, offset, power)`` after ``epoch`` epochs, see ``hogwild/training/schedule.py``."""
        if self._last and self.kind == "auto":
            self._factor = 1.0 - epoch / self._last
        if self.kind == "invscaling" and self._power:
            return self.step, 1.0 + self._visited, self._power
        if self.kind in ("auto", "optimal") and self._alpha:
            offset = 1.0 / (self.step * self._alpha) + self._visited  # for step / (1 + step alpha t)
            begun = offset + epoch * self._n
            if self.kind == "auto" and self._n < STEEP * begun:  # saves the kernel a division for each nonzero
                return self._factor / (self._alpha * (begun + self._n / 2)), 1.0, 0.0
            return self._factor / self._alpha, offset, 1.0
        return self._factor * self.step, 1.0, 0.0

    def observe(self, improved: bool) -> None:
        """Record whether an epoch has lowered the objective by a few times ``tol``."""
        if self.kind == "auto" and not improved:
            self._factor *= STALLED

    def settled(self, stalled: int, gain: float, left: int, tol: float) -> bool:
        """Whether ``left`` more epochs, after ``stalled`` ones, the last with a ``gain``, would not reach ``tol``.

        This applies to ``auto`` only: steps that do not fall may gain more again.
        """
        if self.kind != "auto" or not stalled:
            return False
        cooled = stalled >= SETTLED or self._factor <= STALLED ** (SETTLED + 1)
        return cooled and 0 <= gain * min(left, REST) < tol

    def give_more(self) -> bool:
        """Whether to continue with a smaller step ("adaptive") after ``n_iter_no_change`` epochs without progress."""
        if self.kind != "adaptive" or self.step <= SMALLEST:
            return False
        self.step /= 5
        return True
