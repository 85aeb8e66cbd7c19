"""Plans what is run: methods x workers x steps x seeds, cut to a budget before anything starts.

A budget cuts in a fixed order: first seeds (three are kept, because a verdict needs them), then numbers of workers,
then steps of the grid, then epochs; fields that the user named are not cut. The results say what was cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hogwild.compare.report.results import FEWEST_PAIRS
from hogwild.compare.run.methods import Method, find
from hogwild.config import LARGEST_FLOAT32
from hogwild.data.order import BLOCKS_PER_CHUNK
from hogwild.errors import UsageError

FEWEST_SEEDS = FEWEST_PAIRS  # least number for a verdict
FEWEST_EPOCHS = 3
TUNING_SEED = 1_000_003  # added to the seed: steps are chosen on an order that is never reported
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # the grid, relative to the probed step
DELAYS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # seconds: the paper's
DELAY_REPEATS = 3
DELAY_SECONDS = 0.3  # approximate time that one worker spends on the delays of one epoch


@dataclass(frozen=True)
class Cell:
    """One training run or, in phase "delay", one timed epoch."""

    phase: str  # "tuning", "reported" or "delay"
    method: str
    workers: int
    step: float | None
    seed: int
    rules: tuple[str, ...] = ()  # rules that chose the step: "tuned", "serial" or "given"
    gradient_delay: float = 0.0

    @property
    def name(self) -> str:
        """Name, unique in a comparison."""
        step = "-" if self.step is None else f"{self.step:.9g}"
        delay = f"/{self.gradient_delay:g}" if self.phase == "delay" else ""
        return f"{self.phase}/{self.method}/{self.workers}/{step}/{self.seed}{delay}"


@dataclass(frozen=True)
class ComparisonPlan:
    """What one comparison measures; the fields that a budget may cut come first.

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
    delays : tuple of float
        Extra seconds per gradient, for the experiment of the paper's figure 5 (c); empty: none.
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
    delays: tuple[float, ...] = ()
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
        if any(not 0 <= value <= 1 for value in self.delays):
            raise UsageError(f"gradient delays {self.delays}: expected seconds from 0 to 1")

    def pairs(self) -> list[tuple[Method, int]]:
        """Methods with their numbers of workers."""
        table = [find(name) for name in self.methods]
        return [(method, count) for method in table for count in self._counts(method)]

    def _counts(self, method: Method) -> tuple[int, ...]:
        if not method.parallel:
            return (1,)
        return self.workers if method.device != "cpu" else self.cpu_workers or self.workers

    def crews(self) -> tuple[int, ...]:
        """Numbers of workers, ascending, of methods on the CPU that are run with several; 1 if there are none."""
        ours = [(method, count) for method, count in self.pairs() if method.device == "cpu"]
        return tuple(sorted({count for method, count in ours if method.parallel})) or (1,)

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
        """Every method at its own best step, and at serial's, once per seed; methods take turns, as machines drift."""
        common = winners.get(("serial", 1), self.grid[0])
        once: list[Cell] = []
        for method, count in self.pairs():
            if not method.tuned:
                once.append(Cell("reported", method.name, count, None, 0, ("tuned", "serial", "given")))
                continue
            best = winners.get((method.name, count), common)
            if len(self.grid) == 1:
                once.append(Cell("reported", method.name, count, best, 0, ("given",)))
                continue
            once.append(Cell("reported", method.name, count, best, 0, ("tuned", "serial")[: 1 + (best == common)]))
            if best != common:
                once.append(Cell("reported", method.name, count, common, 0, ("serial",)))
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [dataclasses.replace(cell, seed=seed) for seed in seeds for cell in once]

    def delayed(self, step: float) -> list[Cell]:
        """Cells of the experiment with expensive gradients, for our own methods that share one array on the CPU."""
        kinds = ("serial", "lock-free", "locks")
        pairs = [(method, n) for method, n in self.pairs() if method.kind in kinds and method.device == "cpu"]
        return [
            Cell("delay", method.name, count, step, repeat, (), delay)
            for repeat in range(DELAY_REPEATS)
            for delay in self.delays
            for method, count in pairs
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a plain dict."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ComparisonPlan:
        """Return the plan that :meth:`to_json` wrote."""
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**plain)


