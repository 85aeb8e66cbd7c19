"""The objective that judges a factorization machine: weighted mean loss + l2/2 ||w||^2 + l2_factors/2 ||V||^2.

A solution is ``coef`` (1 + rank, width), the weights and then the factors, and the intercept, so whatever passes over
rows, sums and numberings is the linear problem's; only the margins and the penalty differ. Where workers keep it, it is
judged without a copy: ``layout`` says where in a feature's line the weight stands, where the factors begin and how far
apart those for two fields are, and margins are the user's after a ``scale``.
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

    def __init__(
        self,
        *parameters: Any,
        fields: np.ndarray | None = None,
        rank: int = 0,
        layout: tuple[int, int, int] | None = None,
        scale: float = 1.0,
        **more: Any,
    ) -> None:
        super().__init__(*parameters, **more)
        self.fields, self.rank, self.scale = fields, rank, scale
        self.layout = layout or (0, 1, rank)

    @property
    def columns(self) -> int:
        """Number of margins of a row."""
        return 1

    def _margins(self, entries: tuple[np.ndarray, ...], scales: np.ndarray) -> np.ndarray:
        from hogwild.problems.fm.scores_kernel import margins, margins_of_fields

        out = np.empty(len(entries[0]))
        intercept = float(np.ravel(self.intercept)[0])
        if self.fields is None:
            sums = np.empty((2, self.coef.shape[1]))
            margins(*entries, self.coef, self.layout[0], intercept, scales, sums, out)
        else:
            margins_of_fields(*entries, self.coef, *self.layout, self.fields, self.rank, intercept, scales, out)
        return self.scale * out


class FMObjective(Objective):
    """The objective on given rows; ``l2_factors`` and what :class:`FactorMargins` takes besides."""

    def __init__(self, *given: Any, l2_factors: float = 0.0, **more: Any) -> None:
        places = {name: more.pop(name) for name in ("fields", "rank", "layout", "scale") if name in more}
        super().__init__(*given, **more)
        self.l2_factors = float(l2_factors)
        self.margins = partial(FactorMargins, **places)

    def penalty(self, coef: Any) -> float:
        """The penalty in float64."""
        if not (self.l2 or self.l2_factors):
            return 0.0
        with np.errstate(all="ignore"):  # parameters of a run that has diverged
            squares = [float(np.einsum("ij,ij->", part, part, dtype=np.float64)) for part in (coef[:1], coef[1:])]
        return self.l2 / 2 * squares[0] + self.l2_factors / 2 * squares[1]
