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
ROUNDING = 1e-13  # share of the first objective below which one is zero, but for weights that are float32
NEGLIGIBLE = 1e-4  # share of the first objective that nobody misses
EARLY = 30  # epochs of the fits that l2 was chosen by, below which it may be too weak for its optimum,
SAFE = 20  # unless there are so many rows a parameter: on 20 newsgroups the optimum loses a hundredth of accuracy
MOST_JUDGED = 1 << 22  # parameters whose gradient and curvatures are taken: of more they take longer than an epoch
LEAST = 1e-6  # share of the objective that exact steps gain at least, if l2 is for an optimum
LAST = ("verdict", "exact_seconds", "kept_epoch")  # fields that only the last row has


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
    watched : str
        The field of a row that patience watches.
    mean : array of float64, or None
        The tail mean of the flat parameters, if it may become the model.
    raw : dict
        What the last row said before the model was chosen.
    kept : int or float
        The epoch that the model is of.
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
        self.best = held_out and (config.keep == "best" or not plain)
        self.judged = case.convex and not config.own_rows and size_of(case) <= MOST_JUDGED  # on all rows, here
        self.finishes = case.convex and not plain
        meant = config.epochs >= type(config).epochs and config.target is None
        self.exact = self.finishes and not self.best and meant and not config.l1 > 0  # with l1 it is always finished
        self.exact_seconds: float | None = None
        self.optimality_gap: float | None = None  # after exact steps, upper bound, relative to the objective
        self.mean = np.zeros(case.problem.size) if self.finishes and not self.best and self.judged else None
        self.raw: dict[str, Any] = {}
        self.kept: int | float = 0
        self.start = 0

    def follow(self, flat: np.ndarray, epoch: int) -> None:
        """Update the tail mean at the end of an epoch."""
        if self.mean is not None:
            with np.errstate(all="ignore"):  # parameters that are not finite show in the row
                move_mean(self.mean, flat, epoch)

    def state(self) -> dict[str, Any]:
        """What a checkpoint's header must hold, as JSON."""
        return {"raw": self.raw, "kept": self.kept, "start": self.start}

    def restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """Go on from a checkpoint; one of a run that followed no mean leaves it out."""
        self.raw = dict(header.get("raw", {}))
        self.kept = header.get("kept", header["history"][-1]["epoch"])
        self.start = header.get("start", 0)
        if "mean" not in arrays:
            self.mean = None
        elif self.mean is not None:
            self.mean[:] = arrays["mean"]

    def takes(self, history: list[dict[str, Any]]) -> bool:
        """Whether the parameters of the last row become the model for now."""
        row = history[-1]
        field = self.watched
        losses = [past[field] for past in history[:-1] if is_whole(past) and past["epoch"] > 0 and _has(past, field)]
        better = not (self.best and losses) or (is_whole(row) and _has(row, field) and row[field] < min(losses))
        self.kept = row["epoch"] if better else self.kept
        return better

    def finish(self, solution: Any, history: list[dict[str, Any]]) -> Any:
        """Return the model's parameters at the end of a run, and complete its last row."""
        row = history[-1]
        case = self.case
        row["kept_epoch"] = self.kept
        if not self.judged or row["status"] != "ok":
            return solution
        newest = self.kept == row["epoch"]  # else the loss on held-out rows has passed its lowest
        measures: dict[str, Any] = row if newest else case.evaluate(solution)
        if self.finishes:
            if self.mean is not None and is_whole(row) and row["epoch"] > 1:
                solution, measures = self._better(solution, measures, case.solution(self.mean.astype(np.float32)))
            if self.config.l1 > 0:
                solution, measures = self._improved(solution, measures, row["epoch"])
        gain = case.judge(solution) if newest else None
        l2_epochs = history[0].get("l2_epochs")  # of the fits that l2 was chosen by; 0 of exact ones: it is for one
        early = l2_epochs is not None and 0 < l2_epochs < EARLY and case.n < SAFE * size_of(case)
        if self.exact and not early and is_whole(row):
            if gain is None or gain >= (LEAST if l2_epochs == 0 else UNSETTLED / 2):
                solution, measures = self._improved(solution, measures, row["epoch"])
                gain = case.judge(solution)
        if newest and measures is not row:
            self.raw = {name: row[name] for name in (*measures, "train_seconds")}
            row.update(measures, train_seconds=row["train_seconds"] + (self.exact_seconds or 0.0))
        row["exact_seconds"] = self.exact_seconds
        bound = self.optimality_gap if gain is None else None
        row["verdict"] = verdict(self.config, history, gain, bound) if newest else "settled"
        if self.exact and early and (gain is None or row["verdict"] != "settled"):
            row["verdict"] = f"l2 was chosen for {l2_epochs} epochs; its optimum may overfit: name l2 to reach it"
        return solution

    def _improved(self, solution: Any, measures: Any, epochs: int) -> tuple[Any, Any]:
        """The solution after exact steps, if it is better; they are on the clock."""
        began = time.perf_counter()
        exact, self.optimality_gap = self.case.improved(solution, epochs)
        self.exact_seconds = time.perf_counter() - began
        return self._better(solution, measures, exact, or_equal=True)

    def enough(self, history: list[dict[str, Any]]) -> bool:
        """Whether the run has reached its target, or patience with what is watched is exhausted."""
        return enough(self.config, [row for row in history if row["epoch"] >= self.start], self.watched)

    def past(self, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows as they were before the model was chosen, which is what stopping goes by."""
        return [*history[:-1], history[-1] | self.raw]

    def _better(self, solution: Any, measures: Any, other: Any, or_equal: bool = False) -> tuple[Any, Any]:
        """The better of two solutions and its measurements; with held-out rows both losses count."""
        others = self.case.evaluate(other)
        fields = [name for name in ("objective", self.watched) if _has(measures, name)]
        falls = [others[name] <= measures[name] if or_equal else others[name] < measures[name] for name in fields]
        return (other, others) if all(falls) else (solution, measures)


def _has(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    return value is not None and math.isfinite(value)


def other_metrics(measures: dict[str, Any]) -> dict[str, Any]:
    """Other training metrics than the loss: they appear in the last row only, and are null in others."""
    return {name: value for name, value in measures.items() if name.startswith("train_") and name != "train_loss"}


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
    remedies = [f"a step below {config.step:g}" if config.step else "another schedule"]
    if config.problem == "linear":  # the only problem with these options
        remedies += [] if config.normalize != "none" else ["rows scaled to one length (normalize l2)"]
        remedies += [] if config.adagrad else ["adagrad"]
    end = diverged_in(row["epoch"], row["objective"])
    return TrainingError(f"{end}; try {', or '.join(remedies)}. The model is that of the epoch before")


def diverged_in(epoch: int, objective: float) -> str:
    """Say where the run diverged, for a message that says what to do."""
    return f"diverged in epoch {epoch}: the objective went to {objective:.4g}"


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
    return f"still falling {_percent(fall)} an epoch" if fall > tol else ""


def verdict(config: TrainConfig, history: list[dict[str, Any]], gain: float | None, bound: float | None = None) -> str:
    """Return "settled", or one line that says why a run has not settled and what to do.

    ``gain`` is by how much the model's objective can be lowered at least, relative to it. That decides, and not how the
    objective moved: it may rise and fall about an optimum that the model has all the same. Where it is unknown (None)
    the ``bound`` counts, by which it can be lowered at most, or if there is none an objective that falls by more than
    ``tol`` an epoch.
    """
    whole = {row["epoch"]: float(row["objective"]) for row in history if is_whole(row)}  # each epoch once
    objectives = list(whole.values())
    motion = unsettled(objectives, config.tol, config.evaluate_every)
    sure = gain is not None
    if gain is None:
        gain = float(motion.startswith("still")) if bound is None else bound
    if min(objectives) > 0.0:
        gain = max(gain, 1.0 - min(objectives) / objectives[-1])
    nothing = 0.0 <= objectives[-1] <= ROUNDING * objectives[0]
    nothing |= gain * abs(objectives[-1]) <= NEGLIGIBLE * abs(objectives[0])
    if nothing or gain < UNSETTLED or (config.target is not None and objectives[-1] <= config.target):
        return "settled"
    more = "more --epochs" if history[-1]["epoch"] >= config.epochs else "more --patience"
    if motion.startswith("still"):
        return f"{motion}: give {more}"
    if motion:
        return f"{motion}; give {'' if config.adagrad else '--adagrad, '}a smaller --step or {more}"
    falls = f"{'can' if sure else 'may'} still fall by {_percent(gain)}"
    return f"{falls}: give {more}, a larger --step, or columns of one scale"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share > 0.1 else 2}{'f' if share > 0.1 else 'g'}} %"
