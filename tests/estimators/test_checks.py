"""scikit-learn's own checks of what an estimator has to be like, with the two exceptions that its SGD has too."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hogwild import HogwildClassifier, HogwildRegressor

WHY = (
    "rows that count twice are visited twice as often, not moved by twice as much: SGD is not exact, as scikit-learn's"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": WHY,
    "check_sample_weight_equivalence_on_sparse_data": WHY,
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the checks allow few epochs
@parametrize_with_checks([HogwildClassifier(), HogwildRegressor()], expected_failed_checks=lambda estimator: EXPECTED)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
