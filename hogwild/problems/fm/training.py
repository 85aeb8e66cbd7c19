"""The step, the penalty of the factors and maybe the number of epochs, found by serial runs before the run itself.

Good steps differ by sixteen times between sets, and four times a good one diverges; penalties do not transfer between
sets either. Each trial trains a sample of the rows, epoch by epoch, until the loss on rows held out rises, and its
lowest loss counts, as it does in the run. For each penalty of ``PATH`` a power of two is found for the step, from the
last penalty's on. Where trials train on all rows that are not held out, the run is on all rows, for as many epochs as
the best trial: on 26,000 rows of categories a tenth more is worth .003 in log loss. Else the rows held out choose the
run's epoch as well. Penalties are for all rows, so on a sample they are stronger by as much as it is smaller: a
feature's prior weighs as much against the rows that hold it. The step for all rows is the sample's over the root of
that ratio, for an epoch makes so many more visits: on a click log the sample's own step ended .01 to .02 higher in log
loss, for plain and field-aware machines, at 270,000 and 900,000 rows.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.data.order import Order
from hogwild.data.rows.container import Rows, drawn
from hogwild.errors import NoChoice
from hogwild.problems.fm.objective import FMObjective
from hogwild.problems.fm.options import PATH, SHARE
from hogwild.problems.fm.problem import FMProblem, known_fields, without_gaps
from hogwild.problems.linear.coordinates import Numbering
from hogwild.problems.linear.problem import aligned
from hogwild.training.checkpoint import chosen_before
from hogwild.training.keep import has_diverged
from hogwild.training.l2_choice import L2Choice
from hogwild.training.schedule import make_schedule
from hogwild.training.step_search import best_power
from hogwild.training.workers import InlineWorker

BUDGET = 30_000_000  # nonzeros of an epoch of a trial, times the numbers of a feature and eight more
HELD_OUT = 0.1  # share of the rows that judge, if nobody says
HELD_ROWS = 20_000  # at most, that judge it
FIRST = 0.25  # step that is tried first
SLACK = 10.0  # a trial must stay that far from what ends a run as diverged


def occurring(rows: Rows, numbering: Numbering | None) -> np.ndarray:
    """Numbers of the features that the rows hold, in the order of the user's numbers."""
    features = np.arange(rows.width) if numbering is None else np.argsort(numbering.features, kind="stable")
    held: np.ndarray = features[rows.degrees()[features] > 0]
    return held


def sampled(config: TrainConfig, rows: Rows) -> int:
    """Number of these rows that a trial trains on."""
    fields = 1 if rows.fields is None or not config.field_aware else len(np.unique(rows.fields))
    numbers = (fields * config.rank + 8) * rows.nnz / len(rows)
    return min(len(rows), max(int(BUDGET / max(numbers, 1.0)), HELD_ROWS))


def judges_of(config: TrainConfig, rows: Rows, held: Rows | None) -> tuple[Rows, Rows]:
    """Rows that trials train on, and others that judge them."""
    if held is not None or len(rows) < 2:
        return rows, rows if held is None else held
    return rows.split(max(HELD_OUT, 1 / len(rows)), config.seed)


