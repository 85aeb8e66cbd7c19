"""The optimum of a comparison: what is said of it beside what the finder is tested for."""

from __future__ import annotations

import numpy as np
import pytest

from hogwild.compare.run.problems import find_optimum
from hogwild.compare.run.runner import Runner
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from tests.runs import toy


def test_it_is_of_weighted_rows_and_of_all_columns() -> None:
    rows = toy(200, 24, 4, classes=0)
    weights = np.random.default_rng(5).random(len(rows)) * 3
    wide = Rows((rows.begin, rows.end), rows.indices * 1000 + 7, rows.values, rows.targets, 1_000_000, weights)
    base = TrainConfig(loss="squared-error", l2=1e-3)
    facts, (coef, intercept) = find_optimum(Runner(wide, None, base, "wide", 60.0).case)
    share = wide.weights.astype(float) / wide.weights.astype(float).sum()
    X, y = rows.to_scipy()
    margins = X.astype(float) @ coef[np.arange(24) * 1000 + 7] + intercept
    value = share @ (margins - y) ** 2 / 2 + 1e-3 / 2 * coef @ coef
    assert facts["objective"] == pytest.approx(value, abs=1e-9)
    assert facts["start_objective"] == pytest.approx(share @ y.astype(float) ** 2 / 2)
    assert facts["optimum_gap"] < 1e-9
