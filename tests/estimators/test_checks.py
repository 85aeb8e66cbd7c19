"""scikit-learn's own checks of what an estimator has to be like, of every loss; with the two exceptions of its SGD."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hogwild import HogwildClassifier, HogwildRegressor
from hogwild.estimators.options import LOSSES

WHY = (
    "rows that count twice are visited twice as often, not moved by twice as much: SGD is not exact, as scikit-learn's"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": WHY,
    "check_sample_weight_equivalence_on_sparse_data": WHY,
}
OF_HUBER = "classes whose weights differ by ten million: SGDClassifier's huber fails it too"
REAL = HogwildRegressor.loss_functions
ESTIMATORS = [*map(HogwildClassifier, (*LOSSES, "softmax")), *map(HogwildRegressor, (*REAL, "poisson"))]


def expected(estimator: Any) -> dict[str, str]:
    huber = isinstance(estimator, HogwildClassifier) and estimator.loss == "huber"
    return EXPECTED | ({"check_class_weight_classifiers": OF_HUBER} if huber else {})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the checks allow few epochs
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
