"""Which exchange is sooner over which link, by the simulator's clock: one comparison for each kind of data.

Replicas are set beside one worker on data shaped like RCV1, on the same rows at ten times the work a row, on crossed
categories, and on clicks with a million features. Every method is tuned over the same grid of steps, on an order that
is not reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hogwild.compare.run.harness import TIMEOUT, Comparison, ComparisonProgress
from hogwild.compare.run.methods import chosen
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.methods import parse_link

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

EPS = (1e-2, 1e-3)
LINK = "latency=0.2ms,bandwidth=1Gbit"
FEWEST = 2000  # rows
OFTEN = "{often}"  # stands for the rows between two messages of gossip, which belong to the data
METHODS = (
    "averaging", "averaging:mean=rows", "averaging:period=0.25", f"gossip:period={OFTEN}",
    f"gossip:period={OFTEN},home=0", "server:push=1000",
)  # fmt: skip


@dataclass(frozen=True)
class Simulated:
    """One kind of data."""

    data: str  # with {rows} and {features}
    rows: int  # at scale 1
    row: str  # virtual time of one
    often: int  # rows between two messages of gossip
    features: int = 0  # at scale 1

    def name_at(self, scale: float) -> str:
        """Name of the generated data, which have a fixed number of features a row."""
        return self.data.format(rows=max(int(self.rows * scale), FEWEST), features=int(self.features * scale))


SETS = {
    "rcv1": Simulated("synthetic:rcv1?rows={rows}", 200_000, "0.2us", 250),
    "rcv1 x10": Simulated("synthetic:rcv1?rows={rows}", 200_000, "2us", 100),
    "categories x10": Simulated("synthetic:ctr?rows={rows}&features={features}", 200_000, "2us", 100, 250_000),
    "clicks": Simulated("synthetic:ctr?rows={rows}&features={features}", 100_000, "0.2us", 1000, 1_000_000),
}


@dataclass(frozen=True)
class ExchangesPlan:
    """Plan of the suite.

    Attributes
    ----------
    scale : float
        Share of the rows, and of the features of categories and clicks.
    methods : tuple of str
        Names, which may hold ``OFTEN``.
    replicas : tuple of int
    steps : tuple of float
        The grid; empty: around the step that is probed for.
    epochs, seeds, first_seed : int
    link : str
        Latency and bandwidth; the time of a row belongs to the data.
    """

    scale: float = 0.1
    methods: tuple[str, ...] = METHODS
    replicas: tuple[int, ...] = (4, 16)
    steps: tuple[float, ...] = ()
    epochs: int = 16
    seeds: int = 3
    first_seed: int = 0
    link: str = LINK

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise UsageError(f"scale={self.scale:g}: expected a share of the sizes, above 0 and at most 1")
        parse_link(self.link)
        if "row=" in self.link:
            raise UsageError(f"link={self.link!r}: the time of a row belongs to the data of the suite: leave it out")

    def of(self, each: Simulated) -> tuple[ComparisonPlan, TrainConfig]:
        """Return the plan of one comparison, and the objective."""
        names = tuple(method.name for method in chosen([name.replace(OFTEN, str(each.often)) for name in self.methods]))
        link = ",".join(filter(None, (self.link, f"row={each.row}")))
        base = TrainConfig(host="simulator", delay="round-robin:quantum=50", link=link, l2=1e-5, intercept=False)
        return ComparisonPlan(self.seeds, self.replicas, self.steps, self.epochs, names, EPS, self.first_seed), base


class Exchanges:
    """Runs one comparison after another.

    Parameters
    ----------
    plan : ExchangesPlan
    cache : Cache, optional
        Where generated data and optima are kept.
    command : str
        Command line, for the report.
    timeout : float
        Seconds of training after which a run is stopped.
    """

    def __init__(
        self, plan: ExchangesPlan, cache: Cache | None = None, command: str = "", timeout: float = TIMEOUT
    ) -> None:
        self.plan, self.cache, self.command, self.timeout = plan, cache, command, timeout
        for each in SETS.values():
            plan.of(each)  # whatever is wrong with it is said at once
        self._name, self._running = "", ComparisonProgress("starting")

    @property
    def progress(self) -> ComparisonProgress:
        """Progress of the comparison that runs."""
        running = self._running
        return dataclasses.replace(running, label=f"{self._name}: {running.label}" if self._name else running.label)

    def listed(self) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
        """Yield the name of each kind of data, the data, the link with the time of a row, and the methods."""
        for name, each in SETS.items():
            plan, base = self.plan.of(each)
            yield name, each.name_at(self.plan.scale), base.link, plan.methods

    def run(self, out: str | Path) -> None:
        """Run what the folders of ``out`` do not hold yet."""
        from hogwild.data.rows.source import open_data

        for (name, each), folder in zip(SETS.items(), folders(out)):
            self._name, self._running = name, ComparisonProgress("making the data")
            rows = open_data(each.name_at(self.plan.scale), cache=self.cache)
            plan, base = self.plan.of(each)
            comparison = Comparison(
                rows, None, plan, base, data=name, command=self.command, suite="exchanges",
                timeout=self.timeout,
                cache=None if self.cache is None else Path(self.cache.directory),
            )  # fmt: skip
            self._running = comparison.progress
            comparison.run(out=folder)


def folders(out: str | Path) -> list[Path]:
    """Where the rows of each comparison are."""
    return [Path(out, name.replace(" ", "-")) for name in SETS]
