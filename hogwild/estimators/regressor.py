"""``HogwildRegressor``: linear regression trained on all cores without locks, in place of ``SGDRegressor``."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from hogwild.estimators.arrays import Start, centred, real_targets, rows_of, start_of, validated
from hogwild.estimators.linear import LinearEstimator
from hogwild.estimators.options import FitConfig, config_of, documented, loss_of, parameter
from hogwild.methods import COUNT_LOSSES
from hogwild.problems.linear.model import LinearModel
from hogwild.serving.scorer import expected_values


@documented
@dataclass(eq=False, repr=False)
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
    HogwildClassifier, HogwildFMRegressor : labels; pairs of features.

    Examples
    --------
    >>> import numpy as np
    >>> from hogwild import HogwildRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> HogwildRegressor(random_state=0).fit(X, X @ [1.0, 2.0, 3.0] + 4.0).coef_.round(1).tolist()
    [1.0, 2.0, 3.0]
    """

    _kind = "regressor"

    _: KW_ONLY
    loss_param: float | None = parameter(
        None, "The quantile (default 0.5), or the power of ``tweedie`` (default 1.5) (†)."
    )

    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None, sample_weight: Any = None) -> Self:
        """Fit; parameters and errors are those of :meth:`HogwildClassifier.fit`, with real targets ``y`` (n,)."""
        config = config_of(self)
        X, y = validated(self, X, y, reset=True, y_numeric=True)
        level = 0.0
        if config.intercept and config.loss not in COUNT_LOSSES:
            y, level = centred(np.asarray(y, np.float64))
        targets = real_targets(y, config.loss)
        weights = self._weights(sample_weight, X, None)
        self._fit(config, X, targets, weights, 0, self._r2, coef_init, intercept_init, float(level))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Pass once over a batch of rows, continuing from what was learnt before."""
        config = config_of(self, batch=True)
        X, y = validated(self, X, y, reset=not hasattr(self, "coef_"), y_numeric=True)
        targets = real_targets(y, config.loss)
        weights = self._weights(sample_weight, X, None)
        start = self._usual_start(config, X.shape[1], targets, weights)
        self._learn(config, rows_of(X, targets, weights), 0, start)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in COUNT_LOSSES
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """Predict the value of each row, (n,); of losses for counts and amounts, the expected value."""
        return self._mean(self._margins(X))

    def to_model(self) -> LinearModel:
        """Convert to the model of ``hogwild.load`` and the command line; ``to_model().save(path)`` writes its file."""
        return self._model([])

    def _mean(self, margins: np.ndarray) -> np.ndarray:
        return expected_values(loss_of(self.loss, self._kind), margins)

    def _r2(self, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
        means = self._mean(margins)
        return r2_score(targets, means, sample_weight=weights) if np.isfinite(means).all() else -math.inf

    def _usual_start(
        self, config: FitConfig, width: int, targets: np.ndarray, weights: np.ndarray | None
    ) -> Start | None:
        """An intercept that predicts the mean of the targets, so that learning it costs no epochs."""
        if not config.intercept:
            return None
        mean = float(np.average(targets.astype(np.float64), weights=weights))
        if config.loss in COUNT_LOSSES:
            mean = math.log(max(mean, 1e-3))
        return start_of(None, mean, 1, width)
