"""The epochs of one ``fit``: find a step, pass over the rows until the objective stalls, and return the solution.

A fit reports no rows of measurements, so only what ``tol`` needs is measured: the objective on a sample of the training
rows, which costs up to a tenth of an epoch. Steps, trials and workers are the trainer's; one worker does its epochs in
the caller's thread. If a fit diverges with steps that were found by trial, it begins again with a quarter of the step.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hogwild.data.order import Order
from hogwild.data.rows.container import EMPTY, Rows, drawn, narrowed, readonly
from hogwild.data.rows.margins_kernel import margins, margins_of_classes
from hogwild.errors import TrainingError
from hogwild.estimators.arrays import (
    DEEPEST,
    LOOK,
    Start,
    converted,
    flat_of,
    mean_weight,
    problem_of,
    shrinks_alike,
)
from hogwild.estimators.options import FitConfig
from hogwild.kernels.losses import LOSSES
from hogwild.kernels.tiers import Tiers
from hogwild.problems.linear.coordinates import Coordinates, Scaling
from hogwild.problems.linear.objective import loss_values, signs_of
from hogwild.problems.linear.objective_kernel import losses, sum_of_squares
from hogwild.problems.linear.optimum.finder import FitProblem
from hogwild.problems.linear.problem import LinearProblem
from hogwild.problems.linear.tiers import choose
from hogwild.training.engine import start_pool
from hogwild.training.keep import UNSETTLED, diverged_in, has_diverged, unsettled
from hogwild.training.schedule import Adaptive, Cooling, Schedule, Step, make_schedule, move_mean
from hogwild.training.step_search import LITTLE, StepTrials, best_power, first_power, mean_square
from hogwild.training.workers import InlineWorker, RacingWorkers, Workers

JUDGED = 500_000  # nonzeros times classes of the sample that the objective is taken on
TRIED = 400_000  # nonzeros times classes of the sample that steps are tried on
FEWEST_JUDGED = 1_000  # rows of the first sample
FEWEST_TRIED = 500  # rows of the second sample
SEVERAL = 300  # rows of both, if each row has several losses
SHARE = 4  # a sample is one row in this many
WHOLE = 20  # all rows are taken if their entries are at most one in this many of those allowed
TRIALS = (2, 10)  # fewest and most epochs of a trial
TRIAL_ROWS = 1_500  # rows that set the number of a trial's epochs
COOLER = 0.25  # factor on the step in the last epoch of a trial
SLOW = 2  # times tol: after an epoch that gains less, steps are smaller
REACHED = 1e-3  # largest tol that the remaining epochs must reach to be run; a fit with a smaller one runs them all
LOOSE = 1e-3  # tol above which a fit is meant to end early
FEW_EPOCHS = 30  # max_iter below which a fit is meant to end early
ABOVE = "The fit has ended above its optimum, and exact steps would take too long to reach it"
CUT = "Maximum number of iteration reached before convergence. Consider increasing max_iter to improve the fit"
PATIENT = 20  # looks without progress, LOOK rows each, after which waiting longer is useless
RESTARTS = 8  # of a diverged fit, each with a smaller step


@dataclass
class FitResult:
    """Result of a fit."""

    coef: Any = None  # as ``LinearProblem.solution``, in the user's columns
    intercept: Any = None
    epochs: int = 0
    curve: list[float] = field(default_factory=list)  # the objective after each epoch
    scores: list[float] = field(default_factory=list)  # on the validation rows
    warning: str = ""  # why it may be far above its optimum


def sample_objective(problem: LinearProblem, rows: Rows) -> Callable[[np.ndarray], float]:
    """The objective of flat parameters on some rows: mean weighted loss plus penalties, float64.

    The evaluator's loops are called one after the other, on views that are kept: on a few hundred rows the calls are
    the cost, and ``Objective`` itself, which streams rows through threads and counts what else a table of results
    shows, takes ten times as long. Unlike scikit-learn's running loss, the objective includes the penalty, and it is
    taken at the current weights, not at those before each row.

    Parameters
    ----------
    problem : LinearProblem
    rows : Rows
        Contiguous rows with kernel targets.
    """
    p = problem
    entries = rows.begin, rows.end, rows.indices, rows.values
    kept: np.ndarray | None = None  # the parameters whose views are kept
    coef = intercept = EMPTY
    targets = rows.targets.astype(np.float64)
    if p.classes > 1 and p.loss != "softmax":
        targets = signs_of(targets, p.classes) if rows.labels is None else rows.labels.signs(targets)
    targets = readonly(targets)
    one = p.classes == 1
    of_rows = np.empty(len(rows) if one else (len(rows), p.stride))
    losses_of = losses(LOSSES[p.loss].code)

    def objective(flat: np.ndarray) -> float:
        nonlocal kept, coef, intercept
        if kept is not flat:
            kept, views = flat, p.parameters(flat)
            coef, intercept = readonly(views.coef), views.intercept
        if one:
            margins(*entries, coef, float(intercept[0]), EMPTY, of_rows)
            values = np.empty(len(rows))
            losses_of(of_rows, targets, p.loss_param, values)
        else:
            margins_of_classes(*entries, coef.reshape(p.width, -1), intercept.astype(np.float64), EMPTY, of_rows)
            values = loss_values(p.loss, of_rows[:, : p.classes], targets, p.loss_param)
        lost = (values if rows.weights is None else values * rows.weights).sum()
        value = float(lost) / len(rows)
        penalised = coef
        if rows.inverse is not None and (p.l1 or p.l2):
            penalised = readonly((coef.reshape(p.width, -1) * rows.inverse[:, None]).astype(np.float32).ravel())
        if p.l2:
            value += p.l2 / 2 * sum_of_squares(penalised)
        if p.l1:
            value += p.l1 * float(np.abs(penalised).sum(dtype=np.float64))
        return value

    return objective


def sampled(rows: Rows, entries: int, fewest: int, classes: int, seed: int) -> Rows:
    """A random quarter of the rows, or fewer, such that their nonzeros times ``classes`` are at most ``entries``.

    The sample has at least ``fewest`` rows. It is all rows if there are no more, or so few that drawing takes longer.
    """
    per_row = max(rows.nnz / max(len(rows), 1), 1.0) * classes
    count = max(fewest, min(len(rows) // SHARE, int(entries / per_row)))
    if count >= len(rows) or per_row * len(rows) <= entries / WHOLE:
        return rows if rows.contiguous else rows.compact()
    return drawn(rows, count, seed)


def schedule_of(
    config: FitConfig, step: float, problem: LinearProblem, rows: int, fall: float, visited: int = 0, epochs: int = 0
) -> Schedule:
    """The steps of a fit; ``fall`` and what follows are for ``auto``, see :class:`Cooling`."""
    if config.schedule == "auto":
        return Cooling(step, fall, rows, visited, epochs)
    return make_schedule(config.schedule, config.step, power=config.power, l2=config.alpha, dloss=problem.slope)


def find_step(
    workers: Workers,
    rows: Rows,
    objective: Callable[[np.ndarray], float],
    start: np.ndarray | None,
    whole: bool = True,
    fine: bool = False,
) -> float:
    """Step that does best in short runs of workers that hold ``rows``, from ``start`` or zeros.

    The last epoch of a run takes small steps, as the last epochs of a fit do: otherwise the noise of a large step would
    hide its progress, and small steps that are of no use would win. ``whole`` says that there are no other rows. With
    few rows the best power of four suffices, so ``fine`` is False: the difference is within the noise.
    """
    epochs = int(np.clip(TRIAL_ROWS // len(rows), *TRIALS))
    problem = workers.problem
    visits = problem.l2 * epochs * len(rows) if problem.scaled else 0.0

    def plan(step: float) -> Iterator[tuple[int, Step]]:
        yield epochs - 1, (step, 1.0, 0.0)
        yield 1, (COOLER * step, 1.0, 0.0)

    trials = StepTrials(workers, objective, plan, start, (epochs,), DEEPEST / visits if visits else math.inf)
    first = first_power(mean_square(rows, rows.weights))
    power, _ = best_power(trials, trials.before, first, fine, 0.0 if whole else LITTLE)
    return 2.0**power


def try_steps(problem: LinearProblem, rows: Rows, seed: int, start: np.ndarray | None) -> float:
    """Do :func:`find_step` on a sample of the rows.

    Columns that are empty in the sample get no weights: a pass over all 2^20 hashed features after each epoch would
    take longer than the epochs. So the penalty of their weights in ``start`` is left out of the comparison.
    """
    fewest = FEWEST_TRIED if problem.classes == 1 else SEVERAL
    part = sampled(rows, TRIED, fewest, problem.classes, seed)
    if part.nnz < part.width:
        part, columns = narrowed(part)
        small = dataclasses.replace(problem, width=part.width)
        if start is not None:
            coef, intercept = problem.solution(start)
            start = flat_of(small, coef[..., columns], intercept)
        problem = small
    worker = InlineWorker(problem, Order.of(len(part)), part, converted(part, problem.rates(part, 1)), seed)
    whole = len(part) == len(rows)
    return find_step(worker, part, sample_objective(problem, part), start, whole, len(part) >= fewest)


def descend(
    config: FitConfig,
    rows: Rows,
    classes: int,
    start: Start | None,
    score: Callable[[np.ndarray, np.ndarray], float] | None,
    report: Callable[[int, float], None],
) -> FitResult:
    """Train on the rows until the objective, or the score, stops improving, or for ``epochs`` epochs.

    Parameters
    ----------
    config : FitConfig
    rows : Rows
        Rows with kernel targets.
    classes : int
        Number of classes; 0 for real targets.
    start : pair of arrays, optional
        Weights and intercepts to start from; zeros if not given.
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
    coordinates = Coordinates(Scaling.of(rows, config.intercept) if config.scale_columns else None)
    scaled = coordinates.rows(rows)
    problem = problem_of(config, scaled, classes, whole=True)
    flat = None
    if start is not None:
        coef, intercept = start
        flat = flat_of(problem, *coordinates.inward(coef if problem.classes > 1 else coef[0], intercept))
    team = _start_workers(problem, scaled, config)
    auto = config.schedule == "auto"
    try:
        fewest = max(FEWEST_JUDGED // problem.classes, SEVERAL)
        sample = sampled(scaled, JUDGED, fewest, problem.classes, config.seed)
        objective = sample_objective(problem, sample)
        unit = 1.0  # the objective's unit for tol
        if score is None:
            unit = mean_weight(sample) * (1 if problem.loss == "softmax" else problem.classes)
        few = len(rows) <= FEWEST_JUDGED and rows.nnz >= rows.width and config.order == "shuffled"
        if not auto:
            step = config.step or 0.0
        elif isinstance(team, InlineWorker) and few:  # so few rows that all are used in the trials
            step = find_step(team, scaled, objective, flat)
        else:
            step = try_steps(problem, scaled, config.seed, flat)
        for attempt in range(RESTARTS + 1):
            team.reset(flat)  # new memory too: touched in order, it comes in a quarter of the time
            fit = FitResult()
            if _epochs(fit, config, coordinates, step, team, objective, unit, score, report, len(rows)):
                break
            if not auto:
                remedy = f"an alpha above {config.alpha:g}" if config.step is None else f"an eta0 below {step:g}"
                end = diverged_in(fit.epochs, fit.curve[-1])
                raise TrainingError(f"{end}: scale the columns of X, or try {remedy}, or learning_rate='auto'")
            if attempt == RESTARTS:
                raise TrainingError(f"diverged at every step down to {step:.3g}: scale the columns of X")
            step /= 4
    finally:
        team.close()
    meant = config.tol <= LOOSE and not (fit.epochs == config.epochs < FEW_EPOCHS)
    if problem.l1 or (score is None and meant and config.schedule in ("auto", "optimal")):
        _finish(fit, problem, rows, config, score)
    if fit.warning:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(fit.warning, ConvergenceWarning, stacklevel=4)  # the line that calls fit
    return fit


def _finish(fit: FitResult, p: LinearProblem, rows: Rows, config: FitConfig, score: Any) -> None:
    """Take exact steps where stochastic ones have ended above the optimum, or with an l1 penalty, for its zeros.

    With a ``score``, which must not fall, there is no warning.
    """
    if p.loss == "perceptron":  # its lowest objective is that of zero weights
        return
    problem = FitProblem(
        rows, p.loss, p.loss_param, p.l1, p.l2, rows.targets, rows.weights, None, config.intercept, rows.labels
    )
    usual = config.schedule == "auto" and not config.average  # the bound of stochastic gradient descent holds
    if not p.l1 and usual and problem.has_settled(fit.epochs, fit.curve[-1]):
        return
    skip = None if p.l1 else UNSETTLED / 2
    best = problem.lowered(fit.coef, fit.intercept, problem.work(fit.epochs, p.classes), skip=skip)
    coef = best.coef.astype(np.float32)
    intercept = best.intercept.astype(np.float32)
    if best.steps and (score is None or score(coef, intercept) >= score(fit.coef, fit.intercept)):
        fit.coef = coef
        fit.intercept = intercept
    if best.is_near(UNSETTLED):
        fit.warning = ""
    elif score is None:
        fit.warning = fit.warning or f"{ABOVE}: a larger alpha, or columns of one scale, bring it nearer"


def _start_workers(problem: LinearProblem, rows: Rows, config: FitConfig) -> Workers:
    """The workers, with the discipline that suits the data."""
    workers = config.workers or 1
    order = Order.of(len(rows), config.order == "shuffled", 8 * rows.nnz / len(rows))
    if workers > 1 and not shrinks_alike(config, len(rows), order.chunk):
        problem = dataclasses.replace(problem, scaled=False)
    arrays = converted(rows, problem.rates(rows, workers))
    if workers == 1 and config.host == "threads":
        return InlineWorker(problem, order, rows, arrays, config.seed)
    discipline = "serial"
    tiers: Tiers | None = None
    if workers > 1:
        tiered = dataclasses.replace(problem, discipline="tiered")
        tiers, _ = choose(tiered, rows, arrays, workers)
        discipline = "hogwild" if tiers is None else "tiered"
    problem = dataclasses.replace(problem, discipline=discipline)
    return RacingWorkers(problem, order, rows, arrays, config.seed, start_pool(config.host, workers), tiers)


def _epochs(
    fit: FitResult,
    config: FitConfig,
    coordinates: Coordinates,
    step: float,
    workers: Workers,
    objective: Callable[[np.ndarray], float],
    unit: float,
    score: Any,
    report: Any,
    n: int,
) -> bool:
    """Run the epochs and fill in ``fit``; return False if it diverged."""
    problem = workers.problem
    stops = math.isfinite(config.tol)
    patience = config.patience or 0
    schedule = schedule_of(config, step, problem, n, config.l2, epochs=0 if stops else config.epochs)
    cooling = schedule if isinstance(schedule, Cooling) else None
    wait = min(-(-LOOK // n), -(-PATIENT * LOOK // (n * patience)))  # more patience means more frequent looks
    looks = min(wait, max(config.epochs // (patience + 1), 1))
    falls = config.schedule in ("optimal", "inverse")  # after a leap at first, the objective may come back
    mean: np.ndarray | None = None  # of the parameters after each epoch, if averaging
    averaged = 0
    start = objective(workers.parameters())
    best = math.inf
    stalled = 0

    def solution() -> tuple[np.ndarray, np.ndarray]:
        """In the user's columns."""
        flat = workers.parameters() if mean is None else mean.astype(np.float32)
        return coordinates.outward(*problem.solution(flat))

    while fit.epochs < config.epochs:
        times = min(looks, config.epochs - fit.epochs)
        workers.run(fit.epochs, schedule.plan(fit.epochs), times)
        fit.epochs += times
        if config.average and fit.epochs * n >= config.average:
            averaged += 1
            mean = np.zeros(problem.size) if mean is None else mean
            move_mean(mean, workers.parameters(), averaged)
        value = objective(workers.parameters() if mean is None else mean.astype(np.float32))
        fit.curve.append(value)
        if has_diverged(value, [] if falls else [start, *fit.curve[:1]]):
            return False
        report(fit.epochs, value)
        if score is not None:
            fit.scores.append(score(*solution()))
            value = -fit.scores[-1]
        scale = max(unit, abs(best) if math.isfinite(best) else 0.0)
        tol = config.tol * scale
        gain = best - value
        stalled = stalled + 1 if stops and value > best - tol else 0
        if cooling and stops and value > best - SLOW * tol:
            cooling.cool()
        best = min(best, value)
        rest = patience - stalled
        settled = cooling and score is None and cooling.settled(stalled, gain, rest, min(config.tol, REACHED) * scale)
        if settled or stalled >= patience:
            if not (isinstance(schedule, Adaptive) and schedule.divide()):
                break
            stalled = 0
    else:
        if stops and (not stalled or len(fit.curve) > patience):
            # unless the looks were too few to tell, and the last one brought nothing
            motion = unsettled([start, *fit.curve], config.tol, looks)
            fit.warning = ". ".join(filter(None, (CUT, motion, "A larger tol ends it sooner")))
    fit.coef, fit.intercept = solution()
    return not (falls and has_diverged(fit.curve[-1], [start, *fit.curve[:1]]))
