"""The epochs of one ``fit``: find a step, pass over the rows until the objective stalls, and return the solution.

A fit reports no rows of measurements, so only what ``tol`` needs is measured: the objective on a sample of the training
rows (``sample_objective.py``). It costs up to a tenth of an epoch.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, narrowed
from hogwild.errors import TrainingError
from hogwild.estimators.arrays import about_rates, converted, problem_of, rates_of
from hogwild.estimators.options import DEEPEST, LOOK, PATIENT, Options
from hogwild.estimators.sample_objective import Gauge, sample
from hogwild.estimators.steps import FitSteps
from hogwild.estimators.workers import Classes, RacingWorkers, Workers, can_share_out
from hogwild.problems.linear.contention import choose
from hogwild.problems.linear.coordinates import Coordinates, Scaling
from hogwild.problems.linear.optimum.finder import FIT_WORK, LARGEST, WORK, FitProblem
from hogwild.problems.linear.problem import LinearProblem, aligned
from hogwild.training.probe import LITTLE, best_power, first_power, mean_square
from hogwild.training.schedule import move_mean
from hogwild.training.solo import Solo
from hogwild.training.stopping import UNSETTLED, diverged_in, has_diverged, unsettled

GAUGED = 500_000  # nonzeros times classes of the sample that the objective is taken on
TRIED = 400_000  # nonzeros times classes of the sample that steps are tried on
FEWEST = 1_000, 500  # fewest rows of these two samples;
SEVERAL = 300  # of both, if each row has several losses
TRIALS = (2, 10)  # fewest and most epochs of a trial,
TRIAL_ROWS = 1_500  # and the rows that set their number between these
COOLER = 0.25  # factor on the step in the last epoch of a trial
SLOW = 2  # times tol: after an epoch that gains less, steps are smaller
REACHED = 1e-3  # largest tol that the remaining epochs must reach to be run; a fit with a smaller one runs them all
LOOSE, FEW_EPOCHS = 1e-3, 30  # tol above which, and max_iter below which, a fit is meant to end early
ABOVE = "The fit has ended above its optimum, and exact steps would take too long to reach it"
AGAIN = 8  # restarts of a diverged fit, each with a smaller step


@dataclass
class FitResult:
    """Result of a fit."""

    problem: LinearProblem
    step: float  # the first step
    coordinates: Coordinates = field(default_factory=Coordinates)
    coef: Any = None  # as ``LinearProblem.solution``
    intercept: Any = None
    epochs: int = 0
    curve: list[float] = field(default_factory=list)  # the objective after each epoch
    scores: list[float] = field(default_factory=list)  # on the validation rows
    mean: np.ndarray | None = None  # mean of the flat parameters after each epoch, float64, if averaging


def find_step(
    crew: Workers,
    rows: Rows,
    gauge: Gauge,
    start: np.ndarray | None,
    whole: bool,
    fine: bool = False,
    cooler: float = COOLER,
) -> float:
    """Step that does best in short runs of workers that hold ``rows``, from ``start`` or zeros.

    The last epoch of a run takes small steps, as the last epochs of a fit do: otherwise the noise of a large step would
    hide its progress, and small steps that are of no use would win. ``whole`` says that there are no other rows.
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

    # With few rows the best power of four suffices: the difference is within the noise.
    power, _ = best_power(trial, before, first_power(mean_square(rows, rows.weights)), fine, 0.0 if whole else LITTLE)
    return 2.0**power


def try_steps(
    problem: LinearProblem,
    rows: Rows,
    seed: int,
    start: np.ndarray | None,
    cooler: float = COOLER,
    groups: int = 1,
    whole: bool = True,
) -> float:
    """Do :func:`find_step` on a sample of the rows, with ``groups`` groups of classes. ``whole``: no other rows follow.

    Columns that are empty in the sample get no weights: a pass over all 2^20 hashed features after each epoch would
    take longer than the epochs. So the penalty of their weights in ``start`` is left out of the comparison.
    """
    fewest = FEWEST[1] if problem.classes == 1 else SEVERAL
    part = sample(rows, TRIED, fewest, problem.classes, seed)
    if part.nnz < part.width:
        part, columns = narrowed(part)
        small = dataclasses.replace(problem, width=part.width)
        start = None if start is None else _of_columns(small, problem, start, columns)
        problem = small
    known = problem, Order.of(len(part)), part, converted(part, rates_of(problem, part, 1)), seed
    own: Workers = Solo(*known) if groups == 1 else Classes(*known, groups)
    try:
        known_all = whole and len(part) == len(rows)
        return find_step(own, part, Gauge(problem, part), start, known_all, len(part) >= fewest, cooler)
    finally:
        own.close()


