"""The objective that judges a factorization machine: weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2.

A solution is ``coef`` (1 + rank, width), the weights and then the factors, and the intercept, so whatever passes over
rows, sums and numberings is the linear problem's; only the margins and the penalty differ.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from hogwild.data.rows.margins import Margins
from hogwild.problems.linear.objective import Objective


class FactorMargins(Margins):
    """Margins of a solution; see :class:`hogwild.data.rows.margins.Margins`.

    ``fields`` (width,) is the field of each feature, if it has a factor for each, of ``rank`` numbers.
    """

    def __init__(self, *parameters: Any, fields: np.ndarray | None = None, rank: int = 0, **more: Any) -> None:
        super().__init__(*parameters, **more)
        self.fields, self.rank = fields, rank

    @property
    def columns(self) -> int:
        """Number of margins of a row."""
        return 1

    def _margins(self, entries: tuple[np.ndarray, ...], scales: np.ndarray) -> np.ndarray:
        from hogwild.problems.fm.scores_kernel import margins, margins_of_fields

        out = np.empty(len(entries[0]))
        intercept = float(np.ravel(self.intercept)[0])
        if self.fields is None:
            margins(*entries, self.coef, intercept, scales, np.empty((2, self.coef.shape[1])), out)
        else:
            margins_of_fields(*entries, self.coef, self.fields, self.rank, intercept, scales, out)
        return out


class FMObjective(Objective):
    """The objective on given rows; ``l2_factors``, ``fields`` and ``rank`` besides what :class:`Objective` takes."""

    def __init__(
        self, *given: Any, l2_factors: float = 0.0, fields: np.ndarray | None = None, rank: int = 0, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self.l2_factors = float(l2_factors)
        self.margins = partial(FactorMargins, fields=fields, rank=rank)

    def penalty(self, coef: Any) -> float:
        """The penalty in float64."""
        with np.errstate(all="ignore"):  # parameters of a run that has diverged
            squares = [float(np.einsum("ij,ij->", part, part, dtype=np.float64)) for part in (coef[:1], coef[1:])]
        return self.l2 / 2 * squares[0] + self.l2_factors / 2 * squares[1]
