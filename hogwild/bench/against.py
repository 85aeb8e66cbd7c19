"""Other programs on the same data: an epoch of SGD, and the time to the same held-out loss.

To favour no program, all minimise the same objective, and the target is the held-out loss of its optimum, as found by
scikit-learn's deterministic solvers, plus half a percent. Each program is trained from scratch with growing effort
until it reaches the target (with equally many step sizes tried for all that have one), and only the cheapest training
that did is timed, in interleaved rounds. There are fewer rounds than elsewhere, since these trainings are long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from hogwild.bench.plan import L2, STEPS, BenchPlan, about
from hogwild.bench.rounds import Side, Timing, interleaved, ratio
from hogwild.bench.sides import Training
from hogwild.bench.solvers import SOLVERS, Fits, SolverFit
from hogwild.bench.solvers import STEPS as TRIED
from hogwild.compare.reference.outside import Outside
from hogwild.data.rows.container import Rows
from hogwild.problems.linear.objective import loss_values

LOSSES = ("log", "hinge")
SLACK = 1.005
EFFORTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
QUICK_EFFORTS = (1, 2, 4, 8, 16)
MORE_EFFORTS = (48, 64, 96, 128, 192, 256, 384, 512)  # of programs without a step, which are tried once
PATIENCE = 60.0  # seconds of search that a program gets for each loss; a tenth in a quick run


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Measure epochs first, then every loss."""
    rows = plan.open("rcv1")
    yield from _epochs(plan, rows)
    held_out = plan.open("rcv1", rows=max(len(rows) // 10, 1), skip=len(rows))
    for loss in LOSSES:
        yield from _time_to_loss(plan, rows, held_out, loss)


def _epochs(plan: BenchPlan, rows: Rows) -> Iterator[dict[str, Any]]:
    """Compare one worker's epoch with ``SGDClassifier.partial_fit``: both shuffling, or both in file order."""
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for order in ("shuffled", "file"):
            run = Training(rows, STEPS["rcv1"], workers=1, order=order)
            sides[f"hogwild/{order}"] = stack.enter_context(run)
            sides[f"scikit-learn SGD/{order}"] = partial_fits(
                rows, order == "shuffled", time.perf_counter, learning_rate="constant", eta0=STEPS["rcv1"]
            )
        times = interleaved(sides, plan.repeats, plan.note)
    for side, timing in times.items():
        solver, order = side.split("/")
        ours = times[f"hogwild/{order}"].seconds
        yield (
            about(plan.names["rcv1"], rows)
            | timing.fields()
            | {
                "what": "epoch",
                "loss": "log",
                "solver": solver,
                "order": order,
                "step": STEPS["rcv1"],
                "effort": 1,
                "effort_unit": "epochs",
                "ours_faster": ratio(timing.seconds, ours),
                "nonzeros_per_second": timing.per_second(rows.nnz),
            }
        )


@dataclass
class _Candidate:
    """A program, and the least effort at which it reached the target; 0 if it never did."""

    solver: Outside
    fit: Fits
    effort: int = 0
    step: float = 0.0
    loss: float = math.nan  # at that effort; the best loss reached if it never got there


def _time_to_loss(plan: BenchPlan, rows: Rows, held_out: Rows, loss: str) -> Iterator[dict[str, Any]]:
    judge = judge_of(held_out, loss)
    plan.note(f"{loss}: finding the optimum")
    target = SLACK * judge(optimum_of(rows, loss))
    candidates: dict[str, _Candidate] = {}
    for solver in SOLVERS:
        if solver.version is not None:
            plan.note(f"{loss}: {solver.name} searches for its steps and effort")
            candidates[solver.name] = _search(plan, solver, Fits(solver, rows, loss), judge, target)
    sides = {name: _again(found) for name, found in candidates.items() if found.effort}
    times = interleaved(sides, max(plan.repeats // 3, 2), lambda text: plan.note(f"{loss}: {text}"))
    ours = times["hogwild"].seconds if "hogwild" in times else None
    for solver in SOLVERS:
        found = candidates.get(solver.name)
        timing = times.get(solver.name, Timing(None, status=_why_not(solver, found)))
        yield (
            about(plan.names["rcv1"], rows)
            | timing.fields()
            | {
                "what": "time to loss",
                "loss": loss,
                "solver": solver.name,
                "version": solver.version,
                "order": solver.order,
                "effort": found.effort or None if found else None,
                "effort_unit": solver.effort,
                "step": found.step if found and solver.steps else None,
                "held_out": found.loss if found else None,
                "held_out_target": target,
                "ours_faster": ratio(timing.seconds, ours),
            }
        )


def judge_of(held_out: Rows, loss: str) -> Callable[[SolverFit], float]:
    X, y = held_out.to_scipy()
    y = np.sign(y.astype(np.float64))

    def judge(found: SolverFit) -> float:
        margins = X @ found.coef.astype(np.float64) + found.intercept
        return float(loss_values(loss, margins, y).mean())

    return judge


def _search(
    plan: BenchPlan, solver: Outside, fit: Fits, judge: Callable[[SolverFit], float], target: float
) -> _Candidate:
    """Return the least effort that reaches the target, over all steps; for equal efforts, the step of lowest loss."""
    best = _Candidate(solver, fit)
    efforts = (*(QUICK_EFFORTS if plan.quick else EFFORTS), *(() if solver.steps else MORE_EFFORTS))
    deadline = time.monotonic() + PATIENCE * (0.1 if plan.quick else 1.0)
    for step in TRIED if solver.steps else (1.0,):
        for effort in efforts:
            if time.monotonic() > deadline:
                return best
            found = fit(effort, step)
            loss = judge(found)
            if loss <= target and (not best.effort or (effort, loss) < (best.effort, best.loss)):
                best = _Candidate(solver, fit, effort, step, loss)
            if best.effort and effort >= best.effort:
                break  # target reached, or another step was faster
            best.loss = loss if math.isnan(best.loss) else min(best.loss, loss)
    return best


def _again(found: _Candidate) -> Side:
    return lambda: found.fit(found.effort, found.step).seconds


def _why_not(solver: Outside, found: _Candidate | None) -> str:
    if found is None:
        return f"not installed (pip install {solver.package})"
    return "did not reach the target in the time it was given"


def optimum_of(rows: Rows, loss: str) -> SolverFit:
    """Return the objective's minimum, by a deterministic solver that is not compared."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    X, y = rows.to_scipy()
    C = 1 / (L2 * len(rows))
    solver: Any = LogisticRegression(C=C, tol=1e-5, max_iter=1000)
    if loss == "hinge":  # LIBLINEAR determines the weights to many digits
        solver = LinearSVC(loss="hinge", C=C, tol=1e-4, max_iter=10_000, random_state=0)
    solver.fit(X, y)
    return SolverFit(0.0, np.ravel(solver.coef_), float(np.ravel(solver.intercept_)[0]))


def partial_fits(rows: Rows, shuffle: bool, clock: Callable[[], float], **schedule: Any) -> Side:
    """Return a side that does an epoch of ``SGDClassifier.partial_fit``, timed by ``clock``."""
    from sklearn.linear_model import SGDClassifier

    X, y = rows.to_scipy()
    solver = SGDClassifier(loss="log_loss", alpha=L2, shuffle=shuffle, random_state=0, **schedule)
    solver.partial_fit(X[:100], y[:100], classes=np.unique(y))

    def side() -> float:
        start = clock()
        solver.partial_fit(X, y)
        return clock() - start

    return side
