"""The objective that judges a factorization machine: weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2.

A solution is ``coef`` (stride, width), the lines of the features as workers keep them, and the intercept. So whatever
passes over rows, sums and numberings is the linear problem's; only the margins and the penalty differ.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hogwild.data.rows.container import readonly
from hogwild.data.rows.margins import Margins
from hogwild.problems.fm.scores_kernel import margins
from hogwild.problems.linear.objective import Objective
from hogwild.problems.linear.problem import stride_of

ONE_FIELD = readonly(np.empty(0, np.int16))


class Lines(NamedTuple):
    """What a feature's line of numbers holds: a factor for each field, each padded, zeros, and last the weight."""

    rank: int
    fields: np.ndarray = ONE_FIELD  # (width,) int16: the field of each feature, if there are several
    scale: float = 1.0  # of the margins of workers, which have real targets over it

    @property
    def size(self) -> int:
        """Numbers from the factor for a field to the next one's."""
        return stride_of(self.rank)

    def places(self, count: int) -> np.ndarray:
        """Places of the factors for ``count`` fields, (count * rank,)."""
        return np.add.outer(self.size * np.arange(count), np.arange(self.rank)).ravel()

    def stride(self, count: int) -> int:
        """Numbers of a line that has factors for ``count`` fields."""
        return stride_of(1 + (self.rank if count == 1 else count * self.size))


class FactorMargins(Margins):
    """Margins of a solution; see :class:`hogwild.data.rows.margins.Margins`."""

    columns = 1

    def __init__(self, *parameters: Any, lines: Lines, **more: Any) -> None:
        super().__init__(*parameters, **more)
        self.lines = lines

    def _margins(self, entries: tuple[np.ndarray, ...], scales: np.ndarray) -> np.ndarray:
        out, k = np.empty(len(entries[0])), self.lines
        places = self.coef.ravel(), self.coef.shape[1], k.size, k.fields, np.empty((2, k.rank))
        margins(*entries, *places, float(np.ravel(self.intercept)[0]), scales, out)
        return k.scale * out


class FMObjective(Objective):
    """The objective on given rows; ``lines`` and ``l2_factors`` besides what :class:`Objective` takes."""

    def __init__(self, *given: Any, lines: Lines, l2_factors: float = 0.0, **more: Any) -> None:
        super().__init__(*given, **more)
        self.l2_factors = float(l2_factors)
        self.margins = partial(FactorMargins, lines=lines)

    def penalty(self, coef: Any) -> float:
        """The penalty in float64."""
        if not (self.l2 or self.l2_factors):
            return 0.0
        with np.errstate(all="ignore"):  # parameters of a run that has diverged
            squares = [float(np.einsum("ij,ij->", part, part, dtype=np.float64)) for part in (coef[-1:], coef[:-1])]
        return self.l2 / 2 * squares[0] + self.l2_factors / 2 * squares[1]