def _of_columns(small: LinearProblem, problem: LinearProblem, flat: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Parameters of some columns, in the layout of ``small``."""
    found = aligned(small.size)
    to, of = small.parameters(found), problem.parameters(flat)
    to.coef.reshape(small.width, -1)[: len(columns)] = of.coef.reshape(problem.width, -1)[columns]
    to.intercept[:] = of.intercept
    return found


def descend(
    options: Options,
    rows: Rows,
    classes: int,
    *,
    seed: int,
    workers: int,
    start: Callable[[Any], Any],
    score: Callable[[np.ndarray, np.ndarray], float] | None,
    report: Callable[[int, float], None],
) -> FitResult:
    """Train on the rows until the objective, or the score, stops improving, or for ``max_iter`` epochs.

    Parameters
    ----------
    options : Options
    rows : Rows
        Rows with kernel targets.
    classes : int
        Number of classes; 0 for real targets.
    seed, workers : int
    start : callable
        Takes the problem and returns the flat parameters to start from, or None for zeros.
    score : callable, optional
        Takes weights and intercept and returns their score on held-out rows, higher is better; if given, it decides
        when to stop instead of the objective.
    report : callable
        Takes the number of epochs done and the objective, after each.

    Raises
    ------
    TrainingError
        If training diverges with a step that the caller chose.
    """
    coordinates = Coordinates(Scaling.of(rows, options.intercept) if options.scale_columns else None)
    given, rows = rows, coordinates.rows(rows)
    alone = problem_of(options, rows, classes, "serial", whole=True)
    flat = start(alone)
    if flat is not None:
        _move_inward(alone, flat, coordinates)
    crew = _engage(alone, rows, options, seed, workers)
    try:
        gauge = Gauge(alone, sample(rows, GAUGED, max(FEWEST[0] // alone.classes, SEVERAL), alone.classes, seed))
        if options.learning_rate != "auto":
            first = options.eta0
        elif isinstance(crew, Solo) and len(rows) <= FEWEST[0] and rows.nnz >= rows.width and options.shuffle:
            first = find_step(crew, rows, gauge, flat, whole=True)  # so few rows that all are used in the trials
        else:
            first = try_steps(alone, rows, seed, flat, groups=crew.groups if isinstance(crew, Classes) else 1)
        for attempt in range(AGAIN + 1):
            crew.reset(flat)  # new memory too: touched in order, it comes in a quarter of the time
            found = FitResult(alone, first, coordinates)
            if _epochs(options, found, crew, gauge, score, report, len(rows)):
                break
            if options.learning_rate != "auto" or attempt == AGAIN:
                raise TrainingError(_said(options, found))
            first /= 4
        meant = options.tol <= LOOSE and not (found.epochs == options.max_iter < FEW_EPOCHS)
        rate = options.learning_rate
        if alone.l1 or (score is None and meant and rate in ("auto", "optimal")):
            _finish(found, options, given, rate == "auto" and not options.average, score)
    finally:
        crew.close()
    return found


def _finish(found: FitResult, options: Options, rows: Rows, usual: bool, score: Any) -> None:
    """Take exact steps where stochastic ones have ended above the optimum, or with an l1 penalty, for its zeros.

    ``usual`` says that the bound of stochastic gradient descent holds. With a ``score``, which must not fall, there is
    no warning.
    """
    p, coef, intercept = found.problem, found.coef, found.intercept
    if p.loss == "perceptron":  # its lowest objective is that of zero weights
        return
    about = p.loss, p.loss_param, p.l1, p.l2, rows.targets, rows.weights, None, options.intercept
    problem, many = FitProblem(rows, *about), rows.nnz * p.classes > LARGEST
    if not p.l1 and (many or (usual and problem.has_settled(found.epochs))):
        return
    skip = None if p.l1 else UNSETTLED / 2
    best = problem.lowered(coef, intercept, WORK if p.l1 else FIT_WORK, skip=skip)
    solution = best.coef.astype(np.float32), best.intercept.astype(np.float32)
    if best.steps and (score is None or score(*solution) >= score(coef, intercept)):
        found.coef, found.intercept = solution
    if score is None and not best.is_near(UNSETTLED):
        _warn(f"{ABOVE}: a larger alpha, or columns of one scale, bring it nearer", 1)


def _engage(alone: LinearProblem, rows: Rows, options: Options, seed: int, workers: int) -> Workers:
    """The workers, with the discipline that suits the data."""
    order = Order.of(len(rows), options.shuffle, 8 * rows.nnz / len(rows))
    apart = workers == 1 or can_share_out(alone.loss, alone.classes, workers, options.host)
    if not apart and not options.shrinks_alike(len(rows), order.chunk, workers):
        alone = dataclasses.replace(alone, scaled=False)
    arrays = converted(rows, rates_of(alone, rows, workers))
    if workers == 1 and options.host == "threads":
        return Solo(alone, order, rows, arrays, seed)
    if apart and options.host == "threads":
        return Classes(alone, order, rows, arrays, seed, workers)
    return _race(alone, rows, order, arrays, options, seed, workers)


def _race(
    alone: LinearProblem,
    rows: Rows,
    order: Order,
    arrays: dict[str, np.ndarray],
    options: Options,
    seed: int,
    workers: int,
) -> RacingWorkers:
    """Workers that share parameters, or a single one in a process of its own."""
    discipline, tiers = "serial", None
    if workers > 1:
        problem = dataclasses.replace(alone, discipline="tiered")
        tiers, _ = choose(problem, rows, arrays | {"rates": about_rates(rows)}, workers)
        discipline = "hogwild" if tiers is None else "tiered"
    problem = dataclasses.replace(alone, discipline=discipline)
    return RacingWorkers(problem, order, rows, arrays, seed, workers, options.host, tiers)


def _epochs(options: Options, found: FitResult, crew: Workers, gauge: Gauge, score: Any, report: Any, n: int) -> bool:
    """Run the epochs and fill in ``found``; return False if the fit diverged."""
    last = 0 if math.isfinite(options.tol) else options.max_iter
    steps = FitSteps(options, found.step, found.problem.slope, n, options.l2, last=last)
    wait = min(-(-LOOK // n), -(-PATIENT * LOOK // (n * options.patience)))  # more patience means more frequent looks
    looks = min(wait, max(options.max_iter // (options.patience + 1), 1))
    falls = options.learning_rate in ("optimal", "invscaling")  # after a leap at first, the objective may come back
    averaged = 0
    start, best, stalled = crew.objective(gauge), math.inf, 0
    unit = 1.0  # the objective's unit for tol
    if score is None:
        unit = gauge.weight * (1 if found.problem.loss == "softmax" else found.problem.classes)
    while found.epochs < options.max_iter:
        times = min(looks, options.max_iter - found.epochs)
        crew.run(found.epochs, steps.plan(found.epochs), times)
        found.epochs += times
        if options.average and found.epochs * n >= options.average:
            averaged += 1
            if found.mean is None:
                found.mean = np.zeros(found.problem.size)
            move_mean(found.mean, crew.parameters(), averaged)
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
            _warn_of_end(
                [start, *found.curve], options.tol, looks
            )  # unless the looks were too few to tell, and the last one brought nothing
    found.coef, found.intercept = _solution(found, crew)
    return not (falls and has_diverged(found.curve[-1], [start, *found.curve[:1]]))


def _solution(found: FitResult, crew: Workers) -> tuple[np.ndarray, np.ndarray]:
    if found.mean is not None:
        return _unscaled(found, found.mean.astype(np.float32))
    return found.coordinates.outward(*crew.solution())


def _unscaled(found: FitResult, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The solution in the user's columns."""
    return found.coordinates.outward(*found.problem.solution(flat))


def _move_inward(problem: LinearProblem, flat: np.ndarray, coordinates: Coordinates) -> None:
    """Convert the user's parameters to those of the coordinates, in place."""
    parts, coef, intercept = problem.parameters(flat), *coordinates.inward(*problem.solution(flat))
    parts.coef.reshape(problem.width, problem.stride)[:, : problem.classes] = coef.reshape(-1, problem.width).T
    parts.intercept[: problem.classes] = intercept


def _warn_of_end(curve: list[float], tol: float, epochs: int) -> None:
    """Warn as scikit-learn does, with what the objective did in looks that are ``epochs`` apart."""
    said = "Maximum number of iteration reached before convergence. Consider increasing max_iter to improve the fit"
    parts = said, unsettled(curve, tol, epochs), "A larger tol ends it sooner"
    _warn(". ".join(filter(None, parts)), 2)


def _warn(said: str, within: int = 0) -> None:
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(said, ConvergenceWarning, stacklevel=6 + within)  # the line that calls fit


def _said(options: Options, found: FitResult) -> str:
    if options.learning_rate == "auto":
        return f"diverged at every step down to {found.step:.3g}: scale the columns of X"
    what = "an alpha above" if options.learning_rate == "optimal" else "an eta0 below"
    number = options.alpha if options.learning_rate == "optimal" else options.eta0
    said = diverged_in(found.epochs, found.curve[-1])
    return f"{said}; scale the columns of X, or try {what} {number:g}, or learning_rate='auto'"
