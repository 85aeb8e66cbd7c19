"""When a run ends, which of its parameters become the model, and what its last row says of them.

With rows held out of the training data the model is that of the epoch whose loss on them was lowest: it costs a
comparison. Without them it is the better, by the objective, of the last parameters and the tail mean of the ends of
epochs, in which the noise of large steps cancels: that costs an addition an epoch, and one evaluation at the end. If
that is still above the optimum after the usual number of epochs, exact steps on all rows follow, on the clock; a
run of fewer epochs, or with a target, is meant to end early. Test rows that were not held out of the data only judge.
None of this changes what is trained: a run that is resumed goes on from the parameters where it stopped.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.errors import TrainingError, UsageError
from hogwild.problems.protocol import Case, size_of
from hogwild.training.schedule import move_mean

DIVERGED = 100.0  # times the objective at the start
SMALLEST = 1e-3  # smallest initial objective to compare with
UNSETTLED = 0.01  # share of the objective that a settled run is at most above its optimum
NEGLIGIBLE = 1e-4  # share of the first objective that nobody misses
#: If l2 was chosen by fits of fewer epochs, it may be too weak for its optimum: on 20 newsgroups exact steps lose a
#: hundredth of accuracy.
EARLY = 30
SAFE = 20  # rows per parameter from which exact steps are safe all the same
MOST_JUDGED = 1 << 22  # parameters whose gradient and curvatures are taken: of more they take longer than an epoch
LEAST = 1e-6  # share of the objective that exact steps gain at least, if l2 is for an optimum
LAST = ("verdict", "exact_seconds", "kept_epoch")  # fields that only the last row has

Solution = tuple[Any, ...]


class Keeper:
    """Follows the parameters of a run, and chooses those of its model.

    Parameters
    ----------
    config : TrainConfig
    case : Case
    tested : bool
        Whether there are test rows.

    Attributes
    ----------
    solution : tuple of arrays
        The parameters of the model.
    kept : int or float
        The epoch that they are of.
    watched : str
        The field of a row that patience watches.
    mean : array of float64, or None
        The tail mean of the flat parameters, if it may become the model.
    start : int
        The epoch from which patience counts: where a run was resumed that patience had ended.
    """

    def __init__(self, config: TrainConfig, case: Case, tested: bool) -> None:
        if config.keep == "best" and not tested:
            raise UsageError("keep='best' goes by held-out rows, and there are none: hold some out (--holdout 0.2)")
        self.config = config
        self.case = case
        held_out = tested and (case.held_out != "" or config.keep == "best")
        self.watched = (case.held_out or "test_loss") if held_out else "objective"
        plain = config.keep == "last" or config.host == "simulator" or config.machines > 1
        self._best = held_out and (config.keep == "best" or not plain)
        whole = not (config.own_rows or case.sampled)  # all rows are here, and are read once more
        self._judged = case.convex and whole and size_of(case) <= MOST_JUDGED
        self._finishes = case.convex and not plain
        self.mean = np.zeros(case.problem.size) if self._finishes and not self._best and self._judged else None
        #: While a run may end early, of many training rows a sample says when; a target is for all.
        sampled = (bool(config.patience) or case.sampled) and config.target is None and config.host != "simulator"
        self.measure = case.glance if sampled and config.machines == 1 else case.evaluate
        self.solution: Solution = ()
        self.kept: int | float = 0
        self.start = 0

    @np.errstate(all="ignore")  # parameters that are not finite show in the row
    def follow(self, flat: np.ndarray, epoch: int) -> None:
        """Update the tail mean at the end of an epoch."""
        if self.mean is not None:
            move_mean(self.mean, flat, epoch)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What a checkpoint must hold, as JSON and as arrays."""
        mean = {} if self.mean is None else {"mean": self.mean}
        return {"kept": self.kept, "start": self.start}, dict(zip(self.case.names, self.solution)) | mean

    def restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave; a run that followed no mean, as in the simulator, leaves it out."""
        self.kept = header["kept"]
        self.start = header["start"]
        self.solution = tuple(arrays[name] for name in self.case.names)
        if self.mean is not None:
            self.mean = np.array(arrays["mean"]) if "mean" in arrays else None

    def take(self, history: list[dict[str, Any]], solution: Solution) -> None:
        """Make the parameters of the last row the model for now, unless an earlier epoch did better."""
        losses = [self._loss(past) for past in history if past["epoch"] > 0]
        lowest = min(losses[:-1], default=math.inf)
        if not self._best or lowest == math.inf or losses[-1] < lowest:
            self.solution = solution
            self.kept = history[-1]["epoch"]

    def _loss(self, row: dict[str, Any]) -> float:
        """The loss of a complete epoch that the choice goes by; inf if there is none."""
        return float(row[self.watched]) if is_whole(row) and _has(row, self.watched) else math.inf

    def finish(self, history: list[dict[str, Any]], solution: Solution) -> None:
        """Choose the model at the end of a run, and complete its last row, which is of this ``solution``."""
        row = history[-1]
        row["kept_epoch"] = self.kept
        if row["status"] != "ok":
            return
        newest = self.kept == row["epoch"]  # else the loss on held-out rows has passed its lowest
        if self._judged:
            self._settle(history, newest)
        if not self.case.sampled and row.pop("rows_evaluated", None):
            row.update(self.case.evaluate(self.solution if newest else solution))

    def _settle(self, history: list[dict[str, Any]], newest: bool) -> None:
        """Make the tail mean or exact steps the model if they are better, and say in the last row what is left."""
        row = history[-1]
        case, config = self.case, self.config
        measures = row if newest else self.measure(self.solution)
        if self.mean is not None and row["epoch"] > 1:
            measures = self._better(measures, case.solution(self.mean.astype(np.float32)))
        gain = bound = None
        l2_epochs = history[0].get("l2_epochs")  # of the fits that l2 was chosen by; 0 of exact ones: it is for one
        early = l2_epochs is not None and 0 < l2_epochs < EARLY and case.n < SAFE * size_of(case)
        meant = self._finishes and not self._best and config.epochs >= type(config).epochs and config.target is None
        exact = self._finishes and config.l1 > 0  # for its zeros
        if newest and not exact:
            gain = case.judge(self.solution)
            exact = meant and not early and (gain is None or gain >= (LEAST if l2_epochs == 0 else UNSETTLED / 2))
        if exact:
            began = time.perf_counter()
            solution, bound = case.improved(self.solution, row["epoch"])
            row["exact_seconds"] = time.perf_counter() - began
            measures = self._better(measures, solution)
            gain = case.judge(self.solution) if newest else None
        if newest and measures is not row:
            row.update(measures, train_seconds=row["train_seconds"] + (row["exact_seconds"] or 0.0))
        row["verdict"] = verdict(config, history, gain, bound if gain is None else None) if newest else "settled"
        if meant and not config.l1 > 0 and early and (gain is None or row["verdict"] != "settled"):
            row["verdict"] = f"l2 was chosen for {l2_epochs} epochs; its optimum may overfit: name l2 to reach it"

    def enough(self, history: list[dict[str, Any]]) -> bool:
        """Whether the run has reached its target, or patience with what is watched is exhausted."""
        return enough(self.config, [row for row in history if row["epoch"] >= self.start], self.watched)

    def _better(self, measures: dict[str, Any], other: Solution) -> dict[str, Any]:
        """Keep the other solution if it is as good, by both losses with held-out rows; return what the better has."""
        others = self.measure(other)
        if all(others[name] <= measures[name] for name in ("objective", self.watched) if _has(measures, name)):
            self.solution = other
            return others
        return measures


def _has(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    return value is not None and math.isfinite(value)


def has_diverged(objective: float, before: Sequence[float]) -> bool:
    """Whether the objective is no longer finite, or a hundred times the initial one.

    ``before`` holds the objectives of the rows so far. The perceptron starts at its lowest, zero: then the first epoch
    counts.
    """
    if not math.isfinite(objective):
        return True
    start = max((abs(value) for value in before[: 2 if before and before[0] == 0.0 else 1]), default=0.0)
    return start > 0.0 and objective > DIVERGED * max(start, SMALLEST)


def divergence(config: TrainConfig, row: dict[str, Any]) -> TrainingError:
    """Return the error to raise after a diverged row."""
    step = f"a step below {config.step:g}" if config.step else "another schedule"
    more = ", normalize='l2' or adagrad" if config.problem == "linear" else ""
    end = diverged_in(row["epoch"], row["objective"])
    return TrainingError(f"{end}: try {step}{more}; the epoch before is kept")


def diverged_in(epoch: int, objective: float) -> str:
    """Say where the run diverged, for a message that says what to do."""
    return f"diverged in epoch {epoch} (objective {objective:.4g})"


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a row is of a complete epoch, even if the run was asked to stop there."""
    return isinstance(row["epoch"], int)


