"""Other programs on the same data: an epoch of those that can be driven by epochs, and the time to a held-out loss.

    python scripts/bench/against.py DATA... [--problem completion] [--rank 32] [--repeats 9] > ROWS

Rows are JSON lines. scikit-learn's SGD and, for ratings, cornac take turns with one serial worker, epoch by epoch, from
the same start with the same step. Of two classes all programs are timed besides to the same held-out loss.

To favour no program, all minimise the same objective, and the target is the held-out loss of its optimum, as found by
scikit-learn's deterministic solvers, plus half a percent. Each program is trained from scratch with growing effort
until it reaches the target (with equally many step sizes tried for all that have one), and only the cheapest training
that did is timed, in interleaved rounds. There are fewer rounds than elsewhere, since these trainings are long.

``effort`` is a number of epochs, iterations or passes. The clock covers the program's own training call: converting our
arrays to a program's input is off the clock for all, except that VW has no call that trains without reading, so reading
its binary cache is on the clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from hogwild import machine, open_data, open_ratings
from hogwild.bench import HELD_OUT, Row, Timing, Training, interleaved, ratio
from hogwild.compare.reference.outside import OUTSIDE, Outside, timed
from hogwild.config import TrainConfig
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import loss_values
from hogwild.problems.protocol import case_of
from hogwild.rows_file import to_json
from hogwild.training.run import train

L2 = 1e-5
LOSSES = ("log", "hinge")
SLACK = 1.005
STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the one that our search finds
EFFORTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MORE_EFFORTS = (48, 64, 96, 128, 192, 256, 384, 512)  # of programs without a step, which are tried once
PATIENCE = 60.0  # seconds of search that a program gets for each loss
RIVALS = {"linear": "sklearn-sgd", "completion": "cornac"}  # driven epoch by epoch
RATES = {"linear": "nonzeros_per_second", "completion": "ratings_per_second"}


# ---- epochs


class Rival:
    """A side that does an epoch of another program, which has the start and the step of ours."""

    def __init__(self, program: Outside, data: Any, test: Any, config: TrainConfig) -> None:
        self._epoch = 0
        self._solver = program.make(data, config)
        self._workers = config.workers or 1
        self._case = case_of(config.problem)(dataclasses.replace(config, workers=1, discipline="serial"), data, test)
        self._case.make_evaluator()

    @property
    def last(self) -> Row:
        """What it has learned so far."""
        return self._case.evaluate(self._solver.solution())

    def __call__(self) -> float:
        usable = os.sched_getaffinity(0)
        self._epoch += 1
        os.sched_setaffinity(0, set(machine.one_cpu_a_core()[: self._workers]) or usable)
        try:
            return timed(self._solver, self._epoch)
        finally:
            os.sched_setaffinity(0, usable)


def epochs(problem: str, data: Any, test: Any, repeats: int, **options: Any) -> Iterator[Row]:
    """Yield the seconds of an epoch of one serial worker and of the rival, with as many workers as that can take."""
    rival = OUTSIDE[RIVALS[problem]]
    if problem == "completion":
        options |= {"penalty": "per-rating"}  # which cornac has too
    for workers in machine.worker_counts(machine.physical_cores()) if problem == "completion" else (1,):
        with closing(Training.of(data, test, problem=problem, workers=1, discipline="serial", **options)) as ours:
            sides: dict[str, Any] = {"serial": ours}
            config = dataclasses.replace(ours.run.config, workers=workers, discipline="auto")
            if rival.version and not rival.refusal(config, data):
                sides[rival.name] = Rival(rival, data, test, config)
            for name, timing in interleaved(sides, repeats).items():
                learned = sides[name].last
                yield timing.fields() | {
                    "section": "scaling",
                    "method": name,
                    "workers": workers if name == rival.name else 1,
                    "rank": options.get("rank"),
                    RATES[problem]: timing.per_second(data.nnz if problem == "linear" else len(data)),
                    "objective": learned["objective"],
                    "held_out": learned[HELD_OUT[problem]],
                }


# ---- the time to a loss


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


def time_to_loss(rows: Rows, held_out: Rows, loss: str, repeats: int) -> Iterator[Row]:
    """Yield the seconds of every program to the target."""
    X, y = held_out.to_scipy()
    signs = np.where(y == np.max(rows.targets), 1.0, -1.0)

    def judge(fit: Fit) -> float:
        return float(loss_values(loss, X @ fit.coef + fit.intercept, signs).mean())

    with train(rows, loss=loss, l2=L2, schedule="constant", workers=1, host="threads") as run:
        config = run.config
    target = SLACK * judge(optimum_of(rows, loss))
    attempts: dict[str, Attempt] = {}
    for program in PROGRAMS:
        if program.version is not None:
            attempts[program.name] = search(program, Fits(program, rows, config), judge, target)
    sides = {name: attempt.again for name, attempt in attempts.items() if attempt.effort}
    times = interleaved(sides, max(repeats // 3, 2))
    for program in PROGRAMS:
        attempt = attempts.get(program.name)
        why = f"not installed (pip install {program.package})" if attempt is None else "did not reach the target"
        timing = times.get(program.name, Timing(None, status=why))
        row: Row = {
            "section": "against",
            "loss": loss,
            "method": program.name,
            "version": program.version,
            "workers": 1,
        }
        row |= {"held_out_target": target}
        if attempt is not None:
            row |= {"effort": attempt.effort or None, "step": attempt.step, "held_out": attempt.loss}
        ours = times["hogwild"].seconds if "hogwild" in times else None
        yield timing.fields() | row | {"ours_faster": ratio(timing.seconds, ours)}


def search(program: Outside, fits: Fits, judge: Callable[[Fit], float], target: float) -> Attempt:
    """Return the least effort that reaches the target, over all steps; for equal efforts, the step of lowest loss."""
    best = Attempt(fits)
    efforts = EFFORTS if program.steps else (*EFFORTS, *MORE_EFFORTS)
    deadline = time.monotonic() + PATIENCE
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--problem", choices=RIVALS, default="linear")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    options = {} if given.rank is None else {"rank": given.rank}
    for name in given.data:
        if given.problem == "completion":
            data, test = open_ratings(name).split(0.1)
            data = data.select(np.argsort(data.users, kind="stable"))  # in which order cornac is fastest
        else:
            data, test = open_data(name).split(0.1)
        rows = [*epochs(given.problem, data, test, given.repeats, **options)]
        if given.problem == "linear" and len(np.unique(data.targets)) == 2:
            for loss in LOSSES:
                rows += time_to_loss(data, test, loss, given.repeats)
        for row in rows:
            print(to_json(row | {"data": name}), flush=True)


if __name__ == "__main__":
    main()
