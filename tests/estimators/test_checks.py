"""scikit-learn's own checks of what an estimator has to be like, with the two exceptions of its SGD.

The default losses pass all of them; losses with another form of model (probabilities, rates) those whose outcome
depends on what was trained, and the losses of numbers, which differ from the default by a slope only, the one that
measures it; for a classifier the squared error stands for all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from hogwild import HogwildClassifier, HogwildRegressor
from hogwild.estimators.options import LOSSES
from hogwild.methods import LABEL_LOSSES

WHY = (
    "rows that count twice are visited twice as often, not moved by twice as much: SGD is not exact, as scikit-learn's"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": WHY,
    "check_sample_weight_equivalence_on_sparse_data": WHY,
}
REAL = [name for name, loss in LOSSES.items() if loss not in LABEL_LOSSES]
MEASURED = {"check_classifiers_train", "check_regressors_train"}
OF_LOSSES = MEASURED | {
    "check_classifiers_classes",
    "check_class_weight_classifiers",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_decision_proba_consistency",
    "check_regressors_int",
    "check_methods_subset_invariance",
    "check_methods_sample_order_invariance",
    "check_fit2d_1sample",
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_non_transformer_estimators_n_iter",
    "check_estimator_sparse_matrix",
    "check_f_contiguous_array_estimator",
}
OF_ANOTHER_FORM = {"log_loss", "modified_huber", "softmax", "poisson", "quantile"}
OF_LABELS = ("hinge", "log_loss", "modified_huber", "squared_error", "softmax")
ESTIMATORS = [*map(HogwildClassifier, OF_LABELS), *map(HogwildRegressor, (*REAL, "poisson", "quantile"))]


EVERY = parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED)
CASES = [(case, *getattr(case, "values", case)) for case in EVERY.args[1]]  # a mark is on those expected to fail


def needed(estimator: Any, check: Any) -> bool:
    name, loss = check.func.__name__, estimator.loss
    return loss == type(estimator)().loss or name in (OF_LOSSES if loss in OF_ANOTHER_FORM else MEASURED)


def test_the_checks_of_every_loss_exist() -> None:
    assert OF_LOSSES <= {check.func.__name__ for _, _, check in CASES}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the checks allow few epochs
@pytest.mark.parametrize(EVERY.args[0], [case for case, *both in CASES if needed(*both)], **EVERY.kwargs)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