class Trials:
    """Short runs with one step and one penalty each, on a sample of the rows."""

    def __init__(self, config: TrainConfig, rows: Rows, held: Rows) -> None:
        l2_factors = PATH[0] / len(rows) if config.l2_factors is None else config.l2_factors
        rows = without_gaps(config, rows)
        posed = FMProblem.of(config.settled(l2=config.l2 or 0.0, l2_factors=l2_factors), rows, "hogwild")
        count = sampled(config, rows)
        sample = drawn(rows, count, config.seed)
        held = drawn(held, min(len(held), HELD_ROWS), config.seed)
        numbering = Numbering.by_popularity(sample)
        self.config = config
        self.rows = numbering.rows(sample)
        self.held = held
        self.problem = posed.narrowed(self.rows.width, numbering.popular)
        self.stronger = len(rows) / count
        p = self.problem
        fields = known_fields(self.rows) if p.fields else None
        self.objective: Any = p.objective(numbering.rows(held), FMObjective, fields=fields, rank=p.rank)
        self.best_epoch: dict[tuple[float, float], int] = {}  # by step and penalty of the factors
        self.start = aligned(p.size)
        self.problem.begin(self.start, occurring(self.rows, numbering), config, rows)
        self.before, _ = self.judge(p, self.start)
        p.compile()

    def judge(self, problem: FMProblem, flat: np.ndarray) -> tuple[float, float]:
        """The loss of parameters on the rows held out, and with it the penalty, which shows if they diverge."""
        facts = self.objective.evaluate(*problem.solution(flat))
        return float(facts["loss"] or 0.0), float(facts["objective"] or 0.0)

    def run(self, step: float, l2: float | None, l2_factors: float) -> float:
        """The lowest loss on rows held out in a run; inf if it diverges."""
        l2 = SHARE * l2_factors / self.problem.scale if l2 is None else l2
        self.objective.l2, self.objective.l2_factors = l2, l2_factors
        problem = dataclasses.replace(self.problem, l2=l2 * self.stronger, l2_factors=l2_factors * self.stronger)
        flat = aligned(problem.size)
        flat[:] = self.start
        _, before = self.judge(problem, flat)
        arrays = problem.row_arrays(self.rows, None)
        worker = InlineWorker(problem, Order.of(len(self.rows)), self.rows, arrays, self.config.seed, flat)
        c = self.config
        steps = make_schedule(c.schedule, step, decay=c.falls_by, power=c.power, tol=c.tol)
        best, last = math.inf, 0
        for epoch in range(c.epochs):
            worker.run(epoch, steps.plan(epoch))
            loss, objective = self.judge(problem, flat)
            if has_diverged(SLACK * objective, [before]):
                return math.inf
            best, last = (loss, epoch) if loss < best else (best, last)
            if epoch - last == c.patience and c.patience:
                break
        self.best_epoch[step, l2_factors] = last + 1
        return best

    def best_step(self, l2_factors: float, first: float = FIRST) -> tuple[float, dict[float, float]]:
        """The best step for a penalty, and the loss of each step that was tried."""
        start = round(math.log2(first))
        power, values = best_power(
            lambda power: self.run(2.0**power, self.config.l2, l2_factors), self.before, start, little=0.0
        )
        return 2.0**power, {2.0**each: value for each, value in sorted(values.items())}


def settle(
    config: TrainConfig,
    rows: Rows,
    resumed: str | Path | None,
    held: Rows | None,
    report: Callable[[str], None] | None = None,
) -> tuple[TrainConfig, L2Choice | None]:
    """Return the config with the penalty of the factors that does best, maybe with its epochs, and how it was chosen.

    ``resumed`` is the directory of a checkpoint: what the run there has is not chosen again.
    """
    if saved := chosen_before(resumed, "l2", "l2_factors", "epochs", "keep"):
        if saved.pop("keep") != config.keep:  # which is the last epoch of a run on all rows
            config = on_all(config, saved["epochs"])
        del saved["epochs"]
        return config.settled(**saved if config.l2 is None else {"l2_factors": saved["l2_factors"]}), None
    began = time.perf_counter()
    rest, judges = judges_of(config, rows, held)
    trials = Trials(config, rest, judges)
    path: list[dict[str, Any]] = []
    step = FIRST
    for l2_factors in (each / len(rows) * trials.problem.units[1] for each in PATH):
        if report is not None:
            report(f"value {len(path) + 1} of {len(PATH)}")
        if config.step is None:
            step, tried = trials.best_step(l2_factors, step)
            loss = tried[step]
        else:
            step = config.step
            loss = trials.run(step, config.l2, l2_factors)
        value = loss if math.isfinite(loss) else None
        for_all = step / math.sqrt(trials.stronger) if config.step is None else step
        path.append({"l2": l2_factors, "step": for_all, "held_out_loss": value, "epochs": config.epochs})
        path[-1]["best_epoch"] = trials.best_epoch.get((step, l2_factors), 0)
    best = min(path, key=lambda each: math.inf if each["held_out_loss"] is None else each["held_out_loss"])
    if best["held_out_loss"] is None:
        raise NoChoice("every candidate for l2_factors diverged: give a smaller step, or adagrad")
    sizes = len(trials.rows), len(trials.held), config.epochs
    seconds = time.perf_counter() - began
    chosen = L2Choice(best["l2"], path, *sizes, seconds, held is None, step=best["step"], name="l2_factors")
    l2 = SHARE * chosen.l2 / trials.problem.scale if config.l2 is None else config.l2
    if held is None and trials.stronger == 1.0 and config.keep != "last":
        config = on_all(config, best["best_epoch"])
    return config.settled(l2=l2, l2_factors=chosen.l2), chosen


def on_all(config: TrainConfig, epochs: int) -> TrainConfig:
    """The config of a run on all rows for as many epochs."""
    return config.settled(epochs=epochs, keep="last", patience=0)
