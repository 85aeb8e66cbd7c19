"""Which parameters of a run become its model, and what its last row says of them.

With rows held out of the training data the model is that of the epoch whose loss on them was lowest: it costs a
comparison. Without them it is the better, by the objective, of the last parameters and the tail mean of the ends of
epochs, in which the noise of large steps cancels: that costs an addition an epoch, and one evaluation at the end. If
that is still above the optimum after the usual number of epochs, exact steps on all rows follow, on the clock; a
run of fewer epochs, or with a target, is meant to end early. Test rows that were not held out of the data only judge.
None of this changes what is trained: a run that is resumed goes on from the parameters where it stopped.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.problems.protocol import Case, size_of
from hogwild.training.schedule import move_mean
from hogwild.training.stopping import UNSETTLED, is_whole, verdict

EARLY = 30  # epochs, below which fits are not near their optimum
MOST_JUDGED = 1 << 22  # parameters whose gradient and curvatures are taken: of more they take longer than an epoch
LEAST = 1e-6  # share of the objective that exact steps gain at least, if l2 is for an optimum
LAST = ("verdict", "gradient_norm", "exact_seconds", "kept_epoch")  # fields that only the last row has


class Keeper:
    """Follows the parameters of a run, and chooses those of its model.

    Parameters
    ----------
    config : TrainConfig
    case : Case
    tested : bool
        Whether there are test rows.
    """

    def __init__(self, config: TrainConfig, case: Case, tested: bool) -> None:
        if config.keep == "best" and not tested:
            raise UsageError("keep='best' goes by held-out rows, and there are none: hold some out (--holdout 0.2)")
        self.config, self.case = config, case
        held_out = tested and (case.held_out != "" or config.keep == "best")
        self.watched = (case.held_out or "test_loss") if held_out else "objective"  # by patience too
        plain = config.keep == "last" or config.host == "simulator" or config.machines > 1
        self.best = held_out and (config.keep == "best" or not plain)
        judged = case.convex and not config.own_rows  # on all rows, here
        self.judged = judged and size_of(case) <= MOST_JUDGED
        self.finishes = case.convex and not plain
        meant = config.epochs >= type(config).epochs and config.target is None
        self.exact = (
            self.finishes and not self.best and meant and not config.l1 > 0
        )  # whose steps are taken in any case
        self.exact_seconds: float | None = None  # that exact steps took
        self.left: float | None = None  # share of the objective that it may be above the optimum after them
        followed = self.finishes and not self.best and self.judged
        self.mean = np.zeros(case.problem.size) if followed else None
        self.raw: dict[str, Any] = {}  # what the last row said before the model was chosen
        self.kept: int | float = 0  # the epoch that the model is of

    def follow(self, flat: np.ndarray, epoch: int) -> None:
        """Update the tail mean at the end of an epoch."""
        if self.mean is not None:
            with np.errstate(all="ignore"):  # parameters that are not finite show in the row
                move_mean(self.mean, flat, epoch)

    def state(self) -> dict[str, Any]:
        """What a checkpoint's header must hold, as JSON."""
        return {"raw": self.raw, "kept": self.kept}

    def restore(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """Go on from a checkpoint; one of a run that followed no mean leaves it out."""
        last = header["history"][-1]
        self.raw, self.kept = dict(header.get("raw", {})), header.get("kept", last["epoch"])
        if "mean" not in arrays:
            self.mean = None
        elif self.mean is not None:
            self.mean[:] = arrays["mean"]

    def takes(self, history: list[dict[str, Any]]) -> bool:
        """Whether the parameters of the last row become the model for now."""
        row, field = history[-1], self.watched
        whole = [past for past in history[:-1] if is_whole(past) and past["epoch"] > 0]
        before = [past[field] for past in whole if _is_number(past, field)]
        taken = not (self.best and before) or (is_whole(row) and _is_number(row, field) and row[field] < min(before))
        self.kept = row["epoch"] if taken else self.kept
        return taken

    def finish(self, solution: Any, history: list[dict[str, Any]]) -> Any:
        """Return the model's parameters at the end of a run, and complete its last row."""
        row, case = history[-1], self.case
        judged = self.judged and row["status"] == "ok"
        mine: dict[str, Any] = row if self.kept == row["epoch"] or not judged else case.evaluate(solution)
        if judged and self.finishes:
            if self.mean is not None and is_whole(row) and row["epoch"] > 1:
                solution, mine = self._better(solution, mine, case.solution(self.mean.astype(np.float32)))
            if self.config.l1 > 0:
                solution, mine = self._improved(solution, mine)
        if judged:
            norm, gain, bound = *case.judge(solution), None
            chosen = history[0].get("l2_epochs")  # of the fits that l2 was chosen by; 0 of exact ones: it is for one
            early = chosen is not None and 0 < chosen < EARLY
            least = LEAST if chosen == 0 else UNSETTLED / 2
            if self.exact and not early and is_whole(row) and (gain is None or gain >= least):
                solution, mine = self._improved(solution, mine)
                norm, gain = case.judge(solution)
            bound = self.left if gain is None else None
            newest = self.kept == row["epoch"]  # else the loss on held-out rows has passed its lowest
            if newest and mine is not row:
                self.raw = {name: row[name] for name in (*mine, "train_seconds")}
                row.update(mine, train_seconds=row["train_seconds"] + (self.exact_seconds or 0.0))
            row["gradient_norm"], row["exact_seconds"] = norm, self.exact_seconds
            row["verdict"] = verdict(self.config, history, gain, bound) if newest else "settled"
        row["kept_epoch"] = self.kept
        return solution

    def _improved(self, solution: Any, mine: Any) -> tuple[Any, Any]:
        """The solution after exact steps, if it is better; they are on the clock."""
        began = time.perf_counter()
        found, self.left = self.case.improved(solution)
        self.exact_seconds = time.perf_counter() - began
        return self._better(solution, mine, found, or_equal=True)

    def past(self, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows as they were before the model was chosen, which is what stopping goes by."""
        return [*history[:-1], history[-1] | self.raw]

    def _better(self, solution: Any, mine: Any, other: Any, or_equal: bool = False) -> tuple[Any, Any]:
        """The better of two solutions and its measurements; with held-out rows both losses count."""
        found = self.case.evaluate(other)
        fields = [name for name in ("objective", self.watched) if _is_number(mine, name)]
        falls = [found[name] <= mine[name] if or_equal else found[name] < mine[name] for name in fields]
        return (other, found) if all(falls) else (solution, mine)


def _is_number(row: dict[str, Any], name: str) -> bool:
    value = row.get(name)
    return value is not None and math.isfinite(value)


def rest_of(found: dict[str, Any]) -> dict[str, Any]:
    """Other training metrics than the loss: they appear in the last row only, and are null in others."""
    return {name: value for name, value in found.items() if name.startswith("train_") and name != "train_loss"}
