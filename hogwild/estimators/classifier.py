"""``HogwildClassifier``: linear classifiers trained on all cores without locks, in place of ``SGDClassifier``."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from hogwild.errors import InputError, UsageError
from hogwild.estimators.linear import LinearEstimator, or_as_before
from hogwild.estimators.options import loss_functions, loss_of, read_options
from hogwild.estimators.posing import as_targets, rows_of
from hogwild.model import PROBABILITIES, LinearModel, probabilities


def _has_probabilities(self: HogwildClassifier) -> bool:
    loss = loss_of(self.loss, self._kind)
    if loss in PROBABILITIES:
        return True
    others = "take 'log_loss', 'modified_huber' or 'softmax'"
    raise AttributeError(f"probability estimates are not available for loss={self.loss!r}: {others}")


class HogwildClassifier(ClassifierMixin, LinearEstimator):
    """Linear classifiers (SVM, logistic regression, ...) trained by lock-free parallel SGD.

    Parameters have the names and meanings of :class:`sklearn.linear_model.SGDClassifier`; what differs is marked (*).

    Parameters
    ----------
    loss : str
        ``hinge`` (default), ``log_loss``, ``modified_huber``, ``squared_hinge``, ``perceptron``, the regression losses
        ``squared_error``, ``huber``, ``epsilon_insensitive``, ``squared_epsilon_insensitive``; and ``softmax``, the
        cross-entropy of all classes at once (*). More than two classes are trained one-versus-rest, in one pass (*).
    penalty : {"l2", "l1", "elasticnet", None}
    alpha : float
        Strength of the penalty: mean loss + alpha (l1_ratio ||w||_1 + (1 - l1_ratio)/2 ||w||^2).
    l1_ratio : float
        Of ``elasticnet``.
    fit_intercept : bool
    max_iter : int
        Most passes over the data.
    tol : float or None
        Stop when the objective on the training rows (*, with the penalty, on a sample where they are over 1,000, or
        300 with several classes), or with ``early_stopping`` the accuracy, has not become better by ``tol`` for
        ``n_iter_no_change`` epochs. ``tol`` counts for each binary problem and unit of weight, and relative to an
        objective above one (*). Where an epoch has fewer than 500 rows, several are taken for one (*).
    shuffle : bool
        New order of the rows in every epoch.
    verbose : int
        1 shows a progress bar, in a terminal and in notebooks.
    epsilon : float
        Of ``huber`` and the epsilon-insensitive losses.
    n_jobs : int or None
        Workers that train at once on the same weights (*, also with two classes), or, of nine classes and more a
        worker one-versus-rest in threads, each on some of them. None: 1, unless
        ``joblib.parallel_config`` says otherwise; -1: all physical cores. 1 within other parallel work, such as a grid
        search with ``n_jobs``, and where an epoch is too short to share.
    random_state : int, RandomState or None
        With one worker, or where workers share out classes, a seed gives the same weights to the last bit. Else
        workers race, and two fits differ in the last digits of the objective.
    learning_rate : {"auto", "optimal", "constant", "invscaling", "adaptive", "pa1", "pa2"}
        ``auto`` (*, the default) tries steps on a sample of the rows; ``eta0`` and ``power_t`` are of no meaning then.
        ``pa1`` and ``pa2`` are the steps of passive-aggressive learning (Crammer et al. 2006), with ``eta0`` as their C
        and loss ``hinge``.
    eta0, power_t : float
        Of the other schedules.
    early_stopping : bool
        Hold out ``validation_fraction`` of the rows, stratified, and stop by the accuracy on them.
    validation_fraction : float
    n_iter_no_change : int
        With ``auto`` fewer, as soon as the rest of them, on smaller and smaller steps, would not reach ``tol`` (*).
    class_weight : dict, "balanced" or None
        Weight of each class; it is a weight of its rows (*: with more than two classes, in all the binary problems).
    warm_start : bool
        ``fit`` goes on from the last solution.
    average : bool or int
        ``coef_`` is a weighted mean of the weights at the ends of the last epochs (*), from ``average`` rows on.
    host : {"threads", "processes"}
        What workers are (*); threads need no ``if __name__ == "__main__"``.

    Attributes
    ----------
    coef_ : array, shape (1, features) or (classes, features)
        Float64 where :meth:`fit` was given float64, exactly the float32 that weights are counted in (*); float32 else,
        and after :meth:`partial_fit`, which changes it in place.
    intercept_ : array, shape (1,) or (classes,)
    classes_ : array of shape (classes,)
    n_iter_ : int
        Epochs done.
    t_ : float
        Rows visited, plus one.
    loss_curve_ : list of float
        The objective after each epoch of ``fit``, or each time that several are taken for one.
    validation_scores_ : list of float or None
        The accuracy after each epoch, with ``early_stopping``.
    n_features_in_, feature_names_in_ : int, array of str

    Examples
    --------
    >>> from hogwild import HogwildClassifier
    >>> HogwildClassifier(random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict([[-1.0], [4.0]])
    array([0, 1])
    """

    _kind = "classifier"
    loss_functions: ClassVar = loss_functions("classifier")
    classes_: np.ndarray

    def __init__(
        self,
        loss: str = "hinge",
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
        power_t: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Any = None,
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
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.average = average
        self.host = host

    @or_as_before
    def fit(self, X: Any, y: Any, coef_init: Any = None, intercept_init: Any = None, sample_weight: Any = None) -> Self:
        """Train.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, features)
            CSR of float32 with int32 indices is used where it lies.
        y : array of shape (n,)
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
            For parameters and data that cannot be used.
        TrainingError
            If it diverges with steps that were not ours to choose.
        """
        options = read_options(self)
        X, y = self._validated(X, y, reset=True)
        _check_labels(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"The number of classes has to be greater than one; got {len(classes)} class: {classes.tolist()}"
            )
        if self.warm_start and hasattr(self, "coef_") and not np.array_equal(classes, self.classes_):
            raise InputError(f"warm_start: y has classes {classes.tolist()}, the model {self.classes_.tolist()}")
        weights = self._weights(sample_weight, X, self._class_weights(classes, codes, y))
        held = self._held(codes) if self.early_stopping else None
        start = self._from(coef_init, intercept_init) or _zeros
        targets = as_targets(codes, len(classes))
        self._fit_rows(options, X, targets, weights, len(classes), start, held, _accuracy)
        self.classes_ = classes  # with coef_: a fit that fails leaves the model of the last one
        return self

    @or_as_before
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Pass once over a batch of rows, going on from what was learnt before.

        Parameters
        ----------
        X, y : as in :meth:`fit`
        classes : array, optional
            All classes there will be; needed in the first call, if :meth:`fit` was not called before.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        UsageError, InputError, TrainingError
        """
        options = read_options(self, batch=True)
        if isinstance(self.class_weight, str):
            raise UsageError(_NO_BALANCE)
        fresh = not hasattr(self, "classes_")
        if fresh and classes is None:
            raise UsageError("classes must be passed on the first call to partial_fit")
        if classes is not None:
            try:
                classes = np.unique(classes)
                missing = classes.dtype.kind == "f" and not np.isfinite(classes).all()
            except TypeError:  # text among numbers
                missing = True
            if missing:
                raise InputError(f"classes={classes!r}: labels of one kind, and none missing, are expected")
            if len(classes) < 2:
                raise InputError(f"classes={classes.tolist()}: expected two or more")
            if not fresh and not np.array_equal(classes, self.classes_):
                raise UsageError(f"classes={classes.tolist()} differ from those before: {self.classes_.tolist()}")
        X, y = self._validated(X, y, reset=fresh)
        _check_labels(y)
        known = classes if fresh else self.classes_
        codes = _codes(y, known)
        weights = self._weights(sample_weight, X, self._class_weights(known, codes, y), batch=True)
        rows = rows_of(X, as_targets(codes, len(known)), weights)
        self._learn(options, rows, len(known), _zeros)
        self.classes_ = known
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins ``x . w + b``.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, features)

        Returns
        -------
        array of shape (n,), or (n, classes) for more than two classes
        """
        return self._margins(X)

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row, (n,)."""
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, (n, classes), for losses that have them; as scikit-learn computes them."""
        return probabilities(loss_of(self.loss, self._kind), self.decision_function(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def to_model(self) -> LinearModel:
        """The model that ``hogwild.load`` and the command line know; ``to_model().save(path)`` writes its file.

        Raises
        ------
        InputError
            If the classes are no numbers, or too large for float64.
        """
        if self.classes_.dtype.kind not in "biuf":
            raise InputError(f"classes {self.classes_[:3].tolist()}: a model file holds numbers only")
        if len(set(self.classes_.astype(np.float64).tolist())) < len(self.classes_):
            raise InputError(f"classes {self.classes_[:3].tolist()}: in a model file's float64 some of them are one")
        return self._model([float(label) for label in self.classes_])

    def _class_weights(self, classes: np.ndarray, codes: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        if self.class_weight is None:
            return None
        return compute_class_weight(self.class_weight, classes=classes, y=y)[codes]

    def _held(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of rows to train on and to validate on, both ascending."""
        from sklearn.model_selection import StratifiedShuffleSplit

        split = StratifiedShuffleSplit(test_size=self.validation_fraction, random_state=self.random_state)
        rest, held = next(split.split(np.zeros((len(codes), 1)), codes))
        return np.sort(rest), np.sort(held)