def enough(config: TrainConfig, history: list[dict[str, Any]], watched: str = "objective") -> bool:
    """Whether the target is reached or patience with the field ``watched`` is exhausted.

    Rows of interrupted epochs count for the target only.
    """
    if config.target is not None and history[-1]["objective"] <= config.target:
        return True
    if not config.patience:
        return False
    best = math.inf
    since = epoch = 0
    for row in history:
        value = row.get(watched)
        if not is_whole(row) or value is None:
            continue
        epoch = row["epoch"]
        if value < best - config.tol * abs(best if math.isfinite(best) else 0.0):
            best = value
            since = epoch
    return epoch - since >= config.patience


def unsettled(objectives: Sequence[float], tol: float, epochs: int = 1) -> str:
    """Say what the objective was doing in the end, by its values ``epochs`` epochs apart; "" if nothing of note.

    It was noisy if it has risen by ``tol`` or more in its last quarter, as it had before.
    """
    span = max((len(objectives) - 1) // 4, 1)
    if len(objectives) < 3 or not min(objectives) > 0.0:
        return ""
    rises = [now > before * (1.0 + tol) for before, now in itertools.pairwise(objectives)]
    if any(rises[-span:]) and sum(rises) > 1:
        return f"has risen in {sum(rises)} of {len(rises)} {'epochs' if epochs == 1 else 'looks'}: noise of the step"
    fall = 1.0 - (objectives[-1] / objectives[-1 - span]) ** (1.0 / (span * epochs))
    return f"still falling {100 * fall:.3g} % an epoch" if fall > tol else ""


def verdict(config: TrainConfig, history: list[dict[str, Any]], gain: float | None, bound: float | None = None) -> str:
    """Return "settled", or one line that says why a run has not settled and what to do.

    ``gain`` is by how much the model's objective can be lowered at least, relative to it. That decides, and not how the
    objective moved: it may rise and fall about an optimum that the model has all the same. Where it is unknown (None)
    the ``bound`` counts, by which it can be lowered at most, or if there is none an objective that falls by more than
    ``tol`` an epoch.
    """
    objectives = [*{row["epoch"]: float(row["objective"]) for row in history if is_whole(row)}.values()]  # each once
    last, lowest = objectives[-1], min(objectives)
    motion = unsettled(objectives, config.tol, config.evaluate_every)
    verb = "may" if gain is None else "can"
    if gain is None:
        gain = float(motion.startswith("still")) if bound is None else bound
    if lowest > 0.0:
        gain = max(gain, 1.0 - lowest / last)
    reached = config.target is not None and last <= config.target
    if reached or gain < UNSETTLED or gain * abs(last) <= NEGLIGIBLE * abs(objectives[0]):
        return "settled"
    more = "more --epochs" if history[-1]["epoch"] >= config.epochs else "more --patience"
    if motion.startswith("still"):
        return f"{motion}: give {more}"
    if motion:
        return f"{motion}; give {'' if config.adagrad else '--adagrad, '}a smaller --step or {more}"
    return f"{verb} still fall by {100 * gain:.3g} %: give {more}, a larger --step, or columns of one scale"
