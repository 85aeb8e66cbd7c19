"""Plans what is run: methods x workers x steps x seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hogwild.compare.report.results import Row, best_step, lowest
from hogwild.compare.run.methods import Method, find
from hogwild.config import LARGEST_FLOAT32
from hogwild.errors import UsageError

TUNING_SEED = 1_000_003  # added to the seed: steps are chosen on an order that is never reported
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # the grid, relative to the probed step
EXTENSIONS = 6  # most steps, or one more, by which a grid that was not asked for grows


@dataclass(frozen=True)
class Cell:
    """One training run."""

    phase: str  # "tuning" or "reported"
    method: str
    workers: int
    step: float | None
    seed: int

    @property
    def name(self) -> str:
        """Name, unique in a comparison."""
        step = "-" if self.step is None else f"{self.step:.9g}"
        return f"{self.phase}/{self.method}/{self.workers}/{step}/{self.seed}"


@dataclass(frozen=True)
class ComparisonPlan:
    """What one comparison measures.

    Attributes
    ----------
    seeds : int
        Repeats of every cell; repeat k uses the orders of seed ``first_seed + k``.
    workers : tuple of int
        Ascending.
    grid : tuple of float
        Steps to try for every method; a single one is used without trials; empty: the grid is found by probing.
    epochs : int
    methods : tuple of str
    eps : tuple of float
        Targets, as fractions of the gap from the start to the optimum that may remain; descending.
    cpu_workers : tuple of int
        Numbers of workers for methods on the CPU if ``workers`` are replicas on a GPU; empty: the same.
    """

    seeds: int
    workers: tuple[int, ...]
    grid: tuple[float, ...]
    epochs: int
    methods: tuple[str, ...]
    eps: tuple[float, ...] = (1e-1, 1e-2, 1e-3)
    first_seed: int = 0
    cpu_workers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("epochs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)}: expected at least {least}")
        if any(not 0 < step < LARGEST_FLOAT32 for step in self.grid):
            raise UsageError(f"steps={self.grid}: expected numbers above 0")
        if not self.workers or min(self.workers + self.cpu_workers) < 1:
            raise UsageError(f"workers={self.workers}: expected numbers from 1")
        if not self.eps or not all(0 < value < 1 for value in self.eps):
            raise UsageError(f"eps={self.eps}: expected numbers between 0 and 1")

    def pairs(self) -> list[tuple[Method, int]]:
        """Methods with their numbers of workers."""
        pairs = []
        for method in map(find, self.methods):
            counts = self.workers if method.device != "cpu" else self.cpu_workers or self.workers
            if method.kind == "exchange":  # one replica has nobody to trade with
                counts = tuple(count for count in counts if count > 1) or counts
            pairs += [(method, count) for count in (counts if method.parallel else (1,))]
        return pairs

    def cells(self, head: Row, done: Mapping[str, Sequence[Row]]) -> list[Cell]:
        """Return all cells that are known: while trials are missing nobody knows the steps of the reported ones.

        The same steps are tried for all methods. A grid that was not asked for goes on while any method is best at an
        end of it, so no method's best step may lie outside. Reported cells take turns, as machines drift.

        Parameters
        ----------
        head : dict
            The row of phase "optimum", with the grid.
        done : mapping
            Rows of every finished cell by its name.
        """
        steps = list(head["step_grid"])
        winners: dict[tuple[str, int], float] = {}
        trials: list[Cell] = []
        while len(steps) > 1:
            trials = [
                Cell("tuning", method.name, count, step, self.first_seed + TUNING_SEED)
                for step in steps
                for method, count in self.pairs()
                if method.tuned
            ]
            if not done.keys() >= {cell.name for cell in trials}:
                return trials
            winners = self.winners(head, {cell: done[cell.name] for cell in trials})
            tried, best = sorted(steps), winners.values()
            more = [tried[0] ** 2 / tried[1]] * (tried[0] in best) + [tried[-1] ** 2 / tried[-2]] * (tried[-1] in best)
            if self.grid or not more or len(steps) >= len(head["step_grid"]) + EXTENSIONS:
                break
            steps += more
        return trials + [
            Cell("reported", method.name, count, winners.get((method.name, count), step), seed)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for method, count in self.pairs()
            for step in (steps[0] if method.tuned else None,)
        ]

    def winners(self, head: Row, trials: Mapping[Cell, Sequence[Row]]) -> dict[tuple[str, int], float]:
        """Return the best step of every method and number of workers, from the trials."""
        optimum = head["objective"]
        if optimum is None:  # if it is unknown, the best of the trials replaces it
            optimum = lowest((row for rows in trials.values() for row in rows), head["start_objective"])
        by_pair: dict[tuple[str, int], dict[float, Sequence[Row]]] = {}
        for cell, rows in trials.items():
            if cell.step is not None and not rows[0]["status"].startswith("refused"):
                by_pair.setdefault((cell.method, cell.workers), {})[cell.step] = rows
        return {pair: best_step(steps, optimum, head["start_objective"], self.eps) for pair, steps in by_pair.items()}
