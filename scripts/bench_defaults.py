"""A default fit's time to the held-out loss that another program's defaults reach, interpolated within the epoch.

Whole epochs are too coarse a measure: on RCV1-shaped rows a fit is there after one epoch or after two by luck of the
seed. So both sides are evaluated ``PARTS`` times an epoch, off the clock. The number of rows to the target is
interpolated between evaluations, its median is taken over seeds, and it is multiplied by the time of a row, from whole
epochs in interleaved rounds. Neither depends on what else the machine does: how many rows a fit needs is always the
same, and epochs, each the work of one core, are timed by the processor time of this process. Ours uses its defaults:
the step is searched for, which ``seconds_with_search`` counts and ``seconds`` does not.

The rival is scikit-learn's ``SGDClassifier`` on text, to the held-out loss of the objective's optimum plus half a
percent, and Vowpal Wabbit on clicks with a model that outgrows the cache, from its binary cache, to the loss after its
pass. Rows, which ``bench_targets.py`` reads, are printed as JSON lines:

    python scripts/bench_defaults.py > defaults.jsonl
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hogwild.bench.against import SLACK, judge_of, optimum_of, partial_fits
from hogwild.bench.plan import L2, REPEATS, BenchPlan, about, data_names
from hogwild.bench.rounds import Timing, interleaved, ratio
from hogwild.bench.solvers import SOLVERS, vw_text
from hogwild.config import TrainConfig
from hogwild.data.cache import Cache
from hogwild.data.rows.container import Rows
from hogwild.hosts.job import Task
from hogwild.json_rows import to_json
from hogwild.kernels.control import NO_LIMIT
from hogwild.problems.linear.case import LinearCase
from hogwild.problems.linear.objective import Objective
from hogwild.training.run import resolve
from hogwild.training.schedule import make_schedule

SEEDS, PARTS, MOST = 5, 16, 8  # fits, evaluations an epoch, and most epochs
Points = Iterator[tuple[int, float]]  # rows done, and the held-out loss after them


def rows_to(target: float, points: Points) -> float | None:
    """Number of rows until the loss is ``target``, interpolated; None if it is not reached."""
    rows, loss = 0, math.log(2.0)  # of a model of zeros
    for more, lower in points:
        if lower <= target:
            return rows + (more - rows) * (loss - target) / (loss - lower) if loss > target else float(rows)
        rows, loss = more, lower
    return None


class DefaultFit:
    """One worker that trains as ``hogwild.train(rows)`` does, in the calling thread, stopped where it is asked to.

    Attributes
    ----------
    step, search_seconds : float
        The step, and the processor time that finding it took.
    """

    def __init__(self, rows: Rows, held_out: Rows, seed: int) -> None:
        config = resolve(TrainConfig(host="threads", workers=1, l2=L2, seed=seed), len(rows))
        self._case = LinearCase(config, rows, held_out)
        self._case.make_evaluator()
        search = self._case.search_step()
        start = time.process_time()
        self.step, _ = search()
        self.search_seconds = time.process_time() - start
        self._schedule = make_schedule(self._case.config.schedule, self.step, l2=L2, tol=config.tol)
        self._job = self._case.lay_out(shared=False)
        self._job.problem.compile()
        self._memory = self._job.shared(), self._job.scratch(), self._job.data()
        self._epoch, self._limit = 0, -(-len(rows) // PARTS)

    def _begin(self, limit: int) -> Callable[[], int]:
        """Return a function that does at most so many rows of the next epoch."""
        task = Task(self._epoch, 0, self._schedule.plan(self._epoch))
        self._job.begin_epoch(self._epoch, 0)
        self._epoch += 1
        return self._job.problem.prepare(*self._memory, self._job.part(task, 0, limit), task.step)

    def points(self) -> Points:
        """Yield the held-out loss ``PARTS`` times an epoch."""
        done = 0
        for _ in range(MOST):
            turn = self._begin(self._limit)
            while more := turn():
                done += more
                found = self._case.evaluate(self._case.solution(self._job.export()))
                yield done, float(found["test_loss"] or 0.0)

    def epoch(self) -> float:
        """Do an epoch; return its seconds of processor time."""
        turn = self._begin(NO_LIMIT)
        start = time.process_time()
        turn()
        return time.process_time() - start


def measure(plan: BenchPlan) -> Iterator[dict[str, Any]]:
    """Measure text beside scikit-learn, and clicks beside Vowpal Wabbit, each if it is installed."""
    installed = [solver.name for solver in SOLVERS if solver.version is not None]
    for family, other_name, rival in (("rcv1", "scikit-learn SGD", _SGD), ("ctr", "Vowpal Wabbit", _VowpalWabbit)):
        if other_name not in installed:
            continue
        rows = plan.open(family)
        held_out = plan.open(family, rows=max(len(rows) // 10, 1), skip=len(rows))
        plan.note(f"default fits on {family}: {other_name}")
        other = rival(rows, held_out)
        fits = [DefaultFit(rows, held_out, seed) for seed in range(SEEDS)]
        needed = _middle([rows_to(other.target, fit.points()) for fit in fits])
        efforts = {
            name: None if count is None else count / len(rows)
            for name, count in (("hogwild", needed), (other_name, other.rows_needed))
        }
        search = statistics.median(fit.search_seconds for fit in fits)
        times = interleaved(dict(zip(efforts, (fits[0].epoch, other.epoch))), plan.repeats, plan.note)
        found = {name: _part(timing, efforts[name]) for name, timing in times.items()}
        for name, timing in found.items():
            searched = search if name == "hogwild" else 0.0
            yield (
                about(plan.names[family], rows)
                | timing.fields()
                | {
                    "section": "against",
                    "what": "default fit to loss",
                    "loss": "log",
                    "family": family,
                    "solver": name,
                    "order": "shuffled",
                    "effort": efforts[name],
                    "effort_unit": "epochs",
                    "search_seconds": searched,
                    "seconds_with_search": None if timing.seconds is None else timing.seconds + searched,
                    "held_out_target": other.target,
                    "ours_faster": ratio(timing.seconds, found["hogwild"].seconds),
                }
            )


def _part(epoch: Timing, effort: float | None) -> Timing:
    """The timing of so much of an epoch."""
    if effort is None:
        return Timing(None, status=f"did not reach the target in {MOST} epochs")
    if effort == 0.0:
        return Timing(None, status="a model of zeros reaches the target")
    if epoch.seconds is None or epoch.low is None or epoch.high is None:
        return epoch
    return Timing(epoch.seconds * effort, epoch.low * effort, epoch.high * effort, epoch.rounds)


def _middle(counts: list[float | None]) -> float | None:
    """The median, where fits that never reached the target count as infinite."""
    middle = statistics.median(math.inf if count is None else count for count in counts)
    return None if middle == math.inf else middle


class _SGD:
    """``SGDClassifier`` with its defaults, whose schedule ("optimal") has a first step of its own."""

    def __init__(self, rows: Rows, held_out: Rows) -> None:
        self.target = SLACK * judge_of(held_out, "log")(optimum_of(rows, "log"))
        self.epoch = partial_fits(rows, True, time.process_time, learning_rate="optimal")
        judge = Objective(held_out, "log", labels=[-1.0, 1.0])
        self.rows_needed = _middle([rows_to(self.target, self._points(rows, judge, seed)) for seed in range(SEEDS)])

    @staticmethod
    def _points(rows: Rows, judge: Objective, seed: int) -> Points:
        from sklearn.linear_model import SGDClassifier

        X, y = rows.to_scipy()
        solver, done = SGDClassifier(loss="log_loss", alpha=L2, random_state=seed), 0
        rng = np.random.default_rng(seed)
        for _ in range(MOST):
            for ids in np.array_split(rng.permutation(len(y)), min(PARTS, len(y))):
                solver.partial_fit(X[ids], y[ids], classes=np.unique(y))
                done += len(ids)
                yield done, float(judge.evaluate(solver.coef_[0], solver.intercept_)["loss"] or 0.0)


class _VowpalWabbit:
    """Vowpal Wabbit with its defaults: a pass from its binary cache, which is made off the clock."""

    def __init__(self, rows: Rows, held_out: Rows) -> None:
        from vowpalwabbit import Workspace

        path, bits = vw_text(rows), max(18, (rows.width - 1).bit_length())
        options = f"--quiet --holdout_off -b {bits} --loss_function logistic --l2 {L2} -d {path} --cache_file {path}.c"
        Workspace(options).finish()
        self._train: Callable[[], Any] = lambda: Workspace(options)
        solver = self._train()
        with vw_text(held_out).open() as lines:
            margins = np.array([solver.predict(line) for line in lines])
        solver.finish()
        self.target = float(np.logaddexp(0.0, -margins * np.sign(held_out.targets)).mean())
        self.rows_needed: float | None = float(len(rows))

    def epoch(self) -> float:
        start = time.process_time()
        solver = self._train()
        seconds = time.process_time() - start
        solver.finish()
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="of each generated set")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="rounds that count")
    given = parser.parse_args()
    for row in measure(BenchPlan((1,), given.repeats, names=data_names(rows=given.rows), cache=Cache())):
        print(to_json(row), flush=True)


if __name__ == "__main__":
    main()
