"""A trained factorization machine: a linear model with a factor for each feature besides its weight.

What it predicts, how it reads rows and tables and what its file holds is the linear model's; its margins have the sum
over pairs too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.rows.container import Rows
from hogwild.data.rows.margins import Margins
from hogwild.data.tables.plan import check_plan
from hogwild.data.text.hashing import check_same
from hogwild.errors import InputError, UsageError
from hogwild.model_file import outcome, usable
from hogwild.problems.fm.objective import FactorMargins
from hogwild.problems.linear.model import LinearModel


@dataclass(frozen=True, eq=False)
class FMModel(LinearModel):
    """Parameters of a factorization machine and their meaning; see :class:`LinearModel` for what is not listed here.

    Attributes
    ----------
    coef_ : array of float32, shape (1, width)
    factors_ : array of float32, shape (width, rank)
        Those of features that no training row held are zero.
    """

    factors_: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def __post_init__(self) -> None:
        super().__post_init__()
        factors = np.array(self.factors_, dtype=np.float32, order="C")
        if len(self.coef_) != 1 or factors.ndim != 2 or len(factors) != self.width:
            raise InputError(f"factors of shape {factors.shape} do not go with coef of shape {self.coef_.shape}")
        factors.flags.writeable = False
        object.__setattr__(self, "factors_", factors)

    def __repr__(self) -> str:
        labels = f"{len(self.labels)} labels" if self.labels else "real targets"
        return (
            f"<FMModel: {self.loss} loss, {labels}, {self.width:,} features, rank {self.rank}{outcome(self.history)}>"
        )

    @property
    def rank(self) -> int:
        """Numbers in a factor."""
        return int(self.factors_.shape[1])

    def margins_of(self) -> Margins:
        """The margins of this model, for callers that iterate over rows themselves."""
        return _Margins(self)

    def strongest_pairs(self, count: int = 10) -> list[tuple[int, int, float]]:
        """Pairs of features with the largest ``<v_i, v_j>`` by size, among the ``AMONG`` longest factors of each sign.

        Returns
        -------
        list of (first feature, second feature, product)
            Features are numbered from 0; the strongest pair comes first.
        """
        lengths = np.einsum("ij,ij->i", self.factors_, self.factors_, dtype=np.float64)
        longest = np.sort(np.argsort(-lengths, kind="stable")[:AMONG])
        products = self.factors_[longest].astype(np.float64)
        products = np.triu(products @ products.T, 1)
        best = np.argsort(-np.abs(products), axis=None, kind="stable")[:count]
        pairs = np.column_stack(np.unravel_index(best, products.shape))
        found = [(int(longest[i]), int(longest[j]), float(products[i, j])) for i, j in pairs]
        return [pair for pair in found if pair[2]]

    def to_sklearn(self, bare: bool = False) -> Any:
        """Raise UsageError: scikit-learn has no factorization machine."""
        raise UsageError("scikit-learn has no factorization machine: predict with hogwild, or export npz")

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON header of the model file."""
        arrays, header = super().to_file()
        return arrays | {"factors": self.factors_}, header | {"problem": self.config.get("problem", "fm")}

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> FMModel:
        """Restore the model that :meth:`to_file` converted; raise InputError if anything does not fit."""
        rest = {name: array for name, array in arrays.items() if name != "factors"}
        linear = LinearModel.from_file(rest, header, where)
        with usable(where):
            return cls(**vars(linear), factors_=arrays["factors"])


AMONG = 1024  # features whose pairs are compared


class _Margins(FactorMargins):
    """Margins that refuse rows whose features are not those of the model."""

    def __init__(self, model: FMModel) -> None:
        lines = np.concatenate([model.coef_, model.factors_.T])
        super().__init__(lines, model.intercept_, model.normalize)
        self.model = model

    def between(self, rows: Rows, first: int, last: int, scales: np.ndarray | None = None) -> np.ndarray:
        check_plan(rows.table, self.model.table, "the rows")
        check_same(rows.hash_bits, self.model.hash_bits, "the rows", "those of the model")
        return super().between(rows, first, last, scales)
