"""``HogwildRegressor``: linear regression trained on all cores without locks, in place of ``SGDRegressor``.

``HogwildRegressorCV`` chooses its ``alpha`` by cross-validation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from hogwild.estimators.arrays import Start, centred, real_targets, rows_of, start_of
from hogwild.estimators.choosing import CrossValidated
from hogwild.estimators.linear import LinearEstimator, or_as_before
from hogwild.estimators.options import Options, documented, loss_functions, loss_of, read_options
from hogwild.problems.linear.model import LinearModel


@documented
class HogwildRegressor(RegressorMixin, LinearEstimator):
    """Linear regression with sparse or dense features, trained by lock-free parallel SGD.

    Parameters have the names and meanings of :class:`sklearn.linear_model.SGDRegressor`; differences are marked (†).

    Attributes
    ----------
    coef_ : array, shape (features,)
    intercept_ : array, shape (1,)
        The first fit starts from the mean of the targets.
    n_iter_, t_, loss_curve_, n_features_in_, feature_names_in_
        As in the classifier.
    validation_scores_ : list of float or None
        R^2 on the held-out rows, with ``early_stopping``.

    See Also
    --------
    HogwildRegressorCV : chooses alpha by cross-validation.

    Examples
    --------
    >>> import numpy as np
    >>> from hogwild import HogwildRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> HogwildRegressor(random_state=0).fit(X, X @ [1.0, 2.0, 3.0] + 4.0).coef_.round(1).tolist()
    [1.0, 2.0, 3.0]
    """

    _kind = "regressor"
    loss_functions: ClassVar = loss_functions("regressor")

    @or_as_before
    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None, sample_weight: Any = None) -> Self:
        """Fit; parameters and errors are those of :meth:`HogwildClassifier.fit`, with real targets ``y`` (n,)."""
        options = read_options(self)
        X, y = self._validated(X, y, reset=True, y_numeric=True)
        level = None
        if options.intercept and options.loss != "poisson":
            y, level = centred(np.asarray(y, np.float64))
        level = 0.0 if level is None else float(level)
        targets = real_targets(y, options.loss)
        weights = self._weights(sample_weight, X, None)
        held = self._held(targets, weights)
        start = self._from(coef_init, intercept_init, 0, X.shape[1])
        if start is None:
            there = slice(None) if held is None else held[0]
            start = _at_mean(options, X, targets[there], None if weights is None else weights[there], level)
        self._fit_rows(options, X, targets, weights, 0, start, held, self._r2, level=level)
        return self

    @or_as_before
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Pass once over a batch of rows, continuing from what was learnt before."""
        options = read_options(self, batch=True)
        X, y = self._validated(X, y, reset=not hasattr(self, "coef_"), y_numeric=True)
        targets = real_targets(y, options.loss)
        weights = self._weights(sample_weight, X, None)
        self._learn(options, rows_of(X, targets, weights), 0, _at_mean(options, X, targets, weights))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """Predict the value of each row, (n,); for ``poisson`` the expected count."""
        return self._mean(self._margins(X))

    def to_model(self) -> LinearModel:
        """Convert to the model of ``hogwild.load`` and the command line; ``to_model().save(path)`` writes its file."""
        return self._model([])

    def _mean(self, margins: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(margins) if loss_of(self.loss, self._kind) == "poisson" else margins

    def _r2(self, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
        means = self._mean(margins)
        return r2_score(targets, means, sample_weight=weights) if np.isfinite(means).all() else -math.inf


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

    See Also
    --------
    HogwildRegressor : one value of alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from hogwild import HogwildRegressorCV
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = HogwildRegressorCV(alphas=[1e-6, 1.0], random_state=0).fit(X, X[:, 0])
    >>> float(model.alpha_)
    1e-06
    """


def _at_mean(
    options: Options, X: Any, targets: np.ndarray, weights: np.ndarray | None, level: float = 0.0
) -> Start | None:
    """Start with an intercept that predicts the mean of the targets, so that learning it costs no epochs."""
    if not options.intercept:
        return None
    mean = float(np.average(targets.astype(np.float64), weights=weights))
    if options.loss == "poisson":
        mean = math.log(max(mean, 1e-3))
    return start_of(None, mean + level, 0, X.shape[1])
