"""``alpha="auto"``: the penalty that does best in cross-validation.

Of few rows and a smooth loss, candidates are optima without each fold (``problems/linear/exact/folds``) as those of
``hogwild train`` are, and unless values, folds or a score are given the values to try are found as there. Otherwise all
folds and penalties are trained side by side: each candidate is a lane of a vector (``problems/linear/lanes``) with its
own penalty and step; it leaves out the rows of its fold, and has the degrees and number of rows of the others. So five
folds of sixteen penalties read the rows five times an epoch instead of eighty times. The model is then fitted to all
rows with the penalty that was chosen, as if it had been given.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hogwild.config import path_of
from hogwild.data.order import Order
from hogwild.data.rows.container import EMPTY, Rows
from hogwild.data.scaled import columns_of
from hogwild.errors import TrainingError, UsageError
from hogwild.estimators.arrays import converted, loss_here, problem_of, rows_of
from hogwild.estimators.descent import FEW_EPOCHS, LOOSE, try_steps
from hogwild.estimators.options import Options, parameter
from hogwild.kernels.losses import PASSIVE
from hogwild.problems.linear.exact.folds import Folds, are_few, divisions
from hogwild.problems.linear.exact.walk import FARTHEST, best_of, rounded, unit_of
from hogwild.problems.linear.lanes.candidates import NONE, Candidate, Candidates, steps_between
from hogwild.problems.linear.objective import loss_values
from hogwild.problems.linear.rows import all_ones
from hogwild.training.schedule import Schedule, Step

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

    alpha: float | str = parameter(
        "auto", "``auto``: the best of ``alphas``. A number is trained with as it is.", like="l2"
    )
    alphas: Any = parameter(
        None,
        "The values to choose among; None: sixteen from 1e-8 to 0.32, or of few rows "
        "what the losses of others lead to, in units of a row's squared length; both times the mean weight of rows.",
    )
    cv: Any = parameter(
        None,
        "Number of folds, a splitter or an iterable of splits, as in scikit-learn; each row may "
        "be held out once. None: 5, or fewer where a class has fewer rows, and these several times of few rows.",
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
    start: Any,
) -> Options:
    """Choose ``alpha``, set the attributes that say how, and return the options with it.

    ``labels`` are the classes, empty for real targets; ``start`` makes initial parameters, of which lanes take the
    intercept of a regression.
    """
    given, cv, scoring = estimator._choosing()
    alphas = list(path_of("auto" if given is None else given, "alphas"))
    _check(options)
    rows, classes = rows_of(X, targets, weights), len(labels)
    if given is None:
        unit = _mean_weight(rows)
        alphas = [rounded(alpha * unit) for alpha in alphas]
    codes = np.zeros(0, int) if not classes else ((targets > 0) if classes == 2 else targets).astype(int)
    y = labels[codes] if classes else targets
    folds = folds_of(cv, X, y, classes > 0, rows.nnz * max(classes - 1, 1))
    loss = loss_here(options, classes)
    columns = columns_of(rows, options.intercept, all_ones(rows.values)) if options.scale_columns else None
    own = rows if columns is None else columns.apply(rows)
    if exact := _is_exact(options, rows, loss, classes):
        problem = problem_of(options, own, classes, "serial", whole=True)
        fits = Folds(own, problem, converted(own, EMPTY), rows.weights, folds)
    if exact and given is None and cv is None and scoring is None:
        tried = fits.walk(unit_of(rows) * unit)
        alphas, scores = list(tried), -np.array(list(tried.values()))
    else:
        folds = folds if exact else folds[:1]
        found = _solutions(fits, alphas) if exact else _train(options, own, classes, alphas, folds[0], seed, start)
        held = [np.flatnonzero(fold_of == fold) for fold_of in folds for fold in range(fold_of.max() + 1)]
        scores = np.empty((len(alphas), len(held)))
        for (fold, ids), k in itertools.product(enumerate(held), range(len(alphas))):
            coef, intercept = found[k, fold] if columns is None else columns.back(*found[k, fold])
            if scoring is None:
                margins = np.asarray(X[ids] @ np.atleast_2d(coef).T) + intercept
                score = -_loss(loss, options, margins, targets[ids], None if weights is None else weights[ids])
            else:
                score = _scored(estimator, scoring, coef, intercept, labels, X[ids], y[ids])
            scores[k, fold] = score
    scores[~np.isfinite(scores)] = -math.inf
    told = (scores > -math.inf).any(axis=0)  # not by folds without weight, or of one class where scores need two
    means = scores[:, told].mean(axis=1) if told.any() else scores[:, 0]
    if means.max() == -math.inf:
        why = "every candidate diverged, or its score is not finite on the rows held out"
        raise TrainingError(
            f"alpha='auto': {why}: scale the columns of X, or see whether folds hold weights and classes"
        )
    best = len(alphas) - 1 - int(np.argmax(means[::-1]))  # the strongest of equals
    if exact and scoring is None and given is None:
        best = alphas.index(best_of(dict(zip(alphas, -means, strict=True))))
    estimator.alpha_, estimator.alphas_, estimator.path_ = alphas[best], np.array(alphas), scores
    estimator.best_score_ = float(means[best])
    return at(options, alphas[best])


def _is_exact(options: Options, rows: Rows, loss: str, classes: int) -> bool:
    """Whether candidates are optima, as a fit with these options is, nearly."""
    meant = options.learning_rate == "auto" and options.max_iter >= FEW_EPOCHS and options.tol <= LOOSE
    return meant and not options.average and are_few(rows, loss, options.l1, classes if classes > 2 else 1)


def _solutions(fits: Folds, alphas: Sequence[float]) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """The optima by the numbers of an alpha and a fold, from strong to weak penalties."""
    found = {}
    for k in sorted(range(len(alphas)), key=lambda k: -alphas[k]):
        fits.fit(alphas[k])
        found.update({(k, fold): fits.solution(fold) for fold in range(len(fits.sizes))})
    return found


def _mean_weight(rows: Rows) -> float:
    """What the mean loss of the rows is multiplied by in the objective, beside the penalty."""
    mean = 1.0 if rows.weights is None or not rows.weights.any() else float(np.mean(rows.weights, dtype=np.float64))
    return min(max(mean, 10.0**-FARTHEST), 10.0**FARTHEST)


def at(options: Options, alpha: float) -> Options:
    """The options with another alpha, for options with alpha 1."""
    return dataclasses.replace(options, alpha=alpha, l1=options.l1 * alpha, l2=options.l2 * alpha)


def _check(options: Options) -> None:
    if not options.l1 + options.l2 > 0:
        raise UsageError("alpha='auto' is the strength of a penalty, and penalty is None: give one")
    if options.learning_rate in PASSIVE:
        raise UsageError(
            f"alpha='auto' goes with no passive steps: learning_rate={options.learning_rate!r}: give alpha"
        )


def folds_of(cv: Any, X: Any, y: np.ndarray, classifier: bool, entries: int) -> list[np.ndarray]:
    """The fold that holds each row out, (n,) int32, in one division of the rows or more; -1 for rows that none does.

    ``cv`` is as in scikit-learn. None is what ``hogwild train`` takes for so many ``entries``; if a class has one row,
    classes are not spread evenly.

    Raises
    ------
    UsageError
        If folds overlap, are empty, or do not train on all rows that they do not hold out.
    """
    from sklearn.model_selection import check_cv

    if cv is None:
        if len(y) < 2:
            raise UsageError(f"alpha='auto' holds rows out, and there is n_samples = {len(y)}: give alpha")
        codes = np.unique(y, return_inverse=True)[1] if classifier else y
        alone = classifier and np.bincount(codes).min() < 2
        return divisions(codes, classifier and not alone, entries)
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
    return [fold_of]


def _train(
    options: Options,
    rows: Rows,
    classes: int,
    alphas: Sequence[float],
    fold_of: np.ndarray,
    seed: int,
    start: Any,
) -> dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]:
    """Train the candidates; return their solutions by the numbers of an alpha and a fold."""
    if options.loss == "softmax" and classes > 2:
        raise UsageError(
            "alpha='auto' trains its candidates one class at a time, and softmax all at once: give alpha, unless rows "
            "are few"
        )
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

    keys = itertools.product(range(len(alphas)), folds)
    return {key: found.model(range(k * len(own), (k + 1) * len(own))) for k, key in enumerate(keys)}


def _loss(loss: str, options: Options, margins: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> float:
    """Mean loss of rows; with several classes but softmax, the sum of the losses of each."""
    several = margins.shape[1] > 1
    total = np.zeros(len(targets))
    if loss == "softmax":
        top = margins.max(axis=1)
        total = np.log(np.exp(margins - top[:, None]).sum(axis=1)) + top
        total -= margins[np.arange(len(targets)), targets.astype(int)]
    for label in range(margins.shape[1] if loss != "softmax" else 0):
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