@dataclass(frozen=True)
class Prices:
    """Costs on this machine, measured in a serial epoch or two."""

    epoch: float  # seconds of a serial epoch
    evaluation: float  # seconds of an evaluation
    setup: float  # seconds from one run to the next
    together: int = 1  # rows that share one gradient

    def cell(self, cell: Cell, epochs: int, rows: int) -> float:
        """Estimated seconds of wall time."""
        method = find(cell.method)
        if cell.phase == "delay":
            n = delay_rows(cell.gradient_delay, cell.workers, rows, self.together)
            sharing = self.together * (1 if method.kind == "locks" else cell.workers)
            return self.setup + 2 * n * (cell.gradient_delay / sharing + method.cost * self.epoch / max(rows, 1))
        return self.setup + epochs * (method.cost * self.epoch + self.evaluation)

    def plan(self, plan: ComparisonPlan, rows: int) -> float:
        """Estimated seconds of a whole plan; every method is assumed to choose another step than serial."""
        cells = plan.tuning() + plan.reported({}) + plan.delayed(1.0)
        again = len(plan.grid) > 1  # again at serial's step
        return sum(
            self.cell(cell, plan.epochs, rows) * (1 + (again and cell.phase == "reported" and cell.workers > 1))
            for cell in cells
        )


def delay_rows(delay: float, workers: int, rows: int, together: int = 1) -> int:
    """Rows of an epoch with expensive gradients, so that it takes a limited time and gives each worker as many chunks.

    ``together`` is the number of rows that share one gradient.
    """
    share = BLOCKS_PER_CHUNK * max(workers, 2)
    wanted = max(2 * share, round(DELAY_SECONDS / delay) if delay else rows)
    return min(rows, -(-wanted // share) * share * together)


def fit(
    plan: ComparisonPlan, prices: Prices, rows: int, budget: float | None, named: Sequence[str] = ()
) -> tuple[ComparisonPlan, list[str]]:
    """Cut the plan to ``budget`` seconds as far as possible; return it with a sentence for everything left out.

    ``named`` lists fields of the plan that the user asked for explicitly, which are kept.
    """
    whole = plan
    for name, fewer in CUTS.items():
        while budget is not None and name not in named and prices.plan(plan, rows) > budget:
            value = fewer(getattr(plan, name))
            if value == getattr(plan, name):
                break
            plan = dataclasses.replace(plan, **{name: value})
    left_out = []
    if plan.seeds < whole.seeds:
        left_out.append(f"{plan.seeds} seeds instead of {whole.seeds}")
    if skipped := [str(count) for count in whole.workers if count not in plan.workers]:
        left_out.append(f"not run on {', '.join(skipped)} worker{'s' * (skipped != ['1'])}")
    if skipped := [f"{step:g}" for step in whole.grid if step not in plan.grid]:
        left_out.append(f"steps {', '.join(skipped)} not tried")
    if plan.epochs < whole.epochs:
        left_out.append(f"{plan.epochs} epochs instead of {whole.epochs}")
    if budget is not None and prices.plan(plan, rows) > budget:
        left_out.append(f"and still it is expected to take longer than the {budget:g} s that were asked for")
    return plan, left_out


#: What a budget cuts, in order, and how each field gets smaller; at its least it stays. Of the grid the ends go first,
#: because the middle steps are the most likely.
CUTS: dict[str, Callable[[Any], Any]] = {
    "seeds": lambda seeds: max(seeds - 1, min(seeds, FEWEST_SEEDS)),
    "workers": lambda counts: counts[1:] or counts,
    "grid": lambda steps: steps[1:-1] if len(steps) > 2 else steps[:1],
    "epochs": lambda epochs: max(epochs * 3 // 4, min(epochs, FEWEST_EPOCHS)),
}
