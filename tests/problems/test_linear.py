"""What the linear problem makes of targets."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import HogwildWarning, InputError
from hogwild.problems.linear.problem import LinearProblem


def labels_of(targets, loss: str = "log") -> tuple[float, ...]:
    rows = Rows.from_scipy(np.ones((len(targets), 1)), targets)
    return LinearProblem.of(TrainConfig(loss=loss), rows, "serial").labels


def test_labels_that_float32_would_merge_are_refused() -> None:
    with pytest.raises(InputError, match=r"labels need to be below 2\^24"):
        labels_of([20230101, 20230102, 5])  # the first two are one number
    assert labels_of([2**24 - 1, 2**24 - 2]) == (2**24 - 2, 2**24 - 1)
    assert labels_of([2e30, 1e30], "squared-error") == ()


def test_real_targets_given_to_a_loss_for_labels_are_warned_of() -> None:
    with pytest.warns(HogwildWarning, match="100 different targets are taken for classes"):
        labels_of(np.arange(100) / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels_of(np.arange(100))
        labels_of(np.arange(60) / 3)
        labels_of(np.arange(100) / 3, "squared-error")
