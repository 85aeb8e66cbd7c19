"""What an evaluation sums over rows, so that the rows may lie on several machines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Sums(NamedTuple):
    """The evaluation of some rows, before anything is divided."""

    totals: np.ndarray  # (m,) float64
    rows: int
    scores: np.ndarray | None = None  # (n,) float32: what the rows are ranked by, for an area under a curve
    positive: np.ndarray | None = None  # (n,) bool


def in_all(parts: list[Sums]) -> Sums:
    """Return the evaluation of the rows of all parts together, in the order of the parts."""
    totals = np.sum([part.totals for part in parts], axis=0)
    scored = [(part.scores, part.positive) for part in parts if part.scores is not None and part.positive is not None]
    if len(scored) < len(parts):
        return Sums(totals, sum(part.rows for part in parts))
    scores, positive = (np.concatenate(arrays) for arrays in zip(*scored))
    return Sums(totals, sum(part.rows for part in parts), scores, positive)
