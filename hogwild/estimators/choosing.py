"""``alpha="auto"``: the penalty that does best in cross-validation; all folds and penalties are trained side by side.

Each candidate is a lane of a vector (``problems/linear/lanes``) with its own penalty and step; it leaves out the rows
of its fold, and has the degrees and number of rows of the others. So five folds of sixteen penalties read the rows five
times an epoch instead of eighty times. The model is then fitted to all rows with the penalty that was chosen, as if it
had been given.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np

from hogwild.config import path_of
from hogwild.data.order import Order
from hogwild.data.rows.container import EMPTY
from hogwild.data.scaled import columns_of
from hogwild.errors import TrainingError, UsageError
from hogwild.estimators.arrays import converted, problem_of, rows_of
from hogwild.estimators.descent import try_steps
from hogwild.estimators.options import Options, parameter
from hogwild.kernels.losses import PASSIVE
from hogwild.problems.linear.lanes.candidates import NONE, Candidate, Candidates, steps_between
from hogwild.problems.linear.objective import loss_values
from hogwild.problems.linear.rows import all_ones
from hogwild.training.schedule import Schedule, Step

FOLDS = 5
ROWS = 20_000  # visits of rows that a candidate makes at least, in at most
EPOCHS = 10, 100  # epochs, and at least
CHOSEN = ("alpha_", "alphas_", "path_", "best_score_")  # attributes that say how alpha was chosen


class LinearFall(Schedule):
    """A step that falls to zero over a known number of epochs, so that the last weights are as good as their mean."""

    def __init__(self, step: float, epochs: int) -> None:
        super().__init__(step)
        self.epochs = epochs

    def plan(self, epoch: int) -> Step:
        return self.step * (1 - epoch / self.epochs), 1.0, 0.0


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class CrossValidated:
    """What the estimators that choose ``alpha`` have beside the others' parameters."""

    # fmt: off
    alpha: float | str = parameter("auto", "``auto``: the best of ``alphas``. A number is trained with as it is.",
        like="l2")
    alphas: Any = parameter(None, "The values to choose among; None: sixteen from 1e-8 to 0.32.")
    cv: Any = parameter(None, "Number of folds, a splitter or an iterable of splits, as in scikit-learn; each row may "
        "be held out once. None: 5, or fewer where a class has fewer rows.")
    scoring: Any = parameter(None, "A name of scikit-learn's or a function of estimator, X and y; None: minus the mean "
        "loss.")
    # fmt: on

    def _choosing(self) -> tuple[Any, Any, Any]:
        return self.alphas, self.cv, self.scoring

    @property
    def partial_fit(self) -> Any:
        raise AttributeError("folds are of all rows, and partial_fit has a batch: take the estimator without CV")


def settle_alpha(
    estimator: Any, options: Options, X: Any, targets: np.ndarray, weights: np.ndarray | None, labels: np.ndarray,
    seed: int, start: Any,
) -> Options:  # fmt: skip
    """Choose ``alpha``, set the attributes that say how, and return the options with it.

    ``labels`` are the classes, empty for real targets; ``start`` makes initial parameters, of which lanes take the
    intercept of a regression.
    """
    alphas, cv, scoring = estimator._choosing()
    alphas = path_of("auto" if alphas is None else alphas, "alphas")
    _check(options, len(labels))
    codes = np.zeros(0, int) if not len(labels) else ((targets > 0) if len(labels) == 2 else targets).astype(int)
    y = labels[codes] if len(labels) else targets
    fold_of = folds_of(cv, X, y, classifier=len(labels) > 0, seed=seed)
    found = _train(options, X, targets, weights, len(labels), alphas, fold_of, seed, start)
    scores = np.empty((len(alphas), fold_of.max() + 1))
    for fold in range(scores.shape[1]):
        ids = np.flatnonzero(fold_of == fold)
        for k in range(len(alphas)):
            coef, intercept = found(k, fold)
            if scoring is None:
                margins = np.asarray(X[ids] @ np.atleast_2d(coef).T) + intercept
                score = -_loss(options, margins, targets[ids], None if weights is None else weights[ids])
            else:
                score = _scored(estimator, scoring, coef, intercept, labels, X[ids], y[ids])
            scores[k, fold] = score if math.isfinite(score) else -math.inf
    told = (scores > -math.inf).any(
        axis=0
    )  # not by a fold of rows without weight, or of one class where scores need two
    means = scores[:, told].mean(axis=1) if told.any() else scores[:, 0]
    best = len(alphas) - 1 - int(np.argmax(means[::-1]))  # the strongest of equals
    if means[best] == -math.inf:
        why = "every candidate diverged, or its score is not finite on the rows held out"
        raise TrainingError(
            f"alpha='auto': {why}: scale the columns of X, or see whether folds hold weights and classes"
        )
    estimator.alpha_, estimator.alphas_, estimator.path_ = alphas[best], np.array(alphas), scores
    estimator.best_score_ = float(means[best])
    return at(options, alphas[best])


def at(options: Options, alpha: float) -> Options:
    """The options with another alpha, for options with alpha 1."""
    return dataclasses.replace(options, alpha=alpha, l1=options.l1 * alpha, l2=options.l2 * alpha)


