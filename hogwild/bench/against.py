"""Other programs on the same data: the time each takes to the same held-out loss.

To favour no program, all minimise the same objective, and the target is the held-out loss of its optimum, as found by
scikit-learn's deterministic solvers, plus half a percent. Each program is trained from scratch with growing effort
until it reaches the target (with equally many step sizes tried for all that have one), and only the cheapest training
that did is timed, in interleaved rounds. There are fewer rounds than elsewhere, since these trainings are long.

``effort`` is a number of epochs, iterations or passes. The clock covers the program's own training call: converting our
arrays to a program's input is off the clock for all, except that VW has no call that trains without reading, so reading
its binary cache is on the clock.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hogwild.bench.rounds import BenchPlan, Row, Timing, interleaved, ratio
from hogwild.compare.reference.outside import OUTSIDE, Outside, timed
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.errors import InputError
from hogwild.problems.linear.objective import loss_values
from hogwild.training.run import train

L2 = 1e-5
LOSSES = ("log", "hinge")
SLACK = 1.005
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the one that our search finds
EFFORTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
QUICK_EFFORTS = (1, 2, 4, 8, 16)
MORE_EFFORTS = (48, 64, 96, 128, 192, 256, 384, 512)  # of programs without a step, which are tried once
PATIENCE = 60.0  # seconds of search that a program gets for each loss; a tenth in a quick run


class Fit(NamedTuple):
    """The result of a training, and its cost."""

    seconds: float
    coef: np.ndarray  # (width,)
    intercept: float


class Ours:
    """One worker; what is not on a run's own clock is ``untimed``."""

    seconds_replace, untimed = False, 0.0

    def __init__(self, rows: Rows, config: TrainConfig) -> None:
        self._rows, self._config = rows, config

    def advance(self, epoch: int) -> None:
        start = time.perf_counter()
        run = train(self._rows, config=self._config)
        self._model = run.finish()
        self.untimed = time.perf_counter() - start - run.history[-1]["train_seconds"]

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self._model.coef_, self._model.intercept_


PROGRAMS = (
    Outside("hogwild", "hogwild", Ours, lambda config, rows: None, "shuffled"),
    *(OUTSIDE[name] for name in ("sklearn-sgd", "snapml", "liblinear", "vowpal-wabbit")),
)


class Fits:
    """Trainings of one program on the same rows, each from scratch."""

    def __init__(self, program: Outside, rows: Rows, config: TrainConfig) -> None:
        self.config = config
        self._program = program
        self._rows = rows
        self._reusable: Any = None  # a solver without a step, whose every call trains from scratch

    def __call__(self, effort: int, step: float | None) -> Fit:
        """Train with this effort and step."""
        config = dataclasses.replace(self.config, step=step, epochs=effort, patience=0)
        solver = self._reusable or self._program.make(self._rows, config)
        self._reusable = None if self._program.steps else solver
        seconds = timed(solver, effort)
        coef, intercept = solver.solution()
        return Fit(seconds, np.ravel(coef).astype(np.float64), float(np.ravel(intercept)[0]))


@dataclasses.dataclass
class Attempt:
    """A program, and the least effort at which it reached the target; 0 if it never did."""

    fits: Fits
    effort: int = 0
    step: float | None = None
    loss: float = math.nan  # at that effort; the best loss reached if it never got there

    def again(self) -> float:
        """Return the seconds of one more such training."""
        return self.fits(self.effort, self.step).seconds


def measure(plan: BenchPlan, rows: Rows, held_out: Rows) -> Iterator[Row]:
    """Yield the seconds of every program to the target, for logistic regression and for a support vector machine.

    Raises
    ------
    InputError
        If there are not two classes.
    """
    if len(np.unique(rows.targets)) != 2:
        raise InputError("other programs are measured on two classes; the targets have another number of values")
    for loss in LOSSES:
        yield from _time_to_loss(plan, rows, held_out, loss)


def _time_to_loss(plan: BenchPlan, rows: Rows, held_out: Rows, loss: str) -> Iterator[Row]:
    X, y = held_out.to_scipy()
    signs = np.where(y == np.max(rows.targets), 1.0, -1.0)

    def judge(fit: Fit) -> float:
        return float(loss_values(loss, X @ fit.coef + fit.intercept, signs).mean())

    plan.note(f"{loss}: finding a step and the optimum")
    with train(rows, loss=loss, l2=L2, schedule="constant", workers=1, host="threads") as run:
        config = run.config
    target = SLACK * judge(optimum_of(rows, loss))
    attempts: dict[str, Attempt] = {}
    for program in PROGRAMS:
        if program.version is not None:
            plan.note(f"{loss}: {program.name} searches for its steps and effort")
            attempts[program.name] = _search(plan, program, Fits(program, rows, config), judge, target)
    sides = {name: attempt.again for name, attempt in attempts.items() if attempt.effort}
    times = interleaved(sides, max(plan.repeats // 3, 2), lambda text: plan.note(f"{loss}: {text}"))
    for program in PROGRAMS:
        attempt = attempts.get(program.name)
        why = f"not installed (pip install {program.package})" if attempt is None else "did not reach the target"
        timing = times.get(program.name, Timing(None, status=why))
        row: Row = {"loss": loss, "method": program.name, "version": program.version, "workers": 1}
        row |= {"held_out_target": target}
        if attempt is not None:
            row |= {"effort": attempt.effort or None, "step": attempt.step, "held_out": attempt.loss}
        ours = times["hogwild"].seconds if "hogwild" in times else None
        yield timing.fields() | row | {"ours_faster": ratio(timing.seconds, ours)}


def _search(plan: BenchPlan, program: Outside, fits: Fits, judge: Callable[[Fit], float], target: float) -> Attempt:
    """Return the least effort that reaches the target, over all steps; for equal efforts, the step of lowest loss."""
    best = Attempt(fits)
    efforts = (*(QUICK_EFFORTS if plan.quick else EFFORTS), *(() if program.steps else MORE_EFFORTS))
    deadline = time.monotonic() + PATIENCE * (0.1 if plan.quick else 1.0)
    base = fits.config.step or 1.0
    for step in [factor * base for factor in STEPS] if program.steps else [base]:
        for effort in efforts:
            if time.monotonic() > deadline:
                return best
            loss = judge(fits(effort, step))
            if loss <= target and (not best.effort or (effort, loss) < (best.effort, best.loss)):
                best = Attempt(fits, effort, step, loss)
            if best.effort and effort >= best.effort:
                break  # target reached, or another step was faster
            best.loss = loss if math.isnan(best.loss) else min(best.loss, loss)
    return best


def optimum_of(rows: Rows, loss: str) -> Fit:
    """Return the objective's minimum, by a deterministic solver that is not compared."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    X, y = rows.to_scipy()
    C = 1 / (L2 * len(rows))
    solver: Any = LogisticRegression(C=C, tol=1e-5, max_iter=1000)
    if loss == "hinge":  # LIBLINEAR determines the weights to many digits
        solver = LinearSVC(loss="hinge", C=C, tol=1e-4, max_iter=10_000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a solver that is stopped, whose loss is the target all the same
        solver.fit(X, y)
    return Fit(0.0, np.ravel(solver.coef_), float(np.ravel(solver.intercept_)[0]))
