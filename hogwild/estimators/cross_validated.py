"""``HogwildClassifierCV`` and ``HogwildRegressorCV``, which choose ``alpha`` by cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from hogwild.estimators.classifier import HogwildClassifier
from hogwild.estimators.options import documented, parameter
from hogwild.estimators.regressor import HogwildRegressor

ALPHA = "``auto``: the best of ``alphas``. A number is trained with as it is."
ALPHAS = "The values to choose among; None: sixteen from 1e-8 to 0.32."
CV = (
    "Number of folds, a splitter or an iterable of splits, as in scikit-learn; each row may be held out once. None: 5, "
    "or fewer where a class has fewer rows."
)
SCORING = "A name of scikit-learn's or a function of estimator, X and y; None: minus the mean loss."


class CrossValidated:
    """What both have beside their parameters."""

    alphas: Any
    cv: Any
    scoring: Any

    def _choosing(self) -> tuple[Any, Any, Any]:
        return self.alphas, self.cv, self.scoring

    @property
    def partial_fit(self) -> Any:
        raise AttributeError("folds are of all rows, and partial_fit has a batch: take the estimator without CV")


@documented
@dataclass(eq=False, repr=False)
class HogwildClassifierCV(CrossValidated, HogwildClassifier):
    """Linear classifiers whose ``alpha`` is chosen by cross-validation, with all folds and values side by side.

    The model is then fitted to all rows with the best. Parameters are those of :class:`HogwildClassifier`, and:

    Attributes
    ----------
    alpha_ : float
        The value that was chosen.
    alphas_ : array of shape (n_alphas,)
    path_ : array of shape (n_alphas, n_folds)
        The score of each value on each fold.
    best_score_ : float
        The mean score of ``alpha_``: of the models that left each fold out, not of this one.
    coef_, intercept_, classes_, n_iter_ and others
        As in :class:`HogwildClassifier`.
    """

    # fmt: off
    _: KW_ONLY
    alpha: float | str = parameter("auto", ALPHA, like="l2")
    alphas: Any = parameter(None, ALPHAS)
    cv: Any = parameter(None, CV)
    scoring: Any = parameter(None, SCORING)
    # fmt: on


@documented
@dataclass(eq=False, repr=False)
class HogwildRegressorCV(CrossValidated, HogwildRegressor):
    """Linear regression whose ``alpha`` is chosen by cross-validation; see :class:`HogwildClassifierCV`.

    Attributes
    ----------
    alpha_, alphas_, path_, best_score_
        As in :class:`HogwildClassifierCV`.
    coef_, intercept_, n_iter_ and others
        As in :class:`HogwildRegressor`.
    """

    # fmt: off
    _: KW_ONLY
    alpha: float | str = parameter("auto", ALPHA, like="l2")
    alphas: Any = parameter(None, ALPHAS)
    cv: Any = parameter(None, CV)
    scoring: Any = parameter(None, SCORING)
    # fmt: on
