"""The methods that can be compared: one row of a table each.

A method is a cell problem x discipline x order x exchange x host. What it may not do is said in one sentence, here, and
the sentence stands in the results where its figures would: nothing that was asked for is dropped.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hogwild.compare.outside import OUTSIDE
from hogwild.compare.subjects import SUBJECTS
from hogwild.config import TrainConfig
from hogwild.errors import UsageError


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    kind : str
        One of ``summary.KINDS``: what the report groups by.
    discipline, exchange, order : str
        As in :class:`hogwild.config.TrainConfig`; an order of None is that of the comparison.
    parallel : bool
        Whether it is run for every number of workers; else for one.
    tuned : tuple of str
        Parameters that are tuned: the step, or nothing.
    problem : str or None
        The only problem it is for; None: any.
    cost : float
        Guess of the seconds of its epoch over those of a serial epoch, for the estimate of a comparison's time only.
    """

    name: str
    kind: str
    discipline: str = "serial"
    exchange: str = "none"
    order: str | None = None
    parallel: bool = True
    tuned: tuple[str, ...] = ("step",)
    cost: float = 1.0
    problem: str | None = None

    @property
    def outside(self) -> bool:
        """Whether it is another program's solver."""
        return self.kind == "outside"

    def config(self, base: TrainConfig, workers: int, step: float | None, seed: int) -> TrainConfig:
        """The options of one run.

        Raises
        ------
        UsageError
            If they contradict each other.
        """
        order = base.order if self.order is None else self.order
        about: dict[str, Any] = {"discipline": self.discipline, "exchange": self.exchange, "order": order}
        return dataclasses.replace(base, workers=workers, step=step, seed=seed, **about)

    def refusal(
        self, base: TrainConfig, rows: Any, workers: int, cores: int, oversubscribe: bool = False
    ) -> str | None:
        """Why it cannot be compared here, in one sentence; None if it can."""
        if self.problem not in (None, base.problem):
            return f"{self.name} is for problem {self.problem}, not for {base.problem}"
        if self.outside:
            return OUTSIDE[self.name].refuse(base, rows)
        if workers > len(rows):
            return f"{workers} workers for {len(rows)} rows"
        if self.kind == "locks" and workers > cores and base.host != "simulator" and not oversubscribe:
            return (
                f"{workers} workers on {cores} cores would spin for locks whose holders do not run "
                "(--oversubscribe measures it all the same)"
            )
        try:
            config = self.config(base, workers, 1.0 if base.schedule != "optimal" else None, 0)
        except UsageError as error:
            return str(error)
        return SUBJECTS[base.problem].refusal(config, rows)


def _table(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


METHODS = _table(
    Method("serial", "serial", parallel=False),
    Method("hogwild", "lock-free", "hogwild", cost=1.2),
    Method("tiered", "lock-free", "tiered"),
    Method("atomic", "lock-free", "atomic", cost=3.0),
    Method("aig", "locks", "aig", cost=4.0),
    Method("locked", "locks", "locked", cost=1.3),
    Method("round-robin", "locks", "round-robin", cost=3.5),
    Method("blocks", "blocks", "hogwild", order="blocks", problem="completion"),
    Method("averaging", "exchange", exchange="averaging"),
    Method("one-shot-averaging", "exchange", exchange="one-shot-averaging"),
    Method("sklearn-sgd", "outside", parallel=False, cost=5.0, problem="linear"),
    Method("liblinear", "outside", parallel=False, tuned=(), cost=4.0, problem="linear"),
    Method("cornac", "outside", "hogwild", cost=4.0, problem="completion"),  # its threads share one model, unlocked
)


def usual(problem: str) -> list[str]:
    """Names of the methods of a problem, of which other programs only if they are there to be run."""
    return [
        name for name, method in METHODS.items()
        if method.problem in (None, problem) and not (method.outside and OUTSIDE[name].version is None)
    ]  # fmt: skip


def chosen(names: list[str]) -> list[Method]:
    """The methods of these names, in the table's order; ``serial``, by which the others are measured, always first.

    Raises
    ------
    UsageError
        For a name that is not in the table.
    """
    if unknown := [name for name in names if name not in METHODS]:
        raise UsageError(f"method {unknown[0]!r}: expected some of {', '.join(METHODS)}")
    return [method for name, method in METHODS.items() if name == "serial" or name in names]
