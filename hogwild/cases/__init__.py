"""A case is one problem posed on one set of data, with all that the trainer asks of it: one module a problem.

What workers do lies in ``problems/``; a case is the parent's side of it: it takes the user's data, makes the problem
and the arrays of its kernel, evaluates parameters and makes a model of them. The trainer knows no problem by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from hogwild.config import TrainConfig
from hogwild.hosts.job import Job
from hogwild.problems.work import Cut, Problem

_PLACES = {
    "linear": ("hogwild.cases.linear", "LinearCase"),
    "completion": ("hogwild.cases.completion", "CompletionCase"),
    "cuts": ("hogwild.cases.cuts", "CutsCase"),
    "module": ("hogwild.cases.module", "ModuleCase"),
}


class Case(Protocol):
    """What :class:`hogwild.training.Run` asks of a problem on its data.

    Made of a config with the workers filled in, the training data, and test data or None, both as ``take`` gives them.
    """

    names: tuple[str, ...]  # of the arrays of a solution
    config: TrainConfig  # the discipline "auto" settled
    problem: Problem
    order: Cut
    n: int  # examples in an epoch
    reason: str  # why "auto" became what it is; empty if there was nothing to weigh
    fingerprint: str  # of the training data

    def __init__(self, config: TrainConfig, train: Any, test: Any) -> None: ...

    @staticmethod
    def take(data: Any) -> Any:
        """What the user gave, as the problem's container, which has a length and a ``store``; raises UsageError."""

    def cut(self) -> dict[str, Any]:
        """What a checkpoint must say for its chunks to be found again, as JSON."""

    def recut(self, saved: dict[str, Any]) -> None:
        """Cut the data as a checkpoint's :meth:`cut` says."""

    def make_evaluator(self, like: Case | None = None) -> None:
        """Make ready to evaluate: after all checks that are quick.

        ``like`` is a case of the same objective on the same data that is ready: what it has made may be shared.
        """

    def lay_out(self, shared: bool) -> Job:
        """The memory that workers need, filled; what only it needs is dropped here."""

    def search_step(self) -> Callable[[], float]:
        """Make ready to look for a step where none was given; what it returns is called on the clock."""

    def slope(self) -> Callable[[float], float]:
        """The loss's derivative at a prediction for target 1, for the schedule "optimal"."""

    def solution(self, flat: Any) -> tuple[Any, ...]:
        """The arrays ``names`` of flat parameters in the user's numbering, copied."""

    def evaluate(self, solution: tuple[Any, ...]) -> dict[str, float | None]:
        """``objective`` and the metrics, as fields of a row."""

    def speed(self, updates: int, nonzeros: int, seconds: float) -> dict[str, float | None]:
        """The row's field for the speed of an epoch."""

    def model(self, solution: tuple[Any, ...], config: TrainConfig, history: list[dict[str, Any]]) -> Any:
        """The trained model."""


def case_of(problem: str) -> type[Case]:
    """The class of cases of a problem, one of ``config.PROBLEMS``."""
    module, name = _PLACES[problem]
    found: type[Case] = getattr(importlib.import_module(module), name)
    return found
