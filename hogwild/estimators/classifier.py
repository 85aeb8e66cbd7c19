"""``HogwildClassifier``: linear classifiers trained on all cores without locks, in place of ``SGDClassifier``."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from hogwild.data.rows.container import CHUNK_NONZEROS
from hogwild.data.rows.labels import LabelSets, has_several, of_indicator
from hogwild.errors import InputError, UsageError
from hogwild.estimators.arrays import as_targets, rows_of, validated
from hogwild.estimators.linear import LinearEstimator
from hogwild.estimators.options import FitConfig, config_of, documented, loss_of, parameter
from hogwild.problems.linear.model import LinearModel, indicator, stacked
from hogwild.problems.linear.objective import right_rows
from hogwild.problems.linear.rows import check_classes
from hogwild.serving.scorer import PROBABILITIES, likeliest, probabilities


def _has_probabilities(self: HogwildClassifier) -> bool:
    loss = loss_of(self.loss, self._kind)
    if loss in PROBABILITIES:
        return True
    others = "take 'log_loss', 'modified_huber' or 'softmax'"
    raise AttributeError(f"probability estimates are not available for loss={self.loss!r}: {others}")


@documented
@dataclass(eq=False, repr=False)
class HogwildClassifier(ClassifierMixin, LinearEstimator):
    """Linear classifiers (SVM, logistic regression, ...) trained by lock-free parallel SGD.

    Parameters have the names and meanings of :class:`sklearn.linear_model.SGDClassifier`; differences are marked (†).

    Attributes
    ----------
    coef_ : array, shape (1, features) or (classes, features)
        Float64 if :meth:`fit` was given float64 (the values are those of float32, †), else float32.
        :meth:`partial_fit` updates it in place, in float32.
    intercept_ : array, shape (1,) or (classes,)
    classes_ : array of shape (classes,)
        Of several labels a row the columns of y, from 0.
    multilabel_ : bool
        Whether a row may have several labels, or none.
    n_iter_ : int
        Number of epochs done.
    t_ : float
        Number of rows visited, plus one.
    loss_curve_ : list of float
        The objective after each epoch of ``fit``; on tiny data several epochs count as one.
    validation_scores_ : list of float or None
        The accuracy after each epoch, with ``early_stopping``.
    n_features_in_, feature_names_in_ : int, array of str

    See Also
    --------
    HogwildRegressor, HogwildFMClassifier : real targets; pairs of features.
    HogwildTableEncoder : makes features of a frame.
    train : without scikit-learn's conventions, of files and stores too.

    Examples
    --------
    >>> from hogwild import HogwildClassifier
    >>> HogwildClassifier(random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict([[-1.0], [4.0]])
    array([0, 1])
    """

    _kind = "classifier"

    loss: str = parameter(
        "hinge",
        "``hinge``, ``log_loss``, ``modified_huber``, ``squared_hinge``, ``perceptron``, the regression losses "
        "``squared_error``, ``huber``, ``epsilon_insensitive``, ``squared_epsilon_insensitive``; and ``softmax``, the "
        "cross-entropy of all classes at once (†). More than two classes are trained one-versus-rest, in one pass (†).",
    )
    _: KW_ONLY
    power_t: float = parameter(0.5, "Exponent of the schedule ``invscaling``.")
    class_weight: dict[Any, float] | str | None = parameter(
        None,
        "Weight of each class, applied to its rows (†: with more than two classes, in all the binary problems); or "
        "``balanced``.",
    )

    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to the training data.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, features)
            CSR of float32 with int32 indices is used in place.
        y : array of shape (n,), or array or sparse matrix of shape (n, labels)
            A matrix of zeros and ones tells which labels each row has, as from scikit-learn's
            ``MultiLabelBinarizer``; each label is then a binary problem, all are trained in one pass, and there are
            neither ``softmax`` nor ``class_weight``.
        coef_init, intercept_init : arrays, optional
            Weights to start from.
        sample_weight : array of shape (n,), optional
            Factors of the rows' losses.

        Returns
        -------
        self

        Raises
        ------
        UsageError, InputError
            If parameters or data cannot be used.
        TrainingError
            If training diverges with steps that the caller chose.
        """
        config = config_of(self)
        X, targets, weights, classes, sets = self._coded(config, X, y, sample_weight)
        judge = partial(_accuracy, sets)
        self._fit(config, X, targets, weights, len(classes), judge, coef_init, intercept_init, sets=sets)
        # set with coef_: a fit that fails leaves the last one's model
        self.classes_, self.multilabel_ = classes, sets is not None
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Pass once over a batch of rows, continuing from what was learnt before.

        Parameters
        ----------
        X, y : as in :meth:`fit`
        classes : array, optional
            All classes that will occur; needed in the first call, if :meth:`fit` was not called before. Not for several
            labels a row, where the columns of y are the classes.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        UsageError, InputError, TrainingError
        """
        config = config_of(self, batch=True)
        if isinstance(self.class_weight, str):
            raise UsageError(_NO_BALANCE)
        fresh, several = not hasattr(self, "classes_"), has_several(y)
        if not fresh and several != self.multilabel_:
            matrix = "y is a matrix of labels; the batches before had one class a row"
            raise InputError(matrix if several else "y needs a column for each label, as in the batches before")
        if classes is None:
            if fresh and not several:
                raise UsageError("classes must be passed on the first call to partial_fit")
        elif not several:
            classes = _unique("classes", np.asarray(classes))
            if classes.dtype.kind == "f" and not np.isfinite(classes).all():
                raise InputError(f"classes need one type and no NaN; got {classes.tolist()}")
            if len(classes) < 2:
                raise InputError(f"classes={classes.tolist()}: expected two or more")
            if not fresh and not np.array_equal(classes, self.classes_):
                raise UsageError(f"classes={classes.tolist()} differ from those before: {self.classes_.tolist()}")
        known = classes if fresh else self.classes_
        X, targets, weights, labels, sets = self._coded(config, X, y, sample_weight, fresh, known, batch=True)
        if several and classes is not None and not np.array_equal(classes, labels):
            raise UsageError(f"classes={np.asarray(classes).tolist()}: y has columns 0 to {len(labels) - 1}")
        if several and not fresh and len(labels) != len(self.classes_):
            raise InputError(f"y has {len(labels)} columns; the model has {len(self.classes_)} labels")
        self._learn(config, rows_of(X, targets, weights, sets), len(labels))
        self.classes_, self.multilabel_ = labels, several
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins ``x . w + b``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, features)

        Returns
        -------
        array of shape (n,), or (n, classes) for more than two classes, or several labels a row
        """
        return self._margins(X)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each row, (n,); of several labels a row, zeros and ones (n, labels), int64 CSR."""
        if self.multilabel_:
            X, batch = validated(self, X, reset=False), max(1, CHUNK_NONZEROS // len(self.classes_))
            blocks = (X[first : first + batch] for first in range(0, X.shape[0], batch))
            return stacked([indicator(self._product(block)) for block in blocks])
        margins = self.decision_function(X)  # before classes_, which a model that is not fitted has not
        return self.classes_[likeliest(margins)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, (n, classes), for losses that have them, computed as in scikit-learn.

        Of several labels a row each probability is by itself.
        """
        return probabilities(loss_of(self.loss, self._kind), self.decision_function(X), self.multilabel_)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def to_model(self) -> LinearModel:
        """Convert to the model of ``hogwild.load`` and the command line; ``to_model().save(path)`` writes its file.

        Raises
        ------
        InputError
            If the classes are not numbers, or are too large for float64.
        """
        if self.classes_.dtype.kind not in "biuf":
            needs = f"a model file needs classes that are numbers; got {self.classes_[:1].tolist()}"
            raise InputError(f"{needs}: fit on codes of them (LabelEncoder), or pickle the estimator")
        if len(set(self.classes_.astype(np.float64).tolist())) < len(self.classes_):
            raise InputError(f"classes {self.classes_[:3].tolist()}: some are equal in float64, which a model file has")
        return self._model([float(label) for label in self.classes_])

    def _coded(
        self,
        config: FitConfig,
        X: Any,
        y: Any,
        sample_weight: Any,
        reset: bool = True,
        classes: Any = None,
        batch: bool = False,
    ) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray, LabelSets | None]:
        """X; kernel targets, weights and classes, which a ``batch`` takes from ``classes``; sets of several labels."""
        if has_several(y):
            for name, wrong in (("loss='softmax'", config.loss == "softmax"), ("class_weight", self.class_weight)):
                if wrong:
                    raise InputError(f"{name} needs one label a row; y is a matrix (n, labels)")
            X, y = validated(self, X, y, reset=reset, multi_output=True)
            targets, sets = of_indicator(y)
            return X, targets, self._weights(sample_weight, X, None, batch), np.arange(len(sets.names)), sets
        X, y = validated(self, X, y, reset=reset)
        _check_labels(y)
        if batch:
            codes = _codes(y, classes)
        else:
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) < 2:
                raise InputError(
                    f"The number of classes has to be greater than one; got {len(classes)} class: {classes.tolist()}"
                )
            if self.warm_start and hasattr(self, "coef_") and not np.array_equal(classes, self.classes_):
                raise InputError(f"warm_start: y has classes {classes.tolist()}, the model {self.classes_.tolist()}")
        factors = None
        if self.class_weight is not None:
            factors = compute_class_weight(self.class_weight, classes=classes, y=y)[codes]
        weights = self._weights(sample_weight, X, factors, batch)
        if weights is not None and not batch:
            check_classes(classes, np.bincount(codes, weights), stacklevel=4)  # the line that calls fit
        return X, as_targets(codes, len(classes)), weights, classes, None


