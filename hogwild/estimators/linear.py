"""Shared parts of the classifier and the regressor: the fit on rows with kernel targets, and the attributes it sets.

``coef_`` and ``intercept_`` are the model. Other state kept between calls (degrees and steps of ``partial_fit``) is
stored beside them, checked against them, and discarded when they are replaced.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from hogwild import machine
from hogwild.data.rows.container import Rows
from hogwild.data.rows.labels import LabelSets
from hogwild.errors import HogwildWarning, InputError, TrainingError, UsageError
from hogwild.estimators.arrays import Start, centred, flat_of, mean_weight, rows_of, start_of, validated
from hogwild.estimators.fit import FEW_EPOCHS, LOOSE, descend
from hogwild.estimators.options import (
    HOSTS,
    PENALTIES,
    SCHEDULES,
    FitConfig,
    drawn_seed,
    loss_of,
    param_of,
    parameter,
    workers_of,
)
from hogwild.estimators.progress import shown
from hogwild.estimators.stream import Stream
from hogwild.problems.linear.model import LinearModel
from hogwild.problems.linear.optimum.folds import FARTHEST
from hogwild.problems.linear.options import L2_PATH
from hogwild.problems.linear.problem import aligned
from hogwild.training.l2_choice import choose_l2

if TYPE_CHECKING:
    from numpy.random import RandomState

MOST_EPOCHS = 20  # of a candidate for ``alpha`` that is trained beside others
_UNWEIGHED = "The sample weights for {} set are all zero, consider using a different random state."


class Fitted(BaseEstimator):
    """The attributes that fitting sets; declared here, since in a dataclass they would be parameters."""

    coef_: Any
    intercept_: Any
    alpha_: float
    classes_: np.ndarray
    multilabel_ = False
    _stream: Stream | None


@dataclass(eq=False, repr=False)
class LinearEstimator(Fitted):
    """Shared base of :class:`HogwildClassifier` and :class:`HogwildRegressor`, independent of the targets.

    The fields are the parameters: scikit-learn reads them from the signature of the ``__init__`` that they make.
    """

    _kind = ""  # "classifier" or "regressor"

    loss: str = parameter(
        "squared_error",
        "``squared_error``, ``huber``, ``epsilon_insensitive``, ``squared_epsilon_insensitive``; ``quantile`` (†); and "
        "``poisson``, ``tweedie`` and ``gamma`` for counts and amounts (†), which predict the margin's exponential.",
    )
    _: KW_ONLY
    penalty: str | None = parameter("l2", "Penalty on the weights.", choices=PENALTIES)
    alpha: float | str = parameter(
        0.0001,
        "Strength of the penalty: mean loss + alpha (l1_ratio ||w||_1 + (1 - l1_ratio)/2 ||w||^2). ``auto`` (†) "
        "chooses it by cross-validation and sets ``alpha_``.",
        like="l2",
    )
    l1_ratio: float = parameter(0.15, "Share of l1 in the penalty ``elasticnet``.")
    fit_intercept: bool = parameter(True, like="intercept")
    max_iter: int = parameter(1000, "Maximum number of passes over the data.", like="epochs")
    tol: float | None = parameter(
        1e-3,
        "Stop when the objective on the training rows (†, with the penalty, on a sample if they are over 1,000, or 300 "
        "with several classes), or with ``early_stopping`` the score, has not improved by ``tol`` for "
        "``n_iter_no_change`` epochs. ``tol`` counts for each binary problem and unit of weight, and relative to an "
        "objective above one (†). If an epoch has fewer than 500 rows, several epochs count as one (†).",
        like="tol",
    )
    shuffle: bool = parameter(True, "Visit the rows in a new order in every epoch.")
    verbose: int = parameter(0, "1 shows a progress bar, in a terminal and in notebooks.", least=0)
    epsilon: float = parameter(0.1, "Parameter of ``huber`` and the epsilon-insensitive losses.", least=0)
    n_jobs: int | None = parameter(
        None,
        "Workers that train at once on the same weights (†, also with two classes). None: 1, unless "
        "``joblib.parallel_config`` says otherwise; -1: all physical cores. It is 1 within other parallel work, such "
        "as a grid search with ``n_jobs``, and when an epoch is too short to share.",
    )
    random_state: int | RandomState | None = parameter(
        None,
        "With one worker, a seed gives the same weights to the last bit. More race, and two fits differ in the last "
        "digits of the objective.",
    )
    learning_rate: str = parameter(
        "auto",
        "``auto`` (†) tries steps on a sample of the rows, and ignores ``eta0`` and ``power_t``. ``pa1`` and ``pa2`` "
        "are the steps of passive-aggressive learning (Crammer et al. 2006), with ``eta0`` as their C and loss "
        "``hinge``, or ``epsilon_insensitive`` of a regressor.",
        choices=tuple(SCHEDULES),
    )
    eta0: float = parameter(0.01, "Initial step of the other schedules.")
    power_t: float = parameter(0.25, "Exponent of the schedule ``invscaling``.")
    early_stopping: bool = parameter(
        False,
        "Hold out ``validation_fraction`` of the rows, stratified by class, and stop by the score on them. Such a fit "
        "takes no exact steps, but for the zeros of an l1 penalty, and does not warn that it has ended above its "
        "optimum (†).",
    )
    validation_fraction: float = parameter(0.1, "Share of the rows held out with ``early_stopping``.")
    n_iter_no_change: int = parameter(
        5,
        "Epochs without progress after which training stops. With ``auto`` a fit waits for fewer, once the remaining "
        "ones, on smaller and smaller steps, would not reach ``tol`` (†).",
        like="patience",
    )
    warm_start: bool = parameter(False, "``fit`` continues from the last solution.")
    average: int | bool = parameter(
        False,
        "``coef_`` is a weighted mean of the weights at the ends of the last epochs (†), from ``average`` rows on.",
    )
    scale_columns: bool = parameter(
        True,
        "Train in scaled and centred columns where theirs differ (†); the objective and ``coef_`` are those of the "
        "columns as they are. ``fit`` does so with ``auto``, ``partial_fit`` never.",
    )
    host: str = parameter(
        "threads", 'Kind of workers (†); threads need no ``if __name__ == "__main__"``.', choices=HOSTS
    )

    def _margins(self, X: Any) -> np.ndarray:
        """Margins ``x . w + b``, (n,), or (n, classes) for more than two classes."""
        check_is_fitted(self)
        return self._product(validated(self, X, reset=False))

    def _product(self, X: Any) -> np.ndarray:
        """Margins of rows that have been checked."""
        coef = self.coef_ if scipy.sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)
        margins = X @ coef.T
        if scipy.sparse.issparse(margins):  # after sparsify
            margins = margins.toarray()
        margins = np.asarray(margins) + self.intercept_
        return margins.ravel() if margins.shape[1] == 1 else margins

    def sparsify(self) -> Any:
        """Make ``coef_`` a sparse CSR matrix, which saves memory if most weights are zero (penalty l1).

        Prediction works as before; fitting again calls :meth:`densify` first.
        """
        check_is_fitted(self)
        self.coef_ = scipy.sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Any:
        """Make ``coef_`` a dense array again."""
        check_is_fitted(self)
        if scipy.sparse.issparse(self.coef_):
            dense = self.coef_.toarray()
            self.coef_ = dense if self._kind == "classifier" else dense.ravel()
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- fitting

    def _weights(
        self, sample_weight: Any, X: Any, class_weights: np.ndarray | None, batch: bool = False
    ) -> np.ndarray | None:
        """Products of sample and class weights, (n,) float32; None if there are none.

        Raises
        ------
        InputError
            If one is negative or not finite in float32, or all are zero, which class weights may cause in a batch.
        """
        if sample_weight is None and class_weights is None:
            return None
        if self.early_stopping and sample_weight is not None and not np.any(sample_weight):
            raise InputError(_UNWEIGHED.format("validation"))
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if weights.min() < 0:
            raise InputError(f"sample_weight: row {int(np.argmin(weights))} has a negative weight")
        if class_weights is not None:
            if class_weights.min() < 0:
                raise InputError(f"class_weight: {class_weights.min():g} is negative")
            weights = weights * class_weights
        with np.errstate(over="ignore"):
            weights = weights.astype(np.float32)
        if not np.isfinite(weights).all():
            row = int(np.argmin(np.isfinite(weights)))
            raise InputError(f"sample_weight and class_weight: the weight of row {row} is not finite in float32")
        if not (batch or weights.any()):
            raise InputError("sample_weight and class_weight: all rows have weight zero")
        return weights

    def _split(self, X: Any, targets: np.ndarray, weights: np.ndarray | None, classes: bool) -> list[Any]:
        """X, targets and weights of the training rows and of the validation rows, both in the order of the rows."""
        from sklearn.model_selection import train_test_split

        how = {"test_size": self.validation_fraction, "random_state": self.random_state}
        halves = train_test_split(np.arange(len(targets)), stratify=targets if classes else None, **how)
        parts = []
        for name, ids in zip(("training", "validation"), map(np.sort, halves)):
            if weights is not None and not weights[ids].any():
                raise InputError(_UNWEIGHED.format(name))
            parts.append((X[ids], targets[ids], None if weights is None else weights[ids]))
        return parts

    def _fit(
        self,
        config: FitConfig,
        X: Any,
        targets: np.ndarray,
        weights: np.ndarray | None,
        classes: int,
        judge: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float],
        coef_init: Any,
        intercept_init: Any,
        level: float = 0.0,
        sets: LabelSets | None = None,
    ) -> None:
        """Train on rows with kernel targets and set the attributes.

        There are no ``classes`` of real targets; ``sets`` are those that targets of several labels a row stand for, and
        ``level`` is what targets are less than the user's.
        """
        if config.loss == "softmax" and classes == 2:
            config = config.settled(loss="log")
        if self.warm_start and hasattr(self, "coef_"):
            self.densify()
            coef_init = self.coef_ if coef_init is None else coef_init
            intercept_init = self.intercept_ if intercept_init is None else intercept_init
        margins = classes if classes > 2 or sets is not None else 1
        start = start_of(coef_init, intercept_init, margins, X.shape[1])
        inner, shift = (X, 0.0) if scipy.sparse.issparse(X) else centred(X)  # columns less ``shift``
        if config.intercept:
            X = inner
        elif np.any(shift):
            shift = 0.0
            text = "columns of X lie so far from zero that float32 loses their spread: centre them"
            warnings.warn(text, HogwildWarning, stacklevel=3)  # the line that calls fit
        if start is not None:
            start = start[0], start[1] - level + (start[0] * shift).sum(axis=1)
        score = None
        if self.early_stopping:
            (X, targets, weights), held = self._split(X, targets, weights, classes > 0 and sets is None)
            score = partial(_scored, judge, *held)
        config = config.settled(seed=drawn_seed(self.random_state))  # after the split, as in scikit-learn
        if start is None:
            start = self._usual_start(config, X.shape[1], targets, weights)
        rows = rows_of(X, targets, weights, sets)
        if self.alpha == "auto":
            intercept = 0.0 if classes or start is None else float(start[1][0])
            config = choose_alpha(config, rows, intercept, self.verbose)
            self.alpha_ = config.alpha
        elif hasattr(self, "alpha_"):  # what an earlier fit chose is no longer true
            del self.alpha_
        config = config.settled(workers=self._workers(rows, classes))
        with shown(type(self).__name__, config.epochs, self.verbose) as report:
            fit = descend(config, rows, classes, start, score, report)
        coef = fit.coef if self._kind == "regressor" else np.atleast_2d(fit.coef)
        self.coef_ = coef.astype(X.dtype, copy=False)
        self.intercept_ = fit.intercept.astype(X.dtype, copy=False)
        if level or np.any(shift):
            self.intercept_ = self.intercept_ + level - (np.atleast_2d(fit.coef) * shift).sum(axis=1)
        self.n_iter_ = fit.epochs
        self.t_ = 1.0 + fit.epochs * len(rows)
        self.loss_curve_ = fit.curve
        self.validation_scores_ = fit.scores or None
        self._stream = None

    def _usual_start(
        self, config: FitConfig, width: int, targets: np.ndarray, weights: np.ndarray | None
    ) -> Start | None:
        """What training starts from if nobody says; None: zeros."""
        return None

    def _workers(self, rows: Rows, classes: int) -> int:
        """Number of workers; vector instructions take eight classes at once."""
        entries = rows.nnz * max(classes // 8, 1) if self.host == "threads" else math.inf
        workers = workers_of(self.n_jobs, len(rows), entries)
        if workers > 1 and workers > (cores := machine.physical_cores()):
            text = f"n_jobs={self.n_jobs}: {machine.crowded(workers, cores)}"
            warnings.warn(text, HogwildWarning, stacklevel=4)  # the line that calls fit
        return workers

    def _model(self, labels: list[float]) -> LinearModel:
        check_is_fitted(self)
        self.densify()
        loss = loss_of(self.loss, self._kind)
        if loss == "softmax" and len(labels) == 2:
            loss = "log"
        param = param_of(loss, self.epsilon, getattr(self, "loss_param", None))
        return LinearModel(self.coef_, self.intercept_, loss, param, labels, multilabel=self.multilabel_)

    # ---- batch by batch

    def _learn(self, config: FitConfig, rows: Rows, classes: int, start: Start | None = None) -> None:
        """Pass over a batch once, from ``coef_`` if it exists, else from ``start``, or zeros."""
        if config.loss == "softmax" and classes == 2:
            config = config.settled(loss="log")
        config = config.settled(workers=self._workers(rows, classes))
        stream, fresh = getattr(self, "_stream", None), not hasattr(self, "coef_")
        if fresh or stream is None or (stream.width, stream.classes) != (rows.width, classes):
            before = 0 if fresh else int(getattr(self, "t_", 1.0)) - 1
            stream = Stream(rows.width, classes, before, drawn_seed(self.random_state))
        problem = stream.take(config, rows)
        if fresh or not stream.shows(self.coef_, self.intercept_):
            if not fresh:
                self.densify()
                margins = classes if classes > 2 or rows.labels is not None else 1
                start = start_of(self.coef_, self.intercept_, margins, rows.width)
            stream.begin(aligned(problem.size) if start is None else flat_of(problem, *start))
        self._stream = stream
        try:
            stream.learn(config, problem, rows)
        except TrainingError:
            for name in [name for name in vars(self) if name.endswith("_") or name == "_stream"]:
                delattr(self, name)
            raise
        self.coef_, self.intercept_ = stream.views()
        self.n_iter_, self.t_ = 1, 1.0 + stream.seen


def choose_alpha(config: FitConfig, rows: Rows, intercept: float, verbose: int) -> FitConfig:
    """The config with the ``alpha`` that is best on rows held out, as ``hogwild train`` chooses l2.

    Lanes of a regression start at ``intercept``.
    """
    if not config.l1 + config.l2 > 0:
        raise UsageError("alpha='auto' is the strength of a penalty, and penalty is None: give one")
    if config.passive != "none":
        raise UsageError(f"alpha='auto' goes with no passive steps: learning_rate={config.passive!r}: give alpha")
    # The objective's loss is the mean of weight times loss, that of a config is weighted.
    unit = min(max(mean_weight(rows) or 1.0, 10.0**-FARTHEST), 10.0**FARTHEST)
    meant = config.schedule == "auto" and config.epochs >= FEW_EPOCHS and config.tol <= LOOSE
    usual: Any = {"l2_path": L2_PATH, "host": "threads", "workers": 1, "epochs": min(config.epochs, MOST_EPOCHS)}
    usual |= {"schedule": "auto", "step": None, "power": None, "patience": None, "tol": 1e-3}
    with shown("choosing alpha", len(L2_PATH), verbose) as report:
        chosen = choose_l2(
            config.settled(**usual),
            rows,
            penalties=lambda strength: (config.l1 * strength, config.l2 * strength),
            exact=meant and not config.average,
            intercept=intercept,
            report=(lambda done, total: report(done, None, total)) if verbose else None,
        )
    alpha = unit * chosen.l2
    return config.settled(alpha=alpha, l1=config.l1 * alpha, l2=config.l2 * alpha)


def _scored(judge: Any, X: Any, targets: Any, weights: Any, coef: np.ndarray, intercept: np.ndarray) -> float:
    """What ``judge`` says of the margins of rows."""
    return float(judge(np.asarray(X @ coef.T) + intercept, targets, weights))
