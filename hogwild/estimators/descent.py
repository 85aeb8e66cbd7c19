"""The epochs of one ``fit``: find a step, pass over the rows until it no longer pays, and say what was found.

The one decision: nobody reads rows of measurements here, so nothing is measured but what ``tol`` needs, the objective
on a fixed sample of the training rows, in float64 by code that the kernels have no part in. It has the penalty in it,
unlike scikit-learn's running loss, and is that of the weights as they are, not of those that were before each row.
On small data the sample is all rows. It costs up to a tenth of an epoch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.examples import Rows
from hogwild.data.order import Order
from hogwild.errors import TrainingError
from hogwild.estimators.crew import Crew, Solo
from hogwild.estimators.options import Options
from hogwild.estimators.posing import problem_of, row_arrays
from hogwild.estimators.steps import Steps, search
from hogwild.estimators.zeros import without_remainders
from hogwild.kernels.losses import LOSSES, SOFTMAX, dloss
from hogwild.problems.linear import LinearProblem
from hogwild.problems.objective import loss_values
from hogwild.problems.tiers import choose
from hogwild.stopping import has_diverged
from hogwild.training import TAIL_POWER

GAUGED = 1_000_000  # nonzeros times classes of the sample that the objective is taken of
TRIED = 400_000  # of the sample that steps are tried on
FEWEST = 1_000, 500  # rows of these samples, whatever they cost; of more, at most
SHARE = 4  # one in so many
TRIALS = (2, 10)  # fewest and most epochs of a trial,
TRIAL_ROWS = 1_500  # and rows between
LOOK = 500  # rows from one look at the objective to the next, at least: several epochs where they are fewer
DENSE = 1 << 15  # products, up to which a dense array is quicker than the calls of a sparse one
SHORT = 256  # squares that are summed in float32
SLOW = 2  # times tol: an epoch that gains less has the next ones take smaller steps
AGAIN = 8  # times that a diverged fit begins again with a smaller step


@dataclass
class Outcome:
    """What a fit has found."""

    problem: LinearProblem
    flat: np.ndarray
    step: float  # the first
    workers: int
    epochs: int = 0
    curve: list[float] = field(default_factory=list)  # the objective after each epoch
    scores: list[float] = field(default_factory=list)  # on the validation rows


class Gauge:
    """The objective of flat parameters on some rows: mean weighted loss plus penalties, float64.

    Parameters
    ----------
    problem : LinearProblem
    rows : Rows
        Contiguous, with targets as kernels want them.
    """

    def __init__(self, problem: LinearProblem, rows: Rows) -> None:
        self.problem, self._scale = problem, 1.0 / len(rows)
        X, _ = rows.to_scipy()
        small = len(rows) * rows.width * problem.classes <= DENSE
        self._X, self._dense = (X.toarray(), True) if small else (X, False)
        self._targets = rows.targets.astype(np.float64)
        self._weights = None if rows.weights is None else rows.weights.astype(np.float64)
        self.weight = 1.0 if self._weights is None else float(self._weights.mean())  # of a row

    def __call__(self, flat: np.ndarray) -> float:
        p = self.problem
        w, b, *_ = p.parameters(flat)
        w_k = w if p.classes == 1 else w.reshape(p.width, p.stride)
        if self._dense:  # not by BLAS, whose threads go on spinning where the workers want to be
            found = np.einsum("ij,j->i" if p.classes == 1 else "ij,jk->ik", self._X, w_k)
        else:
            found = self._X @ w_k
        if p.classes == 1:
            margins = found.astype(np.float64) + float(b[0])
        else:
            margins = found[:, : p.classes] + b[: p.classes].astype(np.float64)
        losses = loss_values(p.loss, margins, self._targets, p.loss_param)
        total = losses.sum() if self._weights is None else np.einsum("i,i->", losses, self._weights)
        value = float(total) * self._scale
        if p.l2:
            value += p.l2 / 2 * _squares(w)
        if p.l1:
            value += p.l1 * float(np.abs(w).sum(dtype=np.float64))
        return value


def _squares(w: np.ndarray) -> float:
    """``w . w``: short sums in float32, which is several times faster than a cast of all, added up in float64."""
    whole = len(w) // SHORT * SHORT
    sums = np.einsum("ij,ij->i", w[:whole].reshape(-1, SHORT), w[:whole].reshape(-1, SHORT))
    return float(sums.sum(dtype=np.float64) + np.einsum("i,i->", w[whole:], w[whole:]))


def sample(rows: Rows, entries: int, fewest: int, margins: int, seed: int) -> Rows:
    """A quarter of the rows, chosen at random, or so many that their nonzeros times ``margins`` are ``entries``.

    At least ``fewest``, and all of them if they are no more.
    """
    per_row = max(rows.nnz / max(len(rows), 1), 1.0) * margins
    count = max(fewest, min(len(rows) // SHARE, int(entries / per_row)))
    if count >= len(rows):
        return rows if rows.contiguous else rows.compact()
    picked = np.random.default_rng(seed).choice(len(rows), count, replace=False)
    return rows.select(np.sort(picked)).compact()


def first_power(rows: Rows) -> int:
    """Exponent of the first step to try: one over the mean weighted squared length of a row."""
    low, high = int(rows.begin[0]), int(rows.end[-1])
    squares = np.square(rows.values[low:high], dtype=np.float64)
    if rows.weights is not None:
        squares *= np.repeat(rows.weights, rows.end - rows.begin)
    mean = float(squares.sum()) / len(rows)
    return round(-math.log2(mean)) if 0 < mean < math.inf else 0


def slope_of(problem: LinearProblem) -> Callable[[float], float]:
    """The loss's derivative at a prediction for target 1."""
    code = LOSSES[problem.loss]
    return lambda p: 1.0 if code == SOFTMAX else float(dloss(code, p, 1.0, problem.loss_param))


