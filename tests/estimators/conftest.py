"""Data of several tests of estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hogwild


@pytest.fixture(scope="session")
def text() -> tuple[Any, np.ndarray]:
    X, y = hogwild.open_data("synthetic:rcv1?rows=6000&seed=5").to_scipy()
    return X, np.array(y)
