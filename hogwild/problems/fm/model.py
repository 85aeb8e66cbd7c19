"""A trained factorization machine: a linear model with a factor for each feature besides its weight.

What it predicts, how it reads rows and tables and what its file holds is the linear model's; its margins have the sum
over pairs too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.data.rows.container import frozen_array
from hogwild.data.rows.margins import Margins
from hogwild.errors import InputError, UsageError
from hogwild.model_file import usable
from hogwild.problems.linear.model import LinearModel


@dataclass(frozen=True, eq=False, repr=False)
class FMModel(LinearModel):
    """Parameters of a factorization machine and their meaning; :class:`hogwild.LinearModel` has what is not listed.

    Attributes
    ----------
    coef_ : array of float32, shape (1, width)
    factors_ : array of float32, shape (width, rank), or (width, fields * rank)
        Those of features that no training row held are zero.
    fields_ : array of int16, shape (width,), optional
        The field of each feature, if it has a factor for each field.

    See Also
    --------
    train : trains one, with ``problem="fm"`` or ``"ffm"``.
    HogwildFMClassifier, HogwildFMRegressor : the same as scikit-learn estimators.

    Examples
    --------
    >>> import numpy as np, hogwild
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], (400, 4))
    >>> model = hogwild.train((X, X[:, 0] * X[:, 1] > 0), problem="fm", rank=2, workers=1).finish()
    >>> model.factors_.shape, model.strongest_pairs(1)[0][:2]
    ((4, 2), (0, 1))
    """

    factors_: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    fields_: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        factors = np.array(self.factors_, dtype=np.float32, order="C")
        if len(self.coef_) != 1 or factors.ndim != 2 or len(factors) != self.width:
            raise InputError(f"factors of shape {factors.shape} do not go with coef of shape {self.coef_.shape}")
        factors.flags.writeable = False
        object.__setattr__(self, "factors_", factors)
        if self.fields_ is None:
            return
        fields = frozen_array(self.fields_, np.int16)
        count = int(fields.max(initial=0)) + 1
        if len(fields) != self.width or fields.min(initial=0) < 0 or factors.shape[1] % count:
            raise InputError(f"{len(fields)} fields below {count} do not go with factors of shape {factors.shape}")
        object.__setattr__(self, "fields_", fields)

    @property
    def _parameters(self) -> str:
        return f"rank {self.rank}"

    @cached_property
    def rank(self) -> int:
        """Numbers in a factor."""
        return int(self.factors_.shape[1]) // self._fields

    @property
    def _fields(self) -> int:
        return 1 if self.fields_ is None else int(self.fields_.max(initial=0)) + 1

    def margins_of(self) -> Margins:
        """The margins of this model, for callers that iterate over rows themselves."""
        from hogwild.problems.fm.objective import ONE_FIELD, FactorMargins, Lines

        lines, count = Lines(self.rank, ONE_FIELD if self.fields_ is None else self.fields_), self._fields
        coef = np.zeros((self.width, lines.stride(count)), np.float32)
        coef[:, lines.places(count)], coef[:, -1] = self.factors_, self.coef_[0]
        return FactorMargins(coef.T, self.intercept_, self.normalize, self.check_features, lines=lines)

    def strongest_pairs(self, count: int = 10) -> list[tuple[int, int, float]]:
        """Pairs of features with the largest ``<v_i, v_j>`` by size, among the 512 features with the longest factors.

        With fields, pairs of one field are left out.

        Returns
        -------
        list of (first feature, second feature, product)
            Features are numbered from 0; the strongest pair comes first.
        """
        if count < 1:
            raise UsageError(f"count={count}: expected 1 or more")
        lengths = np.einsum("ij,ij->i", self.factors_, self.factors_, dtype=np.float64)
        longest = np.sort(np.argsort(-lengths, kind="stable")[:AMONG])
        factors = self.factors_[longest].astype(np.float64).reshape(len(longest), -1, self.rank)  # by field
        own = np.zeros(len(longest), int) if self.fields_ is None else self.fields_[longest]
        facing = factors[:, own]  # (i, j, rank): the factor of i for the field of j
        products = np.einsum("ijk,jik->ij", facing, facing)
        if self.fields_ is not None:
            products[own[:, None] == own] = 0.0
        products = np.triu(products, 1)
        best = np.argsort(-np.abs(products), axis=None, kind="stable")[:count]
        pairs = np.column_stack(np.unravel_index(best, products.shape))
        found = [(int(longest[i]), int(longest[j]), float(products[i, j])) for i, j in pairs]
        return [pair for pair in found if pair[2]]

    def to_sklearn(self) -> Any:
        """Raise UsageError: scikit-learn has no factorization machine."""
        raise UsageError("scikit-learn has no factorization machine: predict with hogwild, or export npz")

    def to_file(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON header of the model file."""
        arrays, header = super().to_file()
        arrays |= {"factors": self.factors_} | ({} if self.fields_ is None else {"fields": self.fields_})
        return arrays, header | {"problem": "fm" if self.fields_ is None else "ffm"}

    @classmethod
    def from_file(cls, arrays: dict[str, np.ndarray], header: dict[str, Any], where: str | Path) -> FMModel:
        """Restore the model that :meth:`to_file` converted; raise InputError if anything does not fit."""
        rest = {name: array for name, array in arrays.items() if name not in ("factors", "fields")}
        linear = LinearModel.from_file(rest, header, where)
        with usable(where):
            return cls(**vars(linear), factors_=arrays["factors"], fields_=arrays.get("fields"))


AMONG = 512  # features whose pairs are compared