def _check(options: Options, classes: int) -> None:
    if not options.l1 + options.l2 > 0:
        raise UsageError("alpha='auto' is the strength of a penalty, and penalty is None: give one")
    if options.loss == "softmax" and classes > 2:
        raise UsageError("alpha='auto' trains its candidates one class at a time, and softmax all at once: give alpha")
    if options.learning_rate in PASSIVE:
        raise UsageError(
            f"alpha='auto' goes with no passive steps: learning_rate={options.learning_rate!r}: give alpha"
        )


def folds_of(cv: Any, X: Any, y: np.ndarray, classifier: bool, seed: int) -> np.ndarray:
    """The fold that holds each row out, (n,) int32; -1 for rows that none does.

    ``cv`` is as in scikit-learn, and None is five folds, or fewer where a class has fewer rows.

    Raises
    ------
    UsageError
        If folds overlap, are empty, or do not train on all rows that they do not hold out.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, check_cv

    if cv is None:
        _, counts = np.unique(y, return_counts=True)
        many = min(FOLDS, int(counts.min()) if classifier else FOLDS, len(y))
        kind = StratifiedKFold if classifier and many > 1 else KFold
        if len(y) < 2:
            raise UsageError(f"alpha='auto' holds rows out, and there is n_samples = {len(y)}: give alpha")
        cv = kind(max(many, 2), shuffle=True, random_state=seed % 2**32)
    fold_of = np.full(len(y), NONE, np.int32)
    for fold, (rest, held) in enumerate(check_cv(cv, y, classifier=classifier).split(X, y)):
        if not all(np.asarray(part).dtype.kind in "iu" and len(part) for part in (rest, held)):
            raise UsageError("cv: expected folds as two arrays of row numbers, of which none is empty")
        if not np.array_equal(np.sort(np.append(rest, held)), np.arange(len(y))):
            raise UsageError(f"cv: expected folds that hold some of the {len(y)} rows out and train on all others")
        if (fold_of[held] != NONE).any():
            raise UsageError("cv: expected folds that hold each row out at most once")
        fold_of[held] = fold
    if fold_of.max() == NONE:
        raise UsageError("cv: expected one fold or more, got none")
    return fold_of


def _train(
    options: Options, X: Any, targets: np.ndarray, weights: np.ndarray | None, classes: int, alphas: Any,
    fold_of: np.ndarray, seed: int, start: Any,
) -> Any:  # fmt: skip
    """Train the candidates; return a function of the numbers of an alpha and a fold that returns their solution."""
    rows = rows_of(X, targets, weights)
    columns = columns_of(rows, options.intercept, all_ones(rows.values)) if options.scale_columns else None
    rows = rows if columns is None else columns.apply(rows)
    problem = problem_of(at(options, alphas[-1]), rows, classes, "serial", whole=True)
    flat = start(problem) if classes == 0 else None
    first = 0.0 if flat is None else float(problem.parameters(flat).intercept[0])

    def search(alpha: float) -> float:
        return try_steps(problem_of(at(options, alpha), rows, classes, "serial", whole=True), rows, seed, None)

    epochs = min(options.max_iter, max(min(-(-ROWS // len(rows)), EPOCHS[1]), EPOCHS[0]))
    folds, own = range(fold_of.max() + 1), range(classes) if classes > 2 else [NONE]
    lanes = [
        Candidate(LinearFall(step, epochs), options.l1 * alpha, options.l2 * alpha, fold, label)
        for alpha, step in zip(alphas, steps_between(search, alphas), strict=True)
        for fold in folds
        for label in own
    ]
    order = Order.of(len(rows), options.shuffle, 8 * rows.nnz / len(rows))
    found = Candidates(problem, rows, converted(rows, EMPTY), lanes, order, seed, fold_of, first)
    found.train(epochs)

    def solution(alpha: int, fold: int) -> tuple[np.ndarray, np.ndarray]:
        begin = (alpha * len(folds) + fold) * len(own)
        solution = found.model(range(begin, begin + len(own)))
        return solution if columns is None else columns.back(*solution)

    return solution


def _loss(options: Options, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
    """Mean loss of rows; with several classes, the sum of the losses of each."""
    loss, several = "log" if options.loss == "softmax" else options.loss, margins.shape[1] > 1
    total = np.zeros(len(targets))
    for label in range(margins.shape[1]):
        total += loss_values(
            loss, margins[:, label], np.where(targets == label, 1.0, -1.0) if several else targets, options.loss_param
        )
    if weights is not None and not weights.any():
        return math.nan
    with np.errstate(all="ignore"):
        return float(np.average(total, weights=weights))


def _scored(
    estimator: Any, scoring: Any, coef: np.ndarray, intercept: np.ndarray, labels: np.ndarray, X: Any, y: np.ndarray
) -> float:
    """The score of a candidate by scikit-learn's name of it, or a function of estimator, X and y."""
    from sklearn.metrics import get_scorer

    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        return -math.inf
    own = copy.copy(estimator)
    own.coef_, own.intercept_ = np.atleast_2d(coef) if len(labels) else coef, intercept
    own.classes_ = labels
    vars(own).pop("feature_names_in_", None)
    return float((get_scorer(scoring) if isinstance(scoring, str) else scoring)(own, X, y))
