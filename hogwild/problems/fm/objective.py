"""The objective that judges a factorization machine: weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2.

A solution is ``coef`` (1 + rank, width), the weights and then the factors, and the intercept, so whatever passes over
rows, sums and numberings is the linear problem's; only the margins and the penalty differ. Where workers keep it, it is
judged without a copy: :class:`Lines` says where a feature's numbers are.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hogwild.data.rows.margins import Margins
from hogwild.problems.linear.objective import Objective


class Lines(NamedTuple):
    """What a feature's line of numbers holds: a weight and a factor, or one for each field; by default a solution's."""

    rank: int
    fields: np.ndarray | None = None  # (width,) int16: the field of each feature, if it has a factor for each
    weight: int = 0  # place in a line
    first: int = 1  # place of the factors
    block: int = 0  # from the factor for a field to the next one's; 0: rank
    scale: float = 1.0  # of the margins of workers, which have real targets over it


class FactorMargins(Margins):
    """Margins of a solution; see :class:`hogwild.data.rows.margins.Margins`."""

    def __init__(self, *parameters: Any, lines: Lines, **more: Any) -> None:
        super().__init__(*parameters, **more)
        self.lines = lines

    @property
    def columns(self) -> int:
        """Number of margins of a row."""
        return 1

    def _margins(self, entries: tuple[np.ndarray, ...], scales: np.ndarray) -> np.ndarray:
        from hogwild.problems.fm.scores_kernel import margins, margins_of_fields

        out, stride, k = np.empty(len(entries[0])), self.coef.shape[1], self.lines
        intercept = float(np.ravel(self.intercept)[0])
        if k.fields is None:
            margins(*entries, self.coef, k.weight, intercept, scales, np.empty((2, stride)), out)
        else:
            places = stride, k.weight, k.first, k.block or k.rank, k.fields, k.rank
            margins_of_fields(*entries, self.coef.ravel(), *places, intercept, scales, out)
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
            squares = [float(np.einsum("ij,ij->", part, part, dtype=np.float64)) for part in (coef[:1], coef[1:])]
        return self.l2 / 2 * squares[0] + self.l2_factors / 2 * squares[1]