def find_step(solo: Solo, rows: Rows, gauge: Gauge, start: np.ndarray | None) -> float:
    """The step that does best in short runs of one worker, which has ``rows``, from ``start`` or zeros."""
    epochs = int(np.clip(TRIAL_ROWS // len(rows), *TRIALS))
    solo.reset(start)
    before = gauge(solo.flat)

    def trial(step: float) -> float:
        solo.reset(start)
        solo.run(0, (step, 1.0, 0.0), epochs)
        value = gauge(solo.flat)
        return math.inf if has_diverged(value, [before]) else value

    return search(trial, before, first_power(rows), fine=len(rows) >= FEWEST[1])


def try_steps(problem: LinearProblem, rows: Rows, seed: int, start: np.ndarray | None) -> float:
    """:func:`find_step` on a sample of the rows."""
    part = sample(rows, TRIED, FEWEST[1], problem.classes, seed)
    solo = Solo(problem, Order.of(len(part)), part, row_arrays(problem, part, 1), seed)
    return find_step(solo, part, Gauge(problem, part), start)


def descend(
    options: Options, rows: Rows, classes: int, *, seed: int, workers: int, start: Callable[[Any], Any],
    score: Callable[[Gauge | None, np.ndarray], float] | None, report: Callable[[int, float], None],
) -> Outcome:  # fmt: skip
    """Train on the rows until the objective, or the score, no longer gets better, or for ``max_iter`` epochs.

    Parameters
    ----------
    options : Options
    rows : Rows
        With targets as kernels want them.
    classes : int
        0 for real targets.
    seed, workers : int
    start : callable
        Given the problem, the flat parameters to start from, or None for zeros.
    score : callable, optional
        Score of flat parameters on rows held out, higher is better; decides when to stop instead of the objective.
    report : callable
        Given the number of epochs done and the objective, after each.

    Raises
    ------
    TrainingError
        If it diverges, and the step was not ours to choose.
    """
    alone = problem_of(options, rows, classes, "serial")
    flat = start(alone)
    problem, crew = _engage(alone, rows, options, seed, workers, flat)
    try:
        gauge = Gauge(problem, sample(rows, GAUGED, FEWEST[0], problem.classes, seed))
        if options.learning_rate != "auto":
            first = options.eta0
        elif isinstance(crew, Solo) and len(rows) <= FEWEST[1] and options.shuffle:  # of which all are tried on
            first = find_step(crew, rows, gauge, flat)
            crew.reset(flat)
        else:
            first = try_steps(alone, rows, seed, flat)
        for attempt in range(AGAIN + 1):
            found = Outcome(problem, crew.parameters(), first, workers)
            if _epochs(options, found, crew, gauge, score, report, len(rows)):
                break
            if options.learning_rate != "auto" or attempt == AGAIN:
                raise TrainingError(_said(options, found))
            first /= 4
            crew.reset(flat)
    finally:
        crew.close()
    if problem.l1:
        found.flat = without_remainders(problem, found.flat, rows)
    return found


def _engage(
    alone: LinearProblem, rows: Rows, options: Options, seed: int, workers: int, flat: np.ndarray | None
) -> tuple[LinearProblem, Solo | Crew]:
    """The workers, and the problem with the discipline that the data call for."""
    import dataclasses

    arrays, order = row_arrays(alone, rows, workers), Order.of(len(rows), options.shuffle, 8 * rows.nnz / len(rows))
    if workers == 1 and options.host == "threads":
        solo = Solo(alone, order, rows, arrays, seed)
        solo.reset(flat)
        return alone, solo
    discipline, tiers = "serial", None
    if workers > 1:
        problem = dataclasses.replace(alone, discipline="tiered")
        tiers, _ = choose(problem, rows, arrays, workers)
        discipline = "hogwild" if tiers is None else "tiered"
    problem = dataclasses.replace(alone, discipline=discipline)
    return problem, Crew(problem, order, rows, arrays, seed, workers, options.host, tiers, flat)


def _epochs(options: Options, found: Outcome, crew: Solo | Crew, gauge: Gauge, score: Any, report: Any, n: int) -> bool:
    """Run the epochs and fill in ``found``; False if it diverged."""
    steps, mean, looks = Steps(options, found.step, slope_of(found.problem), n), None, -(-LOOK // n)
    averaged = 0
    start, best, stalled = gauge(found.flat), math.inf, 0
    unit = 1.0  # of what tol counts
    if score is None:
        unit = gauge.weight * (1 if found.problem.loss == "softmax" else found.problem.classes)
    while found.epochs < options.max_iter:
        times = min(looks, options.max_iter - found.epochs)
        crew.run(found.epochs, steps.plan(found.epochs), times)
        found.epochs += times
        flat = crew.parameters()
        if options.average and found.epochs * n >= options.average:
            averaged += 1
            mean = _averaged(mean, flat, averaged)
            flat = mean.astype(np.float32)
        value = gauge(flat)
        found.flat = flat
        found.curve.append(value)
        if has_diverged(value, [start, *found.curve[:1]]):
            return False
        report(found.epochs, value)
        if score is not None:
            found.scores.append(score(found.problem, flat))
            value = -found.scores[-1]
        tol = options.tol * max(unit, abs(best) if math.isfinite(best) else 0.0)
        before = best
        improved = value <= best - tol if math.isfinite(options.tol) else True
        best, stalled = min(best, value), 0 if improved else stalled + 1
        steps.observe(value <= before - SLOW * tol)
        if stalled >= options.patience:
            if not steps.give_more():
                return True
            stalled = 0
    if math.isfinite(options.tol) and (not stalled or len(found.curve) > options.patience):
        _warn_of_end()  # but not where the looks were too few to say so, and the last one brought nothing
    return True


def _averaged(mean: np.ndarray | None, flat: np.ndarray, epoch: int) -> np.ndarray:
    """The tail mean of the parameters after so many epochs, float64: weight (q + 1) / (t + q) on the newest, q = 3."""
    if mean is None:
        return flat.astype(np.float64)
    return mean + (TAIL_POWER + 1) / (epoch + TAIL_POWER) * (flat - mean)


def _warn_of_end() -> None:
    from sklearn.exceptions import ConvergenceWarning

    said = "max_iter epochs are done and the objective is still falling: allow more, or a larger tol"
    warnings.warn(said, ConvergenceWarning, stacklevel=6)  # the line that calls fit


def _said(options: Options, found: Outcome) -> str:
    if options.learning_rate == "auto":
        return f"diverged at every step down to {found.step:.3g}: scale the columns of X"
    what = "an alpha above" if options.learning_rate == "optimal" else "an eta0 below"
    number = options.alpha if options.learning_rate == "optimal" else options.eta0
    return (
        f"diverged in epoch {found.epochs}: the objective went to {found.curve[-1]:.4g}; scale the columns of X, or "
        f"try {what} {number:g}, or learning_rate='auto'"
    )
