"""The protocol of a case: one problem posed on one set of data, with all that the trainer asks of it.

A case is the parent's side of a problem: it takes the user's data, makes the problem and the arrays of its kernel,
evaluates parameters and makes a model of them. The workers' side is in ``work.py``. The trainer knows no problem by
name, and each problem has its own module of cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from hogwild.config import TrainConfig
from hogwild.hosts.job import Job
from hogwild.methods import PROBLEMS, located
from hogwild.problems.sums import Sums
from hogwild.problems.work import Cut, Problem


class Ranks(Protocol):
    """A numbering of its own in which a case has the problem's parameters."""

    def size(self, problem: Any) -> int:
        """Number of parameters in the user's numbering."""

    def saved(self, problem: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        """Arrays of a checkpoint in the user's numbering."""

    def loaded(self, problem: Any, arrays: dict[str, Any]) -> dict[str, Any]:
        """The inverse of :meth:`saved`."""


class Case(Protocol):
    """What :class:`hogwild.training.run.Run` asks of a problem on its data.

    It is made of a config with the number of workers filled in, the training data, and test data or None, both as
    ``take`` returns them; that of a linear model also of held-out data, if these are not the test data.
    """

    names: tuple[str, ...]  # names of a solution's arrays
    config: TrainConfig  # with discipline "auto" resolved
    problem: Problem
    order: Cut
    n: int  # examples in an epoch
    note: str  # what else was chosen by itself, for the user; empty if nothing
    reason: str  # reason for what "auto" chose; empty if there was no choice
    fingerprint: str  # of the training data
    held_out: str  # field of the loss on data held out of the training data, which may choose; "" if there are none
    convex: bool  # the objective is, so that a mean may be the better model; then :meth:`judge` judges it
    ranks: Ranks | None  # of the parameters, if they are not in the user's numbering; models and checkpoints are

    def __init__(self, config: TrainConfig, train: Any, test: Any, *held: Any) -> None: ...

    @staticmethod
    def take(data: Any) -> Any:
        """Convert the user's data to the problem's container, which has a length and a ``store``; raise UsageError."""

    def cut(self) -> dict[str, Any]:
        """What a checkpoint must store for its chunks to be found again, as JSON."""

    def recut(self, saved: dict[str, Any]) -> None:
        """Cut the data as a checkpoint's :meth:`cut` says."""

    def make_evaluator(self, like: Case | None = None) -> None:
        """Prepare to evaluate; called after all quick checks.

        ``like`` is a prepared case of the same objective on the same data, whose work may be shared.
        """

    def lay_out(self, shared: bool) -> Job:
        """Return the filled memory that workers need; what only they need is dropped here."""

    def search_step(self) -> Callable[[], tuple[float, dict[str, Any]]]:
        """Prepare the search for a step when none was given; the function returned runs on the clock.

        It returns the step, and what was tried as fields of the first row.
        """

    def slope(self) -> Callable[[float], float]:
        """The derivative of the loss at a prediction for target 1, for the schedule "optimal"."""

    def solution(self, flat: Any) -> tuple[Any, ...]:
        """The arrays ``names`` of flat parameters, as copies."""

    def evaluate(self, solution: tuple[Any, ...], sums: np.ndarray | None = None) -> dict[str, float | None]:
        """The ``objective`` and the metrics, as fields of a row; a device may have made the ``sums`` over examples."""

    def judge(self, solution: tuple[Any, ...], objective: float) -> tuple[float, float | None]:
        """The gradient's norm over that at the start, and a share by which the objective can be lowered at least."""

    def improved(self, solution: tuple[Any, ...], objective: float) -> tuple[tuple[Any, ...], float | None]:
        """A solution after exact steps on all rows, or the same one if its objective is as low; and the share of it
        that it may be above the optimum, None if that is unknown.
        """

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        """The row's field for the speed of an epoch."""

    def model(self, solution: tuple[Any, ...], config: TrainConfig, history: list[dict[str, Any]]) -> Any:
        """The trained model."""


class Summable(Case, Protocol):
    """A case that can be posed on one machine's part of the rows, and whose evaluation is of sums over rows."""

    @staticmethod
    def own_facts(config: TrainConfig, rows: Any) -> tuple[dict[str, Any], Any]:
        """What the other machines must know of these rows, as JSON, and how many rows hold each feature."""

    def sums(self, solution: tuple[Any, ...]) -> list[Sums]:
        """What an evaluation finds in the rows that this case has."""

    def facts(self, solution: tuple[Any, ...], parts: list[list[Sums]]) -> dict[str, float | None]:
        """What :meth:`evaluate` returns, from the sums of several cases."""


def case_of(problem: str) -> type[Case]:
    """The class of cases of a problem, one of ``methods.PROBLEMS``."""
    found: type[Case] = located(PROBLEMS[problem].case)
    return found


def size_of(case: Case) -> int:
    """Number of parameters in the user's numbering."""
    return case.problem.size if case.ranks is None else case.ranks.size(case.problem)


def ranked(case: Case, arrays: dict[str, Any], back: bool = False) -> dict[str, Any]:
    """Arrays of a checkpoint in the problem's numbering; ``back``: those of the problem in the user's."""
    if case.ranks is None:
        return arrays
    return (case.ranks.saved if back else case.ranks.loaded)(case.problem, arrays)
