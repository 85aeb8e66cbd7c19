"""``alpha="auto"``: the penalty that ``hogwild train`` chooses, with scikit-learn's folds and scores if they are given.

The model is then fitted to all rows with the penalty that was chosen, as if it had been given.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.estimators.arrays import Start, loss_here, mean_weight, rows_of
from hogwild.estimators.fit import FEW_EPOCHS, LOOSE
from hogwild.estimators.options import Options, parameter
from hogwild.estimators.progress import shown
from hogwild.kernels.losses import PASSIVE
from hogwild.methods import DEFAULT_PARAM
from hogwild.problems.linear.lanes.candidates import NONE
from hogwild.problems.linear.optimum.walk import FARTHEST
from hogwild.problems.linear.options import path_of
from hogwild.training.l2_choice import choose_l2, mean_scores

FOLDS = "expected folds of row numbers that hold each row out at most once and train on all others"
EPOCHS = 20  # of a candidate that is trained beside others, at most
CHOSEN = ("alpha_", "alphas_", "path_", "best_score_")  # attributes that say how alpha was chosen


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class CrossValidated:
    """What the estimators that choose ``alpha`` have beside the others' parameters."""

    alpha: float | str = parameter(
        "auto", "``auto``: the best of ``alphas``. A number is trained with as it is.", like="l2"
    )
    alphas: Any = parameter(
        None,
        "The values to choose among. None: sixteen from 1e-8 to 0.32, or with few rows those that the losses of others "
        "lead to, times a typical row's squared length and the mean weight of rows.",
    )
    cv: Any = parameter(
        None,
        "Number of folds, a splitter or an iterable of splits, as in scikit-learn; each row may "
        "be held out once. None: 5, several times of few rows, or a fifth of many rows.",
    )
    scoring: Any = parameter(
        None, "A name of scikit-learn's or a function of estimator, X and y; None: minus the mean loss."
    )

    def _choosing(self) -> tuple[Any, Any, Any]:
        return self.alphas, self.cv, self.scoring

    @property
    def partial_fit(self) -> Any:
        raise AttributeError("folds are of all rows, and partial_fit has a batch: take the estimator without CV")


def settle_alpha(
    estimator: Any,
    options: Options,
    X: Any,
    targets: np.ndarray,
    weights: np.ndarray | None,
    labels: np.ndarray,
    seed: int,
    start: Start | None,
) -> Options:
    """Choose ``alpha``, set the attributes that say how, and return the options with it.

    ``labels`` are the classes, empty for real targets; of ``start`` lanes take the intercept of a regression.
    """
    alphas, cv, scoring = estimator._choosing()
    if not options.l1 + options.l2 > 0:
        raise UsageError("alpha='auto' is the strength of a penalty, and penalty is None: give one")
    if options.learning_rate in PASSIVE:
        raise UsageError(
            f"alpha='auto' goes with no passive steps: learning_rate={options.learning_rate!r}: give alpha"
        )
    rows, classes = rows_of(X, targets, weights), len(labels)
    # The objective's loss is the mean of weight times loss, that of a config is weighted.
    unit = min(max(mean_weight(rows) or 1.0, 10.0**-FARTHEST), 10.0**FARTHEST)
    path = path_of("auto" if alphas is None else [each / unit for each in path_of(alphas, "alphas")], "alphas")
    codes = np.zeros(0, int) if not classes else ((targets > 0) if classes == 2 else targets).astype(int)
    y = labels[codes] if classes else targets
    loss = loss_here(options, classes)
    config = TrainConfig(
        loss=loss,
        loss_param=options.loss_param if loss in DEFAULT_PARAM else None,
        l2_path=path,
        normalize="none",
        intercept=options.intercept,
        scale_columns=options.scale_columns,
        order="shuffled" if options.shuffle else "file",
        epochs=min(options.max_iter, EPOCHS),
        seed=seed,
        host="threads",
        workers=1,
    )
    intercept = 0.0 if classes or start is None else float(start[1][0])
    meant = options.learning_rate == "auto" and options.max_iter >= FEW_EPOCHS and options.tol <= LOOSE
    with shown("choosing alpha", len(path), options.verbose) as report:
        choice = choose_l2(
            config,
            rows,
            divisions=None if cv is None else folds_of(cv, X, y, classes > 0),
            penalties=lambda strength: (options.l1 * strength, options.l2 * strength),
            score=None if scoring is None else lambda *solution: _scored(estimator, scoring, labels, X, y, *solution),
            exact=meant and not options.average,
            intercept=intercept,
            report=(lambda done, total: report(done, None, total)) if options.verbose else None,
        )
    strengths = [each["l2"] for each in choice.path]
    alpha = choice.l2 * unit
    estimator.alpha_ = alpha
    estimator.alphas_ = np.array([l2 * unit for l2 in strengths])
    estimator.path_ = np.where(np.isfinite(choice.scores), choice.scores, -np.inf)
    estimator.best_score_ = float(mean_scores(choice.scores)[strengths.index(choice.l2)])
    return dataclasses.replace(options, alpha=alpha, l1=options.l1 * alpha, l2=options.l2 * alpha)


def folds_of(cv: Any, X: Any, y: np.ndarray, classifier: bool) -> list[np.ndarray]:
    """The fold that holds each row out, (n,) int32; -1 for rows that none does. ``cv`` is as in scikit-learn.

    Raises
    ------
    UsageError
        If folds hold no rows out, or some twice, or do not train on all others.
    """
    from sklearn.model_selection import check_cv

    fold_of = np.full(len(y), NONE, np.int32)
    for fold, (rest, held) in enumerate(check_cv(cv, y, classifier=classifier).split(X, y)):
        numbers = np.sort(np.append(rest, held))
        if not len(held) or not np.array_equal(numbers, np.arange(len(y))) or (fold_of[held] != NONE).any():
            raise UsageError(f"cv: {FOLDS}; got another fold {fold}")
        fold_of[held] = fold
    if fold_of.max() == NONE:
        raise UsageError(f"cv: {FOLDS}; got no folds")
    return [fold_of]


def _scored(
    estimator: Any,
    scoring: Any,
    labels: np.ndarray,
    X: Any,
    y: np.ndarray,
    coef: np.ndarray,
    intercept: np.ndarray,
    ids: np.ndarray,
) -> float:
    """The score of a candidate by scikit-learn's name of it, or a function of estimator, X and y."""
    from sklearn.metrics import get_scorer

    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        return -math.inf
    model = copy.copy(estimator)
    model.coef_ = np.atleast_2d(coef) if len(labels) else coef
    model.intercept_ = intercept
    model.classes_ = labels
    vars(model).pop("feature_names_in_", None)
    return float((get_scorer(scoring) if isinstance(scoring, str) else scoring)(model, X[ids], y[ids]))