# Scikit-learn's own message, which says how to obtain the weights.
_NO_BALANCE = (
    "class_weight 'balanced' is not supported for partial_fit. In order to use 'balanced' weights, use "
    "compute_class_weight('balanced', classes=classes, y=y). In place of y you can use a large enough sample of the "
    "full training set target to properly estimate the class frequency distributions. Pass the resulting weights as "
    "the class_weight parameter."
)


def _check_labels(y: np.ndarray) -> None:
    """Refuse real targets; whole numbers and strings are accepted here, since scikit-learn's own check takes longer."""
    whole = y.dtype.kind in "biu" or (y.dtype.kind == "f" and y.ndim == 1 and not (y % 1).any())
    if not whole:
        if y.dtype.kind == "O":
            _unique("y", y)
        check_classification_targets(y)


def _unique(name: str, labels: np.ndarray) -> np.ndarray:
    try:
        return np.unique(labels)
    except TypeError:  # text among numbers
        raise InputError(f"{name} needs labels of one type; got {labels.ravel()[:3].tolist()}") from None


def _codes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Position of each label among the classes, (n,)."""
    try:
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    except TypeError:  # text among numbers
        raise InputError(f"y: labels such as {y[0]!r} cannot be held against the classes {classes.tolist()}") from None
    wrong = classes[codes] != y
    if wrong.any():
        raise InputError(f"y: label {y[wrong].tolist()[0]!r} is not among the classes {classes.tolist()}")
    return codes


def _accuracy(sets: LabelSets | None, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
    """The share of rows that are predicted right, of several labels each in all of these."""
    signs = targets if sets is None else sets.signs(targets)
    return float(np.average(right_rows(margins, signs), weights=weights))
