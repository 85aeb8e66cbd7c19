"""Suites: comparisons that belong together, run one after another, each in a folder of its own.

``paper`` is the table of the Hogwild paper, on stand-ins for its data and by its protocol: 20 epochs, a step multiplied
by 0.9 after each, and for all methods the largest step that converges with one worker. ``exchanges`` says which
exchange is sooner over which link, by the simulator's clock: replicas are set beside one worker on data shaped like
RCV1, on the same rows at ten times the work a row, on crossed categories, and on clicks with a million features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hogwild import machine
from hogwild.compare.run.harness import TIMEOUT, Comparison, ComparisonProgress
from hogwild.compare.run.methods import chosen
from hogwild.compare.run.paper import DECAY, EPOCHS, PAPER
from hogwild.compare.run.plan import ComparisonPlan
from hogwild.config import TrainConfig
from hogwild.errors import UsageError
from hogwild.methods import REAL_HOSTS, parse_link

if TYPE_CHECKING:
    from hogwild.data.cache import Cache

RIVALS = ("hogwild", "tiered", "aig", "round-robin", "locked")  # of the paper's suite, in addition to serial
LINK = "latency=0.2ms,bandwidth=1Gbit"
FEWEST, NARROWEST = 2000, 1000  # rows and features of a set of exchanges
OFTEN = "{often}"  # stands for the rows between two messages of gossip, which belong to the data
TRADING = (
    "averaging",
    "averaging:mean=rows",
    "averaging:period=0.25",
    f"gossip:period={OFTEN}",
    f"gossip:period={OFTEN},home=0",
    "server:push=1000",
)
RCV1, CTR = "synthetic:rcv1?rows={rows}", "synthetic:ctr?rows={rows}&features={features}"
#: Data with {rows} and {features}; rows at scale 1; virtual time of one; rows between two messages; features.
SETS: dict[str, tuple[str, int, str, int, int]] = {
    "rcv1": (RCV1, 200_000, "0.2us", 250, 0),
    "rcv1 x10": (RCV1, 200_000, "2us", 100, 0),
    "categories x10": (CTR, 200_000, "2us", 100, 250_000),
    "clicks": (CTR, 100_000, "0.2us", 1000, 1_000_000),
}


@dataclass(frozen=True)
class SuitePart:
    """One comparison of a suite.

    Attributes
    ----------
    name : str
    data : str
        Its data, as ``hogwild.train`` reads them.
    plan : ComparisonPlan
    base : TrainConfig
        The objective, and who runs the workers.
    scale : float
        Share of the full size.
    held_out : str or float, optional
        Data to test on, or the share of the data that is held out for it.
    """

    name: str
    data: str
    plan: ComparisonPlan
    base: TrainConfig
    scale: float
    held_out: str | float | None = None

    def open(self, cache: Cache | None) -> tuple[Any, Any]:
        """Return data to train and to test on."""
        if self.base.problem == "cuts":
            from hogwild.data.graphs.source import open_graph

            return open_graph(self.data), None
        if self.base.problem == "completion":
            from hogwild.data.ratings.source import open_ratings

            return open_ratings(self.data, cache=cache).split(float(self.held_out or 0.0), self.plan.first_seed)
        from hogwild.data.rows.source import open_data

        rows = open_data(self.data, cache=cache)
        if self.held_out is None:
            return rows, None
        return rows, open_data(str(self.held_out), cache=cache, width=rows.width, beyond="ignore")


def paper(
    scale: float = 0.01,
    epochs: int = EPOCHS,
    workers: tuple[int, ...] = (),
    seeds: int = 1,
    seed: int = 0,
    methods: tuple[str, ...] = RIVALS,
    host: str = REAL_HOSTS[0],
    oversubscribe: bool = False,
) -> list[SuitePart]:
    """Return the paper's experiments, at a share of its sizes; ``workers`` is one number, by default all cores."""
    if len(workers) > 1:
        listed = ",".join(map(str, workers))
        raise UsageError(f"--workers {listed}: expected one number, for the paper's table has one column of seconds")
    if host == "simulator":
        raise UsageError("host='simulator': the paper's table is of seconds, which it has none of")
    names = tuple(method.name for method in chosen(list(methods)))
    plan = ComparisonPlan(
        seeds, workers or (machine.physical_cores(),), (), epochs, names, (1e-1, 1e-2), seed, one_step=True
    )
    same: dict[str, Any] = {"schedule": "epoch", "decay": DECAY, "host": host, "oversubscribe": oversubscribe}
    return [
        SuitePart(
            each.name,
            each.name_at(scale),
            plan,
            TrainConfig(problem=each.problem, **same, **each.options),
            scale,
            each.held_out(scale) if callable(each.held_out) else each.held_out,
        )
        for each in PAPER
    ]


def exchanges(
    scale: float = 0.1,
    epochs: int = 16,
    workers: tuple[int, ...] = (4, 16),
    seeds: int = 3,
    seed: int = 0,
    methods: tuple[str, ...] = TRADING,
    steps: tuple[float, ...] = (),
    link: str = LINK,
) -> list[SuitePart]:
    """Return exchanges over a link, which has latency and bandwidth; ``workers`` are replicas.

    ``steps`` is the grid; empty: around the step that is probed for.
    """
    parse_link(link)
    if "row=" in link:
        raise UsageError(f"link={link!r}: the time of a row belongs to the data of the suite: leave it out")
    parts = []
    for name, (data, rows, row, often, features) in SETS.items():
        names = tuple(method.name for method in chosen([text.replace(OFTEN, str(often)) for text in methods]))
        there = ",".join(filter(None, (link, f"row={row}")))
        base = TrainConfig(host="simulator", delay="round-robin:quantum=50", link=there, l2=1e-5, intercept=False)
        plan = ComparisonPlan(seeds, workers, steps, epochs, names, (1e-2, 1e-3), seed)
        data = data.format(rows=max(int(rows * scale), FEWEST), features=max(int(features * scale), NARROWEST))
        parts.append(SuitePart(name, data, plan, base, scale))
    return parts


SUITES: dict[str, Callable[..., list[SuitePart]]] = {"paper": paper, "exchanges": exchanges}


@dataclass
class Suite:
    """Runs one comparison after another.

    Parameters
    ----------
    name : str
        A key of ``SUITES``.
    options : dict
        Keywords of that function.
    cache : Cache, optional
        Where generated data and optima are kept.
    command : str
        Command line, for the report.
    timeout : float
        Seconds of training after which a run is stopped.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    cache: Cache | None = None
    command: str = ""
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        scale = self.options.get("scale", 1.0)
        if not 0 < scale <= 1:
            raise UsageError(f"scale={scale:g}: expected a share of the full sizes, above 0 and at most 1")
        self.parts = SUITES[self.name](**self.options)
        self._part, self._running = "", ComparisonProgress("starting")

    @property
    def progress(self) -> ComparisonProgress:
        """Progress of the comparison that runs."""
        running = self._running
        return dataclasses.replace(running, label=f"{self._part}: {running.label}" if self._part else running.label)

    def run(self, out: str | Path) -> None:
        """Run what the folders in ``out`` do not hold yet."""
        for part in self.parts:
            self._part, self._running = part.name, ComparisonProgress("making the data")
            comparison = Comparison(
                *part.open(self.cache),
                part.plan,
                part.base,
                data=part.data,
                command=self.command,
                timeout=self.timeout,
                cache=None if self.cache is None else Path(self.cache.directory),
                suite={"suite": self.name, "set": part.name, "scale": part.scale},
            )
            self._running = comparison.progress
            comparison.run(Path(out, part.name.lower().replace(" ", "-")))
