"""The epochs of one ``fit``: find a step, pass over the rows until it no longer pays, and say what was found.

The one decision: nobody reads rows of measurements here, so nothing is measured but what ``tol`` needs, the objective
on a sample of the training rows (``estimators/gauge.py``). It costs up to a tenth of an epoch.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.examples import Rows
from hogwild.data.order import Order
from hogwild.data.picked import narrowed
from hogwild.errors import TrainingError
from hogwild.estimators.crew import Classes, Crew, Solo, Workers, can_share_out
from hogwild.estimators.gauge import Gauge, sample
from hogwild.estimators.options import DEEPEST, LOOK, PATIENT, Options
from hogwild.estimators.posing import about_rates, problem_of, row_arrays
from hogwild.estimators.steps import Steps
from hogwild.estimators.zeros import without_remainders
from hogwild.probe import LITTLE, best_power
from hogwild.problems.linear import LinearProblem, aligned
from hogwild.problems.tiers import choose
from hogwild.stopping import diverged_in, has_diverged
from hogwild.training import tail_share

GAUGED = 500_000  # nonzeros times classes of the sample that the objective is taken of
TRIED = 400_000  # of the sample that steps are tried on
FEWEST = 1_000, 500  # rows of these samples, whatever they cost;
SEVERAL = 300  # of both, where each has several losses
TRIALS = (2, 10)  # fewest and most epochs of a trial,
TRIAL_ROWS = 1_500  # and rows between
COOLER = 0.25  # times the step on trial, in its last epoch
SLOW = 2  # times tol: an epoch that gains less has the next ones take smaller steps
REACHED = 1e-3  # tol, or less, that the epochs left must reach or be left out: who asks for less wants them all
AGAIN = 8  # times that a diverged fit begins again with a smaller step


@dataclass
class Outcome:
    """What a fit has found."""

    problem: LinearProblem
    step: float  # the first
    coef: Any = None  # as ``LinearProblem.solution``
    intercept: Any = None
    epochs: int = 0
    curve: list[float] = field(default_factory=list)  # the objective after each epoch
    scores: list[float] = field(default_factory=list)  # on the validation rows
    mean: np.ndarray | None = None  # of the flat parameters after each epoch, float64, where it is asked for


def mean_square(rows: Rows) -> float:
    """The mean weighted squared length of a row."""
    low, high = int(rows.begin[0]), int(rows.end[-1])
    squares = np.square(rows.values[low:high], dtype=np.float64)
    if rows.weights is not None:
        squares *= np.repeat(rows.weights, rows.end - rows.begin)
    return float(squares.sum()) / len(rows)


def first_power(rows: Rows) -> int:
    """Exponent of the first step to try: one over :func:`mean_square`."""
    mean = mean_square(rows)
    return round(-math.log2(mean)) if 0 < mean < math.inf else 0


def find_step(
    crew: Workers, rows: Rows, gauge: Gauge, start: np.ndarray | None, whole: bool, fine: bool = False,
    cooler: float = COOLER,
) -> float:  # fmt: skip
    """The step that does best in short runs of workers that have ``rows``, from ``start`` or zeros.

    The last epoch of a run is one of small steps, as the last epochs of a fit are: without it the noise of a large step
    hides how far it has come, and small ones win that are of no use. ``whole``: they are all the rows there are.
    """
    epochs, problem = int(np.clip(TRIAL_ROWS // len(rows), *TRIALS)), crew.problem
    crew.reset(start)
    before = crew.objective(gauge)

    def trial(power: int) -> float:
        step = 2.0**power
        if problem.scaled and problem.l2 * step * epochs * len(rows) > DEEPEST:
            return math.inf
        crew.reset(start)
        crew.run(0, (step, 1.0, 0.0), epochs - 1)
        crew.run(epochs - 1, (cooler * step, 1.0, 0.0))
        value = crew.objective(gauge)
        return math.inf if has_diverged(value, [before]) else value

    # of a few rows the best power of four does: the difference is within the noise
    power, _ = best_power(trial, before, first_power(rows), fine, 0.0 if whole else LITTLE)
    return 2.0**power


def try_steps(
    problem: LinearProblem, rows: Rows, seed: int, start: np.ndarray | None, cooler: float = COOLER, groups: int = 1,
    whole: bool = True,
) -> float:  # fmt: skip
    """:func:`find_step` on a sample of the rows, by as many ``groups`` of classes. ``whole``: no other rows follow.

    Of columns that are empty in the sample there are no weights: to pass over those of 2^20 hashed features after each
    epoch would take longer than the epochs. So the penalty of those that ``start`` has is no part of what is compared.
    """
    fewest = FEWEST[1] if problem.classes == 1 else SEVERAL
    part = sample(rows, TRIED, fewest, problem.classes, seed)
    if part.nnz < part.width:
        part, columns = narrowed(part)
        small = dataclasses.replace(problem, width=part.width)
        start = None if start is None else _of_columns(small, problem, start, columns)
        problem = small
    known = problem, Order.of(len(part)), part, row_arrays(problem, part, 1), seed
    own: Workers = Solo(*known) if groups == 1 else Classes(*known, groups)
    try:
        known_all = whole and len(part) == len(rows)
        return find_step(own, part, Gauge(problem, part), start, known_all, len(part) >= fewest, cooler)
    finally:
        own.close()


def _of_columns(small: LinearProblem, problem: LinearProblem, flat: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The parameters of some columns, as ``small`` has them."""
    found = aligned(small.size)
    to, of = small.parameters(found), problem.parameters(flat)
    to.coef.reshape(small.width, -1)[: len(columns)] = of.coef.reshape(problem.width, -1)[columns]
    to.intercept[:] = of.intercept
    return found


