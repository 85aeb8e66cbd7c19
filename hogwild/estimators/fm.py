"""``HogwildFMClassifier`` and ``HogwildFMRegressor``: factorization machines as scikit-learn estimators.

They are a façade over ``hogwild.train``: the step and the penalty are found, and a tenth of the rows is held out to
choose the epoch. For tables and files call ``hogwild.train`` itself.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import check_is_fitted

from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError, UsageError
from hogwild.estimators.arrays import validated
from hogwild.estimators.options import HOSTS, documented, drawn_seed, parameter, workers_of
from hogwild.problems.fm.model import FMModel
from hogwild.serving.scorer import PROBABILITIES
from hogwild.training.run import train

if TYPE_CHECKING:
    from numpy.random import RandomState


@dataclass(eq=False, repr=False)
class FMEstimator(BaseEstimator):
    """What the two share: parameters, and a fit to targets."""

    _usual: ClassVar[str]  # loss

    rank: int = parameter(8, "Numbers in a factor.")
    _: KW_ONLY
    field_aware: bool = parameter(False, "Whether a feature has a factor for each field.")
    fields: Any = parameter(None, "Field of each column, for ``field_aware``; None: each is one of its own.")
    loss: str | None = parameter(None, "Name of a loss of ``hogwild.train``; None: ``log`` or ``squared-error``.")
    loss_param: float | None = parameter(None, "Parameter of the loss, such as the quantile; None: the loss's own.")
    l2: float | None = parameter(None, "L2 penalty of the weights; None: 0.15 or 0.3 over the number of rows.")
    l2_factors: float | None = parameter(None, "L2 penalty of the factors; None: the best on rows held out.")
    step: float | None = parameter(None, "First step size; None: the best on rows held out.")
    max_iter: int = parameter(20, "Number of passes over the rows at most.")
    n_jobs: int | None = parameter(None, "Workers, as in :class:`HogwildClassifier`.")
    random_state: int | RandomState | None = parameter(None, "Seed; with one worker a fit is reproducible.")
    host: str = parameter("threads", "Kind of workers.", choices=HOSTS)

    def _fit(self, X: Any, targets: np.ndarray, sample_weight: Any) -> None:
        if self.fields is not None and not self.field_aware:
            raise UsageError("fields need field_aware=True")
        weights = None if sample_weight is None else check_sample_weight(sample_weight, X, ensure_non_negative=True)
        fields = (np.arange(X.shape[1]) if self.fields is None else self.fields) if self.field_aware else None
        rows = Rows.from_scipy(X, targets, weights, fields=fields)
        config = TrainConfig(
            problem="ffm" if self.field_aware else "fm",
            loss=self.loss or self._usual,
            loss_param=self.loss_param,
            rank=self.rank,
            l2=self.l2,
            l2_factors=self.l2_factors,
            step=self.step,
            epochs=self.max_iter,
            seed=drawn_seed(self.random_state),
            workers=workers_of(self.n_jobs, len(rows)),
            host=self.host,
        )
        run = train(rows, config=config)
        self.model_: FMModel = run.finish()
        self.n_iter_ = int(run.history[-1]["epoch"])

    def _margins(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.model_.decision_function(validated(self, X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _has_probabilities(self: HogwildFMClassifier) -> bool:
    if (self.loss or self._usual) in PROBABILITIES:
        return True
    raise AttributeError(f"loss={self.loss!r} has no probabilities: take log")


@documented
@dataclass(eq=False, repr=False)
class HogwildFMClassifier(ClassifierMixin, FMEstimator):
    """Factorization machines for two classes, trained by lock-free parallel SGD: pairs of features count besides each.

    Attributes
    ----------
    model_ : FMModel
        The trained model; of labels it knows 0 and 1, the places in ``classes_``.
    classes_ : array of shape (2,)
    n_iter_, n_features_in_ : int

    See Also
    --------
    HogwildFMRegressor, HogwildClassifier : real targets; linear models, of more than two classes too.
    HogwildTableEncoder : makes features and fields of a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from hogwild import HogwildFMClassifier
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], (400, 4))
    >>> HogwildFMClassifier(4, random_state=0).fit(X, X[:, 0] * X[:, 1] > 0).score(X, X[:, 0] * X[:, 1] > 0)
    1.0
    """

    _usual = "log"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows (n, features), dense or sparse, and labels (n,).

        Raises
        ------
        UsageError, InputError
            If parameters or data cannot be used.
        TrainingError
            If training diverges.
        """
        X, y = validated(self, X, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) > 2:
            kind = type_of_target(y)
            raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(classes) < 2:
            raise InputError(f"y needs two classes; got one class, {classes[0]}")
        self._fit(X, codes, sample_weight)
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins of rows, (n,)."""
        return self._margins(X)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each row, (n,)."""
        margins = self._margins(X)
        return self.classes_[(margins > 0).astype(np.intp)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, (n, 2)."""
        margins = self._margins(X)
        return self.model_.probabilities(margins)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@documented
@dataclass(eq=False, repr=False)
class HogwildFMRegressor(RegressorMixin, FMEstimator):
    """Factorization machines for real targets, trained by lock-free parallel SGD.

    Attributes
    ----------
    model_ : FMModel
    n_iter_, n_features_in_ : int

    See Also
    --------
    HogwildFMClassifier, HogwildRegressor : labels; linear models.

    Examples
    --------
    >>> import numpy as np
    >>> from hogwild import HogwildFMRegressor
    >>> X = np.random.default_rng(0).choice([-1.0, 1.0], (400, 4))
    >>> HogwildFMRegressor(4, random_state=0).fit(X, X[:, 0] * X[:, 1]).score(X, X[:, 0] * X[:, 1]) > 0.9
    True
    """

    _usual = "squared-error"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model to rows (n, features), dense or sparse, and targets (n,); errors are the classifier's."""
        X, y = validated(self, X, y, y_numeric=True)
        self._fit(X, y, sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict the target of each row, (n,) float64."""
        margins = self._margins(X)
        return self.model_.decide(margins)
