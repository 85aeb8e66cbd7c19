"""Plans what is run: methods x workers x steps x seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hogwild.compare.run.methods import Method, find
from hogwild.config import LARGEST_FLOAT32
from hogwild.errors import UsageError

TUNING_SEED = 1_000_003  # added to the seed: steps are chosen on an order that is never reported
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # the grid, relative to the probed step


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
        table = [find(name) for name in self.methods]
        return [(method, count) for method in table for count in self._counts(method)]

    def _counts(self, method: Method) -> tuple[int, ...]:
        if not method.parallel:
            return (1,)
        return self.workers if method.device != "cpu" else self.cpu_workers or self.workers

    @property
    def most_workers(self) -> int:
        """Largest number of workers of a method on the CPU."""
        return max((count for method, count in self.pairs() if method.device == "cpu"), default=1)

    def tuning(self, steps: Sequence[float] | None = None) -> list[Cell]:
        """Trials of the grid, or of other steps: the same for all methods with a step; none if there is no choice."""
        if len(self.grid) == 1:
            return []
        seed = self.first_seed + TUNING_SEED
        pairs = [(method, count) for method, count in self.pairs() if method.tuned]
        steps = self.grid if steps is None else steps
        return [Cell("tuning", method.name, count, step, seed) for step in steps for method, count in pairs]

    def further(self, winners: dict[tuple[str, int], float], steps: list[float]) -> list[Cell]:
        """Return trials, for all methods, of the step beyond an end of the grid at which any was best, if any was.

        Parameters
        ----------
        winners : dict
            Best step of each method and number of workers.
        steps : list of float
            Ascending: the grid, and steps tried beyond it.
        """
        if len(steps) < 2:
            return []
        best = set(winners.values())
        below = steps[0] ** 2 / steps[1]
        above = steps[-1] ** 2 / steps[-2]
        return self.tuning([below] * (steps[0] in best) + [above] * (steps[-1] in best))

    def reported(self, winners: dict[tuple[str, int], float]) -> list[Cell]:
        """Every method at its own best step, once per seed; methods take turns, as machines drift."""
        return [
            Cell("reported", method.name, count, winners.get((method.name, count), step), seed)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
            for method, count in self.pairs()
            for step in (self.grid[0] if method.tuned else None,)
        ]