def descend(
    options: Options, rows: Rows, classes: int, *, seed: int, workers: int, start: Callable[[Any], Any],
    score: Callable[[np.ndarray, np.ndarray], float] | None, report: Callable[[int, float], None],
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
        Score of weights and intercept on rows held out, higher is better; decides when to stop instead of the
        objective.
    report : callable
        Given the number of epochs done and the objective, after each.

    Raises
    ------
    TrainingError
        If it diverges, and the step was not ours to choose.
    """
    alone = problem_of(options, rows, classes, "serial", whole=True)
    flat = start(alone)
    crew = _engage(alone, rows, options, seed, workers)
    try:
        gauge = Gauge(alone, sample(rows, GAUGED, max(FEWEST[0] // alone.classes, SEVERAL), alone.classes, seed))
        if options.learning_rate != "auto":
            first = options.eta0
        elif isinstance(crew, Solo) and len(rows) <= FEWEST[0] and rows.nnz >= rows.width and options.shuffle:
            first = find_step(crew, rows, gauge, flat, whole=True)  # of so few rows all are tried on
        else:
            first = try_steps(alone, rows, seed, flat, groups=crew.groups if isinstance(crew, Classes) else 1)
        for attempt in range(AGAIN + 1):
            crew.reset(flat)  # new memory too: touched in order, it comes at a quarter of the time
            found = Outcome(alone, first)
            if _epochs(options, found, crew, gauge, score, report, len(rows)):
                break
            if options.learning_rate != "auto" or attempt == AGAIN:
                raise TrainingError(_said(options, found))
            first /= 4
        if alone.l1:
            flat = crew.parameters() if found.mean is None else found.mean.astype(np.float32)
            found.coef, found.intercept = alone.solution(without_remainders(alone, flat, rows))
    finally:
        crew.close()
    return found


def _engage(alone: LinearProblem, rows: Rows, options: Options, seed: int, workers: int) -> Workers:
    """The workers, with the discipline that the data call for."""
    order = Order.of(len(rows), options.shuffle, 8 * rows.nnz / len(rows))
    apart = workers == 1 or can_share_out(alone.loss, alone.classes, workers, options.host)
    if not apart and not options.shrinks_alike(len(rows), order.chunk, workers):
        alone = dataclasses.replace(alone, scaled=False)
    arrays = row_arrays(alone, rows, workers)
    if workers == 1 and options.host == "threads":
        return Solo(alone, order, rows, arrays, seed)
    if apart and options.host == "threads":
        return Classes(alone, order, rows, arrays, seed, workers)
    return _race(alone, rows, order, arrays, options, seed, workers)


def _race(
    alone: LinearProblem, rows: Rows, order: Order, arrays: dict[str, np.ndarray], options: Options, seed: int,
    workers: int,
) -> Crew:  # fmt: skip
    """Workers that share parameters, or one in a process of its own."""
    discipline, tiers = "serial", None
    if workers > 1:
        problem = dataclasses.replace(alone, discipline="tiered")
        tiers, _ = choose(problem, rows, arrays | {"rates": about_rates(rows)}, workers)
        discipline = "hogwild" if tiers is None else "tiered"
    problem = dataclasses.replace(alone, discipline=discipline)
    return Crew(problem, order, rows, arrays, seed, workers, options.host, tiers)


def _epochs(options: Options, found: Outcome, crew: Workers, gauge: Gauge, score: Any, report: Any, n: int) -> bool:
    """Run the epochs and fill in ``found``; False if it diverged."""
    steps = Steps(options, found.step, found.problem.slope, n, options.l2)
    wait = min(-(-LOOK // n), -(-PATIENT * LOOK // (n * options.patience)))  # who is more patient looks more often
    looks = min(wait, max(options.max_iter // (options.patience + 1), 1))
    falls = options.learning_rate in ("optimal", "invscaling")  # steps that leap at first may come back
    averaged = 0
    start, best, stalled = crew.objective(gauge), math.inf, 0
    unit = 1.0  # of what tol counts
    if score is None:
        unit = gauge.weight * (1 if found.problem.loss == "softmax" else found.problem.classes)
    while found.epochs < options.max_iter:
        times = min(looks, options.max_iter - found.epochs)
        crew.run(found.epochs, steps.plan(found.epochs), times)
        found.epochs += times
        if options.average and found.epochs * n >= options.average:
            averaged += 1
            found.mean = _averaged(found.mean, crew.parameters(), averaged)
        value = crew.objective(gauge) if found.mean is None else gauge(found.mean.astype(np.float32))
        found.curve.append(value)
        if has_diverged(value, [] if falls else [start, *found.curve[:1]]):
            return False
        report(found.epochs, value)
        if score is not None:
            found.scores.append(score(*_solution(found, crew)))
            value = -found.scores[-1]
        scale = max(unit, abs(best) if math.isfinite(best) else 0.0)
        tol = options.tol * scale
        before = best
        improved = value <= best - tol if math.isfinite(options.tol) else True
        best, stalled = min(best, value), 0 if improved else stalled + 1
        steps.observe(value <= before - SLOW * tol)
        rest = options.patience - stalled, min(options.tol, REACHED) * scale
        settled = steps.settled(stalled, before - value, *rest) and score is None
        if settled or stalled >= options.patience:
            if not steps.give_more():
                break
            stalled = 0
    else:
        if math.isfinite(options.tol) and (not stalled or len(found.curve) > options.patience):
            _warn_of_end()  # but not where the looks were too few to say so, and the last one brought nothing
    found.coef, found.intercept = _solution(found, crew)
    return not (falls and has_diverged(found.curve[-1], [start, *found.curve[:1]]))


def _solution(found: Outcome, crew: Workers) -> tuple[np.ndarray, np.ndarray]:
    return crew.solution() if found.mean is None else found.problem.solution(found.mean.astype(np.float32))


def _averaged(mean: np.ndarray | None, flat: np.ndarray, epoch: int) -> np.ndarray:
    """The tail mean of the parameters after so many epochs, float64."""
    if mean is None:
        return flat.astype(np.float64)
    return mean + tail_share(epoch) * (flat - mean)


def _warn_of_end() -> None:
    from sklearn.exceptions import ConvergenceWarning

    said = (
        "Maximum number of iteration reached before convergence. Consider increasing max_iter to improve the fit. "
        "A larger tol ends it sooner"
    )
    warnings.warn(said, ConvergenceWarning, stacklevel=7)  # the line that calls fit


def _said(options: Options, found: Outcome) -> str:
    if options.learning_rate == "auto":
        return f"diverged at every step down to {found.step:.3g}: scale the columns of X"
    what = "an alpha above" if options.learning_rate == "optimal" else "an eta0 below"
    number = options.alpha if options.learning_rate == "optimal" else options.eta0
    said = diverged_in(found.epochs, found.curve[-1])
    return f"{said}; scale the columns of X, or try {what} {number:g}, or learning_rate='auto'"