# Scikit-learn's own sentence: it says how the weights are had.
_NO_BALANCE = (
    "class_weight 'balanced' is not supported for partial_fit. In order to use 'balanced' weights, use "
    "compute_class_weight('balanced', classes=classes, y=y). In place of y you can use a large enough sample of the "
    "full training set target to properly estimate the class frequency distributions. Pass the resulting weights as "
    "the class_weight parameter."
)


def _check_labels(y: np.ndarray) -> None:
    """Refuse real targets; whole numbers and strings are labels, which scikit-learn's own check takes longer to see."""
    whole = y.dtype.kind in "biu" or (y.dtype.kind == "f" and y.ndim == 1 and not (y % 1).any())
    if not whole:
        if y.dtype.kind == "O":
            _check_kinds(y)
        check_classification_targets(y)


def _check_kinds(y: np.ndarray) -> None:
    try:
        np.unique(y)
    except TypeError:  # text among numbers
        raise InputError(f"y: labels of one kind are expected, and {y[0]!r} is not of that of others") from None


def _codes(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The place of each label among the classes, (n,)."""
    try:
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    except TypeError:  # text among numbers
        raise InputError(f"y: labels such as {y[0]!r} cannot be held against the classes {classes.tolist()}") from None
    wrong = classes[codes] != y
    if wrong.any():
        raise InputError(f"y: label {y[wrong].tolist()[0]!r} is not among the classes {classes.tolist()}")
    return codes


def _zeros(problem: Any) -> None:
    """Training starts from zeros."""


def _accuracy(margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
    right = (margins > 0) == (targets > 0) if margins.ndim == 1 else margins.argmax(axis=1) == targets
    return float(np.average(right, weights=weights))
