"""``HogwildRegressor``: linear regression trained on all cores without locks, in place of ``SGDRegressor``."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from hogwild.estimators.linear import LinearEstimator, or_as_before
from hogwild.estimators.options import loss_functions, loss_of, read_options
from hogwild.estimators.posing import real_targets, rows_of
from hogwild.model import LinearModel
from hogwild.problems.linear import LinearProblem, aligned


class HogwildRegressor(RegressorMixin, LinearEstimator):
    """Linear regression with sparse or dense features, trained by lock-free parallel SGD.

    Parameters have the names and meanings of :class:`sklearn.linear_model.SGDRegressor`, and where they are those of
    :class:`HogwildClassifier` they are told there; n_jobs and host are new.

    Parameters
    ----------
    loss : str
        ``squared_error`` (default), ``huber``, ``epsilon_insensitive``, ``squared_epsilon_insensitive``; and
        ``poisson`` for counts, whose prediction is the exponential of the margin.

    Attributes
    ----------
    coef_ : array, shape (features,)
    intercept_ : array, shape (1,)
        The first fit starts at the mean of the targets.
    n_iter_, t_, loss_curve_, n_features_in_, feature_names_in_
        As of the classifier.
    validation_scores_ : list of float or None
        R^2 on the rows held out, with ``early_stopping``.
    """

    _kind = "regressor"
    loss_functions: ClassVar = loss_functions("regressor")

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 1e-3,
        shuffle: bool = True,
        verbose: int = 0,
        epsilon: float = 0.1,
        n_jobs: int | None = None,
        random_state: Any = None,
        learning_rate: str = "auto",
        eta0: float = 0.01,
        power_t: float = 0.25,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        warm_start: bool = False,
        average: bool | int = False,
        host: str = "threads",
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.verbose = verbose
        self.epsilon = epsilon
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.average = average
        self.host = host

    @or_as_before
    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None, sample_weight: Any = None) -> Self:
        """Train; parameters and errors as of :meth:`HogwildClassifier.fit`, with real targets ``y`` (n,)."""
        options = read_options(self)
        X, y = self._validated(X, y, reset=True, y_numeric=True)
        targets = real_targets(y, options.loss)
        weights = self._weights(sample_weight, X, None)
        held = self._held(len(targets)) if self.early_stopping else None
        start = self._from(coef_init, intercept_init)
        if start is None:
            there = slice(None) if held is None else held[0]
            start = _at_mean(targets[there], None if weights is None else weights[there], options.loss)
        self._fit_rows(options, X, targets, weights, 0, start, held, self._r2)
        return self

    @or_as_before
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Pass once over a batch of rows, going on from what was learnt before."""
        options = read_options(self, batch=True)
        X, y = self._validated(X, y, reset=not hasattr(self, "coef_"), y_numeric=True)
        targets = real_targets(y, options.loss)
        weights = self._weights(sample_weight, X, None)
        self._learn(options, rows_of(X, targets, weights), 0, _at_mean(targets, weights, options.loss))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """The predicted value of each row, (n,); of ``poisson`` the expected count."""
        return self._mean(self._margins(X))

    def to_model(self) -> LinearModel:
        """The model that ``hogwild.load`` and the command line know; ``to_model().save(path)`` writes its file."""
        return self._model([])

    def _mean(self, margins: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(margins) if loss_of(self.loss, self._kind) == "poisson" else margins

    def _r2(self, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
        found = self._mean(margins)
        return r2_score(targets, found, sample_weight=weights) if np.isfinite(found).all() else -math.inf

    def _held(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.model_selection import ShuffleSplit

        split = ShuffleSplit(test_size=self.validation_fraction, random_state=self.random_state)
        rest, held = next(split.split(np.zeros((n, 1))))
        return np.sort(rest), np.sort(held)


def _at_mean(targets: np.ndarray, weights: np.ndarray | None, loss: str) -> Any:
    """Start with an intercept that predicts the mean of the targets, so that their scale and offset cost no epochs."""
    mean = float(np.average(targets.astype(np.float64), weights=weights))
    if loss == "poisson":
        mean = math.log(max(mean, 1e-3))

    def start(problem: LinearProblem) -> np.ndarray | None:
        if not problem.intercept:
            return None
        flat = aligned(problem.size)
        problem.parameters(flat).intercept[0] = mean
        return flat

    return start
